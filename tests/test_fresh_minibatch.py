"""The exploration term on a minibatch of its own, with numbers worked out by hand."""

from typing import Any

import pytest
import torch
from small_cohorts import (
    agent_on_paper,
    assert_compiled_learns_as_eager,
    column,
    make_agent,
    make_learner,
    set_head,
    tape_reading,
    trace_only,
    train,
)

from pac4sac.agents import make_config, replay
from pac4sac.agents.base import Agent, State
from pac4sac.base.errors import UserError

FRESH = {"exploration_batch": "fresh"}
HEAD = {"weight": [0.5, -0.25], "bias": 0.1, "variance": [0.04, 0.01]}
ALGORITHMS = ("pac4sac", "pac4ddpg")
# Four transitions; φ = (s, a), so v_p(s′, a′) = 0.04 s′² + 0.01 max(a′, 0)². Only the second ended
# its episode.
RING = torch.zeros(1, 25, replay.row_width(1, 1))
RING[:, :4] = replay.pack(
    column(1.0, 2.0, 0.5, 0.0),
    column(0.5, 1.0, 0.0, 0.0),
    column(1.0, -1.0, 0.0, 0.0),
    column(2.0, 1.0, 3.0, 0.5),
    column(0.0, 1.0, 0.0, 0.0),
)
# A policy of mean 0 and deviation 1: its next actions are tanh of the noise.
DRAW = {
    "replay": torch.tensor([[0.0, 0.3]]),  # the first two of four
    "target": column(0.5, 0.5).unsqueeze(1),
    "actor": column(0.0, 0.0),
    "actor_value": torch.zeros(1, 1, 2),
    "fresh/replay": torch.tensor([[0.9, 0.6]]),  # the last two
    "fresh/target": column(-1.0, 0.5).unsqueeze(1),
}
TANH_HALF = 0.46211716
# of the two next pairs; one that ended its episode has none
AT_SAME = (0.04 * 2**2 + 0.01 * TANH_HALF**2, 0.0)
AT_FRESH = (0.04 * 0.5**2, 0.04 * 3**2 + 0.01 * TANH_HALF**2)
AT_FRESH_WITHOUT_ACTION = (0.04 * 0.5**2, 0.04 * 3**2)  # the deterministic actor stands still


def on_paper(algo: str, **settings: Any) -> tuple[Agent, State]:
    agent, state = agent_on_paper(algo, conservative=0.0, **settings)
    set_head(agent, state, "critic", HEAD)
    state["step"].fill_(4)
    return agent, state


def logged(algo: str, **settings: Any) -> dict[str, float]:
    agent, state = on_paper(algo, **settings)
    agent.update(state, RING, DRAW)
    return dict(zip(agent.metric_names, state["metrics"][:, 0].tolist(), strict=True))


@pytest.mark.parametrize(
    ("algo", "settings", "expected"),
    [
        ("pac4sac", {}, AT_SAME),
        ("pac4sac", FRESH, AT_FRESH),
        ("pac4ddpg", {}, (0.04 * 2**2, 0.0)),
        ("pac4ddpg", FRESH, AT_FRESH_WITHOUT_ACTION),
    ],
)
def test_the_exploration_term_is_the_mean_over_its_own_minibatch(
    algo: str, settings: dict[str, Any], expected: tuple[float, float]
) -> None:
    found = logged(algo, xi=0.3, **settings)
    assert found["exploration"] == pytest.approx(sum(expected) / 2, rel=1e-5)
    assert found["critic_loss"] == pytest.approx(
        found["bellman"] - 0.3 * sum(expected) / 2, rel=1e-5
    )


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_other_terms_stay_on_the_minibatch_of_the_update(algo: str) -> None:
    same, fresh = logged(algo), logged(algo, **FRESH)
    for name in ("bellman", "conservative", "kl", "q", "q_deviation"):
        assert fresh[name] == same[name]


def test_bounded_objectives_have_the_term_there_too() -> None:
    spread = [1 - (1 + 2 * v / 2.0**2) ** -0.5 for v in AT_FRESH]
    found = logged("pac4sac", objective="quadratic", loss_scale=2.0, **FRESH)
    assert found["exploration"] == pytest.approx(sum(spread) / 2, rel=1e-5)


def test_its_slope_is_that_of_the_fresh_features() -> None:
    agent, state = on_paper("pac4sac", xi=0.3, **FRESH)
    # the first moment then holds a tenth of the gradient at these numbers
    state["hyper/lr"].zero_()
    agent.update(state, RING, DRAW)
    moment = agent.nets["critic"].views(state["critic/first_moment"])["head.log_variance"].flatten()
    # In log v_i: v_i · (E φ_i² − ξ E φ_i′²)
    expected = [
        0.04 * ((1 + 4) / 2 - 0.3 * (0.25 + 9) / 2),
        0.01 * ((0.25 + 1) / 2 - 0.3 * TANH_HALF**2 / 2),
    ]
    torch.testing.assert_close(10 * moment, torch.tensor(expected), rtol=1e-4, atol=0.0)


# --- in use


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_fresh_minibatch_takes_no_random_number_from_anything_else(algo: str) -> None:
    same, fresh = (tape_reading(make_agent(algo, **settings), [7]) for settings in ({}, FRESH))
    assert "fresh/replay" not in same
    assert all(torch.equal(fresh[name], numbers) for name, numbers in same.items())
    assert not torch.equal(fresh["fresh/replay"], fresh["replay"])


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("settings", [{}, {"objective": "classic"}, {"target": "sampled"}], ids=str)
def test_it_changes_what_is_learned_unless_the_term_has_no_weight(
    algo: str, settings: dict[str, Any]
) -> None:
    for xi, alike in ((0.5, False), (0.0, True)):
        same, fresh = (
            train(make_learner(algo, xi=xi, exploration_batch=choice, **settings), 24)
            for choice in ("same", "fresh")
        )
        assert same.state["critic/count"].tolist() == fresh.state["critic/count"].tolist() == [16]
        for name in ("critic", "actor", "critic/target", "critic/second_moment"):
            assert torch.equal(same.state[name], fresh.state[name]) == alike, name


def test_a_run_learns_the_same_alone_and_in_a_cohort() -> None:
    per_run: list[dict[str, Any]] = [{"xi": 0.3}, {"xi": 0.6, "updates_per_step": 2}, {"xi": 0.0}]
    together = train(
        make_learner("pac4sac", *per_run, seeds=[3, 1, 2], shots=2, target_shots=3, **FRESH), 24
    )
    alone = train(
        make_learner("pac4sac", per_run[1], seeds=[1], shots=2, target_shots=3, **FRESH), 24
    )
    for name in ("critic", "actor", "critic/target", "critic/first_moment"):
        torch.testing.assert_close(
            alone.state[name][0], together.state[name][1], rtol=2e-4, atol=2e-5
        )


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_traced_it_learns_what_eager_learns(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace_only(monkeypatch)
    learner, eager = (make_learner(algo, {}, {"xi": 0.5}, depth=1, **FRESH) for _ in range(2))
    assert_compiled_learns_as_eager(learner, eager)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"objective": "second-order", "xi": 0.0},
            "The second-order objective has no exploration term apart; leave "
            "exploration_batch=same with it.",
        ),
        (
            {"head": "linear"},
            "The linear head learns from no exploration term; leave exploration_batch=same "
            "with it.",
        ),
        (
            {"head": "full"},
            "The full head learns from no exploration term; leave exploration_batch=same with it.",
        ),
        ({"exploration_batch": "new"}, "exploration_batch must be one of same, fresh, not 'new'."),
    ],
)
def test_it_is_refused_where_there_is_no_such_term(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as refusal:
        make_config("pac4sac", overrides=FRESH | settings)
    assert str(refusal.value) == sentence
