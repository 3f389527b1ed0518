"""Read the replay buffer of an agent from the experiment in which it was trained."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pac4sac.agents import replay
from pac4sac.agents.base import State
from pac4sac.base.errors import UserError
from pac4sac.runs.logs import read_log
from pac4sac.runs.reading import read_experiment
from pac4sac.training import checkpoint
from pac4sac.training.run_folder import attempts, retry_folder
from pac4sac.training.trained_agent import TrainedAgent

Cohort = list[dict[str, Any]]  # the runs of a cohort, as the experiment describes them


class StoredReplay(NamedTuple):
    """What the checkpoint of a run's cohort adds to its agent file, or why there is nothing."""

    batch: replay.Batch | None
    prior: State
    missing: str


def stored_replay(agent_file: Path, trained: TrainedAgent) -> StoredReplay:
    """Return the replay buffer and the prior of a trained agent, if its experiment has them."""
    missing = partial(StoredReplay, None, {})
    root = agent_file.parent.parent.parent
    cohorts = _read_cohorts(root)
    if cohorts is None:
        return missing("the agent file lies in no experiment folder")
    found = _find_run(cohorts, trained.run.id)
    if found is None:
        return missing("the experiment around the agent file does not know this run")
    number, index = found
    members, folder = cohorts[number], root / "cohorts" / f"{number:03d}"
    if attempt := attempts(root, trained.run.id):  # it failed, and was trained again alone
        members, folder = [members[index]], retry_folder(root, trained.run.id, attempt)
        index = 0
    mark = checkpoint.fingerprint(members)  # as they were described when they were trained
    saved = checkpoint.read_newest(folder, mark)
    if saved is None:
        return missing("its experiment has no readable checkpoint")
    rows = saved.learner["replay"][index]
    kept = rows[_own_rows(agent_file.parent, saved, index, len(rows))]
    if not len(kept):
        return missing("the checkpoint's replay has nothing of this run")
    prior = {k: x[index : index + 1] for k, x in saved.learner.items() if k.startswith("prior_")}
    return StoredReplay(replay.unpack(kept[None], trained.agent.ds, trained.agent.da), prior, "")


def _read_cohorts(root: Path) -> list[Cohort] | None:
    """Return the cohorts of an experiment; None if the folder has no readable experiment."""
    try:
        return [[dict(run) for run in cohort] for cohort in read_experiment(root)["cohorts"]]
    except (UserError, KeyError, TypeError, ValueError):
        return None


def _find_run(cohorts: list[Cohort], run: str) -> tuple[int, int] | None:
    """Return the number of a run's cohort and its index there."""
    for number, cohort in enumerate(cohorts):
        for index, about in enumerate(cohort):
            if about.get("run") == run:
                return number, index
    return None


def _own_rows(
    run_folder: Path, saved: checkpoint.Checkpoint, index: int, filled: int
) -> NDArray[np.int64]:
    """Return the rows of the ring buffer that the run itself saw: one that ended before its cohort
    has empty rows from then on."""
    step = int(saved.learner["step"])
    written = np.arange(step - filled, step)
    status, detail = saved.progress["status"][index], saved.progress["details"][index]
    if status != "running" and detail is not None:
        episodes, _ = read_log(run_folder / "episodes.jsonl")
        written = written[written < max((row["step"] for row in episodes), default=0)]
    return written % filled
