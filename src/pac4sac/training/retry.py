"""Retries of failed runs, each trained alone from its last checkpoint before the failure.

A run that is trained alone needs only one simulator and one worker process, so it can succeed on a
machine with too little memory for the whole cohort. Each attempt is a cohort with its own folder,
`cohorts/retry-N-RUN/`. The original cohort does not change the run afterwards.
"""

import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from pac4sac.base.errors import DamagedCheckpoint
from pac4sac.base.files import read_json, write_json
from pac4sac.runs.status import Status
from pac4sac.tasks.pool import snapshot_of_run
from pac4sac.training import checkpoint
from pac4sac.training.checkpoint import Checkpoint
from pac4sac.training.learner import tensors_of_run
from pac4sac.training.loop import Cohort
from pac4sac.training.progress import progress_of_run
from pac4sac.training.run import Run
from pac4sac.training.run_folder import attempts, retry_folder

RETRIES = 3  # default number of retries of a failed run


def retries(cohorts: Sequence[Cohort], most: int) -> Iterator[Cohort]:
    """Yield cohorts that retrain failed runs. The caller must train each cohort before it takes the
    next.

    Attempts started by an earlier call come first and are continued.

    Args:
        cohorts: The ended cohorts of an experiment.
        most: Largest number of retries of a run.
    """
    runs = [(cohort, run) for cohort in cohorts for run in cohort.runs]
    begun = [(cohort, run) for cohort, run in runs if attempts(cohort.root, run.id)]
    yield from _latest(begun)
    while failed := [(cohort, run) for cohort, run in runs if _is_due(cohort.root, run, most)]:
        before = _latest(failed)
        for last, (_, run) in zip(before, failed, strict=True):
            _begin(last, run, most)
        for last in before:
            checkpoint.drop_kept(last.folder)
        yield from _latest(failed)


def is_to_be_retried(root: Path, run: str, status: str, most: int = RETRIES) -> bool:
    """Return whether a run of an experiment failed and can be retried."""
    return status == Status.FAILED and attempts(root, run) < most


def _is_due(root: Path, run: Run, most: int) -> bool:
    """Return whether a run failed and can be retried, according to its run.json."""
    status = read_json(root / "runs" / run.id / "run.json").get("status", "")
    return is_to_be_retried(root, run.id, status, most)


def _latest(runs: Sequence[tuple[Cohort, Run]]) -> list[Cohort]:
    """Return the cohort of the last attempt of each run, or its original cohort.

    Args:
        runs: Each run with its original cohort.
    """
    return [_attempt_of(cohort, run, attempts(cohort.root, run.id)) for cohort, run in runs]


def _attempt_of(cohort: Cohort, run: Run, attempt: int) -> Cohort:
    """Return the cohort of an attempt; attempt 0 is the original cohort."""
    if not attempt:
        return cohort
    name = retry_folder(cohort.root, run.id, attempt).name
    return Cohort(cohort.root, name, [run], cohort.options, cohort.watcher, attempt)


def _begin(last: Cohort, run: Run, most: int) -> None:
    """Make the folder of a run's next attempt atomically, and warn with the cause of failure.

    Args:
        last: The cohort in which the run failed.
        run: The run.
        most: Number of attempts.
    """
    folder = retry_folder(last.root, run.id, last.attempt + 1)
    about = read_json(last.root / "runs" / run.id / "run.json")
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    step, found = 0, _last_before_failure(last, run)
    if found is not None:
        step = int(found.learner["step"])
        checkpoint.save(part, checkpoint.fingerprint([run.describe()]), step, found)
    write_json(part / "retry.json", {"from_step": step, "cause": about["status_detail"]})
    part.rename(folder)
    cause = str(about["status_detail"]).rstrip(".")
    warnings.warn(
        f"{run.id} failed: {cause}. It is trained again from step {step} (attempt "
        f"{last.attempt + 1} of {most}).",
        stacklevel=4,
    )


def _last_before_failure(last: Cohort, run: Run) -> Checkpoint | None:
    """Return the part of one run in the newest checkpoint before its failure."""
    index = [each.id for each in last.runs].index(run.id)
    for saved in checkpoint.all_readable(last.folder, last.fingerprint):
        try:
            if saved.progress["status"][index] == Status.RUNNING:
                last.folders[index].check(saved.progress["logs"][index])
                return checkpoint_of_run(saved, index, run.config.updates_per_step)
        except (DamagedCheckpoint, LookupError, TypeError):
            continue
    return None


def checkpoint_of_run(saved: Checkpoint, index: int, updates_per_step: int) -> Checkpoint:
    """Return the part of a checkpoint that belongs to one run."""
    return Checkpoint(
        tensors_of_run(saved.learner, index, updates_per_step),
        snapshot_of_run(saved.pool, index),
        progress_of_run(saved.progress, index),
    )
