"""The bias of a critic's values, logged during training."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_experiments import (
    DRIFT,
    KillableTrainings,
    assert_trained_alike,
    rewrite_progress,
    rows,
    same,
    train,
)

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.training import experiment
from pac4sac.training.value_error import measure_value_errors

OFFERED = ("deviation", "ratio", "covered", "rank")  # of a critic's uncertainty
BIAS = {"bias_every": 50, "bias_episodes": 2, "settings": {"gamma": 0.8}, "steps": 130}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("bias") / "x", **BIAS).folder


@pytest.fixture(scope="module")
def killable() -> Iterator[KillableTrainings]:
    server = KillableTrainings()
    yield server
    server.close()


def test_bias_is_logged_on_schedule_and_once_at_the_end(folder: Path) -> None:
    found = rows(folder, "sac-seed0", "bias")
    assert [row["step"] for row in found] == [50, 100, 130]
    names = (
        "step",
        "bias",
        "low",
        "high",
        "rms",
        "mean_return",
        "episodes",
        "steps",
        "tail_weight",
        *OFFERED,
    )
    assert all(tuple(row) == names and row["low"] < row["bias"] < row["high"] for row in found)
    assert len({row["bias"] for row in found + rows(folder, "sac-seed1", "bias")}) == 6


def test_the_log_equals_a_measurement_of_the_same_agent(folder: Path) -> None:
    trained = pac4sac.load(folder / "runs" / "sac-seed1")
    (errors,) = measure_value_errors(trained.agent, trained.state, DRIFT, [1], 2, "130")
    last = rows(folder, "sac-seed1", "bias")[-1]
    assert errors.bias().bias == pytest.approx(last["bias"], rel=1e-4)
    assert errors.bias().steps == last["steps"]
    assert {name: last[name] for name in OFFERED} == pytest.approx(
        vars(errors.uncertainty()), rel=1e-3
    )


def test_a_single_plain_critic_logs_no_uncertainty(tmp_path: Path) -> None:
    folder = train(tmp_path / "x", "ddpg", **BIAS | {"bias_every": 130}).folder
    assert OFFERED[0] not in rows(folder, "ddpg-seed0", "bias")[-1]


def test_measuring_bias_does_not_change_training(folder: Path, tmp_path: Path) -> None:
    undisturbed = train(tmp_path / "x", **BIAS | {"bias_every": 0}).folder
    assert_trained_alike(folder, undisturbed)


@pytest.mark.parametrize("step", [60, 119])
def test_a_resumed_run_has_the_same_log(
    folder: Path, tmp_path: Path, killable: KillableTrainings, step: int
) -> None:
    assert killable.killed_at("train", tmp_path / "x", step, **{"with": BIAS})
    assert experiment.resume(tmp_path / "x").complete
    assert same(tmp_path / "x", folder)


def test_a_checkpoint_without_this_log_can_be_resumed(
    tmp_path: Path, killable: KillableTrainings
) -> None:
    without = BIAS | {"bias_every": 0}
    whole = train(tmp_path / "whole", **without).folder
    assert killable.killed_at("train", tmp_path / "x", 90, **{"with": without})
    for checkpoint in (tmp_path / "x" / "cohorts" / "000").glob("step-*"):
        rewrite_progress(checkpoint, _forget_bias)
    assert experiment.resume(tmp_path / "x").complete
    assert same(tmp_path / "x", whole, "episodes.jsonl", "metrics.jsonl", "evaluations.jsonl")


def _forget_bias(progress: dict[str, Any]) -> None:
    for marks in progress["logs"]:
        del marks["bias"]


def test_a_single_episode_has_no_interval(tmp_path: Path) -> None:
    found = rows(train(tmp_path / "x", **BIAS | {"bias_episodes": 1}).folder, "sac-seed0", "bias")
    assert all(
        row["low"] is None and row["high"] is None and np.isfinite(row["bias"]) for row in found
    )


@pytest.mark.parametrize("wrong", [{"bias_every": -1}, {"bias_episodes": 0}])
def test_invalid_schedules_are_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match=r"must be a whole number (at least|in)"):
        train(tmp_path / "x", **wrong)
