"""Cohorts of one task that take turns: while the simulators of one step, the learner acts and
updates for the next."""

import contextlib
from collections import deque
from collections.abc import Callable, Sequence

import torch

from pac4sac.base.stopping import StopRequest
from pac4sac.runs.run import Run, check_code
from pac4sac.tasks.pool import pools_in_turns
from pac4sac.training.callbacks import Callback
from pac4sac.training.loop import Cohort

MOST = 4  # cohorts that take turns on a GPU
FEWEST_RUNS = 10  # in a part: updates of fewer runs cost nearly as much


def parts(runs: Sequence[Run]) -> list[Sequence[Run]]:
    """A cohort that has a GPU for itself, as several of about the same size that take turns, where
    it has the runs for that."""
    each = -(-len(runs) // max(1, min(MOST, len(runs) // FEWEST_RUNS)))
    return [runs[first : first + each] for first in range(0, len(runs), each)]


def by_turns(cohorts: Sequence[Cohort], device: torch.device) -> list[Sequence[Cohort]]:
    """Which cohorts train at the same time. On a CPU each has it for itself, since learning takes
    the cores there."""
    together = MOST if device.type == "cuda" else 1
    return [cohorts[first : first + together] for first in range(0, len(cohorts), together)]


def train_in_turns(
    cohorts: Sequence[Cohort],
    stop: StopRequest,
    watcher: Callback,
    started: Callable[[], None] | None = None,
) -> bool:
    """Train cohorts until all are done; False where a stop was asked for before that. They share
    workers and the device, and nothing that could change a result. `started` is called once all
    they need was seen to be usable."""
    going = [cohort for cohort in cohorts if not cohort.is_done()]
    if not going:
        return True
    for cohort in going:
        check_code(cohort.runs)
    root, options, runs = (
        going[0].root,
        going[0].options,
        [run for cohort in going for run in cohort.runs],
    )
    with contextlib.ExitStack() as closing:
        pools = pools_in_turns(
            going[0].task,
            [cohort.seeds for cohort in going],
            options.workers,
            options.step_seconds,
            stop,
        )
        for pool in pools:
            closing.enter_context(pool)
        if not all(cohort.prepare(pool, stop) for cohort, pool in zip(going, pools, strict=True)):
            return False
        if started is not None:
            started()
        told = min(cohort.learner.step for cohort in going)

        def tell() -> None:
            nonlocal told
            if (step := min(cohort.learner.step for cohort in going)) > told:
                told = step
                watcher.on_step(step)

        watcher.on_start(root, runs, options.steps, told)
        closing.callback(watcher.on_end, root)
        turns, complete = deque((cohort, cohort.steps(tell)) for cohort in going), True
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
