"""Every algorithm learns to swing up a pendulum: minutes each, run by `make test-slow`.
docs/learning-checks.md has the numbers, also of sac-fpi, which does not learn it and is not asked
to."""

from pathlib import Path

import numpy as np
import pytest

import pac4sac
from pac4sac.agents import ALGORITHMS

NOT_ASKED = {"sac-fpi"}
SETTINGS = {"width": 64, "depth": 2, "batch": 64, "warmup": 500}
OWN = {"pac4sac": {"shots": 20}, "sac-nr": {"clean": 0.9}}  # the page says why
FEWER = {"updates_per_step": 2, "policy_delay": 2}  # than 20, with which they would take an hour
OWN |= {
    "redq": {**FEWER, "critics": 5},
    "droq": FEWER,
    "tqc": {"critics": 3, "quantiles": 10, "dropped": 1},
}
# γ = 1 − 5/T, the rule of XQC's authors for episodes of T steps
OWN |= {
    "xqc": {"critic_width": 64, "gamma": 0.975},
    "flashsac": {"critic_width": 64, "gamma": 0.975, "held_max": 16},
}
OWN |= {algo: {"shots": 20, "alpha": 0.05} for algo in ("pac4sac-mixture", "pac4sac-index")}


@pytest.mark.slow
@pytest.mark.parametrize("algo", [algo for algo in ALGORITHMS if algo not in NOT_ASKED])
def test_pendulum_is_learned_in_a_few_thousand_steps(algo: str, tmp_path: Path):
    result = pac4sac.train(
        "Pendulum-v1",
        algo,
        seeds=range(4),
        settings=SETTINGS | OWN.get(algo, {}),
        steps=6000,
        out=tmp_path / algo,
        device="cpu",
        backend="eager",
        threads=1,
        workers=0,
        evaluation_episodes=10,
    )
    runs = result.runs
    assert [run.status for run in runs] == ["finished"] * 4
    untrained = np.mean([run.returns[:2] for run in runs])  # the warm-up's uniform actions
    assert untrained < -900
    # The last evaluation is of the policy as it is meant to be used: with shooting where the agent
    # shoots.
    assert np.mean([run.evaluations[-1]["mean"] for run in runs]) > -300
