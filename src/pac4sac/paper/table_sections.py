"""Sections that set our numbers beside the paper's: Tables 1 and 2, the shooting figure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pac4sac.base.text import NOTHING, number, setting_text
from pac4sac.paper import numbers as paper
from pac4sac.paper import verdicts as comparison
from pac4sac.paper.paper_rows import ALGORITHMS, TASKS, PaperRows
from pac4sac.paper.verdicts import Comparison
from pac4sac.report.computing import mixtures
from pac4sac.report.figures import shooting_figure
from pac4sac.report.tables import Cell, Column, Listing, Picture, Section, Table, mean_sd
from pac4sac.report.tables import with_interval as text
from pac4sac.report.variants import Group
from pac4sac.runs.statistics import Estimate, Summary, interquartile_mean, median, summarise

TERM_TITLES = {
    "bellman": "Bellman",
    "bellman+conservative": "Bellman + conservative",
    "bellman+exploration": "Bellman + exploration",
    "bellman+conservative+exploration": "all three (PAC4SAC)",
}
METRICS = {"regret": ("regret, k", 1000.0), "episodes": ("episodes", 1.0)}
FREE = {1: (), 2: ("xi", "conservative")}  # settings that make the rows of a table, so no departures there


@dataclass(frozen=True)
class Compared:
    """One cell of a table of the paper."""

    task: str
    row: str
    metric: str
    group: Group | None
    paper: paper.Cell
    found: Comparison

    @property
    def values(self) -> list[float]:
        return self.group.values(self.metric) if self.group else []


def compare_table(
    cells: Mapping[str, Mapping[str, paper.PaperCell]], groups: Mapping[tuple[str, str], Group], free: Sequence[str]
) -> list[Compared]:
    compared = []
    for task, rows in cells.items():
        for row, cell in rows.items():
            group = groups.get((task, row))
            for metric in METRICS:
                printed: paper.Cell = getattr(cell, metric)
                found = compare_cell(group, metric, printed, free)
                compared.append(Compared(task, row, metric, group, printed, found))
    return compared


def compare_cell(group: Group | None, metric: str, printed: paper.Cell, free: Sequence[str]) -> Comparison:
    if group is None or not (group.judged or group.under_way):
        return Comparison(comparison.NO_DATA, "no complete run")
    if reasons := departures(group, free):
        return Comparison(comparison.NOT_COMPARABLE, "not the paper's setting: " + ", ".join(reasons))
    if group.under_way:
        return Comparison(comparison.UNFINISHED, unfinished_reason(group))
    e_max = paper.PAPER_TASKS[group.task.name].e_max
    if metric == "episodes" and comparison.is_never_solved(printed, e_max):
        return comparison.compare_solved(group.solved, len(group.judged))
    values = group.values(metric)
    if not values:
        return Comparison(comparison.NO_DATA, "no complete run")
    found = comparison.compare_means(summarise(values), printed)
    diverged = group.count("diverged")
    if diverged and found.verdict in (comparison.REPRODUCED, comparison.BETTER):
        # What a diverged run would have cost is not known, and leaving it out flatters.
        told = f"{diverged} diverged {'run is' if diverged == 1 else 'runs are'} left out of the mean"
        return Comparison(comparison.INCONCLUSIVE, told, found.low, found.high)
    return found


def unfinished_reason(group: Group) -> str:
    return f"{len(group.under_way)} of {len(group.outcomes)} runs are under way"


def departures(group: Group, free: Sequence[str]) -> list[str]:
    changed = {name: value for name, value in group.departures.items() if name not in free}
    return [*group.task.differences, *(f"{name}={setting_text(value)}" for name, value in changed.items())]


def table_section(number_: int, rows: PaperRows) -> tuple[Section, list[Compared]] | None:
    printed = paper.TABLE_1 if number_ == 1 else paper.TABLE_2
    groups = rows.table_1 if number_ == 1 else rows.table_2
    if not groups:
        return None
    titles = ALGORITHMS if number_ == 1 else TERM_TITLES
    title = f"Table {number_}: " + ("the four algorithms" if number_ == 1 else "the terms of the critic's loss")
    head = "Algorithm" if number_ == 1 else "Loss terms"
    blocks, compared = beside_the_paper(f"table-{number_}", title, head, titles, printed, groups, FREE[number_])
    counts = Counter(c.found.verdict for c in compared)
    told = ", ".join(f"{counts[v]} {v}" for v in comparison.VERDICTS if counts[v])
    return Section(f"table-{number_}", title, [f"Of {len(compared)} cells: {told}.", *blocks]), compared


def beside_the_paper(
    name: str,
    title: str,
    head: str,
    titles: Mapping[str, str],
    printed: Mapping[str, Mapping[str, paper.PaperCell]],
    groups: Mapping[tuple[str, str], Group],
    free: Sequence[str],
) -> tuple[list[Any], list[Compared]]:
    """Rows of the paper's tables and ours in their place, by task and row; `name` is that of the study too."""
    absent = [task for task in printed if not any((task, row) in groups for row in titles)]
    printed = {task: cells for task, cells in printed.items() if task not in absent}
    compared = compare_table(printed, groups, free)
    columns = [Column(head, numeric=False)]
    for task in printed:
        columns += [Column(metric, TASKS[task]) for metric, _ in METRICS.values()]
    by_place = {(c.task, c.row, c.metric): c for c in compared}
    body = [
        [
            Cell(titles[row], titles[row]),
            *(_cell(by_place[task, row, metric]) for task in printed for metric in METRICS),
        ]
        for row in titles
    ]
    caption = (
        f"{title}. Regret in thousands and episodes until solved, mean ± sd, ours "
        f"({_seeds(groups.values())}) above the paper's ({paper.SEEDS})"
    )
    main = Table(name, caption, columns, body)
    blocks: list[Any] = [main, *mixtures(groups.values()), details_table(name, titles, compared)]
    if absent:
        names = ", ".join(TASKS[task] for task in absent)
        blocks.insert(
            0, f"Not trained yet: {names}. Train them with `pac4sac study run {name} --tasks {','.join(absent)}`."
        )
    reasons = {c.found.reason for c in compared if c.found.verdict == comparison.NOT_COMPARABLE}
    if reasons:
        blocks.insert(0, Listing([f"Not comparable: {reason}." for reason in sorted(reasons)]))
    return blocks, compared


def _seeds(groups: Iterable[Group]) -> str:
    counts = sorted({len(group.outcomes) for group in groups})
    return f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"


def _cell(c: Compared) -> Cell:
    scale = METRICS[c.metric][1]
    values, note = c.group.shown(c.metric) if c.group else ([], "")
    summary = summarise(values) if values else None
    if c.group and not note and len(values) < len(c.group.outcomes):
        note = f"{len(values)} of {len(c.group.outcomes)} runs"
    solved = f"; solved: {c.group.solved_text}" if c.group else ""
    printed = mean_sd(Summary(paper.SEEDS, c.paper.mean, c.paper.sd), scale)
    return Cell(mean_sd(summary, scale), summary.mean if c.values and summary else None, printed, c.found.verdict,
                c.found.reason + solved, note)  # fmt: skip


def details_table(name: str, titles: Mapping[str, str], compared: Sequence[Compared]) -> Table:
    columns = [
        *(Column(title, numeric=False) for title in ("Task", "Row", "Metric")),
        *(Column(title) for title in ("Runs", "Solved", "Ours", "IQM [95 %]", "Paper", "Ours − paper [95 %]")),
        *(Column(title, numeric=False) for title in ("Verdict", "Because", "Repeat with")),
    ]
    rows, records = [], []
    for c in compared:
        title, scale = METRICS[c.metric]
        values, group = c.values, c.group
        summary = summarise(values) if values else None
        iqm = interquartile_mean([values]) if values else None
        comparable = c.found.verdict != comparison.NOT_COMPARABLE
        difference = summary.mean - c.paper.mean if summary and comparable else None
        interval = Estimate(difference, c.found.low, c.found.high) if difference is not None else None
        command = group.command if group else f"pac4sac study run {name} --tasks {c.task}"
        solved = group.solved_text if group else NOTHING
        runs = f"{len(group.complete)} of {len(group.outcomes)}" if group else "0"
        rows.append(
            [
                Cell(TASKS[c.task], TASKS[c.task]), Cell(titles[c.row], titles[c.row]), Cell(title, title),
                Cell(runs, len(values)), Cell(solved, group.solved if group else None),
                Cell(mean_sd(summary, scale), summary.mean if summary else None),
                Cell(text(iqm, scale), iqm.value if iqm else None),
                Cell(mean_sd(Summary(paper.SEEDS, c.paper.mean, c.paper.sd), scale), c.paper.mean),
                Cell(text(interval, scale), difference),
                Cell("", c.found.verdict, verdict=c.found.verdict), Cell(c.found.reason, c.found.reason),
                Cell(command, command, code=True),
            ]
        )  # fmt: skip
        records.append(
            {
                "task": c.task, "row": c.row, "metric": c.metric, "complete_runs": len(values),
                "runs": len(group.outcomes) if group else 0, "solved": group.solved if group else None,
                "mean": summary.mean if summary else None, "sd": summary.sd if summary else None,
                "iqm": iqm.value if iqm else None, "iqm_low": iqm.low if iqm else None,
                "iqm_high": iqm.high if iqm else None, "paper_mean": c.paper.mean, "paper_sd": c.paper.sd,
                "difference_low": c.found.low, "difference_high": c.found.high, "verdict": c.found.verdict,
                "reason": c.found.reason, "command": command,
            }
        )  # fmt: skip
    return Table(f"{name}-details", "Every cell with its interval and the command that repeats it", columns, rows,
                 records, folded=True)  # fmt: skip


def shooting_section(rows: PaperRows) -> Section | None:
    if not rows.shooting:
        return None
    columns = [
        Column("S"), Column("Runs"),
        *(Column(title, group) for group in ("median regret, thousands", "median episodes until solved")
          for title in ("ours [95 %]", "verdict")),
        Column("Repeat with", numeric=False),
    ]  # fmt: skip
    body = []
    for shots in sorted({*rows.shooting, *paper.SHOOTING}):
        group, box = rows.shooting.get(shots), paper.SHOOTING.get(shots)
        cells = [Cell(str(shots), shots)]
        cells.append(Cell(f"{len(group.complete)} of {len(group.outcomes)}" if group else "0"))
        for metric, scale in (("regret", 1000.0), ("episodes", 1.0)):
            values, note = group.shown(metric) if group else ([], "")
            found = median(values) if values else None
            printed = getattr(box, f"median_{metric}") if box else None
            verdict, reason = _median_verdict(group, values, printed)
            theirs = number(printed, scale) if box else ""
            cells.append(Cell(text(found, scale), found.value if found and not note else None, theirs, note=note))
            cells.append(Cell("" if verdict else NOTHING, verdict, verdict=verdict, hint=reason))
        command = group.command if group else "pac4sac study run shooting"
        body.append([*cells, Cell(command, command, code=True)])
    caption = "Cartpole Swingup by the number of candidate actions; the paper's medians are read off its figure"
    intro = (
        "The paper's figure shows no spread we could read, so its medians are taken as exact and compared with the "
        "bootstrap interval of ours. They are all above what its Table 1 gives for S = 500 (5.7 thousand)."
    )
    picture = Picture("shooting", caption, shooting_figure(rows.shooting))
    table = Table("shooting", "Medians by S", columns, body)
    return Section("shooting", "Shooting figure", [intro, picture, table, *mixtures(rows.shooting.values())])


def _median_verdict(group: Group | None, values: Sequence[float], printed: float | None) -> tuple[str, str]:
    if printed is None:
        return "", ""
    if group is None or not (values or group.under_way):
        return comparison.NO_DATA, "no complete run"
    if reasons := departures(group, ("shots",)):
        return comparison.NOT_COMPARABLE, "not the paper's setting: " + ", ".join(reasons)
    if group.under_way:
        return comparison.UNFINISHED, unfinished_reason(group)
    found = comparison.compare_median(values, printed)
    return found.verdict, found.reason
