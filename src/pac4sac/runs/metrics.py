"""The paper's metrics, from the returns of a run's training episodes in order.

A run is solved at the first of five consecutive episodes with a return above r_limit. The metrics
count the episodes before that episode, and sum r_limit − return over them. If there are no five
such episodes, all E_max episodes count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pac4sac.runs.logs import POLICIES, LogRow
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.status import CUT_SHORT

STREAK = 5
END = 0.1  # fraction of training that counts as the end
# fields of a Score that are final once the score is complete
SCORES = ("regret", "episodes", "regret_unclipped", "fixed_horizon_regret")

Returns = Sequence[float] | NDArray[np.floating]


@dataclass(frozen=True)
class Score:
    """Hold the score of a run; an incomplete score may still change.

    Attributes:
        episodes: Episodes before the task was solved, or E_max.
        regret: Sum of max(0, threshold − return) over these episodes.
        regret_unclipped: The same sum without the maximum.
        fixed_horizon_regret: Clipped regret over all E_max episodes; None if the run ended before.
        mean_return: Area under the learning curve per episode; None before the first episode.
        solved: Whether the run solved its task.
        complete: Whether the score is final.

    Example:
        >>> result = pac4sac.resume("experiments/pendulum-v1-sac")
        >>> result.scores()  # Pendulum has no solve threshold
        {}
    """

    episodes: int
    regret: float
    regret_unclipped: float
    fixed_horizon_regret: float | None  # None: the run ended before E_max episodes
    mean_return: float | None  # area under the learning curve per episode; None: no episode yet
    solved: bool
    complete: bool


def score_run(run: RunRecord) -> Score | None:
    """Return the paper's metrics of a run.

    E_max is the number of episodes that fit into the budget of steps. Without this limit, a run
    with shorter episodes would have more episodes and more regret. E_max is not defined if episodes
    differ in length.

    Returns:
        The metrics; None without a return threshold, if episodes differ in length, or of a curve
        of another project.
    """
    horizon, r_limit = run.task.get("horizon"), run.task.get("r_limit")
    if r_limit is None or not horizon or run.is_foreign or not has_equal_episodes(run):
        return None
    steps = run.task.get("steps", horizon * len(run.episodes))
    return score(run.returns, r_limit, max(1, steps // horizon))


def score(returns: Returns, r_limit: float, e_max: int | None = None) -> Score:
    """Return the paper's metrics of returns; `e_max` is None for a run that has ended."""
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
    """Return the index of the first of `streak` consecutive episodes above `r_limit`, or None."""
    if len(returns) < streak:
        return None
    in_a_row = np.convolve(np.asarray(returns) > r_limit, np.ones(streak), mode="valid")
    first = np.flatnonzero(in_a_row == streak)
    return int(first[0]) if len(first) else None


def longest_streak(returns: Returns, r_limit: float) -> int:
    """Return the largest number of consecutive episodes above the return threshold."""
    longest = current = 0
    for value in returns:
        current = current + 1 if value > r_limit else 0
        longest = max(longest, current)
    return longest


def _regret(returns: Returns, r_limit: float, *, clipped: bool = True) -> float:
    """Return the sum of r_limit − return; clipped at 0 per episode, unlike the paper's."""
    missing = r_limit - np.asarray(returns, dtype=np.float64)
    return float(np.sum(np.maximum(missing, 0) if clipped else missing))


def has_equal_episodes(run: RunRecord) -> bool:
    """Return whether all episodes have the length of the task's horizon."""
    return all(row["length"] == run.task.get("horizon") for row in run.episodes)


def is_solved(run: RunRecord) -> bool:
    """Return whether a run was solved, within E_max episodes if these have equal lengths."""
    scored, r_limit = score_run(run), run.task.get("r_limit")
    if scored:
        return scored.solved
    return r_limit is not None and solved_at(run.returns, r_limit) is not None


def _evaluations(run: RunRecord) -> list[tuple[str, LogRow]]:
    """Return the policy and the row of each evaluation; empty if the log is damaged."""
    if "evaluations" in run.damage:
        return []
    return [(POLICIES[row["policy"]], row) for row in run.evaluations]


def last_evaluations(run: RunRecord, since: int = 0) -> dict[str, float]:
    """Return the mean return of each policy in its last evaluation.

    A policy is omitted if that evaluation was before step `since`, or if its simulators failed. All
    are omitted if the log is damaged.
    """
    return {
        policy: row["mean"]
        for policy, row in dict(_evaluations(run)).items()
        if row["step"] >= since and row.get("mean") is not None
    }


def evaluation_episodes(run: RunRecord) -> int | None:
    """Return the number of episodes of an evaluation; None without evaluation returns."""
    return max((len(row.get("returns") or ()) for row in run.evaluations), default=0) or None


def evaluation_at(run: RunRecord, step: int) -> float | None:
    """Return the mean return of the deterministic policy in the evaluation at a step, or None."""
    at_step = {policy: row for policy, row in _evaluations(run) if row["step"] == step}
    row = at_step.get("deterministic")
    return row["mean"] if row else None


def evaluation_curve(run: RunRecord, policy: str = "deterministic") -> dict[int, float]:
    """Return the mean return of a policy by step, for evaluations with finite returns."""
    rows = [row for name, row in _evaluations(run) if name == policy]
    return {row["step"]: row["mean"] for row in rows if row["mean"] is not None}


def is_evaluated_on_schedule(run: RunRecord) -> bool:
    """Return whether a run was evaluated during training, not only at its end."""
    return len({row["step"] for row in run.evaluations}) > 1


def is_complete(run: RunRecord) -> bool:
    """Return whether metrics are final: the run was solved, or has used its budget of steps."""
    scored = score_run(run)
    return scored.complete if scored else run.status == "finished"


def run_state(run: RunRecord) -> str:
    """Return the state of a run: complete, unfinished, diverged, failed or stopped."""
    if is_complete(run):
        return "complete"
    return run.status if run.status in CUT_SHORT else "unfinished"


def was_solved(run: RunRecord) -> bool | None:
    """Return whether a run was solved; None if not known yet, or without a return threshold."""
    if run.task.get("r_limit") is None or run.is_foreign:
        return None
    if is_solved(run):
        return True
    return False if run_state(run) in ("complete", "diverged") else None


def final_metrics(run: RunRecord) -> dict[str, float]:
    """Return all final metrics of a run by name."""
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
    """Return steps until solved if episodes differ in length, and the paper's metrics otherwise."""
    if scored := score_run(run):
        return {name: getattr(scored, name) for name in SCORES}
    r_limit = run.task.get("r_limit")
    if r_limit is None or has_equal_episodes(run):
        return {}
    first = solved_at(run.returns, r_limit)
    if first is None:
        return {"steps_until_solved": run.task.get("steps") or 0}
    return {"steps_until_solved": [0, *run.steps][first]}


def _used_whole_budget(run: RunRecord) -> bool:
    """Return whether a run used its whole budget; mean returns of shorter runs are not
    comparable."""
    steps, horizon = run.task.get("steps"), run.task.get("horizon")
    if not run.episodes:
        return False
    if steps and horizon:
        return bool(run.steps[-1] + horizon > steps)
    return run.status == "finished" and not (run.status_detail or "").startswith("solved")


def _mean_returns(run: RunRecord) -> dict[str, float | None]:
    """Return the mean return over all steps, and over the end of training.

    The latter is for tasks without a score, and for runs with evaluations during training.
    """
    lengths = [row["length"] for row in run.episodes]
    numbers: dict[str, float | None] = {"mean_return": np.average(run.returns, weights=lengths)}
    is_scored = run.task.get("r_limit") is not None and has_equal_episodes(run)
    if not is_scored or is_evaluated_on_schedule(run):
        at_end = np.asarray(run.steps) > (1 - END) * (run.task.get("steps") or 0)
        last = np.asarray(run.returns)[at_end]
        numbers["end_return"] = float(np.mean(last)) if len(last) else None
    return numbers
