"""Interleaved training of cohorts on one task. While the simulators of one cohort step, the learner
of another cohort acts and updates."""

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Sequence

import torch

from pac4sac.base.stopping import StopRequest
from pac4sac.tasks.pool import EnvPool, interleaved_pools
from pac4sac.training.callbacks import Callback
from pac4sac.training.loop import Cohort
from pac4sac.training.run import Run

MOST = 4  # largest number of interleaved cohorts on a GPU
FEWEST_RUNS = 10  # smallest number of runs per part; updates of fewer runs cost nearly as much


def parts(runs: Sequence[Run]) -> list[Sequence[Run]]:
    """Split a large cohort on its own GPU into interleaved parts."""
    count = max(1, min(MOST, len(runs) // FEWEST_RUNS))
    each = -(-len(runs) // count)
    return [runs[first : first + each] for first in range(0, len(runs), each)]


def interleaved_groups(cohorts: Sequence[Cohort], device: torch.device) -> list[Sequence[Cohort]]:
    """Group the cohorts that train at the same time.

    On a CPU each cohort trains alone, because learning uses all cores.
    """
    together = MOST if device.type == "cuda" else 1
    return [cohorts[first : first + together] for first in range(0, len(cohorts), together)]


def train_interleaved(
    cohorts: Sequence[Cohort],
    stop: StopRequest,
    watcher: Callback,
    started: Callable[[], None],
    keep_stale: bool,
) -> bool:
    """Train cohorts, which share workers and the device, until all are done.

    Args:
        cohorts: Cohorts of one task.
        stop: Stop request.
        watcher: Callback that is informed during training.
        started: Function that is called once all cohorts are ready for their next step.
        keep_stale: Whether to continue runs trained by another version of the code.

    Returns:
        False if a stop was requested before all cohorts were done.
    """
    going = [cohort for cohort in cohorts if not cohort.is_done()]
    if not going:
        return True
    for cohort in going:
        cohort.accept_code(keep_stale)
    with contextlib.ExitStack() as leaving:
        pools = [leaving.enter_context(pool) for pool in _pools(going, stop)]
        if not _prepare(going, pools, stop):
            return False
        started()
        root, steps = going[0].root, going[0].options.steps
        runs = list(itertools.chain(*(cohort.runs for cohort in going)))
        watcher.on_start(root, runs, steps, _slowest_step(going))
        leaving.callback(watcher.on_end, root)
        return _take_turns(going, watcher)


def _pools(cohorts: Sequence[Cohort], stop: StopRequest) -> list[EnvPool]:
    """Make the simulators of each cohort; the pools share their workers."""
    options, seeds = cohorts[0].options, [cohort.seeds for cohort in cohorts]
    return interleaved_pools(cohorts[0].task, seeds, options.workers, options.step_seconds, stop)


def _prepare(cohorts: Sequence[Cohort], pools: Sequence[EnvPool], stop: StopRequest) -> bool:
    """Prepare each cohort with its simulators; return False as soon as a stop is requested."""
    return all(cohort.prepare(pool, stop) for cohort, pool in zip(cohorts, pools, strict=True))


def _take_turns(cohorts: Sequence[Cohort], watcher: Callback) -> bool:
    """Step the cohorts in turn until all have ended, and report the step of the slowest one.

    Returns:
        False if a cohort was stopped before its end.
    """
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
