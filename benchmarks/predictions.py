"""How well `pac4sac study plan` calculates the time of compiled learners: the reason for `FUSED`
and `COMPILING` in `studies/learner_speed.py`.

    python benchmarks/predictions.py --agents sac,pac4sac --runs 1,5 --out predictions.json

An act and an update are calculated as a plan does, then compiled and timed. Times on a CPU are CPU
seconds of one thread. The column "FUSED" is the value with which the calculation would be exact."""

import argparse
import contextlib
import os
import tempfile
import time
from typing import Any
from unittest import mock

import torch
from measuring import Report, names, numbers, parser

from pac4sac.agents import get_algorithm, make_config
from pac4sac.base.memory import keep_freed_memory
from pac4sac.studies import learner_speed
from pac4sac.studies.learner_speed import FUSED, least_seconds, operation_seconds
from pac4sac.training import backends
from pac4sac.training.learner import Learner

SIZES = (17, 6)  # of Half Cheetah


def calculated(learner: Learner, launch: float, fused: float) -> tuple[float, float, float]:
    """Return the seconds of an act and an update, eager and compiled, and of compiling them."""
    device = learner.device
    with backends.Rehearsal(learner), mock.patch.dict(FUSED, {device.type: fused}):
        each = [operation_seconds(learner.run[name], device, launch) for name in ("act", "update")]
    return (
        sum(one.eager for one in each),
        sum(one.compiled for one in each),
        sum(one.compiling for one in each),
    )


def row_of(algo: str, runs: int, options: argparse.Namespace, launch: float) -> dict[str, Any]:
    """Return what is calculated and what is measured of a learner."""
    device = backends.pick_device(options.device)
    agent = get_algorithm(algo).agent([make_config(algo, options.preset)] * runs, *SIZES)
    learner = Learner(agent, range(runs), 3000, device)
    eager, products, compiling = calculated(learner, launch, 0.0)
    kernels = calculated(learner, launch, 1.0)[1]
    predicted = products + FUSED[device.type] * (kernels - products)
    started = time.time()
    if not options.quick:
        backends.prepare(learner, "graph" if device.type == "cuda" else "compiled")
    compiled_in = time.time() - started
    with backends.Rehearsal(learner):
        measured = sum(least_seconds(learner.run[name], device) for name in ("act", "update"))
    row: dict[str, Any] = {"algorithm": algo, "runs": runs, "eager ms": 1e3 * eager}
    row |= {"matrix products ms": 1e3 * products, "other kernels ms": 1e3 * (kernels - products)}
    row |= {"calculated ms": 1e3 * predicted, "measured ms": 1e3 * measured}
    row["calculated ÷ measured"] = predicted / measured
    row["FUSED"] = (measured - products) / (kernels - products) if kernels > products else None
    return row | {"compiling s": compiled_in, "calculated, s": compiling}


def main(arguments: list[str] | None = None) -> None:
    made = parser(__doc__)
    made.add_argument("--agents", type=names, default=["sac", "pac4sac", "ddpg", "oac", "redq"])
    made.add_argument("--runs", type=numbers, default=[1, 5])
    made.add_argument("--preset", default="default")
    options = made.parse_args(arguments)
    if options.quick:
        options.agents, options.runs = ["sac"], [1]
    report = Report(options)
    keep_freed_memory()
    torch.set_num_threads(1)
    backends.set_precision(options.precision)
    with contextlib.ExitStack() as stack:
        if (
            backends.pick_device(options.device).type == "cpu"
        ):  # other programs affect CPU seconds least
            clock = mock.patch.object(time, "perf_counter", time.process_time)
            stack.enter_context(clock)
        cache = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(mock.patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": cache}))
        launch = learner_speed.launch_seconds()
        rows = [row_of(a, runs, options, launch) for a in options.agents for runs in options.runs]
    report.table("predictions", "Act and update, calculated and measured", rows)
    report.close()


if __name__ == "__main__":
    main()
