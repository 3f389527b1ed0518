"""Guard against slower code: compare ratios with those stored for the same kind of machine.

    make bench-quick                                 # about five minutes on an idle machine
    python benchmarks/quick.py --store               # after a change that is meant to be slower

Each measurement is divided by a reference that takes turns with it: a plain PyTorch computation, a
bare simulator, or a Python process that only imports. On a CPU both are measured in CPU seconds of
one thread. So neither the speed of a machine nor other programs on it matter much. A ratio above
1.25 times the stored one fails."""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import torch
from measuring import HERE, Report, Spread, in_rounds, parser, prepare, ratio, wait

from pac4sac.base.cores import SHARE
from pac4sac.base.memory import keep_freed_memory
from pac4sac.tasks import get_task
from pac4sac.tasks.pool import EnvPool
from pac4sac.training.backends import Rehearsal

STORED = HERE / "results" / "quick.json"
TOO_SLOW = 1.25  # times the stored ratio
ROUNDS = 9
UPDATES, SIMULATED, PRODUCTS = 12, 1500, 60  # of one turn
AS_SB3 = {"width": 256, "depth": 2, "batch": 256, "norm": False, "activation": "relu"}
LEARNERS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "SAC as in SB3": ("sac", 1, AS_SB3),
    "SAC as in SB3, five runs": ("sac", 5, AS_SB3),
    "PAC4SAC": ("pac4sac", 1, {}),
}
TRAIN = "train Pendulum-v1 --algo sac --steps 40 --set warmup=10 --set batch=16 --device cpu"


@dataclass(frozen=True)
class Measurement:
    """Something to time, and the reference that it is divided by; both return seconds."""

    measure: Callable[[], float]
    reference: Callable[[], float]


class Clock:
    """Times calls: in CPU seconds of this process, or on a GPU in seconds until it is done."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.now = time.perf_counter if device.type == "cuda" else time.process_time

    def seconds(self, function: Callable[[], Any], repetitions: int) -> float:
        """Return the mean time of a call."""
        wait(self.device)
        started = self.now()
        for _ in range(repetitions):
            function()
        wait(self.device)
        return (self.now() - started) / repetitions


def layers(device: torch.device) -> Callable[[], None]:
    """Return the reference of learners: the work of one layer."""
    x, weight = torch.randn(256, 256, device=device), torch.randn(256, 256, device=device) / 16

    def apply() -> None:
        torch.relu(torch.mm(x, weight) + 1.0).square().mean()

    return apply


def learners(clock: Clock, backends: Sequence[str]) -> dict[str, Measurement]:
    """Return one act and one update of each learner on each backend."""
    reference = functools.partial(clock.seconds, layers(clock.device), PRODUCTS)
    found = {}
    for name, (algo, runs, settings) in LEARNERS.items():
        for backend in backends:
            learner, used = prepare(algo, runs, (3, 1), clock.device, backend, **settings)
            Rehearsal(learner).__enter__()  # for good: this learner learns nothing else

            def step(run: dict[str, Callable[[], None]] = learner.run) -> None:
                run["act"]()
                run["update"]()

            measure = functools.partial(clock.seconds, step, UPDATES)
            found[f"{name}, {used}"] = Measurement(measure, reference)
    return found


def simulating(clock: Clock) -> Measurement:
    """Return steps of a pool in this process, and of the bare simulator."""
    pool = EnvPool(get_task("Pendulum-v1"), [0], 0)
    pool.reset()
    bare = gymnasium.make("Pendulum-v1")
    bare.reset(seed=0)
    action, actions = np.zeros(1, np.float32), np.zeros((1, 1), np.float32)

    def step_pool() -> None:
        pool.send(actions)
        pool.receive()

    def step_bare() -> None:
        if bare.step(action)[3]:
            bare.reset()

    return Measurement(
        functools.partial(clock.seconds, step_pool, SIMULATED),
        functools.partial(clock.seconds, step_bare, SIMULATED),
    )


def cpu_seconds(*arguments: str) -> float:
    """Return the CPU seconds of a Python process."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"python {' '.join(arguments)} failed.")
    return used.ru_utime + used.ru_stime


def starts() -> dict[str, Measurement]:
    """Return the start of commands, and of a process that imports what they cannot avoid."""
    numpy = functools.partial(cpu_seconds, "-c", "import numpy, rich.console, tyro")
    torch_too = functools.partial(cpu_seconds, "-c", "import torch")
    return {
        "pac4sac --help": Measurement(
            functools.partial(cpu_seconds, "-m", "pac4sac", "--help"), numpy
        ),
        "a training of 40 steps": Measurement(
            functools.partial(cpu_seconds, "-m", "pac4sac", *TRAIN.split()), torch_too
        ),
    }


def kind_of(machine: dict[str, Any]) -> str:
    """Return the name under which ratios of this kind of machine are stored."""
    return str(machine["gpu"] or machine["cpu"])


def rows_of(
    measured: dict[str, Spread], stored: dict[str, float]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of the table, and the names of what has become too slow."""
    rows, slow = [], []
    for name, spread in measured.items():
        before = stored.get(name)
        change = spread.median / before if before else None
        is_slow = change is not None and change > TOO_SLOW
        if is_slow:
            slow.append(name)
        verdict = "too slow" if is_slow else ("not stored" if change is None else "")
        rows.append(
            {"measured": name, "× reference": spread, "stored": before, "÷ stored": change}
            | {"verdict": verdict}
        )
    return rows, slow


def measure(report: Report, options: argparse.Namespace) -> dict[str, Spread]:
    """Return the ratios to the references."""
    keep_freed_memory()
    torch.set_num_threads(1)
    clock = Clock(report.device)
    on_gpu, quick = report.device.type == "cuda", options.quick
    backends = ["graph"] if on_gpu else (["eager"] if quick else ["eager", "compiled"])
    found = learners(clock, backends)
    found["a step of Pendulum"] = simulating(Clock(torch.device("cpu")))
    found |= {} if quick else starts()
    turns: dict[str, Callable[[], float]] = {}
    for name, one in found.items():
        turns |= {name: one.measure, f"reference of {name}": one.reference}
    taken = in_rounds(turns, 2 if quick else options.rounds)
    return {name: ratio(taken[name], taken[f"reference of {name}"]) for name in found}


def main(arguments: list[str] | None = None) -> int:
    made = parser(__doc__)
    made.add_argument("--rounds", type=int, default=ROUNDS)
    made.add_argument("--stored", type=Path, default=STORED, help="file with the stored ratios")
    made.add_argument("--store", action="store_true", help="store the ratios measured now")
    options = made.parse_args(arguments)
    stored_file = options.stored
    del options.stored  # no paths of this machine in the JSON
    report = Report(options)
    kind = kind_of(report.content["machine"])
    stored = json.loads(stored_file.read_text()) if stored_file.exists() else {}
    with mock.patch.dict(os.environ, {SHARE: "1"}):  # compiled programs keep this number of threads
        measured = measure(report, options)
    rows, slow = rows_of(measured, stored.get(kind, {}))
    report.table("quick", f"Ratios on {kind}", rows)
    if options.store:
        stored[kind] = {name: round(spread.median, 3) for name, spread in measured.items()}
        stored_file.write_text(json.dumps(stored, indent=1) + "\n")
        report.note(f"Stored the ratios of {kind}.")
    elif kind not in stored:
        report.note(f"No ratios are stored for {kind}; store these with --store.")
    elif slow:
        report.note(f"More than {TOO_SLOW} times the stored ratio: {', '.join(slow)}.")
    report.close()
    return 1 if slow and not options.store else 0


if __name__ == "__main__":
    sys.exit(main())
