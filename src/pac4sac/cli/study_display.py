"""The display of a study: progress bars and cohorts during training, and tables at the end."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from pac4sac.base.text import setting_text
from pac4sac.cli.shared import SOME_FAILED, code_of_stop, plain_table, say, show_whole_words
from pac4sac.runs.collection import CHOOSING
from pac4sac.runs.status import Status
from pac4sac.studies.watcher import Watcher

if TYPE_CHECKING:
    from pac4sac.report.tables import Table as ReportTable
    from pac4sac.studies.definition import Study
    from pac4sac.studies.plan import PlannedCohort
    from pac4sac.training.experiment import Result

SECONDS_BETWEEN_LINES = 30


class StudyDisplay(Watcher):
    """Draw a bar for each cohort in a terminal; print occasional lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars: dict[Path, TaskID] = {}
        self.last_line: dict[Path, float] = {}
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self.live = Progress(*columns, console=console) if console.is_terminal else None

    def __enter__(self) -> "StudyDisplay":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def planned(
        self, study: "Study", root: Path, cohorts: Sequence["PlannedCohort"], memory: int
    ) -> None:
        for sentence in _about_runs(study, root, cohorts):
            say(self.console, sentence)
        is_search = study.kind in CHOOSING
        if not (study.definition or is_search) and (table := differing_settings_table(study)):
            show_whole_words(self.console, table)
        to_train = [cohort for cohort in cohorts if not cohort.is_done()]
        if to_train:
            many = f"{len(to_train)} cohorts" if len(to_train) > 1 else "1 cohort"
            most = max(cohort.bytes for cohort in to_train)
            say(
                self.console,
                f"{many} to train; each needs up to {math.ceil(most / 1e6)} MB of the "
                f"{memory / 1e6:.0f} MB that a cohort may use.",
            )

    def progress(self, cohort: "PlannedCohort", step: int, steps: int) -> None:
        if self.live is None:
            self._print_progress(cohort, step, steps)
            return
        if cohort.folder not in self.bars:
            title = f"{cohort.title} ({len(cohort.runs)} runs)"
            self.bars[cohort.folder] = self.live.add_task(title, total=steps)
        self.live.update(self.bars[cohort.folder], completed=step)

    def _print_progress(self, cohort: "PlannedCohort", step: int, steps: int) -> None:
        now = time.monotonic()
        if now - self.last_line.get(cohort.folder, -math.inf) > SECONDS_BETWEEN_LINES:
            self.last_line[cohort.folder] = now
            say(self.console, f"{cohort.title}: step {step} of {steps}, {len(cohort.runs)} runs")

    def ended(self, cohort: "PlannedCohort", outcome: str, reason: str) -> None:
        if self.live is None or outcome == "failed":
            say(self.console, f"{cohort.title}: {outcome}{': ' + reason if reason else ''}")


def _about_runs(study: "Study", root: Path, cohorts: Sequence["PlannedCohort"]) -> Iterator[str]:
    """Yield sentences with the number of all runs of a study, of kept runs and of runs to be
    trained."""
    wanted = {run.identity for run in study.runs()}
    planned = {run.identity for cohort in cohorts for run in cohort.runs}
    done = {run.identity for cohort in cohorts for run in cohort.done()}
    kept = len(done | (wanted - planned))  # the others are in an archive
    summary = f"{study.title}: {len(wanted)} runs in {root}"
    yield f"{summary}; {kept} kept, {len(planned - done)} to train."
    if others := len(planned - wanted):
        yield f"The results also include {others} other runs of the same cohorts."


def differing_settings_table(study: "Study") -> Table | None:
    """Return the table of settings in which the variants of a study differ."""
    differing, names = study.differing_settings(), [variant.name for variant in study.variants]
    if not differing:
        return None
    table = plain_table("Settings that differ", "setting", right=names)
    for setting, values in differing.items():
        cells = [setting_text(values[name]) if name in values else "—" for name in names]
        table.add_row(setting, *cells)
    return table


def cohort_table(
    study: "Study", cohorts: Sequence["PlannedCohort"], columns: Mapping[str, Sequence[str]]
) -> Table:
    """Return a table of cohorts with the common columns and these additional columns."""
    table = Table(title=study.title, title_justify="left")
    for name in ("Cohort", "Runs", "Steps", *columns):
        table.add_column(name, justify="left" if name in ("Cohort", "Status", "Job") else "right")
    for cohort, *cells in zip(cohorts, *columns.values(), strict=True):
        table.add_row(cohort.title, str(len(cohort.runs)), str(cohort.steps), *cells)
    return table


def show_end(
    console: Console,
    result: "Result",
    page: Path,
    tables: Sequence["ReportTable"],
    sentences: Sequence[str] = (),
) -> int:
    """Print the tables of a study, sentences about them and the path of its report.

    Returns:
        The exit code.
    """
    if not result.complete:
        say(
            console,
            f"Training is unfinished, because {result.reason}; run the same command to continue. "
            f"Results so far: {page}",
        )
        return code_of_stop(result.reason)
    from pac4sac.report.formats import show_tables

    show_tables(console, tables)
    for sentence in filter(None, sentences):
        say(console, sentence)
    say(console, f"Report: {page}")
    failed = sum(run.status == Status.FAILED for run in result.runs)
    if not failed:
        return 0
    say(
        console,
        f"{failed} of {len(result.runs)} runs failed; the report gives the causes. To train them "
        "again, use pac4sac resume EXPERIMENT --retries N.",
    )
    return SOME_FAILED
