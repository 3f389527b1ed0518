"""Rewards divided by the running deviation of the discounted return, which the state of an agent
holds."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_cohorts import (
    DA,
    DS,
    SyntheticEnvironment,
    assert_compiled_learns_as_eager,
    make_learner,
    trace_only,
)
from small_cohorts import train as train_cohort
from tiny_experiments import DRIFT, rows, train

import pac4sac
from pac4sac import Result
from pac4sac.agents import make_config
from pac4sac.agents.replay import Batch
from pac4sac.base.errors import UserError
from pac4sac.certificates.critic_errors import bellman_errors
from pac4sac.training.learner import Learner
from pac4sac.training.value_error import measure_value_errors

ON = {"normalise_rewards": True}
TIMES = 1024.0  # a power of two, by which floats are multiplied exactly


def seen(rewards: NDArray[np.float64], ends: NDArray[np.bool_], **settings: object) -> Learner:
    """A learner that has met these rewards [T, R], and ends of episodes."""
    learner = make_learner("sac", *[{}] * rewards.shape[1], **ON, **settings)
    nothing = np.zeros((rewards.shape[1], DS), np.float32)
    learner.begin(nothing)
    for r, ended in zip(rewards, ends, strict=True):
        learner.store(nothing, nothing, r, ended)
        learner.agent.end_of_episode(learner.state, torch.from_numpy(ended.copy()))
    return learner


def test_the_reward_scale_is_the_std_of_discounted_returns() -> None:
    generator = np.random.default_rng(0)
    rewards, ends = generator.normal(3.0, 2.0, (50, 2)), generator.random((50, 2)) < 0.1
    learner = seen(rewards, ends, gamma=0.9)
    for run in range(2):
        returns, g = [], 0.0
        for r, ended in zip(rewards[:, run], ends[:, run], strict=True):
            g = 0.9 * g + r
            returns.append(g)
            g *= not ended
        np.testing.assert_allclose(
            learner.agent.reward_scale(learner.state)[run], np.std(returns), rtol=1e-5
        )


def test_constant_rewards_are_not_scaled() -> None:
    learner = seen(np.zeros((5, 1)), np.zeros((5, 1), np.bool_))
    assert learner.agent.reward_scale(learner.state).tolist() == [1.0]


def test_a_frozen_run_keeps_its_reward_statistics() -> None:
    learner = seen(np.ones((4, 2)), np.zeros((4, 2), np.bool_))
    learner.freeze(1)
    learner.store(np.zeros((2, DS)), np.zeros((2, DS)), np.ones(2), np.zeros(2))
    assert learner.state["rewards/count"].tolist() == [5.0, 4.0]


def train_with_scaled_rewards(times: float, algo: str, **settings: object) -> Learner:
    """Trained in the made-up world, with its rewards so many times as large."""

    class ScaledRewards(SyntheticEnvironment):
        def step(self, learner: Learner) -> None:
            store = learner.store
            learner.store = lambda s2, following, r, end: store(s2, following, times * r, end)  # type: ignore[method-assign]
            super().step(learner)
            learner.store = store  # type: ignore[method-assign]

    learner = make_learner(algo, {}, {"gamma": 0.9, "n_step": 3}, **ON, **settings)
    world = ScaledRewards(learner.act_tape.seeds)
    learner.begin(world.state)
    for _ in range(20):
        learner.learn()
        world.step(learner)
    return learner


@pytest.mark.parametrize("algo", ["sac", "pac4sac", "crossq"])
def test_the_unit_of_rewards_changes_only_the_reported_values(algo: str) -> None:
    one, other = train_with_scaled_rewards(1.0, algo), train_with_scaled_rewards(TIMES, algo)
    assert one.state["critic/count"].min() > 0
    for name in (*one.agent.nets, "metrics"):
        same = slice(-1) if name == "metrics" else slice(None)  # the last is the scale itself
        assert torch.equal(one.state[name][same], other.state[name][same])
    assert one.agent.metric_names[-1] == "reward_scale"
    s, a = torch.rand(2, 4, DS), torch.rand(2, 4, DA)
    (m, v), (times_m, times_v) = (x.agent.value_estimate(x.state, s, a) for x in (one, other))
    assert torch.equal(TIMES * m, times_m)
    assert v is None or torch.equal(TIMES**2 * v, times_v)
    assert torch.equal(
        TIMES * one.agent.entropy_weight(one.state), other.agent.entropy_weight(other.state)
    )


def test_the_compiled_backend_learns_the_same_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_only(monkeypatch)
    learner, eager = (make_learner("sac", {}, {"gamma": 0.9}, **ON) for _ in range(2))
    assert_compiled_learns_as_eager(learner, eager)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return train(tmp_path_factory.mktemp("scaled") / "x", "sac", seeds=(0,), steps=120, settings=ON)


def test_an_agent_file_has_the_scale_and_gives_values_in_units_of_rewards(trained: Result) -> None:
    agent = pac4sac.load(trained.folder)
    assert agent.state["rewards/count"].tolist() == [120.0]
    scale = agent.agent.reward_scale(agent.state)
    assert scale.item() not in (0.0, 1.0)
    s, a = torch.rand(1, 1, agent.agent.ds), torch.rand(1, 1, agent.agent.da)
    claimed = agent.agent.mean_and_variance(agent.state, s, a)[0].item()
    told = agent.value(s[0, 0].numpy(), a[0, 0].numpy())
    assert told.mean == pytest.approx(claimed * scale.item())
    assert agent.sample_value(s[0, 0].numpy(), a[0, 0].numpy())[0] == pytest.approx(told.mean)
    logged = rows(trained.folder, "sac-seed0", "metrics")[-1]["reward_scale"]
    assert 0.5 * scale < logged < 2 * scale


def test_value_errors_and_certificates_are_in_units_of_rewards(trained: Result) -> None:
    agent = pac4sac.load(trained.folder)
    state = agent.state
    (errors,) = measure_value_errors(agent.agent, state, DRIFT, [0], 3, "test")
    assert errors.alpha == pytest.approx(
        (agent.agent.alpha(state) * agent.agent.reward_scale(state)).item()
    )
    s, a = (torch.from_numpy(x).flatten(0, 1)[None] for x in (errors.observation, errors.action))
    expected = agent.agent.value_estimate(state, s, a)[0].view(errors.m.shape).numpy()
    np.testing.assert_allclose(errors.m, expected, rtol=1e-4, atol=1e-5)
    twins = agent.agent.critic(agent.agent.params(state, "critic"), s, a)[0]
    apart = twins.std(1, unbiased=False)[0].numpy() * agent.agent.reward_scale(state).item()
    np.testing.assert_allclose(errors.deviation.ravel(), apart, rtol=1e-4, atol=1e-6)
    batch = Batch(s[:, :5], a[:, :5], torch.full((1, 5), 7.0), s[:, :5], torch.ones(1, 5))
    # an end: the reward alone
    assert bellman_errors(agent.agent, state, batch, 0).y.tolist() == [7.0] * 5


def test_training_cannot_start_from_an_agent_of_another_scale(
    trained: Result, tmp_path: Path
) -> None:
    with pytest.raises(
        UserError, match="was trained with normalise_rewards=true; use the same value"
    ):
        train(tmp_path / "plain", "sac", seeds=(0,), steps=50, start_from=str(trained.folder))


def test_a_value_that_is_not_boolean_is_refused() -> None:
    with pytest.raises(UserError, match="normalise_rewards must be"):
        make_config("sac", "default", {"normalise_rewards": 2})


def test_without_normalisation_the_state_is_unchanged() -> None:
    learner = train_cohort(make_learner("sac"), 3)
    assert not [name for name in learner.state if name.startswith("rewards/")]
    assert learner.agent.reward_scale(learner.state).tolist() == [1.0]
