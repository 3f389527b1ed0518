"""The engine `slurm`: it submits the cohorts of a study that are neither trained nor queued.

The resources that a job requests come from options, then from the table `slurm` of the study, and
otherwise from the plan."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.stopping import StopReason, StopRequest
from pac4sac.studies.definition import Study
from pac4sac.studies.local import CORES_PER_COHORT, HOST_BYTES
from pac4sac.studies.plan import CohortPlace, PlannedCohort
from pac4sac.studies.prediction import predict
from pac4sac.studies.slurm.queue import check_can_submit, ids_of, job_states, submit
from pac4sac.studies.slurm.resources import Request, wants_gpu
from pac4sac.studies.watcher import Watcher
from pac4sac.training.options import Options

SHORTEST, LONGEST = 60, 24 * 60  # minutes that are requested if no time is given


def device_of_jobs(study: Study, options: Mapping[str, Any], request: Request) -> str:
    """Return the device on which jobs train: a GPU if they request one or the study asks for it."""
    device = {"device": "auto", **study.options, **options}["device"]
    has_gpu = wants_gpu(request, device)
    return device if device != "auto" else "cuda" if has_gpu else "cpu"


def from_plan(
    cohorts: Sequence[PlannedCohort], on_gpu: bool, seconds: float | None
) -> dict[str, str]:
    """Return the resources with which each of some cohorts can be trained.

    The requested time is twice the expected time, because a node may be slower than this machine. A
    job that does not end within its time continues later.

    Args:
        cohorts: The cohorts.
        on_gpu: Whether each cohort has a GPU.
        seconds: Expected time of the longest cohort; None if it is not known.
    """
    largest = max(cohort.bytes for cohort in cohorts)
    most_runs = max(len(cohort.runs) for cohort in cohorts)
    expected = LONGEST if seconds is None else math.ceil(2 * seconds / 60)
    return {
        "gpus": str(int(on_gpu)),
        "cpus": str(min(CORES_PER_COHORT, 1 + most_runs)),
        "mem": f"{math.ceil((HOST_BYTES + 1.5 * largest) / 1e9)}G",
        "time": str(min(LONGEST, max(SHORTEST, expected))),
    }


def slurm_engine(
    study: Study,
    root: Path,
    cohorts: Sequence[PlannedCohort],
    place: CohortPlace,
    given: Request,
    options: Mapping[str, Any],
    parallel: int | None,
) -> Callable[[Sequence[PlannedCohort], StopRequest, Watcher], list[str]]:
    """Return the engine that submits cohorts and does not wait for them.

    Args:
        study: The study.
        root: Its folder.
        cohorts: Its cohorts that are not trained to their end.
        place: Where they are planned to train.
        given: Requested resources that do not follow from the plan.
        options: Training options that override those of the study.
        parallel: Number of jobs that may run at the same time; None for all.

    Raises:
        UserError: If this machine cannot submit jobs or ask for them.
    """
    check_can_submit(given.get("cluster", "slurm"))
    queued = {name: state for name, state in job_states(root).items() if state.is_queued}
    missing = [cohort for cohort in cohorts if cohort.folder.name not in queued]
    seconds = None
    if missing and "time" not in given and place.here:
        longest = max(missing, key=lambda cohort: cohort.simulating)
        how = {**study.options_for(longest.runs[0].task), **options, "steps": longest.steps}
        seconds = predict([longest], lambda _: Options(**how)).cohorts[0].seconds

    def train(cohorts: Sequence[PlannedCohort], stop: StopRequest, watcher: Watcher) -> list[str]:
        jobs = [queued[cohort.folder.name] for cohort in cohorts if cohort not in missing]
        if missing:
            request = {**from_plan(missing, place.on_gpu, seconds), **given}
            jobs += submit(root, study.name, missing, request, parallel)
        many = "1 cohort is" if len(jobs) == 1 else f"{len(jobs)} cohorts are"
        new = len(missing)
        stop.reason = StopReason(f"{many} in the queue, {new} of them new ({ids_of(jobs)})")
        return []

    return train
