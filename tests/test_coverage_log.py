"""How widely the states of a run lie: the numbers, and their log during training."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_cohorts import make_learner
from tiny_experiments import (
    DRIFT,
    KillableTrainings,
    assert_trained_alike,
    newest,
    rows,
    same,
    train,
)
from torch import Tensor

import pac4sac
from pac4sac import Task
from pac4sac.base.errors import UserError
from pac4sac.training import experiment
from pac4sac.training import state_coverage as coverage
from pac4sac.training.learner import Learner
from pac4sac.training.state_coverage import (
    log_volume,
    measure_coverage,
    nearest_distance,
    one_of_each_part,
)

COVERAGE = {"coverage_every": 50, "steps": 130}
SQUARE = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [2.0, 4.0]])


# --- the numbers


def test_the_mean_distance_to_the_nearest_other_state() -> None:
    # nearest: 1, 1, 2 and 6 away
    line = torch.tensor([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [9.0, 0.0]])
    assert nearest_distance(torch.stack([SQUARE, line])).tolist() == [1.0, 2.5]


def test_equal_states_have_distance_zero() -> None:
    assert nearest_distance(torch.full((1, 5, 3), 1234.5)).tolist() == [0.0]


def test_the_log_volume_is_half_the_log_determinant_in_grains() -> None:
    # Deviations from the mean (1¼, 2¼) give sums of squares 6.75 and 12.75, of products 8.75; three
    # degrees of freedom.
    xx, yy, xy = (sum_ / 3 / 0.01**2 for sum_ in (6.75, 12.75, 8.75))
    expected = 0.5 * math.log((1 + xx) * (1 + yy) - xy**2)
    assert log_volume(SQUARE.unsqueeze(0)).tolist() == pytest.approx([expected], rel=1e-9)


def test_doubling_the_spread_adds_ln_2_per_dimension_to_the_log_volume() -> None:
    states = torch.randn(1, 200, 3, generator=torch.Generator().manual_seed(0))
    gained = log_volume(2 * states) - log_volume(states)
    assert gained.tolist() == pytest.approx([3 * math.log(2)], rel=1e-3)
    assert nearest_distance(2 * states).item() == pytest.approx(
        2 * nearest_distance(states).item(), rel=1e-5
    )


def test_constant_dimensions_add_nothing() -> None:
    still = torch.cat([SQUARE, torch.full((4, 2), 7.0)], 1)
    for measure in (nearest_distance, log_volume):
        assert measure(still.unsqueeze(0)).tolist() == pytest.approx(
            measure(SQUARE.unsqueeze(0)).tolist(), rel=1e-9
        )
    assert log_volume(torch.full((1, 4, 3), 7.0)).tolist() == [0.0]


@pytest.mark.parametrize(("length", "count"), [(10, 10), (10, 3), (1999, 1000), (25_000, 1000)])
def test_a_sample_has_different_states_from_the_whole_buffer(length: int, count: int) -> None:
    generator = torch.Generator().manual_seed(1)
    uniforms = torch.stack(
        [torch.zeros(count), torch.rand(count, generator=generator), torch.ones(count)]
    )
    for places in one_of_each_part(length, uniforms).tolist():
        assert len(set(places)) == count
        assert all(
            k * length // count <= place < (k + 1) * length // count
            for k, place in enumerate(places)
        )


# --- of a learner


def with_replay(states: Tensor, seeds: list[int]) -> Learner:
    """A learner [R] that acted in these states [R, n, 3], the last of them in its ring of 64."""
    learner = make_learner("ddpg", *({} for _ in seeds), seeds=seeds)
    for k in range(states.shape[1]):
        learner.buffers["replay"][:, k % 64, :3] = states[:, k]
    learner.step = states.shape[1]
    return learner


def test_a_run_has_the_same_measurement_in_any_cohort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "SAMPLE", 20)
    states = torch.randn(3, 50, 3, generator=torch.Generator().manual_seed(2))
    together = measure_coverage(with_replay(states, [5, 6, 7]))
    (alone,) = measure_coverage(with_replay(states[1:2], [6]))
    (other,) = measure_coverage(with_replay(states[1:2], [7]))
    assert together[1] == alone
    assert alone.states == 20
    assert alone.nearest != other.nearest  # another seed draws other states


def test_only_states_in_the_replay_buffer_count() -> None:
    states = torch.cat([1e6 * torch.randn(1, 64, 3), torch.full((1, 64, 3), 2.0)], 1)
    (coverage_of_run,) = measure_coverage(with_replay(states, [0]))
    assert (coverage_of_run.nearest, coverage_of_run.log_volume, coverage_of_run.states) == (
        0.0,
        0.0,
        64,
    )


def test_a_single_state_has_no_nearest_neighbour() -> None:
    assert measure_coverage(with_replay(torch.zeros(2, 1, 3), [0, 1])) == []


# --- in training


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("coverage") / "x", **COVERAGE).folder


@pytest.fixture(scope="module")
def killable() -> Iterator[KillableTrainings]:
    server = KillableTrainings()
    yield server
    server.close()


def test_coverage_is_logged_on_schedule_and_once_at_the_end(folder: Path) -> None:
    logged = rows(folder, "sac-seed0", "coverage")
    assert [(row["step"], row["states"]) for row in logged] == [(50, 50), (100, 100), (130, 130)]
    assert all(tuple(row) == ("step", "nearest", "log_volume", "states") for row in logged)
    assert len({row["nearest"] for row in logged + rows(folder, "sac-seed1", "coverage")}) == 6


def test_the_log_equals_a_measurement_of_the_stored_states(folder: Path) -> None:
    stored = load_file(newest(folder) / "learner.safetensors")["replay"][:, :, :3]
    last = [rows(folder, f"sac-seed{seed}", "coverage")[-1] for seed in (0, 1)]
    assert [row["nearest"] for row in last] == pytest.approx(
        nearest_distance(stored).tolist(), rel=1e-5
    )
    assert [row["log_volume"] for row in last] == pytest.approx(
        log_volume(stored).tolist(), rel=1e-9
    )


def test_a_run_that_acts_at_random_covers_more_than_one_that_always_does_the_same(
    tmp_path: Path,
) -> None:
    """The action drives the first coordinate of the state; a learner that never leaves its warm-up
    is random."""
    calm = train(
        tmp_path / "calm", "training_agents:NeverMoves", settings={"warmup": 0}, coverage_every=100
    ).folder
    wild = train(tmp_path / "wild", settings={"warmup": 1000}, coverage_every=100).folder
    for seed in (0, 1):
        one, other = (rows(wild, f"sac-seed{seed}", "coverage"), _statue(calm, seed))
        for wide, narrow in zip(one, other, strict=True):
            assert wide["nearest"] > narrow["nearest"]
            assert wide["log_volume"] > narrow["log_volume"]


def _statue(folder: Path, seed: int) -> list[dict[str, float]]:
    return rows(folder, f"training_agents.NeverMoves-seed{seed}", "coverage")


def test_measuring_coverage_does_not_change_training(folder: Path, tmp_path: Path) -> None:
    undisturbed = train(tmp_path / "x", **COVERAGE | {"coverage_every": 0}).folder
    assert_trained_alike(folder, undisturbed)


@pytest.mark.parametrize("step", [60, 119])
def test_a_resumed_run_has_the_same_log(
    folder: Path, tmp_path: Path, killable: KillableTrainings, step: int
) -> None:
    assert killable.killed_at("train", tmp_path / "x", step, **{"with": COVERAGE})
    assert experiment.resume(tmp_path / "x").complete
    assert same(tmp_path / "x", folder)


def test_a_run_that_stopped_early_counts_no_later_states(tmp_path: Path) -> None:
    easy = Task("easy", DRIFT.env_id, 30, r_limit=-1e9)
    stopping = {"task": easy, "stop_when_solved": True, "coverage_every": 70}
    logged = rows(train(tmp_path / "x", **stopping).folder, "sac-seed0", "coverage")
    assert [(row["step"], row["states"]) for row in logged] == [(70, 70), (140, 140), (150, 150)]


def test_an_invalid_schedule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="coverage_every must be a whole number at least 0, not -1"):
        pac4sac.train(DRIFT, out=tmp_path / "x", coverage_every=-1)
