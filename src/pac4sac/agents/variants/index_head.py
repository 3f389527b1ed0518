"""PAC4SAC with a continuous index instead of ensemble members: w(z) = m + A z, z ~ N(0, I), on the
features of one network.

Each z is a critic, Q(s, a; z) = m_p(s, a) + zᵀu(s, a) with u = Aᵀφ + p, where p is a fixed random
function as in the mixture. Both sides of the Bellman equation use the same z, so the uncertainty of
the next value is part of the uncertainty of this value. Acting may hold a z for an episode.
Learning draws no z: with y(z) = ȳ + zᵀy_u,

    E_z (y(z) − Q(z))² = (ȳ − m_p)² + ‖y_u − u‖²,
    ȳ = r + γ(1 − d)(m̄_p′ − α log π′),   y_u = γ(1 − d) ū′ + ζ σ̂ c.

u has its own Bellman equation with a random reward c, which is fixed for each transition. For a
rare transition, ‖u‖ is the standard deviation of a value due to noise of size ζ σ̂. For many
similar transitions, the c cancel.

u does not influence the features or the actor, unless `caution` or `ranking` use it: A is learned
on the features of m_p, and the actor follows m_p.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pac4sac.agents.bounds import gaussian_kl
from pac4sac.agents.nets import Parameter, Params, Trunk
from pac4sac.agents.prior_function import PRIOR, PriorCritic
from pac4sac.agents.replay import Batch
from pac4sac.agents.settings import ANY, NON_NEGATIVE, OPEN_UNIT, Interval, per_run, structural
from pac4sac.agents.state import Draw, Hyper, Loss, State, Target
from pac4sac.agents.tape import Stream
from pac4sac.agents.variants.mixture import Mixture, MixtureConfig
from pac4sac.base.errors import UserError


@dataclass(frozen=True, kw_only=True)
class IndexConfig(MixtureConfig):
    critics: int = structural(8, Interval(1), "d: number of components of the index z")
    kept: float = per_run(
        0.5,
        OPEN_UNIT,
        "p: success probability of the standardised Bernoulli variables in the noise c",
    )
    prior_scale: float = per_run(30.0, NON_NEGATIVE, "scale of the fixed random function")
    caution: float = per_run(0.0, ANY, "κ: the actor maximises the mean of Q minus κ times its std")
    noise: float = per_run(
        1.0, NON_NEGATIVE, "ζ: noise on targets, in units of the root mean square TD error σ̂"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critics > (width := self.critic_width or self.width):
            raise UserError(
                f"critics must be at most the layer width {width}, not {self.critics}, because "
                "this setting is the size of the index z."
            )


class IndexCritic(PriorCritic):
    def __init__(
        self, trunk: Trunk, prior: Trunk, size: int, log_variance: float, scales: Sequence[float]
    ) -> None:
        super().__init__(trunk, prior, 1, scales, True, log_variance)
        head = {PRIOR + "head": Parameter((prior.width, size), (prior.width * size) ** -0.5)}
        # A, initially 0
        self.lay_out(self.parameters | head | {"head.index": Parameter((trunk.width, size))})

    def __call__(self, p: Params, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return m_p and the total variance v_p + ‖u‖², each [R, 1, B]."""
        m, v, u = self.parts(p, s, a)
        return m, v + u.square().sum(1, keepdim=True)

    def parts(
        self, p: Params, s: Tensor, a: Tensor, learning: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return m_p and v_p [R, 1, B], and u [R, d, B]. u has no gradient to the features."""
        phi = self.features(p, s, a)
        m, v = self.head(p, phi)
        assert v is not None
        return m, v, self.spread(p, phi.detach() if learning else phi, s, a)

    def spread(self, p: Params, phi: Tensor, s: Tensor, a: Tensor) -> Tensor:
        fixed = self.of_prior(p)
        u = torch.bmm(phi, p["head.index"]) + torch.bmm(self.prior(fixed, s, a), fixed["head"])
        return u.transpose(1, 2)

    def indexed(self, p: Params, s: Tensor, a: Tensor, noise: Tensor, z: Tensor) -> Tensor:
        """Return Q [R, B, S] for S indices z [R, S, d], each with a sample of the weights from
        noise [R, S, 1, K]."""
        phi = self.features(p, s, a)
        weights = torch.cat([self.sampled_weights(p, each) for each in noise.unbind(1)], -1)
        u = self.spread(p, phi, s, a)
        return (
            torch.bmm(phi, weights)
            + p["head.bias"]
            + torch.bmm(u.transpose(1, 2), z.transpose(1, 2))
        )


class IndexHead(Mixture):
    title = "PAC-Bayesian soft actor-critic whose critic has a Bellman-consistent index"
    Config = IndexConfig
    config: IndexConfig
    critic: IndexCritic

    def mixture_of(self, members: int) -> IndexCritic:
        c = self.config
        return IndexCritic(*self.trunks(), c.critics, c.log_variance, self.numbers("prior_scale"))

    def divergence(self, state: State, theta: Params) -> Tensor:
        """Return E_z KL(N(m + A z, v)‖N(0, v₀)) = KL(N(m, v)‖N(0, v₀)) + ‖A‖²/2v₀, [R, 1]: the KL
        of pairs (z, w), where z has the same distribution in prior and posterior."""
        (m, log_v), prior = self.critic.posterior(theta), Hyper(state).prior_variance
        own = gaussian_kl(m, log_v.exp(), 0.0, prior[:, None, None])
        return own + (theta["head.index"].square().sum((1, 2)) / (2 * prior)).unsqueeze(1)

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Target:
        """Return ȳ in the first row and γ(1 − d) ū′ in the others, [R, 1 + d, B]."""
        a2, log_pi = self.next_action(state, batch.s2, draw)
        m2, _, u2 = self.critic.parts(self.params(state, "critic/target"), batch.s2, a2)
        soft_value = m2 - self.target_penalty(state, log_pi, u2.square().sum(1).sqrt())
        discount = (Hyper(state).gamma[:, None] * (1 - batch.terminated)).unsqueeze(1)
        return Target(
            torch.cat([batch.r.unsqueeze(1) + discount * soft_value, discount * u2], 1), a2
        )

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        p = Hyper(state).kept.view(-1, 1, 1)
        m, v, u = self.critic.parts(theta, batch.s, batch.a, learning=True)
        y, y_u = target.y[:, :1], target.y[:, 1:]
        error = (y - m).square()
        td_square = error.detach().mean((1, 2))
        c = (
            torch.where(draw["lottery"] < p, (1 / p - 1).sqrt(), -(1 / p - 1).rsqrt())
            / self.config.critics**0.5
        )
        y_u = y_u + self.target_noise(state, td_square) * c
        risk = (error + v).mean((1, 2)) + (y_u - u).square().sum(1).mean(-1)
        between = u.square().sum(1)  # [R, B]
        log = {"q": m.mean((1, 2)), "q_deviation": (between + v.squeeze(1)).sqrt().mean(-1)}
        return self.objective(state, theta, risk, between.mean(-1), td_square, log)

    # --- acting: one z per episode

    def member_value(self, state: State, s: Tensor, a: Tensor) -> Tensor:
        theta, noise = self.params(state, "critic"), state["weight_noise"].unsqueeze(1)
        return self.critic.indexed(theta, s, a, noise, state["index"]).squeeze(-1)

    def drawn_values(self, state: State, s: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        # the noise also determines z, which has a negligible effect on the weights
        z = noise[:, :, 0, : self.config.critics]
        return self.critic.indexed(self.params(state, "critic"), s, a, noise, z)

    def draw_member(self, state: State, draw: Draw, due: Tensor) -> None:
        super().draw_member(state, draw, due)
        state["index"].copy_(torch.where(due.view(-1, 1, 1), draw["index"], state["index"]))

    def act_streams(self) -> dict[str, Stream]:
        return super().act_streams() | {"index": Stream((1, self.config.critics))}

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        index = torch.zeros(self.runs, 1, self.config.critics, device=device)
        return super().extra_state(seeds, device) | {"index": index}
