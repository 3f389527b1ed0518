"""The measurement of the cost study: seconds per 1,000 steps of each algorithm, in turns.

The speed of a machine changes with its clock rate and with other programs. Algorithms are therefore
timed in rounds in which each algorithm has a turn, so a slow phase affects all of them.
"""

import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from pac4sac.base.files import write_json
from pac4sac.runs.reading import sealed
from pac4sac.studies.definition import Study
from pac4sac.tasks.pool import EnvPool
from pac4sac.training import backends
from pac4sac.training.options import Options
from pac4sac.training.run import Run, make_agent
from pac4sac.training.run_folder import machine, versions

MEASURED_STEPS = 1000
VERSION = 2  # in version 1, algorithms were timed one after another


def measure_cost(study: Study, root: Path, options: Options) -> None:
    """Write `cost.json` with each algorithm's times of 1,000 steps and their updates.

    Args:
        study: The study whose algorithms are timed.
        root: Folder for the file.
        options: Training options.
    """
    device = backends.pick_device(options.device)
    timed = []
    # restores the number of threads, which every turn sets
    with backends.on_threads(torch.get_num_threads()), ExitStack() as pools:
        for run in timed_runs(study):
            pool = pools.enter_context(EnvPool(run.task, [run.seed], 0))
            timed.append(TimedRun(run, pool, study.repetitions, options))
        take_turns(timed, study.repetitions)
    about = {
        "version": VERSION,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "device": str(device),
        "precision": options.precision,
        "rows": [one.row for one in timed],
    }
    root.mkdir(parents=True, exist_ok=True)
    write_json(root / "cost.json", sealed(about))


def timed_runs(study: Study) -> list[Run]:
    """Return the first run of each algorithm on each task, for variants named after their
    algorithm.

    In a study that also trains, only the first task is timed.
    """
    tasks = study.tasks if study.kind == "cost" else study.tasks[:1]
    first: dict[tuple[str, str], Run] = {}
    for run in study.runs():
        if run.label == run.algo and run.task in tasks:
            first.setdefault((run.task.name, run.label), run)
    return list(first.values())


class TimedRun:
    """Time the training of a single run, as in the paper."""

    def __init__(self, run: Run, pool: EnvPool, rounds: int, options: Options) -> None:
        self.pool, self.seconds = pool, list[float]()
        self.warmup = max(run.config.warmup, run.config.batch)
        # Use the backend that the training would use; short runs are not compiled.
        steps = max(run.task.steps, self.warmup + rounds * MEASURED_STEPS)
        agent = make_agent([run], pool.observation_size, pool.action_size)
        how = asdict(replace(options, steps=steps))
        self.learner, self.placement = backends.make_learner(agent, [run.seed], steps, how)
        self.learner.begin(pool.reset())
        self.row: dict[str, object] = {"algo": run.algo, "label": run.label, "task": run.task.name}
        self.row |= {"updates_per_step": run.config.updates_per_step}
        self.row |= {name: self.placement[name] for name in ("backend", "threads")}
        self.row["seconds_per_1000_steps"] = self.seconds

    def take(self, steps: int) -> float:
        """Run some steps (act, simulate, update, store), and return their seconds."""
        learner, pool = self.learner, self.pool
        torch.set_num_threads(self.placement["threads"])
        started = time.perf_counter()
        for _ in range(steps):
            pool.send(learner.act())
            learner.learn()
            seen = pool.receive()
            learner.store(seen.final_observation, seen.observation, seen.reward, seen.terminated)
        if learner.device.type == "cuda":
            torch.cuda.synchronize()  # no work of this turn is left for the next
        return time.perf_counter() - started


def take_turns(timed: list[TimedRun], rounds: int) -> None:
    """Time all runs in rounds after their warm-up; each round starts with another run."""
    for one in timed:
        one.take(one.warmup)
    for turn in range(rounds):
        first = turn % len(timed)
        for one in [*timed[first:], *timed[:first]]:
            one.seconds.append(round(one.take(MEASURED_STEPS), 4))
