"""Would training work on this machine, how fast, and would it give the same numbers as elsewhere?"""

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pac4sac.base.cores import machine_cores
from pac4sac.base.errors import how_to_install

# The versions of constraints.txt on which the digits of a result depend.
PINNED = {"torch": "2.13.0", "numpy": "2.4.6", "gymnasium": "1.4.0", "pybullet": "3.2.7"}
NEEDED = (*PINNED, "safetensors", "tyro", "rich", "matplotlib", "scipy")
EXTRAS = {
    "mujoco": "mujoco",
    "dmc": "dm_control",
    "pandas": "pandas",
    "tensorboard": "tensorboard",
    "video": "imageio_ffmpeg",
    "onnx": "onnxscript",
}
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_DYNAMIC", "MKL_CBWR")
TF32_VARIABLES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
LITTLE_MEMORY, LITTLE_DISK = 2.0, 1.0  # GB
BUILDS_FROM_SOURCE = "has no wheel for Python 3.12 and later: pip builds it, with a C++ compiler and Python's headers"


@dataclass(frozen=True)
class Finding:
    what: str
    value: str
    note: str = ""
    state: Literal["fine", "worth knowing", "missing"] = "fine"


MARKS = {"fine": "[green]✓[/]", "worth knowing": "[yellow]![/]", "missing": "[red]✗[/]"}


def doctor(console: Console | None = None) -> int:
    """Print what was found; 0 where training would work, 1 where something essential is missing."""
    console = console or Console()
    with console.status("looking at this machine …"):
        parts = {"Software": list(software()), "Machine": list(machine())}
        if not any(finding.state == "missing" for finding in parts["Software"]):
            parts["Speed"] = list(speed())
            parts["Reproducibility"] = list(reproducibility())
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for column in ("mark", "what", "value"):
        table.add_column(column, no_wrap=column != "value")
    table.add_column("note", style="dim")
    for title, findings in parts.items():
        table.add_row("", f"[bold]{title}[/]")
        for found in findings:
            table.add_row(MARKS[found.state], found.what, escape(found.value), escape(found.note))
    console.print(table)
    missing = [found.what for findings in parts.values() for found in findings if found.state == "missing"]
    verdict = f"Training would not work here: see {', '.join(missing)}." if missing else "Training works here."
    console.print(f"\n{verdict}", style="bold red" if missing else "bold green")
    return 1 if missing else 0


def software() -> Iterator[Finding]:
    yield Finding("python", platform.python_version())
    yield Finding("pac4sac", _version("pac4sac") or "run from source")
    for name in NEEDED:
        version = _version(name)
        if version is None:
            hint = (
                f"{name} {BUILDS_FROM_SOURCE}" if name == "pybullet" and _pybullet_is_built() else "pip install pac4sac"
            )
            yield Finding(name, "missing", hint, "missing")
        else:
            built = name == "pybullet" and _pybullet_is_built()
            yield Finding(name, version, f"{name} {BUILDS_FROM_SOURCE}" if built else "")
    there = [extra for extra, module in EXTRAS.items() if importlib.util.find_spec(module)]
    absent = [extra for extra in EXTRAS if extra not in there]
    note = f"not installed: {', '.join(absent)}; {how_to_install(','.join(absent))}" if absent else ""
    yield Finding("extras", ", ".join(there) or "none", note)


def machine() -> Iterator[Finding]:
    usable = machine_cores()
    yield Finding("processor", f"{platform.system()} {platform.machine()}, {usable} cores")
    yield from _devices()
    compiler = shutil.which("g++")
    without = "not needed; without g++ the backend compiled is not chosen, and the CPU trains with eager"
    yield Finding(
        "C++ compiler", compiler or "none", "" if compiler else without, "fine" if compiler else "worth knowing"
    )
    if _pybullet_is_built():
        headers = (Path(sysconfig.get_path("include")) / "Python.h").exists()
        yield Finding("Python's headers", "there" if headers else "none", "for building pybullet")
    memory = _free_memory()
    if memory is not None:
        yield Finding("free memory", f"{memory:.1f} GB", state="fine" if memory > LITTLE_MEMORY else "worth knowing")
    disk = shutil.disk_usage(Path.cwd()).free / 1e9
    yield Finding("free disk here", f"{disk:.1f} GB", state="fine" if disk > LITTLE_DISK else "worth knowing")
    if not os.access(Path.cwd(), os.W_OK):
        yield Finding("this folder", "read-only", "train with --out FOLDER where you can write", "worth knowing")


def _devices() -> Iterator[Finding]:
    if _version("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        yield Finding("GPU", "none", "training takes the CPU")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield Finding(f"GPU {index}", f"{properties.name}, {properties.total_memory / 1e9:.0f} GB")


def speed() -> Iterator[Finding]:
    from pac4sac.tasks import get_task

    task = get_task("cartpole-swingup")
    problem, learn = _attempt(_learning_seconds)
    if problem:
        yield Finding("PAC4SAC", "does not run", problem, "missing")
    else:
        note = "one action and one update, eager, one run, the paper's networks, on the CPU"
        yield Finding("PAC4SAC", f"{1e3 * learn:.1f} ms", note)
    problem, step = _attempt(_simulator_seconds)
    if problem:
        yield Finding(task.name, "does not run", problem, "missing")
    else:
        yield Finding(task.name, f"{1e6 * step:.0f} µs", "one step of the simulator")


def _learning_seconds() -> float:
    import torch

    from pac4sac.agents import get_algorithm, make_config
    from pac4sac.training.backends import Rehearsal, choose_threads
    from pac4sac.training.learner import Learner

    agent = get_algorithm("pac4sac").agent([make_config("pac4sac")], 5, 1)  # the sizes of the cartpole
    learner = Learner(agent, [0], 2000, torch.device("cpu"))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(choose_threads(learner))
        with Rehearsal(learner) as rehearsal:
            return rehearsal.seconds()
    finally:
        torch.set_num_threads(threads)


def _simulator_seconds(steps: int = 300) -> float:
    from pac4sac.tasks import get_task, make_env

    with contextlib.closing(make_env(get_task("cartpole-swingup"))) as env:
        env.reset(seed=0)
        action = env.action_space.sample()
        start = time.perf_counter()
        for _ in range(steps):
            env.step(action)
        return (time.perf_counter() - start) / steps


def _attempt(measure: Callable[[], float]) -> tuple[str, float]:
    """What went wrong, or nothing and the seconds: a doctor reports a broken installation instead of dying of it."""
    try:
        return "", measure()
    except Exception as error:
        return f"{type(error).__name__}: {error}", 0.0


def reproducibility() -> Iterator[Finding]:
    import torch

    other = {name: found for name, pinned in PINNED.items() if (found := _version(name)) and _release(found) != pinned}
    versions = "; ".join(f"{name} {found} instead of {PINNED[name]}" for name, found in other.items())
    yield _risk("versions", versions, "the pinned ones", "digits may differ from those of the pinned versions")
    threads = _set_variables(THREAD_VARIABLES)
    yield _risk("threads", threads, "no variable set", "their number changes last digits; an experiment keeps its own")
    tf32 = _set_variables(TF32_VARIABLES)
    if torch.get_float32_matmul_precision() != "highest":
        tf32 = "; ".join(filter(None, [tf32, f"matmul precision {torch.get_float32_matmul_precision()}"]))
    yield _risk("TF32", tf32, "off", "products on the GPU keep 10 bits of 23")
    if torch.cuda.is_available():
        note = "digits differ from the CPU's and between kinds of GPU; exact resume is promised on the CPU"
        yield Finding("GPU", "in use", note, "worth knowing")


def _risk(what: str, risk: str, otherwise: str, note: str) -> Finding:
    return Finding(what, risk, note, "worth knowing") if risk else Finding(what, otherwise)


def _set_variables(names: tuple[str, ...]) -> str:
    return "; ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> str:
    """2.13.0+cpu is a build of 2.13.0."""
    return version.split("+")[0]


def _pybullet_is_built() -> bool:
    return sys.version_info >= (3, 12)


def _free_memory() -> float | None:
    """GB; None where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e9 for line in lines if line.startswith("MemAvailable"))
    with contextlib.suppress(OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return None
