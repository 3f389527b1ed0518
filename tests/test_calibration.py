"""Does a critic know what it does not know: its deviations against its errors, at home and after
random actions."""

import numpy as np
import pytest
from linear_quadratic import TASK as LINEAR_QUADRATIC
from linear_quadratic import make_linear_agent
from small_cohorts import hand_computed_agent, set_head, value_errors

from pac4sac import Task
from pac4sac.certificates.calibration import after_random_steps, calibrate, calibration
from pac4sac.certificates.intervals import quantile, widen
from pac4sac.training.value_error import ValueErrors, measure_value_errors

TWO_STEPS = Task("two-steps", "probe_environments:probe/TwoSteps-v0", 10)


def test_coverage_is_the_share_within_two_standard_deviations() -> None:
    error = np.array([[0.0, 1.9, 2.1, 9.0], [0.5, 9.0, 9.0, 9.0]])
    judged = np.array([[True, True, True, False], [True, False, False, False]])
    for sign in (1, -1):
        errors = value_errors(sign * error, np.ones((2, 4)), np.zeros((2, 4)), judged)
        found = calibration("here", "√v_p", errors, 0.05)
        assert found is not None
        assert found.share.value == pytest.approx((2 / 3 + 1) / 2)
    assert found.ratio == pytest.approx(np.sqrt((1.9**2 + 2.1**2 + 0.5**2) / 4))
    assert found.share.low < found.share.value < found.share.high


def test_the_rank_correlation_shows_whether_a_critic_knows_where_it_errs() -> None:
    error, judged = (
        np.array([[0.0, -1.0, 2.0, -3.0, 99.0]]),
        np.array([[True, True, True, True, False]]),
    )
    nothing = np.zeros((1, 5))
    for deviation, expected in (
        ([1, 2, 3, 9, 0], 1.0),
        ([9, 3, 2, 1, 5], -1.0),
        ([1, 3, 2, 9, 0], 0.8),
    ):
        found = value_errors(
            error, nothing, nothing, judged, np.array([deviation], float)
        ).uncertainty()
        assert found is not None
        assert found.rank == pytest.approx(expected)
    same = value_errors(error, nothing, nothing, judged, np.ones((1, 5))).uncertainty()
    assert same is not None
    assert np.isnan(same.rank)


def test_a_single_plain_critic_has_no_calibration() -> None:
    agent, state = hand_computed_agent("ddpg", {})
    (errors,) = measure_value_errors(agent, state, TWO_STEPS, [0], 3, "now")
    assert calibrate(agent, state, TWO_STEPS, errors, 0, 0.05, print) == []


def test_the_std_of_a_critic_is_the_root_of_its_variance() -> None:
    agent, state = hand_computed_agent("pac4ddpg", {})  # which plays a = 0
    # v = 9 s² + max(a, 0)², in states 0 and 1
    set_head(agent, state, "critic", {"weight": [0.0, 0.0], "bias": 0.0, "variance": [9.0, 1.0]})
    (errors,) = measure_value_errors(agent, state, TWO_STEPS, [0], 3, "now")
    np.testing.assert_allclose(errors.deviation, [[0, 3]] * 3, rtol=1e-5)


def test_the_true_value_is_unbiased_after_random_actions() -> None:
    agent, state = make_linear_agent({})
    errors = after_random_steps(agent, state, LINEAR_QUADRATIC, 150, 0, longest=30)
    assert errors.judged.sum(1).tolist() == [1] * 150
    error = errors.error[errors.judged]
    assert abs(error.mean()) < 3 * error.std() / np.sqrt(150)
    (on_policy,) = measure_value_errors(
        agent, state, LINEAR_QUADRATIC, [0], 150, "after random steps"
    )
    # uniform on [-1, 1]
    assert np.abs(errors.action[:, 0]).max() <= 1 < np.abs(on_policy.action[:, 0]).max()
    assert len(set(np.nonzero(errors.judged)[1])) > 15


def test_the_last_random_action_of_an_episode_is_judged() -> None:
    agent, state = hand_computed_agent("ddpg", {"gamma": 0.8})  # whose own action is 0
    errors = after_random_steps(agent, state, LINEAR_QUADRATIC, 20, 0, longest=12)
    random = errors.action[:, :, 0] != 0
    step = np.arange(random.shape[1])
    np.testing.assert_array_equal(random, step <= errors.judged.argmax(1)[:, None])
    assert errors.judged.any(1).all()


# --- intervals that are widened until they cover


def errors_of(sizes: list[float], deviation: float | list[float]) -> ValueErrors:
    m, judged = np.array([sizes]), np.ones((1, len(sizes)), bool)
    return value_errors(
        m, 0 * m, 0 * m, judged, np.broadcast_to(np.array(deviation, float), m.shape)
    )


def test_intervals_are_calibrated_on_some_episodes_and_tested_on_others() -> None:
    measuring = errors_of([3.0] * 95 + [9.0] + [50.0] * 4, 2.0)  # 0.954 is reached with the 96th
    found = widen(measuring, errors_of([8.0, -8.9, 9.1, 70.0], 2.0), 0.05)
    assert found is not None
    assert found.deviations == pytest.approx(4.5)
    assert found.covered is not None
    assert found.covered.value == found.constant_covered.value == 0.5
    assert found.half_width == found.constant == pytest.approx(9.0)


def test_a_std_that_predicts_errors_gives_a_narrower_interval() -> None:
    sizes = [1.0, 1.0, 1.0, 10.0]
    found = widen(
        errors_of(sizes, [0.1, 0.1, 0.1, 1.0]), errors_of(sizes, [0.1, 0.1, 0.1, 1.0]), 0.05
    )
    assert found is not None
    assert found.deviations == found.constant == pytest.approx(10.0)
    assert found.covered is not None
    assert found.covered.value == 1.0
    assert found.half_width == pytest.approx(13 / 4)


def test_every_episode_has_the_same_weight() -> None:
    error, judged = np.array([[1.0] * 30, [5.0] * 30]), np.zeros((2, 30), bool)
    judged[0], judged[1, 0] = True, True
    ones = np.ones_like(error)
    # of 31 steps one, but half of the weight
    assert quantile(value_errors(error, ones, 0 * ones, judged), ones) == 5.0


def test_without_a_std_there_is_no_scaled_interval() -> None:
    plain = errors_of([1.0, 2.0], np.nan)
    found = widen(plain, plain, 0.05)
    assert found is not None
    assert found.constant == 2.0
    assert (found.deviations, found.covered, found.half_width) == (None, None, None)
