"""What the benchmarks share: a description of the machine, contenders timed in alternating rounds,
tables and JSON.

Another program on the machine slows whatever is being timed at that moment. So contenders take
turns, ratios are taken within a round, and what is shown is the median over rounds with the
smallest and the largest beside it."""

import argparse
import datetime
import json
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pac4sac.agents import get_algorithm, make_config
from pac4sac.base.cores import cores
from pac4sac.training import backends
from pac4sac.training.backends import Rehearsal, learning_threads, pick_device
from pac4sac.training.learner import Learner
from pac4sac.training.run_folder import versions

HERE = Path(__file__).resolve().parent


def parser(doc: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    made.add_argument(
        "--precision", default="float32", choices=("float32", "tf32"), help="of products on a GPU"
    )
    made.add_argument(
        "--quick",
        action="store_true",
        help="few repetitions and nothing compiled: does it run at all?",
    )
    made.add_argument("--out", type=Path, help="write everything measured to this file, as JSON")
    return made


def names(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def numbers(text: str) -> list[int]:
    return [int(part) for part in names(text)]


# --- the machine


def machine(device: torch.device) -> dict[str, Any]:
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "load_average": os.getloadavg()[0],  # of others, when measured before anything is started
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def commit() -> str | None:
    """With a plus where the tree differs from it; none where the code came without its history."""
    try:
        process = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+"],
            cwd=HERE,
            capture_output=True,
            text=True,
        )
    except OSError:
        return None
    return process.stdout.strip() or None


# --- timing


@dataclass(frozen=True)
class Spread:
    """Median, least and largest over rounds."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        return Spread(float(np.median(values)), float(min(values)), float(max(values)))

    def text(self, digits: int = 2) -> str:
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}–{self.high:.{digits}f})"


def in_rounds(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each contender measures of itself, in rounds in which all have their turn; one more
    round goes before."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, measure in contenders.items():
            value = measure()
            if number:
                taken[name].append(value)
    return taken


def ratio(values: Sequence[float], others: Sequence[float]) -> Spread:
    return Spread.of([value / other for value, other in zip(values, others, strict=True)])


def seconds_each(function: Callable[[], Any], repetitions: int, device: torch.device) -> float:
    """Mean time of calls one after another; on a GPU without a wait between them, as in
    training."""
    wait(device)
    start = time.perf_counter()
    for _ in range(repetitions):
        function()
    wait(device)
    return (time.perf_counter() - start) / repetitions


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def prepare(
    algo: str,
    runs: int,
    sizes: tuple[int, int],
    device: torch.device,
    backend: str,
    **settings: Any,
) -> tuple[Learner, str]:
    """A learner for observations and actions of these sizes, and the backend that it runs on."""
    config = make_config(algo, "reproduction", settings)
    agent = get_algorithm(algo).agent([config] * runs, *sizes)
    learner = Learner(agent, range(runs), config.capacity, device)
    torch.set_num_threads(learning_threads(learner))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        return learner, backends.prepare(
            learner, backends.choose_backend(backend, device, backends.COMPILING_PAYS)
        )


class Trial:
    """A learner in the middle of learning whose operations are timed alone, on the threads that
    training takes."""

    def __init__(self, learner: Learner, backend: str) -> None:
        self.learner, self.backend, self.device = learner, backend, learner.device
        self.threads = learning_threads(learner)
        Rehearsal(learner).__enter__()  # for good: this learner learns nothing else

    def milliseconds(self, operation: str, repetitions: int) -> float:
        torch.set_num_threads(self.threads)
        return 1e3 * seconds_each(self.learner.run[operation], repetitions, self.device)


# --- what is shown and kept


class Report:
    def __init__(self, options: argparse.Namespace) -> None:
        self.device = pick_device(options.device)
        backends.set_precision(options.precision)
        self.out: Path | None = options.out
        self.console = Console(highlight=False)
        self.console.width = max(self.console.width, 120)  # a log has no width of its own
        about = machine(self.device)
        # no paths of this machine
        asked = {
            name: value for name, value in vars(options).items() if name not in ("out", "folder")
        }
        self.content: dict[str, Any] = {
            "machine": about,
            "options": asked,
            "tables": {},
            "notes": [],
        }
        where = f"{about['gpu']}, " if about["gpu"] else ""
        self.console.print(
            f"{where}{about['cpu']}, {about['cores']} cores, torch "
            f"{about['versions'].get('torch')}, "
            f"load {about['load_average']:.1f} before the start"
        )

    def table(self, name: str, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows are kept as they are; for the eye numbers are rounded."""
        self.content["tables"][name] = {"title": title, "rows": [dict(row) for row in rows]}
        if not rows:
            return
        shown = Table(
            title=title, title_justify="left", title_style="bold", box=None, pad_edge=False
        )
        for column in rows[0]:
            shown.add_column(
                column, justify="left" if isinstance(rows[0][column], str) else "right"
            )
        for row in rows:
            shown.add_row(*(readable(value) for value in row.values()))
        self.console.print()
        self.console.print(shown)

    def note(self, text: str) -> None:
        self.content["notes"].append(text)
        self.console.print(text)

    def close(self) -> None:
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text(json.dumps(self.content, indent=1, default=vars) + "\n")
            self.console.print(f"written to {self.out}")


def readable(value: Any) -> str:
    match value:
        case None:
            return ""
        case Spread():
            return value.text()
        case float() if abs(value) >= 100:
            return f"{value:,.0f}"
        case float():
            return f"{value:.3g}"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
    return str(value)
