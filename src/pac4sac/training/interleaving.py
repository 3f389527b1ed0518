"""Cohorts of one task trained in turns: while the simulators of one step, the learner acts and
updates for the next."""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence

import torch

from pac4sac.base.stopping import StopRequest
from pac4sac.tasks.pool import interleaved_pools
from pac4sac.training.callbacks import Callback
from pac4sac.training.loop import Cohort
from pac4sac.training.run import Run, check_code

MOST = 4  # cohorts that take turns on a GPU
FEWEST_RUNS = 10  # in a part: updates of fewer runs cost nearly as much


def parts(runs: Sequence[Run]) -> list[Sequence[Run]]:
    """A cohort that has a GPU for itself, as several of about the same size that take turns, where
    it has the runs for that."""
    each = -(-len(runs) // max(1, min(MOST, len(runs) // FEWEST_RUNS)))
    return [runs[first : first + each] for first in range(0, len(runs), each)]


def interleaved_groups(cohorts: Sequence[Cohort], device: torch.device) -> list[Sequence[Cohort]]:
    """Which cohorts train at the same time. On a CPU each has it for itself, since learning takes
    the cores there."""
    together = MOST if device.type == "cuda" else 1
    return [cohorts[first : first + together] for first in range(0, len(cohorts), together)]


def train_interleaved(
    cohorts: Sequence[Cohort],
    stop: StopRequest,
    watcher: Callback,
    started: Callable[[], None] | None = None,
    keep_stale: bool = False,
) -> bool:
    """Train cohorts until all are done; False where a stop was asked for before that. They share
    workers and the device, and nothing that could change a result. `started` is called once all
    they need was seen to be usable."""
    going = [cohort for cohort in cohorts if not cohort.is_done()]
    if not going:
        return True
    for cohort in going:
        if keep_stale:
            cohort.continue_with_todays_code()
        else:
            check_code(cohort.runs)
    root, options = going[0].root, going[0].options
    with contextlib.ExitStack() as closing:
        seeds = [cohort.seeds for cohort in going]
        pools = interleaved_pools(going[0].task, seeds, options.workers, options.step_seconds, stop)
        for pool in pools:
            closing.enter_context(pool)
        if not all(cohort.prepare(pool, stop) for cohort, pool in zip(going, pools, strict=True)):
            return False
        if started is not None:
            started()
        runs = [run for cohort in going for run in cohort.runs]
        watcher.on_start(root, runs, options.steps, _slowest_step(going))
        closing.callback(watcher.on_end, root)
        return _take_turns(going, watcher)


def _take_turns(cohorts: Sequence[Cohort], watcher: Callback) -> bool:
    """Take a step of one cohort after the other until all have ended, and report the step of the
    slowest; False if one of them was stopped before its end."""
    going, complete, reported = list(cohorts), True, _slowest_step(cohorts)

    def report() -> None:
        nonlocal reported
        if (step := _slowest_step(going)) > reported:
            reported = step
            watcher.on_step(step)

    turns = deque((cohort, cohort.steps(report)) for cohort in going)
    while turns:
        cohort, steps = turns.popleft()
        cohort.take_turn()
        try:
            next(steps)
            turns.append((cohort, steps))
        except StopIteration as end:
            complete &= end.value
            going.remove(cohort)
    return complete


def _slowest_step(cohorts: Sequence[Cohort]) -> int:
    return min(cohort.learner.step for cohort in cohorts)
