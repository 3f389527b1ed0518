"""The choice between several copies of a run, in reports and archives."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pac4sac.runs.logs import MEASUREMENTS
from pac4sac.runs.metrics import evaluation_episodes, is_complete
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.status import Status

OUTCOME = 2  # the run has a result; a failed or stopped run can be retrained
COMPLETION: dict[str, int] = {
    Status.FINISHED: OUTCOME,
    Status.DIVERGED: OUTCOME,
    Status.FAILED: 1,
    Status.STOPPED: 1,
}


def completion(run: RunRecord) -> int:
    """Return OUTCOME if a run has a result, 1 if it failed or was stopped, 0 if it is unfinished.

    A run that was killed after its last evaluation has a result too.
    """
    if run.status == Status.RUNNING and run.evaluations and len(run.steps):
        is_evaluated = run.evaluations[-1]["step"] == run.steps[-1]
        return OUTCOME if is_evaluated and is_complete(run) else 0
    return COMPLETION.get(run.status, 0)


def merge(copies: Sequence[RunRecord]) -> tuple[RunRecord, list[RunRecord]]:
    """Return the best copy, completed with measurements of equal copies, and the other copies."""
    best, *others = sorted(
        copies, key=_merit, reverse=True
    )  # a stable sort: the first of equals stays first
    for other in others:
        lacking = [name for name in MEASUREMENTS if not getattr(best, name)]
        added = [name for name in lacking if getattr(other, name)]
        if added and _same_returns(best, other):
            best = _with_logs(best, added, other)
    return best, others


def _with_logs(run: RunRecord, names: Sequence[str], other: RunRecord) -> RunRecord:
    """Return a run with some logs of another copy, and their damage."""
    logs = {name: getattr(other, name) for name in names}
    damage = {name: wrong for name, wrong in other.damage.items() if name in names}
    return dataclasses.replace(run, **logs, damage=run.damage | damage)


def _merit(run: RunRecord) -> tuple[int, ...]:
    """Return the sort key of copies; the best copy has the largest key.

    Its parts, most important first: complete, has an outcome, length, undamaged, episodes per
    evaluation, number of measurements.
    """
    measured = (len(getattr(run, name)) for name in MEASUREMENTS)
    quality = is_complete(run), completion(run), len(run.episodes), not run.damage
    return *quality, evaluation_episodes(run) or 0, *measured


def contradict(run: RunRecord, other: RunRecord) -> bool:
    """Return whether two copies have outcomes but different returns."""
    both_ended = completion(run) == completion(other) == OUTCOME
    return both_ended and not _same_returns(run, other)


def reason_for_choice(best: RunRecord, others: Sequence[RunRecord]) -> str:
    """Return the reason why the best copy was used, in words."""
    if is_complete(best) and not any(map(is_complete, others)):
        return "only the used copy is complete"
    if all(_same_returns(best, other) for other in others):
        return _reason_among_equals(best, others)
    if completion(best) > max(map(completion, others)):
        return "only the used copy came to its end"
    if len(best.episodes) > min(len(other.episodes) for other in others):
        return "the used copy has more episodes"
    return "they differ, and the first in alphabetical order was used"


def _reason_among_equals(best: RunRecord, others: Sequence[RunRecord]) -> str:
    """Return the reason why the best of copies with equal returns was used."""
    if all(_same_evaluations(best, other) for other in others):
        return "they are equal"
    fewest = min(evaluation_episodes(other) or 0 for other in others)
    if (evaluation_episodes(best) or 0) > fewest:
        return "their training is equal, and the used copy has more episodes per evaluation"
    return "their evaluations differ, and the first in alphabetical order was used"


def _same_evaluations(run: RunRecord, other: RunRecord) -> bool:
    """Return whether two copies have equal evaluations at all steps at which both have one."""
    means = [{_evaluation(row): row["mean"] for row in copy.evaluations} for copy in (run, other)]
    shared = means[0].keys() & means[1].keys()
    return all(means[0][key] == means[1][key] for key in shared)


def _evaluation(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the step and the policy of an evaluation."""
    return row["step"], row["policy"]


def _same_returns(run: RunRecord, other: RunRecord) -> bool:
    """Return whether two copies have equal returns in all episodes."""
    return np.array_equal(run.returns, other.returns)
