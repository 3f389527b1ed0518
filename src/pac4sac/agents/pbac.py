"""PBAC (Tasdighi, Haussmann, Werge, Wu, Kandemir, arXiv 2402.03055), by the authors of PAC4SAC:
deep exploration with PAC-Bayes. The posterior is an ensemble of critics, and the prior is computed
from their targets. Each critic has its own policy. One policy acts at a time, and another is drawn
every few steps. Details that the paper does not state follow the code that its authors released."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.nets import Critic, Params
from pac4sac.agents.nets import squashed_sample as squashed
from pac4sac.agents.own_policies import OwnPolicies
from pac4sac.agents.posterior_sampling import held_for
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import SacConfig
from pac4sac.agents.settings import (
    NON_NEGATIVE,
    POSITIVE,
    REPRODUCTION_SAC,
    Interval,
    per_run,
    structural,
)
from pac4sac.agents.tape import Stream

LEAST_VARIANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class PbacConfig(SacConfig):
    critics: int = structural(10, Interval(2), "number of critics, each with its own policy")
    prior_variance: float = per_run(
        1.0, POSITIVE, "σ₀²: variance of the prior around the mean of the targets"
    )
    kept: float = per_run(
        0.95,
        Interval(0, 1, low_open=True),
        "share of the errors in a minibatch that a critic learns from",
    )
    held: int = per_run(
        5,
        NON_NEGATIVE,
        "number of steps for which a policy is held; 0 holds it until the episode ends",
    )


class Pbac(OwnPolicies):
    title = "PBAC: an ensemble of critics and policies, by the authors of PAC4SAC"
    Config = PbacConfig
    revision: ClassVar = (
        2  # all targets use the next action of the acting policy; before, each used its own policy
    )
    presets: ClassVar = {"default": {}, "reproduction": REPRODUCTION_SAC}
    updates_of_task: ClassVar = {"reproduction": 1}
    config: PbacConfig

    def build_critic(self) -> Critic:
        return Critic(self.trunk(s=self.ds, a=self.da), self.config.critics)

    # --- y_k = r + γ(1 − d)(Q̄_k(s′, a′) − α log π_j(a′|s′)), where π_j is the policy that
    # currently acts: all critics evaluate the same next action, not that of their own policies.

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Target:
        a2, log_pi = squashed(*self.proposal(state, batch.s2), draw["target"])
        q2, _ = self.critic(self.params(state, "critic/target"), batch.s2, a2)  # [R, M, B]
        soft_value = q2 - (self.alpha(state)[:, None] * log_pi)[:, None]
        discount = Hyper(state).gamma[:, None] * (1 - batch.terminated)
        return Target(batch.r[:, None] + discount[:, None] * soft_value, a2)

    # --- With σ² = Var_k[Q_k] and the prior N(ȳ, σ₀²), ȳ = mean_k y_k, in every pair (s, a):
    #
    #   mean_k (Q_k − y_k)² + KL(N(mean Q, σ²)‖N(ȳ, σ₀²)) − γ² ln σ²
    # where KL = mean_k (Q_k − ȳ)²/2σ₀² − ½ ln σ², up to constants. The last term replaces the
    # variance of the next value, which the bound on the value error subtracts, by the logarithm of
    # the variance in (s, a).

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        h = Hyper(state)
        m, _ = self.critic(theta, batch.s, batch.a)  # [R, M, B]
        seen = draw["mask"] < h.kept.view(-1, 1, 1)
        bellman = torch.where(seen, (m - target.y).square(), 0.0).mean((1, 2))
        distance = torch.where(seen, (m - target.y.mean(1, keepdim=True)).square(), 0.0).mean(
            (1, 2)
        )
        from_prior = distance / (2 * h.prior_variance)
        variance = m.var(1).clamp_min(LEAST_VARIANCE)  # [R, B]
        log_variance = variance.log().mean(-1)
        loss = bellman + from_prior - (0.5 + h.gamma.square()) * log_variance
        log = {"q": m.mean((1, 2)), "bellman": bellman, "kl": from_prior - 0.5 * log_variance}
        return loss, log | {"q_deviation": variance.sqrt().mean(-1)}

    # --- acting: the policy of one member acts for some steps, as in `OwnPolicies`

    def due_for_draw(self, state: State) -> Tensor:
        return super().due_for_draw(state) | held_for(state, Hyper(state).held)

    def update_streams(self) -> dict[str, Stream]:
        mask = Stream((self.config.critics, self.config.batch), uniform=True)
        return super().update_streams() | {"mask": mask}

    def logged(self) -> tuple[str, ...]:
        return (*super().logged(), "bellman", "kl", "q_deviation")
