"""Networks of a whole cohort. The weights of a network are one tensor [R, M, P]: R runs, M members of an ensemble,
P numbers each. Layers see them as views with one leading axis G = R·M, so that a layer of all runs is one batched
product, and an optimiser step or a Polyak step of all runs is a handful of operations on one tensor.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pac4sac.tape import initial_uniforms

Params = Mapping[str, Tensor]  # name -> [G, ...]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "relu": F.relu}
LOG_2 = math.log(2.0)


@dataclass(frozen=True)
class Parameter:
    shape: tuple[int, ...]
    bound: float = 0.0  # initial value: uniform in ±bound …
    centre: float = 0.0  # … around this


def linear_parameters(inputs: Sequence[tuple[str, int]], outputs: int) -> dict[str, Parameter]:
    """PyTorch's default initialisation: weights and biases uniform in ±1/√fan_in. Inputs that arrive apart (state and
    action) have weights apart, so that neither is copied and a state shared by many actions is multiplied once."""
    bound = 1 / math.sqrt(sum(size for _, size in inputs))
    weights = {f"weight.{name}" if name else "weight": Parameter((size, outputs), bound) for name, size in inputs}
    return weights | {"bias": Parameter((1, outputs), bound)}


class Trunk:
    """depth × (Linear, LayerNorm, activation): the paper's architecture table."""

    def __init__(self, inputs: Mapping[str, int], width: int, depth: int, norm: bool, activation: str) -> None:
        self.inputs = tuple(inputs)
        self.width, self.depth, self.norm = width, depth, norm
        self.activation = ACTIVATIONS[activation]
        self.parameters: dict[str, Parameter] = {}
        for i in range(depth):
            layer = linear_parameters(tuple(inputs.items()) if i == 0 else (("", width),), width)
            if norm:
                layer |= {"scale": Parameter((1, width), centre=1.0), "shift": Parameter((1, width))}
            self.parameters |= {f"{i}.{name}": parameter for name, parameter in layer.items()}

    def __call__(self, p: Params, *inputs: Tensor) -> Tensor:
        x = p["0.bias"]
        for name, value in zip(self.inputs, inputs, strict=True):
            x = x + value @ p[f"0.weight.{name}"]  # a state [G, 1, ds] broadcasts over its actions [G, S, da]
        x = self._after(p, 0, x)
        for i in range(1, self.depth):
            x = self._after(p, i, torch.baddbmm(p[f"{i}.bias"], x, p[f"{i}.weight"]))
        return x  # φ: [G, B, width]

    def _after(self, p: Params, i: int, x: Tensor) -> Tensor:
        if self.norm:
            x = torch.addcmul(p[f"{i}.shift"], F.layer_norm(x, (self.width,)), p[f"{i}.scale"])
        return self.activation(x)


class Net:
    """A trunk, a head and a number of members, with the layout of their weights in one tensor."""

    def __init__(self, trunk: Trunk, head: Mapping[str, Parameter], members: int = 1) -> None:
        self.trunk, self.members = trunk, members
        self.parameters = trunk.parameters | {f"head.{name}": parameter for name, parameter in head.items()}
        self.sizes = [math.prod(parameter.shape) for parameter in self.parameters.values()]

    def initial(self, seeds: Sequence[int], stream: str, device: torch.device) -> Tensor:
        """[R, M, P], each run from its own tape."""
        count = sum(self.sizes)
        u = initial_uniforms(seeds, stream, self.members * count, device).view(len(seeds), self.members, count)
        parts = [
            parameter.centre + parameter.bound * (2 * part - 1)
            for parameter, part in zip(self.parameters.values(), torch.split(u, self.sizes, -1), strict=True)
        ]
        return torch.cat(parts, -1)

    def views(self, weights: Tensor) -> dict[str, Tensor]:
        """The weights [R, M, P] layer by layer, {name: [G, ...]}, without a copy."""
        parts = torch.split(weights.view(-1, weights.shape[-1]), self.sizes, -1)
        return {
            name: part.view(-1, *parameter.shape)
            for (name, parameter), part in zip(self.parameters.items(), parts, strict=True)
        }

    def flatten(self, views: Sequence[Tensor], like: Tensor) -> Tensor:
        """The inverse of `views`, for gradients."""
        return torch.cat([view.reshape(-1, size) for view, size in zip(views, self.sizes, strict=True)], -1).view_as(
            like
        )

    def features(self, p: Params, *inputs: Tensor) -> Tensor:
        """φ [G, B, width] of inputs [R, B, ·], the same for all members of a run."""
        return self.trunk(p, *(x.repeat_interleave(self.members, 0) if self.members > 1 else x for x in inputs))

    def per_member(self, x: Tensor) -> Tensor:
        """[G, ...] -> [R, M, ...]"""
        return x.view(-1, self.members, *x.shape[1:])


def linear_head(p: Params, phi: Tensor) -> Tensor:
    return torch.baddbmm(p["head.bias"], phi, p["head.weight"])  # [G, B, outputs]


class Critic(Net):
    """Q(s, a) with a plain linear head (v is None), or with the Gaussian head of the paper, Section 3.2:
    weights w_i ~ N(m_i, v_i) and a deterministic bias, hence Q | s, a ~ N(m_p, v_p) in closed form."""

    def __init__(self, trunk: Trunk, members: int = 1, gaussian: bool = False, log_variance: float = 0.0) -> None:
        head = linear_parameters((("", trunk.width),), 1)
        if gaussian:
            head["log_variance"] = Parameter((trunk.width, 1), centre=log_variance)
        super().__init__(trunk, head, members)
        self.gaussian = gaussian

    def __call__(self, p: Params, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """m_p and v_p, each [R, M, B]."""
        return self.head(p, self.features(p, s, a))

    def head(self, p: Params, phi: Tensor) -> tuple[Tensor, Tensor | None]:
        m = linear_head(p, phi).squeeze(-1)  # m_p = Σ m_i φ_i + b
        if not self.gaussian:
            return self.per_member(m), None
        v = torch.bmm(phi.square(), p["head.log_variance"].exp()).squeeze(-1)  # v_p = Σ v_i φ_i²
        return self.per_member(m), self.per_member(v)

    def posterior(self, p: Params) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the head's weights, each [R, M, K]."""
        return self.per_member(p["head.weight"].squeeze(-1)), self.per_member(p["head.log_variance"].squeeze(-1))

    def sampled_weights(self, p: Params, noise: Tensor) -> Tensor:
        """A draw of the head's weights, [G, K, 1], from noise [R, M, K]."""
        m, log_v = self.posterior(p)
        return (m + noise * (0.5 * log_v).exp()).view(-1, noise.shape[-1], 1)


class DeterministicActor(Net):
    def __init__(self, trunk: Trunk, da: int) -> None:
        super().__init__(trunk, linear_parameters((("", trunk.width),), da))

    def __call__(self, p: Params, s: Tensor) -> Tensor:
        return torch.tanh(linear_head(p, self.trunk(p, s)))  # [R, B, da]


class GaussianActor(Net):
    """Mean and log-variance of the action before the tanh."""

    log_variance_range = (-10.0, 2.0)

    def __init__(self, trunk: Trunk, da: int) -> None:
        super().__init__(trunk, linear_parameters((("", trunk.width),), 2 * da))

    def __call__(self, p: Params, s: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, each [R, B, da]."""
        mean, log_variance = linear_head(p, self.trunk(p, s)).chunk(2, -1)
        return mean, (0.5 * log_variance.clamp(*self.log_variance_range)).exp()


def squashed_sample(mean: Tensor, std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Action tanh(u), u = mean + std·noise, and its log-density. The density is taken from u, never from atanh of the
    action, which is infinite for a saturated one."""
    u = mean + std * noise
    gaussian = -0.5 * noise.square() - std.log() - 0.5 * math.log(2 * math.pi)
    log_slope = 2 * (LOG_2 - u - F.softplus(-2 * u))  # log(1 - tanh² u), stable for large |u|
    return torch.tanh(u), (gaussian - log_slope).sum(-1)
