"""How much the limit for "solved" matters: the paper chose its limits after seeing results."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.lib.stride_tricks import sliding_window_view

from pac4sac.base.text import file_name, number
from pac4sac.paper.paper_rows import PaperRows
from pac4sac.report.computing import mixtures
from pac4sac.report.figures import finish_panel, styles
from pac4sac.report.learning_curves import FAINT, INK
from pac4sac.report.tables import Cell, Column, Picture, Section, Table
from pac4sac.report.task_sections import picture_sets
from pac4sac.report.variants import Group
from pac4sac.runs.collection import FoundStudy
from pac4sac.runs.metrics import STREAK, Returns

# As parts of the task's limit, finest where runs end up: a step of a tenth would hide where an order turns round.
DRAWN = tuple(round(0.5 + 0.02 * k, 3) for k in range(20)) + tuple(round(0.9 + 0.005 * k, 3) for k in range(41))
TABLED = (0.5, 0.7, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0, 1.02, 1.04)


def threshold_section(
    groups: Mapping[str, Sequence[Group]], rows: PaperRows, studies: Sequence[FoundStudy]
) -> Section | None:
    blocks: list[Any] = []
    for found in groups.values():
        task = found[0].task
        if not task.r_limit or not task.e_max:
            continue
        results = [group for group in found if group.is_result and group.runs]
        at = {group.label: sweep(group, TABLED) for group in results}
        if not any(values for limits in at.values() for values in limits.values()):
            continue
        name = f"threshold-{file_name(task.title)}"
        what = f"{task.title}: mean episodes until solved as the limit is moved"
        for picture, (members_of, members) in enumerate(picture_sets(results, rows, studies)):
            caption = f"{what}; dashed, the task's own. {members_of}"
            suffix = "" if picture == 0 else f"-{picture + 1}"
            blocks.append(Picture(f"{name}{suffix}", caption, sweep_figure(members)))
        limits = sorted(next(iter(at.values())))
        body = []
        for label, by_limit in at.items():
            means = [sum(by_limit[limit]) / len(by_limit[limit]) if by_limit[limit] else None for limit in limits]
            body.append([Cell(label, label), *(Cell(number(mean), mean) for mean in means)])
        columns = [Column("Variant", numeric=False), *(Column(f"{limit:g}") for limit in limits)]
        blocks += [Table(name, what, columns, body), *mixtures(results)]
    if not blocks:
        return None
    intro = (
        "The paper chose the return that counts as solved after seeing results. An order of variants that holds over "
        "all limits does not hang on that choice; one that turns round, or opens, near the limit does. Runs that were "
        "never solved count as E_max. Where some runs ended too early to tell, there is no value."
    )
    return Section("threshold", "How much the limit for “solved” matters", [intro, *blocks])


def sweep(group: Group, parts: Sequence[float]) -> dict[float, list[float]]:
    """Episodes until solved of each run, by limit; none where a run ended too early to tell, unless it diverged."""
    e_max, r_limit = group.task.e_max, group.task.r_limit
    assert e_max is not None
    assert r_limit is not None
    lowest = [(run, _lowest_in_a_row(run.returns[:e_max])) for run in group.runs]
    found: dict[float, list[float]] = {}
    for limit in (round(r_limit * part, 6) for part in parts):
        told: list[float] = []
        unknown = 0
        for run, lows in lowest:
            above = np.flatnonzero(lows > limit)
            if len(above) or len(run.episodes) >= e_max:
                told.append(float(above[0]) if len(above) else float(e_max))
            else:
                unknown += run.status != "diverged"
        found[limit] = [] if unknown else told
    return found


def _lowest_in_a_row(returns: Returns) -> Any:
    """The least return of each five in a row: the first above a limit is where the run is solved."""
    return sliding_window_view(returns, STREAK).min(-1) if len(returns) >= STREAK else np.empty(0)


def sweep_figure(groups: Sequence[Group]) -> Figure:
    r_limit = groups[0].task.r_limit
    assert r_limit is not None
    figure = Figure(figsize=(7.6, 4.4), layout="constrained")
    panel = figure.subplots()
    look = styles([group.label for group in groups])
    for group in groups:
        colour, line = look[group.label]
        points = [(limit, np.mean(found)) for limit, found in sweep(group, DRAWN).items() if found]
        if points:
            panel.plot(*zip(*points, strict=True), line, color=colour, linewidth=1.8, label=group.label)
    panel.axvline(r_limit, color=FAINT, linewidth=1.2, linestyle=(0, (5, 3)), zorder=1)
    finish_panel(panel, "return that counts as solved", "episodes until solved, mean")
    panel.set_ylim(bottom=0)
    if panel.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower left", ncols=3, fontsize=9, frameon=False, labelcolor=INK)
    return figure
