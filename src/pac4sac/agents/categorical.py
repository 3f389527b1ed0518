"""Categorical critics (Bellemare et al. 2017). A critic predicts a distribution of the return over
B values, the bins, and minimises the cross-entropy to a target distribution."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pac4sac.agents.nets import Critic, Net, Parameter, Params, Trunk, linear_head
from pac4sac.agents.nets import linear_parameters as linear
from pac4sac.agents.sac import SacConfig
from pac4sac.agents.settings import ANY, AgentConfig, Interval, new_default, structural
from pac4sac.base.errors import UserError


@dataclass(frozen=True, kw_only=True)
class CategoricalConfig(SacConfig):
    """Hold the settings of an agent with a categorical critic.

    Rewards are normalised by default, so returns are within the range of the bins.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import CategoricalConfig
        >>> CategoricalConfig(batch=64).batch
        64
    """

    bins: int = structural(101, Interval(2, 1000), "B: number of bins of the critic's distribution")
    value_min: float = structural(-5.0, ANY, "value of the first bin")
    value_max: float = structural(5.0, ANY, "value of the last bin")
    normalise_rewards: bool = new_default(AgentConfig, "normalise_rewards", True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_min >= self.value_max:
            raise UserError(
                f"value_min must be below value_max ({self.value_max:g}), not {self.value_min:g}."
            )


class CategoricalTarget(NamedTuple):
    """Hold the distribution that a categorical critic learns, and its next action."""

    probabilities: Tensor  # [R, B, bins]
    outside: Tensor  # [R], share of the probability outside the range of the bins
    a2: Tensor  # [R, B, da]


class CategoricalCritic(Critic):
    """Compute a critic Z(s, a): probabilities p_i(s, a) of equally spaced values z_1, …, z_B.

    Args:
        trunk: Layers below the head.
        members: Number of critics M.
        bins: Number of values B.
        value_min: Smallest value.
        value_max: Largest value.

    Example:
        >>> from pac4sac.agents.api import CategoricalCritic, Trunk
        >>> trunk = Trunk({"s": 3, "a": 1}, width=64, depth=2, norm=False, activation="relu")
        >>> CategoricalCritic(trunk, members=2, bins=101, value_min=-5.0, value_max=5.0).members
        2
    """

    def __init__(
        self, trunk: Trunk, members: int, bins: int, value_min: float, value_max: float
    ) -> None:
        head = {"weight": linear(trunk.width, bins)["weight"], "bias": Parameter((1, bins))}
        Net.__init__(self, trunk, head, members)
        self.gaussian = False
        self.bins, self.value_min, self.value_max = bins, value_min, value_max
        self.distance = (value_max - value_min) / (bins - 1)

    def values(self, like: Tensor) -> Tensor:
        """Return z_1, …, z_B, [bins]."""
        return self.value_min + self.distance * self.places(like)

    def places(self, like: Tensor) -> Tensor:
        """Return 0, …, B − 1, [bins]."""
        return torch.arange(self.bins, device=like.device, dtype=like.dtype)

    def log_probabilities(self, p: Params, s: Tensor, a: Tensor) -> Tensor:
        """Return log p_i(s, a), [R, M, B, bins]."""
        return self.per_member(linear_head(p, self.features(p, s, a)).log_softmax(-1))

    def mean(self, log_p: Tensor) -> Tensor:
        """Return Q = Σ_i p_i z_i, [...]."""
        return (log_p.exp() * self.values(log_p)).sum(-1)

    def __call__(self, p: Params, s: Tensor, a: Tensor) -> tuple[Tensor, None]:
        """Return the mean return of each critic, [R, M, B]."""
        return self.mean(self.log_probabilities(p, s, a)), None

    def project(self, y: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Project a distribution of the return, with values y and probabilities p, onto the bins.
        Return the projection and the share of p outside the range.

        The probability of a value is split between its two neighbouring bins; the closer bin gets
        more. The probability of a value outside the range goes to the first or last bin.

        Args:
            y: Values of the return [R, B, K].
            p: Their probabilities [R, B, K].

        Returns:
            Probabilities of the bins [R, B, bins], and the share outside [R, B].
        """
        beyond = (y < self.value_min) | (y > self.value_max)
        # Positions in units of bins: distances between them are exact, so no probability is lost.
        place = ((y - self.value_min) / self.distance).clamp(0, self.bins - 1)
        # [R, B, K, bins] is by far the largest tensor, so few operations read it
        nearness = 1 - (place.unsqueeze(-1) - self.places(y)).abs()
        projected = (p.unsqueeze(-1) * nearness.clamp_min(0)).sum(-2)
        return projected, torch.where(beyond, p, 0.0).sum(-1)


def cross_entropy(p: Tensor, log_q: Tensor) -> Tensor:
    """Return −Σ_i p_i log q_i over the last axis."""
    return -(p * log_q).sum(-1)
