"""What a person sees of a study: bars while it trains, its plan and status, its tables."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pac4sac.studies.watcher import Watcher

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from pac4sac.report.tables import Table as ReportTable
    from pac4sac.studies.definition import Study
    from pac4sac.studies.plan import PlannedCohort


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


class StudyDisplay(Watcher):
    """A bar for each cohort in a terminal, a line now and then elsewhere."""

    def __init__(self, console: "Console") -> None:
        self.console = console
        self.bars: dict[Path, TaskID] = {}
        self.told: dict[Path, float] = {}
        self.progress_bars: Progress | None = None

    def __enter__(self) -> "StudyDisplay":
        if self.console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.progress_bars = Progress(*columns, console=self.console)
            self.progress_bars.start()
        return self

    def planned(self, study: "Study", root: Path, cohorts: Sequence["PlannedCohort"], memory: int) -> None:
        say(self.console, f"{study.title}: {len(study.runs())} runs in {root}")
        if cohorts:
            many = f"{len(cohorts)} cohorts" if len(cohorts) > 1 else "1 cohort"
            most = max(cohort.bytes for cohort in cohorts) / 1e6
            say(self.console, f"{many} of up to {most:.0f} MB, where {memory / 1e6:.0f} MB are allowed each.")

    def progress(self, cohort: "PlannedCohort", step: int, steps: int) -> None:
        key = cohort.folder
        if self.progress_bars is not None:
            if key not in self.bars:
                self.bars[key] = self.progress_bars.add_task(f"{cohort.title} ({len(cohort.runs)} runs)", total=steps)
            self.progress_bars.update(self.bars[key], completed=step)
        elif time.monotonic() - self.told.get(key, -1e9) > 30:
            self.told[key] = time.monotonic()
            say(self.console, f"{cohort.title}: step {step} of {steps}, {len(cohort.runs)} runs")

    def ended(self, cohort: "PlannedCohort", outcome: str, reason: str) -> None:
        if self.progress_bars is None or outcome == "failed":
            say(self.console, f"{cohort.title}: {outcome}{': ' + reason if reason else ''}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.progress_bars is not None:
            self.progress_bars.stop()


def cohort_table(study: "Study", cohorts: Sequence["PlannedCohort"], columns: Mapping[str, Sequence[str]]) -> Any:
    from rich.table import Table

    table = Table(title=study.title, title_justify="left")
    for name in ("Cohort", "Runs", "Steps", *columns):
        table.add_column(name, justify="left" if name in ("Cohort", "Status") else "right")
    for cohort, *cells in zip(cohorts, *columns.values(), strict=True):
        table.add_row(cohort.title, str(len(cohort.runs)), str(cohort.steps), *cells)
    return table


def memory_of(cohort: "PlannedCohort") -> str:
    return f"{cohort.bytes / 1e6:.0f} MB"


def status_of(cohort: "PlannedCohort") -> str:
    statuses = cohort.statuses()
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))


def say(console: "Console", line: str) -> None:
    console.print(line, soft_wrap=True, highlight=False, markup=False)
