"""Figures: what all share, learning curves, and their bytes, which are the same for the same data.
Styles of algorithms are in `style.py`."""

import html
import io
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from pac4sac.base.text import assignments
from pac4sac.report.style import COLOURS, Style, assign_styles
from pac4sac.report.tables import Picture
from pac4sac.report.variants import Variant
from pac4sac.runs.frames import varying_settings
from pac4sac.runs.metrics import STREAK, solved_at
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.statistics import Estimate, bootstrap_band, solved_fraction_curve
from pac4sac.runs.status import BROKEN_OFF

SINGLE, DOUBLE = 3.3, 6.8  # inches: one column of a paper, and two
SMALL, TEXT, TITLE = 6.5, 7.5, 9.0  # points
INK, FAINT, GRID = "#222222", "#8a8a8a", "#e8e8e8"
DASHED: dict[str, Any] = {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (5, 3)), "zorder": 1}
AT_ONCE = 6  # variants in one picture
THIN_LINES = 5  # single runs in one panel
FEWEST_FOR_INTERVAL = 3  # seeds
POINTS = 400  # of a curve
Floats = NDArray[np.float64]
Band = tuple[Floats, Floats, Floats, Floats]  # steps, mean, and the ends of its interval
Draw = Callable[[list[Variant]], Figure]


def new_figure(
    title: str, panels: int, width: float = DOUBLE, height: float = 2.9, columns: int | None = None
) -> tuple[Figure, list[Any]]:
    """A Figure without pyplot keeps no global state, and needs no display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(drawn(title), x=0.01, ha="left", color=INK, fontsize=TITLE, fontweight="bold")
    columns = columns or panels
    grid = figure.subplots(-(-panels // columns), columns, squeeze=False).flatten()
    for unused in grid[panels:]:
        unused.set_axis_off()
    return figure, list(grid[:panels])


def drawn(name: str) -> str:
    """A name as it stands: no formula, not hidden from legends, without what an SVG file cannot
    have."""
    shown = "".join(c if c.isprintable() else " " for c in name).replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def pictures(
    name: str,
    sets: Sequence[tuple[str, Sequence[Variant]]],
    draw: Draw,
    companion: Variant | None = None,
    *,
    is_detail: bool = False,
) -> list[Picture]:
    """Return pictures of variants with their captions, a few in each, the companion in all."""
    drawn: list[Picture] = []
    for caption, members in sets:
        beside = [] if companion is None or companion in members else [companion]
        size = AT_ONCE - len(beside)
        for start in range(0, len(members), size):
            shown = [*beside, *members[start : start + size]]
            suffix = f"-{len(drawn) + 1}" if drawn else ""
            drawn.append(Picture(name + suffix, caption, partial(draw, shown), is_detail))
    return drawn


def stroke(style: Style) -> dict[str, Any]:
    """Of the lines of an algorithm."""
    return {"color": style.colour, "linestyle": (0, style.dashes) if style.dashes else "-"}


def mark(style: Style) -> dict[str, Any]:
    """Of its dots, hollow where its line is broken."""
    face = "white" if style.dashes else style.colour
    return {
        "color": style.colour,
        "marker": style.marker,
        "markerfacecolor": face,
        "markersize": 4.5,
        "linestyle": "none",
    }


def finish_panel(panel: Any, x: str, y: str, title: str = "") -> None:
    panel.set_xlabel(x, color=INK, fontsize=TEXT)
    panel.set_ylabel(y, color=INK, fontsize=TEXT)
    panel.set_title(drawn(title), loc="left", color=INK, fontsize=TEXT)
    panel.margins(x=0.02, y=0.08)
    panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(FAINT)
    panel.tick_params(which="both", color=FAINT, labelcolor=INK, labelsize=SMALL)
    panel.grid(axis="y", color=GRID, linewidth=0.6)
    panel.set_axisbelow(True)


def finish_over_steps(panel: Any, y: str, title: str = "") -> None:
    finish_panel(panel, "environment steps", y, title)
    panel.xaxis.set_major_formatter(FuncFormatter(short_count))


def short_count(steps: float, _position: int) -> str:
    return (
        f"{steps / 1e6:g}M"
        if steps >= 1e6
        else f"{steps / 1e3:g}k"
        if steps >= 1e3
        else f"{steps:g}"
    )


def add_legend(figure: Figure, panel: Any, columns: int = 3) -> None:
    """Of what one panel shows, for all of them."""
    style = {
        "ncols": columns,
        "fontsize": SMALL,
        "frameon": False,
        "labelcolor": INK,
        "handlelength": 2.8,
    }
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower left", **style)


def draw_ends(panel: Any, end: float, ends: Sequence[tuple[Style, Estimate]]) -> None:
    """Right of the curves, side by side: where each ends, with its interval. Bands would hide one
    another."""
    for place, (style, estimate) in enumerate(ends):
        x = end * (1.05 + 0.035 * place)
        if estimate.low is not None and estimate.high is not None:
            panel.plot([x, x], [estimate.low, estimate.high], color=style.colour, linewidth=1.2)
        panel.plot([x], [estimate.value], **mark(style))
    panel.axvspan(
        end * 1.02, end * (1.05 + 0.035 * len(ends)), color=GRID, alpha=0.5, linewidth=0, zorder=0
    )
    panel.set_xlim(0, end * (1.05 + 0.035 * len(ends)))
    panel.set_xticks(
        [tick for tick in panel.xaxis.get_major_locator().tick_values(0, end) if 0 <= tick <= end]
    )


# --- learning curves: the mean of the seeds, its interval, and the line to cross


def learning_curve_picture(path: str | Path, runs: Sequence[RunRecord]) -> None:
    """Draws one panel per task, one colour per algorithm and variant; the suffix of `path` chooses
    the format."""
    variants = group_by_variant(runs)
    tasks = list(dict.fromkeys(run.task["name"] for run in runs))
    figure, panels = new_figure("Learning curves", len(tasks), 0.6 + 4.6 * len(tasks), 3.6)
    styles = assign_styles(variants)
    for panel, task in zip(panels, tasks, strict=True):
        on_task = {
            label: [run for run in members if run.task["name"] == task]
            for label, members in variants.items()
        }
        r_limit = next(run.task.get("r_limit") for run in runs if run.task["name"] == task)
        draw_returns(panel, on_task, styles, r_limit, title=task)
        panel.set_xlim(left=0)
        where = {"loc": "upper left", "bbox_to_anchor": (0, -0.16)}
        panel.legend(
            **where, ncols=2, fontsize=TEXT, frameon=False, labelcolor=INK, handlelength=2.8
        )
    figure.savefig(path, dpi=200)


def group_by_variant(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs that differ in their seed alone (and in their task), by a name such as `pac4sac,
    xi=0.1`."""
    settings, groups = varying_settings(runs), defaultdict[str, list[RunRecord]](list)
    for run in runs:
        own = assignments({name: run.config[name] for name in settings if name in run.config})
        groups[", ".join([run.algo, *own])].append(run)
    return groups


def learning_figure(variants: Sequence[Variant]) -> Figure:
    """Left the returns of training episodes, right the fraction of runs that are solved."""
    task = variants[0].task
    shows_solved = task.r_limit is not None and task.e_max is not None
    figure, panels = new_figure(f"Learning curves on {task.title}", 2 if shows_solved else 1)
    draw_variants(panels[0], variants, title="Mean of the seeds, with its 95 % interval")
    if shows_solved:
        middle = (len(variants) - 1) / 2
        solved = [
            (v.style, _draw_solved(panels[1], v, place - middle))
            for place, v in enumerate(variants)
        ]
        finish_panel(
            panels[1],
            "training episodes",
            "fraction of runs solved",
            "Runs solved; right, with 95 % intervals",
        )
        panels[1].set_ylim(-0.03, 1.03)
        panels[1].yaxis.set_major_formatter(PercentFormatter(1))
        draw_ends(panels[1], task.e_max or 1, [(style, end) for style, end in solved if end])
    add_legend(figure, panels[0])
    return figure


def overview_figure(tasks: Mapping[str, Sequence[Variant]]) -> Figure:
    """A small panel for each task."""
    rows = -(-len(tasks) // 2)
    columns = min(2, len(tasks))
    figure, panels = new_figure(
        "Learning curves by task", len(tasks), DOUBLE, 0.7 + 1.9 * rows, columns
    )
    for panel, (title, variants) in zip(panels, tasks.items(), strict=True):
        draw_variants(panel, variants, title=title, count=False)
    fullest = max(panels, key=lambda panel: len(panel.get_legend_handles_labels()[1]))
    add_legend(figure, fullest)
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
    """Of each variant, by its label."""
    window = (
        1
        + max((len(run.episodes) for members in runs.values() for run in members), default=0) // 100
    )
    lines = sum(bool(run.episodes) for members in runs.values() for run in members) <= THIN_LINES
    for label, members in runs.items():
        if members:
            _draw_variant(panel, members, window, styles[label], lines=lines, count=count)
    if r_limit is not None:
        panel.axhline(r_limit, **DASHED)
        where = {"xy": (0, r_limit), "xycoords": ("axes fraction", "data"), "xytext": (3, 2)}
        panel.annotate(
            f"solved above {r_limit:g}",
            **where,
            textcoords="offset points",
            color=FAINT,
            fontsize=SMALL - 0.5,
        )
    finish_over_steps(
        panel, "return of an episode" + (f", mean of {window}" if window > 1 else ""), title
    )


def _draw_variant(
    panel: Any, runs: Sequence[RunRecord], window: int, style: Style, *, lines: bool, count: bool
) -> None:
    # A run cut short by failure would cut the mean short for all; it is drawn, crossed out and
    # counted instead.
    started = [run for run in runs if run.episodes]
    broken = [run for run in started if run.status in BROKEN_OFF]
    averaged = _averaged(started)
    for run in started if lines and len(started) > 1 else broken:
        _draw_run(panel, run, window, style)
    for run in broken:
        end = smooth(run.returns, window)[-1:]
        panel.plot(run.steps[-1:], end, "x", color=style.colour, markersize=5, markeredgewidth=1.4)
    notes = [count_seeds(len(runs))]
    if broken:
        notes.append(f"{len(broken)} broke off")
    if under_way := len(started) - len(broken) - len(averaged):
        notes.append(f"{under_way} under way")
    label = f"{style.name} ({', '.join(notes)})" if count else style.name
    draw_mean(panel, mean_curve(averaged, window), label, style)


def _averaged(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the finished runs, or if none is, those that did not break off."""
    finished = [run for run in runs if run.status == "finished"]
    return finished or [run for run in runs if run.status not in BROKEN_OFF]


def _draw_run(panel: Any, run: RunRecord, window: int, style: Style) -> None:
    """Draw a thin line. Each point is the mean of `window` episodes, so one in `window` has all."""
    ends = slice((len(run.episodes) - 1) % window, None, window)
    returns = smooth(run.returns, window)[ends]
    panel.plot(run.steps[ends], returns, color=style.colour, linewidth=0.5, alpha=0.5)


def count_seeds(n: int) -> str:
    return f"{n} seed{'' if n == 1 else 's'}"


def draw_mean(panel: Any, curve: Band | None, label: str, style: Style) -> None:
    """Without a curve the legend has the label all the same."""
    steps, mean, low, high = curve or (np.empty(0),) * 4
    if np.isfinite(low).any():
        panel.fill_between(steps, low, high, color=style.colour, alpha=0.16, linewidth=0)
    panel.plot(steps, mean, **stroke(style), linewidth=1.5, label=drawn(label))


def smooth(returns: Floats, window: int) -> Floats:
    """Mean of each return and those before it, `window` in all, fewer at the start."""
    counts = np.minimum(np.arange(1, len(returns) + 1), window)
    return np.asarray(np.convolve(returns, np.ones(window))[: len(returns)] / counts)


def mean_curve(runs: Sequence[RunRecord], window: int = 1) -> Band | None:
    """Steps, mean return and its bootstrap 95 % interval (NaN below three seeds), where all runs
    have data.

    Returns are interpolated between episode ends, which changes nothing where all episodes end
    together."""
    if not runs or not all(run.episodes for run in runs):
        return None
    start, end = max(run.steps[0] for run in runs), min(run.steps[-1] for run in runs)
    grid = np.unique(np.concatenate([run.steps for run in runs]))
    grid = grid[(grid >= start) & (grid <= end)].astype(np.float64)
    grid = (
        grid[np.unique(np.linspace(0, len(grid) - 1, POINTS).round().astype(int))]
        if len(grid) > POINTS
        else grid
    )
    return grid, *band_of(
        np.stack([np.interp(grid, run.steps, smooth(run.returns, window)) for run in runs])
    )


def band_of(curves: Floats) -> tuple[Floats, Floats, Floats]:
    """The mean of curves of shape [seeds, steps] with the ends of its interval: within what the
    seeds reached."""
    if len(curves) >= FEWEST_FOR_INTERVAL and curves.size:
        return bootstrap_band([curves])
    return curves.mean(0), *(np.full(curves.shape[1:], np.nan),) * 2


def _draw_solved(panel: Any, variant: Variant, place: float) -> Estimate | None:
    """The fraction that it comes to, where that is known."""
    e_max, r_limit = variant.task.e_max or 0, variant.task.r_limit or 0.0
    solved = [
        solved_at(o.run.record.returns[:e_max], r_limit)
        for o in (*variant.judged, *variant.under_way)
    ]
    if not solved:
        return None
    until = e_max
    # as far as all of them are known; the last episodes may yet be the first of five
    if variant.under_way:
        until = max(
            0, min(len(outcome.run.record.episodes) for outcome in variant.under_way) - STREAK
        )
    episodes, fractions = solved_fraction_curve(solved, until)
    apart = 0.006 * place  # so that lines of the same fraction are all seen
    panel.step(
        episodes,
        [f.value + apart for f in fractions],
        where="post",
        **stroke(variant.style),
        linewidth=1.5,
    )
    return None if variant.under_way or len(solved) < 2 else fractions[-1]


# --- bytes


def to_svg(figure: Figure, name: str) -> str:
    out = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    # settled by now; to find it again would take as long as to draw
    figure.set_layout_engine("none")
    # A tenth of a point is finer than a screen, and a curve of many points half as long; the dots
    # of markers need more.
    return re.sub(r"(?<= d=\")[^\"]+|(?<=\")translate[^\"]+", _coarse, out.getvalue().decode())


def _coarse(path: re.Match[str]) -> str:
    digits = 2 if "C" in path[0] else 1
    numbers = re.sub(
        r"-?\d+\.\d{2,}",
        lambda number: f"{float(number[0]):.{digits}f}".removesuffix(".0"),
        path[0],
    )
    return re.sub(r"\s+", " ", numbers).strip()


def opaque(svg: str) -> str:
    """For a file: dark text would not be seen on the dark page of a reader who likes it so."""
    return re.sub(
        r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="#ffffff"/>', svg, count=1
    )


def to_pdf(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="pdf", metadata={"CreationDate": None})
    return out.getvalue()


def inline_svg(svg: str, caption: str) -> str:
    """For a page: without what belongs to a file, ids that repeat, and with colours that the page's
    theme decides."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[a-zA-Z0-9.]+_\d+">', "<g>", svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    series = [(colour, f"series-{place}") for place, colour in enumerate(COLOURS)]
    for colour, variable in (
        (INK, "ink"),
        (FAINT, "faint"),
        (GRID, "grid"),
        ("#ffffff", "paper"),
        *series,
    ):
        svg = svg.replace(colour, f"var(--{variable})")
    width = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    widest = round(1.9 * float(width[1])) if width else 1000  # text then has the size of the page's
    style = f'role="img" aria-label="{html.escape(caption)}" style="max-width: {widest}px"'
    return svg.replace("<svg ", f"<svg {style} ", 1).strip()
