"""Certificates where the truth is known: do they hold, and is a wrong critic caught?"""

import dataclasses

import numpy as np
import pytest
import torch
from linear_quadratic import TASK as LINEAR_QUADRATIC
from linear_quadratic import make_linear_agent
from scipy.stats import binomtest
from small_cohorts import hand_computed_agent, set_head, value_errors

from pac4sac import Task
from pac4sac.agents import bounds
from pac4sac.agents.replay import Batch
from pac4sac.base.errors import UserError
from pac4sac.certificates.bound_rows import BoundRow, BoundTable, chernoff
from pac4sac.certificates.critic_errors import (
    BellmanErrors,
    CriticErrors,
    Scales,
    bellman_errors,
    fresh_errors,
    value_error,
)
from pac4sac.certificates.fresh_episodes import bias_along
from pac4sac.certificates.returns import (
    RewardRange,
    betting_lower,
    betting_upper,
    certify_returns,
    empirical_bernstein_lower,
)
from pac4sac.certificates.texts import CAVEATS
from pac4sac.tasks import TASKS, get_task, make_env
from pac4sac.training.value_error import ValueErrors, measure_value_errors

REPETITIONS, DELTA = 200, 0.1


def holds_with_confidence(failures: int, repetitions: int = REPETITIONS) -> bool:
    """Compatible with a probability of failure of δ at most."""
    return binomtest(failures, repetitions, DELTA, alternative="greater").pvalue > 0.01


# --- the policy


def test_empirical_bernstein_is_the_published_formula() -> None:
    # mean 1/2, variance 25/99, ln 40: 0.5 − √(2 · 0.252525 · 3.688879 / 100) − 7 · 3.688879 / 297
    assert empirical_bernstein_lower([0, 1] * 50, 0.05) == pytest.approx(0.276562, abs=1e-5)
    assert empirical_bernstein_lower([0.9], 0.05) == 0  # one sample has no variance
    assert empirical_bernstein_lower([0.1, 0.2], 0.05) == 0  # never below the least possible


def test_betting_stops_where_the_capital_reaches_one_over_delta() -> None:
    # One sample of 1 and bets of ½ in the mean: 1 + ½(1/m − 1) = 20 at m = 1/39.
    assert betting_lower([1.0], 0.05) == pytest.approx(1 / 39)
    assert betting_upper([0.0], 0.05) == pytest.approx(1 - 1 / 39)
    assert betting_lower([0.0, 0.0], 0.05) == 0
    x = np.random.default_rng(0).random(30)
    assert betting_lower(x, 0.05) == pytest.approx(betting_lower(x[::-1], 0.05))
    assert betting_lower(x, 0.05) < betting_lower(x, 0.2) < x.mean() < betting_upper(x, 0.2)


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda luck, n: luck.random(n), 0.5),
        (lambda luck, n: (luck.random(n) < 0.1).astype(float), 0.1),
        (lambda luck, n: luck.beta(0.3, 0.1, n), 0.75),
        # good, with rare catastrophes
        (lambda luck, n: np.where(luck.random(n) < 0.05, 0.0, 0.9), 0.855),
    ],
)
def test_lower_bounds_on_the_return_hold_with_the_stated_confidence(draw, mean: float) -> None:
    luck = np.random.default_rng(1)
    samples = [draw(luck, 25) for _ in range(REPETITIONS)]
    for bound in (empirical_bernstein_lower, betting_lower):
        found = np.array([bound(x, DELTA) for x in samples])
        assert holds_with_confidence(int((found > mean).sum()))
    above = np.array([betting_upper(x, DELTA) for x in samples])
    assert holds_with_confidence(int((above < mean).sum()))
    assert np.median(found) > 0  # and they say something


def test_betting_is_tighter_than_bernstein_for_few_episodes() -> None:
    x = 0.9 + 0.01 * np.random.default_rng(0).standard_normal(16)
    assert betting_lower(x, 0.05) > 0.6 > 0.4 > empirical_bernstein_lower(x, 0.05)


def test_only_the_lower_limit_of_returns_is_an_assumption() -> None:
    returns = np.random.default_rng(0).uniform(100, 200, 40)
    plain = certify_returns(returns, (0, 200), 0.05)
    lucky = certify_returns([*returns[1:], 1e6], (0, 200), 0.05)
    at_the_limit = certify_returns([*returns[1:], 200.0], (0, 200), 0.05)
    assert lucky.betting == at_the_limit.betting
    assert 0 < plain.empirical_bernstein < plain.betting < plain.mean.value
    refuted = certify_returns([*returns, -1.0], (0, 200), 0.05)
    assert refuted.betting is None
    assert "a return of -1 is below" in refuted.remark
    unknown = certify_returns(returns, None, 0.05)
    assert (unknown.betting, unknown.empirical_bernstein) == (None, None)
    assert "--return-range" in unknown.remark
    assert certify_returns([150.0], (0, 200), 0.05).mean.low is None
    with pytest.raises(UserError, match="finite returns"):
        certify_returns([np.nan], (0, 200), 0.05)
    with pytest.raises(UserError, match="between 0 and 1"):
        certify_returns(returns, (0, 200), 1.0)


# --- ranges


@pytest.mark.parametrize("name", [*TASKS, "Pendulum-v1"])
def test_rewards_of_random_actions_are_in_the_known_range_of_a_task(name: str) -> None:
    task = get_task(name)
    limits = RewardRange.known(task)
    env = make_env(task)
    env.reset(seed=0)
    env.action_space.seed(0)
    rewards = np.array([env.step(env.action_space.sample())[1] for _ in range(60)], float)
    env.close()
    # assumed of an episode's mean, not of each step
    seen = rewards if limits.proven else rewards.mean()
    assert np.all((limits.low <= seen) & (seen <= limits.high))


def test_ranges_of_values_and_returns_follow_from_the_range_of_rewards() -> None:
    both, positive = RewardRange(-1, 2, "", proven=True), RewardRange(1, 3, "", proven=True)
    assert both.of_values(0.9) == pytest.approx((-10, 20))
    assert both.of_returns(50) == (-50, 100)
    assert positive.of_values(0.5) == (0, 6)  # an episode may end
    assert positive.of_returns(50) == (1, 150)
    assert (RewardRange.observed([2.0, 2.0]).low, RewardRange.observed([2.0, 2.0]).high) == (0, 2)
    assert RewardRange.known(Task("mine", "no/Such-v0")) is None
    with pytest.raises(UserError, match="lower one first"):
        RewardRange(1, 1, "", proven=False)


# --- the measured error


def test_the_value_error_is_within_its_interval_with_noisy_returns() -> None:
    luck = np.random.default_rng(2)
    bias = np.array([1.0, 1.0, -2.0, 0.0])  # by time of the episode
    judged = np.ones((12, 4), bool)
    judged[:3, 2:] = False  # short episodes
    truth = (9 * (bias**2).mean() + 3 * (bias[:2] ** 2).mean()) / 12 + 0.25
    outside = wide = 0
    for _ in range(REPETITIONS):
        q = luck.normal(size=(12, 4))
        g = q + 2 * luck.normal(size=(12, 4))
        found = value_error(value_errors(q + bias, np.full((12, 4), 0.25), g, judged), DELTA)
        outside += not found.low <= truth <= found.high
        wide += found.value > truth
    assert holds_with_confidence(outside)
    assert wide > 0.95 * REPETITIONS  # the noise of a return adds its variance of 4


def test_a_large_bias_is_not_mistaken_for_noise() -> None:
    luck = np.random.default_rng(2)
    g = luck.normal(size=(20, 30))
    found = value_error(
        value_errors(np.full_like(g, 5.0), np.zeros_like(g), g, np.ones_like(g, bool)), 0.05
    )
    assert 20 < found.low < 25 < found.high < 28


# --- PAC-Bayes bounds, where their assumptions hold: independent data, fixed features, a posterior
# fitted to the data


def regression(luck: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    phi = luck.uniform(-1, 1, (n, 3))
    return phi, phi @ [0.5, -1.0, 0.3] + 0.3 * luck.normal(size=n)


def posterior(phi: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Chosen on the data, and greedily: least squares, with small variances."""
    m = np.linalg.lstsq(phi, y, rcond=None)[0]
    return m, np.full(3, 0.01)


def errors_of(
    phi: np.ndarray, y: np.ndarray, m: np.ndarray, v: np.ndarray, episode=None
) -> BellmanErrors:
    n = len(y)
    return BellmanErrors(
        phi @ m, phi**2 @ v, y, np.zeros(n), np.arange(n) if episode is None else episode
    )


def values_of(e: BellmanErrors, steps: int = 1) -> ValueErrors:
    """As if targets were returns, in episodes of so many steps."""
    m, v, y = (x.reshape(-1, steps) for x in (e.m, e.v, e.y))
    return value_errors(m, v, y, np.ones(m.shape, bool))


def test_certificates_hold_with_the_stated_confidence_if_their_assumptions_do() -> None:
    luck = np.random.default_rng(3)
    scales = Scales(RewardRange(-0.5, 0.5, "", proven=True), 0.0, DELTA)  # ε = 1
    large = regression(luck, 20_000)
    failures: dict[str, int] = {}
    memorised = vacuous = 0
    for repetition in range(REPETITIONS):
        data = regression(luck, 60)
        m, v = posterior(*data)
        replay, fresh = errors_of(*data, m, v), errors_of(*regression(luck, 60), m, v)
        truth = errors_of(*large, m, v)
        kl = float(bounds.gaussian_kl(torch.from_numpy(m), torch.from_numpy(v)))
        errors = CriticErrors(fresh, values_of(fresh), scales)
        rows = BoundTable(replay, errors, errors.measured(), kl, seed=repetition).rows()
        true_loss = truth.bounded(1.0).mean()
        memorised += replay.bounded(1.0).mean() < true_loss
        for row in rows:
            if row.quantity == "bounded Bellman error":
                key = f"{row.name.split(' = ')[0]}, {row.data}"
                failures[key] = failures.get(key, 0) + (row.value < true_loss)
                vacuous += row.vacuous
    assert len(failures) == 8
    assert not vacuous
    assert all(holds_with_confidence(count) for count in failures.values()), failures
    # the risk on the data alone is no bound: the test could fail
    assert not holds_with_confidence(memorised)


def test_the_test_set_bound_is_tighter_than_the_one_that_pays_for_a_kl() -> None:
    rows = {row.name: row for row in table_of(regression_rows())}
    assert rows["test set, 1 per episode"].value < rows["PAC-Bayes-kl, 1/episode"].value
    assert rows["PAC-Bayes-kl"].value <= min(rows["quadratic"].value, rows["Maurer 2004"].value)


def regression_rows(
    kl: float | None = 5.0, replay: bool = True, scale: float = 1.0, n: int = 64
) -> list[BoundRow]:
    """Fresh data of n episodes of four equal steps; a critic whose errors are `scale` times the
    data's."""
    luck = np.random.default_rng(4)
    scales = Scales(RewardRange(-1, 1, "", proven=True), 0.9, 0.05)
    error = np.repeat(luck.normal(size=(3, n)), 4, axis=1)
    zeros = np.zeros(4 * n)
    old, fresh, checked = (
        BellmanErrors(size * x, zeros, zeros, zeros, np.repeat(np.arange(n), 4))
        for size, x in zip((1.0, scale, scale), error, strict=True)
    )

    certifying, measuring = (
        CriticErrors(errors, values_of(errors, 4), scales) for errors in (fresh, checked)
    )
    return BoundTable(old if replay else None, certifying, measuring.measured(), kl).rows()


def table_of(rows: list[BoundRow], quantity: str = "bounded Bellman error") -> list[BoundRow]:
    return [row for row in rows if row.quantity == quantity]


def test_the_papers_bounds_are_computed_as_printed_with_their_failing_assumptions() -> None:
    (row,) = [row for row in regression_rows() if row.name == "McAllester, as printed"]
    assert row.value == pytest.approx(row.risk + np.sqrt((5 + np.log(20)) / 512))
    assert {"range", "constant", "independence", "trained", "policies"} == set(row.fails)
    (final,) = [row for row in regression_rows() if row.name == "the paper's final bound"]
    assert final.value == pytest.approx(100 * row.value)
    assert "sign" in final.fails
    (scaled,) = [row for row in regression_rows() if row.name == "Maurer 2004 × range"]
    root = np.sqrt((5 + np.log(2 * 16 / 0.05)) / 512)
    assert scaled.value == pytest.approx(row.risk + 20**2 * root)  # values of ±10 can err by 20


def constant_errors(n: int) -> BellmanErrors:
    """One episode of n steps: each has a squared error of ¾, of which ½ is variance, and a variance
    of ¼ follows."""
    return BellmanErrors(*(np.full(n, x) for x in (0.5, 0.5, 1.0, 0.25)), np.zeros(n, int))


def test_variances_that_follow_and_the_width_of_the_rewards_enter_as_printed() -> None:
    # R_max = 1 and ‖Γ‖ = 2 leave 40/8 = 5 of 40 steps; ln(5/0.05) + KL = 9.
    kl, scales = 9 - np.log(100), Scales(RewardRange(-0.5, 0.5, "", proven=True), 0.5, 0.05)
    right = value_errors(
        np.zeros((1, 40)), np.zeros((1, 40)), np.zeros((1, 40)), np.ones((1, 40), bool)
    )
    same = constant_errors(40)
    errors = CriticErrors(same, right, scales)
    rows = BoundTable(same, errors, errors.measured(), kl).rows()
    final, forgetful, remembering = [
        row for row in rows if row.kl is not None and row.quantity == "value error"
    ]
    assert forgetful.value == pytest.approx(4 * (0.75 + np.sqrt(9 / 4) - 0.25))
    assert "valid: N = 40 exceeds 2 R_max² ‖Γ‖² = 8" in forgetful.remark
    assert remembering.value == np.inf
    assert final.value == pytest.approx(
        4 * (0.75 + np.sqrt((9 - np.log(100) + np.log(20)) / 80) - 0.25)
    )


def test_the_test_set_bound_is_where_the_data_have_probability_delta() -> None:
    assert chernoff(np.zeros(2), 0.04) == pytest.approx(0.8)  # of two without a loss: 0.2² = 0.04
    # kl(½‖p) = −½ ln(4p(1 − p)), and 4 · 0.9 · 0.1 = 0.36: three such samples have a chance of
    # 0.6³.
    assert chernoff(np.array([0.0, 0.5, 1.0]), 0.216) == pytest.approx(0.9)
    rows = [
        row
        for row in table_of(regression_rows())
        if row.name in ("test set, naive: steps", "test set, 1 per episode")
    ]
    assert [row.n for row in rows] == [256, 64]
    for row in rows:
        q, p = row.risk, row.value
        assert row.n * (q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))) == pytest.approx(
            np.log(20), rel=1e-6
        )


def test_theorem_1_says_in_words_when_it_is_vacuous() -> None:
    forgetful, remembering = [row for row in regression_rows() if row.name.startswith("Theorem 1")]
    assert remembering.vacuous
    assert remembering.value == np.inf
    assert "vacuous: Theorem 1 needs N > 2 R_max² ‖Γ‖²" in remembering.remark
    assert forgetful.n == 4  # the steps of a single episode
    # All entries of Γ on and above the diagonal are 2:
    norm = np.linalg.norm(2 * np.triu(np.ones((4, 4))), 2)
    assert f"‖Γ‖ = {norm:.0f}" in remembering.name


def test_steps_of_one_episode_are_not_counted_as_independent_in_a_certificate() -> None:
    rows = regression_rows()
    naive = next(row for row in table_of(rows) if "naive" in row.name)
    honest = next(row for row in table_of(rows) if row.name == "test set, by episodes")
    assert (naive.n, honest.n) == (256, 64)
    assert naive.risk == pytest.approx(honest.risk)
    assert naive.value < honest.value
    assert (naive.fails, honest.fails, honest.says) == (("steps",), (), "certificate")


def test_a_critic_that_overfits_its_replay_buffer_violates_the_bounds() -> None:
    rows = {(row.name, row.quantity): row for row in regression_rows(scale=5.0)}
    assert rows["McAllester, as printed", "squared Bellman error"].says == "broken"
    assert rows["PAC-Bayes-kl", "bounded Bellman error"].says == "broken"
    assert rows["test set, by episodes", "bounded Bellman error"].says == "certificate"
    assert rows["Theorem 1, ‖Γ‖ = 2", "value error"].says == "vacuous"


def test_rows_without_a_required_replay_buffer_or_posterior_are_omitted() -> None:
    assert {row.data for row in regression_rows()} == {"replay", "fresh"}
    assert {row.data for row in regression_rows(replay=False)} == {"fresh"}
    plain = regression_rows(kl=None)
    assert {row.data for row in plain} == {"fresh"}
    assert all(row.kl is None for row in plain)
    assert all(set(row.fails) <= CAVEATS.keys() for row in regression_rows())


def test_a_bound_is_compared_with_the_interval_of_the_measured_error() -> None:
    (row,) = regression_rows()[:1]
    low, high = row.measured.low, row.measured.high
    verdicts = [
        dataclasses.replace(row, value=x).respected
        for x in (low - 0.01, (low + high) / 2, high + 0.01)
    ]
    assert verdicts == ["no", "undecided", "yes"]


# --- a linear-quadratic task with the value in closed form


def test_certified_value_errors_hold_with_the_stated_confidence_and_a_wrong_critic_is_detected() -> (
    None
):
    agent, state = make_linear_agent(*({"mistake": 3.0 * (k % 2)} for k in range(REPETITIONS)))
    single, single_state = make_linear_agent({})
    scales = Scales(RewardRange(-3, 0, "", proven=False), 0.9, DELTA)  # values of −30 to 0
    everyone = measure_value_errors(
        agent, state, LINEAR_QUADRATIC, range(REPETITIONS), 10, "certificate"
    )
    truth = {
        wrong: {
            "absolute value error": np.mean(
                [e.episode_means(abs(e.error)).mean() for e in everyone[wrong::2]]
            ),
            "bounded value error": np.mean(
                [e.episode_means(e.bounded(3.0)).mean() for e in everyone[wrong::2]]
            ),
        }
        for wrong in (0, 1)
    }
    failures, bounds_found = 0, {0: [], 1: []}
    for run, errors in enumerate(everyone):
        fresh = fresh_errors(single, single_state, errors, scales, seed=run)
        rows = BoundTable(None, fresh, fresh.measured(), kl=None).rows()
        by_quantity = {
            row.quantity: row.value for row in rows if row.name == "test set, by episodes"
        }
        failures += any(by_quantity[quantity] < value for quantity, value in truth[run % 2].items())
        bounds_found[run % 2].append(by_quantity["absolute value error"])
    assert holds_with_confidence(failures)
    assert truth[1]["absolute value error"] > 2.5 > 1.5 > truth[0]["absolute value error"]
    assert np.median(bounds_found[1]) > np.median(bounds_found[0])


def test_the_squared_value_error_of_a_constant_mistake_is_its_square() -> None:
    runs = range(100)
    agent, state = make_linear_agent(
        *({"mistake": mistake} for mistake in (0.0, 3.0) for _ in runs)
    )
    errors = measure_value_errors(agent, state, LINEAR_QUADRATIC, [*runs, *runs], 10, "now")
    found = [value_error(one, DELTA) for one in errors]
    right, wrong = found[:100], found[100:]
    assert holds_with_confidence(sum(not one.low <= 0 <= one.high for one in right), len(runs))
    assert holds_with_confidence(sum(not one.low <= 3.0**2 <= one.high for one in wrong), len(runs))
    assert np.median([one.low for one in wrong]) > 5  # and says so from ten episodes
    # The chance in single returns, which both have, is all that lies between the upper side and the
    # truth.
    assert np.mean([w.value - r.value for w, r in zip(wrong, right, strict=True)]) == pytest.approx(
        9, abs=0.8
    )
    # Q is no single number
    spread = dataclasses.replace(errors[150], v=np.full_like(errors[150].m, 2.0))
    assert value_error(spread, DELTA).low == pytest.approx(wrong[50].low + 2.0)


def test_the_mean_bellman_error_of_the_true_value_is_zero() -> None:
    agent, state = make_linear_agent({})
    (errors,) = measure_value_errors(agent, state, LINEAR_QUADRATIC, [0], 60, "certificate")
    scales = Scales(RewardRange(-3, 0, "", proven=False), 0.9, DELTA)
    right = fresh_errors(agent, state, errors, scales, 0).bellman
    assert len(right.m) == errors.judged.sum()  # time limits come after the judged steps
    means = right.episode_means(right.y - right.m)
    assert abs(means.mean()) < 3 * means.std(ddof=1) / np.sqrt(len(means))
    state["hyper/mistake"] += 5.0
    wrong = fresh_errors(agent, state, errors, scales, 0).bellman
    gap = wrong.episode_means(wrong.y - wrong.m)
    # y moves by γ of the mistake
    assert gap.mean() == pytest.approx(means.mean() - (1 - 0.9) * 5.0, abs=0.05)


def test_bias_along_the_episode_has_the_sign_of_the_error_in_every_part() -> None:
    agent, state = make_linear_agent({"mistake": -4.0})
    (errors,) = measure_value_errors(agent, state, LINEAR_QUADRATIC, [0], 30, "certificate")
    along = bias_along("policy", errors, 0.05)
    assert len(along.bias) == 20
    assert all(part.high < 0 for part in along.bias)
    half = errors.part(slice(15))
    assert (len(half.m), len(half.length)) == (15, 15)
    np.testing.assert_array_equal(half.reward, errors.reward[:15])


# --- transitions on paper


def test_targets_and_variances_are_those_of_the_paper_s_objective() -> None:
    agent, state = hand_computed_agent("pac4ddpg", {})
    set_head(agent, state, "critic", {"weight": [0.01, 0.0], "bias": 0.5, "variance": [0.1, 0.05]})
    s = torch.tensor([[[0.0], [1.0]]])
    a = torch.zeros(1, 2, 1)
    batch = Batch(s, a, torch.tensor([[0.0, 1.0]]), torch.ones(1, 2, 1), torch.tensor([[0.0, 1.0]]))
    seen = bellman_errors(agent, state, batch, 0)
    m, v = agent.mean_and_variance(state, s, a)
    np.testing.assert_allclose(seen.m, m[0])
    np.testing.assert_allclose(seen.v, v[0])
    a2 = agent.deterministic_action(state, batch.s2)
    m2, v2 = agent.mean_and_variance(state, batch.s2, a2)
    gamma = agent.config.gamma
    np.testing.assert_allclose(seen.y, [gamma * m2[0, 0], 1.0], rtol=1e-6)  # nothing follows an end
    np.testing.assert_allclose(seen.next_variance, [v2[0, 0], 0.0], rtol=1e-6)
    np.testing.assert_allclose(seen.squared, (seen.y - seen.m) ** 2 + seen.v)
    one = dataclasses.replace(seen, episode=np.array([0, 1]))
    assert sorted(one.one_per_episode(one.m, 0)) == sorted(one.m)
