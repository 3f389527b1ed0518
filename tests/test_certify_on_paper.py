"""A whole certificate of an agent whose numbers fit on paper: one step, reward −(a − a*)², a critic
that says −5."""

import numpy as np
import pytest
from scipy.optimize import brentq
from small_cohorts import hand_computed_agent, set_head

import pac4sac
from pac4sac import Task
from pac4sac.certificates.certificate import Certificate
from pac4sac.training.agent_file import save_agent
from pac4sac.training.run import Run

TASK = Task("by-action", "probe_environments:probe/RewardByAction-v0", 10)
EPISODES, DELTA = 32, 0.05
CLAIM = -5.0
STUDENT = 2.0395134  # t of 31 degrees of freedom at 97.5 %, from a table
LOW, HIGH = -2.25, 0.0  # of rewards: |a − a*| is 1.5 at most


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    agent, state = hand_computed_agent("pac4sac", shots=20)
    set_head(
        agent, state, "critic", {"weight": [0.0, 0.0], "bias": CLAIM, "variance": [0.01, 0.01]}
    )
    file = tmp_path_factory.mktemp("paper") / "agent.safetensors"
    save_agent(file, Run(TASK, "pac4sac", "default", 0, agent.config, "pac4sac"), agent, state, 0)
    return pac4sac.certify(
        file, episodes=EPISODES, delta=DELTA, reward_range=(LOW, HIGH), return_range=(LOW, HIGH)
    )


def test_no_bound_is_compared_with_the_episodes_that_produced_it(certificate: Certificate) -> None:
    played, measured = certificate.returns[0], certificate.measured.absolute.value
    (row,) = [row for row in certificate.rows if row.quantity == "absolute value error"]
    assert (played.episodes, row.n, certificate.bias["policy"].episodes) == (
        2 * EPISODES,
        EPISODES,
        EPISODES,
    )
    assert row.measured.value == measured
    for one in certificate.rows:
        assert one.risk != pytest.approx(one.measured.value), one.name
    # The error is r + 5 and the return r: the means of two halves that share no episode make up the
    # mean of all.
    assert (measured + row.risk) / 2 == pytest.approx(played.mean.value - CLAIM, rel=1e-6)


def test_intervals_of_the_bias_have_the_requested_confidence(certificate: Certificate) -> None:
    bias = certificate.bias["policy"]
    half_width = STUDENT * np.sqrt((bias.rms**2 - bias.bias**2) / (EPISODES - 1))
    assert (bias.low, bias.high) == pytest.approx(
        (bias.bias - half_width, bias.bias + half_width), rel=1e-5
    )
    (only_part,) = certificate.along[0].bias
    assert (only_part.low, only_part.high) == pytest.approx((bias.low, bias.high))
    absolute = certificate.measured.absolute
    assert (absolute.low, absolute.high) == pytest.approx((-bias.high, -bias.low))


def test_the_deterministic_policy_plays_its_mean_without_shooting(certificate: Certificate) -> None:
    sampled, deterministic, shooting = certificate.returns
    assert [one.policy for one in certificate.returns] == [
        "policy",
        "deterministic policy",
        "shooting policy",
    ]
    # a = 0, a* = ±½
    assert (deterministic.mean.low, deterministic.mean.high) == pytest.approx((-0.25, -0.25))
    assert max(sampled.mean.high, shooting.mean.high) < -0.3  # −¼ − E a², where a is no constant


def betting_of_equals(x: float, delta: float) -> float:
    """The lower bound from 32 equal samples: where the capital is 1/δ."""
    shares = np.linspace(0.025, 0.975, 20)
    return float(brentq(lambda m: np.mean((1 + shares * (x / m - 1)) ** 32) - 1 / delta, 0.1, x))


def test_returns_exceed_their_bounds_with_the_requested_confidence(
    certificate: Certificate,
) -> None:
    one = certificate.returns[1]
    x = (-0.25 - LOW) / (HIGH - LOW)  # 8/9 in each of 32 episodes
    bernstein = x - 7 * np.log(2 / DELTA) / (3 * 31)
    assert one.empirical_bernstein == pytest.approx(LOW + (HIGH - LOW) * bernstein)
    assert one.betting == pytest.approx(LOW + (HIGH - LOW) * betting_of_equals(x, DELTA))


def test_a_constant_error_is_also_measured_after_random_actions(certificate: Certificate) -> None:
    at_home, astray = certificate.calibration
    assert (at_home.where, astray.where) == ("states of the policy", "after random actions")
    for found in (at_home, astray):
        assert LOW - CLAIM <= found.rms_error <= HIGH - CLAIM  # of −5 − r
        assert found.rms_deviation <= np.sqrt(0.02)  # v_p is 0.01 (s² + max(a, 0)²)
        assert (found.share.value, found.steps) == (0.0, EPISODES)
        # the other half is for below
        assert found.share.high == pytest.approx(1 - betting_of_equals(1.0, DELTA / 2))
    assert at_home.rms_error != astray.rms_error
