"""`pac4sac doctor`: check whether training works on this machine, its speed, and its
reproducibility. The packages and variables to check, with notes on them, are in doctor.toml."""

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from pac4sac.base.cores import machine_cores
from pac4sac.base.errors import how_to_install

ABOUT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PINNED, NOTES = ABOUT["pinned"], ABOUT["notes"]
MARKS = {"fine": "[green]✓[/]", "worth knowing": "[yellow]![/]", "missing": "[red]✗[/]"}


class Finding(NamedTuple):
    """Hold a row of the table: a check and its result."""

    what: str
    value: str
    note: str = ""
    state: Literal["fine", "worth knowing", "missing"] = "fine"


@dataclass(frozen=True)
class Doctor:
    """Check whether training works here: versions, device, speed and reproducibility."""

    def run(self, console: Console) -> int:
        """Print the findings; return 0 if training works, 1 if something required is missing."""
        with console.status("checking this machine …"):
            parts = {"Software": list(software()), "Machine": list(machine())}
            if not missing_among(parts["Software"]):
                parts |= {"Speed": list(speed()), "Reproducibility": list(reproducibility())}
        console.print(findings_table(parts), markup=True)
        if missing := missing_among(chain(*parts.values())):
            problem = f"Training does not work here: install or fix {', '.join(missing)}."
            console.print(f"\n{problem}", style="bold red")
            return 1
        console.print("\nTraining works here.", style="bold green")
        return 0


def missing_among(findings: Iterable[Finding]) -> list[str]:
    """Return the names of missing requirements of training."""
    return [finding.what for finding in findings if finding.state == "missing"]


def findings_table(parts: Mapping[str, Sequence[Finding]]) -> Table:
    """Return a table of findings with a title above each part."""
    columns = (
        Column(no_wrap=True),
        Column(no_wrap=True),
        Column(),
        Column(overflow="fold", style="dim"),
    )
    table = Table.grid(*columns, padding=(0, 2, 0, 0))
    for title, findings in parts.items():
        table.add_row("", f"[bold]{title}[/]")
        for finding in findings:
            mark, value, note = MARKS[finding.state], escape(finding.value), escape(finding.note)
            table.add_row(mark, finding.what, value, note)
    return table


def software() -> Iterator[Finding]:
    """Yield the version of each package, and the extras."""
    yield Finding("python", platform.python_version())
    yield Finding("pac4sac", _version("pac4sac") or "run from source")
    for name in (*PINNED, *ABOUT["needed"]):
        yield _package(name)
    yield _extras(ABOUT["extras"])


def _package(name: str) -> Finding:
    if version := _version(name):
        return Finding(name, version)
    if name == "pybullet":
        note = NOTES["no_pybullet"].format(install=how_to_install("bullet"))
        return Finding(name, "none", note, "worth knowing")
    return Finding(name, "missing", "required by pac4sac; install pac4sac again", "missing")


def _extras(modules: Mapping[str, str]) -> Finding:
    """Return the installed and missing extras; `modules` has one module of each."""
    present = [extra for extra, module in modules.items() if importlib.util.find_spec(module)]
    absent = [extra for extra in modules if extra not in present]
    value = ", ".join(present) or "none"
    if not absent:
        return Finding("extras", value)
    return Finding("extras", value, f"not installed: {', '.join(absent)}; {how_to_install('NAME')}")


def machine() -> Iterator[Finding]:
    """Yield processor, GPUs, compiler, disk and memory."""
    yield Finding("processor", f"{platform.system()} {platform.machine()}, {machine_cores()} cores")
    with contextlib.suppress(ImportError):  # missing packages are shown under Software
        yield from _gpus_and_memory()
    if compiler := shutil.which("g++"):
        yield Finding("C++ compiler", compiler)
    else:
        yield Finding("C++ compiler", "none", NOTES["no_compiler"], "worth knowing")
    yield _room("free disk space here", shutil.disk_usage(Path.cwd()).free, least_gb=1)
    if not os.access(Path.cwd(), os.W_OK):
        advice = "train with --out FOLDER in a writable place"
        yield Finding("this folder", "read-only", advice, "worth knowing")


def _gpus_and_memory() -> Iterator[Finding]:
    import torch

    from pac4sac.training.backends import free_bytes

    if not torch.cuda.is_available():
        yield Finding("GPU", "none", "training uses the CPU")
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        yield Finding(f"GPU {index}", f"{gpu.name}, {gpu.total_memory / 1e9:.0f} GB")
    yield _room("free memory", free_bytes(torch.device("cpu")), least_gb=2)


def _room(what: str, free: int, least_gb: int) -> Finding:
    enough = free / 1e9 > least_gb
    return Finding(what, f"{free / 1e9:.1f} GB", state="fine" if enough else "worth knowing")


def speed() -> Iterator[Finding]:
    """Yield the time of one step of training, and of one step of a simulator."""
    task = "cartpole-swingup" if _version("pybullet") else "Pendulum-v1"
    for what, seconds, unit, per_second, note in (
        ("PAC4SAC", _learning_seconds, "ms", 1e3, NOTES["learning"]),
        (task, partial(_simulator_seconds, task), "µs", 1e6, "one step of the simulator"),
    ):
        try:
            yield Finding(what, f"{per_second * seconds():.1f} {unit}", note)
        except Exception as error:  # reports a broken installation
            yield Finding(what, "does not run", f"{type(error).__name__}: {error}", "missing")


def _learning_seconds() -> float:
    import torch

    from pac4sac.agents import get_algorithm, make_config
    from pac4sac.training.backends import Rehearsal, learning_threads, on_threads
    from pac4sac.training.learner import Learner

    observations, actions = 5, 1  # the sizes of cartpole-swingup
    agent = get_algorithm("pac4sac").agent([make_config("pac4sac")], observations, actions)
    learner = Learner(agent, [0], 2000, torch.device("cpu"))
    with on_threads(learning_threads(learner)), Rehearsal(learner) as rehearsal:
        return rehearsal.seconds()


def _simulator_seconds(task: str) -> float:
    from pac4sac.tasks import get_task, make_env
    from pac4sac.training.backends import median_seconds

    with contextlib.closing(make_env(get_task(task))) as env:
        env.reset(seed=0)
        step: Any = partial(env.step, env.action_space.sample())
        return median_seconds(step, 300)


def reproducibility() -> Iterator[Finding]:
    """Yield findings on versions and variables that can change digits of results."""
    import torch

    risks = {what: _set_variables(about["variables"]) for what, about in ABOUT["risks"].items()}
    risks["versions"] += other_versions()
    precision = torch.get_float32_matmul_precision()
    if precision != "highest":
        risks["TF32"].append(f"matmul precision {precision}")
    for what, about in ABOUT["risks"].items():
        if risks[what]:
            yield Finding(what, "; ".join(risks[what]), about["note"], "worth knowing")
        else:
            yield Finding(what, about["otherwise"])
    if torch.cuda.is_available():
        yield Finding("GPU", "in use", NOTES["gpu"], "worth knowing")


def _set_variables(names: Sequence[str]) -> list[str]:
    """Return the environment variables that are set, such as "OMP_NUM_THREADS=1"."""
    return [f"{name}={os.environ[name]}" for name in names if name in os.environ]


def other_versions() -> list[str]:
    """Return the packages whose version is not the pinned one."""
    others = []
    for name, pinned in PINNED.items():
        version = _version(name) or pinned
        if version.split("+")[0] != pinned:  # 2.13.0+cpu counts as 2.13.0
            others.append(f"{name} {version.split('+')[0]} instead of {pinned}")
    return others


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
