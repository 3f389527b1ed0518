"""After how many updates compiling has paid on a CPU: the reason for `COMPILING_PAYS`.

    python benchmarks/break_even.py --out break_even.json

CPU seconds of one thread: an act and an update with eager and with compiled operations, and the
compiler with an empty cache."""

import argparse
import contextlib
import os
import resource
import tempfile
import time
from typing import Any
from unittest import mock

import torch
from measuring import Report, parser

from pac4sac.agents import get_algorithm, make_config
from pac4sac.base.memory import keep_freed_memory
from pac4sac.training import backends
from pac4sac.training.learner import Learner

AS_SB3 = {"width": 256, "depth": 2, "batch": 256, "norm": False, "activation": "relu"}
SMALL = {"width": 64, "depth": 2, "batch": 64}
LEARNERS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("SAC as in SB3", "sac", 1, AS_SB3),
    ("SAC as in SB3", "sac", 5, AS_SB3),
    ("SAC, 2 × 64 units", "sac", 1, SMALL),
    ("PAC4SAC", "pac4sac", 1, {}),
]


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it has started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def milliseconds(learner: Learner, repetitions: int) -> float:
    """Return the CPU milliseconds of an act and an update."""

    def take(steps: int) -> None:
        for _ in range(steps):
            learner.run["act"]()
            learner.run["update"]()

    with backends.Rehearsal(learner):
        take(3)
        started = time.process_time()
        take(repetitions)
    return 1e3 * (time.process_time() - started) / repetitions


def row_of(
    name: str, algo: str, runs: int, settings: dict[str, Any], quick: bool
) -> dict[str, Any]:
    """Return what a learner takes with both backends, and when compiling has paid."""
    agent = get_algorithm(algo).agent([make_config(algo, "default", settings)] * runs, 3, 1)
    learner = Learner(agent, range(runs), 20_000, torch.device("cpu"))
    repetitions = 3 if quick else max(30, 100 // runs)
    eager = milliseconds(learner, repetitions)
    started = cpu_seconds()
    if not quick:
        backends.prepare(learner, "compiled")
    compiling = cpu_seconds() - started
    compiled = milliseconds(learner, repetitions)
    saved = (eager - compiled) / 1e3
    return {
        "learner": name,
        "runs": runs,
        "eager ms": eager,
        "compiled ms": compiled,
        "compiling s": compiling,
        "updates of all runs": runs * compiling / saved if saved > 0 else None,
    }


def main(arguments: list[str] | None = None) -> None:
    options: argparse.Namespace = parser(__doc__).parse_args(arguments)
    report = Report(options)
    keep_freed_memory()
    torch.set_num_threads(1)
    learners = LEARNERS[2:3] if options.quick else LEARNERS
    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(mock.patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": cache}))
        rows = [row_of(*learner, options.quick) for learner in learners]
    report.table("break even", "CPU time of one thread, and when compiling has paid", rows)
    report.close()


if __name__ == "__main__":
    main()
