"""Batch normalisation. A network uses the statistics of the batch in its own gradient step, and
running statistics otherwise. The running mean and variance are stored with the weights but have no
gradient. Copies, files and exports of a network therefore include them."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from pac4sac.agents.base import Agent, Loss, State
from pac4sac.agents.nets import Parameter, Params, Trunk

DECAY = 0.99  # decay of running statistics per gradient step
FIRST = {"scale": 1.0, "shift": 0.0, "mean": 0.0, "variance": 1.0}


class Learning(dict[str, Tensor]):
    """Hold the weights of a network that is normalised with the statistics of its batch."""

    def __init__(self, weights: Params) -> None:
        super().__init__(weights)
        # mean and variance of this batch, keyed by the name of the running statistics
        self.seen: dict[str, Tensor] = {}


def norm_parameters(layer: str, width: int) -> dict[str, Parameter]:
    """Return the weights and the running statistics of a normalisation."""
    return {f"{layer}.{name}": Parameter((1, width), centre=x) for name, x in FIRST.items()}


def moments(p: Learning, layer: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance [G, 1, width] of a batch, and record them."""
    mean, variance = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
    p.seen |= {f"{layer}.mean": mean.detach(), f"{layer}.variance": variance.detach()}
    return mean, variance


def batch_norm(p: Params, layer: str, x: Tensor, epsilon: float) -> Tensor:
    """Return (x − mean)/√(variance + ε), multiplied by a scale and shifted if the layer has a
    shift."""
    if isinstance(p, Learning):
        mean, variance = moments(p, layer, x)
    else:
        mean, variance = p[f"{layer}.mean"], p[f"{layer}.variance"]
    x = (x - mean) / (variance + epsilon).sqrt()
    scale, shift = p[f"{layer}.scale"], p.get(f"{layer}.shift")
    return x * scale if shift is None else torch.addcmul(shift, x, scale)


def as_rows(inputs: tuple[Tensor, ...]) -> Tensor:
    """Concatenate the inputs of a network; a single state may have many actions."""
    rows = max(x.shape[1] for x in inputs)
    return torch.cat([x.expand(-1, rows, -1) for x in inputs], -1)


class BatchNormTrunk(Trunk):
    """Compute the layers below a head: BatchNorm, then depth × (Linear, BatchNorm, activation).

    The linear layers have no bias.

    Args:
        inputs: Sizes of the inputs by name.
        width: Units of a layer.
        depth: Number of layers or blocks.
        norm: As in `Trunk`.
        activation: "relu" or "silu".

    Example:
        >>> from pac4sac.agents.api import BatchNormTrunk
        >>> BatchNormTrunk({"s": 3}, width=64, depth=2, norm=False, activation="relu").inputs
        [3]
    """

    epsilon = 1e-3

    def __init__(
        self, inputs: Mapping[str, int], width: int, depth: int, norm: bool, activation: str
    ) -> None:
        super().__init__(inputs, width, depth, norm, activation)
        for i in range(depth):
            del self.parameters[f"{i}.bias"]
        for layer, size in enumerate([sum(self.inputs), *[width] * depth]):
            self.parameters |= norm_parameters(f"bn{layer}", size)
        # The next normalisation would cancel a shift of the first one. The gradient of that shift
        # would be rounding noise, which Adam scales to full steps.
        del self.parameters["bn0.shift"]

    def _first(self, p: Params, inputs: tuple[Tensor, ...]) -> Tensor:
        return super()._first(p, (batch_norm(p, "bn0", as_rows(inputs), self.epsilon),))

    def _biased(self, p: Params, i: int, x: Tensor) -> Tensor:
        return batch_norm(p, f"bn{i + 1}", x, self.epsilon)


class BatchNormalised(Agent):
    """Make the networks of an agent use batch statistics in their own gradient steps.

    These steps also update the running statistics.

    List it before an algorithm in the base classes.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import BatchNormalised, Sac
        >>> class MySac(BatchNormalised, Sac):
        ...     title = "SAC with other networks"
    """

    def learning(self, state: State, name: str, weights: Params) -> Learning:
        """Return the weights with which a network takes its gradient step."""
        return Learning(weights)

    def descend(
        self, state: State, name: str, loss_of: Callable[[Params], Loss], active: Tensor
    ) -> dict[str, Tensor]:
        passes: list[Learning] = []

        def loss_in_learning(weights: Params) -> Loss:
            passes.append(self.learning(state, name, weights))
            return loss_of(passes[-1])

        log = super().descend(state, name, loss_in_learning, active)
        moving = of_members(self.due(state, name, active) & state["alive"], self.nets[name].members)
        running = self.params(state, name)
        for statistic, of_batch in [item for each in passes for item in each.seen.items()]:
            updated = running[statistic].lerp(of_batch, 1 - DECAY)
            running[statistic].copy_(torch.where(moving, updated, running[statistic]))
        return log


def of_members(runs: Tensor, members: int) -> Tensor:
    """Repeat values [R] for each member as [G, 1, 1]."""
    return runs.repeat_interleave(members).view(-1, 1, 1)
