"""Learning curves: every seed, the mean, its 95 % interval, and the line to cross; of one experiment as a picture, of
the variants of a task as a figure of the report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray
from scipy.special import stdtrit

from pac4sac.base.text import setting_text
from pac4sac.report.figures import DASHED, FAINT, INK, add_legend, finish_over_steps, finish_panel, new_figure, styles
from pac4sac.report.variants import Variant
from pac4sac.runs.metrics import STREAK, solved_at
from pac4sac.runs.reading import RunRecord, varying_settings
from pac4sac.runs.statistics import solved_fraction_curve
from pac4sac.runs.status import BROKEN_OFF

Floats = NDArray[np.float64]
FEWEST_FOR_INTERVAL = 3  # seeds
BARS = 4  # intervals drawn along a curve of solved runs


def learning_curve_picture(path: str | Path, runs: Sequence[RunRecord], title: str | None = None) -> None:
    """Draws one panel per task, one colour per algorithm and variant; the suffix of `path` chooses the format."""
    variants = group_by_variant(runs)
    tasks = list(dict.fromkeys(run.task["name"] for run in runs))
    figure, panels = new_figure(len(tasks), 0.6 + 6.4 * len(tasks), 4.4)
    for panel, task in zip(panels, tasks, strict=True):
        on_task = {label: [run for run in members if run.task["name"] == task] for label, members in variants.items()}
        r_limit = next(run.task.get("r_limit") for run in runs if run.task["name"] == task)
        draw_returns(panel, on_task, r_limit)
        if r_limit is not None:
            where = {"xy": (0, r_limit), "xycoords": ("axes fraction", "data"), "xytext": (4, 4)}
            look = {"textcoords": "offset points", "color": FAINT, "fontsize": 8.5}
            panel.annotate(f"solved above {r_limit:g}", **where, **look)
        panel.set_title(task, loc="left", color=INK, fontsize=12, fontweight="bold")
        if panel.collections:
            panel.set_title("bold: mean of the seeds; band: its 95 % interval", loc="right", color=FAINT, fontsize=8.5)
        panel.set_xlim(left=0)
        panel.legend(loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2, fontsize=9, frameon=False, labelcolor=INK)
    if title:
        figure.suptitle(title, color=INK, fontsize=13)
    figure.savefig(path, dpi=150)


def group_by_variant(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs that differ in their seed alone (and in their task), by a name such as `pac4sac, xi=0.1`."""
    settings = varying_settings(runs)
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        own = [f"{name}={setting_text(run.config[name])}" for name in settings if name in run.config]
        groups.setdefault(", ".join([run.algo, *own]), []).append(run)
    return groups


def learning_figure(variants: Sequence[Variant]) -> Figure:
    """Left the returns of training episodes, right the fraction of runs that are solved."""
    task = variants[0].task
    shows_solved = task.r_limit is not None and task.e_max is not None
    figure, panels = new_figure(2, 10.4) if shows_solved else new_figure(1, 6.4)
    draw_returns(panels[0], {variant.label: variant.runs for variant in variants}, task.r_limit)
    if shows_solved:
        look = styles([variant.label for variant in variants])
        for place, variant in enumerate(variants):
            _draw_solved(panels[1], variant, place / len(variants), *look[variant.label])
        finish_panel(panels[1], "episodes", "fraction of runs solved")
        panels[1].set_ylim(-0.03, 1.03)
        panels[1].yaxis.set_major_formatter(PercentFormatter(1))
        panels[1].set_xlim(0, task.e_max)
    add_legend(figure, panels[0])
    return figure


def draw_returns(panel: Any, runs: dict[str, list[RunRecord]], r_limit: float | None) -> None:
    """Of each variant, by its label."""
    window = 1 + max((len(run.episodes) for members in runs.values() for run in members), default=0) // 100
    for label, (colour, line) in styles(list(runs)).items():
        if runs[label]:
            _draw_variant(panel, label, runs[label], window, colour, line)
    if r_limit is not None:
        panel.axhline(r_limit, **DASHED)
    finish_over_steps(panel, "return of a training episode" + (f", mean of {window}" if window > 1 else ""))


def _draw_variant(panel: Any, label: str, runs: Sequence[RunRecord], window: int, colour: str, line: str) -> None:
    # A run cut short by failure would cut the mean short for all; it is drawn, crossed out and counted instead.
    started = [run for run in runs if run.episodes]
    broken = [run for run in started if run.status in BROKEN_OFF]
    sound = [run for run in started if run.status not in BROKEN_OFF]
    sound = [run for run in sound if run.status == "finished"] or sound  # nor may one that is still under way
    for run in started if len(started) > 1 else broken:
        # Each point is the mean of `window` episodes, so one in `window` has it all.
        ends = slice((len(run.episodes) - 1) % window, None, window)
        panel.plot(run.steps[ends], smooth(run.returns, window)[ends], color=colour, linewidth=0.7, alpha=0.35)
    for run in broken:
        end = smooth(run.returns, window)[-1:]
        panel.plot(run.steps[-1:], end, "x", color=colour, markersize=7, markeredgewidth=1.8)
    seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}" + (f", {len(broken)} broke off" if broken else "")
    under_way = len(started) - len(broken) - len(sound)
    seeds += f", {under_way} under way" if under_way else ""
    empty = np.empty(0)
    draw_mean(panel, mean_curve(sound, window) or (empty, empty, empty), f"{label} ({seeds})", colour, line)


def draw_mean(panel: Any, curve: tuple[Floats, Floats, Floats], label: str, colour: str, line: str) -> None:
    """Steps, mean and half-width of its interval."""
    steps, mean, half_width = curve
    if np.isfinite(half_width).any():
        panel.fill_between(steps, mean - half_width, mean + half_width, color=colour, alpha=0.15, linewidth=0)
    panel.plot(steps, mean, line, color=colour, linewidth=2.2, label=label)


def smooth(returns: Floats, window: int) -> Floats:
    """Mean of each return and those before it, `window` in all, fewer at the start."""
    counts = np.minimum(np.arange(1, len(returns) + 1), window)
    return np.asarray(np.convolve(returns, np.ones(window))[: len(returns)] / counts)


def mean_curve(runs: Sequence[RunRecord], window: int = 1) -> tuple[Floats, Floats, Floats] | None:
    """Steps, mean return and half-width of its 95 % t-interval (NaN below three seeds), where all runs have data.

    Returns are interpolated between episode ends, which changes nothing where all episodes end together.
    """
    if not runs or not all(run.episodes for run in runs):
        return None
    start, end = max(run.steps[0] for run in runs), min(run.steps[-1] for run in runs)
    grid = np.unique(np.concatenate([run.steps for run in runs]))
    grid = grid[(grid >= start) & (grid <= end)].astype(np.float64)
    curves = np.stack([np.interp(grid, run.steps, smooth(run.returns, window)) for run in runs])
    return grid, curves.mean(0), half_width_of(curves)


def half_width_of(curves: Floats) -> Floats:
    """Of the mean's 95 % t-interval, from curves of shape [seeds, steps]."""
    n = len(curves)
    if n < FEWEST_FOR_INTERVAL:
        return np.full(curves.shape[1:], np.nan)
    return np.asarray(stdtrit(n - 1, 0.975) * curves.std(0, ddof=1) / np.sqrt(n))


def _draw_solved(panel: Any, variant: Variant, shift: float, colour: str, line: str) -> None:
    e_max, r_limit = variant.task.e_max, variant.task.r_limit
    known = [outcome.run.record for outcome in (*variant.judged, *variant.under_way)]
    if e_max is None or r_limit is None or not known:
        return
    solved = [solved_at(run.returns[:e_max], r_limit) for run in known]
    until = e_max
    if variant.under_way:  # as far as all of them are known; the last episodes may yet be the first of five
        until = max(0, min(len(outcome.run.record.episodes) for outcome in variant.under_way) - STREAK)
    episodes, fractions = solved_fraction_curve(solved, until)
    # Bands of several variants would hide one another: bars at a few places, side by side.
    places = {round(e_max * (k + 0.45 + 0.35 * shift) / BARS) for k in range(BARS)}
    for x in sorted(places):
        if len(solved) > 1 and x <= until:
            panel.plot([x, x], [fractions[x].low, fractions[x].high], "-", color=colour, alpha=0.55, linewidth=1.6)
            panel.plot([x], [fractions[x].value], "o", color=colour, markersize=4)
    panel.step(episodes, [f.value for f in fractions], line, where="post", color=colour, linewidth=2.2)
