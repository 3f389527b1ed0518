"""The end of a training: a table of its runs, a picture, and what to do next."""

import io
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pac4sac.base.text import brief
from pac4sac.base.trust import trusted
from pac4sac.cli.arguments import callback_flags
from pac4sac.cli.shared import INTERRUPTED, plain_table, say
from pac4sac.cli.sparkline import sparkline
from pac4sac.runs.metrics import (
    STREAK,
    is_complete,
    is_solved,
    last_evaluations,
    longest_streak,
    score_run,
)
from pac4sac.runs.reading import RunRecord, warn_of_damage
from pac4sac.runs.status import BROKEN_OFF, Status
from pac4sac.training.experiment import Result

PICTURE = "learning-curves.png"
LAST = 10  # episodes, whose mean stands in for the metrics where there are none
CURVE_WIDTHS = (30, 20, 10)  # of which the widest is taken that the terminal has room for
# columns that are left out where it has not, in this order
SPARE = ("returns", "above", "deterministic", "shooting")
EVALUATIONS = {"deterministic": "evaluation", "shooting": "evaluation,\nshooting"}  # by policy


class TableNumber(NamedTuple):
    """A number, or what it is at least while its run is unfinished."""

    value: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥ ' if self.at_least else ''}{_short(self.value)}"


class ResultColumn(NamedTuple):
    """A column of the table of results."""

    name: str
    header: str
    cell: Callable[[RunRecord], TableNumber | Text | str | None]
    justify: Literal["left", "right"] = "right"
    averaged: bool = False


def exit_code(result: Result) -> int:
    """Return 130 after Ctrl-C, 1 if every run failed, else 0."""
    if result.reason is not None and result.reason.by_signal:
        return INTERRUPTED
    if not has_runs(result):
        return 0
    return int(all(run.status in BROKEN_OFF or unevaluated(run) for run in result.runs))


def has_runs(result: Result) -> bool:
    return (result.folder / "runs").exists()


def unevaluated(run: RunRecord) -> bool:
    """Whether all episodes of its last evaluation failed."""
    returns = run.evaluations[-1]["returns"] if run.evaluations else None
    return bool(returns) and not any(value is not None for value in returns or ())


def show_result(result: Result, console: Console, callbacks: Sequence[str] = ()) -> None:
    """Print the table of runs, how training ended, and what can be done next. `callbacks` are the
    names that a resume needs again."""
    resume = f"Go on with:      {_resume_command(result.folder, callbacks)}"
    if not has_runs(result):
        say(console, f"Training was stopped because {result.reason}, before its first step.")
        say(console, resume)
        return
    runs = result.runs
    warn_of_damage(runs)
    for task in dict.fromkeys(run.task["name"] for run in runs):
        of_task = [run for run in runs if run.task["name"] == task]
        console.print(result_table(of_task, console.width))
    console.print(ending(result, runs), soft_wrap=True)
    _save_picture(result.folder, runs, console)
    say(console, f"Run folders:     {result.folder / 'runs'}")
    if not result.complete:
        say(console, resume)
    if any((run.folder / "agent.safetensors").is_file() for run in runs):
        folder = shlex.quote(str(result.folder))
        say(console, f"Film it with:    pac4sac watch {folder}{_trust_flags()}")
        say(console, f"Test it with:    pac4sac evaluate {folder}{_trust_flags()}")
        say(console, f"Write it up:     pac4sac report {folder}")


def ending(result: Result, runs: Sequence[RunRecord]) -> Text:
    """Return how training ended, in a sentence, with the runs that broke off or were stopped."""
    how = f"was stopped because {result.reason}"
    text = Text(f"Training {'is complete' if result.complete else how}", "bold")
    if achieved := achievement(runs):
        text.append(f": {achieved}", "bold green" if any(map(is_solved, runs)) else "bold")
    text.append(".")
    detail = "(see status_detail in run.json)"
    if broken := sum(run.status in BROKEN_OFF for run in runs):
        text.append(f" {broken} of {len(runs)} runs broke off {detail}.", "red")
    if stopped := sum(run.status == Status.STOPPED for run in runs):
        text.append(f" A callback stopped {stopped} of {len(runs)} runs {detail}.", "yellow")
    return text


def _save_picture(folder: Path, runs: Sequence[RunRecord], console: Console) -> None:
    if not any(run.episodes for run in runs):
        return
    # matplotlib takes a second to import
    from pac4sac.report.learning_curves import learning_curve_picture

    learning_curve_picture(folder / PICTURE, runs)
    say(console, f"Learning curves: {folder / PICTURE}")


def _resume_command(folder: Path, callbacks: Sequence[str]) -> str:
    return f"pac4sac resume {shlex.quote(str(folder))}{callback_flags(callbacks)}{_trust_flags()}"


def _trust_flags() -> str:
    return "".join(f" --trust {module}" for module in trusted())


def achievement(runs: Sequence[RunRecord]) -> str:
    """Return how far runs came, in words; nothing for tasks without a solve threshold."""
    limited = [run for run in runs if run.task["r_limit"] is not None]
    solved = sum(map(is_solved, limited))
    if len(limited) == 1:
        return "solved" if solved else _episodes_above(limited)
    parts = [f"{solved} of {len(limited)} runs solved"] if limited else []
    if solved < len(limited):
        parts.append(_episodes_above(limited))
    return ", ".join(parts)


def _episodes_above(runs: Sequence[RunRecord]) -> str:
    limits = " and ".join(dict.fromkeys(f"{run.task['r_limit']:g}" for run in runs))
    above = sum(map(episodes_above, runs))
    if not above:
        return f"no episode above {limits} yet"
    text = f"{above} of {sum(len(run.episodes) for run in runs)} episodes above {limits}"
    if any(map(is_solved, runs)):
        return text
    streak = max(longest_streak(run.returns, run.task["r_limit"]) for run in runs)
    return f"{text}, at most {streak} in a row, where {STREAK} in a row count as solved"


def episodes_above(run: RunRecord) -> int:
    return int((run.returns > run.task["r_limit"]).sum())


# --- the table of results


def result_table(runs: Sequence[RunRecord], width: int) -> Table:
    """Return the table of one task's runs for a console of that width: the names of runs stay
    whole, and columns that do not fit beside them are left out."""
    ruler = Console(width=10_000, file=io.StringIO())
    for columns in _column_choices(runs):
        table = _filled_table(runs, columns)
        if Measurement.get(ruler, ruler.options, table).maximum <= width:
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
    returns = np.concatenate([run.returns for run in runs])
    low, high = (returns.min(), returns.max()) if len(returns) else (0.0, 1.0)  # shared by all runs
    limit = runs[0].task["r_limit"]

    def curve(run: RunRecord) -> Text:
        return sparkline(run.returns.tolist(), width, low, high, limit)

    return ResultColumn("returns", "returns", curve, "left")


def _metric_columns(runs: Sequence[RunRecord]) -> list[ResultColumn]:
    """Return episodes until solved and regret, or the last returns if a run has none."""
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


def last_returns(run: RunRecord) -> TableNumber | None:
    return TableNumber(float(run.returns[-LAST:].mean())) if run.episodes else None


def _evaluation_columns(runs: Sequence[RunRecord]) -> list[ResultColumn]:
    evaluated = set[str]().union(*map(last_evaluations, runs))
    return [
        ResultColumn(policy, header, partial(_evaluation, policy), averaged=True)
        for policy, header in EVALUATIONS.items()
        if policy in evaluated
    ]


def _evaluation(policy: str, run: RunRecord) -> TableNumber | None:
    mean = last_evaluations(run).get(policy)
    return None if mean is None else TableNumber(mean)


def _threshold_columns(runs: Sequence[RunRecord]) -> list[ResultColumn]:
    limit = runs[0].task["r_limit"]
    if limit is None:
        return []

    def cell(run: RunRecord) -> str:
        return f"{episodes_above(run)} of {len(run.episodes)}"

    return [ResultColumn("above", f"above\n{limit:g}", cell)]


def _filled_table(runs: Sequence[RunRecord], columns: Sequence[ResultColumn]) -> Table:
    table = plain_table(_title(runs[0].task), "run")
    table.columns[0].no_wrap = True
    for column in columns:
        table.add_column(column.header, justify=column.justify, no_wrap=True)
    groups = _by_variant(runs)
    for run in runs:
        name = run.run if len(groups) > 1 else f"seed {run.seed}"
        table.add_row(name, *(_shown(column.cell(run)) for column in columns))
    table.add_section()
    for label, group in groups.items():
        if len(group) > 1:
            name = f"{label}, mean ± sd" if len(groups) > 1 else "mean ± sd"
            table.add_row(name, *_means(group, columns), style="bold")
    return table


def _title(task: Mapping[str, Any]) -> str:
    if task["r_limit"] is None:
        return str(task["name"])
    return f"{task['name']} (solved: five episodes in a row above {task['r_limit']:g})"


def _by_variant(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    variants: dict[str, list[RunRecord]] = {}
    for run in runs:
        variants.setdefault(run.run.removesuffix(f"-seed{run.seed}"), []).append(run)
    return variants


def _shown(cell: TableNumber | Text | str | None) -> Text | str:
    return cell if isinstance(cell, Text) else str(cell or "")


def _means(runs: Sequence[RunRecord], columns: Sequence[ResultColumn]) -> Iterator[str]:
    for column in columns:
        cells = [column.cell(run) for run in runs] if column.averaged else []
        yield mean_and_sd([cell for cell in cells if isinstance(cell, TableNumber)])


def state(run: RunRecord) -> Text:
    limit = run.task["r_limit"]
    if run.status in BROKEN_OFF:
        return Text(run.status, "bold red")
    if is_solved(run):
        return Text("solved", "bold green")
    if limit is not None and (streak := longest_streak(run.returns, limit)):
        return Text(f"best streak {streak}", "cyan")
    if limit is not None and is_complete(run):
        return Text("not solved", "yellow")
    return Text("unfinished" if run.status in ("running", "interrupted") else run.status, "dim")


def mean_and_sd(numbers: Sequence[TableNumber]) -> str:
    if len(numbers) < 2:
        return "".join(map(str, numbers))
    values = [number.value for number in numbers]
    mean = TableNumber(float(np.mean(values)), any(number.at_least for number in numbers))
    return f"{mean} ± {_short(float(np.std(values, ddof=1)))}"


def _short(value: float) -> str:
    return f"{value:g}" if value == int(value) and abs(value) < 1000 else brief(value)
