"""Continue some runs of a finished experiment to more steps, in a new experiment."""

import dataclasses
import itertools
import shutil
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pac4sac.base.files import read_json, write_json
from pac4sac.runs.reading import read_experiment, sealed
from pac4sac.runs.status import Status
from pac4sac.training import checkpoint
from pac4sac.training.checkpoint import Checkpoint
from pac4sac.training.experiment import create, experiment_runs
from pac4sac.training.options import Options
from pac4sac.training.retry import checkpoint_of_run
from pac4sac.training.run import Run
from pac4sac.training.run_folder import attempts, retry_folder

LAST_AXIS = ("metrics", "metrics_count")  # tensors of a learner whose last axis is runs
COUNTERS = ("step", "update")
FAILURES = "failures"  # part of a pool's snapshot that is a string about all runs


def continue_apart(source: Path, labels: Container[str], target: Path, steps: int) -> bool:
    """Make an experiment that continues the runs of a finished one with these labels.

    `resume` then trains it in the same way as the whole experiment with more steps. Matrix products
    of a smaller cohort may differ in their last bits.

    Args:
        source: Folder of the finished experiment.
        labels: Labels of the runs to continue.
        target: Folder of the new experiment, which must not exist.
        steps: Number of steps of the runs.

    Returns:
        Whether it was made; False if no run has such a label, or a checkpoint is missing.
    """
    about = read_experiment(source)
    parts: list[tuple[list[Run], Checkpoint]] = []
    for folder, trained, last_here in _trained_in(source, experiment_runs(about)):
        chosen = [run for run in last_here if run.label in labels]
        if not chosen:
            continue
        saved = checkpoint.read_newest(folder, _fingerprint(trained))
        if saved is None:
            return False
        parts.append((chosen, _of_runs(saved, [trained.index(run) for run in chosen], chosen)))
    if parts:
        options = dataclasses.replace(Options(**about["options"]), steps=steps)
        _write(source, target, parts, options)
    return bool(parts)


def _trained_in(
    source: Path, cohorts: Sequence[Sequence[Run]]
) -> Iterator[tuple[Path, Sequence[Run], list[Run]]]:
    """Yield the folder of each cohort and of each retry, with the runs that it trained, and the
    runs that no later cohort trained."""
    for number, runs in enumerate(cohorts):
        retried = [run for run in runs if attempts(source, run.id)]
        yield source / "cohorts" / f"{number:03d}", runs, [r for r in runs if r not in retried]
        for run in retried:
            yield retry_folder(source, run.id, attempts(source, run.id)), [run], [run]


def _fingerprint(runs: Sequence[Run]) -> str:
    return checkpoint.fingerprint([run.describe() for run in runs])


def _of_runs(saved: Checkpoint, indices: Sequence[int], runs: Sequence[Run]) -> Checkpoint:
    """Return the part of a checkpoint that belongs to some of its runs."""
    updates = max(run.config.updates_per_step for run in runs)
    parts = [checkpoint_of_run(saved, index, updates) for index in indices]
    first = parts[0]
    learner = {
        name: torch.cat([part.learner[name] for part in parts], -1 if name in LAST_AXIS else 0)
        for name in first.learner.keys() - {*COUNTERS}
    }
    pool = {
        name: np.concatenate([part.pool[name] for part in parts])
        for name in first.pool.keys() - {FAILURES}
    }
    progress = {name: _joined([part.progress[name] for part in parts]) for name in first.progress}
    counters = {name: first.learner[name] for name in COUNTERS}
    return Checkpoint(learner | counters, pool | {FAILURES: first.pool[FAILURES]}, progress)


def _joined(entries: Sequence[Any]) -> Any:
    """Join an entry of the progress for all runs. Only lists have one value per run; other values
    belong to the cohort."""
    return list(itertools.chain(*entries)) if isinstance(entries[0], list) else entries[0]


def _write(
    source: Path, target: Path, parts: Sequence[tuple[list[Run], Checkpoint]], options: Options
) -> None:
    """Write the new experiment atomically."""
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    cohorts = [[run.extended(options.steps) for run in runs] for runs, _ in parts]
    create(part, cohorts, options)
    for number, (runs, (_, saved)) in enumerate(zip(cohorts, parts, strict=True)):
        step = int(saved.learner["step"])
        checkpoint.save(part / "cohorts" / f"{number:03d}", _fingerprint(runs), step, saved)
        for run in runs:
            _copy_run(source / "runs" / run.id, part / "runs" / run.id, run)
    part.rename(target)


def _copy_run(source: Path, target: Path, run: Run) -> None:
    """Copy the logs of a run, and mark it as interrupted."""
    target.mkdir(parents=True)
    for log in source.glob("*.jsonl"):
        shutil.copyfile(log, target / log.name)
    about = read_json(source / "run.json") | run.describe()
    about |= {"status": Status.INTERRUPTED, "status_detail": None}
    about.pop("logs", None)  # checksums of the completed logs
    write_json(target / "run.json", sealed(about))
