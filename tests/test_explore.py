"""The agent for exploration: its targets, its actor's value and how it acts, worked out by hand."""

import pytest
import torch
from small_cohorts import column, hand_computed_agent, make_agent, make_learner, set_head, train
from torch import Tensor

from pac4sac.agents import make_config
from pac4sac.agents.base import Agent, State, Target
from pac4sac.agents.prior_function import PriorCritic
from pac4sac.agents.replay import Batch
from pac4sac.agents.variants.explore_actors import ExploreActors
from pac4sac.base.errors import UserError

ALGO = "pac4sac-explore"
TWO = {"critics": 2, "alpha": 0.0}
# At s = 1, a = 0.5, where φ = (1, 0.5): Q = 2.5 and 1.5.
FIRST = {"weight": [1.0, 2.0], "bias": 0.5}
SECOND = {"weight": [2.0, 0.0], "bias": -0.5}
S, A = column(1.0), column(0.5)


def two_members(**settings: object) -> tuple[Agent, State]:
    agent, state = hand_computed_agent(ALGO, **TWO | settings)
    for name in ("critic", "critic/target"):
        set_head(agent, state, name, FIRST, SECOND)
    return agent, state


def target_of(agent: Agent, state: State, noise: float) -> Tensor:
    zero = torch.zeros(1, 1)
    batch = Batch(S, A, zero + 1.0, S, zero)
    return agent.bellman_target(state, batch, {"target": torch.full((1, 1, 1), noise)}).y


@pytest.mark.parametrize(
    ("target", "expected"), [("own", [2.5, 1.5]), ("mean", [2.0]), ("minimum", [1.5])]
)
def test_the_target_of_a_member(target: str, expected: list[float]) -> None:
    agent, state = two_members(target=target, gamma=0.9)
    u = torch.atanh(torch.tensor(0.5)).item()  # a′ = 0.5
    y = target_of(agent, state, u)
    assert y[0, :, 0].tolist() == pytest.approx([1 + 0.9 * q for q in expected])


def test_the_target_has_the_entropy_of_the_next_action() -> None:
    agent, state = two_members(alpha=0.5, gamma=1 - 1e-6)
    without, _ = two_members(alpha=0.0, gamma=1 - 1e-6)
    plain = target_of(without, state | {"hyper/alpha": torch.zeros(1)}, 0.0)
    # log π(0) = −½ ln 2π − ln(1 − tanh² 0)
    log_pi = -0.9189385
    assert (target_of(agent, state, 0.0) - plain).flatten().tolist() == pytest.approx(
        [-0.5 * log_pi] * 2, rel=1e-4
    )


def test_the_loss_is_the_sum_of_the_members_squared_errors() -> None:
    agent, state = two_members()
    y = torch.tensor([3.5, 1.0]).view(1, 2, 1)
    zero = torch.zeros(1, 1)
    loss, log = agent.critic_loss(
        state, agent.params(state, "critic"), Batch(S, A, zero, S, zero), Target(y, A), {}
    )
    assert loss.item() == pytest.approx(1.0**2 + 0.5**2)
    assert log["q"].item() == pytest.approx(2.0)
    assert log["q_deviation"].item() == pytest.approx(0.5)


def test_the_actor_maximises_the_mean_of_the_members() -> None:
    agent, state = two_members()
    q = agent.value(agent.params(state, "critic"), S, A, None)
    assert q.item() == pytest.approx(2.0)
    mean, variance = agent.mean_and_variance(state, S, A)
    assert (mean.item(), variance.item()) == pytest.approx((2.0, 0.25))


@pytest.mark.parametrize(
    ("member", "ranking", "chosen"), [(0, "member", 0.6), (1, "member", 0.2), (1, "mean", 0.6)]
)
def test_the_member_of_the_episode_ranks_candidates(
    member: int, ranking: str, chosen: float
) -> None:
    agent, state = hand_computed_agent(ALGO, **TWO, shots=2, ranking=ranking)
    # Q_0 rises with a; Q_1 falls, less steeply.
    set_head(agent, state, "critic", {"weight": [0.0, 2.0]}, {"weight": [0.0, -1.0]})
    state["member"].fill_(member)
    candidates = torch.atanh(torch.tensor([0.2, 0.6])).view(1, 2, 1, 1)
    draw = {"candidates": candidates, "member": torch.zeros(1, 1)}
    assert agent.behaviour(state, S, draw).item() == pytest.approx(chosen)


def test_in_evaluation_the_mean_ranks_candidates() -> None:
    agent, state = hand_computed_agent(ALGO, **TWO, shots=2)
    set_head(agent, state, "critic", {"weight": [0.0, 2.0]}, {"weight": [0.0, -1.0]})
    state["member"].fill_(1)
    candidates = torch.atanh(torch.tensor([0.2, 0.6])).view(1, 2, 1, 1)
    assert agent.behaviour(state, S, {"candidates": candidates}).item() == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("held", "due"), [(0, [True, False, False, False]), (2, [True, False, True, False])]
)
def test_a_member_is_drawn_at_the_start_of_an_episode_or_every_few_steps(
    held: int, due: list[bool]
) -> None:
    agent, state = two_members(held=held)
    found = []
    for step in range(4):
        state["step"].fill_(step)
        found.append(bool(agent.due_for_draw(state)))
        state["episode_begins"].fill_(False)
    assert found == due


def test_a_share_of_the_candidates_is_uniform() -> None:
    agent = make_agent(ALGO, {"outside": 0.5}, {"outside": 0.0}, critics=2, shots=4, da=1)
    state = agent.initial_state(range(2), torch.device("cpu"))
    draw = {"candidates": torch.zeros(2, 4, 1, 1), "outside": torch.ones(2, 4, 1, 1)}
    a = agent.candidates(state, torch.zeros(2, 1, agent.ds), draw).flatten(1)
    assert a[0, :2].tolist() == [1.0, 1.0]
    assert not (a[0, 2:] == 1.0).any()
    assert not (a[1] == 1.0).any()


def test_members_differ_after_learning() -> None:
    learner = train(make_learner(ALGO, critics=3, shots=4, updates_per_step=1), 20)
    weights = learner.state["critic"]
    assert not torch.equal(weights[:, 0], weights[:, 1])
    assert learner.state["critic/count"].item() > 5


# --- policies of the members, fixed random functions, and a control


def test_own_policies_are_judged_with_the_random_function_of_their_member() -> None:
    agent = make_agent("pac4sac-explore-actors", critics=3, prior_scale=10.0)
    state = agent.initial_state([0], torch.device("cpu"))
    theta, s, a = agent.params(state, "critic"), torch.randn(1, 5, agent.ds), torch.rand(1, 5, 2)
    assert isinstance(agent, ExploreActors)
    shared = a.unsqueeze(1).expand(-1, 3, -1, -1)
    torch.testing.assert_close(
        agent.of_own_policies(theta, s, shared), agent.critic(theta, s, a)[0]
    )
    assert isinstance(agent.critic, PriorCritic)
    assert agent.critic.prior_function(theta, s, a).abs().mean() > 0.5


def test_runs_of_a_cohort_share_the_scale_of_random_functions() -> None:
    # with them the critic has more weights, so other members would get other initial numbers
    assert "prior_scale" in make_config(ALGO).structure()


def test_values_are_sampled_from_the_critics_and_not_from_the_random_functions() -> None:
    agent = make_agent("sac-random-critic", functions=50)
    state = agent.initial_state([0], torch.device("cpu"))
    s, a = torch.randn(1, 3, agent.ds), torch.zeros(1, 3, 2)
    noise = torch.randn(1, 40, 2, agent.critic.trunk.width)
    drawn = agent.drawn_values(state, s, a, noise)
    q, _ = agent.critic(agent.params(state, "critic"), s, a)
    for b in range(3):
        assert set(drawn[0, b].tolist()) == set(q[0, :, b].tolist())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("critics", 1, "critics must be a whole number at least 2, not 1."),
        ("held", -1, "held must be a whole number at least 0, not -1."),
        ("outside", 1.5, r"outside must be a number in \[0, 1\], not 1.5."),
        ("prior_scale", -1.0, "prior_scale must be a number at least 0, not -1"),
        ("noise_colour", "3", "noise_colour must be one of white, pink, ornstein-uhlenbeck"),
        ("shots", 0, "shots must be a whole number at least 1, not 0."),
    ],
)
def test_invalid_settings_are_refused_in_a_sentence(name: str, value: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_config(ALGO, overrides={name: value})
