"""Verdicts on our numbers, compared with the paper's and with other published ones. Less regret,
fewer episodes and higher returns are better."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pac4sac.base.text import decimals, p_text
from pac4sac.paper.numbers import PAPER_TASKS, SEEDS
from pac4sac.paper.rows import departures
from pac4sac.report.comparison import BETTER, SIGNIFICANT, UNFINISHED, WORSE
from pac4sac.report.sentences import listed
from pac4sac.report.variants import Variant
from pac4sac.runs import statistics
from pac4sac.runs.statistics import (
    CONFIDENCE,
    EQUIVALENCE,
    UNDECIDED,
    Estimate,
    Summary,
    is_within,
    welch,
)

REPRODUCED, NOT_COMPARABLE, NO_DATA = "reproduced", "not comparable", "no data"
VERDICTS = (REPRODUCED, BETTER, WORSE, UNDECIDED, UNFINISHED, NOT_COMPARABLE, NO_DATA)
# Fraction of the other's value within which means are equivalent. Do not change it: it was fixed
# before the results.
MARGIN = 0.15
MARGIN_TEXT = f"{100 * MARGIN:.0f}%"
REASONS = {
    REPRODUCED: f"equivalent within {MARGIN_TEXT}",
    UNDECIDED: f"the difference is neither significant nor shown to be within {MARGIN_TEXT}",
}
ONE_RUN = "there is no interval with only one complete run"
NO_SPREAD = "neither side has a spread, so there is no interval"
CONFIDENCES = (CONFIDENCE, EQUIVALENCE)  # of the two intervals that judge a difference


@dataclass(frozen=True)
class Verdict:
    verdict: str = ""  # empty if the paper has no number
    reason: str = ""  # in words
    low: float | None = None  # 95% interval of ours minus the paper's
    high: float | None = None


NO_RUN = Verdict(NO_DATA, "no complete run")


def compare_cell(
    variant: Variant | None, metric: str, paper: Summary | float | None, free: Sequence[str]
) -> Verdict:
    """Compare a variant with a mean of the paper's tables or a median of its figure.

    `free` are the settings that the rows of a table vary, so they are not departures."""
    if paper is None:
        return Verdict()
    if variant is None or not (variant.judged or variant.in_progress):
        return NO_RUN
    if reasons := departures(variant, free):
        return Verdict(NOT_COMPARABLE, "not the paper's setting: " + ", ".join(reasons))
    if variant.in_progress:
        open_runs = f"{len(variant.in_progress)} of {len(variant.outcomes)} runs are in progress"
        return Verdict(UNFINISHED, open_runs)
    if isinstance(paper, Summary):
        return _compare_mean(variant, metric, paper)
    values = variant.values(metric)
    return compare_median(values, paper) if values else NO_RUN


def _compare_mean(variant: Variant, metric: str, paper: Summary) -> Verdict:
    """Compare with a mean of the paper, or by solved runs if none of the paper's runs was
    solved."""
    if metric == "episodes" and is_never_solved(paper, PAPER_TASKS[variant.task.name].e_max):
        return compare_solved(variant.solved, len(variant.judged))
    summary = variant.summary(metric)
    if summary is None:
        return NO_RUN
    # If no run is solved, all values are capped at E_max and can be near the paper's mean for that
    # reason.
    is_capped = metric == "episodes" and not variant.solved
    return without_diverged(compare_means(summary, paper, is_capped), variant.count("diverged"))


def without_diverged(judged: Verdict, diverged: int) -> Verdict:
    """Return the verdict given that `diverged` runs have no result, which favours our mean."""
    if not diverged or judged.verdict not in (REPRODUCED, BETTER):
        return judged
    reason = f"the mean leaves out {diverged} diverged {'run' if diverged == 1 else 'runs'}"
    return Verdict(UNDECIDED, reason, judged.low, judged.high)


def compare_means(ours: Summary, paper: Summary, is_capped: bool = False) -> Verdict:
    """Judge a difference of means by Welch's intervals, with the paper's standard deviation.

    The verdict is "reproduced" if the 90% interval is within the margin, else "better" or "worse"
    if the 95% interval excludes zero. Capped values are never "reproduced".
    """
    if ours.sd is None:
        return Verdict(UNDECIDED, ONE_RUN)
    wide, narrow = (welch(ours, paper, c) for c in CONFIDENCES)
    return _judge(wide, narrow, paper.mean, NO_SPREAD, is_capped)


def compare_median(ours: Sequence[float], paper: float) -> Verdict:
    """Judge by bootstrap intervals of our median; the paper's median is treated as exact, because
    its figure shows no spread."""
    differences = [value - paper for value in ours]
    wide, narrow = (statistics.median(differences, confidence=c) for c in CONFIDENCES)
    return _judge(wide, narrow, paper, ONE_RUN)


def compare_returns(ours: Sequence[float], published: Summary) -> Verdict:
    """Judge our returns against another published mean, by the same rule."""
    if len(ours) < 2:
        return Verdict(UNDECIDED, ONE_RUN)
    summary = statistics.summarise(ours)
    wide, narrow = (welch(summary, published, c) for c in CONFIDENCES)
    whose = "the published value"
    return _judge(wide, narrow, published.mean, NO_SPREAD, lower_is_better=False, whose=whose)


def is_same(ours: Summary, theirs: Summary) -> bool:
    """Return whether two means are equivalent within the margin (TOST)."""
    return is_within(welch(ours, theirs, EQUIVALENCE), MARGIN * abs(theirs.mean))


def compare_solved(solved: int, n: int) -> Verdict:
    """Judge against a cell at E_max ± 0, where no run of the paper was solved.

    Its spread is 0, so numbers of solved runs are compared instead of means."""
    counts = f"{solved} of our {n} runs solved the task, and none of the paper's {SEEDS}"
    if solved:
        p = statistics.fisher((solved, n), (0, SEEDS))
        verdict = BETTER if p < SIGNIFICANT else UNDECIDED
        return Verdict(verdict, f"{counts}; Fisher's exact test, {p_text(p)}")
    if n < SEEDS:
        return Verdict(UNDECIDED, f"{counts}, but we have fewer runs")
    return Verdict(REPRODUCED, counts)


def is_never_solved(paper: Summary, e_max: int) -> bool:
    return paper.sd == 0 and paper.mean == e_max


def _judge(
    wide: Estimate,
    narrow: Estimate,
    paper: float,
    without_interval: str,
    is_capped: bool = False,
    lower_is_better: bool = True,
    whose: str = "the paper's value",
) -> Verdict:
    """Judge by the 95% and the 90% interval of the difference from a published value."""
    if narrow.low is None or narrow.high is None:
        return Verdict(UNDECIDED, without_interval)
    above, below = (WORSE, BETTER) if lower_is_better else (BETTER, WORSE)
    verdict = statistics.side_of_zero(wide, above, below, UNDECIDED)
    if is_within(narrow, MARGIN * abs(paper)) and not is_capped:
        verdict = REPRODUCED
    lies = "the 95% CI of the difference is"
    reasons = REASONS | {above: f"{lies} above zero", below: f"{lies} below zero"}
    low, high = (decimals(100 * end / abs(paper), 0) for end in (narrow.low, narrow.high))
    reason = (
        f"{reasons[verdict]}; the 90% CI of the difference ranges from {low}% to {high}% of {whose}"
    )
    if is_capped:
        reason += "; none of our runs solved the task"
    return Verdict(verdict, reason, wide.low, wide.high)


def tally(verdicts: Iterable[str]) -> str:
    """Return the number of cells with each verdict, as in `2 are better and 1 is worse`."""
    counts = Counter(verdicts)
    return listed([_counted(counts[verdict], verdict) for verdict in VERDICTS if counts[verdict]])


def _counted(n: int, verdict: str) -> str:
    if verdict == NO_DATA:
        return f"{n} {'has' if n == 1 else 'have'} {verdict}"
    return f"{n} {'is' if n == 1 else 'are'} {verdict}"
