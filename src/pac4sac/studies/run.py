"""Run studies from their definition to complete folders, in one or several calls."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import read_json, write_json
from pac4sac.base.objects import needs_this_process
from pac4sac.base.stopping import StopRequest
from pac4sac.export.tracking import callbacks_named
from pac4sac.runs.archive import add_to_archive, archived
from pac4sac.runs.reading import RunRecord, sealed
from pac4sac.studies.cost import measure_cost
from pac4sac.studies.definition import Study
from pac4sac.studies.local import run_here, run_local, side_by_side
from pac4sac.studies.plan import CohortPlace, PlannedCohort, begin, place_for_cohorts, plan
from pac4sac.studies.slurm.launch import device_of_jobs, slurm_engine
from pac4sac.studies.slurm.resources import checked
from pac4sac.studies.watcher import Watcher
from pac4sac.training.experiment import Result, check_computing
from pac4sac.training.options import Options
from pac4sac.training.run import Run

if TYPE_CHECKING:
    from pac4sac.report.report import WrittenReport

WITH_COST = ("cost", "smoke")
ENGINES = ("local", "ray", "slurm")
NOTHING: Mapping[str, Any] = {}

# Trains cohorts to their end or until a stop; returns a sentence for each failed one.
Engine = Callable[[Sequence[PlannedCohort], StopRequest, Watcher], list[str]]


def study_folder(study: Study, out: str | Path | None) -> Path:
    """Return the folder of a study: `out`, or experiments/ with the study's name."""
    return Path("experiments", f"study-{study.name}") if out is None else Path(out)


def train_and_report(
    study: Study,
    root: Path,
    watcher: Watcher,
    *,
    options: Mapping[str, Any],
    into: Path | None = None,
    curves: Sequence[Path] = (),
    **launching: Any,
) -> "tuple[Result, WrittenReport]":
    """Run a study, then write the report on all runs of its folder.

    Args:
        study: The study.
        root: Folder of the study.
        watcher: Object that is informed of the progress.
        options: Training options; they override those of the study.
        into: Archive for its runs. Runs in the archive are not trained again, and the report covers
            the whole archive.
        curves: CSV files with curves of other projects, for the report.
        **launching: Further arguments of `run_study`.

    Returns:
        The result of training, and the report.
    """
    from pac4sac.report.report import write_report  # matplotlib takes a second to import

    if into is None:
        result = run_study(study, root, watcher, **launching, **options)
        return result, write_report([result.folder, *curves], root / "report")
    result = run_study(study, root, watcher, known=archived(into), **launching, **options)
    add_to_archive([root], into)
    return result, write_report([into], root / "report")


def run_study(
    study: Study,
    root: Path,
    watcher: Watcher,
    *,
    engine: str = "local",
    address: str | None = None,
    parallel: int | None = None,
    memory: int | None = None,
    max_minutes: float | None = None,
    keep_stale: bool = False,
    known: Sequence[RunRecord] = (),
    callbacks: Sequence[str] = (),
    slurm: Mapping[str, Any] = NOTHING,
    **options: Any,
) -> Result:
    """Train the missing runs of a study; another call continues.

    Args:
        study: The study.
        root: Folder of the study.
        watcher: Object that is informed of the plan, the progress and the outcomes.
        engine: "local" for this machine, "ray" for a Ray cluster, "slurm" for Slurm jobs, which are
            submitted and train later.
        address: Address of the Ray cluster.
        parallel: Number of cohorts to train at the same time on this machine or in the queue; None
            to choose automatically.
        memory: Largest number of bytes of one cohort's tensors; None for half of the free memory.
        max_minutes: Time limit in minutes, after which training stops with checkpoints.
        keep_stale: Keep finished runs trained by another version of the code.
        known: Runs that are already trained, such as those of an archive.
        callbacks: Names of callbacks, see `callbacks_named`.
        slurm: Resources that jobs request; they override the table `slurm` of the study.
        **options: Training options; they override those of the study.

    Returns:
        The folder, and whether the study is complete.

    Raises:
        UserError: If an argument is wrong, or a cohort failed.
    """
    stop, request = StopRequest(max_minutes), checked({**study.slurm, **slurm})
    callbacks_named(callbacks)  # reports an invalid name before anything is written
    check_engine_options(engine, address, parallel, callbacks)
    _check_slurm_options(engine, max_minutes, slurm)
    _check_importable(engine, study)
    if engine == "slurm":
        options["device"] = device_of_jobs(study, options, request)
    place = place_of(study, engine, memory, options)
    cohorts: list[PlannedCohort] = []
    if study.kind != "cost":
        cohorts = plan(study, root, place.memory, place.on_gpu, keep_stale=keep_stale, known=known)
    watcher.planned(study, root, cohorts, place.memory)
    unfinished = [cohort for cohort in cohorts if not cohort.is_done()]
    engines: dict[str, Callable[[], Engine]] = {
        "local": lambda: _local_engine(parallel, place, callbacks),
        "ray": lambda: _ray_engine(address),
        "slurm": lambda: slurm_engine(study, root, unfinished, place, request, options, parallel),
    }
    train = engines[engine if unfinished else "local"]()  # checks that a cluster can be used
    begin(study, root, cohorts, options, known)
    if unfinished:
        _train_cohorts(unfinished, train, stop, watcher)
        if stop.wanted:
            return Result(root, complete=False, reason=stop.reason)
    name_the_same(study.runs(), cohorts)
    _measure_missing_cost(study, root, options)
    return Result(root, complete=True)


def _measure_missing_cost(study: Study, root: Path, options: Mapping[str, Any]) -> None:
    """Write cost.json for a study that measures cost, unless the file already exists."""
    if study.kind in WITH_COST and not (root / "cost.json").exists():
        measure_cost(study, root, Options(**{**study.options, **options, "steps": 1}))


def check_engine_options(
    engine: str, address: str | None, parallel: int | None, callbacks: Sequence[str] = ()
) -> None:
    """Refuse options that the engine does not support, and numbers that are too small."""
    if callbacks and engine != "local":
        raise UserError(
            f"{', '.join(callbacks)} cannot track training on other machines; use --engine local."
        )
    if address is not None and engine != "ray":
        raise UserError(
            f"--address {address} is for a Ray cluster; add --engine ray to train there."
        )
    if parallel is not None and parallel < 1:
        raise UserError(
            f"--parallel must be at least 1, not {parallel}; omit it to choose automatically."
        )


def _check_slurm_options(engine: str, max_minutes: float | None, slurm: Mapping[str, Any]) -> None:
    """Refuse options of Slurm jobs with another engine, and a time limit that does not apply to
    jobs."""
    if slurm and engine != "slurm":
        raise UserError(f"--slurm {next(iter(slurm))} is for Slurm jobs; add --engine slurm.")
    if engine == "slurm" and max_minutes is not None:
        raise UserError(
            "--max-minutes does not end Slurm jobs; set their time limit, as in --slurm "
            "time=4:00:00."
        )


def _check_importable(engine: str, study: Study) -> None:
    """Refuse to train on other machines if only this process can import the objects."""
    names = chain(*(run.code_names for run in study.runs()))
    if engine != "local" and needs_this_process(names):
        raise UserError(
            "Other machines of a cluster cannot import objects of a script, notebook or "
            "function. Define them in a module, or use --engine local."
        )


def _local_engine(parallel: int | None, place: CohortPlace, callbacks: Sequence[str]) -> Engine:
    """Return the engine that trains on this machine."""

    def train(cohorts: Sequence[PlannedCohort], stop: StopRequest, watcher: Watcher) -> list[str]:
        here = [cohort for cohort in cohorts if needs_this_process(cohort.runs[0].code_names)]
        others = [cohort for cohort in cohorts if cohort not in here]
        failures = run_here(here, stop, watcher, callbacks)
        if others:
            at_a_time = parallel or side_by_side(others, place.device)
            failures += run_local(others, at_a_time, stop, watcher, place.on_gpu, callbacks)
        return failures

    return train


def _ray_engine(address: str | None) -> Engine:
    """Return the engine that trains on a Ray cluster, after a check that the cluster answers."""
    from pac4sac.studies.ray.cluster import cluster_address, run_on_ray  # only this engine uses Ray

    cluster = cluster_address(address)
    return lambda cohorts, stop, watcher: run_on_ray(cohorts, cluster, stop, watcher)


def _train_cohorts(
    cohorts: Sequence[PlannedCohort], train: Engine, stop: StopRequest, watcher: Watcher
) -> None:
    """Train cohorts; raise an error if one failed."""
    with stop:
        failures = train(cohorts, stop, watcher)
    if failures:
        raise UserError(f"{len(failures)} of {len(cohorts)} cohorts failed: {'; '.join(failures)}")


def place_of(
    study: Study, engine: str, memory: int | None, options: Mapping[str, Any]
) -> CohortPlace:
    """Return the device for the cohorts after a check that they can be trained there.

    Args:
        study: The study.
        engine: One of `ENGINES`.
        memory: Largest number of bytes of one cohort's tensors; None for half of the free memory.
        options: Training options; they override those of the study.

    Raises:
        UserError: If the engine is unknown, or this machine cannot train with these options.
    """
    if engine not in ENGINES:
        raise UserError(f"Unknown engine {engine!r}; use {', '.join(ENGINES)}.")
    for task_options in (study.options, *map(study.options_for, study.tasks)):
        how = Options(**{**task_options, **options, "steps": 1})
        if how.start_from:
            raise UserError(
                "A study trains new agents; omit start_from, or use pac4sac train --from."
            )
        if engine == "local":  # the devices of a cluster are unknown here
            check_computing(how)
    return place_for_cohorts({"device": "auto", **study.options, **options}["device"], memory)


def name_the_same(runs: Sequence[Run], cohorts: Sequence[PlannedCohort]) -> None:
    """Copy a run that a study lists under several names to a folder for each name.

    The run was trained once, under its first name.
    """
    trained = {run.identity: (cohort.folder, run) for cohort in cohorts for run in cohort.runs}
    for run in runs:
        if run.identity in trained:
            folder, original = trained[run.identity]
            _copy_under_name(folder / "runs", original, run)


def _copy_under_name(folder: Path, original: Run, run: Run) -> None:
    """Copy the folder of a run to its other name, unless the name is the same or the copy already
    exists."""
    copy = folder / run.id
    if run.label == original.label or copy.exists():
        return
    shutil.copytree(folder / original.id, copy)
    about = read_json(copy / "run.json")
    about |= {"run": run.id, "label": run.label, "same_as": original.id}
    write_json(copy / "run.json", sealed(about))
