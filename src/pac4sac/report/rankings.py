"""Figures that rank variants: interquartile means, performance profiles and probabilities of
improvement, as Agarwal et al. (2021) recommend for few seeds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from pac4sac.report import figures
from pac4sac.report.style import Style
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import Estimate, performance_profile, probability_of_improvement

ROW = 0.2  # inches per line of text
NAME = 32  # characters per line of a name
Scores = Mapping[str, Sequence[Sequence[float]]]  # label -> one list of run scores per task


def best_first(estimates: Mapping[str, Estimate], *, lower_is_better: bool) -> dict[str, Estimate]:
    """Return the estimates sorted from best to worst."""
    ranked = sorted(estimates.items(), key=lambda item: item[1].value, reverse=not lower_is_better)
    return dict(ranked)


def ranking_figure(
    title: str,
    estimates: Mapping[str, Estimate],
    styles: Mapping[str, Style],
    baseline: str,
    unit: str,
    scale: float,
    width: float = figures.DOUBLE,
) -> Figure:
    """Draw a dot with its interval for each variant, in the order of the estimates."""
    figure, (panel,) = figures.new_figure(title, 1, width, 0.9 + _height(estimates, styles))
    _draw_rows(panel, estimates, styles, scale)
    panel.axvline(estimates[baseline].value / scale, **figures.DASHED)
    _finish_rows(panel, estimates, styles, unit)
    return figure


def profile_figure(
    title: str,
    scores: Scores,
    styles: Mapping[str, Style],
    baseline: str,
    unit: str,
    *,
    lower_is_better: bool,
) -> Figure:
    """Draw performance profiles and the probability of improvement over the baseline."""
    figure, (left, right) = figures.new_figure(
        title, 2, figures.DOUBLE, 2.2 + 0.6 * _height(scores, styles)
    )
    _draw_profiles(left, scores, styles, unit, lower_is_better=lower_is_better)
    better = {
        label: probability_of_improvement(runs, scores[baseline], lower_is_better=lower_is_better)
        for label, runs in scores.items()
        if label != baseline
    }
    ranked = best_first(better, lower_is_better=False)
    _draw_rows(right, ranked, styles, 1.0)
    right.axvline(0.5, **figures.DASHED)
    _finish_rows(
        right,
        ranked,
        styles,
        f"P(better than {styles[baseline].name})",
        "Probability of improvement",
    )
    right.set_xlim(-0.03, 1.03)
    figures.add_legend(figure, left)
    return figure


def _height(labels: Iterable[str], styles: Mapping[str, Style]) -> float:
    """Return the height in inches of one row per label; every row is as tall as the longest name
    needs."""
    names = [figures.drawn(styles[label].name, NAME) for label in labels]
    return ROW * len(names) * max(name.count("\n") + 1 for name in names)


def _draw_profiles(
    panel: Any, scores: Scores, styles: Mapping[str, Style], unit: str, *, lower_is_better: bool
) -> None:
    """Draw the fraction of runs of each label that are better than a score."""
    values = np.concatenate([runs for strata in scores.values() for runs in strata])
    margin = 0.03 * float(np.ptp(values)) or 1.0
    thresholds = np.linspace(values.min() - margin, values.max() + margin, 201)
    for label, strata in scores.items():
        profile = performance_profile(strata, thresholds, lower_is_better=lower_is_better)
        figures.draw_mean(panel, (thresholds, *profile), styles[label].name, styles[label])
    figures.finish_panel(
        panel, f"{unit} τ", "runs better than τ", "Performance profile with 95% band"
    )
    panel.yaxis.set_major_formatter(PercentFormatter(1))
    panel.set_xlim(thresholds[0], thresholds[-1])
    if lower_is_better:
        panel.invert_xaxis()  # the best score is at the right


def task_profile(baseline: Variant, variants: Sequence[Variant]) -> Figure:
    """Draw the performance profiles of variants of one task, by its headline metric."""
    task = baseline.task
    known = {v.label: v for v in (baseline, *variants) if v.has_results}
    scores = {label: [_scaled_values(variant)] for label, variant in known.items()}
    styles = {label: variant.style for label, variant in known.items()}
    title, lower = f"Performance profiles on {task.title}", task.headline.lower_is_better
    return profile_figure(title, scores, styles, baseline.label, task.unit, lower_is_better=lower)


def _scaled_values(variant: Variant) -> list[float]:
    """Return the headline metric of each run, scaled for display."""
    task = variant.task
    return [value / task.scale for value in variant.values(task.headline.key)]


def _draw_rows(
    panel: Any, estimates: Mapping[str, Estimate], styles: Mapping[str, Style], scale: float
) -> None:
    for place, (label, estimate) in enumerate(reversed(list(estimates.items()))):
        if estimate.low is not None and estimate.high is not None:
            ends = [estimate.low / scale, estimate.high / scale]
            panel.plot(ends, [place, place], color=styles[label].colour, linewidth=1.4)
        panel.plot([estimate.value / scale], [place], **figures.mark(styles[label]))


def _finish_rows(
    panel: Any,
    estimates: Mapping[str, Estimate],
    styles: Mapping[str, Style],
    unit: str,
    title: str = "",
) -> None:
    figures.finish_panel(panel, unit, "", title)
    panel.set_yticks(
        range(len(estimates)),
        [figures.drawn(styles[label].name, NAME) for label in reversed(list(estimates))],
    )
    panel.set_ylim(-0.6, len(estimates) - 0.4)
