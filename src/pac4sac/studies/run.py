"""Running a study from its definition to complete folders, once or in several goes."""

import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import read_json, write_json
from pac4sac.base.stopping import StopRequest
from pac4sac.export.tracking import callbacks_named
from pac4sac.runs.archive import add_to_archive, archived
from pac4sac.runs.run import Run
from pac4sac.studies.cost import measure_cost
from pac4sac.studies.definition import Study
from pac4sac.studies.halving import survivors
from pac4sac.studies.local import run_local, side_by_side
from pac4sac.studies.plan import CohortPlace, PlannedCohort, begin, place_for_cohorts, plan
from pac4sac.studies.ray.cluster import cluster_address, run_on_ray
from pac4sac.studies.watcher import Watcher
from pac4sac.training.experiment import Result, check_computing
from pac4sac.training.options import Options

if TYPE_CHECKING:
    from pac4sac.paper.report import WrittenReport

WITH_COST = ("cost", "smoke")


def study_folder(study: Study, out: str | Path | None) -> Path:
    return Path("experiments", f"study-{study.name}") if out is None else Path(out)


def train_and_report(
    study: Study,
    root: Path,
    watcher: Watcher,
    *,
    options: Mapping[str, Any],
    into: Path | None = None,
    **launching: Any,
) -> "tuple[Result, WrittenReport]":
    """Run a study, then write the page on all that its folder holds, of a search in rungs on the
    last. With an archive to put its runs `into`, those that are there are not trained again, and
    the page is on all of it. `launching` is what `run_study` takes."""
    from pac4sac.paper.report import write_report  # matplotlib takes a second to import

    if into is None:
        train = run_study if study.halving is None else run_rungs
        result = train(study, root, watcher, **launching, **options)
        return result, write_report([result.folder], root / "report")
    if study.halving is not None:
        raise UserError(
            f"{study.name} is a search in rungs, which needs all its runs in one folder; "
            "leave --into out."
        )
    result = run_study(study, root, watcher, known=archived(into), **launching, **options)
    add_to_archive([root], into)
    return result, write_report([into], root / "report")


def run_rungs(
    study: Study,
    root: Path,
    watcher: Watcher,
    *,
    max_minutes: float | None = None,
    **launching: Any,
) -> Result:
    """Each rung trains, in a folder of its own, what the one before has left of the variants."""
    assert study.halving is not None
    began, kept = time.monotonic(), None
    for number in range(study.halving.rungs):
        left = (
            None
            if max_minutes is None
            else max(max_minutes - (time.monotonic() - began) / 60, 1e-3)
        )
        folder = root / f"rung-{number + 1}"
        result = run_study(study.rung(number, kept), folder, watcher, max_minutes=left, **launching)
        if not result.complete:
            break
        kept = survivors(folder, study.halving)
        write_json(folder / "survivors.json", kept)
    return result


def present_rung(study: Study, root: Path) -> tuple[Study, Path]:
    """The last rung that was begun, or the first."""
    number = max(1, len(list(root.glob("rung-*"))))
    before = root / f"rung-{number - 1}" / "survivors.json"
    return study.rung(
        number - 1, read_json(before) if number > 1 else None
    ), root / f"rung-{number}"


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
    known: Collection[str] = (),
    callbacks: Sequence[str] = (),
    **options: Any,
) -> Result:
    """Train what is not trained yet, or was by other code than today's, unless that is kept. Called
    again, it goes on. `options` override those of the study; `known` are identities of runs that
    were trained elsewhere; `callbacks` are names, see `callbacks_named`."""
    stop = StopRequest(max_minutes)
    callbacks_named(callbacks)  # what cannot be made is told before anything is written
    if callbacks and engine != "local":
        raise UserError(
            f"{', '.join(callbacks)} cannot watch other machines of a cluster; leave --engine "
            "local."
        )
    if address is not None and engine != "ray":
        raise UserError(
            f"--address {address} is that of a Ray cluster; add --engine ray to train there."
        )
    if parallel is not None and parallel < 1:
        raise UserError(
            f"At least 1 cohort must be trained at a time, not {parallel}; leave --parallel "
            "out to choose."
        )
    place = place_of(study, engine, memory, options)
    chosen: Any = {"keep_stale": keep_stale, "known": known}
    cohorts = (
        plan(study, root, place.memory, place.on_gpu, **chosen) if study.kind != "cost" else []
    )
    watcher.planned(study, root, cohorts, place.memory)
    unfinished = [cohort for cohort in cohorts if cohort.done() < len(cohort.runs)]
    # before anything is written
    cluster = cluster_address(address) if unfinished and engine == "ray" else None
    begin(study, root, cohorts, options)
    if unfinished:
        with stop:
            if cluster is not None:
                failures = run_on_ray(unfinished, cluster, stop, watcher)
            else:
                beside = parallel or side_by_side(unfinished, place.device)
                failures = run_local(unfinished, beside, stop, watcher, place.on_gpu, callbacks)
        if failures:
            raise UserError(
                f"{len(failures)} of {len(unfinished)} cohorts failed: {'; '.join(failures)}"
            )
        if stop.wanted:
            return Result(root, complete=False, reason=stop.reason)
    name_the_same(study.runs(), cohorts)
    if study.kind in WITH_COST and not (root / "cost.json").exists():
        measure_cost(study, root, Options(**{**study.options, **options, "steps": 1}))
    return Result(root, complete=True)


def place_of(
    study: Study, engine: str, memory: int | None, options: Mapping[str, Any]
) -> CohortPlace:
    """What the cohorts are cut for. What this machine cannot compute as asked is told before
    anything is written."""
    if engine not in ("local", "ray"):
        raise UserError(f"There is no engine {engine!r}; use local or ray.")
    for task_options in (study.options, *map(study.options_for, study.tasks)):
        how = Options(**{**task_options, **options, "steps": 1})
        if how.start_from:
            raise UserError(
                "A study trains from nothing; leave start_from out, or use pac4sac train --from."
            )
        if engine == "local":  # what a cluster can compute is not known here
            check_computing(how)
    return place_for_cohorts({"device": "auto", **study.options, **options}["device"], memory)


def name_the_same(runs: Sequence[Run], cohorts: Sequence[PlannedCohort]) -> None:
    """Give a run that a study lists under several names a folder under each; it was trained
    once."""
    trained = {
        run.identity: (cohort.folder / "runs" / run.id, run)
        for cohort in cohorts
        for run in cohort.runs
    }
    for run in (run for run in runs if run.identity in trained):
        folder, original = trained[run.identity]
        copy = folder.parent / run.id
        if run.label == original.label or copy.exists():
            continue
        shutil.copytree(folder, copy)
        about = read_json(copy / "run.json")
        about |= {"run": run.id, "label": run.label, "same_as": original.id}
        write_json(copy / "run.json", about)
