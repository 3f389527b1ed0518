"""Learning curves: the mean of the seeds with its interval, and the fraction of runs solved."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from pac4sac.base.grouping import group_by
from pac4sac.base.text import assignments
from pac4sac.report.figures import (
    DASHED,
    SINGLE,
    Band,
    Floats,
    add_legend,
    band_of,
    count_seeds,
    draw_ends,
    draw_mean,
    finish_over_steps,
    finish_panel,
    new_figure,
    stroke,
)
from pac4sac.report.style import Style, assign_styles
from pac4sac.report.variants import Variant
from pac4sac.runs.frames import varying_settings
from pac4sac.runs.metrics import STREAK, evaluation_curve, solved_at
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.statistics import Estimate, solved_fraction_curve
from pac4sac.runs.status import BROKEN_OFF

THIN_LINES = 5  # single runs drawn in one panel
POINTS = 400  # points on a curve


def learning_curve_picture(path: str | Path, runs: Sequence[RunRecord]) -> None:
    """Draw learning curves with one panel per task and one colour per variant.

    The suffix of `path` selects the format.
    """
    by_task = group_by(runs, key=lambda run: str(run.task["name"]))
    variants = group_by_variant(runs)
    styles = assign_styles(variants)
    figure, panels = new_figure("Learning curves", len(by_task), 0.6 + 4.6 * len(by_task), 3.6)
    for panel, (task, on_task) in zip(panels, by_task.items(), strict=True):
        shown = {
            label: [run for run in members if run.task["name"] == task]
            for label, members in variants.items()
        }
        draw_returns(panel, shown, styles, on_task[0].task.get("r_limit"), title=task)
        panel.set_xlim(left=0)
    add_legend(figure, *panels)
    figure.savefig(path, dpi=200)


def group_by_variant(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Group runs by a name such as `pac4sac, xi=0.1`; runs of one name differ in seed and task."""
    settings = varying_settings(runs)

    def name(run: RunRecord) -> str:
        given = {setting: run.config[setting] for setting in settings if setting in run.config}
        return ", ".join([run.algo, *assignments(given)])

    return group_by(runs, name)


def learning_figure(variants: Sequence[Variant]) -> Figure:
    """Draw the returns of training episodes and the fraction of solved runs."""
    task = variants[0].task
    figure, panels = new_figure(f"Learning curves on {task.title}", 2 if task.has_regret else 1)
    draw_variants(panels[0], variants, title="Mean over seeds with 95% CI")
    if task.has_regret:
        _draw_solved_fractions(panels[1], variants)
    add_legend(figure, panels[0])
    return figure


def evaluation_figure(variants: Sequence[Variant]) -> Figure:
    """Draw the evaluations of the deterministic policy during training."""
    figure, (panel,) = new_figure(f"Evaluations on {variants[0].task.title}", 1)
    for variant in variants:
        label = f"{variant.style.name} ({count_seeds(len(variant.runs))})"
        draw_mean(panel, _evaluation_curve(variant.runs), label, variant.style)
    finish_over_steps(panel, "mean return of an evaluation")
    add_legend(figure, panel)
    return figure


def _evaluation_curve(runs: Sequence[RunRecord]) -> Band | None:
    """Return the mean of runs with its interval, at the steps at which all of them were
    evaluated."""
    by_step = [evaluation_curve(run) for run in runs]
    steps = sorted(set.intersection(*(set(curve) for curve in by_step)))
    if not steps:
        return None
    values = np.array([[curve[step] for step in steps] for curve in by_step])
    return np.array(steps, dtype=np.float64), *band_of(values)


def _draw_solved_fractions(panel: Any, variants: Sequence[Variant]) -> None:
    """Draw the fraction of solved runs over episodes, and its final value with an interval."""
    middle = (len(variants) - 1) / 2
    ends = []
    for place, variant in enumerate(variants):
        if end := _draw_solved(panel, variant, place - middle):
            ends.append((variant.style, end))
    title = "Runs solved; right: final value with 95% CI"
    finish_panel(panel, "training episodes", "fraction of runs solved", title)
    panel.set_ylim(-0.03, 1.03)
    panel.yaxis.set_major_formatter(PercentFormatter(1))
    draw_ends(panel, variants[0].task.e_max or 1, ends)


def overview_figure(tasks: Mapping[str, Sequence[Variant]]) -> Figure:
    """Draw one small panel per task, as wide as one column of a paper so that it fits a phone."""
    rows, columns = math.ceil(len(tasks) / 2), min(2, len(tasks))
    figure, panels = new_figure(
        "Learning curves by task", len(tasks), SINGLE, 0.7 + 1.3 * rows, columns
    )
    for place, (title, variants) in enumerate(tasks.items()):
        panel = panels[place]
        draw_variants(panel, variants, title=title, count=False)
        panel.set_ylabel("return" if place % columns == 0 else "")
        if place + columns < len(tasks):
            panel.set_xlabel("")
        panel.yaxis.set_major_locator(MaxNLocator(5))
    add_legend(figure, *panels)
    return figure


def draw_variants(
    panel: Any, variants: Sequence[Variant], title: str, *, count: bool = True
) -> None:
    runs, styles = {v.label: v.runs for v in variants}, {v.label: v.style for v in variants}
    draw_returns(panel, runs, styles, variants[0].task.r_limit, title, count=count)


def draw_returns(
    panel: Any,
    runs: Mapping[str, Sequence[RunRecord]],
    styles: Mapping[str, Style],
    r_limit: float | None,
    title: str,
    *,
    count: bool = True,
) -> None:
    """Draw the runs of each variant, given by label, and the return threshold."""
    with_episodes = [run for members in runs.values() for run in members if run.episodes]
    window = 1 + max((len(run.episodes) for run in with_episodes), default=0) // 100
    lines = len(with_episodes) <= THIN_LINES
    for label, members in runs.items():
        if members:
            _draw_variant(panel, members, window, styles[label], lines=lines, count=count)
    if r_limit is not None:
        value = f": {r_limit:g}" if count else ""
        panel.axhline(r_limit, **DASHED, label=f"return threshold{value}")
    averaged = f", mean of {window}" if window > 1 else ""
    finish_over_steps(panel, f"return of an episode{averaged}", title)


def _draw_variant(
    panel: Any, runs: Sequence[RunRecord], window: int, style: Style, *, lines: bool, count: bool
) -> None:
    """Draw the mean of runs; `lines` draws each run too, `count` adds their number to the legend.

    A run that ended early would cut the mean short, so it is marked with a cross and only counted.
    """
    started = [run for run in runs if run.episodes]
    broken = [run for run in started if run.status in BROKEN_OFF]
    thin_lines = started if lines and len(started) > 1 else broken
    for run in thin_lines:
        _draw_run(panel, run, window, style)
    for run in broken:
        end = smooth(run.returns, window)[-1:]
        panel.plot(run.steps[-1:], end, "x", color=style.colour, markersize=5, markeredgewidth=1.4)
    label = f"{style.name} ({_counted(runs)})" if count else style.name
    draw_mean(panel, mean_curve(_averaged(started), window), label, style)


def _counted(runs: Sequence[RunRecord]) -> str:
    """Return the number of seeds, with the numbers of runs that ended early or are in progress."""
    started = [run for run in runs if run.episodes]
    broken = sum(run.status in BROKEN_OFF for run in started)
    in_progress = len(started) - broken - len(_averaged(started))
    notes = [count_seeds(len(runs))]
    if broken:
        notes.append(f"{broken} ended early")
    if in_progress:
        notes.append(f"{in_progress} in progress")
    return ", ".join(notes)


def _averaged(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the finished runs or, if there are none, the runs in progress."""
    finished = [run for run in runs if run.status == "finished"]
    return finished or [run for run in runs if run.status not in BROKEN_OFF]


def _draw_run(panel: Any, run: RunRecord, window: int, style: Style) -> None:
    """Draw a thin line through the means of every `window` episodes."""
    ends = slice((len(run.episodes) - 1) % window, None, window)
    returns = smooth(run.returns, window)[ends]
    panel.plot(run.steps[ends], returns, color=style.colour, linewidth=0.5, alpha=0.5)


def smooth(returns: Floats, window: int) -> Floats:
    """Return the running mean over the last `window` returns, over fewer at the start."""
    counts = np.minimum(np.arange(1, len(returns) + 1), window)
    return np.asarray(np.convolve(returns, np.ones(window))[: len(returns)] / counts)


def mean_curve(runs: Sequence[RunRecord], window: int = 1) -> Band | None:
    """Return steps, mean return and its bootstrap 95% interval (NaN below three seeds).

    The curve covers the steps for which all runs have data. Returns are interpolated between
    episode ends, which changes nothing if all episodes end together.
    """
    if not runs or not all(run.episodes for run in runs):
        return None
    grid = _common_steps(runs)
    returns = [np.interp(grid, run.steps, smooth(run.returns, window)) for run in runs]
    return grid, *band_of(np.stack(returns))


def _common_steps(runs: Sequence[RunRecord]) -> Floats:
    """Return at most `POINTS` steps at which episodes end and all runs have data."""
    start, end = max(run.steps[0] for run in runs), min(run.steps[-1] for run in runs)
    steps = np.unique(np.concatenate([run.steps for run in runs]))
    steps = steps[(steps >= start) & (steps <= end)].astype(np.float64)
    if len(steps) <= POINTS:
        return np.asarray(steps)
    chosen = np.unique(np.linspace(0, len(steps) - 1, POINTS).round().astype(int))
    return np.asarray(steps[chosen])


def _draw_solved(panel: Any, variant: Variant, place: float) -> Estimate | None:
    """Draw the fraction of solved runs, and return its final value if it is known."""
    e_max, r_limit = variant.task.e_max or 0, variant.task.r_limit or 0.0
    outcomes = (*variant.judged, *variant.in_progress)
    if not outcomes:
        return None
    solved = [solved_at(outcome.run.record.returns[:e_max], r_limit) for outcome in outcomes]
    episodes, fractions = solved_fraction_curve(solved, _known_until(variant, e_max))
    apart = 0.006 * place  # shifts lines of equal fractions apart
    heights = [fraction.value + apart for fraction in fractions]
    panel.step(episodes, heights, where="post", **stroke(variant.style), linewidth=1.5)
    return None if variant.in_progress or len(solved) < 2 else fractions[-1]


def _known_until(variant: Variant, e_max: int) -> int:
    """Return the last episode at which the solved runs are known."""
    if not variant.in_progress:
        return e_max
    # The last episodes may turn out to begin the five consecutive ones that solve a run.
    fewest = min(len(outcome.run.record.episodes) for outcome in variant.in_progress)
    return max(0, fewest - STREAK)
