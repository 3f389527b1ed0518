"""Learning curves of one experiment as a picture: every seed, the mean, its 95 % interval, and the line to cross."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray
from scipy.special import stdtrit

from pac4sac.base.text import setting_text
from pac4sac.runs.reading import RunRecord, varying_settings
from pac4sac.runs.status import BROKEN_OFF

Floats = NDArray[np.float64]

# Okabe and Ito's colours, told apart by colour-blind readers too; yellow is left out, it vanishes on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#333333")
LINE_STYLES = ("-", "--", ":")  # each round of the colours takes the next, so 21 variants stay distinct
FEWEST_FOR_INTERVAL = 3  # seeds
INK, FAINT = "#222222", "#8a8a8a"


def learning_curve_picture(path: str | Path, runs: Sequence[RunRecord], title: str | None = None) -> None:
    """Draws one panel per task, one colour per algorithm and variant; the suffix of `path` chooses the format."""
    # The library's own algorithm comes first, so that it has the same colour in every picture.
    variants = dict(sorted(group_by_variant(runs).items(), key=lambda item: not item[0].startswith("pac4sac")))
    tasks = list(dict.fromkeys(run.task["name"] for run in runs))
    # A Figure without pyplot keeps no global state, and needs no display.
    figure = Figure(figsize=(0.6 + 6.4 * len(tasks), 4.4), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False)[0]
    styles = [(colour, line) for line in LINE_STYLES for colour in COLOURS]
    for panel, task in zip(panels, tasks, strict=True):
        on_task = [run for run in runs if run.task["name"] == task]
        window = 1 + max(len(run.episodes) for run in on_task) // 100
        for (label, members), style in zip(variants.items(), cycle(styles)):
            draw_variant(panel, label, [run for run in members if run.task["name"] == task], window, *style)
        _finish_panel(panel, task, on_task[0].task.get("r_limit"), window)
    if title:
        figure.suptitle(title, color=INK, fontsize=13)
    figure.savefig(path)


def group_by_variant(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs that differ in their seed alone (and in their task), by a name such as `pac4sac, xi=0.1`."""
    settings = varying_settings(runs)
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        told = [f"{name}={setting_text(run.config[name])}" for name in settings if name in run.config]
        groups.setdefault(", ".join([run.algo, *told]), []).append(run)
    return groups


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
    curves = np.stack([np.interp(grid, run.steps, smooth(run.returns, window)) for run in runs])  # [seeds, steps]
    n = len(runs)
    if n < FEWEST_FOR_INTERVAL:
        return grid, curves.mean(0), np.full(len(grid), np.nan)
    half_width = stdtrit(n - 1, 0.975) * curves.std(0, ddof=1) / np.sqrt(n)
    return grid, curves.mean(0), half_width


def draw_variant(panel: Any, label: str, runs: Sequence[RunRecord], window: int, colour: str, line: str) -> None:
    if not runs:
        return
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
        panel.plot(
            run.steps[-1:], smooth(run.returns, window)[-1:], "x", color=colour, markersize=7, markeredgewidth=1.8
        )
    seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}" + (f", {len(broken)} broke off" if broken else "")
    under_way = len(started) - len(broken) - len(sound)
    seeds += f", {under_way} under way" if under_way else ""
    mean = mean_curve(sound, window)
    steps, returns, half_width = mean if mean else (np.empty(0), np.empty(0), np.empty(0))
    if len(sound) >= FEWEST_FOR_INTERVAL:
        panel.fill_between(steps, returns - half_width, returns + half_width, color=colour, alpha=0.15, linewidth=0)
    panel.plot(steps, returns, line, color=colour, linewidth=2.2, label=f"{label} ({seeds})")


def _finish_panel(panel: Any, task: str, r_limit: float | None, window: int) -> None:
    if r_limit is not None:
        panel.axhline(r_limit, color=FAINT, linewidth=1.2, linestyle=(0, (5, 3)), zorder=1)
        panel.annotate(
            f"solved above {r_limit:g}",
            (0, r_limit),
            xycoords=("axes fraction", "data"),
            xytext=(4, 4),
            textcoords="offset points",
            color=FAINT,
            fontsize=8.5,
        )
    panel.set_title(task, loc="left", color=INK, fontsize=12, fontweight="bold")
    if panel.collections:
        panel.set_title("bold: mean of the seeds; band: its 95 % interval", loc="right", color=FAINT, fontsize=8.5)
    panel.set_xlabel("environment steps", color=INK)
    panel.set_ylabel("return of a training episode" + (f", mean of {window}" if window > 1 else ""), color=INK)
    panel.set_xlim(left=0)
    panel.margins(x=0.01, y=0.08)
    panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    panel.xaxis.set_major_formatter(FuncFormatter(short_count))
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(FAINT)
    panel.tick_params(color=FAINT, labelcolor=INK, labelsize=9)
    panel.grid(axis="y", color="#e8e8e8", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.legend(loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2, fontsize=9, frameon=False, labelcolor=INK)


def short_count(steps: float, _position: int) -> str:
    if steps >= 1_000_000:
        return f"{steps / 1_000_000:g}M"
    return f"{steps / 1_000:g}k" if steps >= 1_000 else f"{steps:g}"
