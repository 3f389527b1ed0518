"""PAC4SAC with a full covariance of the last layer, from Bayesian linear regression on its
features.

The paper trains a diagonal posterior. At its optimum, all φ of the same length have about the same
variance. Here the covariance Σ of the weights is computed from data. v_p = φᵀ Σ φ is small in
directions of φ that the data contain, and as large as under the prior in others. The mean is still
trained with gradient descent. After each episode,

    G ← (1 − 1/N) G + mean φφᵀ,   Σ⁻¹ = Σ₀⁻¹ + G/σ²,   σ² = σ̂²/(1 − γ)²,   Σ₀ = I · E[y²]/E‖φ‖².

G covers the N transitions of the replay buffer. σ² follows from the running mean σ̂² of squared TD
errors, because the error of a value sums TD errors over a horizon. Σ₀ allows values as large as the
targets.

The state stores a square root S of Σ = S Sᵀ: v_p = ‖Sᵀφ‖², and m + S ε is a sample of the weights.
The standard deviation of Q exceeds the differences between candidates, so shooting ranks them by
the mean of Q.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.nets import Critic, Params, Trunk, linear_head
from pac4sac.agents.pac4sac import Pac4Sac
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac
from pac4sac.agents.tape import Stream

ROOT = "posterior/root"  # S, [R, M, K, K]
LOG_DETERMINANT = "posterior/log_determinant"  # ln det Σ, [R, M]; S is not triangular
INFORMATION = "information"  # G, [R, M, K, K]
# total weight in G, and running means of squares, each [R]
SQUARES = ("information_weight", "td_square", "y_square")
PRIOR = "prior_log_variance"  # of Σ₀, [R, M, K]
SLOWEST = 1e-3  # weight of a new square in a running mean
LEAST = 1e-8


class FullCovarianceCritic(Critic):
    """Compute a critic whose parameters include the covariance. Adam and Polyak averaging do not
    change the covariance."""

    def __init__(self, trunk: Trunk, members: int = 1) -> None:
        super().__init__(trunk, members)
        self.gaussian = True

    def head(self, p: Params, phi: Tensor) -> tuple[Tensor, Tensor | None]:
        m = linear_head(p, phi).squeeze(-1)
        v = torch.bmm(phi, p[ROOT].flatten(0, 1)).square().sum(-1)  # ‖Sᵀφ‖²
        return self.per_member(m), self.per_member(v)

    def posterior(self, p: Params) -> tuple[Tensor, Tensor]:
        """Return mean and marginal log-variance of the weights, each [R, M, K]."""
        return self.per_member(p["head.weight"].squeeze(-1)), p[ROOT].square().sum(-1).log()

    def sampled_weights(self, p: Params, noise: Tensor) -> Tensor:
        return torch.baddbmm(
            p["head.weight"], p[ROOT].flatten(0, 1), noise.reshape(-1, self.trunk.width, 1)
        )


class FullCovariance(Pac4Sac):
    title = "PAC4SAC with a full covariance from regression on the replay buffer"
    prior_moves: ClassVar[bool] = True
    critic: FullCovarianceCritic

    def build_critic(self) -> FullCovarianceCritic:
        return FullCovarianceCritic(self.trunk(s=self.ds, a=self.da), self.config.critics)

    def params(self, state: State, name: str) -> Params:
        p = super().params(state, name)
        return with_covariance(state, p) if name.startswith("critic") else p

    # --- learning: the variances are in the loss, but not in its gradient

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        return super().critic_loss(state, with_covariance(state, theta), batch, target, draw)

    def current_and_next_moments(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> tuple[Tensor, Tensor, Tensor]:
        moments = super().current_and_next_moments(state, theta, batch, target, draw)
        m_p, v_p, v_p_next = moments
        # Otherwise, constant features would be the easiest way to reduce the variance.
        return m_p, v_p.detach(), v_p_next.detach()

    def divergence(self, state: State, theta: Params) -> Tensor:
        """Return D_KL(N(m, Σ) ‖ N(0, Σ₀)), [R, M]."""
        m, log_v = self.critic.posterior(theta)
        distance = (log_v.exp() + m.square()) * (-state[PRIOR]).exp() - 1
        return 0.5 * (distance.sum(-1) + state[PRIOR].sum(-1) - theta[LOG_DETERMINANT])

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        log = super().learn(state, batch, draw, active)
        with torch.no_grad():
            y = self.bellman_target(state, batch, draw).y
        n = state["step"].clamp(1, self.config.capacity)
        theta = self.params(state, "critic")
        add_batch(self.critic, theta, state, batch, y, n, active & state["alive"])
        return log

    def end_of_episode(self, state: State, ended: Tensor) -> None:
        super().end_of_episode(state, ended)
        regress(state, ended)

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        shape = (self.runs, self.critic.members, self.critic.trunk.width)
        unit = torch.eye(shape[-1], device=device).repeat(*shape[:2], 1, 1)
        squares = {name: torch.zeros(self.runs, device=device) for name in SQUARES}
        return super().extra_state(seeds, device) | {
            PRIOR: torch.zeros(shape, device=device),
            ROOT: unit,
            LOG_DETERMINANT: torch.zeros(shape[:2], device=device),
            INFORMATION: torch.zeros_like(unit),
            **squares,
        }

    # --- acting: candidates are ranked by the mean of Q, as in SAC

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        return Sac.behaviour(self, state, s, draw)

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        return Sac.behaviour_streams(self, states, evaluating)


def with_covariance(state: State, theta: Params) -> Params:
    return {**theta, ROOT: state[ROOT], LOG_DETERMINANT: state[LOG_DETERMINANT]}


@torch.no_grad()
def add_batch(
    critic: Critic,
    theta: Params,
    state: State,
    batch: Batch,
    y: Tensor,
    n: Tensor,
    observing: Tensor,
) -> None:
    """Add a batch with its targets [R, B] to the statistics; the replay buffer holds n
    transitions."""
    phi = critic.features(theta, batch.s, batch.a)  # [R·M, B, K]
    error = critic.head(theta, phi)[0] - y[:, None]
    seen = torch.bmm(phi.transpose(1, 2), phi).view_as(state[INFORMATION]) / phi.shape[1]
    kept, rate = 1 - 1 / n, state["critic/count"].clamp_min(1).reciprocal().clamp_min(SLOWEST)
    now = {INFORMATION: kept * state[INFORMATION] + seen, SQUARES[0]: kept * state[SQUARES[0]] + 1}
    now |= {"td_square": state["td_square"].lerp(error.square().mean((1, 2)), rate)}
    now |= {"y_square": state["y_square"].lerp(y.square().mean(-1), rate)}
    replace_chosen(state, now, observing)


@torch.no_grad()
def regress(state: State, ended: Tensor) -> None:
    """Compute the covariance of the learning runs whose episode ended. This code is neither
    compiled nor captured, so it can factorise matrices."""
    information, width = state[INFORMATION].double(), state[INFORMATION].shape[-1]
    td_square, y_square = (state[name].double().clamp_min(LEAST) for name in SQUARES[1:])
    noise = td_square / (1 - Hyper(state).gamma.double()).square()
    # E‖φ‖², [R, M]
    length = (
        information.diagonal(dim1=-2, dim2=-1).sum(-1) / state[SQUARES[0]].clamp_min(1)[:, None]
    )
    variance = y_square[:, None] / length.clamp_min(LEAST)
    unit = torch.eye(width, dtype=torch.float64, device=information.device)
    precision = information / noise.view(-1, 1, 1, 1) + unit / variance[..., None, None]
    factor, failed = torch.linalg.cholesky_ex(precision)  # Σ⁻¹ = L Lᵀ, therefore S = L⁻ᵀ
    root = torch.linalg.solve_triangular(factor, unit, upper=False).mT
    now = {ROOT: root, LOG_DETERMINANT: -2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)}
    now |= {PRIOR: variance.log().unsqueeze(-1).expand(-1, -1, width)}
    replace_chosen(state, now, ended & (state[SQUARES[0]] > 0) & (failed == 0).all(1))


def replace_chosen(state: State, values: State, chosen: Tensor) -> None:
    """Replace tensors of the state for the chosen runs [R]."""
    for name, value in values.items():
        runs = chosen.view(-1, *[1] * (value.dim() - 1))
        state[name].copy_(torch.where(runs, value.to(state[name].dtype), state[name]))
