"""Training from the weights of a trained agent."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from pac4sac.agents.base import Agent, State
from pac4sac.base.errors import UserError
from pac4sac.training.agent_file import adopt, agent_file, read_agent_file


def agent_checksum(source: str | Path) -> str:
    """Return a short checksum of an agent file, for names."""
    path = agent_file(source)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise UserError(
            f"The agent {path} cannot be read ({error.strerror}); give another file."
        ) from error


def start_from(source: str | Path, agent: Agent, state: State, expected: str | None = None) -> None:
    """Copy the networks of a trained agent to all runs and to their target networks.

    Args:
        source: Argument of `agent_file`.
        agent: The algorithm of the runs.
        state: Tensors of the runs.
        expected: Required checksum of the file; None for any.
    """
    if expected is not None and agent_checksum(source) != expected:
        raise UserError(
            f"{source} is not the agent {expected} from which this training started; restore that "
            "file, or start a new experiment."
        )
    _, tensors = read_agent_file(agent_file(source))
    adopt(state, _starting_tensors(source, agent, tensors), str(source))
    for name in agent.with_target:
        state[f"{name}/target"].copy_(state[name])


def _starting_tensors(
    source: str | Path, agent: Agent, tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the tensors of a trained agent with which training starts.

    The critic predicts on the scale of its rewards, so this scale is copied with the networks.
    """
    networks = {name: tensor for name, tensor in tensors.items() if name in agent.nets}
    scale = {name: tensor for name, tensor in tensors.items() if name.startswith("rewards/")}
    if bool(scale) != agent.config.normalise_rewards:
        needed = str(bool(scale)).lower()
        raise UserError(
            f"The agent in {source} was trained with normalise_rewards={needed}; use the same "
            "value here."
        )
    if missing := sorted(set(agent.nets) - set(networks)):
        raise UserError(
            f"The agent in {source} has no {' or '.join(missing)}; start from an agent of the "
            "same algorithm."
        )
    return networks | scale
