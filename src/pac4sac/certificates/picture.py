"""The figure of a certificate: bias along the episode, bounds ÷ measured error, calibration."""

import io
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from pac4sac.base.files import write_whole
from pac4sac.certificates.intervals import NOMINAL
from pac4sac.report.figures import FAINT, GRID, INK, SMALL, TEXT, TITLE, characters, drawn, stroke
from pac4sac.report.style import COLOURS, assign_styles

if TYPE_CHECKING:
    from pac4sac.certificates.bound_rows import BoundRow
    from pac4sac.certificates.certificate import Certificate
    from pac4sac.certificates.fresh_episodes import BiasAlong

GREEN, ORANGE, RED = COLOURS[2], COLOURS[5], COLOURS[1]
LOOK = {  # verdict -> colours of edge and face, and a note for the legend
    "certificate": (GREEN, GREEN, ""),
    "holds here": (ORANGE, ORANGE, ": an assumption fails"),
    "undecided": (ORANGE, "white", ""),
    "broken": (RED, RED, " by the measured error"),
    "vacuous": (FAINT, "white", ""),
}
LINES = {"policy": 0, "shooting": 1}  # index of the dashes; the colour is the algorithm's


def draw(certificate: "Certificate", path: Path) -> None:
    """Write the picture of a certificate as a PNG file."""
    picture = io.BytesIO()
    figure = certificate_figure(certificate)
    figure.savefig(picture, format="png", metadata={"Software": None})
    write_whole(path, picture.getvalue())


def certificate_figure(certificate: "Certificate") -> Figure:
    height = max(4.2, 1.2 + 0.26 * len(certificate.rows))
    figure = Figure(figsize=(9.6, height), dpi=200, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
    left.set_axis_off()
    grid = left.get_subplotspec().subgridspec(2, 1, height_ratios=(1.5, 1))
    panels = figure.add_subplot(grid[0]), figure.add_subplot(grid[1]), right
    for draw_panel, panel in zip(
        (_draw_bias, _draw_calibration, _draw_bounds), panels, strict=True
    ):
        draw_panel(panel, certificate)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(colors=INK, labelsize=SMALL)
        panel.title.set_fontsize(TEXT)
        panel.grid(color=GRID, linewidth=0.6)
        panel.set_axisbelow(True)
    title = drawn(f"Certificate of {certificate.run} on {certificate.task}", characters(9.6, TITLE))
    figure.suptitle(title, color=INK, fontsize=TITLE, weight="bold")
    return figure


def _draw_bias(panel: Any, c: "Certificate") -> None:
    """Draw the bias along the episode as one curve with a band per policy."""
    for along in c.along:
        _draw_bias_of_policy(panel, c, along)
    panel.axhline(0, color=INK, linewidth=1)
    panel.margins(y=0.12)
    panel.set_title(f"Bias of the critic, with {100 * (1 - c.delta):g}% CI")
    panel.set_xlabel("step of the episode", fontsize=TEXT)
    panel.set_ylabel("value − return\n(above 0: overestimated)", fontsize=TEXT)
    look = {"frameon": False, "fontsize": SMALL, "ncols": 2}
    panel.legend(**look, loc="upper left", bbox_to_anchor=(0, -0.26))


def _draw_bias_of_policy(panel: Any, c: "Certificate", along: "BiasAlong") -> None:
    style = replace(assign_styles([c.algo])[c.algo], line=LINES[along.policy])
    middle = [part.value for part in along.bias]
    low = [part.value if part.low is None else part.low for part in along.bias]
    high = [part.value if part.high is None else part.high for part in along.bias]
    name = c.policy_name(along.policy)
    panel.plot(along.step, middle, **stroke(style), label=name, linewidth=1.5)
    panel.fill_between(along.step, low, high, color=style.colour, alpha=0.16, linewidth=0)


def _draw_bounds(panel: Any, c: "Certificate") -> None:
    """Draw each bound divided by the measured error. A bound above 1 holds, and a bound near 1 is
    tight."""
    rows = list(reversed(c.rows))
    ratios = [_ratio(row) for row in rows]
    largest = max(filter(np.isfinite, ratios), default=1)
    far = 10 ** np.ceil(np.log10(largest * 1.01)) * 10  # stands for infinity
    for place, (row, ratio) in enumerate(zip(rows, ratios, strict=True)):
        edge, face, _ = LOOK[row.says]
        shown = min(max(ratio, 1e-3), far)
        marker = "o" if np.isfinite(ratio) else ">"
        panel.plot([1, shown], [place, place], color=edge, linewidth=1.2, alpha=0.6)
        panel.plot(shown, place, marker, markeredgecolor=edge, markerfacecolor=face, ms=5)
    panel.axvline(1, color=INK, linewidth=1)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter(LogFormatter())
    panel.tick_params(which="both", labelsize=SMALL)
    names = [f"{row.name} [{row.data}]\n{row.quantity}" for row in rows]
    panel.set_yticks(range(len(rows)), names)
    _add_legend_of_bounds(panel, {row.says for row in rows})
    panel.set_title("Bound ÷ measured error")


def _ratio(row: "BoundRow") -> float:
    measured = row.measured.value
    return row.value / measured if measured > 0 else np.inf


def _add_legend_of_bounds(panel: Any, verdicts: Collection[str]) -> None:
    """Add a legend with the verdicts that occur."""
    for verdict, (edge, face, meaning) in LOOK.items():
        if verdict in verdicts:
            look = {"markeredgecolor": edge, "markerfacecolor": face, "ms": 5}
            panel.plot([], [], "o", **look, label=verdict + meaning)
    panel.legend(
        frameon=False, fontsize=SMALL, loc="upper right", bbox_to_anchor=(1, -0.06), ncols=3
    )


def _draw_calibration(panel: Any, c: "Certificate") -> None:
    """Draw the share of returns within two standard deviations, with its interval."""
    panel.axvline(NOMINAL, color=INK, linewidth=1, linestyle=(0, (5, 3)))
    calibrations = list(reversed(c.calibration))
    colour = assign_styles([c.algo])[c.algo].colour
    for place, one in enumerate(calibrations):
        panel.barh(place, one.share.value, color=colour, alpha=0.75, height=0.55)
        panel.plot([one.share.low, one.share.high], [place, place], color=INK, linewidth=1.4)
    names = [f"{one.where}\nerror ÷ std: {one.ratio:.3g}" for one in calibrations]
    panel.set_yticks(range(len(calibrations)), names)
    panel.set_xlim(0, 1)
    title = f"Returns within value ± 2 std (dashed: {NOMINAL:.1%})"
    panel.set_title(title if calibrations else "The critic has no standard deviation")
