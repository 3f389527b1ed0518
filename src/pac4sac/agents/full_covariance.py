"""The last layer with a full covariance: Bayesian linear regression on the features φ, followed
recursively (the head `full`) or done anew after each episode (`regression`, at the end of this
file).

The paper's diagonal posterior is trained, and its optimum has about the same variance wherever φ is
as long. Here the covariance Σ of the weights is what the data leave open: v_p = φᵀ Σ φ is small
along features that were visited and as large as under the prior along others. The mean stays
trained by gradient, since features and targets move with every update and a mean found by recursion
would fit those of long ago; old observations of φ are forgotten instead:

    Σ⁻¹ ← f Σ⁻¹ + (1 − f) Σ₀⁻¹ + φφᵀ/σ²

Kept is a square root S of Σ = S Sᵀ, which rounding cannot make indefinite and which needs no
factorisation: a rank-one term changes it by a rank-one term, v_p = ‖Sᵀφ‖², and m + S ε is a draw of
the weights."""

import torch
from torch import Tensor

from pac4sac.agents.base import Hyper, State
from pac4sac.agents.nets import Critic, Params, Trunk, linear_head
from pac4sac.agents.replay import Batch
from pac4sac.agents.settings import Interval

ROOT = "posterior/root"  # S, [R, M, K, K]
LOG_DETERMINANT = (
    "posterior/log_determinant"  # ln det Σ, [R, M], followed along: S is not triangular
)
# Each weight has its turn once in K updates, and what the prior holds of it must last until then:
# 0.99²⁵⁶ = 0.08.
FORGETTING = Interval(0.99, 1)


class FullCovarianceCritic(Critic):
    """Its parameters come with the covariance, which neither Adam nor Polyak averaging may
    touch."""

    def __init__(self, trunk: Trunk, members: int = 1) -> None:
        super().__init__(trunk, members)
        self.gaussian = True

    def head(self, p: Params, phi: Tensor) -> tuple[Tensor, Tensor | None]:
        m = linear_head(p, phi).squeeze(-1)
        v = torch.bmm(phi, p[ROOT].flatten(0, 1)).square().sum(-1)  # ‖Sᵀφ‖²
        return self.per_member(m), self.per_member(v)

    def posterior(self, p: Params) -> tuple[Tensor, Tensor]:
        """Mean and marginal log-variance of the weights, each [R, M, K]."""
        return self.per_member(p["head.weight"].squeeze(-1)), p[ROOT].square().sum(-1).log()

    def sampled_weights(self, p: Params, noise: Tensor) -> Tensor:
        return torch.baddbmm(
            p["head.weight"], p[ROOT].flatten(0, 1), noise.reshape(-1, self.trunk.width, 1)
        )

    def divergence(self, p: Params, m0: Tensor, log_v0: Tensor) -> Tensor:
        """D_KL of N(m, Σ) to a prior of independent weights N(m₀, v₀), [R, M]."""
        m, log_v = self.posterior(p)
        distance = (log_v.exp() + (m - m0).square()) * (-log_v0).exp() - 1
        return 0.5 * (distance.sum(-1) + log_v0.sum(-1) - p[LOG_DETERMINANT])


@torch.no_grad()
def observe(critic: Critic, theta: Params, state: State, batch: Batch, observing: Tensor) -> None:
    """Take in the first transition of the batch: any is a uniform draw from the buffer, seen with
    the features of today. The prior comes back one weight at a time, to each in its turn what K
    updates owe it."""
    h, width = Hyper(state), critic.trunk.width
    # [R, M, K]
    phi = critic.per_member(critic.features(theta, batch.s[:, :1], batch.a[:, :1]).squeeze(1))
    # [R, M, 1]
    turn = (state["critic/count"].long() % width).view(-1, 1, 1).expand(-1, critic.members, -1)
    precision = (-state["prior_log_variance"].gather(-1, turn).squeeze(-1)).exp()
    owed = (1 - h.forgetting)[:, None] * width * precision

    # rounded, and its logarithm below is of the rounded one, or the two would part
    growth = h.forgetting.rsqrt()
    root = state[ROOT] * growth.view(-1, 1, 1, 1)
    row = root.gather(-2, turn.unsqueeze(-1).expand(-1, -1, -1, width)).squeeze(-2)
    root, fall = with_observation(root, row * owed.sqrt().unsqueeze(-1))
    g = torch.matmul(phi.unsqueeze(-2), root).squeeze(-2) / h.observation_variance.sqrt().view(
        -1, 1, 1
    )
    root, more = with_observation(root, g)
    log_determinant = state[LOG_DETERMINANT] + 2 * width * growth.log()[:, None] - fall - more
    state[ROOT].copy_(torch.where(observing.view(-1, 1, 1, 1), root, state[ROOT]))
    state[LOG_DETERMINANT].copy_(
        torch.where(observing[:, None], log_determinant, state[LOG_DETERMINANT])
    )


def first(variance: Tensor) -> State:
    """That of the prior, whose variance [R, M, K] is the same for all weights of a member."""
    return {
        ROOT: torch.diag_embed(variance.sqrt()),
        LOG_DETERMINANT: variance.shape[-1] * variance[..., 0].log(),
    }


# --- Regression on whole batches, done anew after each episode:
#
#   G ← (1 − 1/N) G + mean φφᵀ,   Σ⁻¹ = Σ₀⁻¹ + G/σ²,   σ² = σ̂²/(1 − γ)²,   Σ₀ = I · E[y²]/E‖φ‖².
#
# G comes to count the N transitions of the buffer. A value errs by what TD errors add up to over a
# horizon, hence σ², with σ̂² their running mean square; before there are data it may be as large as
# targets are, hence Σ₀.

INFORMATION = "information"  # G, [R, M, K, K]
# what G adds up to, and running means, each [R]
SQUARES = ("information_weight", "td_square", "y_square")
SLOWEST = 1e-3  # weight of a new square in a running mean
LEAST = 1e-8


def no_information(variance: Tensor) -> State:
    runs, members, width = variance.shape
    squares = {name: variance.new_zeros(runs) for name in SQUARES}
    return {INFORMATION: variance.new_zeros(runs, members, width, width), **squares}


@torch.no_grad()
def gather(
    critic: Critic,
    theta: Params,
    state: State,
    batch: Batch,
    y: Tensor,
    n: Tensor,
    observing: Tensor,
) -> None:
    """Take in a batch with its targets [R, B], of a buffer of n transitions."""
    phi = critic.features(theta, batch.s, batch.a)  # [R·M, B, K]
    error = critic.head(theta, phi)[0] - y[:, None]
    seen = torch.bmm(phi.transpose(1, 2), phi).view_as(state[INFORMATION]) / phi.shape[1]
    kept, rate = 1 - 1 / n, state["critic/count"].clamp_min(1).reciprocal().clamp_min(SLOWEST)
    now = {INFORMATION: kept * state[INFORMATION] + seen, SQUARES[0]: kept * state[SQUARES[0]] + 1}
    now |= {"td_square": state["td_square"].lerp(error.square().mean((1, 2)), rate)}
    now |= {"y_square": state["y_square"].lerp(y.square().mean(-1), rate)}
    for name, value in now.items():
        chosen = observing.view(-1, *[1] * (value.dim() - 1))
        state[name].copy_(torch.where(chosen, value, state[name]))


@torch.no_grad()
def regress(state: State, ended: Tensor) -> None:
    """The covariance of runs whose episode ended, once they learn. An episode's end is neither
    compiled nor captured, so that a matrix may be factorised."""
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
    factor, failed = torch.linalg.cholesky_ex(precision)  # Σ⁻¹ = L Lᵀ, hence S = L⁻ᵀ
    root = torch.linalg.solve_triangular(factor, unit, upper=False).mT
    now = {ROOT: root, LOG_DETERMINANT: -2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)}
    now |= {"prior_log_variance": variance.log().unsqueeze(-1).expand(-1, -1, width)}
    due = ended & (state[SQUARES[0]] > 0) & (failed == 0).all(1)
    for name, value in now.items():
        chosen = due.view(-1, *[1] * (value.dim() - 1))
        state[name].copy_(torch.where(chosen, value.to(state[name].dtype), state[name]))


def with_observation(root: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The root after Σ⁻¹ gained uuᵀ, from g = Sᵀu, and by how much ln det Σ fell (Potter 1963): Σ −
    Σuuᵀ Σ/d = S (I − ggᵀ/d) Sᵀ with d = 1 + gᵀg, and I − ggᵀ/d is the square of I − ggᵀ/(d +
    √d)."""
    length = g.square().sum(-1, keepdim=True)
    d = 1 + length
    along = torch.matmul(root, (g / (d + d.sqrt())).unsqueeze(-1))  # [R, M, K, 1]
    return root - along * g.unsqueeze(-2), length.log1p().squeeze(-1)
