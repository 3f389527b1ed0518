"""Truncated quantile critics (Kuznetsov et al. 2020): SAC with N critics that each predict M
quantiles of the return. The target is the mixture of all quantiles without the largest atoms,
because these cause overestimation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.nets import Critic, Net, Params, Trunk, linear_head, linear_parameters
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import (
    AT_LEAST_ONE,
    NON_NEGATIVE,
    REPRODUCTION_AUTO,
    AgentConfig,
    Interval,
    new_default,
    per_run,
    structural,
)
from pac4sac.base.errors import UserError


@dataclass(frozen=True, kw_only=True)
class TqcConfig(SacConfig):
    """Hold the settings of TQC.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import TqcConfig
        >>> TqcConfig(dropped=5).dropped
        5
    """

    critics: int = structural(5, AT_LEAST_ONE, "N: number of critics")
    quantiles: int = structural(
        25, Interval(1, 1000), "M: number of quantiles of the return that each critic predicts"
    )
    dropped: int = per_run(
        2, NON_NEGATIVE, "d: number of largest atoms per critic that the target drops"
    )
    warmup: int = new_default(AgentConfig, "warmup", 256)
    critic_width: int = new_default(AgentConfig, "critic_width", 512)
    critic_depth: int = new_default(AgentConfig, "critic_depth", 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropped >= self.quantiles:
            raise UserError(
                f"dropped must be below the number of quantiles ({self.quantiles}), not "
                f"{self.dropped}."
            )


class QuantileCritic(Critic):
    """Compute Z(s, a), which consists of atoms θ_m(s, a) of equal weight at the quantiles τ_m = (2m
    − 1)/2M."""

    def __init__(self, trunk: Trunk, members: int, quantiles: int) -> None:
        Net.__init__(self, trunk, linear_parameters(trunk.width, quantiles), members)
        self.gaussian = False

    def atoms(self, p: Params, s: Tensor, a: Tensor) -> Tensor:
        return self.per_member(linear_head(p, self.features(p, s, a)))  # [R, N, B, M]

    def __call__(self, p: Params, s: Tensor, a: Tensor) -> tuple[Tensor, None]:
        """Return the mean return of each critic, [R, N, B]."""
        return self.atoms(p, s, a).mean(-1), None


class Tqc(Sac):
    """Define TQC: SAC with quantile critics whose targets drop the largest quantiles.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import Tqc, TqcConfig
        >>> Tqc([TqcConfig()], ds=3, da=1).runs
        1
    """

    title = "Truncated quantile critics"
    Config = TqcConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "reproduction": {**REPRODUCTION_AUTO, "critic_width": 0, "critic_depth": 0},
    }
    updates_of_task: ClassVar[Mapping[str, int]] = {"reproduction": 1}
    config: TqcConfig
    critic: QuantileCritic

    def build_critic(self) -> QuantileCritic:
        return QuantileCritic(
            self.trunk(s=self.ds, a=self.da), self.config.critics, self.config.quantiles
        )

    # Section 3.2: the N·M atoms of all target critics are pooled and sorted, z_(1) ≤ z_(2) ≤ …; the
    # smallest kN of them, k = M − d, form the distribution of the target, y_i = r + γ (z_(i)(s′,
    # a′) − α log π(a′|s′)).

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Target:
        a2, log_pi = self.next_action(state, batch.s2, draw)
        atoms = self.critic.atoms(self.params(state, "critic/target"), batch.s2, a2)  # [R, N, B, M]
        z = atoms.transpose(1, 2).flatten(2).sort(-1).values  # [R, B, NM]
        soft_value = z - (self.alpha(state)[:, None] * log_pi).unsqueeze(-1)
        discount = Hyper(state).gamma[:, None] * (1 - batch.terminated)
        return Target(batch.r.unsqueeze(-1) + discount.unsqueeze(-1) * soft_value, a2)

    # Eq. (10) and (11): each critic trains all its atoms θ_m with the quantile Huber loss over the
    # kept atoms of the target, 1/kNM Σ_m Σ_{i ≤ kN} ρ_τm(y_i − θ_m), ρ_τ(u) = |τ − 1(u < 0)| L(u)
    # with Huber's L.

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        atoms = self.critic.atoms(theta, batch.s, batch.a)
        # [R, N, B, M, NM] is by far the largest tensor, so few operations read it
        u = target.y[:, None, :, None, :] - atoms.unsqueeze(-1)
        quantiles, place = self.config.quantiles, torch.arange(u.shape[-1], device=u.device)
        tau = ((torch.arange(quantiles, device=u.device) + 0.5) / quantiles).unsqueeze(-1)
        kept = self.config.critics * (quantiles - Hyper(state).dropped).unsqueeze(1)  # [R, 1], kN
        # weight of each atom, 0 if dropped
        weight = (torch.where(place < kept, 1 / kept, 0.0) / quantiles)[:, None, None, None]
        rho = torch.where(u < 0, (1 - tau) * weight, tau * weight) * huber(u)
        loss = rho.sum((3, 4)).mean(2).sum(1)
        return loss, {
            "q": atoms.mean((1, 2, 3)),
            "spread": atoms.std(-1, correction=0).mean((1, 2)),
        }

    # Eq. (13): the actor maximises the mean of all atoms, 1/NM Σ z, without truncation.

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        return self.critic(theta, s, a)[0].mean(1)

    def mean_and_variance(self, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, None]:
        """Return the mean of the atoms. The spread of the atoms is the randomness of the return,
        not the uncertainty of its mean."""
        return self.value(self.params(state, "critic"), s, a, None), None

    def logged(self) -> tuple[str, ...]:
        return (*super().logged(), "spread")


def huber(u: Tensor) -> Tensor:
    """Return the Huber loss: u²/2 for |u| ≤ 1, else |u| − 1/2."""
    return F.huber_loss(u, u.new_zeros(()).expand_as(u), reduction="none")
