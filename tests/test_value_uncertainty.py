"""Universal value-function uncertainty: its target and loss by hand, and what it must not change."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_cohorts import (
    CPU,
    assert_compiled_learns_as_eager,
    column,
    hand_computed_agent,
    make_agent,
    make_learner,
    trace_only,
    train,
)
from tiny_experiments import DRIFT, rows
from tiny_experiments import train as train_runs

import pac4sac
from pac4sac import Result
from pac4sac.agents import make_config
from pac4sac.agents.base import State
from pac4sac.agents.replay import Batch
from pac4sac.agents.td3 import Td3, Td3Config
from pac4sac.agents.value_uncertainty import (
    SacUncertainty,
    ValueUncertainty,
    ValueUncertaintyConfig,
)
from pac4sac.base.errors import UserError
from pac4sac.certificates.calibration import calibration, formula_of_std
from pac4sac.training.learner import Learner
from pac4sac.training.value_error import measure_value_errors

PAIRS = {"sac-uncertainty": "sac", "pac4sac-uncertainty": "pac4sac"}


# --- by hand, with φ = (max(s, 0), max(a, 0)) in u and in g. Of two heads, the first has
# u = s + 2a + 0.5 and g = 3a, the second u = 1 and g = 0.


def on_paper(**settings: Any) -> tuple[SacUncertainty, State]:
    fixed = {"learn_alpha": False, "alpha": 0.2, "gamma": 0.9} | settings
    agent, state = hand_computed_agent("sac-uncertainty", fixed, uncertainty_heads=2)
    assert isinstance(agent, SacUncertainty)
    for name, factor in (("uncertainty", 1.0), ("uncertainty/target", 2.0)):
        p = agent.params(state, name)
        p["0.weight"].copy_(torch.eye(2))
        p["fixed.0.weight"].copy_(torch.eye(2))
        p["head.weight"][0, :, 0] = factor * torch.tensor([1.0, 2.0])
        p["head.bias"][0, 0] = torch.tensor([0.5, factor])
        p["fixed.head"][0, :, 0] = torch.tensor([0.0, 3.0])
    return agent, state


def test_the_std_is_the_distance_to_the_random_function() -> None:
    agent, state = on_paper(uncertainty_scale=4.0)
    s, a = column(1.0, 1.0), column(0.25, 2.0)
    # u = 2 and 5.5, g = 0.75 and 6; the second head differs by 1
    delta = agent.difference(agent.params(state, "uncertainty"), s, a)
    assert delta.tolist()[0] == [[1.25, 1.0], [-0.5, 1.0]]
    expected = [4 * math.sqrt((1.25**2 + 1) / 2), 4 * math.sqrt((0.5**2 + 1) / 2)]
    assert agent.value_uncertainty(state, s, a).tolist()[0] == pytest.approx(expected)


def test_the_target_is_that_of_the_artificial_reward() -> None:
    agent, state = on_paper()
    noise = torch.atanh(column(0.5, 0.25))
    batch = Batch(
        s=column(1.0, 1.0),
        a=column(0.25, 2.0),
        r=torch.tensor([[100.0, -100.0]]),  # which it never sees
        s2=column(2.0, 1.0),
        terminated=torch.tensor([[0.0, 1.0]]),
    )
    target = agent.difference_target(state, batch, {"uncertainty_policy": noise})
    # ū = 2s + 4a + 0.5 = 6.5 and g = 1.5 at s′ = 2, a′ = 0.5: r_g + γ ū − g(s, a) = γ (ū − g)
    g, g_next, slow = 3 * 0.25, 3 * 0.5, 2 * 2.0 + 4 * 0.5 + 0.5
    by_reward = (g - 0.9 * g_next) + 0.9 * slow - g
    assert target[0, :, 0].tolist() == pytest.approx([by_reward, 0.0])
    assert target[0, :, 1].tolist() == pytest.approx([0.9 * 2.0, 0.0])
    assert by_reward == pytest.approx(0.9 * 5.0)
    loss, log = agent.difference_loss(state, agent.params(state, "uncertainty"), batch, target)
    first, second = ((4.5 - 1.25) ** 2 + 0.5**2) / 2, ((1.8 - 1.0) ** 2 + 1.0) / 2
    assert loss.item() == pytest.approx(first + second)
    expected = (math.sqrt((1.25**2 + 1) / 2) + math.sqrt((0.5**2 + 1) / 2)) / 2
    assert log["uncertainty"].item() == pytest.approx(expected)


def test_the_random_function_is_never_learned() -> None:
    learner = make_learner("sac-uncertainty")
    agent, fixed = learner.agent, {}
    for name in ("uncertainty", "uncertainty/target"):
        p = agent.params(learner.state, name)
        fixed[name] = {key: x.clone() for key, x in p.items() if key.startswith("fixed.")}
    first = learner.state["uncertainty"].clone()
    train(learner, 14)
    assert not torch.equal(first, learner.state["uncertainty"])
    for name, before in fixed.items():
        p = agent.params(learner.state, name)
        assert len(before) > 3
        assert all(torch.equal(p[key], x) for key, x in before.items())


def test_the_std_is_small_for_known_states_and_larger_for_others() -> None:
    agent = make_agent("sac-uncertainty", lr=3e-3, tau=0.05, gamma=0.9, width=32, norm=False)
    learner = Learner(agent, [0], steps=1000, device=CPU)
    generator = torch.Generator().manual_seed(0)
    active = torch.ones(1, dtype=torch.bool)
    for _ in range(400):
        s, s2 = torch.randn(2, 1, 64, 3, generator=generator)
        a = 2 * torch.rand(1, 64, 2, generator=generator) - 1
        batch = Batch(s, a, torch.zeros(1, 64), s2, torch.zeros(1, 64))
        noise = torch.randn(1, 64, 2, generator=generator)
        target = agent.difference_target(learner.state, batch, {"uncertainty_policy": noise})
        agent.descend(
            learner.state,
            "uncertainty",
            lambda p, b=batch, y=target: agent.difference_loss(learner.state, p, b, y),
            active,
        )
    near = agent.value_uncertainty(learner.state, torch.randn(1, 200, 3), torch.zeros(1, 200, 2))
    far = agent.value_uncertainty(learner.state, 5 + torch.randn(1, 200, 3), torch.zeros(1, 200, 2))
    assert far.median() > 2 * near.median()


# --- what the agent learns is the same


@pytest.mark.parametrize("algo", PAIRS)
def test_an_agent_learns_byte_identically_with_and_without_uncertainty(algo: str) -> None:
    runs = [{"gamma": 0.9}, {"updates_per_step": 2, "n_step": 3}]
    shots = {"shots": 4} if "pac4sac" in algo else {}
    with_it, without = (
        train(make_learner(name, *runs, **shots), 30) for name in (algo, PAIRS[algo])
    )
    assert with_it.state["uncertainty/count"].min() > 10
    learned = [name for name in without.tensors if name not in ("metrics", "metrics_count")]
    assert len(learned) > 20
    for name in learned:
        assert torch.equal(with_it.tensors[name], without.tensors[name]), name
    logged = dict(zip(with_it.agent.metric_names, with_it.state["metrics"], strict=True))
    for name, value in zip(without.agent.metric_names, without.state["metrics"], strict=True):
        assert torch.equal(logged[name], value), name


def config_of_td3() -> Any:
    from dataclasses import dataclass

    @dataclass(frozen=True, kw_only=True)
    class Config(Td3Config, ValueUncertaintyConfig):
        pass

    return Config


def test_any_agent_can_have_value_uncertainty() -> None:
    class MyTd3(ValueUncertainty, Td3):
        Config = config_of_td3()

    settings = {"width": 8, "batch": 6, "warmup": 8, "capacity": 64}
    with_it = Learner(MyTd3([MyTd3.Config(**settings)], 3, 2), [0], steps=100, device=CPU)
    without = Learner(Td3([Td3Config(**settings)], 3, 2), [0], steps=100, device=CPU)
    for learner in (with_it, without):
        train(learner, 20)
    assert MyTd3.with_target == ("critic", "actor", "uncertainty")
    assert torch.equal(with_it.state["actor"], without.state["actor"])
    assert with_it.state["uncertainty/count"].item() == 12
    assert Td3.with_target == ("critic", "actor")


def test_the_compiled_backend_learns_the_same_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_only(monkeypatch)
    learner, eager = (make_learner("sac-uncertainty", {}, {"gamma": 0.9}) for _ in range(2))
    assert_compiled_learns_as_eager(learner, eager)


def test_a_scale_of_zero_is_refused() -> None:
    with pytest.raises(UserError, match="uncertainty_scale must be a number above 0, not 0"):
        make_config("sac-uncertainty", overrides={"uncertainty_scale": 0.0})


# --- what reports of it


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return train_runs(
        tmp_path_factory.mktemp("uncertain") / "x",
        "pac4sac-uncertainty",
        seeds=(0,),
        steps=120,
        settings={"shots": 3, "normalise_rewards": True, "uncertainty_scale": 2.0},
        bias_every=60,
    )


def test_trained_agents_and_bias_logs_use_its_std(trained: Result) -> None:
    agent = pac4sac.load(trained.folder)
    s, a = np.zeros((2, 3), np.float32), np.array([[0.5], [-0.5]], np.float32)
    value = agent.value(s, a)
    assert value.source == "uncertainty"
    inside = agent.agent
    assert isinstance(inside, ValueUncertainty)
    pair = torch.from_numpy(s)[None], torch.from_numpy(a)[None]
    delta = inside.difference(inside.params(agent.state, "uncertainty"), *pair)[0]
    scale = inside.reward_scale(agent.state).item()
    np.testing.assert_allclose(
        value.std, 2 * scale * delta.square().mean(-1).sqrt().numpy(), rtol=1e-5
    )
    assert scale != 1.0
    logged = rows(trained.folder, "pac4sac-uncertainty-seed0", "bias")
    assert all(row["deviation"] > 0 for row in logged)
    means = rows(trained.folder, "pac4sac-uncertainty-seed0", "metrics")
    assert means[-1]["uncertainty"] > 0


def test_certificates_report_its_calibration_and_formula(trained: Result) -> None:
    agent = pac4sac.load(trained.folder)
    (errors,) = measure_value_errors(agent.agent, agent.state, DRIFT, [0], 3, "test")
    assert formula_of_std(agent.agent) == "|u − g|"
    found = calibration("policy", "x", errors, 0.05)
    assert found is not None
    assert found.rms_deviation == pytest.approx(
        float(np.sqrt(np.mean(errors.deviation[errors.judged] ** 2)))
    )
    assert not np.allclose(errors.deviation**2, errors.v)  # that of the posterior
