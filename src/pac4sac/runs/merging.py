"""Which copy of a run wins where there are several, for reports and archives alike."""

import dataclasses
from collections.abc import Sequence

from pac4sac.runs.logs import MEASUREMENTS
from pac4sac.runs.metrics import is_complete
from pac4sac.runs.reading import RunRecord

OUTCOME = 2


def end(run: RunRecord) -> int:
    """How far a run came to an end: a failed or stopped one may be trained again; 0 is
    unfinished."""
    return {"finished": OUTCOME, "diverged": OUTCOME, "failed": 1, "stopped": 1}.get(run.status, 0)


def merge(copies: Sequence[RunRecord]) -> tuple[RunRecord, list[RunRecord]]:
    """The best copy, with what was measured of another to the same end, and the others: first the
    complete, then those that ended, then the longer, then the undamaged, then those of which more
    was measured; the first of equals stays the first."""

    def merit(run: RunRecord) -> tuple[int, ...]:
        measured = (len(getattr(run, name)) for name in MEASUREMENTS)
        return is_complete(run), end(run), len(run.episodes), not run.damage, *measured

    best, *others = sorted(copies, key=merit, reverse=True)
    for other in others:
        logs = {name: getattr(other, name) for name in MEASUREMENTS if not getattr(best, name)}
        if any(logs.values()) and _same_returns(best, other):
            damage = best.damage | {
                name: other.damage[name]
                for name, log in logs.items()
                if log and name in other.damage
            }
            best = dataclasses.replace(best, **logs, damage=damage)
    return best, others


def contradict(run: RunRecord, other: RunRecord) -> bool:
    """Two outcomes of what should be one run; a shorter run that did not come to its end is
    none."""
    return end(run) == end(other) == OUTCOME and not _same_returns(run, other)


def why(best: RunRecord, others: Sequence[RunRecord]) -> str:
    """Why the best copy was taken and not the others."""
    if is_complete(best) and not any(map(is_complete, others)):
        return "it alone is complete"
    if all(_same_returns(best, other) for other in others):
        return "they are equal"
    if end(best) > max(map(end, others)):
        return "it alone came to its end"
    if any(len(best.episodes) > len(other.episodes) for other in others):
        return "it has more episodes"
    return "they differ, and it is the first by name"


def _same_returns(run: RunRecord, other: RunRecord) -> bool:
    return bool(run.returns.tolist() == other.returns.tolist())
