"""Inverted residual blocks. A block widens its features, narrows them again, and adds them to its
input. Each activation follows a batch normalisation."""

from collections.abc import Mapping

import torch
from torch import Tensor

from pac4sac.agents.batch_norm import as_rows, batch_norm, norm_parameters
from pac4sac.agents.nets import Parameter, Params, Trunk, linear_parameters

EXPANSION = 4  # width inside a block ÷ width outside
RMS_EPSILON = 1e-6


class ResidualTrunk(Trunk):
    """Compute the layers below a head: BatchNorm, Linear, `depth` residual blocks, RMSNorm.

    No layer has a bias. With the activation f, a block is x + f(BatchNorm(W₂ f(BatchNorm(W₁ x)))).

    Args:
        inputs: Sizes of the inputs by name.
        width: Units of a layer.
        depth: Number of layers or blocks.
        norm: Not used; layers are normalised by the batch.
        activation: "relu" or "silu".

    Example:
        >>> from pac4sac.agents.api import ResidualTrunk
        >>> ResidualTrunk({"s": 3}, width=64, depth=2, norm=False, activation="relu").inputs
        [3]
    """

    epsilon = 1e-5

    def __init__(
        self, inputs: Mapping[str, int], width: int, depth: int, norm: bool, activation: str
    ) -> None:
        super().__init__(inputs, width, 0, norm, activation)
        self.depth, size = depth, sum(self.inputs)
        self.parameters = norm_parameters("bn", size) | {"weight": _weight(size, width)}
        for i in range(depth):
            inside = EXPANSION * width
            self.parameters |= {f"{i}.0.weight": _weight(width, inside)}
            self.parameters |= norm_parameters(f"{i}.0.bn", inside)
            self.parameters |= {f"{i}.1.weight": _weight(inside, width)}
            self.parameters |= norm_parameters(f"{i}.1.bn", width)
        self.parameters["rms.scale"] = Parameter((1, width), centre=1.0)

    def layers(self, p: Params, *inputs: Tensor) -> Tensor:
        x = torch.bmm(batch_norm(p, "bn", as_rows(inputs), self.epsilon), p["weight"])
        for i in range(self.depth):
            inside = self._layer(p, f"{i}.0", x)
            x = x + self._layer(p, f"{i}.1", inside)
        return x * (x.square().mean(-1, keepdim=True) + RMS_EPSILON).rsqrt() * p["rms.scale"]

    def _layer(self, p: Params, name: str, x: Tensor) -> Tensor:
        x = torch.bmm(x, p[f"{name}.weight"])
        return self.activation(batch_norm(p, f"{name}.bn", x, self.epsilon))


def _weight(inputs: int, outputs: int) -> Parameter:
    return linear_parameters(inputs, outputs)["weight"]
