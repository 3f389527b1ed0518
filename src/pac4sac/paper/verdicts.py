"""Verdicts on our numbers against the paper's. Less regret and fewer episodes are better."""

from collections.abc import Sequence
from dataclasses import dataclass

from pac4sac.base.text import p_text
from pac4sac.paper.families import departures
from pac4sac.paper.numbers import PAPER_TASKS, SEEDS, MeanSd
from pac4sac.report.comparison import BETTER, SIGNIFICANT, UNFINISHED, WORSE
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import Estimate, Summary, fisher, median, side_of_zero, welch

REPRODUCED, INCONCLUSIVE, NOT_COMPARABLE, NO_DATA = "reproduced", "inconclusive", "not comparable", "no data"
VERDICTS = (REPRODUCED, BETTER, WORSE, INCONCLUSIVE, UNFINISHED, NOT_COMPARABLE, NO_DATA)
REASONS = {
    BETTER: "lies below zero",
    WORSE: "lies above zero",
    REPRODUCED: "holds zero and is narrow",
    INCONCLUSIVE: "is wider than half the paper's value",
}


@dataclass(frozen=True)
class Verdict:
    verdict: str = ""  # none where the paper has no number
    reason: str = ""  # in words
    low: float | None = None  # 95 % interval of ours minus the paper's
    high: float | None = None


NO_RUN = Verdict(NO_DATA, "no complete run")


def compare_cell(variant: Variant | None, metric: str, paper: MeanSd | float | None, free: Sequence[str]) -> Verdict:
    """With a mean of the paper's tables or a median of its figure. `free` are settings that make the rows of a table,
    so no departures from the paper's."""
    if paper is None:
        return Verdict()
    if variant is None or not (variant.judged or variant.under_way):
        return NO_RUN
    if reasons := departures(variant, free):
        return Verdict(NOT_COMPARABLE, "not the paper's setting: " + ", ".join(reasons))
    if variant.under_way:
        return Verdict(UNFINISHED, f"{len(variant.under_way)} of {len(variant.outcomes)} runs are under way")
    if not isinstance(paper, MeanSd):
        values = variant.values(metric)
        return compare_median(values, paper) if values else NO_RUN
    if metric == "episodes" and is_never_solved(paper, PAPER_TASKS[variant.task.name].e_max):
        return compare_solved(variant.solved, len(variant.judged))
    if not (summary := variant.summary(metric)):
        return NO_RUN
    judged, diverged = compare_means(summary, paper), variant.count("diverged")
    if diverged and judged.verdict in (REPRODUCED, BETTER):
        # What a diverged run would have cost is not known, and leaving it out flatters.
        reason = f"{diverged} diverged {'run is' if diverged == 1 else 'runs are'} left out of the mean"
        return Verdict(INCONCLUSIVE, reason, judged.low, judged.high)
    return judged


def compare_means(ours: Summary, paper: Summary) -> Verdict:
    """By the 95 % Welch interval of the difference: reproduced where it holds zero and is narrower than half the
    paper's value."""
    if ours.sd is None:
        return Verdict(INCONCLUSIVE, "one complete run gives no interval")
    return _judge(welch(ours, paper), paper.mean, "neither side has any spread, so there is no interval")


def compare_median(ours: Sequence[float], paper: float) -> Verdict:
    """By the bootstrap interval of our median: the figure shows no spread, so its median is taken as exact."""
    return _judge(median([value - paper for value in ours]), paper, "one complete run gives no interval")


def compare_solved(solved: int, n: int) -> Verdict:
    """Against a cell at E_max ± 0, where none of the paper's runs was solved: means would compare a constant, so the
    numbers of solved runs are compared instead."""
    counts = f"{solved} of {n} runs solved, none of the paper's {SEEDS}"
    if solved:
        p = fisher((solved, n), (0, SEEDS))
        return Verdict(BETTER if p < SIGNIFICANT else INCONCLUSIVE, f"{counts}; Fisher's exact test, {p_text(p)}")
    return Verdict(REPRODUCED, counts) if n >= SEEDS else Verdict(INCONCLUSIVE, f"{counts}, but ours are fewer")


def is_never_solved(paper: Summary, e_max: int) -> bool:
    return paper.sd == 0 and paper.mean == e_max


def _judge(difference: Estimate, paper: float, without_interval: str) -> Verdict:
    low, high = difference.low, difference.high
    if low is None or high is None:
        return Verdict(INCONCLUSIVE, without_interval)
    neither = REPRODUCED if high - low < abs(paper) / 2 else INCONCLUSIVE
    verdict = side_of_zero(difference, WORSE, BETTER, neither)
    return Verdict(verdict, f"the interval of the difference {REASONS[verdict]}", low, high)
