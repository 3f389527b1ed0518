"""How far the cohorts of a campaign have come, while they train and in a table at the end."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pac4sac.base.text import duration
from pac4sac.studies.plan import PlannedCohort
from pac4sac.studies.watcher import Watcher

BETWEEN_LINES = 60.0  # seconds
COHORT_WIDTH = 64  # characters


@dataclass
class Course:
    """The steps of a cohort in this call, and when they were reported."""

    first: tuple[float, int]
    last: tuple[float, int]
    outcome: str = "running"

    @property
    def steps_per_second(self) -> float:
        """Return the lockstep steps per second since training began."""
        seconds = self.last[0] - self.first[0]
        return (self.last[1] - self.first[1]) / seconds if seconds > 0 else 0.0


@dataclass
class CampaignWatcher(Watcher):
    """Records the progress of all cohorts, and prints a line each minute."""

    console: Console
    began: float  # of this call
    courses: dict[Path, Course] = field(default_factory=dict)
    runs: dict[Path, int] = field(default_factory=dict)
    printed: float = 0.0

    def progress(self, cohort: PlannedCohort, step: int, steps: int) -> None:
        now = self.elapsed()
        course = self.courses.setdefault(cohort.folder, Course((now, step), (now, step)))
        course.last = (now, step)
        self.runs[cohort.folder] = len(cohort.runs)
        if now - self.printed > BETWEEN_LINES:
            self.printed = now
            self.console.print(self.line(now))

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def line(self, now: float) -> str:
        active = [path for path, each in self.courses.items() if each.outcome == "running"]
        rate = sum(self.runs[path] * self.courses[path].steps_per_second for path in active)
        return (
            f"{now:5.0f} s: {len(active)} cohorts, {rate:,.0f} run-steps/s, "
            f"{self.run_steps():,} run-steps since the start"
        )

    def run_steps(self) -> int:
        """Return the run-steps of this call."""
        return sum(
            self.runs[path] * (each.last[1] - each.first[1]) for path, each in self.courses.items()
        )

    def warning(self, cohort: PlannedCohort, sentence: str) -> None:
        self.console.print(f"warning: {cohort.title}: {sentence}")

    def ended(self, cohort: PlannedCohort, outcome: str, reason: str) -> None:
        if cohort.folder in self.courses:
            self.courses[cohort.folder].outcome = outcome
        if outcome == "failed":
            self.console.print(f"{cohort.title}: failed: {reason}")


def row(study: str, cohort: PlannedCohort, course: Course | None) -> dict[str, Any]:
    """Return the state of a cohort, and the seconds that it still needs at its present speed.

    Args:
        study: Name of its study.
        cohort: The cohort.
        course: Its steps in this call; None if it has not begun.
    """
    speed = course.steps_per_second if course else 0.0
    step = course.last[1] if course else 0
    rest = (cohort.steps - step) / speed if speed else None
    if cohort.is_done():
        step, rest = cohort.steps, 0.0
    return {
        "study": study,
        "cohort": cohort.title,
        "runs": len(cohort.runs),
        "finished": len(cohort.done()),
        "step": step,
        "steps": cohort.steps,
        "run-steps/s": round(speed * len(cohort.runs)),
        "rest_seconds": rest,
    }


def table(content: Iterable[dict[str, Any]]) -> Table:
    """Return the rows as a table for the terminal."""
    made = Table(box=None, pad_edge=False)
    made.add_column("cohort", no_wrap=True, overflow="ellipsis", max_width=COHORT_WIDTH)
    for column in ("runs", "finished", "step", "of", "run-steps/s", "rest"):
        made.add_column(column, justify="right", no_wrap=True)
    for each in content:
        rest = "?" if each["rest_seconds"] is None else duration(each["rest_seconds"])
        numbers = [each[name] for name in ("runs", "finished", "step", "steps", "run-steps/s")]
        made.add_row(each["cohort"], *(f"{number:,}" for number in numbers), rest)
    return made
