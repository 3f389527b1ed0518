"""Objectives of the critic beyond the paper's, each again a risk, a conservative term and an exploration term.

The paper's bound is for losses in [0, 1], and its squared error is not one. Four objectives replace it by
1 − exp(−(Q − y)²/ε²), whose mean over Q ~ N(m_p, v_p) is known in closed form, and take a bound that is proven for it:
what the bound adds to the risk is their conservative term. The fifth, second-order, bounds the risk of the mean critic.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from pac4sac.agents import bounds, choices
from pac4sac.agents.base import Hyper
from pac4sac.agents.settings import Interval
from pac4sac.base.errors import UserError

if TYPE_CHECKING:
    from pac4sac.agents.pac4sac import PacBayesConfig

Bound = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # of risk, KL, N, δ and λ

# λ is held: at its optimum the λ-bound has the slope of the quadratic one, which would make them the same objective.
BOUNDED: dict[str, Bound] = {
    "classic": lambda risk, kl, n, delta, lam: bounds.classic(risk, kl, n, delta),
    "quadratic": lambda risk, kl, n, delta, lam: bounds.quadratic(risk, kl, n, delta),
    "lambda": bounds.lambda_bound,
    "kl": lambda risk, kl, n, delta, lam: bounds.kl_bound(risk, kl, n, delta),
}
LAMBDA = Interval(0, 2, low_open=True, high_open=True)
OBJECTIVES = ("paper", "second-order", *BOUNDED)


class Terms(NamedTuple):
    """Of the loss risk + conservative − ξ · exploration, each [R, M]."""

    risk: Tensor
    conservative: Tensor
    exploration: Tensor


def terms(
    objective: str,
    form: str,
    h: Hyper,
    y: Tensor,
    m_p: Tensor,
    v_p: Tensor,
    v_p_next: Tensor,
    terminated: Tensor,
    kl: Tensor,
    n: Tensor,
) -> Terms:
    if objective == "second-order":
        # The loss of pairs of critics, (m_p − y)², is the paper's Bellman term less v_p(s, a): it has an exploration
        # term of weight 1 in it and bears no other. Pairs make the KL count twice.
        risk = bounds.tandem_loss(m_p, y).mean(-1)
        return Terms(risk, choices.complexity(form, 2 * kl, n, h), torch.zeros_like(risk))
    epsilon = h.loss_scale[:, None, None]
    risk = bounds.bounded_loss(m_p, v_p, y, epsilon).mean(-1)
    bound = BOUNDED[objective](risk, kl, n, h.delta[:, None], h.bound_lambda[:, None])
    # The exploration term is bounded as the risk is, or it would outweigh it: the loss that the variance of the next
    # value makes by itself, v_p(s′, a′)/ε² while that is small.
    spread = bounds.bounded_loss(0.0, v_p_next, 0.0, epsilon)
    return Terms(risk, bound - risk, (spread * (1 - terminated)).mean(-1))


def refuse_contradictions(c: "PacBayesConfig") -> None:
    if c.objective == "second-order" and c.xi > 0:
        raise UserError("The second-order objective has its exploration term in it; set xi=0 with it.")
    if c.objective in BOUNDED and c.loss_range != 1:
        raise UserError(
            f"The loss of the objective {c.objective} lies in [0, 1]; leave loss_range at 1, set loss_scale."
        )
    if c.head == "full" and c.prior == "moving":
        raise UserError("The full head carries its posterior on by itself; leave prior=fixed with it.")
    if c.head == "full" and c.freeze_variance:
        raise UserError("The full head has no trained variances to freeze; leave freeze_variance=false with it.")
    if c.exploration_batch == "fresh" and c.objective == "second-order":
        raise UserError(
            "The second-order objective has no exploration term apart; leave exploration_batch=same with it."
        )
    if c.exploration_batch == "fresh" and c.head != "gaussian":
        raise UserError(f"The {c.head} head learns from no exploration term; leave exploration_batch=same with it.")
