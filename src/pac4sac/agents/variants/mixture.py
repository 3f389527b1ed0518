"""PAC4SAC with a mixture of critics as its posterior. Its uncertainty varies by state.

PAC4SAC's posterior is one Gaussian on the features of one network. Here it is μ = (1/M) Σ_k N(m_k,
v_k): M members, each with its own features, target network and target. Members agree in states with
many data and differ in states without data. Each member bootstraps from itself, so differences
between members follow the Bellman equation, as values do. Derivations are in
docs/algorithms/mixture.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents import replay
from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.bounds import complexity_maurer, gaussian_kl
from pac4sac.agents.nets import Net, Params, Trunk, squashed_sample, standard_deviation
from pac4sac.agents.pac4sac import Pac4SacConfig
from pac4sac.agents.posterior_sampling import PosteriorSampling
from pac4sac.agents.prior_function import PriorCritic
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, best_candidate, pairs
from pac4sac.agents.settings import (
    ANY,
    BELOW_ONE,
    NON_NEGATIVE,
    OPEN_UNIT,
    POSITIVE,
    REPRODUCTION_SAC,
    Interval,
    per_run,
    structural,
)
from pac4sac.agents.tape import Stream, initial_uniforms, scrambled

SLOWEST = 1e-3  # smallest weight of a new squared error in the running mean σ̂²


@dataclass(frozen=True, kw_only=True)
class MixtureConfig(Pac4SacConfig):
    critics: int = structural(5, Interval(2), "M: number of members of the mixture")
    xi: float = per_run(
        0.005, BELOW_ONE, "ξ: weight of the variance over members; members can diverge if ξ ≥ 1 − γ"
    )
    prior_scale: float = per_run(1.0, NON_NEGATIVE, "scale of each member's fixed random function")
    prior_variance: float = per_run(1.0, POSITIVE, "variance of the prior of each weight")
    kept: float = per_run(
        0.8, Interval(0, 1, low_open=True), "probability that a member learns from a transition"
    )
    noise: float = per_run(
        0.0, NON_NEGATIVE, "ζ: noise on targets, in units of the root mean square TD error σ̂"
    )
    caution: float = per_run(0.5, ANY, "κ: the actor maximises the mean of Q minus κ times its std")
    target_caution: float = per_run(
        0.0,
        NON_NEGATIVE,
        "κ′: factor of the std over members in s′, which is subtracted from targets",
    )
    optimism: float = per_run(1.0, ANY, "β: factor of the std in the ranking upper")
    ranking: str = structural(
        "actor",
        ("actor", "member", "upper"),
        "value that ranks candidates in training: actor's objective, one member's Q, or mean + β "
        "std",
    )
    delta: float = per_run(0.05, OPEN_UNIT, "δ of the conservative term")


class Mixture(PosteriorSampling, Sac):
    title = "PAC-Bayesian soft actor-critic with a mixture of critics as its posterior"
    Config = MixtureConfig
    # since 2: the actor's objective ranks candidates, and masks change when the ring wraps
    revision: ClassVar = 2
    presets: ClassVar = {"default": {}, "reproduction": REPRODUCTION_SAC}
    updates_of_task: ClassVar = {"reproduction": 1}
    takes_minimum: ClassVar = False
    config: MixtureConfig
    critic: PriorCritic
    single: PriorCritic  # critic of a single member

    def networks(self) -> dict[str, Net]:
        nets = super().networks()
        self.single = self.mixture_of(1)
        return nets

    def build_critic(self) -> PriorCritic:
        return self.mixture_of(self.config.critics)

    def mixture_of(self, members: int) -> PriorCritic:
        scales = self.numbers("prior_scale")
        return PriorCritic(
            *self.trunks(), members, scales, gaussian=True, log_variance=self.config.log_variance
        )

    def trunks(self) -> tuple[Trunk, Trunk]:
        """Return the trunk of the learned weights, and that of the random functions."""
        c, inputs = self.config, {"s": self.ds, "a": self.da}
        return self.trunk(**inputs), Trunk(inputs, c.width, 1, c.norm, c.activation)

    # --- 1. The posterior. Its mean is the mean over members. Its variance is Var_k[m_k] plus the
    # mean of v_k.

    def moments(self, theta: Params, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        m, v = self.critic(theta, s, a)
        assert v is not None
        return m.mean(1), m.var(1, correction=0) + v.mean(1)  # [R, B]

    def mean_and_variance(self, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return self.moments(self.params(state, "critic"), s, a)

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        return self.moments(theta, s, a)[0]

    def divergence(self, state: State, theta: Params) -> Tensor:
        """Return the KL_k of each member's weights to the prior, [R, M]. KL(μ‖μ₀) is at most the
        mean of KL_k, because KL is convex."""
        m, log_v = self.critic.posterior(theta)
        return gaussian_kl(m, log_v.exp(), 0.0, Hyper(state).prior_variance[:, None, None])

    # --- 2. The target of each member comes from its own target network: y_k = r + γ(1 −
    # d)(m̄_k(s′, a′) − α log π(a′|s′) − κ′ σ), with the same standard deviation σ over target
    # networks for all members.

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Target:
        a2, log_pi = self.next_action(state, batch.s2, draw)
        q2, _ = self.critic(self.params(state, "critic/target"), batch.s2, a2)  # [R, M, B]
        soft_value = q2 - self.target_penalty(state, log_pi, q2.std(1, correction=0))
        discount = Hyper(state).gamma[:, None] * (1 - batch.terminated)
        return Target(batch.r[:, None] + discount[:, None] * soft_value, a2)

    def target_penalty(self, state: State, log_pi: Tensor, std: Tensor) -> Tensor:
        """Return the penalty of the next value in a target, α log π + κ′ σ, [R, 1, B]."""
        penalty = self.alpha(state)[:, None] * log_pi + Hyper(state).target_caution[:, None] * std
        return penalty.unsqueeze(1)

    # --- 3. The objective, with b_k = 1 for transitions that member k learns from, p their
    # probability:
    #
    #   mean_k[b_k/p · ((y_k + ζ σ̂ c_k − m_k)² + v_k)]/σ̂² + √((mean KL_k + ln(2√N/δ))/2N) − ξ ·
    # Var_k[m_k]/σ̂²
    #
    # σ̂² is a running mean of the squared TD error, so the weight of the errors relative to the
    # bound does not depend on the scale of rewards. c_k is −1 or 1 and fixed for each transition
    # and member, as in randomised least squares.

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        p, lot = Hyper(state).kept.view(-1, 1, 1), draw["lottery"]
        m, v = self.critic(theta, batch.s, batch.a)
        assert v is not None
        td_square = (target.y - m).detach().square().mean((1, 2))
        noise = self.target_noise(state, td_square)
        error = (target.y + torch.where(lot < p / 2, noise, -noise) - m).square()
        weight = torch.where(lot < p, 1 / p, 0.0)
        risk, tandem = (weight * (error + v)).mean((1, 2)), disagreement(m, weight).mean(-1)
        log = {
            "q": m.mean((1, 2)),
            "q_deviation": (m.var(1, correction=0) + v.mean(1)).sqrt().mean(-1),
        }
        return self.objective(state, theta, risk, tandem, td_square, log)

    def target_noise(self, state: State, td_square: Tensor) -> Tensor:
        """Return ζ σ̂, [R, 1, 1]."""
        return (Hyper(state).noise * self.td_scale(state, td_square).sqrt()).view(-1, 1, 1)

    def objective(
        self,
        state: State,
        theta: Params,
        risk: Tensor,
        tandem: Tensor,
        td_square: Tensor,
        log: dict[str, Tensor],
    ) -> Loss:
        h, n = Hyper(state), state["step"].clamp_max(self.config.capacity)
        scale = self.td_scale(state, td_square)
        kl = self.divergence(state, theta).mean(1)
        bellman, tandem = risk / scale, tandem / scale
        conservative = complexity_maurer(kl, n, h.delta)
        loss = bellman + h.conservative * conservative - h.xi * tandem
        log = log | {"bellman": bellman, "conservative": conservative, "tandem": tandem, "kl": kl}
        return loss, log | {"td_square": td_square}

    def td_scale(self, state: State, td_square: Tensor) -> Tensor:
        """Return σ̂². In the first update, it is the mean squared TD error of the batch."""
        return torch.where(state["critic/count"] > 0, state["td_square"], td_square).clamp_min(1e-8)

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        log = super().learn(state, batch, draw, active)
        weight = state["critic/count"].clamp_min(1).reciprocal().clamp_min(SLOWEST)
        mean = state["td_square"].lerp(log["td_square"], weight)
        state["td_square"].copy_(torch.where(active & state["alive"], mean, state["td_square"]))
        return log

    # Members learn from random subsets of transitions. The random numbers are a hash of the step of
    # a transition and the key of the run, so they are the same in every update and are not stored.

    def update(self, state: State, data: Tensor, draw: Draw) -> None:
        step, capacity = state["step"], data.shape[1]
        places = replay.indices(draw["replay"], step.clamp_max(capacity))  # [R, B]
        stored = places + capacity * ((step - 1 - places) // capacity)
        member = torch.arange(self.config.critics, device=data.device)[:, None]
        number = scrambled(stored.unsqueeze(1) * self.config.critics + member)  # [R, M, B]
        uniform = (scrambled(number ^ state["lottery_key"].view(-1, 1, 1)) >> 8) / 2**24
        super().update(state, data, {**draw, "lottery": uniform})

    # --- 4. The actor maximises a lower bound: the mean of Q minus κ standard deviations.

    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        alpha = self.alpha(state)
        a, log_pi = squashed_sample(*self.actor(pi, batch.s), draw["actor"])
        q = self.shifted_mean(state, batch.s, a, -Hyper(state).caution)
        return (alpha[:, None] * log_pi - q).mean(-1), {"entropy": -log_pi.mean(-1), "alpha": alpha}

    def shifted_mean(self, state: State, s: Tensor, a: Tensor, factor: Tensor) -> Tensor:
        """Return mean + factor · std of Q, [R, B]."""
        mean, variance = self.mean_and_variance(state, s, a)
        return mean + factor[:, None] * standard_deviation(variance)

    # --- 5. Acting. Candidates are ranked by the actor's lower bound. In training, one member with
    # one sample of its weights can rank them for a whole episode.

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        a, h = self.candidates(state, s, draw), Hyper(state)
        ranking = self.config.ranking if "member" in draw else "actor"  # in evaluation
        if a.shape[1] == 1:
            return a.squeeze(1)
        if ranking == "member":
            q = self.member_value(state, *pairs(s, a))
        else:
            factor = h.optimism if ranking == "upper" else -h.caution
            q = self.shifted_mean(state, *pairs(s, a), factor)
        return best_candidate(a, q.view(a.shape[:-1]), h.shots)

    def member_value(self, state: State, s: Tensor, a: Tensor) -> Tensor:
        """Return Q [R, B] of the member that was drawn for the current episode of each run."""
        weights = self.single.views(self.held_weights(state, "critic"))
        return self.single.sampled(weights, s, a, state["weight_noise"].unsqueeze(1))[:, 0, :, 0]

    def draw_member(self, state: State, draw: Draw, due: Tensor) -> None:
        super().draw_member(state, draw, due)
        noise = torch.where(due.view(-1, 1, 1), draw["weight_noise"], state["weight_noise"])
        state["weight_noise"].copy_(noise)

    def act_streams(self) -> dict[str, Stream]:
        return super().act_streams() | {"weight_noise": Stream((1, self.critic.trunk.width))}

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        return super().extra_state(seeds, device) | {
            "td_square": torch.zeros(self.runs, device=device),
            "lottery_key": (
                initial_uniforms(seeds, "lottery", 1, device).squeeze(1) * 2**24
            ).long(),
            "weight_noise": torch.zeros(self.runs, 1, self.critic.trunk.width, device=device),
        }

    def logged(self) -> tuple[str, ...]:
        return (
            *super().logged(),
            "bellman",
            "conservative",
            "tandem",
            "kl",
            "q_deviation",
            "td_square",
        )


def disagreement(m: Tensor, weight: Tensor) -> Tensor:
    """Return (1/M²) Σ_{k<l} w_k w_l (m_k − m_l)² [R, B], with w = b/p [R, M, B]. The mean over
    masks is Var_k[m_k]. A member does not count in transitions from which it does not learn."""
    centred = m - m.detach().mean(1, keepdim=True)  # only reduces rounding errors
    first, second = (weight * centred).sum(1), (weight * centred.square()).sum(1)
    return (weight.sum(1) * second - first.square()) / m.shape[1] ** 2
