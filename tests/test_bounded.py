"""`pac4sac-bounded`: the terms of its objectives with numbers worked by hand, their gradients, and
runs alone and in cohorts."""

import math
from typing import Any

import pytest
import torch
from scipy.optimize import brentq
from small_cohorts import (
    assert_compiled_learns_as_eager,
    column,
    hand_computed_agent,
    make_learner,
    set_head,
    trace_only,
    train,
)
from torch import Tensor

from pac4sac.agents import bounds, make_config
from pac4sac.agents.base import Agent, State, Target
from pac4sac.agents.replay import Batch
from pac4sac.agents.variants.bounded import BOUNDS
from pac4sac.base.errors import UserError

HEAD = {"weight": [0.5, -0.25], "bias": 0.1, "variance": [0.04, 0.01]}
BATCH = Batch(
    s=column(1.0, 2.0),
    a=column(0.5, 1.0),
    r=torch.tensor([[1.0, -1.0]]),
    s2=column(2.0, 1.0),
    terminated=torch.tensor([[0.0, 1.0]]),
)
TARGET = Target(y=torch.tensor([[1.0, 0.0]]), a2=column(0.5, 0.5))
N, DELTA, EPSILON = 16, 0.1, 2.0
# As in test_agents_equations.py: φ = (s, a), so m_p = 0.5 s − 0.25 a + 0.1 and v_p = 0.04 s² + 0.01
# a².
M_P, V_P, V_P_NEXT = (0.475, 0.85), (0.0425, 0.17), 0.04 * 4 + 0.01 * 0.25
KL = 0.5 * (0.29 - 1 + 3.21887582) + 0.5 * (0.0725 - 1 + 4.60517019)
KAPPA = (KL + math.log(2 * 4 / DELTA)) / (2 * N)


def on_paper(**settings: Any) -> tuple[Agent, State]:
    algo = "pac4sac-bounded" if settings.get("bound") else "pac4sac"
    own = {"delta": DELTA, "loss_scale": EPSILON} if settings.get("bound") else {}
    agent, state = hand_computed_agent(algo, **(own | settings))
    set_head(agent, state, "critic", HEAD)
    state["step"].fill_(N)
    return agent, state


def terms(**settings: Any) -> dict[str, float]:
    agent, state = on_paper(**settings)
    loss, log = agent.critic_loss(state, agent.params(state, "critic"), BATCH, TARGET, {})
    return {"loss": loss.item()} | {name: value.item() for name, value in log.items()}


def loss_in_unit(m: float, v: float, y: float) -> float:
    return 1 - (1 + 2 * v / EPSILON**2) ** -0.5 * math.exp(-((m - y) ** 2) / (EPSILON**2 + 2 * v))


RISK = (loss_in_unit(M_P[0], V_P[0], 1.0) + loss_in_unit(M_P[1], V_P[1], 0.0)) / 2


def kl_inverse(q: float, level: float) -> float:
    def excess(p: float) -> float:
        return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p)) - level

    return brentq(excess, q, 1 - 1e-12)


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("classic", RISK + math.sqrt(KAPPA)),
        ("quadratic", (math.sqrt(RISK + KAPPA) + math.sqrt(KAPPA)) ** 2),
        ("lambda", RISK / (1 - 0.4) + 2 * KAPPA / (0.8 * (1 - 0.4))),
        ("kl", kl_inverse(RISK, 2 * KAPPA)),
    ],
)
def test_the_bounded_objective_is_the_bound_minus_the_bounded_exploration_term(
    name: str, bound: float
) -> None:
    exploration = (1 - (1 + 2 * V_P_NEXT / EPSILON**2) ** -0.5) / 2  # the second episode ended
    found = terms(bound=name, bound_lambda=0.8, xi=0.3)
    expected = {"bellman": RISK, "conservative": bound - RISK, "exploration": exploration, "kl": KL}
    assert {term: found[term] for term in expected} == pytest.approx(expected, rel=1e-5)
    assert found["loss"] == pytest.approx(bound - 0.3 * exploration, rel=1e-5)


def test_the_conservative_weight_scales_what_the_bound_adds_to_the_risk() -> None:
    found = terms(bound="quadratic", conservative=0.0, xi=0.0)
    assert found["loss"] == pytest.approx(RISK, rel=1e-5)


def test_the_bounded_loss_of_small_errors_is_the_scaled_squared_loss() -> None:
    scale = 1000.0
    bounded, paper = terms(bound="classic", loss_scale=scale), terms()
    assert bounded["bellman"] * scale**2 == pytest.approx(paper["bellman"], rel=1e-3)
    assert bounded["exploration"] * scale**2 == pytest.approx(paper["exploration"], rel=1e-3)


# --- gradients


@pytest.mark.parametrize("bound", BOUNDS)
def test_gradients_match_finite_differences(bound: str) -> None:
    agent, single = on_paper(bound=bound)
    state = {name: t.double() if t.is_floating_point() else t for name, t in single.items()}
    q = {name: view.clone() for name, view in agent.params(state, "critic").items()}
    batch = Batch(*(part.double() for part in BATCH))
    target = Target(*(part.double() for part in TARGET))

    def loss(weight: Tensor, log_variance: Tensor, bias: Tensor) -> Tensor:
        head = {"head.weight": weight, "head.log_variance": log_variance, "head.bias": bias}
        return agent.critic_loss(state, q | head, batch, target, {})[0]

    leaves = [q[f"head.{name}"].requires_grad_() for name in ("weight", "log_variance", "bias")]
    assert torch.autograd.gradcheck(loss, leaves, eps=1e-6, atol=1e-7, rtol=1e-4)


def test_the_lambda_bound_at_the_best_lambda_has_the_gradient_of_the_quadratic_bound() -> None:
    """So to alternate between λ in closed form and the critic is to train by the quadratic
    objective."""
    leaves = [torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in (0.07, 20.0)]
    best = bounds.optimal_lambda(*leaves, 500, DELTA).detach()
    alternating = torch.autograd.grad(bounds.lambda_bound(*leaves, 500, DELTA, best).sum(), leaves)
    quadratic = torch.autograd.grad(bounds.quadratic(*leaves, 500, DELTA).sum(), leaves)
    torch.testing.assert_close(alternating, quadratic)


# --- in use


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_run_learns_the_same_alone_and_in_a_cohort(bound: str) -> None:
    per_run = [
        {"loss_scale": 10.0, "bound_lambda": 0.5, "delta": 0.05},
        {"loss_scale": 1.0, "bound_lambda": 1.5, "delta": 0.2},
        {"loss_scale": 3.0, "bound_lambda": 1.0, "delta": 0.01},
    ]
    common = {"shots": 2, "bound": bound}
    together = train(make_learner("pac4sac-bounded", *per_run, seeds=[3, 1, 2], **common), 24)
    alone = train(make_learner("pac4sac-bounded", per_run[1], seeds=[1], **common), 24)
    assert together.state["alive"].all()
    for name in ("critic", "actor", "critic/target", "critic/first_moment"):
        torch.testing.assert_close(
            alone.state[name][0], together.state[name][1], rtol=2e-4, atol=2e-5
        )
        assert not torch.equal(together.state[name][0], together.state[name][1])


def test_traced_bisection_learns_the_same_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other objectives are made of nothing that the paper's is not made of."""
    trace_only(monkeypatch)
    learner, eager = (
        make_learner("pac4sac-bounded", {}, {"delta": 0.3}, shots=2, depth=1, bound="kl")
        for _ in range(2)
    )
    assert_compiled_learns_as_eager(learner, eager)


def test_lambda_is_between_0_and_2() -> None:
    with pytest.raises(UserError, match=r"^bound_lambda must be a number in \(0, 2\), not 2\.0\."):
        make_config("pac4sac-bounded", overrides={"bound_lambda": 2.0})


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("error", [0.0, 1e9])
def test_the_gradient_is_finite_for_zero_and_huge_errors(bound: str, error: float) -> None:
    agent, state = on_paper(bound=bound)
    views = agent.params(state, "critic").items()
    q = {name: view.detach().requires_grad_() for name, view in views}
    y = torch.tensor([M_P]) + error
    loss, _ = agent.critic_loss(state, q, BATCH, Target(y, TARGET.a2), {})
    assert bool(torch.autograd.grad(loss.sum(), q["head.weight"])[0].isfinite().all())
