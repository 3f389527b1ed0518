"""The data that displays of training show: returns of each run, speed and time left."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.text import Text

from pac4sac.base.text import brief
from pac4sac.runs.metrics import STREAK
from pac4sac.runs.status import BROKEN_OFF
from pac4sac.training.run import Run

SAMPLE_SECONDS, SAMPLES = 0.5, 30  # the speed is measured over the last 15 seconds


@dataclass
class RunProgress:
    """Count the episodes of one run above the solve threshold while it trains."""

    run: Run
    returns: list[float] = field(default_factory=list)
    evaluation: float | None = None
    status: str = "running"
    solved: int | None = None  # episodes before the streak that solved the task
    above: int = 0  # episodes above the solve threshold
    current_streak: int = 0
    best_streak: int = 0

    @property
    def threshold(self) -> float | None:
        return self.run.task.r_limit

    def add(self, value: float) -> None:
        """Add the return of one episode."""
        self.returns.append(value)
        if self.threshold is None or value <= self.threshold:
            self.current_streak = 0
            return
        self.above += 1
        self.current_streak += 1
        self.best_streak = max(self.best_streak, self.current_streak)
        if self.solved is None and self.current_streak == STREAK:
            self.solved = len(self.returns) - STREAK

    def state(self) -> Text:
        """Return the status of the run, or how close it is to solving its task."""
        if self.status in BROKEN_OFF:
            return Text(self.status, "bold red")
        if self.solved is not None:
            return Text(f"solved at {self.solved}", "bold green")
        if self.status != "running":
            return Text(self.status)
        if self.best_streak:
            return Text(f"best streak {self.best_streak}", "cyan")
        return Text(self.status, "dim")


class Pace:
    """Measure the speed of a training in lockstep steps; each lockstep step advances all runs."""

    def __init__(self, step: int, warmup: int) -> None:
        self._recent = deque([(time.monotonic(), step)], maxlen=SAMPLES)
        self._warmup = warmup
        self._updates_began: tuple[float, int] | None = None
        self._note_warmup(step)

    def add(self, step: int) -> None:
        """Record a completed step."""
        self._note_warmup(step)
        now = time.monotonic()
        if now - self._recent[-1][0] >= SAMPLE_SECONDS:
            self._recent.append((now, step))

    def _note_warmup(self, step: int) -> None:
        if self._updates_began is None and step >= self._warmup:
            self._updates_began = (time.monotonic(), step)

    def steps_per_second(self) -> float | None:
        """Return the speed over the last seconds, or None if it is not known yet."""
        recent = list(self._recent)  # a copy, because the loop appends while another thread draws
        (start, first), (end, last) = recent[0], recent[-1]
        return (last - first) / (end - start) if last > first else None

    def seconds_per_step(self) -> float | None:
        """Return the mean time of a step since the updates began, or None if it is not known yet.

        Warm-up steps are excluded, because they take much less time.
        """
        if self._updates_began is None:
            return None
        (start, first), (end, last) = self._updates_began, self._recent[-1]
        return (end - start) / (last - first) if last > first else None


def summary(rows: Sequence[RunProgress]) -> str:
    """Summarise one or several runs in one sentence."""
    parts = [_last_returns(rows)]
    threshold = rows[0].threshold if rows else None
    if threshold is not None:
        parts += [_solved_runs(rows), _episodes_above(rows, threshold)]
    if broken := sum(row.status in BROKEN_OFF for row in rows):
        parts.append(f"{broken} failed or diverged")
    return ", ".join(filter(None, parts))


def _last_returns(rows: Sequence[RunProgress]) -> str:
    whole = [row for row in rows if row.status not in BROKEN_OFF]
    last = [row.returns[-1] for row in whole if row.returns]
    if not last:
        return "no episode has ended yet"
    what = "mean of the last returns" if len(rows) > 1 else "last return"
    if len(whole) < len(rows):
        what += f" of {len(last)} of {len(rows)} runs"
    return f"{what} {brief(float(np.mean(last)))}"


def _solved_runs(rows: Sequence[RunProgress]) -> str:
    solved = sum(row.solved is not None for row in rows)
    if len(rows) > 1:
        return f"{solved} of {len(rows)} solved"
    return "solved" if solved else ""


def _episodes_above(rows: Sequence[RunProgress], threshold: float) -> str:
    above = sum(row.above for row in rows)
    if not above:
        return ""
    episodes = sum(len(row.returns) for row in rows)
    text = f"{above} of {episodes} episodes above {threshold:g}"
    unsolved = [row.best_streak for row in rows if row.solved is None]
    return f"{text}, best streak {max(unsolved)} of {STREAK}" if unsolved else text
