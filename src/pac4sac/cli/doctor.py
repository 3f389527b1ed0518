"""`pac4sac doctor`: would training work on this machine, how fast, and would it give the same
numbers as elsewhere? What it looks for, and what it says about it, is in doctor.toml."""

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
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
    what: str
    value: str
    note: str = ""
    state: Literal["fine", "worth knowing", "missing"] = "fine"

    @property
    def is_missing(self) -> bool:
        return self.state == "missing"


@dataclass(frozen=True)
class Doctor:
    """Show versions, device, cores, the speed of one step, and what could break reproducibility."""

    def run(self, console: Console) -> int:
        """Return 0 if training would work, 1 if something essential is missing."""
        with console.status("looking at this machine …"):
            parts = {"Software": list(software()), "Machine": list(machine())}
            if not any(finding.is_missing for finding in parts["Software"]):
                parts |= {"Speed": list(speed()), "Reproducibility": list(reproducibility())}
        console.print(findings_table(parts), markup=True)
        missing = [finding.what for finding in chain(*parts.values()) if finding.is_missing]
        verdict = "Training works here."
        if missing:
            verdict = f"Training would not work here: see {', '.join(missing)}."
        console.print(f"\n{verdict}", style="bold red" if missing else "bold green")
        return 1 if missing else 0


def findings_table(parts: Mapping[str, Sequence[Finding]]) -> Table:
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
    yield Finding("python", platform.python_version())
    yield Finding("pac4sac", _version("pac4sac") or "run from source")
    for name in (*PINNED, *ABOUT["needed"]):
        yield _package(name)
    extras = ABOUT["extras"]
    absent = [extra for extra, module in extras.items() if not importlib.util.find_spec(module)]
    present = ", ".join(extra for extra in extras if extra not in absent) or "none"
    note = f"not installed: {', '.join(absent)}; {how_to_install('NAME')}" if absent else ""
    yield Finding("extras", present, note)


def _package(name: str) -> Finding:
    if version := _version(name):
        return Finding(name, version)
    if name == "pybullet":
        note = NOTES["no_pybullet"].format(install=how_to_install("bullet"))
        return Finding(name, "none", note, "worth knowing")
    return Finding(name, "missing", "pip install pac4sac", "missing")


def machine() -> Iterator[Finding]:
    yield Finding("processor", f"{platform.system()} {platform.machine()}, {machine_cores()} cores")
    # GB, and how much is little
    room = {"free disk here": (shutil.disk_usage(Path.cwd()).free / 1e9, 1)}
    with contextlib.suppress(ImportError):  # which is told as missing software
        import torch

        from pac4sac.training.backends import free_bytes

        room["free memory"] = free_bytes(torch.device("cpu")) / 1e9, 2
        if not torch.cuda.is_available():
            yield Finding("GPU", "none", "training takes the CPU")
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            yield Finding(
                f"GPU {index}", f"{properties.name}, {properties.total_memory / 1e9:.0f} GB"
            )
    none = Finding("C++ compiler", "none", NOTES["no_compiler"], "worth knowing")
    yield Finding("C++ compiler", compiler) if (compiler := shutil.which("g++")) else none
    for what, (size, little) in room.items():
        yield Finding(what, f"{size:.1f} GB", state="fine" if size > little else "worth knowing")
    if not os.access(Path.cwd(), os.W_OK):
        yield Finding(
            "this folder",
            "read-only",
            "train with --out FOLDER where you can write",
            "worth knowing",
        )


def speed() -> Iterator[Finding]:
    task = "cartpole-swingup" if _version("pybullet") else "Pendulum-v1"
    for what, seconds, unit, per_second, note in (
        ("PAC4SAC", _learning_seconds, "ms", 1e3, NOTES["learning"]),
        (task, partial(_simulator_seconds, task), "µs", 1e6, "one step of the simulator"),
    ):
        try:
            yield Finding(what, f"{per_second * seconds():.1f} {unit}", note)
        except Exception as error:  # a doctor reports a broken installation instead of dying of it
            yield Finding(what, "does not run", f"{type(error).__name__}: {error}", "missing")


def _learning_seconds() -> float:
    import torch

    from pac4sac.agents import get_algorithm, make_config
    from pac4sac.training.backends import Rehearsal, learning_threads, on_threads
    from pac4sac.training.learner import Learner

    # the sizes of the cartpole
    agent = get_algorithm("pac4sac").agent([make_config("pac4sac")], 5, 1)
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
    import torch

    risks = {
        what: [f"{name}={os.environ[name]}" for name in about["variables"] if name in os.environ]
        for what, about in ABOUT["risks"].items()
    }
    risks["versions"] = other_versions()
    if (precision := torch.get_float32_matmul_precision()) != "highest":
        risks["TF32"].append(f"matmul precision {precision}")
    for what, about in ABOUT["risks"].items():
        if risks[what]:
            yield Finding(what, "; ".join(risks[what]), about["note"], "worth knowing")
        else:
            yield Finding(what, about["otherwise"])
    if torch.cuda.is_available():
        yield Finding("GPU", "in use", NOTES["gpu"], "worth knowing")


def other_versions() -> list[str]:
    """Return the packages whose version is not the pinned one."""
    # 2.13.0+cpu is 2.13.0
    here = {name: (_version(name) or pinned).split("+")[0] for name, pinned in PINNED.items()}
    return [
        f"{name} {here[name]} instead of {pinned}"
        for name, pinned in PINNED.items()
        if here[name] != pinned
    ]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
