"""Observations seen by their running mean and deviation, which belong to the networks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_cohorts import DS, make_learner, train
from tiny_experiments import train as train_tiny

import pac4sac
from pac4sac.agents import ALGORITHMS
from pac4sac.export.onnx import PolicyModule
from pac4sac.training.agent_file import acting_tensors
from pac4sac.training.learner import Learner

ON = {"normalise_observations": True}


def watched(seen: np.ndarray, algo: str = "td3") -> Learner:
    """A learner that has met these observations [T, R, ds]."""
    learner = make_learner(algo, *[{}] * seen.shape[1], **ON)
    for observations in seen:
        learner.begin(observations)
        learner.act()
    return learner


@pytest.fixture
def seen() -> np.ndarray:
    return (5 + 3 * np.random.default_rng(0).standard_normal((40, 2, DS))).astype(np.float32)


def test_every_network_has_the_mean_and_variance_of_its_runs_observations(seen: np.ndarray) -> None:
    learner = watched(seen)
    for name in ("critic", "actor", "critic/target", "actor/target"):
        p = learner.agent.params(learner.state, name)
        members = len(p["observed.mean"]) // 2
        expected = (np.full((2, 1), 40.0), seen.mean(0), seen.var(0))
        for part, value in zip(("count", "mean", "variance"), expected, strict=True):
            np.testing.assert_allclose(
                p[f"observed.{part}"][:, 0], value.repeat(members, 0), rtol=1e-4
            )


def test_networks_get_standardised_and_clipped_observations(seen: np.ndarray) -> None:
    learner, plain = watched(seen), make_learner("td3", {}, {})
    for name in ("critic", "actor"):
        theirs, own = (x.agent.params(x.state, name) for x in (plain, learner))
        for part, view in theirs.items():
            view.copy_(own[part])
    s = torch.tensor(seen[:7]).transpose(0, 1).contiguous()
    s[:, 0] = 1e6
    a = torch.rand(2, 7, 2)
    mean, deviation = (torch.tensor(x).unsqueeze(1) for x in (seen.mean(0), seen.std(0)))
    standard = ((s - mean) / deviation).clamp(-10, 10)
    for ask in (
        lambda x, s: x.agent.deterministic_action(x.state, s),
        lambda x, s: x.agent.mean_and_variance(x.state, s, a)[0],
    ):
        torch.testing.assert_close(ask(learner, s), ask(plain, standard), rtol=1e-3, atol=1e-4)


def test_observation_statistics_do_not_change_in_learning_or_after_freezing(
    seen: np.ndarray,
) -> None:
    learner = make_learner("crossq", {}, {}, **ON)
    learner.freeze(1)
    train(learner, 20)
    for name in ("critic", "actor"):
        p = learner.agent.params(learner.state, name)
        members = len(p["observed.count"]) // 2
        assert p["observed.count"].flatten().tolist() == [20.0] * members + [0.0] * members
        assert p["observed.variance"][:members].min() > 0.01
        assert torch.equal(
            p["observed.mean"][:members], p["observed.mean"][:1].expand(members, -1, -1)
        )


@pytest.mark.parametrize(
    "algo", [algo for algo in ALGORITHMS if algo in ("pac4sac", "pac4sac-mixture", "sac-nr")]
)
def test_any_algorithm_can_normalise_observations(algo: str) -> None:
    learner = train(make_learner(algo, {}, {"gamma": 0.9}, **ON), 12)
    assert bool(learner.state["alive"].all())
    seen = [
        view
        for part, view in learner.agent.params(learner.state, "critic").items()
        if part == "observed.mean"
    ]
    assert seen[0].abs().min() > 0
    assert "critic" in acting_tensors(learner.agent, learner.state, 0)


def test_agent_files_and_exports_include_observation_statistics(tmp_path: Path) -> None:
    agent = pac4sac.load(
        train_tiny(tmp_path / "x", "sac", seeds=(0,), steps=60, settings=ON).folder
    )
    p = agent.agent.params(agent.state, "actor")
    assert p["observed.count"].item() == 60
    observation = 3.0 * p["observed.mean"].flatten() + 1
    one = np.ones(agent.agent.da, np.float32)
    exported = PolicyModule(agent, -one, one)(observation.unsqueeze(0))
    np.testing.assert_allclose(
        exported[0].detach().numpy(), agent.act(observation.numpy()), rtol=1e-5
    )
    p["observed.mean"].add_(1.0)
    assert not np.allclose(exported[0].detach().numpy(), agent.act(observation.numpy()), rtol=1e-5)


def test_without_normalisation_the_state_is_unchanged() -> None:
    learner = make_learner("sac")
    assert not [
        part for part in learner.agent.params(learner.state, "critic") if "observed" in part
    ]
