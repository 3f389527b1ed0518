"""REDQ, DroQ, TQC and CrossQ by hand."""

import math
from typing import Any

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
    train,
)

from pac4sac.agents import droq, make_config
from pac4sac.agents.base import Agent, State, Target
from pac4sac.agents.crossq import CrossQ, CrossQConfig, Renormalised, renormalise
from pac4sac.agents.redq import drawn_subset
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import SacConfig
from pac4sac.agents.tape import hashed_uniforms
from pac4sac.base.errors import UserError
from pac4sac.tasks import get_task
from pac4sac.training.backends import Rehearsal
from pac4sac.training.run import make_runs

BATCH = Batch(
    s=column(1.0, 2.0),
    a=column(0.5, 1.0),
    r=torch.tensor([[1.0, -1.0]]),
    s2=column(2.0, 1.0),
    terminated=torch.tensor([[0.0, 0.0]]),
)
# u of a policy of mean 0 and deviation 1; log π worked out in test_agents_equations
NOISE = column(0.5, -1.0)
TANH_HALF = math.tanh(0.5)
LOG_PI = (-0.80370930, -0.55137687)
FIXED = {"learn_alpha": False, "alpha": 0.2, "gamma": 0.9}
# Q_1 = s + 2a, Q_2 = 2s − a, Q_3 = 1
THREE = (
    {"weight": [1.0, 2.0], "bias": 0.0},
    {"weight": [2.0, -1.0], "bias": 0.0},
    {"weight": [0.0, 0.0], "bias": 1.0},
)


# --- REDQ


def test_redq_bootstraps_from_the_smallest_drawn_target_critic() -> None:
    agent, state = hand_computed_agent(
        "redq", FIXED, FIXED | {"subset": 1}, FIXED | {"subset": 3}, critics=3
    )
    set_head(agent, state, "critic/target", *THREE)
    batch = Batch(*(part.expand(3, *part.shape[1:]) for part in BATCH))
    noise = NOISE.expand(3, -1, -1)
    # Q_1 and Q_2; Q_2; all
    subset = torch.tensor([[0.1, 0.5, 0.9], [0.3, 0.1, 0.2], [0.3, 0.1, 0.2]])
    y = agent.bellman_target(state, batch, {"target": noise, "subset": subset}).y
    # at (2, tanh ½) and, where φ_2 = 0, at (1, tanh −1)
    q1, q2 = ((2 + 2 * TANH_HALF, 1.0), (4 - TANH_HALF, 2.0))
    smallest = [list(map(min, q1, q2)), q2, [1.0, 1.0]]
    expected = [
        [r + 0.9 * (q - 0.2 * log_pi) for r, q, log_pi in zip((1, -1), row, LOG_PI, strict=True)]
        for row in smallest
    ]
    torch.testing.assert_close(y, torch.tensor(expected))


def test_every_pair_of_critics_is_drawn_equally_often() -> None:
    members = drawn_subset(
        torch.rand(6000, 4, generator=torch.Generator().manual_seed(0)), torch.full((6000,), 2)
    )
    assert members.sum(1).unique().tolist() == [2]
    pairs, counts = members.unique(dim=0, return_counts=True)
    assert len(pairs) == 6
    assert counts.tolist() == pytest.approx([1000] * 6, rel=0.1)
    assert drawn_subset(torch.full((1, 3), 0.5), torch.tensor([2])).tolist() == [
        [True, True, False]
    ]


def test_redq_actor_and_shooting_maximise_the_mean_of_the_ensemble() -> None:
    agent, state = hand_computed_agent("redq", FIXED, critics=3, shots=2)
    set_head(agent, state, "critic", *THREE)
    loss, _ = agent.actor_loss(state, agent.params(state, "actor"), BATCH, {"actor": NOISE})
    means = ((1 + 2 * TANH_HALF + 2 - TANH_HALF + 1) / 3, (2 + 4 + 1) / 3)
    expected = sum(0.2 * log_pi - q for log_pi, q in zip(LOG_PI, means, strict=True)) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    q, v = agent.mean_and_variance(state, BATCH.s, torch.tanh(NOISE))
    torch.testing.assert_close(q, torch.tensor([means]))
    assert v is None
    # The mean rises with a by (2 − 1)/3, the smallest critic, Q_3, not at all.
    shots = torch.tensor([-0.3, 0.7]).view(1, 2, 1, 1)
    assert agent.behaviour(state, column(1.0), {"candidates": shots}).item() == pytest.approx(
        math.tanh(0.7)
    )


def test_redq_updates_actor_and_alpha_every_policy_delay_updates() -> None:
    learner = train(
        make_learner("redq", {"policy_delay": 4}, {"policy_delay": 2}, updates_per_step=4), 10
    )
    assert learner.state["critic/count"].tolist() == [8, 8]  # steps 8 and 9
    for name in ("actor", "log_alpha"):
        assert learner.state[f"{name}/count"].tolist() == [2, 4]


def test_redq_updates_the_actor_in_the_last_update_of_a_step() -> None:
    learner = train(make_learner("redq", {"policy_delay": 3}, updates_per_step=3), 9)
    moved = []
    for place in range(3):
        before = learner.state["actor"].clone()
        learner.update(place)
        moved.append(not torch.equal(before, learner.state["actor"]))
    assert moved == [False, False, True]
    with Rehearsal(learner) as rehearsal:
        counts = [rehearsal.start["actor/count"], rehearsal.once()["actor/count"]]
    assert (counts[1] - counts[0]).tolist() == [1]


# --- DroQ


def hand_computed_droq(**settings: Any) -> tuple[Agent, State]:
    """LayerNorm makes (1, 0) of hidden units of which the first is larger, and (0, 1) where the
    second is."""
    agent, state = hand_computed_agent("droq", FIXED | settings)
    for copy in ("critic", "critic/target"):
        set_head(
            agent,
            state,
            copy,
            {"weight": [1.0, 2.0], "bias": 0.0},
            {"weight": [3.0, 5.0], "bias": 0.0},
        )
        agent.params(state, copy)["0.scale"].fill_(1.0)
    return agent, state


def test_droq_drops_units_before_layer_normalisation_in_every_q_that_learns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, state = hand_computed_droq(dropout=0.1)
    # Of the two critics, two rows and two units: the first critic loses its first unit in the first
    # row.
    u = torch.tensor([[0.05, 0.5], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]).view(1, -1)
    monkeypatch.setattr(droq, "hashed_uniforms", lambda keys, count: u)
    key = torch.zeros(1, 1)
    close = {"rtol": 1e-4, "atol": 1e-4}  # LayerNorm's ε
    # (s, a) = (1, ½), (2, 1): units (1, 0) in each row; where the first is dropped (0, ½/0.9),
    # hence (0, 1).
    y = torch.tensor([[0.0, 0.0]])
    loss, log = agent.critic_loss(
        state, agent.params(state, "critic"), BATCH, Target(y, BATCH.a), {"critic_dropout": key}
    )
    torch.testing.assert_close(log["q"], torch.tensor([(2 + 1 + 3 + 3) / 4]), **close)
    torch.testing.assert_close(loss, torch.tensor([(4.0 + 1) / 2 + 9]), **close)
    q2 = agent.target_value(
        state, BATCH.s, BATCH.a, {"target_dropout": key, "subset": torch.zeros(1, 2)}
    )
    torch.testing.assert_close(q2, torch.tensor([[2.0, 1.0]]), **close)  # min(2, 3), min(1, 3)
    loss, _ = agent.actor_loss(
        state,
        agent.params(state, "actor"),
        BATCH,
        {"actor": column(0.0, 0.0), "actor_dropout": key},
    )
    log_pi = -0.5 * math.log(2 * math.pi)
    # a = 0: with the first unit gone both are 0, and nothing is left of the first critic in the
    # first row.
    torch.testing.assert_close(
        loss, torch.tensor([0.2 * log_pi - ((0 + 3) / 2 + (1 + 3) / 2) / 2]), **close
    )


def test_kept_units_are_scaled_and_acting_drops_no_units() -> None:
    agent, state = hand_computed_droq(dropout=0.75)
    trunk = agent.critic.trunk
    trunk.norm, trunk.activation = False, lambda x: x
    agent.params(state, "critic")["0.bias"].fill_(1.0)
    theta = agent.params(state, "critic")
    s, a = torch.zeros(1, 4000, 1), torch.zeros(1, 4000, 1)
    phi = agent.critic.features({**theta, "dropout": torch.tensor([[0.3, 0.75]])}, s, a)
    assert sorted(phi.unique().tolist()) == pytest.approx([0.0, 4.0])  # 1/(1 − ¾)
    assert phi.mean().item() == pytest.approx(1.0, abs=0.05)
    assert agent.value(theta, s, a, None).unique().tolist() == pytest.approx([(1 + 2 + 3 + 5) / 2])


def test_hashed_numbers_are_uniform_independent_and_a_keys_own() -> None:
    keys = torch.rand(5, generator=torch.Generator().manual_seed(0))
    u = hashed_uniforms(keys, 40_000)
    assert torch.equal(u[3:4], hashed_uniforms(keys[3:4], 40_000))  # in any company
    shares = torch.stack([row.histc(20, 0, 1) for row in u]) / 2000
    torch.testing.assert_close(shares, torch.ones(5, 20), rtol=0, atol=0.1)
    neighbours = torch.cat([u, u.roll(1, 1), u.roll(256, 1)])
    correlation = torch.corrcoef(neighbours) - torch.eye(15)
    assert correlation.abs().max() < 0.03


# --- TQC


def hand_computed_tqc(*runs: dict[str, Any]) -> tuple[Agent, State]:
    """Two critics of two atoms each, the same everywhere: (1, 4) and (0, 2)."""
    agent, state = hand_computed_agent(
        "tqc", *(FIXED | {"alpha": 0.0} | run for run in runs), critics=2, quantiles=2
    )
    for copy in ("critic", "critic/target"):
        agent.params(state, copy)["head.bias"].copy_(
            torch.tensor([[1.0, 4.0], [0.0, 2.0]] * len(runs)).unsqueeze(1)
        )
    return agent, state


def test_tqc_pools_sorts_and_truncates_atoms() -> None:
    agent, state = hand_computed_tqc({"dropped": 1}, {"dropped": 0})
    batch = BATCH._replace(r=torch.ones(1, 2), terminated=torch.tensor([[0.0, 1.0]]))
    batch = Batch(*(part.expand(2, *part.shape[1:]) for part in batch))
    target = agent.bellman_target(state, batch, {"target": NOISE.expand(2, -1, -1)})
    # r + 0.9 · (0, 1, 2, 4)
    torch.testing.assert_close(target.y[0], torch.tensor([[1.0, 1.9, 2.8, 4.6], [1.0] * 4]))
    loss, log = agent.critic_loss(state, agent.params(state, "critic"), batch, target, {})
    # Of four atoms the two smallest stay. τ = ¼, ¾; Huber's loss is u²/2 up to 1, then |u| − ½.
    # θ = 1: u = 0, 0.9; θ = 4: u = −3, −2.1
    first = (0.25 * 0 + 0.25 * 0.405) + (0.25 * 2.5 + 0.25 * 1.6)
    # θ = 0: u = 1, 1.9; θ = 2: u = −1, −0.1
    second = (0.25 * 0.5 + 0.25 * 1.4) + (0.25 * 0.5 + 0.25 * 0.005)
    at_the_end = 2 * (0.25 * 2.5) + 2 * (0.25 * 0.5 + 0.25 * 0.5)  # y = 1 twice: θ = 1, 4; θ = 0, 2
    assert loss[0].item() == pytest.approx(((first + second) / 4 + at_the_end / 4) / 2)
    # With all four: u = 1.8, 3.6 and −1.2, 0.6 for the first critic, 2.8, 4.6 and 0.8, 2.6 for the
    # second.
    first += (0.25 * 1.3 + 0.25 * 3.1) + (0.25 * 0.7 + 0.75 * 0.18)
    second += (0.25 * 2.3 + 0.25 * 4.1) + (0.75 * 0.32 + 0.75 * 2.1)
    assert loss[1].item() == pytest.approx(((first + second) / 8 + at_the_end / 4) / 2)
    assert log["q"].tolist() == pytest.approx([7 / 4] * 2)
    assert log["spread"].tolist() == pytest.approx([(1.5 + 1) / 2] * 2)


def test_tqc_has_a_soft_target_and_its_actor_maximises_the_mean_of_all_atoms() -> None:
    agent, state = hand_computed_tqc({"alpha": 0.2, "dropped": 1})
    y = agent.bellman_target(state, BATCH, {"target": NOISE}).y
    expected = [
        [r + 0.9 * (z - 0.2 * log_pi) for z in (0, 1, 2, 4)]
        for r, log_pi in zip((1, -1), LOG_PI, strict=True)
    ]
    torch.testing.assert_close(y, torch.tensor([expected]))
    loss, _ = agent.actor_loss(state, agent.params(state, "actor"), BATCH, {"actor": NOISE})
    assert loss.item() == pytest.approx(0.2 * sum(LOG_PI) / 2 - 7 / 4)


# --- CrossQ


def weights(mean: float, sigma: float, settled: bool) -> Renormalised:
    numbers = {"mean": mean, "variance": sigma**2 - 1e-3, "scale": 2.0, "shift": 10.0}
    return Renormalised(
        {f"x.{name}": torch.full((1, 1, 1), number) for name, number in numbers.items()},
        torch.tensor(settled),
    )


def test_batch_renormalisation_uses_clipped_running_statistics() -> None:
    x, of_batch = column(1.0, 3.0), math.sqrt(1.001)  # mean 2, variance 1
    near, far = weights(1.0, 0.5, True), weights(1.0, 0.1, True)
    # r = 2 √1.001, d = 2: mean 2 − 2/r, variance 1/r² + ε, so (x − 1)/½ but for ε
    r = 2 * of_batch
    scale = 2 / math.sqrt(1 / r**2 + 1e-3)
    expected = column(10 + scale * (2 / r - 1), 10 + scale * (2 / r + 1))
    torch.testing.assert_close(renormalise(near, "x", x), expected)
    # r = 10 and d = 10 are cut at 3 and 5.
    scale = 2 / math.sqrt(1 / 9 + 1e-3)
    expected = column(10 + scale * (5 / 3 - 1), 10 + scale * (5 / 3 + 1))
    torch.testing.assert_close(renormalise(far, "x", x), expected)
    # A unit that is the same in all of a batch stays at the shift, whatever was usual.
    dead = renormalise(weights(1.0, 0.5, True), "x", column(3.0, 3.0))
    torch.testing.assert_close(dead, column(10.0, 10.0), atol=1e-3, rtol=0)
    warming_up = weights(1.0, 0.1, False)
    torch.testing.assert_close(
        renormalise(warming_up, "x", x), column(10 - 2 / of_batch, 10 + 2 / of_batch)
    )
    assert (warming_up.seen["x.mean"].item(), warming_up.seen["x.variance"].item()) == (2.0, 1.0)
    elsewhere = dict(near)  # by what was seen alone
    torch.testing.assert_close(renormalise(elsewhere, "x", column(3.0)), column(10.0 + 2 * 4))


def hand_computed_crossq(**settings: Any) -> tuple[CrossQ, State]:
    agent, state = hand_computed_agent("crossq", FIXED | settings)
    assert isinstance(agent, CrossQ)
    for name in agent.nets:
        for part, view in agent.params(state, name).items():
            if part.endswith((".scale", ".variance")):
                view.fill_(1.0)
    set_head(
        agent,
        state,
        "critic",
        {"weight": [1.0, 0.0], "bias": 0.0},
        {"weight": [2.0, 0.0], "bias": 0.5},
    )
    return agent, state


def test_crossq_computes_q_and_target_in_one_pass_without_target_networks() -> None:
    agent, state = hand_computed_crossq()
    assert not [name for name in state if name.endswith("/target")]
    following = agent.bellman_target(state, BATCH, {"target": NOISE})
    torch.testing.assert_close(following.log_pi, torch.tensor([LOG_PI]))
    theta = {name: view.requires_grad_() for name, view in agent.params(state, "critic").items()}
    learning = Renormalised(theta, torch.zeros(2, 1, 1, dtype=torch.bool))
    loss, log = agent.critic_loss(state, learning, BATCH, following, {})
    # States 1, 2 | 2, 1: normalised ∓½/σ; ReLU makes 0 and c of them; normalised again ∓e. Q_1 =
    # ∓e, Q_2 = 2 Q_1 + ½.
    c = 0.5 / math.sqrt(0.25 + 1e-3)
    e = (c / 2) / math.sqrt((c / 2) ** 2 + 1e-3)
    q = torch.tensor([[-e, e], [-2 * e + 0.5, 2 * e + 0.5]])
    q2 = torch.tensor([e, -2 * e + 0.5])  # the smaller, at states 2 and 1
    y = BATCH.r[0] + 0.9 * (q2 - 0.2 * torch.tensor(LOG_PI))
    torch.testing.assert_close(loss, (y - q).square().mean(1).sum().view(1))
    torch.testing.assert_close(log["q"], q.mean().view(1))
    # Held fixed: through y the bias would have a gradient too.
    bias = torch.autograd.grad(loss.sum(), theta["head.bias"])[0]
    torch.testing.assert_close(bias.flatten(), -2 * (y - q).mean(1))
    assert learning.seen["renorm0.mean"][:, 0, 0].tolist() == [1.5, 1.5]


def test_running_statistics_change_only_in_updates_of_their_network() -> None:
    agent, state = hand_computed_crossq(learn_alpha=True)
    state["step"].fill_(25)  # which 3 does not divide: the actor rests
    noise = {"target": NOISE, "actor": NOISE}
    everyone = torch.ones(1, dtype=torch.bool)
    for step, expected in ((25, 0.0), (27, 0.015)):
        state["step"].fill_(step)
        agent.learn(state, BATCH, noise, everyone)
        assert agent.params(state, "actor")["renorm0.mean"].item() == pytest.approx(expected)
    seen = agent.params(state, "critic")
    # twice towards 1.5
    assert seen["renorm0.mean"][:, 0, 0].tolist() == pytest.approx([0.015 * 1.99] * 2)
    # towards ¼
    assert seen["renorm0.variance"][:, 0, 0].tolist() == pytest.approx([1 - 0.0075 * 1.99] * 2)
    agent.learn(state, BATCH, noise, ~everyone)
    assert agent.params(state, "critic")["renorm0.mean"][:, 0, 0].tolist() == pytest.approx(
        [0.015 * 1.99] * 2
    )


def test_running_statistics_are_part_of_the_acting_weights() -> None:
    agent, state = hand_computed_crossq()
    pi = agent.params(state, "actor")
    pi["0.weight"][:, :, 0] = 1.0
    pi["head.weight"][:, 0, 0] = 1.0
    pi["renorm0.mean"].fill_(1.0)
    pi["renorm0.variance"].fill_(4 - 1e-3)
    hidden = (3 - 1) / 2 / math.sqrt(1 + 1e-3)
    torch.testing.assert_close(
        agent.deterministic_action(state, column(3.0)), column(math.tanh(hidden))
    )


def test_adam_uses_the_beta_1_of_each_run() -> None:
    agent = make_agent("crossq", {}, {"alpha_beta_1": 0.9, "beta_1": 0.1}, lr=0.1)
    state = agent.initial_state([0, 0], CPU)
    start = state["log_alpha"].flatten().clone()
    everyone = torch.ones(2, dtype=torch.bool)
    for g in (1.0, -1.0):
        agent.adam(state, "log_alpha", torch.full((2, 1, 1), g), torch.zeros(2), everyone)
    # ½ − … : m = 0.5·0.5 − 0.5 = −0.25, over 1 − 0.25; with 0.9, m = −0.01 over 0.19
    moved = -0.1 + 0.1 * torch.tensor([0.25 / 0.75, 0.01 / 0.19])
    torch.testing.assert_close(state["log_alpha"].flatten() - start, moved, rtol=1e-4, atol=1e-5)


# --- all of them


@pytest.mark.parametrize("algo", ["crossq", "redq", "droq", "tqc"])
def test_a_checkpoint_contains_all_that_learning_needs(algo: str) -> None:
    cohort = [algo, {"gamma": 0.9}, {"shots": 3}]
    whole, resumed = (
        make_learner(*cohort, updates_per_step=2),
        make_learner(*cohort, updates_per_step=2),
    )
    resumed.restore(train(whole, 11).export())
    for learner in (whole, resumed):
        for _ in range(4):
            learner.learn()
            learner.step += 1
            learner.state["step"] += 1
    for name, tensor in whole.state.items():
        assert torch.equal(tensor, resumed.state[name]), name


# --- settings


@pytest.mark.parametrize(
    ("algo", "settings", "sentence"),
    [
        ("redq", {"subset": 11}, "subset must be at most the number of critics (10), not 11."),
        ("droq", {"critics": 1}, "subset must be at most the number of critics (1), not 2."),
        ("droq", {"dropout": 1.0}, "dropout must be a number in [0, 1), not 1.0."),
        ("tqc", {"dropped": 25}, "dropped must be below the number of quantiles (25), not 25."),
        ("tqc", {"quantiles": 0}, "quantiles must be a whole number in [1, 1000], not 0."),
        ("crossq", {"beta_1": 1.0}, "beta_1 must be a number in [0, 1), not 1.0."),
        (
            "crossq",
            {"renorm_warmup": -1},
            "renorm_warmup must be a whole number at least 0, not -1.",
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
    published = {"sac": 1, "td3": 1, "crossq": 1, "redq": 20, "droq": 20, "tqc": 1, "pac4sac": 1}
    for algo, updates in published.items():
        preset = "mujoco" if algo == "pac4sac" else "default"
        (run,) = make_runs(get_task("Pendulum-v1"), algo, preset, [0], {})
        c = run.config
        assert (c.batch, c.capacity, c.updates_per_step, c.norm) == (
            256,
            1_000_000,
            updates,
            False,
        ), algo
        assert (c.width, c.depth, c.activation) == (256, 2, "relu"), algo
        assert c.lr == (1e-3 if algo == "crossq" else 3e-4)
        assert algo == "td3" or c.log_std_max == 2.0  # type: ignore[attr-defined]
        assert algo == "td3" or (c.learn_alpha and c.alpha == 1.0)  # type: ignore[attr-defined]
    crossq = make_config("crossq")
    assert isinstance(crossq, CrossQConfig)
    assert (crossq.critic_width, crossq.beta_1, crossq.alpha_beta_1) == (2048, 0.5, 0.9)
    assert crossq.alpha_loss == "plain"
    for algo, warmup in {"sac": 5_000, "redq": 5_000, "droq": 5_000}.items():
        curves = make_config(algo, "published-curves")
        assert isinstance(curves, SacConfig)
        assert (curves.lr, curves.warmup, curves.alpha_loss) == (1e-3, warmup, "plain")
        assert curves.target_entropy == -1.0
    assert (make_config("tqc").critic_width, make_config("tqc").critic_depth) == (512, 3)


def test_critics_may_be_wider_and_deeper_than_the_actor() -> None:
    agent = make_agent("sac", critic_width=5, critic_depth=3)
    assert (agent.critic.trunk.width, agent.critic.trunk.depth) == (5, 3)
    assert (agent.nets["actor"].trunk.width, agent.nets["actor"].trunk.depth) == (8, 2)
    q, _ = agent.critic(agent.params(agent.initial_state([0], CPU), "critic"), *random_batch()[:2])
    assert q.shape == (1, 2, 6)
