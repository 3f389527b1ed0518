"""Optimistic actor-critic (Ciosek et al. 2019): SAC that explores with a policy shifted towards an
upper bound of Q."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pac4sac.agents.base import Hyper, State
from pac4sac.agents.nets import Params, standard_deviation
from pac4sac.agents.pac4sac import PacBayesConfig, PacBayesCritic
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import ANY, NON_NEGATIVE, new_default, per_run


@dataclass(frozen=True, kw_only=True)
class OacConfig(SacConfig):
    """Hold the settings of OAC.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import OacConfig
        >>> OacConfig(beta=2.0).beta
        2.0
    """

    beta: float = per_run(
        4.66, ANY, "β_UB: number of standard deviations between the mean and the upper bound of Q"
    )
    shift: float = per_run(23.53, NON_NEGATIVE, "δ: KL budget of the shift of the behaviour policy")


def optimistic_mean(mean: Tensor, std: Tensor, gradient: Tensor, shift: Tensor) -> Tensor:
    """Return μ_E = μ_T + √(2δ) Σ_T g / (√(gᵀ Σ_T g) + 1e-5) for each state; mean, std and g are [R,
    B, da]."""
    sigma_g = std.square() * gradient
    length = (gradient * sigma_g).sum(-1, keepdim=True).sqrt()
    return mean + (2 * shift).sqrt()[:, None, None] * sigma_g / (length + 1e-5)


class Oac(Sac):
    """Define OAC (optimistic actor-critic): SAC that explores towards an upper bound of Q.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import Oac, OacConfig
        >>> Oac([OacConfig()], ds=3, da=1).runs
        1
    """

    title = "Optimistic actor-critic"
    Config = OacConfig

    def mean_and_std(self, theta: Params, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ_Q = (Q₁ + Q₂)/2 and σ_Q = |Q₁ − Q₂|/2 or, for more critics, mean and standard
        deviation."""
        m = self.critic(theta, s, a)[0]
        return m.mean(1), m.std(1, correction=0)

    def proposal(self, state: State, s: Tensor) -> tuple[Tensor, Tensor]:
        h = Hyper(state)
        mean, std = self.actor(self.params(state, "actor"), s)
        mean = mean.detach().requires_grad_()
        # evaluation disables gradients, but this gradient is part of the policy
        with torch.enable_grad():
            mu_q, sigma_q = self.mean_and_std(self.params(state, "critic"), s, torch.tanh(mean))
            upper_bound = mu_q + h.beta[:, None] * sigma_q
            (gradient,) = torch.autograd.grad(upper_bound.sum(), mean)
        return optimistic_mean(mean.detach(), std, gradient, h.shift), std


@dataclass(frozen=True, kw_only=True)
class OacGaussConfig(PacBayesConfig, OacConfig):
    alpha: float = new_default(SacConfig, "alpha", 0.2)
    log_std_max: float = new_default(SacConfig, "log_std_max", 1.0)
    learn_alpha: bool = new_default(SacConfig, "learn_alpha", False)


class OacGauss(PacBayesCritic, Oac):
    """Run OAC with one PAC-Bayes critic, m_p and √v_p: the paper's architecture table lists a
    Gaussian head for OAC."""

    title = "Optimistic actor-critic on one PAC-Bayes critic"
    Config = OacGaussConfig
    config: OacGaussConfig

    def mean_and_std(self, theta: Params, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        m_p, v_p = self.critic(theta, s, a)
        assert v_p is not None
        return m_p.mean(1), standard_deviation(v_p).mean(1)

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        # the actor follows m_p; the standard deviation only affects exploration
        return super().value(theta, s, a, None)
