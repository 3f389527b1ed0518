"""PAC-Bayesian soft actor-critic (Tasdighi et al., AABI 2024), Section 3.2, in the order of the text.

The paper says that its critic suits any actor-critic, so the critic is a part of its own here, `PacBayesCritic`; SAC
with it is PAC4SAC. Letters are the paper's: m_i, v_i mean and variance of the weights of the last layer, m_p, v_p those
of Q, μ the posterior, μ₀ the prior, N the number of tuples in the replay buffer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents import choices, full_covariance, objectives, settings
from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.bounds import gaussian_kl
from pac4sac.agents.full_covariance import Coverage, FullCovarianceCritic
from pac4sac.agents.nets import Critic, Params
from pac4sac.agents.objectives import Terms
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import AgentConfig, per_run, structural
from pac4sac.agents.tape import Stream


@dataclass(frozen=True, kw_only=True)
class PacBayesConfig(AgentConfig):
    xi: float = per_run(0.01, settings.BELOW_ONE, "ξ: weight of the exploration term")
    conservative: float = per_run(1.0, settings.NON_NEGATIVE, "weight of the conservative term, √(KL/N) in the paper")
    prior_mean: float = per_run(0.0, settings.ANY, "mean of the prior of each weight")
    prior_variance: float = per_run(1.0, settings.POSITIVE, "variance of the prior of each weight")
    delta: float = per_run(0.05, settings.OPEN_UNIT, "δ of those complexity terms that have one")
    loss_range: float = per_run(
        1.0, settings.POSITIVE, "range of an unbounded loss, which scales the conservative term"
    )
    loss_scale: float = per_run(10.0, settings.POSITIVE, "ε of the bounded losses: errors far above it count the same")
    bound_lambda: float = per_run(1.0, objectives.LAMBDA, "λ of the objective lambda")
    observation_variance: float = per_run(1.0, settings.POSITIVE, "σ² of the head full: noise of a target")
    forgetting: float = per_run(
        0.999, full_covariance.FORGETTING, "f of the head full: what an update leaves of older observations"
    )
    critics: int = structural(1, settings.AT_LEAST_ONE, "number of critics; their minimum is used")
    head: str = structural(
        "gaussian", ("gaussian", "full", "linear"), "last layer of the critic: independent, correlated or plain weights"
    )
    log_variance: float = structural(-4.6, settings.ANY, "first log-variance of the last layer's weights")
    freeze_variance: bool = structural(False, None, "never train the variances, as the released code does in effect")
    objective: str = per_run("paper", objectives.OBJECTIVES, "what the critic minimises")
    complexity: str = structural("paper", tuple(choices.COMPLEXITY), "form of the conservative term")
    target: str = structural(
        "mean", ("mean", "sampled"), "value of the next state: the target critic's mean or a sample"
    )
    exploration_batch: str = structural(
        "same", ("same", "fresh"), "minibatch of the exploration term: that of the others, or one of its own"
    )
    prior: str = per_run("fixed", ("fixed", "moving"), "keep the prior, or move it to the posterior after an episode")

    def __post_init__(self) -> None:
        super().__post_init__()
        objectives.refuse_contradictions(self)


class PacBayesCritic(Coverage):
    """A randomised critic, and a PAC-Bayes bound as its training objective."""

    terms: ClassVar[tuple[str, ...]] = ("bellman", "conservative", "exploration", "kl", "q_deviation")
    config: PacBayesConfig
    configs: tuple[PacBayesConfig, ...]

    # Section 3.2, first paragraph. w_i ~ N(m_i, v_i) and Q = Σ w_i φ_i + b, hence Q | s, a ~ N(m_p, v_p) with
    # m_p = Σ m_i φ_i + b and v_p = Σ v_i φ_i²: the forward pass of `nets.Critic`.

    def build_critic(self) -> Critic:
        c, trunk = self.config, self.trunk(s=self.ds, a=self.da)
        if c.head == "full":
            return FullCovarianceCritic(trunk, c.critics)
        return Critic(trunk, c.critics, c.head == "gaussian", c.log_variance)

    # First display: the empirical risk R_N(μ), Bellman consistency.

    @staticmethod
    def bellman_consistency(y: Tensor, m_p: Tensor, v_p: Tensor) -> Tensor:
        return ((y - m_p).square() + v_p).mean(-1)

    # The target in it, r + γ stop_grad(Q)(s′), is that of SAC: y = r + γ (1 − terminated) (Q(s′, a′) − α log π(a′|s′)).
    # a′ ~ π, never the shooting policy, as in the operator T of "Convergence properties". Its Q is the mean m_p of the
    # slow critic, or by choice a sample.

    def target_value(self, state: State, s2: Tensor, a2: Tensor, draw: Draw) -> Tensor:
        slow = self.params(state, "critic/target")
        return choices.sampled_value(self.critic, slow, s2, a2, draw.get("next_value")).amin(1)

    # "The KL divergence term is analytically tractable as well": D_KL(μ ‖ μ₀) over the weights of the last layer.

    def divergence(self, state: State, q: Params) -> Tensor:
        if isinstance(self.critic, FullCovarianceCritic):
            return self.critic.divergence(q, state["prior_mean"], state["prior_log_variance"])
        m, log_v = self.critic.posterior(q)
        return gaussian_kl(m, log_v.exp(), state["prior_mean"], state["prior_log_variance"].exp())  # [R, M]

    # Second display: the expected variance of the next state's value, by the variance of the critic averaged over the
    # samples. (It prints Q(s′, a′) where the sentence before it says the variance of the critic.)

    @staticmethod
    def exploration(v_p_next: Tensor, terminated: Tensor) -> Tensor:
        return (v_p_next * (1 - terminated)).mean(-1)

    # The samples are those of the minibatch at hand, used twice; the paper's last section says that this is likely to
    # bias the term. By choice it has a minibatch of its own, with a′ chosen as for a target.

    def update(self, state: State, data: Tensor, draw: Draw) -> None:
        if self.config.exploration_batch == "fresh":
            draw = choices.with_fresh_batch(draw, data, state["step"], self.ds, self.da)
        super().update(state, data, draw)

    def next_pairs(self, state: State, batch: Batch, target: Target, draw: Draw) -> tuple[Batch, Tensor]:
        """The samples over which the term is averaged, and their a′."""
        if self.config.exploration_batch == "same":
            return batch, target.a2
        fresh = choices.of_fresh_batch(draw)
        batch = Batch(*(fresh[name] for name in Batch._fields))
        with torch.no_grad():
            return batch, self.bellman_target(state, batch, fresh).a2

    # Third display: the final critic training objective L(m, v). The weight ξ is that of Section 3.1.

    def critic_loss(self, state: State, q: Params, batch: Batch, target: Target, draw: Draw) -> Loss:
        if not self.critic.gaussian:
            return super().critic_loss(state, q, batch, target, draw)  # plain weights: the Bellman error is all
        if self.config.freeze_variance:
            q = choices.with_frozen_variance(q)
        h = Hyper(state)
        n = state["step"].clamp_max(self.config.capacity)
        q = self.with_covariance(state, q)
        there, a2 = self.next_pairs(state, batch, target, draw)
        m_p, v_p, v_p_next = choices.here_and_next(self.critic, q, batch, there.s2, a2)
        kl = self.divergence(state, q)
        y, terminated = target.y[:, None], there.terminated[:, None]

        def terms(objective: str) -> Terms:
            form = self.config.complexity
            if objective != "paper":
                return objectives.terms(objective, form, h, y, m_p, v_p, v_p_next, terminated, kl, n)
            return Terms(
                self.bellman_consistency(y, m_p, v_p),
                choices.complexity(form, kl, n, h),  # √(KL/N) in the paper
                self.exploration(v_p_next, terminated),
            )

        bellman, conservative, exploration = self.by_choice(state, "objective", terms)
        loss = bellman + h.conservative[:, None] * conservative - h.xi[:, None] * exploration  # [R, M]

        log = {"bellman": bellman, "conservative": conservative, "exploration": exploration, "kl": kl}
        log |= {"q": m_p.mean(-1), "q_deviation": v_p.sqrt().mean(-1)}
        return loss.sum(1), {name: value.mean(1) for name, value in log.items()}

    # Fourth display: the actor maximises m_p(s, a) + ε √v_p(s, a) − α log π(a|s), a ~ π, with a fresh ε ~ N(0, 1) for
    # each state. `Sac.actor_loss` is −(Q − α log π), here with the sampled Q:

    def value(self, q: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        return choices.sampled_value(self.critic, q, s, a, noise).amin(1)  # m_p + ε √v_p

    # Section 3.1 suggests "updating the prior of an episode with the posterior of the previous episode".

    def end_of_episode(self, state: State, ended: Tensor) -> None:
        if any(config.prior == "moving" for config in self.configs) and self.critic.gaussian:
            moving = Hyper(state).prior == self.Config.choices("prior").index("moving")
            choices.move_prior(state, self.critic.posterior(self.params(state, "critic")), ended & moving)

    # What the above needs: the prior, and noise for each sample of Q.

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        means, variances = zip(*((c.prior_mean, c.prior_variance) for c in self.configs), strict=True)
        prior = choices.first_prior(means, variances, self.critic, device)
        return super().extra_state(seeds, device) | prior | self.first_covariance(variances, device)

    def update_streams(self) -> dict[str, Stream]:
        noise = Stream((self.config.critics, self.config.batch))
        streams = super().update_streams() | {"actor_value": noise}
        if self.config.target == "sampled":
            streams |= {"next_value": noise}
        if self.config.exploration_batch == "fresh":
            streams |= choices.fresh_streams(streams, self.config.batch)
        return streams

    def logged(self) -> tuple[str, ...]:
        return (*super().logged(), *(self.terms if self.critic.gaussian else ()))


@dataclass(frozen=True, kw_only=True)
class Pac4SacConfig(PacBayesConfig, SacConfig):
    shots: int = per_run(
        500, settings.AT_LEAST_ONE, "S: actions drawn per step, of which the critic's favourite is taken"
    )
    shooting: str = structural(
        "independent", ("independent", "thompson"), "samples of Q: one per candidate, or one for all"
    )


class Pac4Sac(PacBayesCritic, Sac):
    """SAC with the PAC-Bayes critic, acting by multiple shooting."""

    title = "PAC-Bayesian soft actor-critic: the paper"
    Config = Pac4SacConfig
    presets: ClassVar = {
        "paper": {},
        "repo": {  # the released code, for comparison
            "critics": 2,
            "depth": 2,
            "norm": False,
            "activation": "relu",
            "prior_mean": 1.0,
            "log_variance": -10.0,
            "freeze_variance": True,
            "complexity": "maurer",
            "learn_alpha": True,
            "lr": 3e-4,
            "batch": 256,
            "capacity": 1_000_000,
            "warmup": 10_000,
            "shoot": "evaluation",
        },
        # What had the least regret in the study `search`, on seeds of its own: learning starts in the first episode,
        # and the posterior is cold, so that the sampled critic is nearly its mean.
        "best": {"warmup": 250, "xi": 0.0, "conservative": 0.01, "log_variance": -9.2},
    }
    updates_of_task: ClassVar = {"paper": 1, "best": 4}
    config: Pac4SacConfig
    configs: tuple[Pac4SacConfig, ...]

    # "Critic-guided optimal action search by multiple shooting": a_1 … a_S ~ π, Q_i | a_i, s ~ μ, act with the a_i of
    # the largest Q_i. `Sac.behaviour` draws and picks, for SAC can be given shots too; the Q_i are these.

    def rank(self, q: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        return choices.candidate_values(self.critic, q, s, a, noise, self.config.shooting).amin(1)

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        streams, shots = super().behaviour_streams(states, evaluating), self.shots(evaluating)
        if max(shots) == 1:
            return streams
        if self.config.shooting == "thompson":
            return streams | {"values": Stream((self.config.critics, self.critic.trunk.width))}
        return streams | {"values": Stream((max(shots), self.config.critics, states), rows=shots)}
