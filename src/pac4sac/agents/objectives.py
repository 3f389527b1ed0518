"""Objectives of the critic beyond the paper's, each again a risk, a conservative term and an exploration term.

The paper's bound is for losses in [0, 1], and its squared error is not one. Four objectives replace it by
1 − exp(−(Q − y)²/ε²), whose mean over Q ~ N(m_p, v_p) is known in closed form, and take a bound that is proven for it:
what the bound adds to the risk is their conservative term. The fifth, second-order, bounds the risk of the mean critic.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pac4sac.agents import bounds
from pac4sac.agents.base import Hyper
from pac4sac.agents.pac4sac import Objective
from pac4sac.agents.settings import Interval

Bound = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # of risk, KL, N, δ and λ

# λ is held: at its optimum the λ-bound has the slope of the quadratic one, which would make them the same objective.
BOUNDED: dict[str, Bound] = {
    "classic": lambda risk, kl, n, delta, lam: bounds.maurer(risk, kl, n, delta),
    "quadratic": lambda risk, kl, n, delta, lam: bounds.quadratic(risk, kl, n, delta),
    "lambda": bounds.lambda_bound,
    "kl": lambda risk, kl, n, delta, lam: bounds.kl_bound(risk, kl, n, delta),
}
# The conservative term from KL, N and δ. The paper's training objective has no δ; "mcallester" is the bound as the
# paper prints it, the last two are proven.
COMPLEXITY: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "paper": lambda kl, n, delta: bounds.complexity_paper(kl, n),
    "mcallester": bounds.complexity_mcallester,
    "mcallester-2003": bounds.complexity_mcallester_2003,
    "maurer": bounds.complexity_maurer,
}
LAMBDA = Interval(0, 2, low_open=True, high_open=True)
OBJECTIVES = ("paper", "second-order", *BOUNDED)


def second_order(h: Hyper, y: Tensor, m_p: Tensor, complexity: Tensor) -> Objective:
    """The loss of pairs of critics, (m_p − y)², is the paper's Bellman term less v_p(s, a): it has an exploration term
    of weight 1 in it and bears no other. Pairs make the KL in `complexity` count twice."""
    risk = (m_p - y).square().mean(-1)
    return Objective(risk + h.conservative[:, None] * complexity, risk, complexity, torch.zeros_like(risk))


def bounded(
    name: str, h: Hyper, y: Tensor, m_p: Tensor, v_p: Tensor, v_p_next: Tensor, kl: Tensor, n: Tensor
) -> Objective:
    epsilon = h.loss_scale[:, None, None]
    risk = bounds.bounded_loss(m_p, v_p, y, epsilon).mean(-1)
    conservative = BOUNDED[name](risk, kl, n, h.delta[:, None], h.bound_lambda[:, None]) - risk
    # The exploration term is bounded as the risk is, or it would outweigh it: the loss that the variance of the next
    # value makes by itself, v_p(s′, a′)/ε² while that is small.
    exploration = bounds.bounded_loss(0.0, v_p_next, 0.0, epsilon).mean(-1)
    loss = risk + h.conservative[:, None] * conservative - h.xi[:, None] * exploration
    return Objective(loss, risk, conservative, exploration)
