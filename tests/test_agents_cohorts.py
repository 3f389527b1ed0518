"""Cohorts: a run learns the same in any company, its neighbours' failures included; Adam and Polyak
per run."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from small_cohorts import (
    CPU,
    SyntheticEnvironment,
    make_agent,
    make_learner,
    random_batch,
    tape_reading,
    train,
)
from torch import Tensor

from pac4sac.agents import ALGORITHMS
from pac4sac.agents.oac import Oac
from pac4sac.training.learner import Learner

# Per-run settings of every kind, more values than one; which of them a run gets depends on its
# place.
MIXED: dict[str, list[Any]] = {
    "gamma": [0.9, 0.99, 0.0],
    "tau": [0.005, 0.5, 1.0],
    "lr": [1e-3, 3e-4],
    "actor_lr": [0.0, 2e-3],
    "critic_lr": [0.0, 0.0, 5e-3],
    "alpha_lr": [0.0, 1e-2],
    "n_step": [1, 3],
    "policy_delay": [2, 3, 1],
    "warmup": [8, 0, 11, 14],
    "updates_per_step": [1, 2, 1, 2],
    "alpha": [0.2, 0.0, 0.7],
    "learn_alpha": [False, True],
    "shots": [3, 5, 4, 6],
    "xi": [0.01, 0.0, 0.5],
    "conservative": [1.0, 0.0, 3.0],
    "prior_mean": [0.0, 1.0],
    "delta": [0.05, 0.5],
    "loss_scale": [10.0, 1.0],
    "bound_lambda": [1.0, 0.5],
    "noise": [0.1, 0.6],
    "noise_kind": ["ornstein-uhlenbeck", "white"],
    "prior_scale": [1.0, 4.0],
    "kept": [0.8, 0.9, 0.4],
    "caution": [0.5, 0.0, 2.0],
    "held": [5, 1],
    "target_entropy": [-1.0, 0.0],
    "beta": [4.66, -1.0],
    "shift": [23.53, 0.1],
    "smoothing": [0.447, 0.1],
    "clean": [0.1, 0.9],
    "matching": [0.002, 0.5],
    "subset": [2, 1],
    "dropout": [0.3, 0.0, 0.1],
    "dropped": [2, 0, 3],
    "beta_1": [0.5, 0.9],
    "renorm_warmup": [0, 3, 100],
    "outside": [0.0, 0.5, 1.0],
    "bonus": [0.1, 0.0, 3.0],
}
SEEDS = [7 + 3 * run for run in range(20)]
STEPS = 20


def mixed_settings(algo: str) -> list[dict[str, Any]]:
    names = [name for name in ALGORITHMS[algo].agent.Config.per_run_names() if name in MIXED]
    return [{name: MIXED[name][run % len(MIXED[name])] for name in names} for run in range(20)]


def cohort(algo: str, members: list[int], **common: Any) -> Learner:
    settings = mixed_settings(algo)
    return make_learner(
        algo, *(settings[run] for run in members), seeds=[SEEDS[run] for run in members], **common
    )


def per_run(learner: Learner) -> dict[str, Tensor]:
    """Everything that belongs to a run, with the run as first axis."""
    tensors = learner.state | learner.buffers
    by_run_second = [name for name in ("metrics", "metrics_count") if tensors[name].dim() == 2]
    return {name: t.T if name in by_run_second else t for name, t in tensors.items() if t.dim() > 0}


def assert_run_alike(one: Learner, place: int, other: Learner, other_place: int) -> None:
    # OAC divides its gradient by its length: where an action is nearly saturated, rounding decides
    # its direction.
    atol = 1e-3 if isinstance(one.agent, Oac) else 2e-5
    others = per_run(other)
    for name, tensor in per_run(one).items():
        expected = others[name][other_place]
        if tensor.dtype == torch.float32:
            torch.testing.assert_close(
                tensor[place],
                expected,
                rtol=2e-4,
                atol=atol,
                msg=lambda m, name=name: f"{name}: {m}",
            )
        else:
            assert torch.equal(tensor[place], expected), name


# --- independence


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_run_learns_the_same_alone_and_in_cohorts_of_3_and_20(algo: str) -> None:
    twenty = train(cohort(algo, list(range(20))), STEPS)
    assert bool(twenty.state["alive"].all())
    updates = [
        (STEPS - max(run["warmup"], 6)) * run["updates_per_step"] for run in mixed_settings(algo)
    ]
    assert twenty.state["critic/count"].tolist() == updates
    three = train(cohort(algo, [11, 2, 19]), STEPS)
    for place, run in enumerate([11, 2, 19]):
        assert_run_alike(three, place, twenty, run)
        assert_run_alike(train(cohort(algo, [run]), STEPS), 0, twenty, run)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_mixed_per_run_setting_changes_the_result(algo: str) -> None:
    """Otherwise independence would be shown for settings that do nothing: each, changed alone,
    changes the run."""
    base = {
        name: values[0]
        for name, values in MIXED.items()
        if name in ALGORITHMS[algo].agent.Config.per_run_names()
    }
    # The bound `lambda` alone has a λ, and α must be learned for the others to count.
    idle = {"delta", "target_entropy", "alpha_lr", "bound_lambda"}
    idle |= {"tau"} if algo in ("sac-fpi", "crossq") else set()  # which have no target networks
    idle |= {"shots"} if algo == "pac4sac-repo" else set()  # which shoots in evaluation only
    names = [name for name in base if name not in idle]
    changed = [base | {name: MIXED[name][-1]} for name in names]
    learner = train(make_learner(algo, base, *changed, seeds=[5] * (1 + len(names))), STEPS)
    watched = [t for name, t in per_run(learner).items() if not name.startswith("hyper/")]
    for place, name in enumerate(names, start=1):
        assert any(not torch.equal(t[0], t[place]) for t in watched), name


@pytest.mark.parametrize("algo", ["pac4sac", "sac-auto", "ddpg"])
def test_structural_variants_are_independent_of_their_cohort(algo: str) -> None:
    common: dict[str, Any] = {"norm": False, "activation": "relu", "depth": 1}
    if algo == "pac4sac":
        common |= {"critics": 2}
    together, alone = (
        train(cohort(algo, [0, 1, 2], **common), STEPS),
        train(cohort(algo, [1], **common), STEPS),
    )
    assert_run_alike(alone, 0, together, 1)


@pytest.mark.parametrize(("algo", "schedule"), [("sac", "linear"), ("flashsac", "cosine")])
def test_a_run_follows_its_own_schedule_in_any_cohort(algo: str, schedule: str) -> None:
    own: list[dict[str, Any]] = [
        {"lr_steps": 4},
        {"lr_steps": 9, "updates_per_step": 2},
        {"lr_steps": 1000, "critic_lr": 0.01},
    ]
    if algo == "flashsac":
        own[1] |= {"lr_end": 0.9}
    common = {"lr_schedule": schedule}
    together = train(make_learner(algo, *own, seeds=SEEDS[:3], **common), STEPS)
    for run in range(3):
        alone = train(make_learner(algo, own[run], seeds=[SEEDS[run]], **common), STEPS)
        assert_run_alike(alone, 0, together, run)
    constant = train(make_learner(algo, *own, seeds=SEEDS[:3], lr_schedule="constant"), STEPS)
    for run in range(3):
        assert not torch.equal(constant.state["critic"][run], together.state["critic"][run])


# --- isolation of failure


def fill_with_nan(learner: Learner, run: int) -> None:
    learner.buffers["replay"][run, :, 0] = torch.nan


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_nan_in_the_replay_buffer_freezes_only_that_run(algo: str) -> None:
    healthy, ill = (train(cohort(algo, [0, 1, 2]), STEPS) for _ in range(2))
    fill_with_nan(ill, run=1)
    frozen = {name: tensor[1].clone() for name, tensor in per_run(ill).items()}
    for learner in (healthy, ill):
        for _ in range(3):
            learner.update()
    assert ill.state["alive"].tolist() == [True, False, True]
    assert ill.state["diverged_step"].tolist() == [-1, STEPS, -1]
    first_trained = ill.agent.trained().index("helper" if algo == "sac-fpi" else "critic")
    assert ill.state["diverged_net"].tolist() == [-1, first_trained, -1]
    for name, tensor in per_run(ill).items():
        for run in (0, 2):
            assert torch.equal(tensor[run], per_run(healthy)[name][run]), name
        if name not in ("alive", "diverged_step", "diverged_net", "replay"):
            assert torch.equal(tensor[1], frozen[name]), name
    assert bool(torch.isfinite(ill.state["metrics"]).all())


@pytest.mark.parametrize("algo", ["pac4sac", "sac-auto", "ddpg"])
def test_a_frozen_run_does_not_affect_other_runs(algo: str) -> None:
    free, frozen = cohort(algo, [0, 1, 2]), cohort(algo, [0, 1, 2])
    train(free, STEPS)
    frozen.freeze(0)
    train(frozen, STEPS)
    weights = [
        name for name in frozen.state if name.split("/")[0] in (*frozen.agent.nets, "log_alpha")
    ]
    fresh = cohort(algo, [0, 1, 2]).state
    for name in weights:
        assert torch.equal(frozen.state[name][0], fresh[name][0]), name
    for name, tensor in per_run(frozen).items():
        assert torch.equal(tensor[1:], per_run(free)[name][1:]), name


def test_a_diverging_learning_rate_freezes_only_its_run() -> None:
    learner = make_learner("sac", {"lr": 1e30}, {}, warmup=0)
    train(learner, 30)
    assert learner.state["alive"].tolist() == [False, True]
    assert 6 <= learner.state["diverged_step"][0] < 30
    assert bool(learner.state["critic"][1].isfinite().all())


def test_a_divergence_is_recorded_once_with_its_first_step_and_cause() -> None:
    learner = train(cohort("sac", [0, 1]), STEPS)
    fill_with_nan(learner, 0)
    learner.update()
    learner.state["step"] += 5
    learner.update()
    assert learner.state["diverged_step"].tolist() == [STEPS, -1]


# --- Adam and Polyak


def test_adam_matches_torch_with_a_rate_and_step_count_per_run() -> None:
    rates = [1e-3, 1e-2, 3e-4]
    agent = make_agent("sac", *({"lr": lr} for lr in rates))
    state = agent.initial_state(range(3), CPU)
    references = [state["critic"][run].clone().requires_grad_() for run in range(3)]
    optimisers = [
        torch.optim.Adam([weights], lr=lr) for weights, lr in zip(references, rates, strict=True)
    ]
    generator = torch.Generator().manual_seed(0)
    start = state["critic"].clone()
    for step in range(12):
        scale = torch.tensor([1e-3, 1.0, 1e3]).view(-1, 1, 1)
        gradient = scale * torch.randn(state["critic"].shape, generator=generator)
        active = torch.tensor([True, step % 3 != 0, step > 4])
        norm = agent.adam(state, "critic", gradient, torch.zeros(3), active)
        torch.testing.assert_close(norm, torch.stack([g.norm() for g in gradient]))
        for run in torch.nonzero(active).flatten().tolist():
            references[run].grad = gradient[run].clone()
            optimisers[run].step()
    for run, weights in enumerate(references):
        moved, expected = state["critic"][run] - start[run], weights.detach() - start[run]
        torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4 * rates[run])
    assert state["critic/count"].tolist() == [12, 8, 7]


def test_an_inactive_run_keeps_all_its_weights() -> None:
    learner = train(cohort("pac4sac", [0, 1, 2]), STEPS)
    agent, state = learner.agent, learner.state
    before = {name: tensor.clone() for name, tensor in per_run(learner).items()}
    batch, draw = random_batch(3), tape_reading(agent, SEEDS[:3])
    agent.learn(state, batch, draw, torch.tensor([True, False, True]))
    moved = {
        name
        for name, tensor in per_run(learner).items()
        if not torch.equal(tensor[0], before[name][0])
    }
    assert {"critic", "actor", "critic/target", "critic/first_moment", "actor/count"} <= moved
    for name, tensor in per_run(learner).items():
        assert torch.equal(tensor[1], before[name][1]), name


def test_target_networks_use_the_tau_of_each_run() -> None:
    agent = make_agent("ddpg", {"tau": 0.1}, {"tau": 1.0}, {"tau": 0.5})
    state = agent.initial_state(range(3), CPU)
    state["step"].fill_(64)
    for name in ("critic", "actor"):
        state[f"{name}/target"].normal_(generator=torch.Generator().manual_seed(1))
    old = {name: state[f"{name}/target"].clone() for name in ("critic", "actor")}
    agent.learn(
        state, random_batch(3), tape_reading(agent, range(3)), torch.ones(3, dtype=torch.bool)
    )
    tau = torch.tensor([0.1, 1.0, 0.5]).view(-1, 1, 1)
    for name, before in old.items():
        torch.testing.assert_close(state[f"{name}/target"], (1 - tau) * before + tau * state[name])
        assert torch.equal(state[f"{name}/target"][1], state[name][1])


def test_learning_starts_after_the_warm_up_and_a_whole_batch() -> None:
    learner = make_learner("sac", {"warmup": 0}, {"warmup": 4}, {"warmup": 9}, batch=6)
    assert learner.agent.learning_starts() == [6, 6, 9]
    world = SyntheticEnvironment(learner.act_tape.seeds)
    learner.begin(world.state)
    counts = []
    for _ in range(11):
        if learner.step > 0:
            learner.update()
        counts.append(learner.state["critic/count"].tolist())
        world.step(learner)
    assert counts[5:] == [[0, 0, 0], [1, 1, 0], [2, 2, 0], [3, 3, 0], [4, 4, 1], [5, 5, 2]]


def test_updates_are_skipped_only_if_no_run_would_learn() -> None:
    skipping, updating = (
        make_learner("pac4sac", {"warmup": 10}, {"warmup": 12}, shots=2) for _ in range(2)
    )
    train(skipping, STEPS)
    world = SyntheticEnvironment(updating.act_tape.seeds)
    updating.begin(world.state)
    updating.state["update"] += 1  # there is nothing to draw from before the first transition
    world.step(updating)
    for _ in range(STEPS - 1):
        updating.update()
        world.step(updating)
    for name, tensor in skipping.state.items():
        assert torch.equal(tensor, updating.state[name]), name


# --- metrics


def test_metrics_are_means_over_the_updates_of_each_run() -> None:
    learner = make_learner("pac4sac", {"warmup": 8}, {"warmup": 18}, {"warmup": 500}, shots=1)
    train(learner, STEPS)
    values = learner.read_metrics()
    assert values.shape == (len(learner.agent.metric_names), 3)
    assert np.isfinite(values[:, :2]).all()
    assert np.isnan(values[:, 2]).all()
    alpha = values[learner.agent.metric_names.index("alpha")]
    assert alpha[:2].tolist() == pytest.approx([0.2, 0.2])
    assert np.isnan(learner.read_metrics()).all()  # they start anew


def test_per_run_settings_are_read_as_a_vector() -> None:
    agent = make_agent("pac4sac", {"xi": 0.1, "shots": 2}, {"xi": 0.3, "shots": 3})
    state = agent.initial_state([0, 1], CPU)
    assert state["hyper/xi"].tolist() == pytest.approx([0.1, 0.3])
    per_run_names = {f.name for f in dataclasses.fields(agent.config) if f.metadata["per_run"]}
    assert {
        name.removeprefix("hyper/") for name in state if name.startswith("hyper/")
    } == per_run_names
