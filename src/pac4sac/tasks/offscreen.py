"""Let MuJoCo draw without a display: choose EGL or OSMesa before it is imported."""

import ctypes
import os
import sys

VARIABLE = "MUJOCO_GL"  # MuJoCo, Gymnasium and dm_control read it
LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}  # in the order of preference
WITHDRAWN = "withdrawn"
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
ADVICE = (
    " MuJoCo draws without a display if EGL or OSMesa is installed (on Debian and Ubuntu: "
    f"apt install libegl1 libgl1, or libosmesa6); "
    f"{VARIABLE}=egl or {VARIABLE}=osmesa chooses one of them."
)


_choices: list[str] = []  # made by this module; WITHDRAWN is the last one


def choose_offscreen_rendering() -> None:
    """Choose how MuJoCo draws if there is no display and the user has not chosen."""
    if sys.platform != "linux" or VARIABLE in os.environ or WITHDRAWN in _choices:
        return
    if any(os.environ.get(display) for display in DISPLAYS):
        return
    for name, library in LIBRARIES.items():
        if _can_be_loaded(library):
            os.environ[VARIABLE] = name
            _choices.append(name)
            return


def withdraw_choice() -> bool:
    """Undo a choice with which dm_control cannot be imported, for good; False if there is none."""
    if os.environ.get(VARIABLE) not in _choices:
        return False
    del os.environ[VARIABLE]
    _choices.append(WITHDRAWN)
    return True


def advice_on(error: BaseException) -> str:
    """Return what to install or to set, if an error is about drawing without a display."""
    about = f"{type(error).__module__} {error}".lower()
    return ADVICE if "mujoco" in about or "gl" in about else ""


def _can_be_loaded(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
