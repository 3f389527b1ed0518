"""The paper's metrics, from the returns of a run's training episodes in order.

A run is solved at the first of five consecutive episodes with a return above r_limit. What counts are the episodes
before that one: their number, and the sum of what they miss to r_limit. If there are no such five, all E_max count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STREAK = 5

Returns = Sequence[float] | NDArray[np.floating]


@dataclass(frozen=True)
class Score:
    """What a run achieved. While `complete` is false, episodes and regrets are those so far, and may change."""

    episodes: int
    regret: float
    regret_unclipped: float
    fixed_horizon_regret: float | None  # None: the run ended before E_max episodes, for one because it was solved
    mean_return: float | None  # None: no episode yet
    solved: bool
    complete: bool


def score(returns: Returns, r_limit: float, e_max: int | None = None) -> Score:
    """All metrics of a run; without `e_max` the run is taken as over, and all its episodes as its horizon."""
    returns = np.asarray(returns, dtype=np.float64)[:e_max]
    e_max = len(returns) if e_max is None else e_max
    solved = solved_at(returns, r_limit) is not None
    return Score(
        episodes=min(episodes_until_solved(returns, r_limit, e_max), len(returns)),
        regret=cumulative_regret(returns, r_limit, e_max),
        regret_unclipped=cumulative_regret(returns, r_limit, e_max, clipped=False),
        fixed_horizon_regret=fixed_horizon_regret(returns, r_limit, e_max),
        mean_return=mean_return(returns),
        solved=solved,
        complete=solved or len(returns) >= e_max,
    )


def solved_at(returns: Returns, r_limit: float, streak: int = STREAK) -> int | None:
    """Index of the first episode of the first `streak` in a row above `r_limit`; None where there is none."""
    in_a_row = 0
    for episode, above in enumerate(np.asarray(returns) > r_limit):
        in_a_row = in_a_row + 1 if above else 0
        if in_a_row == streak:
            return episode - streak + 1
    return None


def episodes_until_solved(returns: Returns, r_limit: float, e_max: int) -> int:
    """Number of episodes before the solving one, `e_max` if never solved within `e_max` episodes."""
    first = solved_at(returns[:e_max], r_limit)
    return e_max if first is None else first


def cumulative_regret(returns: Returns, r_limit: float, e_max: int, *, clipped: bool = True) -> float:
    """Sum of r_limit − return over the episodes before the solving one; each clipped at 0, which the paper's is not."""
    return _regret(returns[: episodes_until_solved(returns, r_limit, e_max)], r_limit, clipped)


def fixed_horizon_regret(returns: Returns, r_limit: float, e_max: int, *, clipped: bool = True) -> float | None:
    """Regret over all `e_max` episodes, solved or not; None where the run has fewer."""
    return _regret(returns[:e_max], r_limit, clipped) if len(returns) >= e_max else None


def mean_return(returns: Returns) -> float | None:
    """Area under the learning curve per episode; comparable between runs of the same number of episodes."""
    return float(np.mean(returns)) if len(returns) else None


def _regret(returns: Returns, r_limit: float, clipped: bool) -> float:
    missing = r_limit - np.asarray(returns, dtype=np.float64)
    return float(np.sum(np.maximum(missing, 0) if clipped else missing))
