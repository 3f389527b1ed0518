"""Verdicts on our numbers against the paper's. Less regret and fewer episodes are better."""

from collections.abc import Sequence
from dataclasses import dataclass

from pac4sac.base.text import p_text
from pac4sac.paper.numbers import SEEDS, Cell
from pac4sac.runs.statistics import Summary, fisher, median, welch

REPRODUCED, BETTER, WORSE, INCONCLUSIVE = "reproduced", "better", "worse", "inconclusive"
UNFINISHED, NOT_COMPARABLE, NO_DATA = "unfinished", "not comparable", "no data"
VERDICTS = (REPRODUCED, BETTER, WORSE, INCONCLUSIVE, UNFINISHED, NOT_COMPARABLE, NO_DATA)
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Comparison:
    verdict: str
    reason: str  # in words
    low: float | None = None  # 95 % interval of ours minus the paper's
    high: float | None = None


def compare_means(ours: Summary, paper: Cell, paper_seeds: int = SEEDS) -> Comparison:
    """By the 95 % Welch interval of the difference: reproduced where it holds zero and is narrower than half the
    paper's value."""
    if ours.sd is None:
        return Comparison(INCONCLUSIVE, "one complete run gives no interval")
    found = welch(ours, Summary(paper_seeds, paper.mean, paper.sd))
    if found.low is None or found.high is None:
        return Comparison(INCONCLUSIVE, "neither side has any spread, so there is no interval")
    return _judge(found.low, found.high, abs(paper.mean) / 2)


def compare_solved(solved: int, n: int, paper_seeds: int = SEEDS) -> Comparison:
    """Against a cell at E_max ± 0, where none of the paper's runs was solved: means would compare a constant, so the
    numbers of solved runs are compared instead."""
    told = f"{solved} of {n} runs solved, none of the paper's {paper_seeds}"
    if solved == 0:
        if n < paper_seeds:
            return Comparison(INCONCLUSIVE, f"{told}, but ours are fewer")
        return Comparison(REPRODUCED, told)
    p = fisher((solved, n), (0, paper_seeds))
    return Comparison(BETTER if p < SIGNIFICANT else INCONCLUSIVE, f"{told}; Fisher's exact test, {p_text(p)}")


def compare_median(ours: Sequence[float], paper_median: float) -> Comparison:
    """By the bootstrap interval of our median: the figure shows no spread, so its median is taken as exact."""
    found = median(ours)
    if found.low is None or found.high is None:
        return Comparison(INCONCLUSIVE, "one complete run gives no interval")
    return _judge(found.low - paper_median, found.high - paper_median, abs(paper_median) / 2)


def is_never_solved(paper: Cell, e_max: int) -> bool:
    return paper.sd == 0 and paper.mean == e_max


def _judge(low: float, high: float, widest: float) -> Comparison:
    if high < 0:
        return Comparison(BETTER, "the interval of the difference lies below zero", low, high)
    if low > 0:
        return Comparison(WORSE, "the interval of the difference lies above zero", low, high)
    if high - low < widest:
        return Comparison(REPRODUCED, "the interval of the difference holds zero and is narrow", low, high)
    return Comparison(INCONCLUSIVE, "the interval of the difference is wider than half the paper's value", low, high)
