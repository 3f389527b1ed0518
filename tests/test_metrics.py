"""The paper's metrics on sequences of returns made by hand; r_limit is 10 throughout."""

import numpy as np
import pytest

from pac4sac.paper.numbers import COST, MEDIANS, PAPER_TASKS, TABLE_1, TABLE_2, paper_cell
from pac4sac.runs.metrics import score, solved_at
from pac4sac.runs.statistics import Summary

R_LIMIT = 10.0
GOOD, BAD = 12.0, 4.0  # a bad episode misses 6, a good one exceeds by 2


def test_an_unsolved_run_counts_every_episode() -> None:
    result = score([BAD] * 8, R_LIMIT, e_max=8)
    assert (result.episodes, result.regret, result.solved, result.complete) == (
        8,
        48.0,
        False,
        True,
    )


def test_a_run_solved_at_once_has_no_regret() -> None:
    result = score([GOOD] * 5, R_LIMIT, e_max=8)
    assert (result.episodes, result.regret, result.solved, result.complete) == (0, 0.0, True, True)


def test_the_last_possible_streak_solves() -> None:
    result = score([BAD] * 3 + [GOOD] * 5, R_LIMIT, e_max=8)
    assert (result.episodes, result.regret, result.solved) == (3, 18.0, True)


def test_a_streak_one_episode_too_late_does_not_solve() -> None:
    result = score([BAD] * 4 + [GOOD] * 5, R_LIMIT, e_max=8)
    assert (result.episodes, result.regret, result.solved) == (8, 24.0, False)


def test_a_streak_broken_at_four_starts_again() -> None:
    returns = [GOOD] * 4 + [BAD] + [GOOD] * 5
    assert solved_at(returns, R_LIMIT) == 5
    assert score(returns, R_LIMIT, e_max=10).episodes == 5


def test_four_in_a_row_are_not_five() -> None:
    assert solved_at([BAD, *[GOOD] * 4], R_LIMIT) is None


def test_the_length_of_the_streak_can_be_set() -> None:
    assert solved_at([BAD, GOOD, GOOD, BAD], R_LIMIT, streak=2) == 1


def test_a_return_equal_to_the_limit_does_not_count() -> None:
    assert solved_at([R_LIMIT] * 5, R_LIMIT) is None
    assert solved_at([np.nextafter(R_LIMIT, 11)] * 5, R_LIMIT) == 0


def test_only_the_first_streak_matters() -> None:
    result = score([BAD, *[GOOD] * 5, BAD, BAD], R_LIMIT, e_max=8)
    assert (result.episodes, result.regret) == (1, 6.0)


def test_clipped_regret_does_not_credit_episodes_above_the_limit() -> None:
    returns = [BAD, GOOD, BAD, *[GOOD] * 5]
    result = score(returns, R_LIMIT, e_max=8)
    assert (result.regret, result.regret_unclipped) == (12.0, 10.0)  # 6 + 0 + 6 and 6 − 2 + 6


def test_fixed_horizon_regret_includes_episodes_after_solving() -> None:
    returns = [BAD, *[GOOD] * 5, BAD, BAD]
    assert score(returns, R_LIMIT, e_max=8).fixed_horizon_regret == 18.0  # 6 + 6 + 6


def test_a_run_stopped_when_solved_has_no_fixed_horizon_regret() -> None:
    result = score([BAD, *[GOOD] * 5], R_LIMIT, e_max=40)
    assert result.complete
    assert result.fixed_horizon_regret is None


def test_an_unfinished_run_has_an_incomplete_score() -> None:
    result = score([BAD] * 3, R_LIMIT, e_max=40)
    assert (result.episodes, result.regret, result.solved, result.complete) == (
        3,
        18.0,
        False,
        False,
    )
    assert result.fixed_horizon_regret is None


def test_episodes_beyond_the_horizon_are_ignored() -> None:
    assert score([BAD] * 8 + [GOOD] * 20, R_LIMIT, e_max=8) == score([BAD] * 8, R_LIMIT, e_max=8)


def test_without_e_max_the_score_is_final() -> None:
    result = score([BAD] * 3, R_LIMIT)
    assert (result.episodes, result.complete, result.fixed_horizon_regret) == (3, True, 18.0)


def test_a_run_before_its_first_episode_has_no_mean_return() -> None:
    result = score([], R_LIMIT, e_max=40)
    assert (result.episodes, result.regret, result.mean_return, result.complete) == (
        0,
        0.0,
        None,
        False,
    )


def test_mean_return() -> None:
    assert score(np.array([1.0, 2.0, 6.0]), R_LIMIT).mean_return == 3.0
    assert score([BAD, GOOD], R_LIMIT, e_max=2).mean_return == 8.0


def test_the_papers_cells_are_found_by_task_and_algorithm() -> None:
    cell = paper_cell("cartpole-swingup", "pac4sac")
    assert cell is not None
    assert cell.regret == Summary(5, 5700.0, 300.0)
    assert cell.episodes == Summary(5, 22.0, 5.1)
    assert paper_cell("cartpole-swingup", "sac-nr") is None
    assert paper_cell("Pendulum-v1", "sac") is None


def test_the_papers_numbers_fit_together() -> None:
    assert TABLE_1.keys() == PAPER_TASKS.keys()
    for task, row in TABLE_1.items():
        assert row.keys() == {"ddpg", "sac", "oac", "pac4sac"}
        for cell in row.values():
            assert cell.episodes.mean <= PAPER_TASKS[task].e_max
            # No run misses more than r_limit (plus a little below zero) in an episode.
            assert cell.regret.mean <= 1.2 * PAPER_TASKS[task].r_limit * PAPER_TASKS[task].e_max
    for task, row in TABLE_2.items():
        assert row["bellman+conservative+exploration"] == TABLE_1[task]["pac4sac"]
    assert max(COST, key=lambda algo: COST[algo].mean) == "sac-nr"
    assert min(MEDIANS["regret"], key=MEDIANS["regret"].__getitem__) == 1000


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_returns_may_be_any_sequence(kind: type) -> None:
    assert score(kind([BAD, *[GOOD] * 5]), R_LIMIT, e_max=8).episodes == 1
