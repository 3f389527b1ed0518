"""TD3 by hand, and what it brought to the base class: delayed networks and slow copies, learning
rates by network."""

import math
import shutil

import numpy as np
import pytest
import torch
from small_cohorts import (
    CPU,
    column,
    hand_computed_agent,
    make_agent,
    make_learner,
    random_batch,
    set_head,
    tape_reading,
    train,
)
from torch.utils.flop_counter import FlopCounterMode

from pac4sac.agents.base import Target
from pac4sac.agents.replay import Batch
from pac4sac.training.backends import Rehearsal, compiled

BATCH = Batch(
    s=column(1.0, 2.0),
    a=column(0.5, 1.0),
    r=torch.tensor([[1.0, -1.0]]),
    s2=column(2.0, 1.0),
    terminated=torch.tensor([[0.0, 0.0]]),
)
TANH_HALF = math.tanh(0.5)
# Q_1 = s + 2a, Q_2 = 2s − a
TWINS = ({"weight": [1.0, 2.0], "bias": 0.0}, {"weight": [2.0, -1.0], "bias": 0.0})
STEPS = 20


# --- the paper's equations


def test_the_target_is_the_smaller_target_critic_at_the_smoothed_action() -> None:
    agent, state = hand_computed_agent("td3", gamma=0.9)
    set_head(agent, state, "critic/target", *TWINS)
    # the online actor still says tanh 0
    agent.params(state, "actor/target")["head.bias"].fill_(0.5)
    target = agent.bellman_target(state, BATCH, {"smoothing": column(1.0, -9.0)})
    a2 = (TANH_HALF + 0.2, TANH_HALF - 0.5)  # 0.2 · 1, and 0.2 · (−9) cut at −0.5
    torch.testing.assert_close(target.a2, column(*a2))
    # φ_2 = max(a, 0) is 0 for the second: min(1, 2)
    y = [1 + 0.9 * min(2 + 2 * a2[0], 4 - a2[0]), -1 + 0.9 * 1]
    torch.testing.assert_close(target.y, torch.tensor([y]))


def test_smoothed_actions_are_clipped_and_terminal_states_have_no_value() -> None:
    agent, state = hand_computed_agent("td3", smoothing_limit=2.0)
    set_head(agent, state, "critic/target", *TWINS)
    ended = BATCH._replace(terminated=torch.ones(1, 2))
    target = agent.bellman_target(state, ended, {"smoothing": column(7.0, -7.0)})
    torch.testing.assert_close(target.a2, column(1.0, -1.0))
    assert torch.equal(target.y, BATCH.r)


def test_both_critics_regress_on_the_target_and_the_actor_maximises_the_first() -> None:
    agent, state = hand_computed_agent("td3")
    set_head(agent, state, "critic", *TWINS)
    agent.params(state, "actor")["head.bias"].fill_(0.5)
    loss, _ = agent.critic_loss(
        state, agent.params(state, "critic"), BATCH, Target(torch.tensor([[1.0, 0.0]]), BATCH.a), {}
    )
    # Q_1 = (1 + 2·0.5, 2 + 2·1), Q_2 = (2 − 0.5, 4 − 1)
    assert loss.item() == pytest.approx(((1 - 2) ** 2 + 4**2) / 2 + ((1 - 1.5) ** 2 + 3**2) / 2)
    loss, _ = agent.actor_loss(state, agent.params(state, "actor"), BATCH, {})
    assert loss.item() == pytest.approx(-(1 + 2 * TANH_HALF + 2 + 2 * TANH_HALF) / 2)


def test_td3_explores_with_clipped_gaussian_noise() -> None:
    agent, state = hand_computed_agent("td3", {"noise": 0.1}, {"noise": 2.0})
    agent.params(state, "actor")["head.bias"].fill_(0.5)
    noise = torch.tensor([3.0, -1.0]).view(1, 2, 1).expand(2, -1, -1)
    actions = agent.behaviour(state, BATCH.s.expand(2, -1, -1), {"noise": noise}).squeeze(-1)
    torch.testing.assert_close(
        actions, torch.tensor([[TANH_HALF + 0.3, TANH_HALF - 0.1], [1.0, -1.0]])
    )


# --- delayed networks and slow copies


def test_each_run_updates_its_actor_every_policy_delay_updates() -> None:
    runs = (
        {},
        {"policy_delay": 3},
        {"policy_delay": 1},
        {"policy_delay": 3, "updates_per_step": 2},
    )
    learner = train(make_learner("td3", *runs), STEPS)  # which begins to learn at step 8
    assert learner.state["critic/count"].tolist() == [12, 12, 12, 24]
    # Steps 8, 10 … 18; 9, 12, 15, 18; all; of the updates 16 to 39 those that 3 divides.
    assert learner.state["actor/count"].tolist() == [6, 4, 12, 8]
    counts = dict(
        zip(learner.agent.metric_names, learner.state["metrics_count"].tolist(), strict=True)
    )
    assert counts["critic_loss"] == counts["q"] == [12, 12, 12, 24]
    assert counts["actor_loss"] == counts["actor_gradient_norm"] == [6, 4, 12, 8]
    assert np.isfinite(learner.read_metrics()).all()


def test_between_delayed_updates_actor_and_target_networks_are_not_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = train(make_learner("td3", {}, {"noise": 0.3}), 13)
    asked: list[int] = []
    actor_loss = type(learner.agent).actor_loss
    spy = lambda *how: (asked.append(learner.step), actor_loss(*how))[1]  # noqa: E731
    monkeypatch.setattr(type(learner.agent), "actor_loss", spy)
    delayed = ("actor", "actor/first_moment", "actor/target", "critic/target")
    before = {name: learner.state[name].clone() for name in (*delayed, "critic")}
    learner.learn()  # in step 13
    assert all(torch.equal(learner.state[name], before[name]) for name in delayed)
    assert not torch.equal(learner.state["critic"], before["critic"])
    assert not asked
    learner.step += 1
    learner.state["step"] += 1
    learner.learn()
    assert all(not torch.equal(learner.state[name], before[name]) for name in delayed)
    assert asked == [14]
    with Rehearsal(learner):
        flops = {}
        for operation in ("update", "short_update"):
            with FlopCounterMode(display=False) as counter:
                learner.run[operation]()
            flops[operation] = counter.get_total_flops()
    assert flops["short_update"] < 0.7 * flops["update"]


def test_an_agent_without_delays_has_one_program() -> None:
    learner = make_learner("ddpg", {}, {})
    assert list(learner.run) == ["act", "update", "store"]
    assert learner.state["metrics_count"].shape == (2,)


def test_a_rehearsal_uses_an_update_of_all_parts_of_all_runs() -> None:
    learner = make_learner("td3", {"policy_delay": 4}, {"policy_delay": 6})
    with Rehearsal(learner) as rehearsal:
        after = rehearsal.once()
    assert after["actor/count"].tolist() == [1, 1]
    assert after["critic/count"].tolist() == [2, 2]  # the short update too


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs a C++ compiler")
def test_compiled_updates_select_the_runs_that_are_due() -> None:
    """Vectors are longer than a cohort of two, and no division may fail in the rest of them."""
    learner = make_learner("td3", {}, {"policy_delay": 3})
    state = learner.state
    names = ("alive", "step", "update", "hyper/policy_delay", "hyper/updates_per_step")
    ask = compiled(
        lambda t: t["alive"].copy_(learner.agent.due(t, "actor", t["alive"])),
        {n: state[n] for n in names},
    )
    state["step"].fill_(9)
    ask()
    assert state["alive"].tolist() == [False, True]


# --- learning rates


def test_networks_may_have_separate_learning_rates() -> None:
    """The first step of Adam is as long as its rate, in every weight with a gradient."""
    own = {"critic_lr": 1e-4, "actor_lr": 1e-2, "alpha_lr": 0.05}
    agent = make_agent("sac", {"learn_alpha": True}, own | {"learn_alpha": True}, lr=2e-3)
    state = agent.initial_state([0, 0], CPU)
    state["step"].fill_(64)
    names = ("critic", "actor", "log_alpha")
    before = {name: state[name].clone() for name in names}
    agent.learn(
        state, random_batch(2), tape_reading(agent, [0, 0]), torch.ones(2, dtype=torch.bool)
    )
    moved = [(state[name] - before[name]).abs().amax((1, 2)).tolist() for name in names]
    assert moved == [
        pytest.approx(rates, rel=1e-2) for rates in ([2e-3, 1e-4], [2e-3, 1e-2], [2e-3, 0.05])
    ]
