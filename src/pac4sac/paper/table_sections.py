"""Sections that compare our numbers with the paper's: Tables 1 and 2, the shooting figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pac4sac.paper.numbers import MEDIANS, SEEDS, TASKS, TEXTS
from pac4sac.paper.rows import PaperTable
from pac4sac.paper.verdicts import NOT_COMPARABLE, Verdict, compare_cell, tally
from pac4sac.report.figures import INK, add_legend, finish_panel, new_figure
from pac4sac.report.provenance import mixtures
from pac4sac.report.style import KNOWN
from pac4sac.report.tables import (
    Block,
    Cell,
    Column,
    Picture,
    Section,
    Table,
    command,
    data,
    verdict_cell,
    with_ends,
    words,
)
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import Estimate, Summary, interquartile_mean, median, summarise

METRICS = {"regret": ("regret, k", 1000.0), "episodes": ("episodes", 1.0)}  # title, scale
UPPER = (
    "Regret in thousands and episodes until solved, as mean ± std. "
    "In each cell, the upper value is ours"
)
LONG_TITLES = {"regret": "regret, thousands", "episodes": "episodes until solved"}


@dataclass(frozen=True)
class ComparedCell:
    """Compare one cell of a table of the paper with our runs."""

    table: PaperTable
    task: str
    row: str
    metric: str

    @property
    def scale(self) -> float:
        return METRICS[self.metric][1]

    @property
    def paper(self) -> Summary:
        """Return the paper's number."""
        number: Summary = getattr(self.table.printed[self.task][self.row], self.metric)
        return number

    @property
    def variant(self) -> Variant | None:
        """Return our runs."""
        return self.table.variants.get((self.task, self.row))

    @cached_property
    def judged(self) -> Verdict:
        return compare_cell(self.variant, self.metric, self.paper, self.table.free)

    @cached_property
    def values(self) -> list[float]:
        return self.variant.values(self.metric) if self.variant else []

    @cached_property
    def summary(self) -> Summary | None:
        return summarise(self.values) if self.values else None

    @cached_property
    def iqm(self) -> Estimate | None:
        return interquartile_mean([self.values]) if self.values else None

    @property
    def difference(self) -> Estimate | None:
        """Return our mean minus the paper's; None if they are not comparable."""
        if self.summary is None or self.judged.verdict == NOT_COMPARABLE:
            return None
        difference = self.summary.mean - self.paper.mean
        return Estimate(difference, self.judged.low, self.judged.high)

    @property
    def command(self) -> str:
        """Return the shell command that trains our runs."""
        if self.variant:
            return self.variant.command
        return f"pac4sac study run {self.table.name} --tasks {self.task}"

    @property
    def cell(self) -> Cell:
        """Return the displayed cell: ours above the paper's."""
        cell = cell_with_published(self.variant, self.metric, self.paper, self.judged)
        if self.variant is None:
            return cell
        n, runs = len(self.values), len(self.variant.outcomes)
        note = cell.note or (f"{n} of {runs} runs" if n < runs else "")
        note = ", ".join(filter(None, (note, self.variant.code_note)))
        return replace(cell, note=note, hint=f"{cell.hint}; solved: {self.variant.solved_text}")


def cell_with_published(
    variant: Variant | None,
    metric: str,
    paper: Summary | float | None,
    verdict: Verdict,
    measure: Callable[[Sequence[float]], Summary | Estimate] = summarise,
) -> Cell:
    """Return a cell with our number above the paper's, in the same format."""
    shown = Column(metric, lambda numbers: numbers, scale=METRICS[metric][1]).cell
    values, note = variant.shown(metric) if variant else ([], "")
    ours = shown(measure(values) if values else None)
    published = "" if paper is None else f"paper {shown(paper).text}"
    return Cell(
        ours.text, None if note else ours.value, published, verdict.verdict, verdict.reason, note
    )


def table_section(table: PaperTable) -> Section:
    """Return the section on a table of the paper."""
    blocks, compared = compared_blocks(table)
    summary = (
        f"Of the {len(compared)} cells that have a number in the paper, "
        f"{tally(cell.judged.verdict for cell in compared)}."
    )
    return Section(table.name, table.title, [summary, *blocks])


def compared_blocks(table: PaperTable) -> tuple[list[Block], list[ComparedCell]]:
    """Return the blocks of a section and all compared cells."""
    trained = [task for task in table.printed if _is_trained(table, task)]
    cells: dict[tuple[str, str, str], ComparedCell] = {}
    for task in trained:
        for row, metric in product(table.printed[task], METRICS):
            cells[task, row, metric] = ComparedCell(table, task, row, metric)

    def cell(task: str, metric: str, row: str) -> Cell:
        return cells[task, row, metric].cell

    columns = [words(table.head, table.titles.__getitem__)]
    for task, (metric, (head, _)) in product(trained, METRICS.items()):
        columns.append(Column(head, partial(cell, task, metric), group=TASKS[task]))
    compared = list(cells.values())
    blocks = [
        *_not_comparable(compared),
        *_not_trained(table, trained),
        Table(table.name, _caption(table), columns, list(table.titles)),
        *mixtures(table.variants.values()),
        _details(table, compared),
    ]
    return blocks, compared


def _not_comparable(compared: Sequence[ComparedCell]) -> list[Block]:
    """Return the reasons why cells are not comparable; empty if all are."""
    reasons = {cell.judged.reason for cell in compared if cell.judged.verdict == NOT_COMPARABLE}
    return (
        [[f"Some cells are not comparable: {reason}." for reason in sorted(reasons)]]
        if reasons
        else []
    )


def _not_trained(table: PaperTable, trained: Sequence[str]) -> list[Block]:
    """Return a sentence with the tasks without a run and the command that trains them, if any."""
    absent = [task for task in table.printed if task not in trained]
    if not absent:
        return []
    names = ", ".join(TASKS[task] for task in absent)
    resume = f"`pac4sac study run {table.name} --tasks {','.join(absent)}`"
    return [f"These tasks have no runs yet: {names}. To train them, run {resume}."]


def _is_trained(table: PaperTable, task: str) -> bool:
    return any((task, row) in table.variants for row in table.titles)


def _caption(table: PaperTable) -> str:
    counts = [len(variant.outcomes) for variant in table.variants.values()]
    seeds = " to ".join(str(n) for n in dict.fromkeys((min(counts), max(counts))))
    ours = f"{UPPER} ({seeds} seeds)"
    return f"{table.title}. {ours}, and the lower value is the paper's ({SEEDS} seeds)"


def _details(table: PaperTable, compared: Sequence[ComparedCell]) -> Table:
    """Return the table with a row for each cell."""

    def runs(c: ComparedCell) -> Cell:
        return Cell(c.variant.complete_text if c.variant else "0", len(c.values))

    def solved(c: ComparedCell) -> Cell:
        return Cell(c.variant.solved_text, c.variant.solved) if c.variant else Cell()

    scale = attrgetter("scale")
    columns = [
        words("Cell", lambda c: f"{TASKS[c.task]}, {table.titles[c.row]}"),
        words("Verdict", lambda c: verdict_cell(c.judged.verdict)),
        words("Metric", lambda c: METRICS[c.metric][0]),
        data("task", "row", "metric", get=attrgetter("task", "row", "metric")),
        Column("Runs", runs, "complete_runs"),
        data("runs", get=lambda c: len(c.variant.outcomes) if c.variant else 0),
        Column("Solved", solved, "solved"),
        Column("Ours", "summary", ("mean", "sd"), scale=scale),
        Column("IQM [95%]", "iqm", with_ends("iqm"), scale=scale),
        Column("Paper", "paper", ("paper_mean", "paper_sd"), scale=scale),
        Column("Ours − paper [95%]", "difference", scale=scale),
        data("difference_low", "difference_high", get=attrgetter("judged.low", "judged.high")),
        data("verdict", get="judged.verdict"),
        words("Because", "judged.reason", "reason", folded=True),
        command(lambda c: Cell(c.command, c.command), "command"),
    ]
    caption = "All cells, with the CI and command of each"
    return Table(f"{table.name}-details", caption, columns, compared, folded=True)


# --- the shooting figure


def shooting_section(variants: Mapping[int, Variant]) -> Section | None:
    """Return the section on the shooting figure; `variants` are by S."""
    if not variants:
        return None

    def ours(metric: str, shots: int) -> Cell:
        return cell_with_published(
            variants.get(shots), metric, MEDIANS[metric].get(shots), Verdict(), median
        )

    def verdict(metric: str, shots: int) -> Cell:
        judged = compare_cell(variants.get(shots), metric, MEDIANS[metric].get(shots), ("shots",))
        return verdict_cell(judged.verdict, judged.reason)

    def runs(shots: int) -> Cell:
        return Cell(variants[shots].complete_text if shots in variants else "0")

    def repeat(shots: int) -> Cell:
        line = variants[shots].command if shots in variants else "pac4sac study run shooting"
        return Cell(line, line)

    columns = [Column("S", int)]
    for metric, title in LONG_TITLES.items():
        columns.append(Column("verdict", partial(verdict, metric), group=f"median {title}"))
        columns.append(Column("ours [95%]", partial(ours, metric), group=f"median {title}"))
    columns += [Column("Runs", runs), command(repeat)]
    caption = (
        "Regret and episodes on Cartpole Swingup for each number S of candidate actions. The "
        "paper's medians were read from its figure"
    )
    picture = Picture("shooting", caption, partial(shooting_figure, variants))
    table = Table("shooting", "Medians by S", columns, sorted({*variants, *MEDIANS["regret"]}))
    blocks: list[Block] = [TEXTS["shooting"], picture, table, *mixtures(variants.values())]
    return Section("shooting", "Shooting figure", blocks)


def shooting_figure(variants: Mapping[int, Variant]) -> Figure:
    """Draw the paper's figure: regret and episodes by S, our boxes with the paper's medians."""
    figure, panels = new_figure("Cartpole Swingup by the number of candidate actions", 2)
    shots = sorted(variants)
    for panel, (metric, title) in zip(panels, LONG_TITLES.items(), strict=True):
        scale, medians = METRICS[metric][1], MEDIANS[metric]
        _draw_boxes(panel, [np.array(variants[s].values(metric)) / scale for s in shots])
        known = {place: medians[s] / scale for place, s in enumerate(shots) if s in medians}
        panel.plot(
            list(known), list(known.values()), "D", color=INK, markersize=4, label="paper's median"
        )
        ours = "our seeds and their median"
        panel.plot([], [], "s-", color=KNOWN["pac4sac"].colour, fillstyle="none", label=ours)
        finish_panel(panel, "S, candidate actions per step", title)
        panel.set_xticks(range(len(shots)), [str(s) for s in shots])
        panel.set_xlim(-0.6, len(shots) - 0.4)
        panel.set_ylim(bottom=0)
    add_legend(figure, panels[-1])
    return figure


def _draw_boxes(panel: Any, values: Sequence[Any]) -> None:
    """Draw a box for each S that has values, and a dot for each value."""
    colour = KNOWN["pac4sac"].colour
    line = {"color": colour, "linewidth": 1.0}
    style = dict.fromkeys(("boxprops", "whiskerprops", "capprops"), line)
    style["medianprops"] = line | {"linewidth": 2.0}
    drawn = {place: v for place, v in enumerate(values) if len(v)}
    if drawn:
        panel.boxplot(
            list(drawn.values()), positions=list(drawn), widths=0.5, showfliers=False, **style
        )
    for place, v in drawn.items():
        panel.plot(np.full(len(v), place), v, "o", color=colour, alpha=0.5, markersize=3)
