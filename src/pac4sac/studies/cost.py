"""The cost study: seconds per 1000 steps of each algorithm, all of them in turns.

A machine does not keep its pace: clocks change, and other programs come and go. So the algorithms
are timed in rounds in which each has its turn, and what slows the machine for a while slows all of
them."""

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from pac4sac.base.files import write_json
from pac4sac.runs.run import Run
from pac4sac.runs.writing import machine, versions
from pac4sac.studies.definition import Study
from pac4sac.studies.timing import TimedCohort
from pac4sac.tasks.pool import EnvPool
from pac4sac.training import backends
from pac4sac.training.options import Options

MEASURED_STEPS = 1000
VERSION = 2  # in version 1 one algorithm was timed after another


def measure_cost(study: Study, root: Path, options: Options) -> None:
    """Write `cost.json`: for each algorithm the times of 1000 steps with their updates, round by
    round. One run of it is timed on each task, of a study that also trains on its first, and only
    variants that are called by the algorithm's name."""
    tasks = study.tasks if study.kind == "cost" else study.tasks[:1]
    named = [run for run in study.runs() if run.label == run.algo and run.task in tasks]
    first_runs = {(run.task.name, run.label): run for run in reversed(named)}
    device = backends.pick_device(options.device)
    timed = []
    # which each turn changes
    with backends.on_threads(torch.get_num_threads()), ExitStack() as pools:
        for run in reversed(first_runs.values()):
            pool = pools.enter_context(EnvPool(run.task, [run.seed], 0))
            timed.append(TimedRun(run, pool, study.repetitions, options))
        take_turns(timed, study.repetitions)
    about = {"version": VERSION, "date": datetime.now(UTC).date().isoformat(), "machine": machine()}
    about |= {"versions": versions(), "device": str(device), "precision": options.precision}
    about |= {"rows": [one.row for one in timed]}
    root.mkdir(parents=True, exist_ok=True)
    write_json(root / "cost.json", about)


class TimedRun(TimedCohort):
    """A single run, as in the paper."""

    def __init__(self, run: Run, pool: EnvPool, rounds: int, options: Options) -> None:
        self.seconds: list[float] = []
        self.warmup = max(run.config.warmup, run.config.batch)
        # As its training would be placed: what takes few steps is not compiled.
        steps = max(run.task.steps, self.warmup + rounds * MEASURED_STEPS)
        super().__init__([run], pool, replace(options, steps=steps))
        self.row: dict[str, object] = {"algo": run.algo, "label": run.label, "task": run.task.name}
        self.row |= {"updates_per_step": run.config.updates_per_step}
        self.row |= {name: self.placement[name] for name in ("backend", "threads")}
        self.row["seconds_per_1000_steps"] = self.seconds


def take_turns(timed: list[TimedRun], rounds: int) -> None:
    """After the warm-up of all: rounds, each of which begins with the run that was second in the
    one before."""
    for one in timed:
        one.take(one.warmup)
    for turn in range(rounds):
        first = turn % len(timed)
        for one in [*timed[first:], *timed[:first]]:
            one.seconds.append(round(one.take(MEASURED_STEPS), 4))
