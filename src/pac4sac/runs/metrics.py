"""The paper's metrics, from the returns of a run's training episodes in order.

A run is solved at the first of five consecutive episodes with a return above r_limit. What counts
are the episodes before that one: their number, and the sum of what they miss to r_limit. If there
are no such five, all E_max count."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from pac4sac.runs.logs import POLICIES
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.status import CUT_SHORT

STREAK = 5
END = 0.1  # the part of training that is its end
# of a Score, final once complete
SCORES = ("regret", "episodes", "regret_unclipped", "fixed_horizon_regret")

Returns = Sequence[float] | NDArray[np.floating]


@dataclass(frozen=True)
class Score:
    """What a run achieved. While `complete` is false, episodes and regrets are those so far, and
    may change."""

    episodes: int
    regret: float
    regret_unclipped: float
    # None: the run ended before E_max episodes, for one because it was solved
    fixed_horizon_regret: float | None
    mean_return: float | None  # area under the learning curve per episode; None: no episode yet
    solved: bool
    complete: bool


def score_run(run: RunRecord) -> Score | None:
    """The paper's metrics; None without a limit, or where episodes differ in length. E_max is the
    number of episodes that the budget of steps has room for, which of such episodes nobody knows
    before they end; a run that fails sooner would have more of them, and so more regret, without
    being worse."""
    horizon, r_limit = run.task.get("horizon"), run.task.get("r_limit")
    if r_limit is None or not horizon or not has_equal_episodes(run):
        return None
    return score(
        run.returns, r_limit, max(1, run.task.get("steps", horizon * len(run.episodes)) // horizon)
    )


def score(returns: Returns, r_limit: float, e_max: int | None = None) -> Score:
    """All metrics of a run; without `e_max` the run is taken as over, and all its episodes as its
    horizon."""
    returns = np.asarray(returns, dtype=np.float64)[:e_max]
    e_max = len(returns) if e_max is None else e_max
    first = solved_at(returns, r_limit)
    before = returns[:first]
    return Score(
        episodes=len(before),
        regret=_regret(before, r_limit),
        regret_unclipped=_regret(before, r_limit, clipped=False),
        fixed_horizon_regret=_regret(returns, r_limit) if len(returns) >= e_max else None,
        mean_return=float(np.mean(returns)) if len(returns) else None,
        solved=first is not None,
        complete=first is not None or len(returns) >= e_max,
    )


def solved_at(returns: Returns, r_limit: float, streak: int = STREAK) -> int | None:
    """Index of the first episode of the first `streak` in a row above `r_limit`; None where there
    is none."""
    if len(returns) < streak:
        return None
    in_a_row = np.convolve(np.asarray(returns) > r_limit, np.ones(streak), mode="valid")
    return next(iter(np.flatnonzero(in_a_row == streak).tolist()), None)


def longest_streak(returns: Returns, r_limit: float) -> int:
    """The most episodes in a row above the limit."""
    streaks = (
        len(list(members)) for above, members in groupby(np.asarray(returns) > r_limit) if above
    )
    return max(streaks, default=0)


def _regret(returns: Returns, r_limit: float, *, clipped: bool = True) -> float:
    """Sum of r_limit − return, where each is clipped at 0, which the paper's is not."""
    missing = r_limit - np.asarray(returns, dtype=np.float64)
    return float(np.sum(np.maximum(missing, 0) if clipped else missing))


def has_equal_episodes(run: RunRecord) -> bool:
    return all(row["length"] == run.task.get("horizon") for row in run.episodes)


def is_solved(run: RunRecord) -> bool:
    """Within E_max, or ever where episodes differ in length."""
    scored, r_limit = score_run(run), run.task.get("r_limit")
    return (
        scored.solved
        if scored
        else r_limit is not None and solved_at(run.returns, r_limit) is not None
    )


def last_evaluations(run: RunRecord, since: int = 0) -> dict[str, float]:
    """The mean return of each policy by its last evaluation; nothing where that may be among what
    is damaged, where it was made before a step, or where its simulators failed."""
    last = (
        {}
        if "evaluations" in run.damage
        else {POLICIES[row["policy"]]: row for row in run.evaluations}
    )
    return {
        name: row["mean"]
        for name, row in last.items()
        if row["step"] >= since and row.get("mean") is not None
    }


def evaluation_at(run: RunRecord, step: int) -> float | None:
    """The mean return of the deterministic policy in the evaluation after so many steps; None where
    there is none."""
    rows = () if "evaluations" in run.damage else run.evaluations
    means = [
        row["mean"]
        for row in rows
        if row["step"] == step and POLICIES[row["policy"]] == "deterministic"
    ]
    return means[-1] if means else None


def is_evaluated_on_schedule(run: RunRecord) -> bool:
    """Not at its end alone, as all are."""
    return len({row["step"] for row in run.evaluations}) > 1


def is_complete(run: RunRecord) -> bool:
    """Whether its metrics are final: solved already, or at the end of its budget."""
    scored = score_run(run)
    return scored.complete if scored else run.status == "finished"


def run_state(run: RunRecord) -> str:
    """Return complete, unfinished, diverged, failed or stopped."""
    if is_complete(run):
        return "complete"
    return run.status if run.status in CUT_SHORT else "unfinished"


def was_solved(run: RunRecord) -> bool | None:
    """Return whether a run was solved; None if not known yet, or without a return threshold."""
    if run.task.get("r_limit") is None:
        return None
    if is_solved(run):
        return True
    return False if run_state(run) in ("complete", "diverged") else None


def final_metrics(run: RunRecord) -> dict[str, float]:
    """Return all metrics of a run that cannot change any more, by name."""
    numbers: dict[str, float | None] = {}
    if is_complete(run):
        numbers |= _metrics_until_solved(run)
    if _used_whole_budget(run):
        numbers |= _mean_returns(run)
    if is_complete(run):
        final = last_evaluations(run, since=max(run.steps, default=0))
        numbers |= {f"final_{policy}": mean for policy, mean in final.items()}
    return {name: float(value) for name, value in numbers.items() if value is not None}


def _metrics_until_solved(run: RunRecord) -> dict[str, float | None]:
    """Return steps until solved if episodes differ in length, else the paper's metrics."""
    if scored := score_run(run):
        return {name: getattr(scored, name) for name in SCORES}
    r_limit = run.task.get("r_limit")
    if r_limit is None or has_equal_episodes(run):
        return {}
    first = solved_at(run.returns, r_limit)
    steps = run.task.get("steps") or 0 if first is None else [0, *run.steps][first]
    return {"steps_until_solved": steps}


def _used_whole_budget(run: RunRecord) -> bool:
    """Return whether a run trained to its end: a curve that stops when solved has no area."""
    steps, horizon = run.task.get("steps"), run.task.get("horizon")
    if not run.episodes:
        return False
    if steps and horizon:
        return bool(run.steps[-1] + horizon > steps)
    return run.status == "finished" and not (run.status_detail or "").startswith("solved")


def _mean_returns(run: RunRecord) -> dict[str, float | None]:
    """Return the mean return over steps, and over the end of training if that is of interest."""
    lengths = [row["length"] for row in run.episodes]
    numbers: dict[str, float | None] = {"mean_return": np.average(run.returns, weights=lengths)}
    is_scored = run.task.get("r_limit") is not None and has_equal_episodes(run)
    if not is_scored or is_evaluated_on_schedule(run):
        at_end = np.asarray(run.steps) > (1 - END) * (run.task.get("steps") or 0)
        last = np.asarray(run.returns)[at_end]
        numbers["end_return"] = float(np.mean(last)) if len(last) else None
    return numbers
