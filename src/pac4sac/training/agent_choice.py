"""Which of an experiment's agents is meant when the user names only the experiment."""

from pathlib import Path

import numpy as np

from pac4sac.base.errors import UserError
from pac4sac.base.files import read_jsonl
from pac4sac.runs.reading import RunRecord, find_runs, read_run
from pac4sac.training.agent_file import agent_file

LAST_EPISODES = 10


def choose_agent(path: str | Path) -> Path:
    """The agent file that a path names; of an experiment with several runs, the one that did best in the end."""
    path = Path(path)
    if len(list(path.glob("runs/*/agent.safetensors"))) < 2:
        return agent_file(path)
    runs = [read_run(folder) for folder in find_runs(path) if (folder / "agent.safetensors").is_file()]
    if len({run.task["name"] for run in runs}) > 1:
        raise UserError(f"{path} holds agents of several tasks; name one of its runs, such as {runs[0].folder}.")
    return max(runs, key=_merit).folder / "agent.safetensors"


def _merit(run: RunRecord) -> tuple[bool, float]:
    """The last evaluation; a run without one ranks behind, by its last training episodes."""
    evaluations, _ = read_jsonl(run.folder / "evaluations.jsonl")
    means = [row["mean"] for row in evaluations if row.get("mean") is not None]
    if means:  # where an agent shoots, that is the later of the two rows of an evaluation
        return True, float(means[-1])
    return False, float(np.mean(run.returns[-LAST_EPISODES:])) if len(run.returns) else -np.inf
