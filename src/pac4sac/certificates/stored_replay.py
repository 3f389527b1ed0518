"""The replay buffer of an agent, read from the experiment that trained it."""

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

Cohort = list[dict[str, Any]]  # descriptions of the runs of a cohort


class StoredReplay(NamedTuple):
    """Hold the replay buffer and prior in a run's checkpoint, or the reason why they are
    missing."""

    batch: replay.Batch | None
    prior: State
    missing: str


def stored_replay(agent_file: Path, trained: TrainedAgent) -> StoredReplay:
    """Return the replay buffer and the prior of a trained agent, or the reason why they are
    missing."""
    missing = partial(StoredReplay, None, {})
    root = agent_file.parent.parent.parent
    cohorts = _read_cohorts(root)
    if cohorts is None:
        return missing("the agent file is not in an experiment folder")
    found = _find_run(cohorts, trained.run.id)
    if found is None:
        return missing("the experiment of the agent file does not list this run")
    number, index = found
    members, folder = cohorts[number], root / "cohorts" / f"{number:03d}"
    if attempt := attempts(root, trained.run.id):  # the run failed and was retrained alone
        members, folder = [members[index]], retry_folder(root, trained.run.id, attempt)
        index = 0
    mark = checkpoint.fingerprint(members)  # by the descriptions at training time
    saved = checkpoint.read_newest(folder, mark)
    if saved is None:
        return missing("its experiment has no readable checkpoint")
    rows = saved.learner["replay"][index]
    kept = rows[_own_rows(agent_file.parent, saved, index, len(rows))]
    if not len(kept):
        return missing("the checkpoint's replay buffer has no transitions of this run")
    prior = {k: x[index : index + 1] for k, x in saved.learner.items() if k.startswith("prior_")}
    return StoredReplay(replay.unpack(kept[None], trained.agent.ds, trained.agent.da), prior, "")


def _read_cohorts(root: Path) -> list[Cohort] | None:
    """Return the cohorts of an experiment; None if its description is missing or damaged."""
    try:
        return [[dict(run) for run in cohort] for cohort in read_experiment(root)["cohorts"]]
    except (UserError, KeyError, TypeError, ValueError):
        return None


def _find_run(cohorts: list[Cohort], run: str) -> tuple[int, int] | None:
    """Return the index of a run's cohort and the run's index in it."""
    for number, cohort in enumerate(cohorts):
        for index, about in enumerate(cohort):
            if about.get("run") == run:
                return number, index
    return None


def _own_rows(
    run_folder: Path, saved: checkpoint.Checkpoint, index: int, filled: int
) -> NDArray[np.int64]:
    """Return the rows of the ring buffer that belong to the run; rows after the run ended are
    empty."""
    step = int(saved.learner["step"])
    written = np.arange(step - filled, step)
    status, detail = saved.progress["status"][index], saved.progress["details"][index]
    if status != "running" and detail is not None:
        episodes, _ = read_log(run_folder / "episodes.jsonl")
        written = written[written < max((row["step"] for row in episodes), default=0)]
    return written % filled
