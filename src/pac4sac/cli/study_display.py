"""What a person sees of a study: bars while it trains, its plan and status, its tables."""

import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from pac4sac.studies.definition import Study
    from pac4sac.studies.plan import PlannedCohort


class StudyDisplay:
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

    def progress(self, cohort: "PlannedCohort", step: int, steps: int) -> None:
        key = cohort.folder
        if self.progress_bars is not None:
            if key not in self.bars:
                self.bars[key] = self.progress_bars.add_task(f"{cohort.title} ({len(cohort.runs)} runs)", total=steps)
            self.progress_bars.update(self.bars[key], completed=step)
        elif time.monotonic() - self.told.get(key, -1e9) > 30:
            self.told[key] = time.monotonic()
            say(self.console, f"{cohort.title}: step {step} of {steps}, {len(cohort.runs)} runs")

    def warning(self, cohort: "PlannedCohort", sentence: str) -> None:
        warnings.warn(f"{cohort.title}: {sentence}", stacklevel=2)

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
