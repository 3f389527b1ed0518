"""Optimistic actor-critic (Ciosek et al. 2019): SAC that explores with a policy shifted towards an
upper bound of Q."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, State
from pac4sac.agents.beyond_the_paper import BeyondConfig, BeyondCritic
from pac4sac.agents.nets import Params, deviation
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import ANY, NON_NEGATIVE, per_run


@dataclass(frozen=True, kw_only=True)
class OacConfig(SacConfig):
    """Settings of OAC."""

    beta: float = per_run(
        4.66, ANY, "β_UB: deviations above the mean of Q at which its upper bound lies"
    )
    shift: float = per_run(23.53, NON_NEGATIVE, "δ: KL budget of the shift of the behaviour policy")


def optimistic_mean(mean: Tensor, std: Tensor, gradient: Tensor, shift: Tensor) -> Tensor:
    """μ_E = μ_T + √(2δ) Σ_T g / (√(gᵀ Σ_T g) + 1e-5), for each state on its own; mean, std, g are
    [R, B, da]."""
    sigma_g = std.square() * gradient
    length = (gradient * sigma_g).sum(-1, keepdim=True).sqrt()
    return mean + (2 * shift).sqrt()[:, None, None] * sigma_g / (length + 1e-5)


class Oac(Sac):
    """SAC that explores with a policy shifted towards an upper bound of Q."""

    title = "Optimistic actor-critic"
    Config = OacConfig

    def mean_and_deviation(self, theta: Params, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """μ_Q = (Q₁ + Q₂)/2 and σ_Q = |Q₁ − Q₂|/2; for more critics than two, mean and deviation
        over them."""
        m = self.critic(theta, s, a)[0]
        return m.mean(1), m.std(1, correction=0)

    def proposal(self, state: State, s: Tensor) -> tuple[Tensor, Tensor]:
        h = Hyper(state)
        mean, std = self.actor(self.params(state, "actor"), s)
        mean = mean.detach().requires_grad_()
        # evaluation acts without gradients; this one is part of the policy
        with torch.enable_grad():
            mu_q, sigma_q = self.mean_and_deviation(
                self.params(state, "critic"), s, torch.tanh(mean)
            )
            upper_bound = mu_q + h.beta[:, None] * sigma_q
            (gradient,) = torch.autograd.grad(upper_bound.sum(), mean)
        return optimistic_mean(mean.detach(), std, gradient, h.shift), std


@dataclass(frozen=True, kw_only=True)
class OacGaussConfig(BeyondConfig, OacConfig):
    pass


class OacGauss(BeyondCritic, Oac):
    """The paper's architecture table gives OAC the Gaussian head: one critic with its m_p and
    √v_p."""

    title = "Optimistic actor-critic on one PAC-Bayes critic"
    Config = OacGaussConfig
    config: OacGaussConfig

    def mean_and_deviation(self, theta: Params, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        m_p, v_p = self.critic(theta, s, a)
        return m_p.mean(1), deviation(v_p).mean(1) if v_p is not None else torch.zeros_like(
            m_p[:, 0]
        )

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        # the actor follows m_p; the deviation is for exploring only
        return super().value(theta, s, a, None)


@dataclass(frozen=True, kw_only=True)
class OacLabConfig(OacConfig):
    alpha: float = per_run(
        0.0, NON_NEGATIVE, "weight of the policy's entropy; none in this variant"
    )
    shift: float = per_run(0.1, NON_NEGATIVE, "δ: KL budget of the shift of the behaviour policy")
    smoothing: float = per_run(0.447, NON_NEGATIVE, "deviation of the noise on the target's action")
    smoothing_limit: float = per_run(0.5, NON_NEGATIVE, "largest noise on the target's action")


class OacLab(Oac):
    """OAC as the authors' group later coded it: a target actor with smoothing, no entropy
    anywhere."""

    title = "Optimistic actor-critic as the authors' group later coded it"
    Config = OacLabConfig
    # it has no entropy to calibrate
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {}}
    with_target: ClassVar[tuple[str, ...]] = ("critic", "actor")

    def next_action(self, state: State, s2: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        return self.smoothed(state, "actor/target", s2, draw["target"][:, 0])

    def sample_policy(self, state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        a, log_pi = self.smoothed(state, "actor", s, draw["policy"])
        return a.clamp(-1, 1), log_pi  # an environment takes no others

    def smoothed(self, state: State, actor: str, s: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        h = Hyper(state)
        mean, _ = self.actor(self.params(state, actor), s)
        limit = h.smoothing_limit[:, None, None]
        noise = (h.smoothing[:, None, None] * noise).clamp(-limit, limit)
        return torch.tanh(mean) + noise, torch.zeros_like(mean[..., 0])
