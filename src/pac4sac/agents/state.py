"""Types of the arguments and results of an agent's functions: the state of a cohort, the random
numbers of the tape, and per-run settings."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pac4sac.base.errors import UserError

State = dict[str, Tensor]
"""All that a cohort is, by name: weights [R, M, P], target networks, moments, per-run settings,
counters."""
Draw = Mapping[str, Tensor]
"""One reading of the tape: {stream: [R, ...]}."""
Loss = tuple[Tensor, dict[str, Tensor]]
"""A loss of each run, [R], and what to log."""


class Hyper:
    """Read per-run settings as attributes, which are tensors of shape [R].

    Args:
        state: State of the cohort.

    Raises:
        UserError: If the agent has no per-run setting of that name.

    Example:
        >>> import torch
        >>> from pac4sac.agents.api import Hyper
        >>> Hyper({"hyper/gamma": torch.tensor([0.9, 0.5])}).gamma
        tensor([0.9000, 0.5000])
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Tensor:
        if f"hyper/{name}" not in self._state:
            raise UserError(
                f"The agent has no per-run setting {name!r}; declare it with per_run(…) in its "
                "Config, and assign this Config in the class of the agent. Read a structural "
                f"setting as self.config.{name}."
            )
        return self._state[f"hyper/{name}"]


class Target(NamedTuple):
    """Hold the target of the critic, which `bellman_target` returns.

    Attributes:
        y: Value that the critic regresses on [R, B].
        a2: Next action that was used to compute it [R, B, da].

    Example:
        >>> import torch
        >>> from pac4sac.agents.api import Target
        >>> Target(torch.zeros(2, 32), torch.zeros(2, 32, 1)).y.shape
        torch.Size([2, 32])
    """

    y: Tensor  # [R, B], value that the critic regresses on
    a2: Tensor  # [R, B, da], next action of the target


def count_up(counts: Tensor, chosen: Tensor) -> Tensor:
    """Add one to the chosen elements, in place. Adding the booleans instead triggers a bug in
    Triton's compiler, which moves their conversion after its use."""
    return counts.copy_(torch.where(chosen, counts + 1, counts))
