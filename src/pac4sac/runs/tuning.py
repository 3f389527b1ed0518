"""Searches of settings, which `pac4sac tune` stores in tune.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pac4sac.base.files import check_kinds, read_json
from pac4sac.runs.statistics import Difference, Estimate, summarise, welch_over_strata

SUMMARY, VERSION = "tune.json", 1
KINDS = {
    "tasks": dict,
    "algo": str,
    "objective": str,
    "metric": str,
    "lower_is_better": bool,
    "space": list,
    "seeds": list,
    "fresh_seeds": list,
    "trials": list,
    "importance": dict,
}
OF_TRIAL = {"number": int, "state": str, "settings": dict, "rungs": dict, "outcome": str}

Scores = Mapping[str, Sequence[float]]  # task -> scores of the seeds


@dataclass(frozen=True)
class FoundSearch:
    """Hold a search that was found in a folder of a report."""

    place: str
    content: dict[str, Any]


def read_search(path: Path) -> dict[str, Any]:
    """Return the content of a tune.json.

    Raises:
        UserError: If the file is damaged.
    """
    about = read_json(path, KINDS, VERSION)
    for trial in about["trials"]:
        check_kinds(trial, OF_TRIAL, f"A trial in {path}")
    return about


def mean_score(scores: Scores) -> Estimate:
    """Return the mean over seeds and then over tasks, with its interval."""
    zero = summarise([0.0, 0.0])
    difference = welch_over_strata([(summarise(each), zero) for each in scores.values()])
    return Estimate(difference.value, difference.low, difference.high)


def score_difference(ours: Scores, theirs: Scores) -> Difference:
    """Return ours minus theirs, averaged over tasks, with Welch's interval."""
    return welch_over_strata([(summarise(ours[task]), summarise(theirs[task])) for task in ours])
