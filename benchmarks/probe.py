"""One cohort in a process of its own, for `end_to_end.py`: `python probe.py JSON` trains it, times
the parts of the loop, and speaks to its parent in lines of JSON."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measuring import seconds_each

from pac4sac import Callback, train
from pac4sac.tasks import make_env
from pac4sac.tasks.pool import EnvPool
from pac4sac.training import interleaving
from pac4sac.training.backends import Rehearsal
from pac4sac.training.learner import Learner
from pac4sac.training.run import Run

# What the loop calls in a step, and what its time is shown as; the rest of a step is the loop
# itself and its logs.
PARTS: dict[str, tuple[type, str]] = {
    "act": (Learner, "act"),
    "send": (EnvPool, "send"),
    "learn": (Learner, "learn"),
    "wait": (EnvPool, "receive"),
    "store": (Learner, "store"),
}
PACE = 0.1  # seconds between reports
MEASURED = 200  # environment steps whose cost is measured alone


class Probe(Callback):
    """Times the parts of the loop, and reports to the parent."""

    def __init__(self, quick: bool) -> None:
        self.quick, self.reported = quick, 0.0
        self.spent = dict.fromkeys(PARTS, 0.0)
        self.seen: dict[type, list[Any]] = {Learner: [], EnvPool: []}  # those that training made
        for part, (owner, method) in PARTS.items():
            setattr(owner, method, self.timed(part, getattr(owner, method)))
        for owner, method in ((Learner, "begin"), (EnvPool, "reset")):
            setattr(owner, method, self.remembering(owner, getattr(owner, method)))

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        spent, clock = self.spent, time.perf_counter

        def wrapper(*arguments: Any) -> Any:
            start = clock()
            result = function(*arguments)
            spent[part] += clock() - start
            return result

        return wrapper

    def remembering(self, owner: type, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(instance: Any, *arguments: Any) -> Any:
            self.seen[owner].append(instance)
            return function(instance, *arguments)

        return wrapper

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        """All cohorts wait for each other; meanwhile each in turn measures what it needs alone."""
        tell(ready=True)
        if input() == "measure":
            tell(**self.alone(runs[0]))
            input()
        tell(step=step, time=time.monotonic(), spent=self.spent | {"simulating": 0.0})

    def alone(self, run: Run) -> dict[str, Any]:
        learners: list[Learner] = self.seen[Learner]
        repetitions, learner = 5 if self.quick else 100, learners[0]
        operations = dict.fromkeys(learner.run, 0.0)  # of all that take turns together
        for each in learners:
            with Rehearsal(each):
                for name, operation in each.run.items():
                    operation()
                    operations[name] += seconds_each(operation, repetitions, learner.device)
        env = make_env(run.task)
        env.reset(seed=0)
        actions = iter(
            np.random.default_rng(0).uniform(-1, 1, (MEASURED, *(env.action_space.shape or ())))
        )
        simulate = seconds_each(
            lambda: env.step(next(actions).astype(np.float32)), MEASURED, learner.device
        )
        env.close()
        return {
            "operations": operations,
            "simulate": simulate,
            "workers": self.seen[EnvPool][0].workers,
            "turns": len(learners),
            "first_update": learner.first_update,
            "updates_per_step": learner.agent.updates_per_step,
        }

    def on_end(self, folder: Path) -> None:
        tell(ended=time.monotonic())

    def on_step(self, step: int) -> None:
        now = time.monotonic()
        if now - self.reported >= PACE:
            self.reported = now
            simulating = sum(pool.worked().sum() for pool in self.seen[EnvPool])
            tell(step=step, time=now, spent=self.spent | {"simulating": simulating})


def tell(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def child(job: dict[str, Any]) -> None:
    runs, probe = job.pop("runs"), Probe(job.pop("quick"))
    if parts := job.pop("turns"):
        each = -(-runs // parts)
        interleaving.parts = lambda runs: [
            runs[first : first + each] for first in range(0, len(runs), each)
        ]
        interleaving.interleaved_groups = lambda cohorts, device: [cohorts]
    train(**job, seeds=range(runs), callbacks=[probe], evaluation_episodes=0)


if __name__ == "__main__":
    child(json.loads(sys.argv[1]))
