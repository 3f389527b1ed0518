"""The table of runs at the end of training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pac4sac.base.text import brief
from pac4sac.cli.shared import plain_table
from pac4sac.cli.sparkline import sparkline
from pac4sac.runs.metrics import is_complete, is_solved, last_evaluations, longest_streak, score_run
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.status import BROKEN_OFF

LAST = 10  # episodes whose mean is shown if a run has no metrics
CURVE_WIDTHS = (30, 20, 10)  # the widest table that fits is used
# Columns to leave out if the terminal is too narrow, in this order.
SPARE = ("returns", "above", "deterministic", "shooting")
EVALUATIONS = {"deterministic": "evaluation", "shooting": "evaluation,\nshooting"}  # by policy


class TableNumber(NamedTuple):
    """Hold a number, or a lower bound of it while its run is unfinished."""

    value: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥ ' if self.at_least else ''}{_short(self.value)}"


class ResultColumn(NamedTuple):
    """Hold a column of the table of results."""

    name: str
    header: str
    cell: Callable[[RunRecord], TableNumber | Text | str | None]
    justify: Literal["left", "right"] = "right"
    averaged: bool = False


def result_table(runs: Sequence[RunRecord], console: Console) -> Table:
    """Return the table of the runs of one task; columns that do not fit next to the runs' names are
    omitted."""
    unlimited = console.options.update_width(10_000)
    for columns in _column_choices(runs):
        table = _filled_table(runs, columns)
        if console.measure(table, options=unlimited).maximum <= console.width:
            return table
    table.columns[0].no_wrap = False
    return table


def _column_choices(runs: Sequence[RunRecord]) -> Iterator[list[ResultColumn]]:
    """Yield the columns to try, the widest table first."""
    others = [*_metric_columns(runs), *_evaluation_columns(runs), *_threshold_columns(runs)]
    others.append(ResultColumn("state", "state", state, "left"))
    for curve_width in CURVE_WIDTHS:
        yield [_curve_column(runs, curve_width), *others]
    for count in range(1, len(SPARE) + 1):
        yield [column for column in others if column.name not in SPARE[:count]]


def _curve_column(runs: Sequence[RunRecord], width: int) -> ResultColumn:
    """Return the column of learning curves, with a common scale of returns."""
    returns = np.concatenate([run.returns for run in runs])
    low, high = (returns.min(), returns.max()) if len(returns) else (0.0, 1.0)
    limit = runs[0].task["r_limit"]

    def curve(run: RunRecord) -> Text:
        return sparkline(run.returns.tolist(), width, low, high, limit)

    return ResultColumn("returns", "returns", curve, "left")


def _metric_columns(runs: Sequence[RunRecord]) -> list[ResultColumn]:
    """Return the columns of episodes until solved and regret, or of last returns if a run does not
    have these metrics."""
    if any(score_run(run) is None for run in runs):
        return [ResultColumn("last", f"mean of\nlast {LAST}", last_returns, averaged=True)]
    return [
        ResultColumn("episodes", "episodes\nuntil\nsolved", _metric("episodes"), averaged=True),
        ResultColumn("regret", "regret\n(1000s)", _metric("regret", 1000), averaged=True),
    ]


def _metric(name: str, scale: int = 1) -> Callable[[RunRecord], TableNumber | None]:
    def cell(run: RunRecord) -> TableNumber | None:
        score = score_run(run)
        if score is None:
            return None
        return TableNumber(getattr(score, name) / scale, not score.complete)

    return cell


def episodes_above(run: RunRecord) -> int:
    """Return the number of episodes above the solve threshold."""
    return int((run.returns > run.task["r_limit"]).sum())


def last_returns(run: RunRecord) -> TableNumber | None:
    return TableNumber(float(run.returns[-LAST:].mean())) if run.episodes else None


def _evaluation_columns(runs: Sequence[RunRecord]) -> list[ResultColumn]:
    """Return a column for each policy that was evaluated."""
    evaluated = {policy for run in runs for policy in last_evaluations(run)}
    return [
        ResultColumn(policy, header, partial(_evaluation, policy), averaged=True)
        for policy, header in EVALUATIONS.items()
        if policy in evaluated
    ]


def _evaluation(policy: str, run: RunRecord) -> TableNumber | None:
    mean = last_evaluations(run).get(policy)
    return None if mean is None else TableNumber(mean)


def _threshold_columns(runs: Sequence[RunRecord]) -> list[ResultColumn]:
    """Return the column of episodes above the solve threshold, if the task has one."""
    limit = runs[0].task["r_limit"]
    if limit is None:
        return []

    def cell(run: RunRecord) -> str:
        return f"{episodes_above(run)} of {len(run.episodes)}"

    return [ResultColumn("above", f"above\n{limit:g}", cell)]


def _filled_table(runs: Sequence[RunRecord], columns: Sequence[ResultColumn]) -> Table:
    """Return the table with a row for each run, and a row of means for each variant."""
    table = plain_table(_title(runs[0].task), "run")
    table.columns[0].no_wrap = True
    for column in columns:
        table.add_column(column.header, justify=column.justify, no_wrap=True)
    variants = _by_variant(runs)
    several = len(variants) > 1
    for run in runs:
        cells = [_shown(column.cell(run)) for column in columns]
        table.add_row(run.run if several else f"seed {run.seed}", *cells)
    table.add_section()
    for label, members in variants.items():
        if len(members) > 1:
            name, means = _row_of_means(members, columns)
            table.add_row(f"{label}, {name}" if several else name, *means, style="bold")
    return table


def _row_of_means(
    members: Sequence[RunRecord], columns: Sequence[ResultColumn]
) -> tuple[str, list[str]]:
    """Return the name and the cells of the row of means of a variant.

    Runs that failed or diverged are not averaged.
    """
    whole = [run for run in members if run.status not in BROKEN_OFF]
    of = f" of {len(whole)} of {len(members)}" if len(whole) < len(members) else ""
    return f"mean ± std{of}", [*_means(whole, columns)]


def _title(task: Mapping[str, Any]) -> str:
    if task["r_limit"] is None:
        return str(task["name"])
    return f"{task['name']} (solved: five consecutive episodes above {task['r_limit']:g})"


def _by_variant(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    variants: dict[str, list[RunRecord]] = {}
    for run in runs:
        variants.setdefault(run.run.removesuffix(f"-seed{run.seed}"), []).append(run)
    return variants


def _shown(cell: TableNumber | Text | str | None) -> Text | str:
    return cell if isinstance(cell, Text) else str(cell or "")


def _means(runs: Sequence[RunRecord], columns: Sequence[ResultColumn]) -> Iterator[str]:
    """Yield the mean of each averaged column, and an empty cell for other columns."""
    for column in columns:
        if not column.averaged:
            yield ""
            continue
        cells = [column.cell(run) for run in runs]
        yield mean_and_std([cell for cell in cells if isinstance(cell, TableNumber)])


def state(run: RunRecord) -> Text:
    """Return the status of a run, or how close it came to solving its task."""
    if run.status in BROKEN_OFF:
        return Text(run.status, "bold red")
    if is_solved(run):
        return Text("solved", "bold green")
    if run.task["r_limit"] is not None:
        if streak := longest_streak(run.returns, run.task["r_limit"]):
            return Text(f"best streak {streak}", "cyan")
        if is_complete(run):
            return Text("not solved", "yellow")
    return Text("unfinished" if run.status in ("running", "interrupted") else run.status, "dim")


def mean_and_std(numbers: Sequence[TableNumber]) -> str:
    """Return "mean ± std" of several numbers, or the number if there is only one."""
    if len(numbers) < 2:
        return "".join(map(str, numbers))
    values = [number.value for number in numbers]
    mean = TableNumber(float(np.mean(values)), any(number.at_least for number in numbers))
    return f"{mean} ± {_short(float(np.std(values, ddof=1)))}"


def _short(value: float) -> str:
    return f"{value:g}" if value == int(value) and abs(value) < 1000 else brief(value)
