"""PBAC: its target, objective, policies and acting, with numbers worked out by hand."""

import math

import pytest
import torch
from small_cohorts import column, hand_computed_agent, make_agent, set_head
from torch import Tensor

from pac4sac.agents.base import Agent, State
from pac4sac.agents.replay import Batch
from pac4sac.agents.state import Target

S, A = column(1.0), column(0.5)
ONE = torch.ones(1, 1)


def two_critics(**settings: float) -> tuple[Agent, State]:
    """Q₁ = 2 s + a and Q₂ = s, for s and a above 0."""
    agent, state = hand_computed_agent("pbac", critics=2, alpha=0.0, **settings)
    for copy in ("critic", "critic/target"):
        set_head(agent, state, copy, {"weight": [2.0, 1.0]}, {"weight": [1.0, 0.0]})
    return agent, state


@pytest.mark.parametrize(("acting", "a2"), [(0, 0.5), (1, 0.9)])
def test_all_targets_use_the_action_of_the_acting_policy(acting: int, a2: float) -> None:
    agent, state = two_critics(gamma=0.9)
    heads = [math.atanh(0.5), -9.0, math.atanh(0.9), -9.0]  # mean, log-variance of each policy
    agent.params(state, "actor")["head.bias"][:] = torch.tensor(heads)
    state["member"].fill_(acting)
    batch = Batch(S, A, ONE, column(3.0), 0 * ONE)
    y = agent.bellman_target(state, batch, {"target": torch.zeros(1, 1, 1)}).y
    torch.testing.assert_close(y, torch.tensor([1 + 0.9 * (6 + a2), 1 + 0.9 * 3]).view(1, 2, 1))


@pytest.mark.parametrize(("mask", "seen"), [([0.0, 0.0], (1, 1)), ([0.0, 0.9], (1, 0))])
def test_the_objective_is_risk_plus_divergence_minus_the_log_variance(
    mask: list[float], seen: tuple[int, int]
) -> None:
    agent, state = two_critics(gamma=0.8, prior_variance=4.0, kept=0.5)
    batch, y = Batch(S, A, ONE, S, ONE), torch.tensor([3.0, 2.0]).view(1, 2, 1)
    draw = {"mask": torch.tensor(mask).view(1, 2, 1)}
    loss, log = agent.critic_loss(state, agent.params(state, "critic"), batch, Target(y, A), draw)
    variance = 2 * 0.75**2  # of 2.5 and 1 about 1.75, unbiased
    risk = (seen[0] * 0.5**2 + seen[1] * 1.0**2) / 2
    from_prior = (seen[0] * 0.0 + seen[1] * 1.5**2) / 2 / 8  # about the mean target, 2.5
    assert log["bellman"].item() == pytest.approx(risk)
    assert loss.item() == pytest.approx(
        risk + from_prior - (0.5 + 0.8**2) * math.log(variance), rel=1e-5
    )


def test_each_policy_maximises_its_own_critic() -> None:
    agent, state = two_critics()
    noise = torch.tensor([math.atanh(0.5), math.atanh(0.9)]).view(1, 2, 1, 1)
    batch = Batch(S, A, ONE, S, ONE)
    loss, _ = agent.actor_loss(state, agent.params(state, "actor"), batch, {"actor": noise})
    assert loss.item() == pytest.approx(-(2.5 + 1.0) / 2)


def test_the_acting_policy_changes_every_n_steps_and_every_episode() -> None:
    agent = make_agent("pbac", {"held": 3}, critics=4)
    state = agent.initial_state([0], torch.device("cpu"))

    def acting(step: int, u: float) -> int:
        state["step"].fill_(step)
        draw: dict[str, Tensor] = {
            "warmup": torch.zeros(1, 2),
            "candidates": torch.zeros(1, 1, 1, 2),
        }
        agent.act(state, torch.zeros(1, 3), draw | {"member": torch.tensor([[u]])})
        return int(state["member"])

    assert [acting(0, 0.3), acting(1, 0.9), acting(2, 0.9), acting(3, 0.9), acting(4, 0.1)] == [
        1,
        1,
        1,
        3,
        3,
    ]
    agent.end_of_episode(state, torch.tensor([True]))
    assert [acting(5, 0.1), acting(6, 0.6)] == [0, 2]


def test_evaluation_uses_the_mean_of_the_policies() -> None:
    agent, state = two_critics()
    # mean, log-variance of each
    agent.params(state, "actor")["head.bias"][:] = torch.tensor([1.0, 0.0, -0.5, 0.0])
    expected = (math.tanh(1.0) + math.tanh(-0.5)) / 2
    assert agent.deterministic_action(state, S).item() == pytest.approx(expected)
    draw = {"policies": torch.zeros(1, 2, 1, 1), "which": torch.tensor([[0.7]])}
    assert agent.sample_policy(state, S, draw)[0].item() == pytest.approx(math.tanh(-0.5))
