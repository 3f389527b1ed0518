"""PAC4SAC for exploration: multiple shooting with a sampled critic that is kept for an episode.

The paper's section on multiple shooting draws Q ~ μ independently for every candidate action, so
each draw adds noise to the mean. Here the posterior is an ensemble, μ = (1/M) Σ_k δ_{Q_k}. One Q_k
is drawn at the start of an episode and ranks all candidates until the episode ends. This is
posterior sampling (Osband et al. 2016). Each member bootstraps from its own target network, so
members differ far from the data. Exploration is therefore consistent within an episode and differs
between episodes.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.nets import Critic, Params, Trunk
from pac4sac.agents.posterior_sampling import PosteriorSampling, held_for
from pac4sac.agents.prior_function import PriorCritic
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig, best_candidate, pairs
from pac4sac.agents.settings import (
    NON_NEGATIVE,
    REPRODUCTION_SAC,
    UNIT,
    Interval,
    new_default,
    per_run,
    structural,
)
from pac4sac.agents.tape import Stream

TARGETS = ("own", "mean", "minimum")


@dataclass(frozen=True, kw_only=True)
class ExploreConfig(SacConfig):
    """Hold the settings of the agent, with the networks, optimiser and replay buffer of the PAC4SAC
    paper."""

    critics: int = structural(5, Interval(2), "M: number of members of the ensemble")
    shots: int = new_default(SacConfig, "shots", 500)
    held: int = per_run(
        0,
        NON_NEGATIVE,
        "number of steps for which a member is held; 0 holds it until the episode ends",
    )
    ranking: str = structural(
        "member",
        ("member", "mean"),
        "value that ranks candidates in training: that of one member, or the mean over members",
    )
    target: str = structural(
        "own",
        TARGETS,
        "value in targets: that of the member's own target network, or the mean or minimum over "
        "members",
    )
    outside: float = per_run(
        0.0, UNIT, "share of the candidates that are drawn uniformly instead of from the policy"
    )
    prior_scale: float = structural(
        0.0, NON_NEGATIVE, "scale of the fixed random function that is added to each member"
    )
    alpha: float = new_default(SacConfig, "alpha", 0.02)
    learn_alpha: bool = new_default(SacConfig, "learn_alpha", False)
    log_std_max: float = new_default(SacConfig, "log_std_max", 1.0)
    lr: float = new_default(SacConfig, "lr", 1e-3)
    warmup: int = new_default(SacConfig, "warmup", 1_000)
    batch: int = new_default(SacConfig, "batch", 32)
    capacity: int = new_default(SacConfig, "capacity", 100_000)
    updates_per_step: int = new_default(SacConfig, "updates_per_step", 2)
    depth: int = new_default(SacConfig, "depth", 3)
    norm: bool = new_default(SacConfig, "norm", True)
    activation: str = new_default(SacConfig, "activation", "silu")


class Explore(PosteriorSampling, Sac):
    """Define SAC with an ensemble of critics and posterior sampling by multiple shooting."""

    title = "PAC4SAC for exploration: one critic of an ensemble is held for an episode"
    Config = ExploreConfig
    presets: ClassVar = {"default": {}, "reproduction": REPRODUCTION_SAC}
    updates_of_task: ClassVar = {"reproduction": 1}
    config: ExploreConfig

    def build_critic(self) -> Critic:
        self.single = self.ensemble_of(1)
        return self.ensemble_of(self.config.critics)

    def ensemble_of(self, members: int) -> Critic:
        c, inputs = self.config, {"s": self.ds, "a": self.da}
        trunk, scales = self.trunk(**inputs), self.numbers("prior_scale")
        if not c.prior_scale:
            return Critic(trunk, members)
        prior = Trunk(inputs, c.width, 1, c.norm, c.activation)
        return PriorCritic(trunk, prior, members, scales)

    # --- learning. Each member regresses on its own target,
    #
    #   y_k = r + γ(1 − d)(Q̄_k(s′, a′) − α log π(a′|s′)),   a′ ~ π.

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Target:
        a2, log_pi = self.next_action(state, batch.s2, draw)
        q2, _ = self.critic(self.params(state, "critic/target"), batch.s2, a2)  # [R, M, B]
        soft_value = self.bootstrapped(q2) - (self.alpha(state)[:, None] * log_pi)[:, None]
        discount = Hyper(state).gamma[:, None] * (1 - batch.terminated)
        return Target(batch.r[:, None] + discount[:, None] * soft_value, a2)

    def bootstrapped(self, q2: Tensor) -> Tensor:
        """Return the value of the next state in the targets of the members, [R, M or 1, B]."""
        if self.config.target == "own":
            return q2
        return q2.mean(1, keepdim=True) if self.config.target == "mean" else q2.amin(1, True)

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        m, _ = self.critic(theta, batch.s, batch.a)  # [R, M, B]
        loss = (target.y - m).square().mean(-1).sum(1)
        return loss, {"q": m.mean((1, 2)), "q_deviation": m.std(1, correction=0).mean(-1)}

    # The actor maximises the ensemble's mean, E_μ[Q], as in `PosteriorSampling`.

    # --- acting: of the candidates a_1, …, a_S | s ~ π, the agent takes the one with the largest
    # Q_k. In training, k is the member of the episode. In evaluation, candidates are ranked by the
    # mean.

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        a = self.candidates(state, s, draw)  # [R, S, B, da]
        if a.shape[1] == 1:
            return a.squeeze(1)
        is_training = "member" in draw
        if is_training and self.config.ranking == "member":
            q = self.member_value(state, *pairs(s, a))
        else:
            q = self.value(self.params(state, "critic"), *pairs(s, a), None)
        return best_candidate(a, q.view(a.shape[:-1]), Hyper(state).shots)

    def member_value(self, state: State, s: Tensor, a: Tensor) -> Tensor:
        """Return Q_k [R, B] of the current member of each run."""
        return self.single(self.single.views(self.held_weights(state, "critic")), s, a)[0][:, 0]

    def candidates(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        """Return S candidate actions for each state; a share of them is uniformly random in [−1,
        1]."""
        a = super().candidates(state, s, draw)
        if "outside" not in draw:
            return a
        rank = torch.arange(a.shape[1], device=a.device)
        uniform = rank < (Hyper(state).outside * Hyper(state).shots)[:, None]  # [R, S]
        return torch.where(uniform[:, :, None, None], 2 * draw["outside"] - 1, a)

    def due_for_draw(self, state: State) -> Tensor:
        return super().due_for_draw(state) | held_for(state, Hyper(state).held)

    # --- declarations

    def act_streams(self) -> dict[str, Stream]:
        shots = self.shots(evaluating=False)
        uniform = Stream((max(shots), 1, self.da), uniform=True, rows=shots)
        is_used = any(self.numbers("outside"))
        return super().act_streams() | ({"outside": uniform} if is_used else {})

    def logged(self) -> tuple[str, ...]:
        return (*super().logged(), "q_deviation")
