"""Sections that set our numbers beside the paper's: Tables 1 and 2, the shooting figure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pac4sac.base.text import NOTHING, number
from pac4sac.paper import numbers as paper
from pac4sac.paper.numbers import TEXTS
from pac4sac.paper.paper_rows import ALGORITHMS, TASKS, TERM_TITLES, PaperRows
from pac4sac.paper.verdicts import NOT_COMPARABLE, VERDICTS, Verdict, compare_cell, compare_shooting
from pac4sac.report.figures import COLOURS, add_legend, finish_panel, new_figure
from pac4sac.report.sections import mixtures
from pac4sac.report.tables import (
    Cell,
    Column,
    Picture,
    Section,
    Table,
    command,
    data,
    mean_sd,
    with_ends,
    with_interval,
    words,
)
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import Estimate, interquartile_mean, median, summarise

TITLE_2 = "Table 2: the terms of the critic's loss"
METRICS = {"regret": ("regret, k", 1000.0), "episodes": ("episodes", 1.0)}


class ComparedCell:
    """One cell of a table of the paper."""

    def __init__(
        self, task: str, row: str, metric: str, variant: Variant | None, paper: paper.MeanSd, free: Sequence[str]
    ) -> None:
        self.task, self.row, self.metric, self.variant, self.paper = task, row, metric, variant, paper
        self.judged = compare_cell(variant, metric, paper, free)
        self.values = variant.values(metric) if variant else []
        self.summary = summarise(self.values) if self.values else None
        self.iqm = interquartile_mean([self.values]) if self.values else None
        self.difference = None
        if self.summary and self.judged.verdict != NOT_COMPARABLE:
            self.difference = Estimate(self.summary.mean - paper.mean, self.judged.low, self.judged.high)


def table_section(name: str, rows: PaperRows) -> tuple[Section, list[ComparedCell]] | None:
    """Of `table-1` or `table-2`, with its cells."""
    title, head, titles, printed, variants, free = {
        "table-1": ("Table 1: the four algorithms", "Algorithm", ALGORITHMS, paper.TABLE_1, rows.table_1, ()),
        "table-2": (TITLE_2, "Loss terms", TERM_TITLES, paper.TABLE_2, rows.table_2, ("xi", "conservative")),
    }[name]
    if not variants:
        return None
    blocks, compared = beside_the_paper(name, title, head, titles, printed, variants, free)
    return Section(name, title, [f"Of {count_verdicts(compared)}.", *blocks]), compared


def count_verdicts(compared: Sequence[ComparedCell]) -> str:
    counts = Counter(cell.judged.verdict for cell in compared)
    return f"{len(compared)} cells: " + ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])


def beside_the_paper(
    name: str,
    title: str,
    head: str,
    titles: Mapping[str, str],
    printed: Mapping[str, Mapping[str, paper.PaperCell]],
    variants: Mapping[tuple[str, str], Variant],
    free: Sequence[str],
) -> tuple[list[Any], list[ComparedCell]]:
    """Rows of the paper's tables and ours in their place, by task and row; `name` is that of the study too. `free` are
    settings that make the rows of a table."""
    absent = [task for task in printed if not any((task, row) in variants for row in titles)]
    cells: dict[tuple[str, str, str], ComparedCell] = {}
    for task, rows in printed.items():
        for row, metric in ((row, metric) for row in rows for metric in METRICS if task not in absent):
            theirs = getattr(rows[row], metric)
            cells[row, task, metric] = ComparedCell(task, row, metric, variants.get((task, row)), theirs, free)

    def cell(task: str, metric: str, row: str) -> Cell:
        return _cell(cells[row, task, metric])

    columns = [words(head, titles.__getitem__)]
    for task in (task for task in printed if task not in absent):
        heads = [(metric, metric_title) for metric, (metric_title, _) in METRICS.items()]
        columns += [Column(head, partial(cell, task, metric), group=TASKS[task]) for metric, head in heads]
    caption = (
        f"{title}. Regret in thousands and episodes until solved, mean ± sd, ours "
        f"({_seeds(variants.values())}) above the paper's ({paper.SEEDS})"
    )
    compared = list(cells.values())
    blocks: list[Any] = [Table(name, caption, columns, list(titles)), *mixtures(variants.values())]
    blocks.append(_details_table(name, titles, compared))
    if absent:
        go_on = f"`pac4sac study run {name} --tasks {','.join(absent)}`"
        blocks.insert(0, f"Not trained yet: {', '.join(TASKS[task] for task in absent)}. Train them with {go_on}.")
    if reasons := {c.judged.reason for c in compared if c.judged.verdict == NOT_COMPARABLE}:
        blocks.insert(0, [f"Not comparable: {reason}." for reason in sorted(reasons)])
    return blocks, compared


def _seeds(variants: Iterable[Variant]) -> str:
    counts = sorted({len(variant.outcomes) for variant in variants})
    return f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"


def cell_beside(variant: Variant | None, metric: str, theirs: paper.MeanSd | None, verdict: Verdict | None) -> Cell:
    """Ours above the paper's."""
    scale = METRICS[metric][1]
    values, note = variant.shown(metric) if variant else ([], "")
    summary = summarise(values) if values else None
    printed = f"paper {mean_sd(theirs.summary, scale)}" if theirs else ""
    value = summary.mean if summary and not note else None
    says = (verdict.verdict, verdict.reason) if verdict else ("", "")
    return Cell(mean_sd(summary, scale), value, printed, *says, note)


def _cell(c: ComparedCell) -> Cell:
    cell = cell_beside(c.variant, c.metric, c.paper, c.judged)
    if c.variant is None:
        return cell
    lacking = len(c.values) < len(c.variant.outcomes)
    note = cell.note or (f"{len(c.values)} of {len(c.variant.outcomes)} runs" if lacking else "")
    return replace(cell, note=note, hint=f"{cell.hint}; solved: {c.variant.solved_text}")


def _details_table(name: str, titles: Mapping[str, str], compared: Sequence[ComparedCell]) -> Table:
    def runs_cell(c: ComparedCell) -> Cell:
        return Cell(c.variant.complete_text if c.variant else "0", len(c.values))

    def repeat(c: ComparedCell) -> Cell:
        line = c.variant.command if c.variant else f"pac4sac study run {name} --tasks {c.task}"
        return Cell(line, line)

    def scale(c: ComparedCell) -> float:
        return METRICS[c.metric][1]

    columns = [
        words("Task", lambda c: TASKS[c.task]),
        words("Row", lambda c: titles[c.row]),
        words("Metric", lambda c: METRICS[c.metric][0]),
        data("task", "row", "metric", get=lambda c: (c.task, c.row, c.metric)),
        Column("Runs", runs_cell, "complete_runs"),
        data("runs", get=lambda c: len(c.variant.outcomes) if c.variant else 0),
        Column("Solved", lambda c: Cell(c.variant.solved_text, c.variant.solved) if c.variant else Cell(), "solved"),
        Column("Ours", "summary", ("mean", "sd"), scale=scale),
        Column("IQM [95 %]", "iqm", with_ends("iqm"), scale=scale),
        Column("Paper", "paper.summary", ("paper_mean", "paper_sd"), scale=scale),
        Column("Ours − paper [95 %]", "difference", scale=scale),
        data("difference_low", "difference_high", get=lambda c: (c.judged.low, c.judged.high)),
        words("Verdict", lambda c: Cell("", c.judged.verdict, verdict=c.judged.verdict), "verdict"),
        words("Because", "judged.reason", "reason"),
        command(repeat, "command"),
    ]
    caption = "Every cell with its interval and the command that repeats it"
    return Table(f"{name}-details", caption, columns, compared, folded=True)


# --- the shooting figure


def shooting_section(rows: PaperRows) -> Section | None:
    if not rows.shooting:
        return None

    def ours(metric: str, shots: int) -> Cell:
        scale, theirs = METRICS[metric][1], paper.MEDIANS[metric].get(shots)
        values, note = rows.shooting[shots].shown(metric) if shots in rows.shooting else ([], "")
        estimate = median(values) if values else None
        printed = "" if theirs is None else f"paper {number(theirs, scale)}"
        value = estimate.value if estimate and not note else None
        return Cell(with_interval(estimate, scale), value, printed, note=note)

    def verdict(metric: str, shots: int) -> Cell:
        judged = compare_shooting(rows.shooting.get(shots), metric, paper.MEDIANS[metric].get(shots))
        return Cell("", judged.verdict, verdict=judged.verdict, hint=judged.reason) if judged else Cell(NOTHING, "")

    def runs(shots: int) -> Cell:
        return Cell(rows.shooting[shots].complete_text if shots in rows.shooting else "0")

    def repeat(shots: int) -> Cell:
        line = rows.shooting[shots].command if shots in rows.shooting else "pac4sac study run shooting"
        return Cell(line, line)

    columns = [Column("S", int), Column("Runs", runs)]
    for metric, group in {"regret": "median regret, thousands", "episodes": "median episodes until solved"}.items():
        columns.append(Column("ours [95 %]", partial(ours, metric), group=group))
        columns.append(Column("verdict", partial(verdict, metric), group=group))
    caption = "Cartpole Swingup by the number of candidate actions; the paper's medians are read off its figure"
    picture = Picture("shooting", caption, lambda: shooting_figure(rows.shooting))
    shots_of_rows = sorted({*rows.shooting, *paper.MEDIANS["regret"]})
    table = Table("shooting", "Medians by S", [*columns, command(repeat)], shots_of_rows)
    blocks = [TEXTS["shooting"], picture, table, *mixtures(rows.shooting.values())]
    return Section("shooting", "Shooting figure", blocks)


def shooting_figure(variants: Mapping[int, Variant]) -> Figure:
    """The paper's figure: regret and episodes by the number of shots, our boxes with the paper's medians."""
    figure, panels = new_figure(2, 10.4, 3.8)
    shots = sorted(variants)
    line = {"color": COLOURS[0], "linewidth": 1.4}
    box = {"boxprops": line, "whiskerprops": line, "capprops": line, "medianprops": line | {"linewidth": 2.6}}
    titles = {"regret": "regret, thousands", "episodes": "episodes until solved"}
    for panel, (metric, title) in zip(panels, titles.items(), strict=True):
        scale = METRICS[metric][1]
        values = [(place, np.array(variants[s].values(metric)) / scale) for place, s in enumerate(shots)]
        drawn = {place: v for place, v in values if len(v)}
        if drawn:
            panel.boxplot(list(drawn.values()), positions=list(drawn), widths=0.5, showfliers=False, **box)
        for place, v in drawn.items():
            panel.plot(np.full(len(v), place), v, "o", color=COLOURS[0], alpha=0.5, markersize=4)
        medians = paper.MEDIANS[metric]
        known = [(place, medians[s] / scale) for place, s in enumerate(shots) if s in medians]
        theirs = {"color": COLOURS[1], "markersize": 6, "label": "paper's median"}
        panel.plot([place for place, _ in known], [value for _, value in known], "D", **theirs)
        panel.plot([], [], "s-", color=COLOURS[0], fillstyle="none", label="ours: box of the seeds, bar at the median")
        finish_panel(panel, "S, candidate actions per step", title)
        panel.set_xticks(range(len(shots)), [str(s) for s in shots])
        panel.set_xlim(-0.6, len(shots) - 0.4)
        panel.set_ylim(bottom=0)
    add_legend(figure, panels[-1], columns=2)
    return figure
