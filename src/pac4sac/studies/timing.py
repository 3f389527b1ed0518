"""Timing of cohorts' steps on the device and backend of their training, for the cost study and for
plans."""

import heapq
import time
from collections.abc import Sequence
from dataclasses import asdict, replace

import torch

from pac4sac.tasks.pool import EnvPool
from pac4sac.tasks.registry import time_limit
from pac4sac.training import backends
from pac4sac.training.evaluation import Episodes, evaluate, policies_of
from pac4sac.training.options import Options
from pac4sac.training.run import Run, make_agent

TRIED_STEPS = 60
TRIED_EPISODE = 15  # steps
GPU_GAIN = 2.5  # speed of concurrent cohorts on a GPU ÷ speed of one at a time
STARTING = 12.0  # seconds of a process until its first step, with a warm compiler cache


class TimedCohort:
    """Time steps of a cohort."""

    def __init__(self, runs: Sequence[Run], pool: EnvPool, options: Options) -> None:
        self.runs, self.pool, self.options = runs, pool, options
        seeds = [run.seed for run in runs]
        agent = make_agent(runs, pool.observation_size, pool.action_size)
        self.learner, self.placement = backends.make_learner(
            agent, seeds, options.steps, asdict(options)
        )
        self.learner.begin(pool.reset())

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

    def expected_seconds(self) -> float:
        """Return the expected seconds of the whole training.

        The estimate uses steps in the middle of learning and the start of an evaluation.
        """
        options, learner = self.options, self.learner
        warmup = min(learner.first_update, options.steps)
        with backends.Rehearsal(learner):
            learner.step = learner.first_update
            self.take(TRIED_STEPS // 4)
            learning = self.take(TRIED_STEPS) / TRIED_STEPS
            learner.step, warming = 0, 0.0
            if warmup:
                warming = self.take(TRIED_STEPS // 4) / (TRIED_STEPS // 4)
            evaluating = self._evaluation_seconds() if options.evaluation_episodes else 0.0
        evaluations = 1
        if options.evaluate_every:
            evaluations += options.steps // options.evaluate_every
        in_steps = warmup * warming + (options.steps - warmup) * learning
        return STARTING + in_steps + evaluations * evaluating

    def _evaluation_seconds(self) -> float:
        """Return the expected seconds of one evaluation with all its policies."""
        learner, task, seeds = self.learner, self.runs[0].task, [run.seed for run in self.runs]
        short = replace(task, horizon=TRIED_EPISODE)
        asked = (
            learner.agent,
            learner.state,
            short,
            seeds,
            self.options.evaluation_episodes,
            "plan",
        )
        started = time.perf_counter()
        for policy in policies_of(learner.agent):
            evaluate(Episodes(*asked, self.pool.workers), policy)
        seconds = time.perf_counter() - started
        return seconds * (time_limit(task) or task.steps) / TRIED_EPISODE


def expected_seconds(runs: Sequence[Run], options: Options) -> float:
    """Return the expected seconds of a cohort that trains alone on this machine."""
    with EnvPool(runs[0].task, [run.seed for run in runs], options.workers) as pool:
        return TimedCohort(runs, pool, options).expected_seconds()


def side_by_side_seconds(each: Sequence[float], parallel: int, on_gpu: bool) -> float:
    """Return the seconds of cohorts that train `parallel` at a time, longest first.

    On a GPU, concurrent cohorts slow each other down.

    Args:
        each: Seconds of each cohort alone.
        parallel: Number of cohorts at a time.
        on_gpu: Whether they share a GPU.
    """
    ends = [0.0] * parallel
    for seconds in sorted(each, reverse=True):
        heapq.heapreplace(ends, ends[0] + seconds)
    return max(max(ends), sum(each) / GPU_GAIN) if on_gpu else max(ends)
