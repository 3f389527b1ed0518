"""Seconds of a learner's operations: measured eager, calculated for compiled programs and larger
cohorts."""

import functools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pac4sac.agents.base import Agent
from pac4sac.tasks import task_sizes
from pac4sac.training import backends
from pac4sac.training.learner import Learner
from pac4sac.training.options import Options
from pac4sac.training.run import Run, make_agent

# On a CPU the time is proportional to the runs, so a learner of these many is measured.
MEASURED_RUNS = 4
MEASURED_STEPS = 20_000  # largest replay buffer of a measured learner
# calls of an operation, and seconds after which two calls suffice
MOST_CALLS, ENOUGH = 10, 0.2
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
# A compiled program computes the same matrix products. The rest takes this part of its eager time
# without the launches of kernels (benchmarks/predictions.py). The part on a GPU is assumed.
FUSED = {"cpu": 0.35, "cuda": 0.2}
COMPILING = 7_000  # seconds to compile an operation ÷ those of launching what it calls


@dataclass(frozen=True)
class LearnerSeconds:
    """Hold the seconds of a learner.

    Attributes:
        act: Seconds of one act.
        updates: Mean seconds of the updates of one step.
        compiling: Seconds until its operations are compiled.
        eager_act: Seconds of one eager act, as in evaluations.
    """

    act: float
    updates: float
    compiling: float
    eager_act: float

    def times(self, factor: float) -> "LearnerSeconds":
        """Return the seconds of a learner with more work by this factor."""
        act, updates, eager = (factor * each for each in (self.act, self.updates, self.eager_act))
        return LearnerSeconds(act, updates, self.compiling, eager)


@dataclass(frozen=True)
class OperationSeconds:
    """Hold the seconds of an operation: measured eager, calculated compiled, and of compiling."""

    eager: float
    compiled: float
    compiling: float


class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count what an operation calls, and keep its matrix products."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls, self.products = 0, list[Callable[[], Any]]()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.calls += 1
        call = functools.partial(function, *args, **(kwargs or {}))
        if function.overloadpacket.__name__ in PRODUCTS:
            self.products.append(call)
        return call()

    @torch.no_grad()
    def multiply(self) -> None:
        """Compute the matrix products again."""
        for product in self.products:
            product()


class LearnerKind:
    """Hold the learner of cohorts that differ in nothing that affects its speed.

    Attributes:
        key: Text that is equal for cohorts of the same kind.
        work: Multiplications of one step, about.
    """

    def __init__(self, runs: Sequence[Run], options: Options) -> None:
        self.options, self.device = options, backends.pick_device(options.device)
        by_cost = sorted(runs, key=lambda run: (-run.config.updates_per_step, -_shots(run)))
        self.runs = by_cost if self.device.type == "cuda" else by_cost[:MEASURED_RUNS]
        self.larger = len(runs) / len(self.runs)
        self.sizes = task_sizes(runs[0].task)
        agent = make_agent(runs, *self.sizes)
        updates, shots = agent.updates_per_step, max(agent.shots(evaluating=False))
        of_all = backends.number_of_updates(agent, options.steps)
        self.backend = backends.choose_backend(options.backend, self.device, of_all)
        self.threads = _threads(agent, options, self.device)
        facts: list[Any] = [str(type(agent)), agent.config.structure(), self.sizes, len(runs)]
        facts += [self.backend, options.precision, self.threads, updates, shots]
        self.key = json.dumps(facts, sort_keys=True, default=str)
        weights = sum(net.members * sum(net.sizes) for net in agent.nets.values())
        self.work = len(runs) * weights * (agent.config.batch * updates + shots)

    def measure(self, launch: float) -> LearnerSeconds:
        """Return the seconds of the learner of a whole cohort.

        Args:
            launch: Seconds of `launch_seconds`.
        """
        agent = make_agent(self.runs, *self.sizes)
        backends.set_precision(self.options.precision)
        steps = min(self.options.steps, MEASURED_STEPS)
        learner = Learner(agent, [run.seed for run in self.runs], steps, self.device)
        with backends.on_threads(self.threads), backends.Rehearsal(learner):
            of = {
                name: operation_seconds(run, self.device, launch)
                for name, run in learner.run.items()
                if name != "store"
            }
        is_eager = self.backend == "eager"
        seconds = {name: each.eager if is_eager else each.compiled for name, each in of.items()}
        compiling = 0.0 if is_eager else sum(each.compiling for each in of.values())
        updates = _mean_updates(learner, seconds)
        measured = LearnerSeconds(seconds["act"], updates, compiling, of["act"].eager)
        return measured.times(self.larger)

    def like(self, other: "LearnerKind", seconds: LearnerSeconds) -> LearnerSeconds:
        """Return the seconds that follow from those of another kind and the work of both."""
        return seconds.times(self.work / other.work)

    def difference(self, other: "LearnerKind") -> float:
        """Return how much the work of two kinds differs, as a logarithm."""
        return abs(math.log(self.work / other.work))


def _shots(run: Run) -> int:
    return int(getattr(run.config, "shots", 1))


def _threads(agent: Agent, options: Options, device: torch.device) -> int:
    """Return the number of threads of a learner."""
    if options.threads != "auto":
        return options.threads
    rows = agent.config.batch + max(agent.shots(evaluating=False))
    return 1 if device.type == "cuda" else backends.suitable_threads(agent, rows)


def launch_seconds() -> float:
    """Return the seconds of an operation on the CPU with hardly anything to compute."""
    x = torch.zeros(1)

    def hundred() -> None:
        for _ in range(100):
            x + 1

    hundred()
    return least_seconds(hundred, torch.device("cpu")) / 100


def operation_seconds(
    run: Callable[[], None], device: torch.device, launch: float
) -> OperationSeconds:
    """Measure an eager operation, and calculate it as compiled.

    Args:
        run: The operation.
        device: Where it computes.
        launch: Seconds of `launch_seconds`.
    """
    run()  # the first call initialises libraries
    with Trace() as trace:
        run()
    eager, launching = least_seconds(run, device), launch * trace.calls
    if device.type == "cuda":
        products, kernels = _kernel_seconds(trace.multiply), _kernel_seconds(run)
    else:
        products = least_seconds(trace.multiply, device) - launch * len(trace.products)
        kernels = eager - launching
    products = min(max(products, 0.0), eager)
    compiled = products + FUSED[device.type] * max(kernels - products, 0.0)
    return OperationSeconds(eager, compiled, COMPILING * launching)


def least_seconds(run: Callable[[], None], device: torch.device) -> float:
    """Return the shortest time of a call, since other programs slow some calls."""
    taken: list[float] = []
    while len(taken) < MOST_CALLS and (len(taken) < 2 or sum(taken) < ENOUGH):
        started = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - started)
    return min(taken)


def _kernel_seconds(run: Callable[[], None]) -> float:
    """Return the seconds that the kernels of a GPU take in a call."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    # only kernels, because the calls that launch them have the same time again
    kernels = [e for e in profile.key_averages() if str(e.device_type).endswith("CUDA")]
    return float(sum(event.self_device_time_total for event in kernels)) / 1e6


def _mean_updates(learner: Learner, seconds: Mapping[str, float]) -> float:
    """Return the mean seconds of the updates of a step; some leave out the delayed parts."""
    agent, first = learner.agent, learner.first_update
    total = 0.0
    for step in range(first, first + agent.period):
        for place in range(agent.updates_per_step):
            is_full = agent.moves_delayed(step, place)
            total += seconds["update" if is_full else "short_update"]
    return total / agent.period
