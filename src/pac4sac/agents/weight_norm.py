"""Weight normalisation. After each gradient step, the weights of each unit are divided by their
norm. The effective step of Adam then does not shrink as weights grow."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Agent, State
from pac4sac.agents.batch_norm import of_members
from pac4sac.agents.nets import Net

LEAST_LENGTH = 1e-12


def normalise_weights(net: Net, weights: Tensor, moving: Tensor, head: bool = True) -> None:
    """Scale the weights of each unit to length 1, in place.

    Args:
        net: Network with the layout of the weights.
        weights: Its weights [R, M, P].
        moving: Runs [R] whose weights change.
        head: Whether the last layer is normalised too; biases are never normalised.
    """
    chosen = of_members(moving, net.members)
    for name, w in net.views(weights).items():
        is_head = name.startswith("head.")
        if name.endswith("weight") and ((is_head and head) or name in net.trunk.parameters):
            length = torch.linalg.vector_norm(w, dim=1, keepdim=True)  # [G, 1, units]
            w.copy_(torch.where(chosen, w / length.clamp_min(LEAST_LENGTH), w))


def normalise_scales(net: Net, weights: Tensor, moving: Tensor) -> None:
    """Rescale each normalisation layer in place, so that its scale and shift together have length
    √width.

    Args:
        net: Network with the layout of the weights.
        weights: Its weights [R, M, P].
        moving: Runs [R] whose weights change.
    """
    chosen, views = of_members(moving, net.members), net.views(weights)
    for name in [name for name in net.trunk.parameters if name.endswith("scale")]:
        shift = views.get(name.removesuffix("scale") + "shift")
        parts = [views[name]] if shift is None else [views[name], shift]
        square = sum(part.square().sum(-1, keepdim=True) for part in parts)
        factor = math.sqrt(parts[0].shape[-1]) * torch.as_tensor(square).clamp_min(1e-8).rsqrt()
        for part in parts:
            part.copy_(torch.where(chosen, part * factor, part))


class WeightNormalised(Agent):
    """Normalise the weights of an agent's networks at the start and after each step.

    List it before an algorithm in the base classes.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import WeightNormalised, Sac
        >>> class MySac(WeightNormalised, Sac):
        ...     title = "SAC with other networks"
    """

    normalises_heads: ClassVar[bool] = True

    def normalise(self, name: str, weights: Tensor, moving: Tensor) -> None:
        """Normalise the weights [R, M, P] of a network, for the runs `moving` [R]."""
        normalise_weights(self.nets[name], weights, moving, self.normalises_heads)

    def initial_state(self, seeds: Sequence[int], device: torch.device) -> State:
        state = super().initial_state(seeds, device)
        for name in self.nets:
            self.normalise(name, state[name], state["alive"])
        for name in self.with_target:
            state[f"{name}/target"].copy_(state[name])
        return state

    def adam(
        self, state: State, name: str, gradient: Tensor, loss: Tensor, active: Tensor
    ) -> Tensor:
        norm = super().adam(state, name, gradient, loss, active)
        if name in self.nets:
            self.normalise(name, state[name], active & state["alive"])
        return norm
