"""Sizes, styles and parts that all figures share; the same data give the same bytes.

Styles of algorithms are in `style.py`."""

import html
import io
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from pac4sac.report.style import COLOURS, Style
from pac4sac.report.tables import Picture
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import Estimate, bootstrap_band

SINGLE, DOUBLE = 3.3, 6.8  # inches: one column of a paper, and two
SMALL, TEXT, TITLE = 6.5, 7.5, 9.0  # points
INK, FAINT, GRID = "#222222", "#8a8a8a", "#e8e8e8"
DASHED: dict[str, Any] = {"color": FAINT, "linewidth": 0.9, "linestyle": (0, (5, 3)), "zorder": 1}
AT_ONCE = 6  # variants in one figure
USUAL_LEGEND = 0.5  # inches of height
CHARACTER = 0.62  # mean width of a character ÷ font size
MARKS = 5  # markers on a curve
ON_A_PAGE = 1.9  # magnification that gives text the page's size
FEWEST_FOR_INTERVAL = 3  # seeds
Floats = NDArray[np.float64]
Band = tuple[Floats, Floats, Floats, Floats]  # steps, mean, and the ends of its interval
Draw = Callable[[list[Variant]], Figure]


def new_figure(
    title: str, panels: int, width: float = DOUBLE, height: float = 2.9, columns: int | None = None
) -> tuple[Figure, list[Any]]:
    """Return a figure with its panels. It avoids pyplot and so needs no display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    shown = drawn(title, characters(width, 1.1 * TITLE))
    figure.suptitle(shown, x=0.01, ha="left", color=INK, fontsize=TITLE, fontweight="bold")
    columns = columns or panels
    grid = figure.subplots(-(-panels // columns), columns, squeeze=False).flatten()
    for unused in grid[panels:]:
        unused.set_axis_off()
    return figure, list(grid[:panels])


def drawn(name: str, width: int | None = None) -> str:
    """Escape a name so that matplotlib draws it literally: not as a formula, nor hidden from
    legends.

    A `width` in characters breaks it into lines.
    """
    shown = "".join(c if c.isprintable() else " " for c in name)
    if width is not None:
        shown = textwrap.fill(shown, width)
    shown = shown.replace("$", r"\$")
    return f"\u200b{shown}" if shown.startswith("_") else shown


def characters(inches: float, size: float) -> int:
    """Return the number of characters of a font size that fit into a width."""
    return max(8, int(72 * inches / (CHARACTER * size)))


def pictures(
    name: str,
    sets: Sequence[tuple[str, Sequence[Variant]]],
    draw: Draw,
    companion: Variant | None = None,
    *,
    is_detail: bool = False,
) -> list[Picture]:
    """Return figures with captions, a few variants in each and the companion in all."""
    drawn: list[Picture] = []
    for caption, members in sets:
        first = [companion] if companion and companion not in members else []
        size = AT_ONCE - len(first)
        for start in range(0, len(members), size):
            shown = [*first, *members[start : start + size]]
            suffix = f"-{len(drawn) + 1}" if drawn else ""
            drawn.append(Picture(name + suffix, caption, partial(draw, shown), is_detail))
    return drawn


def stroke(style: Style) -> dict[str, Any]:
    """Return the options of matplotlib for the lines of an algorithm."""
    return {"color": style.colour, "linestyle": (0, style.dashes) if style.dashes else "-"}


def curve_look(style: Style, points: int) -> dict[str, Any]:
    """Return the options for a curve: its line, and a few markers that distinguish it in
    greyscale."""
    every = max(1, points // MARKS)
    first = every * style.place // len(COLOURS)
    look = {"linewidth": 1.5, "markersize": 3.2, "markevery": (first, every)}
    return {**mark(style), **stroke(style), **look}


def mark(style: Style) -> dict[str, Any]:
    """Return the options for the dots of an algorithm, hollow if its lines are dashed."""
    return {
        "color": style.colour,
        "marker": style.marker,
        "markerfacecolor": "white" if style.dashes else style.colour,
        "markersize": 4.5,
        "linestyle": "none",
    }


def finish_panel(panel: Any, x: str, y: str, title: str = "") -> None:
    columns, rows = panel.get_gridspec().ncols, panel.get_gridspec().nrows
    width, height = panel.figure.get_figwidth() / columns, panel.figure.get_figheight() / rows
    panel.set_xlabel(x, color=INK, fontsize=TEXT)
    panel.set_ylabel(drawn(y, characters(0.55 * height, TEXT)), color=INK, fontsize=TEXT)
    shown = drawn(title, characters(0.9 * width, TEXT))
    panel.set_title(shown, loc="left", color=INK, fontsize=TEXT)
    panel.margins(x=0.02, y=0.08)
    ticks = 6 if panel.figure.get_figwidth() > SINGLE else 3
    panel.xaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(FAINT)
    panel.tick_params(which="both", color=FAINT, labelcolor=INK, labelsize=SMALL)
    panel.grid(axis="y", color=GRID, linewidth=0.6)
    panel.set_axisbelow(True)


def finish_over_steps(panel: Any, y: str, title: str = "") -> None:
    finish_panel(panel, "environment steps", y, title)
    panel.xaxis.set_major_formatter(FuncFormatter(short_count))


def short_count(steps: float, _position: int) -> str:
    """Return a number of steps such as 200k or 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if steps >= size:
            return f"{steps / size:g}{letter}"
    return f"{steps:g}"


def add_legend(figure: Figure, *panels: Any) -> None:
    """Add a legend of all panels below the figure, in as many columns as its width allows."""
    handles: dict[str, Any] = {}
    for panel in panels:
        handles |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    if not handles:
        return
    longest = characters(0.85 * figure.get_figwidth(), SMALL)
    labels = [textwrap.fill(label, longest) for label in handles]
    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    style = {"fontsize": SMALL, "frameon": False, "labelcolor": INK, "handlelength": 2.8}
    for columns in (3, 2, 1):
        legend = figure.legend(
            list(handles.values()), labels, loc="outside lower left", ncols=columns, **style
        )
        box = legend.get_window_extent(renderer)
        if box.width <= figure.bbox.width or columns == 1:
            break
        legend.remove()
    # A long legend makes the figure taller instead of shrinking its panels.
    figure.set_figheight(figure.get_figheight() + max(0, box.height / figure.dpi - USUAL_LEGEND))


def draw_ends(panel: Any, end: float, ends: Sequence[tuple[Style, Estimate]]) -> None:
    """Draw the final value and interval of each curve at the right, because bands overlap."""
    for place, (style, estimate) in enumerate(ends):
        x = end * (1.05 + 0.035 * place)
        if estimate.low is not None and estimate.high is not None:
            panel.plot([x, x], [estimate.low, estimate.high], color=style.colour, linewidth=1.2)
        panel.plot([x], [estimate.value], **mark(style))
    right = end * (1.05 + 0.035 * len(ends))
    panel.axvspan(end * 1.02, right, color=GRID, alpha=0.5, linewidth=0, zorder=0)
    panel.set_xlim(0, right)
    ticks = panel.xaxis.get_major_locator().tick_values(0, end)
    panel.set_xticks([tick for tick in ticks if 0 <= tick <= end])


def count_seeds(n: int) -> str:
    return f"{n} seed{'' if n == 1 else 's'}"


def draw_mean(panel: Any, curve: Band | None, label: str, style: Style) -> None:
    """Draw a curve with its band; without a curve, only add the label to the legend."""
    steps, mean, low, high = curve or (np.empty(0),) * 4
    if np.isfinite(low).any():
        panel.fill_between(steps, low, high, color=style.colour, alpha=0.16, linewidth=0)
    panel.plot(steps, mean, **curve_look(style, len(steps)), label=drawn(label))


def band_of(curves: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the mean of curves [seeds, steps] with the ends of its interval; NaN for few seeds."""
    if len(curves) >= FEWEST_FOR_INTERVAL and curves.size:
        return bootstrap_band([curves])
    unknown: Floats = np.full(curves.shape[1:], np.nan)
    return np.asarray(curves.mean(0)), unknown, unknown


# --- bytes


def to_svg(figure: Figure, name: str) -> str:
    out = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    # The layout is final here; computing it again would take as long as drawing.
    figure.set_layout_engine("none")
    # A tenth of a point is finer than a screen and halves long curves; markers need more digits.
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
    """Return a drawing for a file, with a white background, because dark pages would hide its text.

    A drawing as narrow as one column of a paper is magnified.
    """
    svg = re.sub(
        r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="#ffffff"/>', svg, count=1
    )
    width = re.search(r' width="([\d.]+)pt"', svg)
    if width is None or float(width[1]) > 72 * SINGLE:
        return svg
    return re.sub(r'( (?:width|height)=")([\d.]+)(?=pt")', _magnified, svg, count=2)


def _magnified(size: re.Match[str]) -> str:
    return f"{size[1]}{ON_A_PAGE * float(size[2]):.1f}"


def to_pdf(figure: Figure) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="pdf", metadata={"CreationDate": None})
    return out.getvalue()


def inline_svg(svg: str, caption: str) -> str:
    """Return a drawing to inline in a page: no XML header, no ids, and colours from the theme."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[a-zA-Z0-9.]+_\d+">', "<g>", svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    variables = {INK: "ink", FAINT: "faint", GRID: "grid", "#ffffff": "paper"}
    variables |= {colour: f"series-{place}" for place, colour in enumerate(COLOURS)}
    for colour, variable in variables.items():
        svg = svg.replace(colour, f"var(--{variable})")
    width = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    widest = round(ON_A_PAGE * float(width[1])) if width else 1000
    style = f'role="img" aria-label="{html.escape(caption)}" style="max-width: {widest}px"'
    return svg.replace("<svg ", f"<svg {style} ", 1).strip()
