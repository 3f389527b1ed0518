"""PAC4SAC with a bounded loss and a PAC-Bayes bound that is proven for this loss.

The paper's bound is for losses in [0, 1], but its squared error can be larger. Here the loss is
1 − exp(−(Q − y)²/ε²), whose mean over Q ~ N(m_p, v_p) is known in closed form. The conservative
term is the bound minus the risk. Derivations are in docs/algorithms/variants.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from pac4sac.agents import bounds
from pac4sac.agents.base import Hyper, State
from pac4sac.agents.pac4sac import Objective, Pac4Sac, Pac4SacConfig
from pac4sac.agents.settings import OPEN_UNIT, POSITIVE, Interval, per_run, structural

BOUNDS: dict[str, Callable[..., Tensor]] = {  # functions of risk, KL, N and δ
    "classic": bounds.maurer,
    "quadratic": bounds.quadratic,
    "lambda": bounds.lambda_bound,
    "kl": bounds.kl_bound,
}


@dataclass(frozen=True, kw_only=True)
class BoundedConfig(Pac4SacConfig):
    bound: str = structural("kl", tuple(BOUNDS), "bound that the critic minimises")
    loss_scale: float = per_run(
        10.0, POSITIVE, "ε: scale of the bounded loss, which saturates for errors larger than ε"
    )
    bound_lambda: float = per_run(
        1.0, Interval(0, 2, low_open=True, high_open=True), "λ of the bound lambda"
    )
    delta: float = per_run(0.05, OPEN_UNIT, "δ: probability that the bound fails")


class Bounded(Pac4Sac):
    title = "PAC4SAC with a bounded loss and a bound that is valid for this loss"
    Config = BoundedConfig
    config: BoundedConfig

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
        h = Hyper(state)
        epsilon = h.loss_scale[:, None, None]
        risk = bounds.bounded_loss(m_p, v_p, y, epsilon).mean(-1)
        # λ is fixed: with the optimal λ, the gradient would be that of the quadratic bound.
        fixed = {"lam": h.bound_lambda[:, None]} if self.config.bound == "lambda" else {}
        bound = BOUNDS[self.config.bound](risk, kl, n, h.delta[:, None], **fixed)
        conservative = bound - risk
        # The loss due to the variance of the next value, about v_p(s′, a′)/ε² if that is small. It
        # is bounded like the risk, which it would otherwise outweigh.
        exploration = bounds.bounded_loss(0.0, v_p_next, 0.0, epsilon).mean(-1)
        loss = risk + h.conservative[:, None] * conservative - h.xi[:, None] * exploration
        return Objective(loss, risk, conservative, exploration)
