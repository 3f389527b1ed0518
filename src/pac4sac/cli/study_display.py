"""What a person sees of a study: bars while it trains, its cohorts, and its tables at the end."""

import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from pac4sac.cli.shared import code_of_stop, say

if TYPE_CHECKING:
    from pac4sac.report.tables import Table as ReportTable
    from pac4sac.studies.definition import Study
    from pac4sac.studies.plan import PlannedCohort
    from pac4sac.training.experiment import Result

SECONDS_BETWEEN_LINES = 30


def tables_as_text(tables: Sequence["ReportTable"]) -> str:
    """As `show_tables` shows them, for whoever prints it."""
    from rich.console import Console

    # A console in a notebook would show them there at once; it knows how wide that is, though.
    console = Console(width=Console().width, force_jupyter=False, color_system=None)
    with console.capture() as captured:
        show_tables(console, tables)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip()


def show_tables(console: "Console", tables: Sequence["ReportTable"]) -> None:
    from rich import box
    from rich.table import Table

    for found in tables:
        table = Table(title=found.caption, title_justify="left", box=box.SIMPLE)
        shown = columns_that_fit(found, console.width)
        for column in (found.columns[place] for place in shown):
            head = f"{column.group}\n{column.title}" if column.group else column.title
            table.add_column(head, justify="right" if column.numeric else "left")
        for row in found.rows:
            table.add_row(*(_cell(row[place]) for place in shown))
        console.print(table)


def columns_that_fit(table: "ReportTable", width: int) -> list[int]:
    """Places of the columns a console has room for; what goes first is in the report anyway."""
    places = [place for place, column in enumerate(table.columns) if column.title != "Repeat with"]
    for title in ("final evaluation", "Family", "Runs", "solved", "P(better", "p (Holm)", "IQM"):
        widths = [max(len(line) for row in table.rows for line in _cell(row[place]).split("\n")) for place in places]
        heads = [max(map(len, table.columns[place].title.split())) for place in places]
        if sum(max(pair) + 3 for pair in zip(widths, heads, strict=True)) <= width:
            break
        heads_of = {place: table.columns[place].group or table.columns[place].title for place in places}
        places = [place for place in places if not heads_of[place].startswith(title)]
    return places


def _cell(cell: Any) -> str:
    return "\n".join(
        part for part in (cell.text, cell.note, cell.paper and f"paper {cell.paper}", cell.verdict) if part
    )


class StudyDisplay:
    """A bar for each cohort in a terminal, a line now and then elsewhere; a watcher of `studies.local`."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars: dict[Path, TaskID] = {}
        self.last_line: dict[Path, float] = {}
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.live = Progress(*columns, console=console) if console.is_terminal else None

    def __enter__(self) -> "StudyDisplay":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def progress(self, cohort: "PlannedCohort", step: int, steps: int) -> None:
        key = cohort.folder
        if self.live is not None:
            if key not in self.bars:
                self.bars[key] = self.live.add_task(f"{cohort.title} ({len(cohort.runs)} runs)", total=steps)
            self.live.update(self.bars[key], completed=step)
        elif key not in self.last_line or time.monotonic() - self.last_line[key] > SECONDS_BETWEEN_LINES:
            self.last_line[key] = time.monotonic()
            say(self.console, f"{cohort.title}: step {step} of {steps}, {len(cohort.runs)} runs")

    def warning(self, cohort: "PlannedCohort", sentence: str) -> None:
        warnings.warn(f"{cohort.title}: {sentence}", stacklevel=2)

    def ended(self, cohort: "PlannedCohort", outcome: str, reason: str) -> None:
        if self.live is None or outcome == "failed":
            say(self.console, f"{cohort.title}: {outcome}{': ' + reason if reason else ''}")


def cohort_table(study: "Study", cohorts: Sequence["PlannedCohort"], columns: Mapping[str, Sequence[str]]) -> Table:
    table = Table(title=study.title, title_justify="left")
    for name in ("Cohort", "Runs", "Steps", *columns):
        table.add_column(name, justify="left" if name in ("Cohort", "Status") else "right")
    for cohort, *cells in zip(cohorts, *columns.values(), strict=True):
        table.add_row(cohort.title, str(len(cohort.runs)), str(cohort.steps), *cells)
    return table


def show_end(console: Console, result: "Result", page: Path, tables: Sequence["ReportTable"]) -> int:
    """The tables of a study that is complete, where its report lies, and the exit code."""
    if not result.complete:
        say(console, f"Stopped before the end; go on by the same command. So far: {page}")
        return code_of_stop(result.reason)
    show_tables(console, tables)
    say(console, f"Report: {page}")
    return 0
