"""PBAC (Tasdighi, Haussmann, Werge, Wu, Kandemir, arXiv 2402.03055), by the authors of PAC4SAC:
deep exploration with PAC-Bayes. The posterior is an ensemble of critics, the prior is made of their
targets, each critic has its own policy, and one policy, drawn every few steps, acts. What the paper
leaves open follows the program that its authors released with it."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.nets import (
    Critic,
    GaussianActor,
    Net,
    Params,
    Trunk,
    linear_head,
    linear_parameters,
)
from pac4sac.agents.nets import squashed_sample as squashed
from pac4sac.agents.posterior_sampling import PosteriorSampling
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import (
    AT_LEAST_ONE,
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
        0.95, Interval(0, 1, low_open=True), "share of the errors in a minibatch that a critic sees"
    )
    held: int = per_run(
        5, AT_LEAST_ONE, "steps after which a policy is drawn; each episode draws one too"
    )


class ManyActors(GaussianActor):
    """One trunk, a head for each policy."""

    def __init__(self, trunk: Trunk, da: int, policies: int) -> None:
        Net.__init__(self, trunk, linear_parameters(trunk.width, policies * 2 * da))
        self.policies = policies

    def __call__(self, p: Params, s: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, each [R, M, B, da]."""
        heads = (
            linear_head(p, self.trunk(p, s)).view(*s.shape[:2], self.policies, -1).transpose(1, 2)
        )
        mean, log_variance = heads.chunk(2, -1)
        return mean, (0.5 * log_variance.clamp(*self.log_variance_range)).exp()


class Pbac(PosteriorSampling, Sac):
    title = "PBAC: an ensemble of critics and policies, by the authors of PAC4SAC"
    Config = PbacConfig
    revision: ClassVar = (
        2  # targets with the next action of the policy that acts, not each with its own
    )
    presets: ClassVar = {"default": {}, "reproduction": REPRODUCTION_SAC}
    updates_of_task: ClassVar = {"reproduction": 1}
    takes_minimum: ClassVar = False
    config: PbacConfig

    def networks(self) -> dict[str, Net]:
        self.actor = ManyActors(self.trunk(s=self.ds), self.da, self.config.critics)
        self.critic = Critic(self.trunk(s=self.ds, a=self.da), self.config.critics)
        return {"critic": self.critic, "actor": self.actor}

    def of_own_policies(self, theta: Params, s: Tensor, a: Tensor) -> Tensor:
        """Q_k(s, a_k), [R, M, B]: each critic on the action [R, M, B, da] of its own policy."""
        (states,) = self.critic.of_members(s)
        return self.critic.head(theta, self.critic.trunk(theta, states, a.flatten(0, 1)))[0]

    # --- y_k = r + γ(1 − d)(Q̄_k(s′, a′) − α log π_j(a′|s′)), where π_j is the policy that acts at
    # present: all critics judge the same next action, and none that it alone holds best.

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Target:
        a2, log_pi = squashed(*self.proposal(state, batch.s2), draw["target"])
        q2, _ = self.critic(self.params(state, "critic/target"), batch.s2, a2)  # [R, M, B]
        soft_value = q2 - (self.alpha(state)[:, None] * log_pi)[:, None]
        discount = Hyper(state).gamma[:, None] * (1 - batch.terminated)
        return Target(batch.r[:, None] + discount[:, None] * soft_value, a2)

    # --- With σ² = Var_k[Q_k] and the prior N(ȳ, σ₀²), ȳ = mean_k y_k, in every pair (s, a):
    #
    #   mean_k (Q_k − y_k)² + KL(N(mean Q, σ²)‖N(ȳ, σ₀²)) − γ² ln σ²
    #
    # of which KL = mean_k (Q_k − ȳ)²/2σ₀² − ½ ln σ², but for constants. The last term stands for
    # the variance of the next value, which the bound on the value error subtracts: it is taken in
    # (s, a), and as its logarithm.

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

    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        alpha = self.alpha(state)
        a, log_pi = squashed(*self.actor(pi, batch.s), draw["actor"])
        q = self.of_own_policies(self.params(state, "critic"), batch.s, a)
        loss = (alpha.view(-1, 1, 1) * log_pi - q).mean((1, 2))
        return loss, {"entropy": -log_pi.mean((1, 2)), "alpha": alpha}

    def mean_and_variance(self, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        m, _ = self.critic(self.params(state, "critic"), s, a)
        return m.mean(1), m.var(1, correction=0)

    # --- acting: one of the policies; evaluation takes the mean of their actions

    def proposal(self, state: State, s: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = super().proposal(state, s)
        chosen = state["member"].view(-1, 1, 1, 1).expand(-1, 1, *mean.shape[2:])
        return mean.gather(1, chosen).squeeze(1), std.gather(1, chosen).squeeze(1)

    def due_for_draw(self, state: State) -> Tensor:
        # a float: compiled for a CPU, whole numbers would be divided in empty lanes too, by 0
        held = Hyper(state).held
        return super().due_for_draw(state) | (
            torch.remainder(state["step"].to(held.dtype), held) == 0
        )

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        """Return the mean over critics, by which shooting ranks candidates."""
        return self.critic(theta, s, a)[0].mean(1)

    def deterministic_action(self, state: State, s: Tensor) -> Tensor:
        return torch.tanh(self.actor(self.params(state, "actor"), s)[0]).mean(1)

    def sample_policy(self, state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Of a policy drawn for each state."""
        # [R, M, B, da]
        a, log_pi = squashed(*self.actor(self.params(state, "actor"), s), draw["policies"])
        chosen = self.member_index(draw["which"]).unsqueeze(1)
        each = chosen.unsqueeze(-1).expand(-1, -1, -1, self.da)
        return a.gather(1, each).squeeze(1), log_pi.gather(1, chosen).squeeze(1)

    # --- what the above needs

    def policy_streams(self, states: int) -> dict[str, Stream]:
        return {
            "policies": Stream((self.config.critics, states, self.da)),
            "which": Stream((states,), uniform=True),
        }

    def update_streams(self) -> dict[str, Stream]:
        members, batch = self.config.critics, self.config.batch
        own = Stream((members, batch, self.da))
        one = Stream((batch, self.da))
        return {"target": one, "actor": own, "mask": Stream((members, batch), uniform=True)}

    def logged(self) -> tuple[str, ...]:
        return (*super().logged(), "bellman", "kl", "q_deviation")
