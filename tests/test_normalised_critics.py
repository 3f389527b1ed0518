"""XQC, FlashSAC and their parts by hand: categorical critic, batch and weight normalisation,
residual blocks, learning-rate schedules."""

import math
from pathlib import Path
from typing import Any

import pytest
import tiny_experiments
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_cohorts import CPU, column, hand_computed_agent, make_agent, make_learner, train
from torch import Tensor

from pac4sac.agents import make_config
from pac4sac.agents.base import Agent, State
from pac4sac.agents.batch_norm import BatchNormalised, Learning, batch_norm
from pac4sac.agents.categorical import CategoricalCritic
from pac4sac.agents.flashsac import BoundedStdActor, FlashSac
from pac4sac.agents.nets import Net, Trunk
from pac4sac.agents.pac4sac import Pac4Sac, Pac4SacConfig
from pac4sac.agents.replay import Batch
from pac4sac.agents.residual import ResidualTrunk
from pac4sac.agents.schedule import scheduled
from pac4sac.agents.weight_norm import WeightNormalised, normalise_scales, normalise_weights
from pac4sac.agents.xqc import LogStdActor, Xqc
from pac4sac.base.errors import UserError
from pac4sac.report.provenance import runs_section
from pac4sac.report.report import read_context
from pac4sac.runs import critic_range
from pac4sac.runs.reading import read_runs
from pac4sac.training.learner import Learner

BATCH = Batch(
    s=column(1.0, 2.0),
    a=column(0.5, 1.0),
    r=torch.tensor([[1.0, -1.0]]),
    s2=column(2.0, 1.0),
    terminated=torch.tensor([[0.0, 0.0]]),
)
# u of a policy of mean 0 and std 1; log π worked out in test_agents_equations
NOISE = column(0.5, -1.0)
LOG_PI = (-0.80370930, -0.55137687)
EVERYONE = torch.ones(1, dtype=torch.bool)
THREE_BINS = {"bins": 3, "value_min": -1.0, "value_max": 1.0}


# --- learning-rate schedules


def test_a_schedule_decreases_the_rate_to_a_fraction_and_stays_there() -> None:
    rate, end = torch.full((4,), 0.2), torch.full((4,), 0.1)
    progress = torch.tensor([0.0, 0.25, 1.0, 3.0])
    for name, expected in {
        "constant": [0.2] * 4,
        "linear": [0.2, 0.2 * (1 - 0.9 * 0.25), 0.02, 0.02],
        "cosine": [0.2, 0.2 * (1 - 0.45 * (1 - math.sqrt(0.5))), 0.02, 0.02],
    }.items():
        assert scheduled(name, rate, end, progress).tolist() == pytest.approx(expected)


def test_a_schedule_follows_the_steps_of_the_network_and_the_updates_per_step() -> None:
    runs = [{"lr_steps": 10}, {"lr_steps": 10, "updates_per_step": 2}, {"critic_lr": 0.3}]
    agent = make_agent("sac", *runs, lr=0.1, lr_schedule="linear")
    state = agent.initial_state(range(3), CPU)
    state["critic/count"].fill_(5)
    assert agent.learning_rate(state, "critic").tolist() == pytest.approx(
        [0.05, 0.075, 0.3], rel=1e-4
    )
    assert agent.learning_rate(state, "actor").tolist() == pytest.approx([0.1] * 3)
    before = state["log_alpha"].clone()
    state["log_alpha/count"].fill_(10)  # the schedules of the first run are over
    everyone = torch.ones(3, dtype=torch.bool)
    agent.adam(state, "log_alpha", torch.ones(3, 1, 1), torch.zeros(3), everyone)
    assert torch.equal(before[0], state["log_alpha"][0])
    assert not torch.equal(before[1:], state["log_alpha"][1:])


def test_a_schedule_ends_at_0_or_at_lr_end() -> None:
    for algo, end in {"sac": [0.0], "pac4sac": [0.0], "xqc": [0.02], "flashsac": [0.05]}.items():
        own = {} if end == [0.0] else {"lr_end": 10 * end[0]}
        agent = make_agent(algo, lr=0.1, lr_schedule="cosine", lr_steps=5, **own)
        state = agent.initial_state([0], CPU)
        state["actor/count"].fill_(99)
        assert agent.learning_rate(state, "actor").tolist() == pytest.approx(end)


# --- the categorical critic


def test_a_projection_splits_values_between_neighbours_and_counts_clipped_values() -> None:
    critic = CategoricalCritic(Trunk({"s": 1}, 2, 1, False, "relu"), 1, 3, -1.0, 1.0)
    y = torch.tensor([[[0.25, 2.0], [-1.0, 1.0], [-0.5, -3.0]]])
    p = torch.tensor([[[0.5, 0.5], [0.3, 0.7], [0.9, 0.1]]])
    projected, outside = critic.project(y, p)
    expected = [[0.0, 0.375, 0.125 + 0.5], [0.3, 0.0, 0.7], [0.45 + 0.1, 0.45, 0.0]]
    torch.testing.assert_close(projected, torch.tensor([expected]))
    torch.testing.assert_close(outside, torch.tensor([[0.5, 0.0, 0.1]]))


@given(
    st.integers(2, 120),
    st.floats(-50, 49),
    st.floats(0.1, 100),
    st.lists(st.tuples(st.floats(-1.5, 2.5), st.floats(0.01, 1)), min_size=1, max_size=20),
)
def test_a_projection_keeps_the_probability_and_the_mean(
    bins: int, low: float, width: float, values: list[tuple[float, float]]
) -> None:
    high = low + width
    critic = CategoricalCritic(Trunk({"s": 1}, 2, 1, False, "relu"), 1, bins, low, high)
    places, weights = torch.tensor(values, dtype=torch.float64).T
    y, p = low + width * places, weights / weights.sum()
    projected, outside = critic.project(y.view(1, 1, -1), p.view(1, 1, -1))
    assert bool((projected >= 0).all())
    assert projected.sum().item() == pytest.approx(1.0, abs=1e-9)
    z = torch.linspace(low, high, bins, dtype=torch.float64)
    expected = (p * y.clamp(low, high)).sum().item()
    assert (projected @ z).item() == pytest.approx(expected, abs=1e-7 * (abs(low) + width))
    is_outside = (y < low) | (y > high)
    assert outside.item() == pytest.approx(p[is_outside].sum().item(), abs=1e-9)


def test_values_at_the_ends_are_inside_and_keep_their_bin() -> None:
    critic = CategoricalCritic(Trunk({"s": 1}, 2, 1, False, "relu"), 1, 101, -5.0, 5.0)
    y = torch.tensor([[[-5.0, 5.0]]])
    projected, outside = critic.project(y, torch.tensor([[[0.25, 0.75]]]))
    assert outside.tolist() == [[0.0]]
    assert projected[0, 0, [0, 100]].tolist() == pytest.approx([0.25, 0.75], abs=1e-5)
    assert projected.sum().item() == pytest.approx(1.0, abs=1e-6)


def hand_computed_xqc(**settings: Any) -> tuple[Xqc, State]:
    """Critics with the same distribution everywhere: its means are 0.3 and −0.3."""
    fixed = {"learn_alpha": False, "alpha": 0.2, "gamma": 0.9, "normalise_rewards": False}
    agent, state = hand_computed_agent("xqc", fixed | settings, **THREE_BINS)
    assert isinstance(agent, Xqc)
    p = torch.tensor([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]])
    for copy in ("critic", "critic/target"):
        agent.params(state, copy)["head.bias"].copy_(p.log().unsqueeze(1))
    return agent, state


def test_xqc_learns_the_projected_distribution_of_the_smaller_critic() -> None:
    agent, state = hand_computed_xqc()
    target = agent.bellman_target(state, BATCH, {"target": NOISE})
    # z = −1, 0, 1 with 0.5, 0.3, 0.2: first row 1 + 0.9 (z + 0.1607), of which the last two are
    # above 1; second row −1 + 0.9 (z + 0.1103), of which the first is below −1
    low = 1 + 0.9 * (-1 - 0.2 * LOG_PI[0])
    middle, high = (-1 + 0.9 * (z - 0.2 * LOG_PI[1]) for z in (0, 1))
    first = [0.0, 0.5 * (1 - low), 0.5 * low + 0.5]
    second = [0.5 - 0.3 * middle - 0.2 * high, 0.3 * (1 + middle) + 0.2 * (1 + high), 0.0]
    torch.testing.assert_close(target.probabilities, torch.tensor([[first, second]]))
    assert target.outside.tolist() == pytest.approx([0.5])
    loss, log = agent.critic_loss(state, agent.params(state, "critic"), BATCH, target, {})
    expected = sum(
        -sum(p * math.log(q) for p, q in zip(row, critic, strict=True)) / 2
        for row in (first, second)
        for critic in ([0.2, 0.3, 0.5], [0.5, 0.3, 0.2])
    )
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert log["q"].item() == pytest.approx(0.0, abs=1e-6)
    assert log["outside"].item() == pytest.approx(0.5)


def test_a_terminal_transition_does_not_use_the_next_state() -> None:
    agent, state = hand_computed_xqc()
    batch = BATCH._replace(terminated=torch.ones(1, 2), r=torch.tensor([[0.5, -0.25]]))
    target = agent.bellman_target(state, batch, {"target": NOISE})
    expected = [[0.0, 0.5, 0.5], [0.25, 0.75, 0.0]]
    torch.testing.assert_close(target.probabilities, torch.tensor([expected]))
    assert target.outside.tolist() == [0.0]


def test_the_actor_maximises_the_smaller_mean_of_the_distributions() -> None:
    agent, state = hand_computed_xqc()
    loss, _ = agent.actor_loss(state, agent.params(state, "actor"), BATCH, {"actor": NOISE})
    assert loss.item() == pytest.approx(0.2 * sum(LOG_PI) / 2 + 0.3, rel=1e-5)


# --- batch normalisation


def test_a_network_uses_batch_statistics_only_in_its_own_step() -> None:
    numbers = {"mean": 1.0, "variance": 4.0 - 1e-3, "scale": 2.0, "shift": 10.0}
    p = {f"x.{name}": torch.full((1, 1, 1), number) for name, number in numbers.items()}
    own = Learning(p)
    of_batch = 2 / math.sqrt(1.001)
    found = batch_norm(own, "x", column(1.0, 3.0), 1e-3)
    torch.testing.assert_close(found, column(10 - of_batch, 10 + of_batch))
    assert (own.seen["x.mean"].item(), own.seen["x.variance"].item()) == (2.0, 1.0)
    torch.testing.assert_close(batch_norm(p, "x", column(1.0, 3.0), 1e-3), column(10.0, 12.0))
    del p["x.shift"]
    torch.testing.assert_close(batch_norm(p, "x", column(3.0), 1e-3), column(2.0))


# --- weight normalisation


def test_weights_of_updated_runs_are_normalised_to_length_1() -> None:
    net = Net(Trunk({"s": 2}, 2, 1, False, "relu"), {})
    weights = torch.zeros(2, 1, sum(net.sizes))
    views = net.views(weights)
    views["0.weight"].copy_(torch.tensor([[3.0, 0.0], [4.0, 5.0]]))
    views["0.bias"].fill_(7.0)
    normalise_weights(net, weights, torch.tensor([True, False]))
    torch.testing.assert_close(views["0.weight"][0], torch.tensor([[0.6, 0.0], [0.8, 1.0]]))
    assert views["0.weight"][1].flatten().tolist() == [3.0, 0.0, 4.0, 5.0]
    assert views["0.bias"].unique().tolist() == [7.0]


def test_scale_and_shift_are_normalised_together() -> None:
    net = Net(ResidualTrunk({"s": 2}, 1, 1, False, "relu"), {})
    weights = torch.zeros(1, 1, sum(net.sizes))
    views = net.views(weights)
    views["bn.scale"].copy_(torch.tensor([3.0, 0.0]))
    views["bn.shift"].copy_(torch.tensor([0.0, 4.0]))
    views["rms.scale"].fill_(5.0)
    normalise_scales(net, weights, EVERYONE)
    root = math.sqrt(2)
    torch.testing.assert_close(views["bn.scale"].flatten(), torch.tensor([0.6 * root, 0.0]))
    torch.testing.assert_close(views["bn.shift"].flatten(), torch.tensor([0.0, 0.8 * root]))
    assert views["rms.scale"].item() == pytest.approx(1.0)


@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=12, max_size=12),
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=12, max_size=12),
)
def test_any_weights_become_unit_vectors_of_the_same_direction(
    first: list[float], second: list[float]
) -> None:
    net = Net(Trunk({"s": 2, "a": 1}, 4, 1, False, "relu"), {}, members=2)
    weights = torch.zeros(1, 2, sum(net.sizes))
    views = net.views(weights)
    before = torch.tensor([first, second]).view(2, 3, 4)
    before = torch.where(before.norm(dim=1, keepdim=True) < 1e-3, 1.0, before)
    views["0.weight"].copy_(before)
    normalise_weights(net, weights, EVERYONE)
    torch.testing.assert_close(views["0.weight"].norm(dim=1), torch.ones(2, 4))
    cosine = torch.nn.functional.cosine_similarity(views["0.weight"], before, dim=1)
    torch.testing.assert_close(cosine, torch.ones(2, 4), rtol=1e-4, atol=1e-4)


def lengths(agent: Agent, state: State, name: str) -> Tensor:
    views = agent.params(state, name).items()
    return torch.cat([w.norm(dim=1).flatten() for key, w in views if key.endswith("weight")])


@pytest.mark.parametrize("algo", ["xqc", "flashsac"])
def test_all_units_have_weights_of_length_1_before_and_after_learning(algo: str) -> None:
    learner = make_learner(algo, {}, {"updates_per_step": 2})
    agent = learner.agent
    for name in ("critic", "actor", "critic/target"):
        torch.testing.assert_close(
            lengths(agent, learner.state, name),
            torch.ones_like(lengths(agent, learner.state, name)),
        )
    first = learner.state["critic"].clone()
    train(learner, 12)
    assert not torch.equal(first, learner.state["critic"])
    for name in ("critic", "actor"):
        found = lengths(agent, learner.state, name)
        torch.testing.assert_close(found, torch.ones_like(found))
    # averages of unit vectors are shorter
    assert bool((lengths(agent, learner.state, "critic/target") < 1 - 1e-6).any())


# --- residual blocks


def test_a_residual_block_adds_its_output_and_the_trunk_ends_in_rms_norm() -> None:
    net = Net(ResidualTrunk({"s": 1, "a": 1}, 2, 1, False, "relu"), {})
    weights = net.initial([0], "initial/test", CPU)
    p = net.views(weights)
    for name, view in p.items():
        if name.endswith("variance"):
            view.fill_(1 - 1e-5)  # so that running statistics change nothing
        elif name.endswith("weight"):
            view.zero_()
    p["weight"].copy_(torch.eye(2))
    p["0.0.weight"][:, 0, 0] = 1.0  # the first unit inside is max(s, 0),
    p["0.1.weight"][:, 0, 1] = 2.0  # and the second feature gets twice of it
    p["0.0.weight"][:, 1, 1] = -1.0  # cut by the activation where a is positive
    p["0.1.weight"][:, 1, 0] = 1.0
    phi = net.features(p, column(1.5, 1.0), column(1.0, -1.0))
    first, second = (1.5, 4.0), (2.0, 1.0)
    expected = torch.tensor([[first, second]])
    expected = expected / expected.square().mean(-1, keepdim=True).sqrt()
    torch.testing.assert_close(phi, expected, rtol=1e-5, atol=1e-5)
    state = column(1.5)
    torch.testing.assert_close(net.features(p, state, column(1.0, 1.0))[:, 1], phi[:, 0])


class PacResidual(BatchNormalised, WeightNormalised, Pac4Sac):
    """The paper's randomised critic on residual features."""

    normalises_heads = False

    def trunk(self, kind: type[Trunk] = ResidualTrunk, /, **inputs: int) -> Trunk:
        return super().trunk(kind, **inputs)


def test_a_pac_bayes_critic_can_have_these_features() -> None:
    config = make_config(
        "pac4sac", overrides={"width": 4, "depth": 1, "batch": 6, "warmup": 8, "shots": 3}
    )
    assert isinstance(config, Pac4SacConfig)
    learner = Learner(PacResidual([config], 3, 2), [0], steps=100, device=CPU)
    train(learner, 14)
    assert learner.state["alive"].tolist() == [True]
    metrics = dict(zip(learner.agent.metric_names, learner.read_metrics()[:, 0], strict=True))
    assert metrics["kl"] > 0
    assert metrics["q_deviation"] > 0
    p = learner.agent.params(learner.state, "critic")
    torch.testing.assert_close(p["0.0.weight"].norm(dim=1), torch.ones(1, 16))
    assert abs(p["head.weight"].norm().item() - 1) > 1e-3


# --- FlashSAC


def test_the_policys_std_is_limited_by_a_clamp_or_by_a_tanh() -> None:
    trunk = Trunk({"s": 1}, 2, 1, False, "relu")
    x = torch.tensor([-30.0, 0.0, 30.0])
    clamped, bounded = LogStdActor(trunk, 1, 2.0).std(x), BoundedStdActor(trunk, 1, 2.0).std(x)
    torch.testing.assert_close(clamped, torch.tensor([-10.0, 0.0, 2.0]).exp())
    torch.testing.assert_close(bounded, torch.tensor([-10.0, -4.0, 2.0]).exp())


def test_rewards_are_divided_so_that_no_return_leaves_the_range_of_the_bins() -> None:
    agent = make_agent("flashsac", gamma=0.5, value_max=4.0)
    state = agent.initial_state([0], CPU)
    scales = []
    for r in (10.0, -4.0, 35.0):  # G = 10, 1, 35.5
        agent.update_reward_statistics(state, torch.tensor([r]))
        scales.append(agent.reward_scale(state).item())
    # 10 must be at most 4; the std of 10 and 1 is 4.5, that of all three is larger than 35.5/4
    assert scales == pytest.approx([10 / 4, 4.5, 14.6116], rel=1e-5)
    without = make_agent("flashsac", normalise_rewards=False)
    assert without.reward_scale(without.initial_state([0], CPU)).tolist() == [1.0]


def test_exploration_noise_is_held_for_as_many_steps_as_were_drawn() -> None:
    agent = make_agent("flashsac", held_max=3, warmup=0, shots=2)
    assert isinstance(agent, FlashSac)
    state = agent.initial_state([0], CPU)
    # 1, 1/4 and 1/9 of 49/36
    assert agent.held_distribution(state["held/steps"]).tolist() == pytest.approx(
        [36 / 49, 45 / 49]
    )
    noise, used = torch.arange(24.0).view(6, 1, 2, 1, 2), []
    for k, u in enumerate((0.8, 0.99, 0.1, 0.95, 0.0, 0.0)):  # 2 steps, 1 step, 3 steps
        draw = {"candidates": noise[k], "held": torch.tensor([[u]]), "warmup": torch.zeros(1, 2)}
        agent.act(state, torch.zeros(1, 3), draw)
        used.append(state["held/noise"].flatten()[0].item())
    assert used == [0.0, 0.0, 8.0, 12.0, 12.0, 12.0]


def test_flashsac_updates_the_actor_first_in_every_second_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = train(make_learner("flashsac"), 8)
    learner.state["step"].fill_(8)
    order: list[str] = []
    adam = FlashSac.adam
    monkeypatch.setattr(
        FlashSac,
        "adam",
        lambda self, state, name, *rest: (order.append(name), adam(self, state, name, *rest))[1],
    )
    for _ in range(2):
        learner.learn()
        learner.step += 1
        learner.state["step"] += 1
    assert order == ["actor", "log_alpha", "critic", "critic"]


def test_flashsac_normalises_the_actor_with_states_and_next_states() -> None:
    agent, batch = make_agent("flashsac", ds=1, da=1), BATCH._replace(s2=column(5.0, 0.0))
    state = agent.initial_state([0], CPU)
    pi = Learning(agent.params(state, "actor"))
    agent.actor_loss(state, pi, batch, {"actor": NOISE})
    assert pi.seen["bn.mean"].item() == pytest.approx(2.0)  # of 1, 2, 5 and 0


# --- settings


@pytest.mark.parametrize(
    ("algo", "settings", "sentence"),
    [
        ("xqc", {"bins": 1}, "bins must be a whole number in [2, 1000], not 1."),
        ("xqc", {"value_min": 5.0}, "value_min must be below value_max (5), not 5."),
        ("xqc", {"policy_delay": 0}, "policy_delay must be a whole number at least 1, not 0."),
        ("flashsac", {"held_max": 0}, "held_max must be a whole number in [1, 1000], not 0."),
        (
            "flashsac",
            {"norm": True},
            "The residual networks of flashsac do not support layer normalisation; set norm to false.",
        ),
        ("xqc", {"lr_end": 1.5}, "lr_end must be a number in [0, 1], not 1.5."),
        ("sac", {"lr_steps": 0}, "lr_steps must be a whole number at least 1, not 0."),
        (
            "sac",
            {"lr_schedule": "step"},
            "lr_schedule must be one of constant, linear, cosine, not 'step'.",
        ),
    ],
)
def test_invalid_settings_are_refused_in_a_sentence(
    algo: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError) as refusal:
        make_config(algo, overrides=settings)
    assert str(refusal.value) == sentence


def test_the_defaults_are_the_published_settings() -> None:
    shared = {"lr": 3e-4, "bins": 101, "value_min": -5.0, "value_max": 5.0, "critics": 2}
    shared |= {"alpha": 0.01, "alpha_loss": "plain", "normalise_rewards": True}
    shared |= {"activation": "relu", "log_std_max": 2.0, "lr_steps": 1_000_000}
    xqc = {"updates_per_step": 2, "batch": 256, "width": 256, "depth": 4, "critic_width": 512}
    xqc |= {"policy_delay": 3, "tau": 0.005, "gamma": 0.995, "warmup": 5_000}
    xqc |= {"lr_schedule": "linear", "lr_end": 0.1, "target_entropy": -0.5}
    flashsac = {"updates_per_step": 1, "batch": 512, "width": 128, "depth": 2, "critic_width": 256}
    flashsac |= {"policy_delay": 2, "tau": 0.01, "gamma": 0.99, "warmup": 10_000}
    entropy = 0.5 + 0.5 * math.log(2 * math.pi) + math.log(0.15)
    flashsac |= {"lr_schedule": "cosine", "lr_end": 0.5, "target_entropy": entropy, "held_max": 16}
    for algo, own in {"xqc": xqc, "flashsac": flashsac}.items():
        config = make_config(algo)
        for name, value in (shared | own).items():
            expected = pytest.approx(value) if isinstance(value, float) else value
            assert getattr(config, name) == expected, (algo, name)


# --- targets outside of the range of the bins


def test_targets_outside_the_range_are_logged_and_reported(tmp_path: Path) -> None:
    out, narrow = tmp_path / "out", {"value_min": -0.01, "value_max": 0.01, "warmup": 8}
    with pytest.warns(UserWarning, match=r"% of the targets of xqc-seed0 were outside") as warned:
        tiny_experiments.train(
            out, "xqc", seeds=(0,), settings=narrow, steps=60, evaluation_episodes=0
        )
    text = str(warned[-1].message)
    assert "-0.01 to 0.01" in text
    shares = [row["outside"] for row in tiny_experiments.rows(out, "xqc-seed0", "metrics")]
    stored = tiny_experiments.about(out, "xqc-seed0")
    assert stored["targets_outside"] == pytest.approx(sum(shares) / len(shares))
    assert stored["targets_outside"] > 0.01
    (run,) = read_runs(out)
    assert run.about["targets_outside"] == stored["targets_outside"]
    notes = runs_section(read_context([out])).blocks
    assert any(text in block for block in notes)


def test_a_few_targets_outside_or_another_kind_of_critic_need_no_warning() -> None:
    about = {"run": "xqc-seed0", "config": {"value_min": -5.0, "value_max": 5.0}}
    assert critic_range.warning_of(about) == ""
    assert critic_range.warning_of(about | {"targets_outside": 0.009}) == ""


@pytest.mark.parametrize("is_on", [True, False])
def test_only_advice_that_was_not_followed_is_given(is_on: bool) -> None:
    config = {"value_min": -5.0, "value_max": 5.0, "normalise_rewards": is_on}
    about = {"run": "xqc-seed0", "config": config, "targets_outside": 0.05}
    warning = critic_range.warning_of(about)
    assert "5.0%" in warning
    assert "value_max" in warning
    assert ("normalise_rewards" in warning) is not is_on
    assert "2.0% of the targets of xqc-seed0" in critic_range.warning_of(
        about | {"targets_outside": 0.02}
    )
    assert critic_range.mean_outside(b'{"q": 1.0}\n') is None
    assert critic_range.mean_outside(b'{"outside": 0.2}\n{"outside": null}\n') == 0.2
