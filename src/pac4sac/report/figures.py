"""What all figures share: colours, panels and legends; the ranking; and their bytes, the same for the same data."""

import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pac4sac.report.tables import Picture
from pac4sac.runs.statistics import Estimate

# Okabe and Ito's colours, told apart by colour-blind readers too; yellow is left out, it vanishes on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#333333")
LINE_STYLES = ("-", "--", ":")  # each round of the colours takes the next, so 21 variants stay distinct
FIXED_PLACES = {"pac4sac": 0, "sac": 1, "ddpg": 2, "oac": 3}  # the same colour in every figure
INK, FAINT, GRID = "#222222", "#8a8a8a", "#e8e8e8"
DASHED: dict[str, Any] = {"color": FAINT, "linewidth": 1.2, "linestyle": (0, (5, 3)), "zorder": 1}
AT_ONCE = 7  # variants in one picture
T = TypeVar("T")


def new_figure(panels: int, width: float = 10.4, height: float = 4.2) -> tuple[Figure, list[Any]]:
    """A Figure without pyplot keeps no global state, and needs no display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def pictures(
    name: str, sets: Sequence[tuple[str, Sequence[T]]], draw: Callable[[list[T]], Figure], reference: T | None = None
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
    free = [place for place in range(len(known)) if place not in fixed.values()]
    others = [label for label in labels if label not in fixed]
    places = fixed | {label: free[turn % len(free)] for turn, label in enumerate(others)}
    return {label: known[places[label]] for label in labels}


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
    if steps >= 1_000_000:
        return f"{steps / 1_000_000:g}M"
    return f"{steps / 1_000:g}k" if steps >= 1_000 else f"{steps:g}"


def add_legend(figure: Figure, panel: Any, columns: int = 3) -> None:
    """Of what one panel shows, for all of them."""
    handles, labels = panel.get_legend_handles_labels()
    look = {"fontsize": 9, "frameon": False, "labelcolor": INK}
    figure.legend(handles, labels, loc="outside lower left", ncols=columns, **look)


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
    panel.set_yticks(range(len(estimates)), list(reversed(estimates)))
    panel.set_ylim(-0.6, len(estimates) - 0.4)
    return figure


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
    return svg.replace("<svg ", f'<svg role="img" aria-label="{caption}" style="max-width: {widest}px" ', 1).strip()
