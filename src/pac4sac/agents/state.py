"""What the functions of an agent take and give: the state of a cohort, a reading of the tape,
per-run settings."""

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
    """Per-run settings as tensors of shape [R], read as attributes.

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
                f"The agent has no per-run setting {name!r}; declare it by per_run(…) in its "
                "Config, and name that "
                "Config in the class of the agent (a structural setting is read as "
                f"self.config.{name})."
            )
        return self._state[f"hyper/{name}"]


class Target(NamedTuple):
    """The target of the critic, as `bellman_target` returns it.

    Attributes:
        y: Value that the critic regresses [R, B].
        a2: Next action that it was computed with [R, B, da].

    Example:
        >>> import torch
        >>> from pac4sac.agents.api import Target
        >>> Target(torch.zeros(2, 32), torch.zeros(2, 32, 1)).y.shape
        torch.Size([2, 32])
    """

    y: Tensor  # [R, B], what the critic regresses
    a2: Tensor  # [R, B, da], the next action behind it


def count_up(counts: Tensor, chosen: Tensor) -> Tensor:
    """Add one where chosen, in place. Adding the truth values instead has met a fault of Triton's
    compiler, which puts their conversion behind its use."""
    return counts.copy_(torch.where(chosen, counts + 1, counts))
