"""Trainings that have not come to their end: what a certificate says of their agents, and of those not saved yet."""

from pathlib import Path

from pac4sac.base.errors import UserError
from pac4sac.runs.reading import read_run
from pac4sac.training.agent_file import choose_agent


def saved_agent(path: str | Path) -> Path:
    """The agent file that a path names."""
    path = Path(path)
    if not (path.is_file() or any(path.glob("agent.safetensors")) or any(path.glob("runs/*/agent.safetensors"))):
        for experiment in (path, path.resolve().parent.parent):
            if (experiment / "experiment.json").is_file():
                raise UserError(
                    f"The training of {path} is unfinished and has saved no agent yet; "
                    f"let it run, or go on with `pac4sac resume {experiment}`."
                )
    return choose_agent(path)


def unfinished(agent_file: Path) -> str | None:
    """Why the training ended early, or that it goes on; None where it is finished or nothing is known of it."""
    try:
        run = read_run(agent_file.parent)
    except UserError:
        return None
    if run.status == "finished":
        return None
    why = ": ".join(str(part) for part in (run.status, run.status_detail) if part)
    return f"The training of this agent is unfinished ({why})."
