"""PAC-Bayesian soft actor-critic (Tasdighi et al., AABI 2024): Section 3.2 of the paper, in the
order of its text and without additions.

The notation is that of the paper: w_i ~ N(m_i, v_i) are the weights of the critic's last layer, m_p
and v_p are mean and variance of Q, μ is the posterior, μ₀ the prior, and N the number of tuples in
the replay buffer. θ are all parameters of the critic. Extensions of the paper are in `variants/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, Hyper, Loss, State, Target
from pac4sac.agents.bounds import complexity_paper, gaussian_kl
from pac4sac.agents.nets import Critic, Params, squashed_sample, standard_deviation
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig, best_candidate, pairs
from pac4sac.agents.settings import (
    ANY,
    AT_LEAST_ONE,
    BELOW_ONE,
    NON_NEGATIVE,
    REPRODUCTION,
    AgentConfig,
    new_default,
    per_run,
    structural,
)
from pac4sac.agents.tape import Stream


@dataclass(frozen=True, kw_only=True)
class PacBayesConfig(AgentConfig):
    """Hold the settings of the PAC-Bayes critic, with the networks of the paper.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import PacBayesConfig
        >>> PacBayesConfig(xi=0.1).xi
        0.1
    """

    xi: float = per_run(0.01, BELOW_ONE, "ξ: weight of the exploration term")
    conservative: float = per_run(
        1.0, NON_NEGATIVE, "weight of the conservative term, √(KL/N) in the paper"
    )
    critics: int = structural(
        1, AT_LEAST_ONE, "number of critics; targets and the actor use the minimum over all critics"
    )
    log_variance: float = structural(-4.6, ANY, "initial log-variance of the last layer's weights")
    lr: float = new_default(AgentConfig, "lr", 1e-3)
    warmup: int = new_default(AgentConfig, "warmup", 1_000)
    batch: int = new_default(AgentConfig, "batch", 32)
    capacity: int = new_default(AgentConfig, "capacity", 25_000)
    depth: int = new_default(AgentConfig, "depth", 3)
    norm: bool = new_default(AgentConfig, "norm", True)
    activation: str = new_default(AgentConfig, "activation", "silu")


class Objective(NamedTuple):
    """Hold the loss of the PAC-Bayes critic and its terms, each [R, M].

    Attributes:
        loss: Sum of the terms with their weights.
        bellman: Bellman consistency.
        conservative: Conservative term.
        exploration: Exploration term.

    Example:
        >>> import torch
        >>> from pac4sac.agents.api import Objective
        >>> Objective(*torch.ones(4, 2, 1)).loss.shape
        torch.Size([2, 1])
    """

    loss: Tensor
    bellman: Tensor
    conservative: Tensor
    exploration: Tensor


class PacBayesCritic(Agent):
    """Give an agent a randomised critic that minimises a PAC-Bayes bound.

    List it before an actor-critic in the base classes: with `Sac` the result is PAC4SAC.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import PacBayesCritic, Sac
        >>> class MyPac4Sac(PacBayesCritic, Sac):
        ...     title = "SAC with the PAC-Bayes critic, without shooting"
    """

    config: PacBayesConfig

    # First paragraph: Q | s, a = Σ w_i φ_i(s, a) + b, so Q | s, a ~ N(m_p, v_p) with m_p = Σ m_i
    # φ_i + b and v_p = Σ v_i φ_i², the forward pass of `nets.Critic`. There is one critic, while
    # SAC uses the minimum of two.

    def build_critic(self) -> Critic:
        return Critic(
            self.trunk(s=self.ds, a=self.da), self.config.critics, True, self.config.log_variance
        )

    # "The KL divergence term is analytically tractable as well", to a standard normal prior.

    def divergence(self, state: State, theta: Params) -> Tensor:
        """Return Σ_i D_KL(N(m_i, v_i) ‖ N(0, 1)), [R, M]."""
        m, log_v = self.critic.posterior(theta)
        return gaussian_kl(m, log_v.exp())

    def complexity(self, state: State, kl: Tensor, n: Tensor) -> Tensor:
        return complexity_paper(kl, n)

    # The final critic training objective L(m, v), third display. Its target r + γ stop_grad(Q)(s′)
    # is that of SAC, y = r + γ (m_p(s′, a′) − α log π(a′|s′)) with the target critic's mean and a′
    # ~ π. As in the operator T of "Convergence properties", a′ is never from the shooting policy.
    # ξ is the weight of the exploration term, as in Section 3.1.

    def objective(
        self,
        state: State,
        y: Tensor,
        m_p: Tensor,
        v_p: Tensor,
        v_p_next: Tensor,
        kl: Tensor,
        n: Tensor,
    ) -> Objective:
        weight, xi = Hyper(state).conservative[:, None], Hyper(state).xi[:, None]
        bellman = ((y - m_p).square() + v_p).mean(-1)  # R_N(μ), first display
        conservative = self.complexity(state, kl, n)  # √(KL/N), Section 3.1
        # second display, which prints Q(s′, a′) and says "the variance of the critic"
        exploration = v_p_next.mean(-1)
        loss = bellman + weight * conservative - xi * exploration
        return Objective(loss, bellman, conservative, exploration)

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        m_p, v_p, v_p_next = self.current_and_next_moments(state, theta, batch, target, draw)
        kl, n = self.divergence(state, theta), state["step"].clamp_max(self.config.capacity)
        loss, bellman, conservative, exploration = self.objective(
            state, target.y[:, None], m_p, v_p, v_p_next, kl, n
        )
        log = {
            "bellman": bellman,
            "conservative": conservative,
            "exploration": exploration,
            "kl": kl,
        }
        log |= {"q": m_p.mean(-1), "q_deviation": v_p.sqrt().mean(-1)}
        return loss.sum(1), {name: value.mean(1) for name, value in log.items()}

    def current_and_next_moments(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return m_p(s, a), v_p(s, a) and v_p(s′, a′), each [R, M, B], from one pass. v_p(s′, a′)
        is 0 after a terminal state."""
        m, v = self.critic(
            theta, torch.cat([batch.s, batch.s2], 1), torch.cat([batch.a, target.a2], 1)
        )
        assert v is not None
        (m_p, _), (v_p, v_p_next) = m.chunk(2, -1), v.chunk(2, -1)
        return m_p, v_p, v_p_next * (1 - batch.terminated[:, None])

    # "The Q function is sampled each time it is evaluated": m_p(s, a) + ε √v_p(s, a), ε ~ N(0, 1).

    def sample(self, theta: Params, s: Tensor, a: Tensor, epsilon: Tensor) -> Tensor:
        """Return sampled values [R, M, B], with one ε for each pair (s, a)."""
        m_p, v_p = self.critic(theta, s, a)
        assert v_p is not None
        return m_p + epsilon * standard_deviation(v_p)

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        if noise is None:
            return super().value(theta, s, a, None)
        return self.sample(theta, s, a, noise).amin(1)

    def update_streams(self) -> dict[str, Stream]:
        return super().update_streams() | {
            "actor_value": Stream((self.config.critics, self.config.batch))
        }

    def logged(self) -> tuple[str, ...]:
        return (*super().logged(), "bellman", "conservative", "exploration", "kl", "q_deviation")


@dataclass(frozen=True, kw_only=True)
class Pac4SacConfig(PacBayesConfig, SacConfig):
    """Hold the settings of PAC4SAC, which are those of its critic and of SAC.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import Pac4SacConfig
        >>> Pac4SacConfig(shots=50).shots
        50
    """

    alpha: float = new_default(SacConfig, "alpha", 0.2)
    learn_alpha: bool = new_default(SacConfig, "learn_alpha", False)
    shots: int = new_default(SacConfig, "shots", 500)
    log_std_max: float = new_default(SacConfig, "log_std_max", 1.0)


class Pac4Sac(PacBayesCritic, Sac):
    """Define PAC4SAC: SAC with the PAC-Bayes critic and shooting.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import Pac4Sac, Pac4SacConfig
        >>> Pac4Sac([Pac4SacConfig(), Pac4SacConfig(xi=0.1)], ds=3, da=1).runs
        2
    """

    title = "PAC-Bayesian soft actor-critic: the paper"
    Config = Pac4SacConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "reproduction": {},
        # The settings with the lowest regret in the study `search`. Learning starts in the first
        # episode, and sampled values are close to the mean.
        "best": {"warmup": 250, "xi": 0.0, "conservative": 0.01, "log_variance": -9.2},
        # The paper's objective and shooting with the networks, batches and learned α of SAC.
        "mujoco": {
            **{name: getattr(SacConfig, name) for name in REPRODUCTION},
            **{"alpha": 1.0, "learn_alpha": True, "log_std_max": SacConfig.log_std_max},
        },
    }
    updates_of_task: ClassVar[Mapping[str, int]] = {"reproduction": 1, "best": 4}
    config: Pac4SacConfig

    # Fourth display: argmax_π of the mean of m_p(s, a) + ε √v_p(s, a) − α log π(a|s), a ~ π.

    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        alpha, theta = self.alpha(state), self.params(state, "critic")
        a, log_pi = squashed_sample(*self.actor(pi, batch.s), draw["actor"])
        q = self.value(theta, batch.s, a, draw["actor_value"])  # m_p + ε √v_p
        loss = (alpha[:, None] * log_pi - q).mean(-1)
        return loss, {"entropy": -log_pi.mean(-1), "alpha": alpha}

    # "Critic-guided optimal action search by multiple shooting": for samples a_1, …, a_S | s ~ π,
    # draw Q_i | a_i, s ~ μ, and act with the a_i that has the largest Q_i.

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        a = self.candidates(state, s, draw)  # [R, S, B, da]
        if a.shape[1] == 1:
            return a.squeeze(1)
        theta = self.params(state, "critic")
        epsilon = draw["values"].transpose(1, 2).flatten(2)  # [R, M, S·B]
        q = self.value(theta, *pairs(s, a), epsilon).view(a.shape[:-1])  # [R, S, B]
        return best_candidate(a, q, Hyper(state).shots)

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        streams, shots = super().behaviour_streams(states, evaluating), self.shots(evaluating)
        noise = Stream((max(shots), self.config.critics, states), rows=shots)
        return streams | ({"values": noise} if max(shots) > 1 else {})
