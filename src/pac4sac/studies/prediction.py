"""Predictions of how long the cohorts of a study train, from measurements of a few seconds."""

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from pac4sac.base.cores import cores
from pac4sac.studies.learner_speed import LearnerKind, LearnerSeconds, launch_seconds
from pac4sac.studies.plan import PlannedCohort
from pac4sac.tasks import simulator_seconds, task_sizes
from pac4sac.tasks.pool import lockstep_seconds, number_of_workers
from pac4sac.tasks.registry import time_limit
from pac4sac.training import backends
from pac4sac.training.evaluation import policies_of
from pac4sac.training.options import Options
from pac4sac.training.run import make_agent

BUDGET = 15.0  # seconds for the measurements of all learners
STARTING = 4.0  # seconds of a process until its first step, without compiling
LOOP = 50  # what a step does besides act, update and simulators ÷ launch of an operation
COMPILING_CORES = 3  # that a compiler keeps busy
# If several cohorts share a GPU with MPS: learners that it computes at a time, and seconds of a
# simulator's step ÷ those on an idle machine with random actions.
LEARNERS_AT_A_TIME, CROWDED = 1.8, 1.5


@dataclass(frozen=True)
class CohortPrediction:
    """Hold the predicted seconds of a cohort.

    Attributes:
        seconds: Seconds if it trains alone.
        compiling: Seconds of them for compiling what was not compiled before.
        learning: Seconds of them for act and update.
        on_cores: Seconds of one core that it needs on a GPU machine.
        measured: Whether its kind of learner was measured.
    """

    seconds: float
    compiling: float
    learning: float
    on_cores: float
    measured: bool


@dataclass(frozen=True)
class Predictions:
    """Hold the predictions of cohorts, and how many kinds of learners were measured for them."""

    cohorts: Sequence[CohortPrediction]
    device: torch.device
    kinds: int
    measured: int

    def total(self, parallel: int) -> float:
        """Return the seconds of all cohorts that train `parallel` at a time, longest first."""
        ends = [0.0] * parallel
        for seconds in sorted((each.seconds for each in self.cohorts), reverse=True):
            heapq.heapreplace(ends, ends[0] + seconds)
        if self.device.type == "cpu" or parallel == 1:
            return max(ends)
        on_gpu = sum(each.learning for each in self.cohorts) / LEARNERS_AT_A_TIME
        on_cores = sum(each.on_cores for each in self.cohorts) / cores()
        return max(*ends, STARTING + self.compiling(parallel) + max(on_gpu, on_cores))

    def compiling(self, parallel: int) -> float:
        """Return the seconds of the total for compiling."""
        each = [cohort.compiling for cohort in self.cohorts]
        if self.device.type == "cpu" or parallel == 1:
            return sum(each) / parallel
        at_a_time = min(parallel, len(each))
        return max(each) * max(1.0, at_a_time * COMPILING_CORES / cores())


def predict(
    cohorts: Sequence[PlannedCohort],
    options_of: Callable[[PlannedCohort], Options],
    budget: float = BUDGET,
) -> Predictions:
    """Predict how long cohorts train.

    The kinds of learners with the most work are measured first. If the budget is not enough for
    all, the time of the others follows from the most similar one and the work of both.

    Args:
        cohorts: The cohorts, at least one.
        options_of: Function that returns the training options of a cohort.
        budget: Seconds for the measurements; one kind is always measured.
    """
    until = time.perf_counter() + budget
    launch, options = launch_seconds(), [options_of(cohort) for cohort in cohorts]
    kinds = [LearnerKind(c.runs, how) for c, how in zip(cohorts, options, strict=True)]
    different = {kind.key: kind for kind in kinds}
    found: dict[str, LearnerSeconds] = {}
    for kind in sorted(different.values(), key=lambda kind: -kind.work):
        if not found or time.perf_counter() < until:
            found[kind.key] = kind.measure(launch)

    def learner(kind: LearnerKind) -> LearnerSeconds:
        if kind.key in found:
            return found[kind.key]
        nearest = min((different[key] for key in found), key=kind.difference)
        return kind.like(nearest, found[nearest.key])

    predictions = [
        _prediction(cohort, how, learner(kind), LOOP * launch, kind.key in found)
        for cohort, how, kind in zip(cohorts, options, kinds, strict=True)
    ]
    device = backends.pick_device(options[0].device)
    return Predictions(predictions, device, len(different), len(found))


def _prediction(
    cohort: PlannedCohort, options: Options, learner: LearnerSeconds, loop: float, measured: bool
) -> CohortPrediction:
    """Return the prediction of a cohort from the seconds of its learner and of the loop's rest."""
    task, runs = cohort.runs[0].task, len(cohort.runs)
    workers = number_of_workers(task, [runs], options.workers)
    simulating = lockstep_seconds(runs, simulator_seconds(task), workers)
    # with workers, updates are computed while the simulators step
    in_step = max(learner.updates, simulating) if workers else learner.updates + simulating
    warmup = min(
        min(max(run.config.warmup, run.config.batch) for run in cohort.runs), options.steps
    )
    updated = options.steps - warmup
    stepping = options.steps * (learner.act + loop) + warmup * simulating + updated * in_step
    evaluating = _evaluations(options) * _evaluation_seconds(cohort, options, learner, workers)
    learning = options.steps * learner.act + updated * learner.updates
    return CohortPrediction(
        seconds=STARTING + learner.compiling + stepping + evaluating,
        compiling=learner.compiling,
        learning=learning,
        on_cores=CROWDED * cohort.simulating + learning + options.steps * loop,
        measured=measured,
    )


def _evaluations(options: Options) -> int:
    """Return the number of evaluations of a training."""
    if not options.evaluation_episodes:
        return 0
    return 1 + (options.steps // options.evaluate_every if options.evaluate_every else 0)


def _evaluation_seconds(
    cohort: PlannedCohort, options: Options, learner: LearnerSeconds, workers: int
) -> float:
    """Return the seconds of one evaluation with all its policies, if no episode ends early."""
    task, episodes = cohort.runs[0].task, options.evaluation_episodes
    simulating = lockstep_seconds(len(cohort.runs) * episodes, simulator_seconds(task), workers)
    agent = make_agent(cohort.runs, *task_sizes(task))
    step = 0.0
    for policy in policies_of(agent):
        step += simulating + (episodes * learner.eager_act if policy == "shooting" else 0.0)
    return step * (time_limit(task) or task.steps)
