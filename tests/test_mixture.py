"""The mixture posterior: its moments, targets, objective, masks and acting, with numbers worked out
by hand."""

import itertools
import math
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_experiments
import torch
from small_cohorts import (
    CPU,
    assert_compiled_learns_as_eager,
    column,
    hand_computed_agent,
    make_agent,
    make_learner,
    set_head,
    tape_reading,
    trace_only,
    train,
)
from torch import Tensor

import pac4sac
from pac4sac.agents.base import Agent, State, Target
from pac4sac.agents.optim import BETA_1
from pac4sac.agents.prior_function import PRIOR
from pac4sac.agents.replay import Batch
from pac4sac.agents.tape import scrambled
from pac4sac.agents.variants.mixture import disagreement

ALGO = "pac4sac-mixture"
TWO = {"critics": 2, "kept": 1.0, "alpha": 0.0}
# At s = 1, a = 0.5, where φ = (1, 0.5): m = 2.5 and 1.5, v = 0.02 and 0.0925.
FIRST = {"weight": [1.0, 2.0], "bias": 0.5, "variance": [0.01, 0.04]}
SECOND = {"weight": [2.0, 0.0], "bias": -0.5, "variance": [0.09, 0.01]}
S, A = column(1.0), column(0.5)
DEVIATION = math.sqrt(0.25 + 0.05625)  # between the members and within
KL = 0.5 * sum(  # of both members together, to N(0, 1)
    v + m**2 - 1 - math.log(v) for m, v in ((1, 0.01), (2, 0.04), (2, 0.09), (0, 0.01))
)


def two_members(*runs: dict[str, Any], **settings: Any) -> tuple[Agent, State]:
    agent, state = hand_computed_agent(ALGO, *runs, **TWO | settings)
    for copy in ("critic", "critic/target"):
        set_head(agent, state, copy, FIRST, SECOND)
    state["step"].fill_(20)
    return agent, state


def critic_loss(
    agent: Agent, state: State, y: Tensor, kept: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    zero = torch.zeros(1, y.shape[-1])
    batch = Batch(S.expand(1, y.shape[-1], 1), A.expand(1, y.shape[-1], 1), zero, S, zero)
    return agent.critic_loss(
        state, agent.params(state, "critic"), batch, Target(y, A), {"lottery": 1 - kept}
    )


# --- the posterior and its targets


def test_the_variance_is_the_spread_of_members_plus_their_mean_variance() -> None:
    agent, state = two_members()
    mean, variance = agent.mean_and_variance(state, S, A)
    assert mean.item() == pytest.approx(2.0)
    assert variance.item() == pytest.approx((2.5**2 + 1.5**2) / 2 - 2**2 + (0.02 + 0.0925) / 2)


def test_each_member_bootstraps_from_its_own_target_network() -> None:
    agent, state = two_members(gamma=0.9, alpha=0.3)
    set_head(
        agent,
        state,
        "critic/target",
        {"weight": [4.0, 0.0], "bias": 0.0},
        {"weight": [0.0, 0.0], "bias": -2.0},
    )
    batch = Batch(
        column(0.0, 0.0),
        column(0.0, 0.0),
        torch.tensor([[1.0, 1.0]]),
        column(0.5, 3.0),
        torch.tensor([[0.0, 1.0]]),
    )
    y = agent.bellman_target(state, batch, {"target": torch.zeros(1, 2, 1)}).y
    bonus = 0.3 * 0.5 * math.log(2 * math.pi)  # −α log π of the action 0
    torch.testing.assert_close(
        y, torch.tensor([[[1 + 0.9 * (2 + bonus), 1.0], [1 + 0.9 * (-2 + bonus), 1.0]]])
    )


def test_the_std_over_target_networks_can_be_subtracted_from_all_targets() -> None:
    agent, state = two_members(gamma=0.5, target_caution=3.0)
    batch = Batch(S, A, torch.zeros(1, 1), column(1.0), torch.zeros(1, 1))
    y = agent.bellman_target(state, batch, {"target": torch.full((1, 1, 1), math.atanh(0.5))}).y
    # 2.5 and 1.5
    torch.testing.assert_close(y, 0.5 * torch.tensor([2.5 - 3 * 0.5, 1.5 - 3 * 0.5]).view(1, 2, 1))


def test_members_have_critics_of_any_width_and_see_observations_as_the_random_functions_do() -> (
    None
):
    agent = make_agent(
        ALGO, {}, critics=2, critic_width=6, normalise_observations=True, ranking="member", shots=3
    )
    state = agent.initial_state([0], CPU)
    theta, s, a = agent.params(state, "critic"), torch.ones(1, 1, 3), torch.zeros(1, 1, 2)
    agent.act(state, s[0], tape_reading(agent, [0]))
    theta["observed.mean"].copy_(s[0].expand_as(theta["observed.mean"]))
    at_the_mean = agent.critic.prior_function(theta, s, a)
    theta["observed.mean"].zero_()
    torch.testing.assert_close(agent.critic.prior_function(theta, 0 * s, a), at_the_mean)


def test_a_random_function_is_added_to_each_member_and_never_learned() -> None:
    learner = make_learner(ALGO, {"prior_scale": 1.0}, {"prior_scale": 3.0}, critics=2, shots=3)
    agent, state = learner.agent, learner.state
    before = {k: v.clone() for k, v in agent.params(state, "critic").items() if k.startswith(PRIOR)}
    train(learner, 20)
    assert state["critic/count"].min() > 0
    for copy in ("critic", "critic/target"):
        for name, weights in before.items():
            assert torch.equal(agent.params(state, copy)[name], weights)
    head = before[PRIOR + "head"].view(2, 2, -1)
    assert 1 < head[1].abs().max() / head[0].abs().max() < 9
    assert not torch.equal(head[0, 0], head[0, 1])
    theta, s, a = agent.params(state, "critic"), torch.ones(2, 1, 3), torch.zeros(2, 1, 2)
    without = {k: v * 0 if k == PRIOR + "head" else v for k, v in theta.items()}
    gap = agent.critic(theta, s, a)[0] - agent.critic(without, s, a)[0]
    torch.testing.assert_close(gap, agent.critic.prior_function(theta, s, a))
    assert bool((gap != 0).all())


def test_a_sample_of_the_critic_is_one_member_with_sampled_weights() -> None:
    agent, state = two_members()
    # below 0 in all: the first member
    first, second = ([[0.0, 0.0], [0.0, -0.1]], [[0.0, 0.0], [2.0, 0.0]])
    q = agent.drawn_values(state, S, A, torch.tensor([[first, second]]))
    torch.testing.assert_close(q, torch.tensor([[[2.5, 1.5 + 2 * 0.3]]]))


# --- the objective


def test_the_objective_is_scaled_error_plus_bound_minus_credit() -> None:
    agent, state = two_members(xi=0.3, conservative=0.7, delta=0.1)
    loss, log = critic_loss(agent, state, torch.tensor([[[3.0], [3.0]]]), torch.ones(1, 2, 1))
    # the mean squared TD error, which is the scale as long as there is no other
    square = (0.5**2 + 1.5**2) / 2
    bellman = (square + (0.02 + 0.0925) / 2) / square
    conservative = math.sqrt((KL / 2 + math.log(2 * math.sqrt(20) / 0.1)) / 40)
    assert log["bellman"].item() == pytest.approx(bellman)
    assert log["kl"].item() == pytest.approx(KL / 2, rel=1e-5)
    assert log["conservative"].item() == pytest.approx(conservative)
    assert log["tandem"].item() == pytest.approx(0.25 / square)
    assert loss.item() == pytest.approx(bellman + 0.7 * conservative - 0.3 * 0.25 / square)
    assert log["q_deviation"].item() == pytest.approx(DEVIATION)


def test_a_member_learns_only_from_transitions_that_it_keeps() -> None:
    agent, state = two_members(kept=0.5, conservative=0.0, xi=0.3)
    y, kept = torch.tensor([[[3.0, 3.0], [3.0, 3.0]]]), torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    loss, _ = critic_loss(agent, state, y, kept)
    square = (0.5**2 + 1.5**2) / 2
    # Of two transitions one is kept by both: twice its weight, half of the mean. The credit of a
    # pair has it squared.
    assert loss.item() == pytest.approx((square + 0.05625 - 0.3 * 0.25 * 2) / square)


def test_target_noise_has_a_fixed_sign_per_transition_and_member() -> None:
    agent, state = two_members(kept=0.5, conservative=0.0, xi=0.0, noise=3.0)
    state["td_square"].fill_(4.0)  # σ̂ = 2
    state["critic/count"].fill_(1)
    y = torch.tensor([[[3.0], [3.0]]])
    # both keep it: below and above half of what is kept
    lots = torch.tensor([0.2, 0.3]).view(1, 2, 1)
    loss, log = critic_loss(agent, state, y, 1 - lots)
    errors = (3 + 6 - 2.5) ** 2 + (3 - 6 - 1.5) ** 2
    # by half, twice the weight, by σ̂²
    assert loss.item() == pytest.approx((errors + 0.02 + 0.0925) / 4, rel=1e-5)
    assert log["td_square"].item() == pytest.approx((0.5**2 + 1.5**2) / 2)  # without it


def test_the_credit_is_unbiased_over_masks_and_excludes_masked_members() -> None:
    m, p = torch.tensor([[[1.0], [4.0], [-2.0]]]), 0.25
    total = 0.0
    for mask in itertools.product((0.0, 1.0), repeat=3):
        weight = torch.tensor(mask).view(1, 3, 1) / p
        credit = disagreement(m, weight).item()
        total += credit * p ** sum(mask) * (1 - p) ** (3 - sum(mask))
        moved = disagreement(m + 100 * (1 - weight * p), weight).item()
        assert moved == pytest.approx(credit, rel=1e-4)
    assert total == pytest.approx(m.var(correction=0).item(), rel=1e-5)


def test_with_fixed_targets_the_objective_is_bounded_below_for_xi_below_1() -> None:
    y, xi = torch.tensor([3.0, 0.0, -1.0, 5.0]).view(1, 4, 1), 0.6

    def risk(m: Tensor) -> float:
        return float((y - m).square().mean() - xi * disagreement(m, torch.ones(1, 4, 1)).mean())

    spread = y.var(correction=0).item()
    least = risk(y.mean() + (y - y.mean()) / (1 - xi))
    assert least == pytest.approx(-xi / (1 - xi) * spread, rel=1e-5)
    generator = torch.Generator().manual_seed(0)
    assert all(risk(10 * torch.randn(1, 4, 1, generator=generator)) >= least for _ in range(200))


def test_the_objective_does_not_depend_on_the_scale_of_rewards() -> None:
    agent, state = two_members()
    large, state_of_large = two_members()
    for copy in ({"weight": [10.0, 20.0], "bias": 5.0, "variance": [1.0, 4.0]},):
        set_head(
            large,
            state_of_large,
            "critic",
            copy,
            {"weight": [20.0, 0.0], "bias": -5.0, "variance": [9.0, 1.0]},
        )
    y = torch.tensor([[[3.0], [1.0]]])
    _, log = critic_loss(agent, state, y, torch.ones(1, 2, 1))
    _, ten_times = critic_loss(large, state_of_large, 10 * y, torch.ones(1, 2, 1))
    for name in ("bellman", "tandem"):
        assert ten_times[name].item() == pytest.approx(log[name].item(), rel=1e-5)


def test_the_scale_is_a_running_mean_of_the_squared_error_kept_for_each_run() -> None:
    agent, state = two_members({}, {"lr": 1e-30}, lr=1e-30)
    draw = tape_reading(agent, [0, 1]) | {"lottery": torch.zeros(2, 2, 1)}
    draw = draw | {"target": torch.zeros(2, 1, 1), "actor": torch.zeros(2, 1, 1)}
    active = torch.tensor([True, False])
    for reward in (3.0, 5.0):
        r = torch.full((2, 1), reward)
        agent.learn(
            state,
            Batch(S.expand(2, 1, 1), A.expand(2, 1, 1), r, S.expand(2, 1, 1), r * 0 + 1),
            draw,
            active,
        )
    squares = [(0.5**2 + 1.5**2) / 2, (2.5**2 + 3.5**2) / 2]
    assert state["td_square"].tolist() == pytest.approx([sum(squares) / 2, 0.0])


# --- masks


def masks(agent: Agent, state: State, monkeypatch: pytest.MonkeyPatch, uniforms: Tensor) -> Tensor:
    seen: dict[str, Tensor] = {}

    def learn(
        state: State, batch: Batch, draw: dict[str, Tensor], active: Tensor
    ) -> dict[str, Tensor]:
        seen.update(draw)
        return {name: torch.zeros(agent.runs) for name in agent.metric_names}

    monkeypatch.setattr(agent, "learn", learn)
    agent.update(state, torch.zeros(agent.runs, 1000, 2 * 3 + 2 + 2), {"replay": uniforms})
    return torch.where(seen["lottery"] < state["hyper/kept"].view(-1, 1, 1), 1.0, 0.0)


def test_a_transition_is_kept_with_the_given_probability_and_always_by_the_same_members(
    monkeypatch,
) -> None:
    agent = make_agent(ALGO, {"kept": 0.3}, {"kept": 0.9}, {"kept": 1.0}, critics=4, capacity=1000)
    state = agent.initial_state([0, 1, 2], CPU)
    state["step"].fill_(1000)
    uniforms = ((torch.arange(1000) + 0.5) / 1000).expand(3, 1000)
    kept = masks(agent, state, monkeypatch, uniforms)
    np.testing.assert_allclose(kept.mean(-1), [[0.3] * 4, [0.9] * 4, [1.0] * 4], atol=0.05)
    again = masks(agent, state, monkeypatch, uniforms.flip(-1))
    assert torch.equal(again.flip(-1), kept)
    correlation = np.corrcoef(kept[0].numpy()) - np.eye(4)
    assert np.abs(correlation).max() < 0.12
    state["step"].fill_(1400)  # of which the first 400 places hold others now
    later = masks(agent, state, monkeypatch, uniforms)
    assert torch.equal(later[..., 400:], kept[..., 400:])
    assert not torch.equal(later[..., :400], kept[..., :400])


def test_scrambled_numbers_are_one_to_one_and_below_two_to_the_32() -> None:
    x = scrambled(torch.arange(100_000))
    assert len(set(x.tolist())) == 100_000
    assert 0 <= x.min() < x.max() < 2**32
    assert abs((x / 2**32).mean().item() - 0.5) < 0.01


# --- actor and acting


def test_the_actor_maximises_the_mean_minus_kappa_std() -> None:
    agent, state = two_members(caution=2.0)
    noise = torch.full((1, 1, 1), math.atanh(0.5))  # the actor's action is tanh of it
    batch = Batch(S, A, torch.zeros(1, 1), S, torch.zeros(1, 1))
    loss, _ = agent.actor_loss(state, agent.params(state, "actor"), batch, {"actor": noise})
    assert loss.item() == pytest.approx(-(2.0 - 2.0 * DEVIATION), rel=1e-5)


def opposed(**settings: Any) -> tuple[Agent, State, dict[str, Tensor]]:
    """The first member likes large actions, the second small ones; both are nearly sure."""
    agent, state = hand_computed_agent(ALGO, **TWO | {"shots": 3} | settings)
    sure = [1e-8, 1e-8]
    set_head(
        agent,
        state,
        "critic",
        {"weight": [0.0, 1.0], "variance": sure},
        {"weight": [0.0, -1.2], "variance": sure},
    )
    draw = {
        "warmup": torch.zeros(1, 1),
        "candidates": torch.tensor([0.1, 1.0, 0.5]).view(1, 3, 1, 1),
    }
    return agent, state, draw


def test_one_member_can_rank_candidates_for_a_whole_episode() -> None:
    agent, state, draw = opposed(ranking="member")

    def action(u: float) -> float:
        return math.atanh(
            agent.act(
                state,
                S[:, 0],
                draw | {"member": torch.tensor([[u]]), "weight_noise": torch.zeros(1, 1, 2)},
            ).item()
        )

    assert action(0.1) == pytest.approx(1.0)
    assert action(0.9) == pytest.approx(1.0)  # the same episode still
    agent.end_of_episode(state, torch.tensor([True]))
    assert action(0.9) == pytest.approx(0.1)
    assert action(0.1) == pytest.approx(0.1)


def test_the_weights_of_the_member_are_drawn_once_for_an_episode() -> None:
    agent, state, draw = opposed(ranking="member")
    set_head(
        agent,
        state,
        "critic",
        {"weight": [0.0, 1.0], "variance": [1.0, 4.0]},
        {"weight": [0.0, 1.0], "variance": [1.0, 4.0]},
    )
    # 1 − 2 < 0
    against = {"member": torch.tensor([[0.1]]), "weight_noise": torch.tensor([[[0.0, -1.0]]])}
    for noise in (against, against | {"weight_noise": torch.ones(1, 1, 2)}):
        assert math.atanh(agent.act(state, S[:, 0], draw | noise).item()) == pytest.approx(0.1)


@pytest.mark.parametrize(("optimism", "favourite"), [(0.0, 0.1), (1.0, 1.0)])
def test_candidates_can_be_ranked_by_mean_plus_beta_std(optimism: float, favourite: float) -> None:
    agent, state, draw = opposed(ranking="upper", optimism=optimism)  # mean −0.1 a, deviation 1.1 a
    noise = {"member": torch.zeros(1, 1), "weight_noise": torch.zeros(1, 1, 2)}
    assert math.atanh(agent.act(state, S[:, 0], draw | noise).item()) == pytest.approx(favourite)


@pytest.mark.parametrize("ranking", ["actor", "member", "upper"])
@pytest.mark.parametrize(("caution", "favourite"), [(-1.0, 1.0), (0.5, 0.1)])
def test_evaluation_ranks_candidates_by_the_objective_of_the_actor(
    ranking: str, caution: float, favourite: float
) -> None:
    agent, state, draw = opposed(caution=caution, ranking=ranking)
    assert math.atanh(agent.behaviour(state, S, draw).item()) == pytest.approx(favourite)
    if ranking == "actor":  # in training too
        held = {"member": torch.tensor([[0.1]]), "weight_noise": torch.ones(1, 1, 2)}
        assert math.atanh(agent.act(state, S[:, 0], draw | held).item()) == pytest.approx(favourite)


def test_traced_operations_learn_and_act_the_same_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_only(monkeypatch)
    learner, eager = (
        make_learner(ALGO, {"xi": 0.1}, {"shots": 3}, shots=4, depth=1, critics=3) for _ in range(2)
    )
    assert_compiled_learns_as_eager(learner, eager)


def test_training_stopped_within_an_episode_resumes_byte_identically(tmp_path: Path) -> None:
    """The member and its draw last for an episode, the scale of errors for the run; masks follow
    from a stored key."""
    few: dict[str, Any] = {
        "settings": {"shots": 4, "critics": 2},
        "steps": 110,
        "evaluate_every": 0,
    }
    whole = tiny_experiments.train(tmp_path / "whole", ALGO, **few).folder
    stop = tiny_experiments.SignalAt(signal.SIGINT, step=77)
    assert not tiny_experiments.train(tmp_path / "stopped", ALGO, callbacks=[stop], **few).complete
    assert pac4sac.resume(tmp_path / "stopped").complete
    assert tiny_experiments.same(tmp_path / "stopped", whole)


# --- the temperature


@pytest.mark.parametrize(
    ("settings", "target"),
    [({}, -4.0), ({"target_entropy": -0.5}, -2.0), ({"target_entropy": 0.0}, 0.0)],
)
def test_a_learned_alpha_approaches_the_target_entropy(
    settings: dict[str, Any], target: float
) -> None:
    agent = make_agent("sac-auto", settings, da=4)
    state = agent.initial_state([0], CPU)
    for entropy, sign in ((target + 0.1, -1), (target - 0.1, 1)):
        before = state["log_alpha"].clone()
        state["log_alpha/first_moment"].zero_()
        agent.learn_temperature(state, torch.tensor([entropy]), torch.tensor([True]))
        assert torch.sign(state["log_alpha"] - before).item() == sign


@pytest.mark.parametrize(("loss", "slope"), [("log", 5.0), ("plain", 0.2 * 5.0)])
def test_the_loss_of_alpha_uses_log_alpha_or_alpha(loss: str, slope: float) -> None:
    agent = make_agent("sac-auto", {"alpha": 0.2, "alpha_loss": loss}, da=4)  # the target is −4
    state = agent.initial_state([0], CPU)
    agent.learn_temperature(state, torch.tensor([1.0]), torch.tensor([True]))
    assert state["log_alpha/first_moment"].item() == pytest.approx((1 - BETA_1) * slope)


# --- the index head: at s = 1, a = 0.5, φ = (1, 0.5), m_p = 2.5 and v_p = 0.02 as of the first
# member

A_MATRIX = [[1.0, 0.0], [2.0, -4.0]]  # u = Aᵀφ = (2, −2)


def indexed(**settings: Any) -> tuple[Agent, State]:
    agent, state = hand_computed_agent("pac4sac-index", critics=2, alpha=0.0, **settings)
    for copy in ("critic", "critic/target"):
        set_head(agent, state, copy, FIRST)
        agent.params(state, copy)["head.index"][0] = torch.tensor(A_MATRIX)
    state["step"].fill_(20)
    return agent, state


def test_the_variance_of_the_index_head_adds_index_and_weights() -> None:
    agent, state = indexed()
    mean, variance = agent.mean_and_variance(state, S, A)
    assert mean.item() == pytest.approx(2.5)
    assert variance.item() == pytest.approx(2**2 + 2**2 + 0.02)
    z, still = torch.tensor([[[0.5, 3.0], [0.0, 0.0]]]), torch.zeros(1, 2, 1, 2)
    q = agent.critic.indexed(agent.params(state, "critic"), S, A, still, z)
    torch.testing.assert_close(q, torch.tensor([[[2.5 + 1 - 6, 2.5]]]))


def test_both_sides_of_the_bellman_equation_use_the_same_index() -> None:
    """The loss in closed form is the mean over z of (r + γ Q̄(s′, a′; z) + ζ σ̂ c·z − Q(s, a;
    z))²."""
    agent, state = indexed(gamma=0.9, noise=0.5, xi=0.0, conservative=0.0, kept=0.2)
    state["td_square"].fill_(4.0)
    state["critic/count"].fill_(1)
    batch = Batch(S, A, torch.tensor([[1.0]]), column(3.0), torch.zeros(1, 1))
    # a′ = 0: φ = (3, 0)
    target = agent.bellman_target(state, batch, {"target": torch.zeros(1, 1, 1)})
    torch.testing.assert_close(target.y, torch.tensor([1 + 0.9 * 3.5, 0.9 * 3, 0.0]).view(1, 3, 1))
    # the first is drawn with probability 0.2, the second is not
    lottery = torch.tensor([0.1, 0.9]).view(1, 2, 1)
    loss, _ = agent.critic_loss(
        state, agent.params(state, "critic"), batch, target, {"lottery": lottery}
    )
    # of mean 0.2 · 2 − 0.8 · 0.5 = 0 and variance 1, over √d
    c = torch.tensor([2.0, -0.5]) / math.sqrt(2)
    z = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0))
    y = 1 + 0.9 * (3.5 + z @ torch.tensor([3.0, 0.0])) + 0.5 * 2 * z @ c
    sampled = (y - 2.5 - z @ torch.tensor([2.0, -2.0])).square().mean().item()
    assert loss.item() == pytest.approx((sampled + 0.02) / 4, rel=0.02)


def test_the_features_of_the_index_head_learn_only_from_its_mean() -> None:
    agent, state = indexed()
    batch, lottery = (
        Batch(S, A, torch.zeros(1, 1), S, torch.ones(1, 1)),
        {"lottery": torch.full((1, 2, 1), 0.1)},
    )

    def slopes(y_u: float) -> tuple[Tensor, ...]:
        theta = {
            name: x.clone().requires_grad_() for name, x in agent.params(state, "critic").items()
        }
        y = torch.tensor([3.0, y_u, y_u]).view(1, 3, 1)
        loss, _ = agent.critic_loss(state, theta, batch, Target(y, A), lottery)
        return torch.autograd.grad(
            loss.sum(), [theta["0.weight"], theta["head.weight"], theta["head.index"]]
        )

    (trunk, mean, index), (same_trunk, same_mean, another) = slopes(0.0), slopes(5.0)
    assert bool((trunk != 0).any())
    assert torch.equal(trunk, same_trunk)
    assert torch.equal(mean, same_mean)
    assert not torch.equal(index, another)


def test_the_divergence_of_the_index_head_is_its_mean_over_the_index() -> None:
    agent, state = indexed(prior_variance=2.0)
    z = torch.randn(100_000, 2, generator=torch.Generator().manual_seed(0))
    m, v = torch.tensor([1.0, 2.0]) + z @ torch.tensor(A_MATRIX).T, torch.tensor([0.01, 0.04])
    expected = 0.5 * (v / 2 + m.square() / 2 - 1 - (v / 2).log()).sum(-1).mean().item()
    assert agent.divergence(state, agent.params(state, "critic")).item() == pytest.approx(
        expected, rel=0.01
    )


def test_one_index_can_rank_candidates_for_a_whole_episode() -> None:
    agent, state = indexed(shots=3, ranking="member")
    draw = {
        "warmup": torch.zeros(1, 1),
        "candidates": torch.tensor([0.1, 1.0, 0.5]).view(1, 3, 1, 1),
    }
    draw |= {"member": torch.zeros(1, 1), "weight_noise": torch.zeros(1, 1, 2)}

    def action(z: float) -> float:
        """Q grows by 2 + 2 z with the action."""
        return math.atanh(
            agent.act(state, S[:, 0], draw | {"index": torch.tensor([[[z, 0.0]]])}).item()
        )

    assert action(-2.0) == pytest.approx(0.1)
    assert action(2.0) == pytest.approx(0.1)  # the same episode still
    agent.end_of_episode(state, torch.tensor([True]))
    assert action(2.0) == pytest.approx(1.0)
