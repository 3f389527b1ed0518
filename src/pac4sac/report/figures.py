"""Figures: what all share, the ranking, learning curves, and their bytes, which are the same for the same data."""

import html
import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from pac4sac.base.text import assignments
from pac4sac.report.tables import Picture
from pac4sac.report.variants import Variant
from pac4sac.runs.metrics import STREAK, solved_at
from pac4sac.runs.reading import RunRecord, varying_settings
from pac4sac.runs.statistics import Estimate, half_width, solved_fraction_curve
from pac4sac.runs.status import BROKEN_OFF

# Okabe and Ito's colours, told apart by colour-blind readers too; yellow is left out, it vanishes on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#333333")
LINE_STYLES = ("-", "--", ":")  # each round of the colours takes the next, so 21 variants stay distinct
FIXED_PLACES = {"pac4sac": 0, "sac": 1, "ddpg": 2, "oac": 3}  # the same colour in every figure
INK, FAINT, GRID = "#222222", "#8a8a8a", "#e8e8e8"
DASHED: dict[str, Any] = {"color": FAINT, "linewidth": 1.2, "linestyle": (0, (5, 3)), "zorder": 1}
AT_ONCE = 7  # variants in one picture
FEWEST_FOR_INTERVAL = 3  # seeds
BARS = 4  # intervals drawn along a curve of solved runs
Floats = NDArray[np.float64]
Draw = Callable[[list[Variant]], Figure]


def new_figure(panels: int, width: float = 10.4, height: float = 4.2) -> tuple[Figure, list[Any]]:
    """A Figure without pyplot keeps no global state, and needs no display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def drawn(name: str) -> str:
    """A name as it stands: no formula, not hidden from legends, without what an SVG file cannot have."""
    shown = "".join(c if c.isprintable() else " " for c in name).replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def pictures(
    name: str, sets: Sequence[tuple[str, Sequence[Variant]]], draw: Draw, reference: Variant | None = None
) -> list[Picture]:
    """Of variants with their caption, as many as it takes with a few in each, and the reference beside them."""
    drawn: list[Picture] = []
    for caption, members in sets:
        beside = [] if reference is None or reference in members else [reference]
        size = AT_ONCE - len(beside)
        for start in range(0, len(members), size):
            suffix = f"-{len(drawn) + 1}" if drawn else ""
            drawn.append(Picture(name + suffix, caption, partial(draw, [*beside, *members[start : start + size]])))
    return drawn


def styles(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and line of each."""
    known = [(colour, line) for line in LINE_STYLES for colour in COLOURS]
    fixed = {label: FIXED_PLACES[label] for label in labels if label in FIXED_PLACES}
    free = cycle(place for place in range(len(known)) if place not in fixed.values())
    return {label: known[fixed[label] if label in fixed else next(free)] for label in labels}


def styled(variants: Sequence[Variant]) -> Iterator[tuple[Variant, str, str]]:
    look = styles([variant.label for variant in variants])
    return ((variant, *look[variant.label]) for variant in variants)


def finish_panel(panel: Any, x: str, y: str) -> None:
    panel.set_xlabel(x, color=INK)
    panel.set_ylabel(y, color=INK)
    panel.margins(x=0.02, y=0.08)
    panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(FAINT)
    panel.tick_params(color=FAINT, labelcolor=INK, labelsize=9)
    panel.grid(axis="y", color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)


def finish_over_steps(panel: Any, y: str) -> None:
    finish_panel(panel, "environment steps", y)
    panel.xaxis.set_major_formatter(FuncFormatter(short_count))


def short_count(steps: float, _position: int) -> str:
    return f"{steps / 1e6:g}M" if steps >= 1e6 else f"{steps / 1e3:g}k" if steps >= 1e3 else f"{steps:g}"


def add_legend(figure: Figure, panel: Any, columns: int = 3) -> None:
    """Of what one panel shows, for all of them."""
    look = {"ncols": columns, "fontsize": 9, "frameon": False, "labelcolor": INK}
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower left", **look)


def ranking_figure(estimates: dict[str, Estimate], baseline: str, unit: str, scale: float) -> Figure:
    """A dot with its interval for each variant, the best on top."""
    figure, (panel,) = new_figure(1, 6.8, 0.9 + 0.32 * len(estimates))
    for place, (label, estimate) in enumerate(reversed(estimates.items())):
        colour = COLOURS[1] if label == baseline else COLOURS[0]
        if estimate.low is not None and estimate.high is not None:
            panel.plot([estimate.low / scale, estimate.high / scale], [place, place], "-", color=colour, linewidth=2)
        panel.plot([estimate.value / scale], [place], "o", color=colour, markersize=6)
        if label == baseline:
            panel.axvline(estimate.value / scale, **DASHED | {"linewidth": 1})
    finish_panel(panel, unit, "")
    panel.set_yticks(range(len(estimates)), [drawn(name) for name in reversed(estimates)])
    panel.set_ylim(-0.6, len(estimates) - 0.4)
    return figure


# --- learning curves: every seed, the mean, its 95 % interval, and the line to cross


def learning_curve_picture(path: str | Path, runs: Sequence[RunRecord]) -> None:
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
        panel.set_title(drawn(task), loc="left", color=INK, fontsize=12, fontweight="bold")
        if panel.collections:
            panel.set_title("bold: mean of the seeds; band: its 95 % interval", loc="right", color=FAINT, fontsize=8.5)
        panel.set_xlim(left=0)
        panel.legend(loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2, fontsize=9, frameon=False, labelcolor=INK)
    figure.savefig(path, dpi=150)


def group_by_variant(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs that differ in their seed alone (and in their task), by a name such as `pac4sac, xi=0.1`."""
    settings, groups = varying_settings(runs), defaultdict[str, list[RunRecord]](list)
    for run in runs:
        own = assignments({name: run.config[name] for name in settings if name in run.config})
        groups[", ".join([run.algo, *own])].append(run)
    return groups


def learning_figure(variants: Sequence[Variant]) -> Figure:
    """Left the returns of training episodes, right the fraction of runs that are solved."""
    task = variants[0].task
    shows_solved = task.r_limit is not None and task.e_max is not None
    figure, panels = new_figure(2, 10.4) if shows_solved else new_figure(1, 6.4)
    draw_returns(panels[0], {variant.label: variant.runs for variant in variants}, task.r_limit)
    if shows_solved:
        for place, (variant, *look) in enumerate(styled(variants)):
            _draw_solved(panels[1], variant, place / len(variants), *look)
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
    counts = {"broke off": len(broken), "under way": len(started) - len(broken) - len(sound)}
    notes = "".join(f", {n} {what}" for what, n in counts.items() if n)
    draw_mean(panel, mean_curve(sound, window), f"{label} ({count_seeds(len(runs))}{notes})", colour, line)


def count_seeds(n: int) -> str:
    return f"{n} seed{'' if n == 1 else 's'}"


def draw_mean(panel: Any, curve: tuple[Floats, ...] | None, label: str, colour: str, line: str) -> None:
    """Of steps, mean and half-width of its interval; without them the legend has the label all the same."""
    steps, mean, half = curve or (np.empty(0),) * 3
    if np.isfinite(half).any():
        panel.fill_between(steps, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
    panel.plot(steps, mean, line, color=colour, linewidth=2.2, label=drawn(label))


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
    return half_width(curves) if len(curves) >= FEWEST_FOR_INTERVAL else np.full(curves.shape[1:], np.nan)


def _draw_solved(panel: Any, variant: Variant, shift: float, colour: str, line: str) -> None:
    e_max, r_limit = variant.task.e_max or 0, variant.task.r_limit or 0.0
    solved = [solved_at(o.run.record.returns[:e_max], r_limit) for o in (*variant.judged, *variant.under_way)]
    if not solved:
        return
    until = e_max
    if variant.under_way:  # as far as all of them are known; the last episodes may yet be the first of five
        until = max(0, min(len(outcome.run.record.episodes) for outcome in variant.under_way) - STREAK)
    episodes, fractions = solved_fraction_curve(solved, until)
    # Bands of several variants would hide one another: bars at a few places, side by side.
    for x in sorted({round(e_max * (k + 0.45 + 0.35 * shift) / BARS) for k in range(BARS)}):
        if len(solved) > 1 and x <= until:
            panel.plot([x, x], [fractions[x].low, fractions[x].high], "-", color=colour, alpha=0.55, linewidth=1.6)
            panel.plot([x], [fractions[x].value], "o", color=colour, markersize=4)
    panel.step(episodes, [f.value for f in fractions], line, where="post", color=colour, linewidth=2.2)


# --- bytes


def to_svg(figure: Figure, name: str) -> str:
    out = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    figure.set_layout_engine("none")  # settled by now; to find it again would take as long as to draw
    # A tenth of a point is finer than a screen, and a curve of many points half as long; the dots of markers need more.
    return re.sub(r"(?<= d=\")[^\"]+|(?<=\")translate[^\"]+", _coarse, out.getvalue().decode())


def _coarse(path: re.Match[str]) -> str:
    digits = 2 if "C" in path[0] else 1
    numbers = re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.{digits}f}".removesuffix(".0"), path[0])
    return re.sub(r"\s+", " ", numbers).strip()


def opaque(svg: str) -> str:
    """For a file: dark text would not be seen on the dark page of a reader who likes it so."""
    return re.sub(r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="#ffffff"/>', svg, count=1)


def to_pdf(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="pdf", metadata={"CreationDate": None})
    return out.getvalue()


def inline_svg(svg: str, caption: str) -> str:
    """For a page: without what belongs to a file, ids that repeat, and with colours that the page's theme decides."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[a-zA-Z0-9.]+_\d+">', "<g>", svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    series = [(colour, f"series-{place}") for place, colour in enumerate(COLOURS)]
    for colour, variable in ((INK, "ink"), (FAINT, "faint"), (GRID, "grid"), *series):
        svg = svg.replace(colour.lower(), f"var(--{variable})")
    width = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    widest = round(1.4 * float(width[1])) if width else 1000  # text then has the size of the page's
    look = f'role="img" aria-label="{html.escape(caption)}" style="max-width: {widest}px"'
    return svg.replace("<svg ", f"<svg {look} ", 1).strip()
