"""Networks of a whole cohort. The weights of a network are one tensor [R, M, P], with P numbers for
each of M ensemble members of R runs. Layers see the weights as views with one leading axis G = R·M.
A layer of all runs is then one batched matrix product. An optimiser step or a Polyak step of all
runs takes a few operations on one tensor."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pac4sac.agents.tape import initial_uniforms

Params = Mapping[str, Tensor]
"""The weights of a network by layer: {name: [G, ...]}, with G = R·M."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "relu": F.relu}
LOG_2 = math.log(2.0)
OBSERVED = "observed."  # prefix of statistics of observations
# largest absolute value of a standardised observation
LEAST_VARIANCE, FARTHEST = (1e-8, 10.0)
# numbers: on a GPU, matrix products read weights much faster if they are aligned to 16 bytes
ALIGNMENT = 4


@dataclass(frozen=True)
class Parameter:
    """Hold the shape of weights and their initial values, uniform in `centre` ± `bound`.

    Attributes:
        shape: Shape for one run and member.
        bound: Largest distance of an initial value from `centre`.
        centre: Middle of the initial values.

    Example:
        >>> from pac4sac.agents.api import Parameter
        >>> Parameter((1, 256), centre=1.0).shape
        (1, 256)
    """

    shape: tuple[int, ...]
    bound: float = 0.0  # initial value: uniform in ±bound …
    centre: float = 0.0  # … around this


def linear_parameters(inputs: int, outputs: int) -> dict[str, Parameter]:
    """Return the weights and the bias of a linear layer, initialised as PyTorch does.

    Args:
        inputs: Number of inputs.
        outputs: Number of outputs.

    Returns:
        The parameters "weight" and "bias", uniform in ±1/√inputs.

    Example:
        >>> from pac4sac.agents.api import linear_parameters
        >>> linear_parameters(4, 2)["weight"].shape
        (4, 2)
    """
    bound = 1 / math.sqrt(inputs)
    return {"weight": Parameter((inputs, outputs), bound), "bias": Parameter((1, outputs), bound)}


class Trunk:
    """Compute the layers below a head: depth × (Linear, LayerNorm, activation).

    Args:
        inputs: Sizes of the inputs by name, such as {"s": 3, "a": 1}.
        width: Units of a layer.
        depth: Number of layers.
        norm: Whether layers are normalised.
        activation: "relu" or "silu".

    Example:
        >>> from pac4sac.agents.api import Trunk
        >>> Trunk({"s": 3, "a": 1}, width=64, depth=2, norm=False, activation="relu").inputs
        [3, 1]
    """

    def __init__(
        self, inputs: Mapping[str, int], width: int, depth: int, norm: bool, activation: str
    ) -> None:
        self.inputs = list(inputs.values())
        self.width, self.depth, self.norm = width, depth, norm
        self.activation = ACTIVATIONS[activation]
        self.parameters: dict[str, Parameter] = {}
        for i in range(depth):
            layer = linear_parameters(sum(self.inputs) if i == 0 else width, width)
            if norm:
                layer |= {
                    "scale": Parameter((1, width), centre=1.0),
                    "shift": Parameter((1, width)),
                }
            self.parameters |= {f"{i}.{name}": parameter for name, parameter in layer.items()}

    def normalise_observations(self) -> None:
        """Standardise observations, which are the first input, with a running mean and std. Both
        are stored with the weights but have no gradient. Copies, files and exports of a network
        therefore include them."""
        ds = self.inputs[0]
        first = {
            "count": Parameter((1, 1)),
            "mean": Parameter((1, ds)),
            "variance": Parameter((1, ds), centre=1.0),
        }
        self.parameters |= {OBSERVED + name: parameter for name, parameter in first.items()}

    def __call__(self, p: Params, *inputs: Tensor) -> Tensor:
        if OBSERVED + "mean" in p:
            mean, variance = (p[OBSERVED + part].detach() for part in ("mean", "variance"))
            standard = (inputs[0] - mean) * (variance + LEAST_VARIANCE).rsqrt()
            inputs = (standard.clamp(-FARTHEST, FARTHEST), *inputs[1:])
        return self.layers(p, *inputs)

    def layers(self, p: Params, *inputs: Tensor) -> Tensor:
        """Return the features φ [G, B, width] of inputs."""
        x = self._after(p, 0, self._first(p, inputs))
        for i in range(1, self.depth):
            x = self._after(p, i, torch.bmm(x, p[f"{i}.weight"]))
        return x

    def _first(self, p: Params, inputs: tuple[Tensor, ...]) -> Tensor:
        weight = p["0.weight"]
        if all(x.shape[1] == inputs[0].shape[1] for x in inputs[1:]):
            return torch.bmm(torch.cat(inputs, -1), weight)
        # A state [G, 1, ds] that is shared by many actions [G, S, da] is multiplied once.
        state, *rest = (
            torch.bmm(x, w)
            for x, w in zip(inputs, torch.split(weight, self.inputs, 1), strict=True)
        )
        return sum(rest, state)

    def _biased(self, p: Params, i: int, x: Tensor) -> Tensor:
        # separate from the matrix product, because adding it there would need a copy
        return x + p[f"{i}.bias"]

    def _after(self, p: Params, i: int, x: Tensor) -> Tensor:
        x = self._biased(p, i, x)
        if self.norm:
            x = torch.addcmul(p[f"{i}.shift"], F.layer_norm(x, (self.width,)), p[f"{i}.scale"])
        return self.activation(x)


class Net:
    """Define a network: trunk, head and members, with all weights in one tensor [R, M, P].

    Args:
        trunk: Layers below the head.
        head: Parameters of the head, by name.
        members: Number of members M.

    Example:
        >>> from pac4sac.agents.api import Net, Trunk, linear_parameters
        >>> trunk = Trunk({"s": 3}, width=64, depth=2, norm=False, activation="relu")
        >>> Net(trunk, linear_parameters(64, 1)).members
        1
    """

    def __init__(self, trunk: Trunk, head: Mapping[str, Parameter], members: int = 1) -> None:
        self.trunk, self.members = trunk, members
        self.lay_out(
            trunk.parameters | {f"head.{name}": parameter for name, parameter in head.items()}
        )

    def lay_out(self, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = dict(parameters)
        sizes = [math.prod(parameter.shape) for parameter in self.parameters.values()]
        self.padding = [-size % ALIGNMENT for size in sizes]
        self.sizes = [size + padding for size, padding in zip(sizes, self.padding, strict=True)]

    def initial(self, seeds: Sequence[int], stream: str, device: torch.device) -> Tensor:
        """Return the initial weights [R, M, P]; each run draws them from its own tape."""
        count = sum(self.sizes)
        u = initial_uniforms(seeds, stream, self.members * count, device)
        weights = torch.zeros(len(seeds), self.members, count, device=device)
        places = self.views(u.view_as(weights))
        for name, view in self.views(weights).items():
            parameter = self.parameters[name]
            view.copy_(parameter.centre + parameter.bound * (2 * places[name] - 1))
        return weights

    def views(self, weights: Tensor) -> dict[str, Tensor]:
        """Return views of the weights [R, M, P] by layer, {name: [G, ...]}, without a copy."""
        parts = torch.split(weights.view(-1, weights.shape[-1]), self.sizes, -1)
        return {
            name: part[:, : size - padding].view(-1, *self.parameters[name].shape)
            for name, part, size, padding in zip(
                self.parameters, parts, self.sizes, self.padding, strict=True
            )
        }

    def flatten(self, views: Sequence[Tensor], like: Tensor) -> Tensor:
        """Join the gradients of all layers to one tensor; the inverse of `views`."""
        rows = []
        for view, padding in zip(views, self.padding, strict=True):
            rows += [view.flatten(1)] + ([view.new_zeros(len(view), padding)] if padding else [])
        return torch.cat(rows, -1).view_as(like)

    def features(self, p: Params, *inputs: Tensor) -> Tensor:
        """Return φ [G, B, width] for inputs [R, B, ·]; all members of a run get the same inputs."""
        return self.trunk(p, *self.of_members(*inputs))

    def of_members(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Repeat tensors [R, ...] for each member: [G, ...]."""
        return (
            tuple(x.repeat_interleave(self.members, 0) for x in inputs)
            if self.members > 1
            else inputs
        )

    def per_member(self, x: Tensor) -> Tensor:
        """Split the first axis of [G, ...] into runs and members: [R, M, ...]."""
        return x.view(-1, self.members, *x.shape[1:])


def linear_head(p: Params, phi: Tensor) -> Tensor:
    """Apply the last layer of a network to the features below it.

    Args:
        p: Weights by layer.
        phi: Features [G, B, K].

    Returns:
        Outputs [G, B, outputs].

    Example:
        >>> import torch
        >>> from pac4sac.agents.api import linear_head
        >>> p = {"head.weight": torch.ones(1, 4, 2), "head.bias": torch.zeros(1, 1, 2)}
        >>> linear_head(p, torch.ones(1, 8, 4)).shape
        torch.Size([1, 8, 2])
    """
    return torch.bmm(phi, p["head.weight"]) + p["head.bias"]  # [G, B, outputs]


def weighted_sum(phi: Tensor, weights: Tensor) -> Tensor:
    """Return Σ_i w_i φ_i, [G, B], for weights [G, K, 1]. A sum is fused with the previous layer; a
    matrix product is not."""
    return (phi * weights.transpose(1, 2)).sum(-1)


STD_FLOOR = 1e-6  # floor of √v_p, whose gradient is infinite at 0


def standard_deviation(v: Tensor) -> Tensor:
    """Return √v, with a floor near 0, where the gradient is infinite.

    Args:
        v: Variances.

    Returns:
        Standard deviations, of the same shape.

    Example:
        >>> import torch
        >>> from pac4sac.agents.api import standard_deviation
        >>> standard_deviation(torch.tensor([4.0]))
        tensor([2.])
    """
    return v.clamp_min(STD_FLOOR**2).sqrt()


class Critic(Net):
    """Compute a critic Q(s, a) with a linear head, or with the Gaussian head of Section 3.2.

    The Gaussian head has weights w_i ~ N(m_i, v_i) and a deterministic bias, so Q | s, a ~ N(m_p,
    v_p) in closed form.

    Args:
        trunk: Layers below the head.
        members: Number of critics M.
        gaussian: Whether the head is Gaussian.
        log_variance: Initial log-variance of the weights of a Gaussian head.

    Example:
        >>> from pac4sac.agents.api import Critic, Trunk
        >>> trunk = Trunk({"s": 3, "a": 1}, width=64, depth=2, norm=False, activation="relu")
        >>> Critic(trunk, members=2).members
        2
    """

    def __init__(
        self, trunk: Trunk, members: int = 1, gaussian: bool = False, log_variance: float = 0.0
    ) -> None:
        head = linear_parameters(trunk.width, 1)
        if gaussian:
            head["log_variance"] = Parameter((trunk.width, 1), centre=log_variance)
        super().__init__(trunk, head, members)
        self.gaussian = gaussian

    def __call__(self, p: Params, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return m_p and v_p, each [R, M, B]; v_p is None for a linear head."""
        return self.of_own_pairs(p, *self.of_members(s, a))

    def of_own_pairs(self, p: Params, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return m_p and v_p for pairs [G, B, ·]; each member has its own pairs."""
        return self.head(p, self.trunk(p, s, a))

    def head(self, p: Params, phi: Tensor) -> tuple[Tensor, Tensor | None]:
        m = weighted_sum(phi, p["head.weight"]) + p["head.bias"].squeeze(-1)  # m_p = Σ m_i φ_i + b
        if not self.gaussian:
            return self.per_member(m), None
        v = weighted_sum(phi.square(), p["head.log_variance"].exp())  # v_p = Σ v_i φ_i²
        return self.per_member(m), self.per_member(v)

    def posterior(self, p: Params) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of the head's weights, each [R, M, K]."""
        return self.per_member(p["head.weight"].squeeze(-1)), self.per_member(
            p["head.log_variance"].squeeze(-1)
        )

    def sampled_weights(self, p: Params, noise: Tensor) -> Tensor:
        """Return a sample of the head's weights, [G, K, 1], from noise [R, M, K]."""
        m, log_v = self.posterior(p)
        return (m + noise * (0.5 * log_v).exp()).view(-1, noise.shape[-1], 1)

    def sampled(self, p: Params, s: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        """Return Q [R, M, B, S] for S samples of the head's weights, from noise [R, S, M, K]. Each
        sample is used for all pairs."""
        # [G, K, S]
        weights = torch.cat([self.sampled_weights(p, each) for each in noise.unbind(1)], -1)
        return self.per_member(torch.bmm(self.features(p, s, a), weights) + p["head.bias"])


class DeterministicActor(Net):
    """Compute an actor that returns one action in [−1, 1] for each state.

    Args:
        trunk: Layers below the head.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import DeterministicActor, Trunk
        >>> trunk = Trunk({"s": 3}, width=64, depth=2, norm=False, activation="relu")
        >>> DeterministicActor(trunk, da=1).members
        1
    """

    def __init__(self, trunk: Trunk, da: int) -> None:
        super().__init__(trunk, linear_parameters(trunk.width, da))

    def __call__(self, p: Params, s: Tensor) -> Tensor:
        return torch.tanh(linear_head(p, self.trunk(p, s)))  # [R, B, da]


class GaussianActor(Net):
    """Compute an actor that returns mean and standard deviation of the action before the tanh.

    Args:
        trunk: Layers below the head.
        da: Number of action dimensions.
        log_std_max: Largest log standard deviation.

    Example:
        >>> from pac4sac.agents.api import GaussianActor, Trunk
        >>> trunk = Trunk({"s": 3}, width=64, depth=2, norm=False, activation="relu")
        >>> GaussianActor(trunk, da=1, log_std_max=2.0).members
        1
    """

    log_variance_min = -10.0

    def __init__(self, trunk: Trunk, da: int, log_std_max: float = 1.0) -> None:
        super().__init__(trunk, linear_parameters(trunk.width, 2 * da))
        self.log_std_max = log_std_max

    def __call__(self, p: Params, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation, each [R, B, da]."""
        mean, log_variance = linear_head(p, self.trunk(p, s)).chunk(2, -1)
        return mean, self.std(log_variance)

    def std(self, log_variance: Tensor) -> Tensor:
        """Return the standard deviation, clipped to its limits."""
        return (0.5 * log_variance.clamp(self.log_variance_min, 2 * self.log_std_max)).exp()


def squashed_sample(mean: Tensor, std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the action tanh(u) with u = mean + std · noise, and its log-density.

    The density is computed from u, because atanh of a saturated action is infinite.

    Args:
        mean: Mean before the tanh [..., da].
        std: Standard deviation before the tanh [..., da].
        noise: Standard normal numbers [..., da].

    Returns:
        Actions [..., da] and log-densities [...].

    Example:
        >>> import torch
        >>> from pac4sac.agents.api import squashed_sample
        >>> action, log_density = squashed_sample(torch.zeros(2), torch.ones(2), torch.zeros(2))
        >>> action
        tensor([0., 0.])
    """
    u = mean + std * noise
    gaussian = -0.5 * noise.square() - std.log() - 0.5 * math.log(2 * math.pi)
    log_slope = 2 * (LOG_2 - u - F.softplus(-2 * u))  # log(1 - tanh² u), stable for large |u|
    return torch.tanh(u), (gaussian - log_slope).sum(-1)
