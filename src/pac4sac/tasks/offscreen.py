"""MuJoCo's rendering without a display: EGL or OSMesa is chosen before MuJoCo is imported."""

import ctypes
import os
import sys

VARIABLE = "MUJOCO_GL"  # MuJoCo, Gymnasium and dm_control read it
LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}  # in the order of preference
WITHDRAWN = "withdrawn"
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
ADVICE = (
    " MuJoCo renders without a display if EGL or OSMesa is installed (on Debian and Ubuntu: "
    "apt install libegl1 libgl1, or libosmesa6); "
    f"{VARIABLE}=egl or {VARIABLE}=osmesa selects one of them."
)


_choices: list[str] = []  # choices of this module; WITHDRAWN comes last


def choose_offscreen_rendering() -> None:
    """Choose MuJoCo's renderer if there is no display and the user has not chosen one."""
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
    """Undo the choice permanently if dm_control cannot be imported with it, and return whether a
    choice was undone."""
    if os.environ.get(VARIABLE) not in _choices:
        return False
    del os.environ[VARIABLE]
    _choices.append(WITHDRAWN)
    return True


def advice_on(error: BaseException) -> str:
    """Return advice on an error about rendering without a display; "" for other errors."""
    about = f"{type(error).__module__} {error}".lower()
    return ADVICE if "mujoco" in about or "gl" in about else ""


def _can_be_loaded(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
