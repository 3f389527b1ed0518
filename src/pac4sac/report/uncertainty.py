"""The section on critics' standard deviations, compared with their errors at the end of
training."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from pac4sac.report import figures
from pac4sac.report.bias_and_coverage import Measurements
from pac4sac.report.comparison import Context
from pac4sac.report.sentences import listed, verdict_sentences
from pac4sac.report.tables import (
    TEXTS,
    Column,
    Section,
    data,
    in_digits,
    verdict_cell,
    with_ends,
    words,
)
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import UNDECIDED, Estimate, mean_interval

OFFERED = Measurements(
    "bias", ("step", "rms", "deviation", "ratio", "covered"), "uncertainty", section="uncertainty"
)
MARGIN = 3.0  # a std within this factor of the error counts as about right
RIGHT, TOO_SMALL, TOO_LARGE = "about right", "too small", "too large"


def error_over_std(variant: Variant) -> Estimate | None:
    """Return error ÷ std (root mean squares): the geometric mean over seeds with its interval.

    Logarithms are averaged, so errors of twice and of half the std count alike.
    """
    logs = np.log(OFFERED.ends(variant, "ratio"))
    return in_times(mean_interval(logs)) if len(logs) else None


def in_times(logarithm: Estimate) -> Estimate:
    """Convert the logarithm of a ratio and its interval to the ratio.

    The ends of the interval can be infinite if two seeds differ greatly.
    """
    with np.errstate(over="ignore"):
        ends = [
            None if end is None else float(np.exp(end)) for end in (logarithm.low, logarithm.high)
        ]
        return Estimate(float(np.exp(logarithm.value)), *ends)


def verdict(variant: Variant) -> str:
    """Return the verdict on a std by the whole interval; a single seed is undecided."""
    ratio = error_over_std(variant)
    if ratio is None or ratio.low is None or ratio.high is None:
        return UNDECIDED
    if ratio.low > MARGIN:
        return TOO_SMALL
    if ratio.high < 1 / MARGIN:
        return TOO_LARGE
    return RIGHT if ratio.low > 1 / MARGIN and ratio.high < MARGIN else UNDECIDED


def uncertainty_answer(context: Context) -> str:
    """Return a sentence per task on the critics whose std is nearest to and farthest from the
    errors."""
    sentences = [_nearest_and_farthest(context, title) for title in context.variants]
    known = [sentence for sentence in sentences if sentence]
    return " ".join(known) or "No complete run answers this question yet."


def _nearest_and_farthest(context: Context, title: str) -> str:
    measured = OFFERED.measured(context.results(title))
    known = {v: ratio for v in measured if (ratio := error_over_std(v)) is not None}
    if not known:
        return ""
    ranked = sorted(known, key=lambda variant: abs(math.log(known[variant].value)))
    ends = dict.fromkeys([ranked[0], ranked[-1]])
    parts = [f"{in_digits(known[v])} for {v.style.name}" for v in ends]
    return f"On {title}, error ÷ std (ideal: 1) is {listed(parts)}."


def uncertainty_section(context: Context) -> Section | None:
    """Return the section on the standard deviations of critics; None if none was measured."""
    mean = OFFERED.mean_end
    columns = [
        words("std", lambda variant: verdict_cell(verdict(variant))),
        Column("error ÷ std [95%]", error_over_std, with_ends("ratio"), digits=2),
        Column(
            "covered by ± 2 std [95%]",
            partial(mean, name="covered"),
            with_ends("covered"),
            digits=2,
        ),
        Column("rank correlation [95%]", partial(mean, name="rank"), with_ends("rank"), digits=2),
        Column("root-mean-square error", partial(mean, name="rms"), with_ends("rms"), digits=1),
        Column(
            "root-mean-square std",
            partial(mean, name="deviation"),
            with_ends("deviation"),
            digits=2,
        ),
        data("verdict", get=verdict),
    ]

    def about(title: str, variants: Sequence[Variant]) -> tuple[list[str], list[Column]]:
        verdicts = [(verdict(variant), f"`{variant.label}`") for variant in variants]
        start = f"At the end of training on {title},"
        return [verdict_sentences(verdicts, TEXTS["verdicts"]["std"], start)], columns

    return OFFERED.compose(context, about, figure)


def figure(variants: Sequence[Variant]) -> Figure:
    """Draw error ÷ std and the fraction of returns within two std."""
    drawn = OFFERED.figure(
        variants, {"ratio": "error ÷ std (ideal: 1)", "covered": "covered by ± 2 std"}
    )
    left, right = drawn.axes
    left.set_yscale("log")
    left.axhline(1, **figures.DASHED)
    right.set_ylim(-0.04, 1.04)  # shows whole markers at both ends
    right.axhline(0.95, **figures.DASHED)
    return drawn
