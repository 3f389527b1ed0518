"""The figures of a report, and their bytes, which are the same for the same data."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from pac4sac.paper.numbers import SHOOTING
from pac4sac.report.learning_curves import COLOURS, FAINT, INK, LINE_STYLES, draw_variant, short_count
from pac4sac.report.variants import Group
from pac4sac.runs.metrics import STREAK, solved_at
from pac4sac.runs.statistics import Estimate, solved_fraction_curve

GRID = "#e8e8e8"
PAPER_COLOUR = COLOURS[1]
FIXED_PLACES = {"pac4sac": 0, "sac": 1, "ddpg": 2, "oac": 3}  # the same colour in every figure
AT_ONCE = 7  # variants in one picture
BARS = 4  # intervals drawn along a curve of solved runs
Style = tuple[str, str]  # colour and line


def styles(labels: Sequence[str]) -> dict[str, Style]:
    known = [(colour, line) for line in LINE_STYLES for colour in COLOURS]
    fixed = {label: FIXED_PLACES[label] for label in labels if label in FIXED_PLACES}
    free = [place for place in range(len(known)) if place not in fixed.values()]
    chosen, turn = {}, 0
    for label in labels:
        if label in fixed:
            chosen[label] = known[fixed[label]]
        else:
            chosen[label] = known[free[turn % len(free)]]
            turn += 1
    return chosen


def learning_figure(groups: Sequence[Group]) -> Figure:
    """Left the returns of training episodes, right the fraction of runs that are solved."""
    task = groups[0].task
    shows_solved = task.r_limit is not None and task.e_max is not None
    figure = Figure(figsize=(10.4 if shows_solved else 6.4, 4.2), layout="constrained")
    panels = figure.subplots(1, 2 if shows_solved else 1, squeeze=False)[0]
    window = 1 + max((len(run.episodes) for group in groups for run in group.runs), default=0) // 100
    look = styles([group.label for group in groups])
    for group in groups:
        draw_variant(panels[0], group.label, group.runs, window, *look[group.label])
    if task.r_limit is not None:
        panels[0].axhline(task.r_limit, color=FAINT, linewidth=1.2, linestyle=(0, (5, 3)), zorder=1)
    smoothed = f", mean of {window}" if window > 1 else ""
    finish_panel(panels[0], "environment steps", f"return of a training episode{smoothed}")
    panels[0].xaxis.set_major_formatter(FuncFormatter(short_count))
    if shows_solved:
        for place, group in enumerate(groups):
            _draw_solved(panels[1], group, place / len(groups), *look[group.label])
        finish_panel(panels[1], "episodes", "fraction of runs solved")
        panels[1].set_ylim(-0.03, 1.03)
        panels[1].yaxis.set_major_formatter(PercentFormatter(1))
        panels[1].set_xlim(0, task.e_max)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=3, fontsize=9, frameon=False, labelcolor=INK)
    return figure


def _draw_solved(panel: Any, group: Group, shift: float, colour: str, line: str) -> None:
    e_max, r_limit = group.task.e_max, group.task.r_limit
    assert e_max is not None
    assert r_limit is not None
    known = [*group.judged, *group.under_way]
    if not known:
        return
    solved = [solved_at(outcome.run.record.returns[:e_max], r_limit) for outcome in known]
    until = e_max
    if group.under_way:  # as far as all of them are known; the last episodes may yet be the first of five
        until = max(0, min(len(outcome.run.record.episodes) for outcome in group.under_way) - STREAK)
    episodes, fractions = solved_fraction_curve(solved, until)
    # Bands of several variants would hide one another: bars at a few places, side by side.
    places = {round(e_max * (k + 0.45 + 0.35 * shift) / BARS) for k in range(BARS)}
    for x in sorted(places):
        if len(solved) > 1 and x <= until:
            panel.plot([x, x], [fractions[x].low, fractions[x].high], "-", color=colour, alpha=0.55, linewidth=1.6)
            panel.plot([x], [fractions[x].value], "o", color=colour, markersize=4)
    panel.step(episodes, [f.value for f in fractions], line, where="post", color=colour, linewidth=2.2)


def shooting_figure(groups: Mapping[int, Group]) -> Figure:
    """The paper's figure: regret and episodes by the number of shots, our boxes with the paper's medians."""
    figure = Figure(figsize=(10.4, 3.8), layout="constrained")
    shots = sorted(groups)
    for panel, metric, scale, title in zip(
        figure.subplots(1, 2), ("regret", "episodes"), (1000, 1), ("regret, thousands", "episodes until solved"),
        strict=True,
    ):  # fmt: skip
        values = [np.array(groups[s].values(metric)) / scale for s in shots]
        drawn = [(place, v) for place, v in enumerate(values) if len(v)]
        line = {"color": COLOURS[0], "linewidth": 1.4}
        if drawn:
            panel.boxplot(
                [v for _, v in drawn], positions=[place for place, _ in drawn], widths=0.5, showfliers=False,
                boxprops=line, whiskerprops=line, capprops=line, medianprops=line | {"linewidth": 2.6},
            )  # fmt: skip
        for place, v in drawn:
            panel.plot(np.full(len(v), place), v, "o", color=COLOURS[0], alpha=0.5, markersize=4)
        told = [(place, SHOOTING[s]) for place, s in enumerate(shots) if s in SHOOTING]
        medians = [getattr(box, f"median_{metric}") / scale for _, box in told]
        panel.plot([place for place, _ in told], medians, "D", color=PAPER_COLOUR, markersize=6, label="paper's median")
        panel.plot([], [], "s-", color=COLOURS[0], fillstyle="none", label="ours: box of the seeds, bar at the median")
        finish_panel(panel, "S, candidate actions per step", title)
        panel.set_xticks(range(len(shots)), [str(s) for s in shots])
        panel.set_xlim(-0.6, len(shots) - 0.4)
        panel.set_ylim(bottom=0)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower left", ncols=2, fontsize=9, frameon=False,
                  labelcolor=INK)  # fmt: skip
    return figure


def ranking_figure(estimates: dict[str, Estimate], baseline: str, unit: str, scale: float) -> Figure:
    """A dot with its interval for each variant, the best on top."""
    figure = Figure(figsize=(6.8, 0.9 + 0.32 * len(estimates)), layout="constrained")
    panel = figure.subplots()
    for place, (label, found) in enumerate(reversed(estimates.items())):
        colour = COLOURS[1] if label == baseline else COLOURS[0]
        if found.low is not None and found.high is not None:
            panel.plot([found.low / scale, found.high / scale], [place, place], "-", color=colour, linewidth=2)
        panel.plot([found.value / scale], [place], "o", color=colour, markersize=6)
        if label == baseline:
            panel.axvline(found.value / scale, color=FAINT, linewidth=1, linestyle=(0, (5, 3)), zorder=1)
    finish_panel(panel, unit, "")
    panel.set_yticks(range(len(estimates)), list(reversed(estimates)))
    panel.set_ylim(-0.6, len(estimates) - 0.4)
    return figure


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
    for colour, variable in ((INK, "ink"), (FAINT, "faint"), (GRID, "grid"), *_series()):
        svg = svg.replace(colour.lower(), f"var(--{variable})")
    found = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    widest = round(1.4 * float(found[1])) if found else 1000  # text then has the size of the page's
    return svg.replace("<svg ", f'<svg role="img" aria-label="{caption}" style="max-width: {widest}px" ', 1).strip()


def _series() -> list[tuple[str, str]]:
    return [(colour, f"series-{place}") for place, colour in enumerate(COLOURS)]
