"""Verdicts on our numbers against the paper's. Less regret and fewer episodes are better."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pac4sac.base.text import p_text
from pac4sac.paper.numbers import PAPER_TASKS, SEEDS, MeanSd
from pac4sac.paper.paper_rows import departures
from pac4sac.report.comparison import BETTER, SIGNIFICANT, UNFINISHED, WORSE, side_of_zero
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import Estimate, Summary, fisher, median, welch

REPRODUCED, INCONCLUSIVE, NOT_COMPARABLE, NO_DATA = "reproduced", "inconclusive", "not comparable", "no data"
VERDICTS = (REPRODUCED, BETTER, WORSE, INCONCLUSIVE, UNFINISHED, NOT_COMPARABLE, NO_DATA)


@dataclass(frozen=True)
class Verdict:
    verdict: str
    reason: str  # in words
    low: float | None = None  # 95 % interval of ours minus the paper's
    high: float | None = None


def compare_cell(variant: Variant | None, metric: str, paper: MeanSd, free: Sequence[str]) -> Verdict:
    def compare(ours: Variant) -> Verdict:
        if metric == "episodes" and is_never_solved(paper, PAPER_TASKS[ours.task.name].e_max):
            return compare_solved(ours.solved, len(ours.judged))
        if not (summary := ours.summary(metric)):
            return Verdict(NO_DATA, "no complete run")
        judged = compare_means(summary, paper)
        diverged = ours.count("diverged")
        if diverged and judged.verdict in (REPRODUCED, BETTER):
            # What a diverged run would have cost is not known, and leaving it out flatters.
            reason = f"{diverged} diverged {'run is' if diverged == 1 else 'runs are'} left out of the mean"
            return Verdict(INCONCLUSIVE, reason, judged.low, judged.high)
        return judged

    return _if_comparable(variant, free, compare)


def compare_shooting(variant: Variant | None, metric: str, paper_median: float | None) -> Verdict | None:
    if paper_median is None:
        return None
    return _if_comparable(variant, ("shots",), lambda ours: compare_median(ours.values(metric), paper_median))


def _if_comparable(variant: Variant | None, free: Sequence[str], compare: Callable[[Variant], Verdict]) -> Verdict:
    """`free` are settings that make the rows of a table, so no departures from the paper's."""
    if variant is None or not (variant.judged or variant.under_way):
        return Verdict(NO_DATA, "no complete run")
    if reasons := departures(variant, free):
        return Verdict(NOT_COMPARABLE, "not the paper's setting: " + ", ".join(reasons))
    if variant.under_way:
        return Verdict(UNFINISHED, f"{len(variant.under_way)} of {len(variant.outcomes)} runs are under way")
    return compare(variant)


def compare_means(ours: Summary, paper: MeanSd, paper_seeds: int = SEEDS) -> Verdict:
    """By the 95 % Welch interval of the difference: reproduced where it holds zero and is narrower than half the
    paper's value."""
    if ours.sd is None:
        return Verdict(INCONCLUSIVE, "one complete run gives no interval")
    difference = welch(ours, Summary(paper_seeds, paper.mean, paper.sd))
    if difference.low is None or difference.high is None:
        return Verdict(INCONCLUSIVE, "neither side has any spread, so there is no interval")
    return _judge(difference.low, difference.high, abs(paper.mean) / 2)


def compare_solved(solved: int, n: int, paper_seeds: int = SEEDS) -> Verdict:
    """Against a cell at E_max ± 0, where none of the paper's runs was solved: means would compare a constant, so the
    numbers of solved runs are compared instead."""
    counts = f"{solved} of {n} runs solved, none of the paper's {paper_seeds}"
    if solved == 0:
        return (
            Verdict(REPRODUCED, counts) if n >= paper_seeds else Verdict(INCONCLUSIVE, f"{counts}, but ours are fewer")
        )
    p = fisher((solved, n), (0, paper_seeds))
    return Verdict(BETTER if p < SIGNIFICANT else INCONCLUSIVE, f"{counts}; Fisher's exact test, {p_text(p)}")


def compare_median(ours: Sequence[float], paper_median: float) -> Verdict:
    """By the bootstrap interval of our median: the figure shows no spread, so its median is taken as exact."""
    if not ours:
        return Verdict(NO_DATA, "no complete run")
    estimate = median(ours)
    if estimate.low is None or estimate.high is None:
        return Verdict(INCONCLUSIVE, "one complete run gives no interval")
    return _judge(estimate.low - paper_median, estimate.high - paper_median, abs(paper_median) / 2)


def is_never_solved(paper: MeanSd, e_max: int) -> bool:
    return paper.sd == 0 and paper.mean == e_max


def _judge(low: float, high: float, widest: float) -> Verdict:
    neither = REPRODUCED if high - low < widest else INCONCLUSIVE
    verdict = side_of_zero(Estimate(0, low, high), WORSE, BETTER, neither)
    reason = {
        BETTER: "lies below zero",
        WORSE: "lies above zero",
        REPRODUCED: "holds zero and is narrow",
        INCONCLUSIVE: "is wider than half the paper's value",
    }[verdict]
    return Verdict(verdict, f"the interval of the difference {reason}", low, high)
