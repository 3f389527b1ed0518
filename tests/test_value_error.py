"""Measured errors of critics, where the true values are known."""

import numpy as np
import pytest
import torch
from linear_quadratic import TASK as LINEAR_QUADRATIC
from linear_quadratic import make_linear_agent
from scipy.stats import binomtest
from small_cohorts import hand_computed_agent, make_agent, set_head
from tiny_experiments import DRIFT

from pac4sac import Task
from pac4sac.agents import ALGORITHMS
from pac4sac.runs.statistics import mean_interval
from pac4sac.tasks import episodes
from pac4sac.training import evaluation
from pac4sac.training.value_error import measure_value_errors, soft_returns

TWO_STEPS = Task("two-steps", "probe_environments:probe/TwoSteps-v0", 10)
ENDLESS = Task("endless", "probe_environments:probe/Endless-v0", 4)


def test_returns_are_the_discounted_sums_of_the_definition() -> None:
    luck = np.random.default_rng(0)
    reward, log_pi = luck.normal(size=(2, 3, 7))
    length, end = np.array([7, 4, 1]), np.array([5.0, 0.0, -2.0])
    gamma, alpha = np.array([0.9, 0.5, 0.99]), np.array([0.2, 0.0, 1.0])
    found = soft_returns(reward, log_pi, length, end, gamma, alpha)
    for n in range(3):
        for t in range(7):
            later = range(1, length[n] - t)
            expected = reward[n, t] + sum(
                gamma[n] ** k * (reward - alpha[n] * log_pi)[n, t + k] for k in later
            )
            expected += gamma[n] ** (length[n] - t) * end[n]
            assert (
                found[n, t] == pytest.approx(expected) if t < length[n] else np.isnan(found[n, t])
            )


# --- a linear-quadratic task with the value in closed form


def test_the_interval_of_a_correct_critic_contains_zero_with_the_stated_confidence() -> None:
    agent, state = make_linear_agent(
        *({"gamma": 0.9 if k % 2 else 0.8, "alpha": 0.4 * (k % 3)} for k in range(200))
    )
    errors = measure_value_errors(agent, state, LINEAR_QUADRATIC, range(200), 5, "now")
    biases = [one.bias() for one in errors]
    holding = sum(bias.low <= 0 <= bias.high for bias in biases)
    assert binomtest(holding, 200, 0.95).pvalue > 0.01
    assert sum(bias.verdict == "undecided" for bias in biases) == holding
    together = mean_interval([bias.bias for bias in biases])
    assert together.low < 0 < together.high
    assert together.high - together.low < 0.1


def test_a_wrong_critic_is_detected_with_sign_and_size() -> None:
    agent, state = make_linear_agent({"mistake": 1.5}, {"mistake": -1.5}, {}, {"alpha": 0.0})
    errors = measure_value_errors(agent, state, LINEAR_QUADRATIC, range(4), 40, "now")
    over, under, right, _ = (one.bias() for one in errors)
    assert (over.verdict, under.verdict, right.verdict) == (
        "overestimates",
        "underestimates",
        "undecided",
    )
    # The unknown tail is filled with the same mistake, of weight 1 % at most.
    assert over.low < 1.5 < over.high / 0.99
    assert under.low / 0.99 < -1.5 < under.high
    assert over.tail_weight <= 0.01
    assert over.relative == pytest.approx(over.bias / abs(over.mean_return))


def test_a_value_without_entropy_is_detected() -> None:
    agent, state = make_linear_agent({"alpha": 0.2})
    plain, plain_state = make_linear_agent({"alpha": 0.0})
    assert (
        measure_value_errors(agent, state, LINEAR_QUADRATIC, [0], 20, "now")[0].bias().verdict
        == "undecided"
    )
    agent.mean_and_variance = lambda _, s, a: plain.mean_and_variance(plain_state, s, a)
    assert (
        measure_value_errors(agent, state, LINEAR_QUADRATIC, [0], 20, "now")[0].bias().verdict
        == "underestimates"
    )


def test_near_a_time_limit_no_step_is_judged() -> None:
    agent, state = make_linear_agent({"gamma": 0.9}, {"gamma": 0.5}, {"gamma": 0.0})
    errors = measure_value_errors(agent, state, LINEAR_QUADRATIC, range(3), 2, "now")
    # 0.9⁴⁴ < 1 % < 0.9⁴³
    assert [one.judged.sum() for one in errors] == [2 * (100 - 43), 2 * (100 - 6), 2 * 100]
    assert max(one.tail_weight[one.judged].max() for one in errors) <= 0.01


# --- probe environments, and the agents


def test_terminated_episodes_are_judged_to_the_last_step() -> None:
    agent, state = hand_computed_agent("ddpg", {}, {})
    # Q = 0.99 in state 0, 1 in state 1
    set_head(agent, state, "critic", {"weight": [0.01, 0.0], "bias": 0.99})
    agent.params(state, "critic")["head.bias"][1] += 0.5
    errors = measure_value_errors(agent, state, TWO_STEPS, [0, 1], 3, "now")
    for one in errors:
        assert one.judged.all()
        assert one.terminated.all()
        np.testing.assert_allclose(one.g, np.broadcast_to([0.99, 1.0], (3, 2)))
    right, wrong = (one.bias() for one in errors)
    assert (right.verdict, wrong.verdict) == ("undecided", "overestimates")
    assert right.rms < 1e-6
    assert (wrong.bias, wrong.rms, wrong.tail_weight) == (
        pytest.approx(0.5),
        pytest.approx(0.5),
        0.0,
    )


def test_short_tasks_are_played_beyond_their_time_limit() -> None:
    agent, state = hand_computed_agent("ddpg", {}, {})
    # Q = γ/(1−γ) in state 0, 1/(1−γ) in 1
    set_head(agent, state, "critic", {"weight": [1.0, 0.0], "bias": 99.0})
    # What a critic would learn that takes the limit for an end: four rewards, the first of them 0.
    agent.params(state, "critic")["head.bias"][1] = 3.0
    errors = measure_value_errors(agent, state, ENDLESS, [0, 1], 2, "now")
    assert [one.judged.sum(1).tolist() for one in errors] == [[4, 4], [4, 4]]
    assert not any(one.terminated.any() for one in errors)
    right, wrong = (one.bias() for one in errors)
    assert abs(right.bias) < 1e-3
    assert wrong.bias == pytest.approx(-96, rel=0.011)
    assert (right.verdict, wrong.verdict) == ("undecided", "underestimates")


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_agent_is_measured_with_samples_of_its_policy(algo: str) -> None:
    agent = make_agent(algo, {"gamma": 0.9}, {"gamma": 0.8}, ds=3, da=1)
    state = agent.initial_state([0, 1], torch.device("cpu"))
    errors = measure_value_errors(agent, state, DRIFT, [0, 1], 2, "now")
    s, a, m, log_pi = (
        # of the first step, [R, E, ·]
        torch.from_numpy(np.stack([getattr(one, name)[:, 0] for one in errors]))
        for name in ("observation", "action", "m", "log_pi")
    )
    assert errors[0].bias().steps == errors[0].judged.sum() > 10
    by_member, _ = agent.critic(agent.params(state, "critic"), s, a)  # [R, M, E]
    an_ensemble = algo in ("redq", "droq", "tqc") or not agent.takes_minimum
    np.testing.assert_allclose(
        m, by_member.mean(1) if an_ensemble else by_member.amin(1), rtol=1e-4, atol=1e-6
    )
    assert all(one.v.any() == (agent.critic.gaussian or not agent.takes_minimum) for one in errors)
    with_entropy = "ddpg" not in algo and algo not in ("oac-lab", "td3")
    np.testing.assert_allclose([one.alpha for one in errors], 0.2 if with_entropy else 0.0)
    if with_entropy:
        mean, std = agent.actor(agent.params(state, "actor"), s)
        # [R, M, E, da]
        policies = (mean, std) if mean.dim() == 4 else (mean.unsqueeze(1), std.unsqueeze(1))
        density = (
            torch.distributions.Normal(*policies).log_prob(torch.atanh(a).unsqueeze(1)).sum(-1)
        )
        # [M, R, E]
        gaps = (
            log_pi - (density - (1 - a.square()).log().sum(-1).unsqueeze(1)).movedim(1, 0)
        ).abs()
        assert float(gaps.amin(0).max()) < 1e-3  # of PBAC's policies one has drawn it
        assert (agent.deterministic_action(state, s) != a).all()
    else:
        assert not any(one.log_pi.any() for one in errors)
        assert ((agent.deterministic_action(state, s) == a).all()) == (algo != "oac-lab")


def test_the_learned_alpha_is_used_in_soft_returns() -> None:
    agent = make_agent("sac-auto", {"gamma": 0.5}, ds=3, da=1)
    state = agent.initial_state([0], torch.device("cpu"))
    state["log_alpha"].fill_(np.log(3.0))
    (errors,) = measure_value_errors(agent, state, DRIFT, [0], 1, "now")
    assert errors.alpha == pytest.approx(3.0)
    r, log_pi, g = (x[0, :2] for x in (errors.reward, errors.log_pi, errors.g))
    assert g[0] == pytest.approx(r[0] + 0.5 * (g[1] - 3 * log_pi[1]))


def test_the_smallest_of_several_critics_counts_with_its_variance() -> None:
    agent, state = hand_computed_agent("pac4sac", critics=2, shots=1)
    low = {"weight": [0.0, 0.0], "bias": 1.0, "variance": [4.0, 0.1]}
    set_head(
        agent, state, "critic", {"weight": [0.0, 0.0], "bias": 2.0, "variance": [0.1, 0.1]}, low
    )
    (errors,) = measure_value_errors(agent, state, TWO_STEPS, [0], 2, "now")
    np.testing.assert_allclose(errors.m, 1.0)
    a = np.maximum(errors.action[..., 0], 0)
    np.testing.assert_allclose(
        errors.v, 4 * errors.observation[..., 0] ** 2 + 0.1 * a**2, rtol=1e-5
    )


def test_the_shooting_policy_is_judged_by_its_returns_without_entropy() -> None:
    agent, state = hand_computed_agent("pac4sac", shots=200)
    set_head(agent, state, "critic", {"weight": [0.0, 1.0], "bias": 0.0, "variance": [1e-6, 1e-6]})
    (by_policy,) = measure_value_errors(agent, state, TWO_STEPS, [0], 50, "now")
    (by_shooting,) = measure_value_errors(agent, state, TWO_STEPS, [0], 50, "now", shooting=True)
    np.testing.assert_allclose(by_shooting.g, np.broadcast_to([0.99, 1.0], (50, 2)))
    assert by_shooting.alpha == 0
    assert by_shooting.action.mean() > 0.9 > 0.2 > abs(by_policy.action.mean())
    assert by_policy.g[..., 0].std() > 0


def test_a_measurement_depends_only_on_run_and_occasion() -> None:
    agent, state = make_linear_agent({}, {"gamma": 0.8})
    both = measure_value_errors(agent, state, LINEAR_QUADRATIC, [3, 7], 2, "now")
    again = measure_value_errors(agent, state, LINEAR_QUADRATIC, [3, 7], 2, "now", only=[1])
    np.testing.assert_array_equal(again[1].g, both[1].g)
    assert again[0].bias() is None
    alone, alone_state = make_linear_agent({"gamma": 0.8})
    (same,) = measure_value_errors(alone, alone_state, LINEAR_QUADRATIC, [7], 2, "now")
    np.testing.assert_allclose(same.error, both[1].error, rtol=1e-5)
    later = measure_value_errors(agent, state, LINEAR_QUADRATIC, [3, 7], 2, "later")
    for now, then in zip(both, later, strict=True):
        assert (then.observation != now.observation).all()
        assert (then.log_pi != now.log_pi).all()


def test_an_episode_whose_simulator_fails_is_omitted() -> None:
    agent = make_agent("sac", {"gamma": 0.5}, ds=3, da=1)
    state = agent.initial_state([0], torch.device("cpu"))
    instance = evaluation.evaluation_seed(0, "value of the policy, now", 1)
    victim = {"victim": episodes.simulator_seed(instance, "evaluate", 1), "at": 9}
    doomed = Task("doomed", DRIFT.env_id, 30, env_kwargs=victim)
    (errors,) = measure_value_errors(agent, state, doomed, [0], 3, "now")
    assert errors.judged.any(1).tolist() == [True, False, True]
    assert errors.bias().episodes == 2
