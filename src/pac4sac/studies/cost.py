"""The cost study: seconds per 1000 steps of each algorithm, all of them in turns.

A machine does not keep its pace: clocks change, and other programs come and go. So the algorithms are timed in rounds
in which each has its turn, and what slows the machine for a while slows all of them.
"""

import json
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import torch

from pac4sac.base.files import write_whole
from pac4sac.runs.run import Run, make_agent
from pac4sac.runs.writing import machine, versions
from pac4sac.studies.definition import Study
from pac4sac.tasks.pool import EnvPool
from pac4sac.training import backends
from pac4sac.training.learner import Learner
from pac4sac.training.options import Options

MEASURED_STEPS = 1000
VERSION = 2  # in version 1 one algorithm was timed after another


def measure_cost(study: Study, root: Path, options: Options) -> None:
    """Write `cost.json`: for each algorithm the times of 1000 steps with their updates, round by round. One run of it
    is timed on each task, of a study that also trains on its first, and only variants that are called by the
    algorithm's name."""
    tasks = study.tasks if study.kind == "cost" else study.tasks[:1]
    named = [run for run in study.runs() if run.label == run.algo and run.task in tasks]
    first_runs = {(run.task.name, run.label): run for run in reversed(named)}
    device = backends.pick_device(options.device)
    timed = []
    with backends.on_threads(torch.get_num_threads()), ExitStack() as pools:  # which each turn changes
        for run in reversed(first_runs.values()):
            pool = pools.enter_context(EnvPool(run.task, [run.seed], 0))
            timed.append(TimedRun(run, pool, study.repetitions, device, options))
        take_turns(timed, study.repetitions)
    about = {"version": VERSION, "date": datetime.now(UTC).date().isoformat(), "machine": machine()}
    about |= {"versions": versions(), "device": str(device), "precision": options.precision}
    about |= {"rows": [one.row for one in timed]}
    root.mkdir(parents=True, exist_ok=True)
    write_whole(root / "cost.json", json.dumps(about, indent=1).encode())


class TimedRun:
    """A single run, as in the paper, placed as training would place it."""

    def __init__(self, run: Run, pool: EnvPool, rounds: int, device: torch.device, options: Options) -> None:
        self.pool = pool
        self.seconds: list[float] = []
        backends.set_precision(options.precision)
        agent = make_agent([run], pool.observation_size, pool.action_size)
        self.warmup = max(agent.learning_starts())
        self.learner = Learner(agent, [run.seed], self.warmup + rounds * MEASURED_STEPS, device)
        self.threads = backends.learning_threads(self.learner) if options.threads == "auto" else options.threads
        torch.set_num_threads(self.threads)  # which compiled code keeps
        updates = rounds * MEASURED_STEPS * agent.updates_per_step
        backend = backends.prepare(self.learner, backends.choose_backend(options.backend, device, updates))
        self.learner.begin(pool.reset())
        self.row: dict[str, object] = {"algo": run.algo, "label": run.label, "task": run.task.name}
        self.row |= {"updates_per_step": agent.updates_per_step, "backend": backend}
        self.row |= {"threads": self.threads, "seconds_per_1000_steps": self.seconds}

    def take(self, steps: int) -> float:
        """The seconds of some steps: act, step, update, store."""
        learner, pool = self.learner, self.pool
        torch.set_num_threads(self.threads)
        started = time.perf_counter()
        for _ in range(steps):
            pool.send(learner.act())
            learner.learn()
            seen = pool.receive()
            learner.store(seen.final_observation, seen.observation, seen.reward, seen.terminated)
        if learner.device.type == "cuda":
            torch.cuda.synchronize()  # nothing of this turn is left for the next
        return time.perf_counter() - started


def take_turns(timed: list[TimedRun], rounds: int) -> None:
    """After the warm-up of all: rounds, each of which begins with the run that was second in the one before."""
    for one in timed:
        one.take(one.warmup)
    for turn in range(rounds):
        first = turn % len(timed)
        for one in [*timed[first:], *timed[:first]]:
            one.seconds.append(round(one.take(MEASURED_STEPS), 4))
