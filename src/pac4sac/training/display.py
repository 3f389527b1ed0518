"""Training as it goes: a live picture on a terminal, plain lines elsewhere. Both are callbacks of the loop."""

import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pac4sac.reporting.metrics import solved_at
from pac4sac.reporting.store import read_run
from pac4sac.training.callbacks import Callback
from pac4sac.training.runs import Run

PREPARING = "preparing: simulators, networks, compiler, number of threads …"
BARS = "▁▂▃▄▅▆▇█"
BROKEN_OFF = ("diverged", "failed")
SAMPLE_SECONDS, SAMPLES = 0.5, 30  # speed is that of the last quarter of a minute


@dataclass
class Row:
    """What is known of one run."""

    run: Run
    returns: list[float] = field(default_factory=list)
    evaluation: float | None = None
    status: str = "running"
    solved: int | None = None  # episodes before the solving ones

    def add(self, *returns: float) -> None:
        self.returns += returns
        if self.solved is None and self.run.task.r_limit is not None:
            self.solved = solved_at(self.returns, self.run.task.r_limit)

    def state(self) -> Text:
        if self.status in BROKEN_OFF:
            return Text(self.status, "bold red")
        if self.solved is not None:
            return Text(f"solved at {self.solved}", "bold green")
        return Text(self.status, "dim" if self.status == "running" else "")


class Progress(Callback):
    """Keeps what a display shows; enter it around training."""

    def __init__(self, console: Console, max_minutes: float | None = None) -> None:
        self.console = console
        self.deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.folder: Path | None = None
        self.rows: dict[str, Row] = {}
        self.cohort, self.cohorts = 0, 1
        self.step = self.steps = 0
        self.under_way = False
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        self.folder, self.steps, self.step = folder, steps, step
        self.cohort, self.cohorts = _place(folder, runs)
        rows = {}
        for run in runs:
            row = rows[run.id] = Row(run)
            record = read_run(folder / "runs" / run.id)  # not empty where training goes on
            row.add(*record.returns.tolist())
            row.status = record.status
        self.rows = rows
        self._samples.clear()
        self._samples.append((time.monotonic(), step))
        self.under_way = True

    def on_step(self, step: int) -> None:
        self.step = step
        now = time.monotonic()
        if now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((now, step))

    def on_log(self, run: Run, kind: str, row: dict[str, Any]) -> None:
        if kind == "episodes":
            self.rows[run.id].add(row["return"])
        elif kind == "evaluations":
            self.rows[run.id].evaluation = row["mean"]

    def on_status(self, run: Run, status: str, detail: str | None) -> None:
        self.rows[run.id].status = status
        if status in BROKEN_OFF:
            self.console.print(Text(f"{run.id} {status}: {detail or 'no reason known'}", "red"))

    def on_end(self, folder: Path) -> None:
        self.under_way = False

    def speed(self) -> float | None:
        """Lockstep steps per second."""
        samples = list(self._samples)  # the live picture is drawn by another thread
        if len(samples) < 2:
            return None
        (start, first), (end, last) = samples[0], samples[-1]
        return (last - first) / (end - start)

    def seconds_left(self) -> float | None:
        speed = self.speed()
        until_done = (self.steps - self.step) / speed if speed else None
        if self.deadline is None:
            return until_done
        until_deadline = max(0.0, self.deadline - time.monotonic())
        return until_deadline if until_done is None else min(until_done, until_deadline)

    def pace(self) -> list[str]:
        """Steps, their speed over all runs, and the time left, in words."""
        parts = [f"{self.step:,} of {self.steps:,} steps"]
        if speed := self.speed():
            running = sum(row.status == "running" for row in self.rows.values())
            parts.append(f"{speed * max(1, running):,.0f} steps/s")
        if self.step == self.steps:
            parts.append("evaluating …")
        elif (left := self.seconds_left()) is not None:
            parts.append(f"{duration(left)} left")
        return parts

    def title(self) -> str:
        run = next(iter(self.rows.values())).run
        count = f"{len(self.rows)} runs in lockstep" if len(self.rows) > 1 else "one run"
        cohort = f", cohort {self.cohort} of {self.cohorts}" if self.cohorts > 1 else ""
        return f"{run.algo} on {run.task.name}: {count}{cohort}"

    def totals(self, rows: Sequence[Row]) -> str:
        """Many runs in one sentence."""
        last = [row.returns[-1] for row in rows if row.returns]
        parts = [f"mean of the last returns {number(float(np.mean(last)))}" if last else "no episode ended yet"]
        if rows and rows[0].run.task.r_limit is not None:
            parts.append(f"{sum(row.solved is not None for row in rows)} of {len(rows)} solved")
        if broken := sum(row.status in BROKEN_OFF for row in rows):
            parts.append(f"{broken} broke off")
        return ", ".join(parts)


class LiveDisplay(Progress):
    """A picture that is redrawn four times a second, by a thread of its own; the loop only leaves numbers here."""

    def __enter__(self) -> "LiveDisplay":
        self._spinner = Spinner("dots", PREPARING)
        self._live = Live(
            console=self.console,
            get_renderable=self.picture,
            refresh_per_second=4,
            transient=True,
            vertical_overflow="crop",
        )
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def picture(self) -> RenderableType:
        if not self.under_way:
            return self._spinner
        rows = list(self.rows.values())
        room = max(1, self.console.height - 8)  # title, bar, pace, table head, last line and some air
        shown = rows if len(rows) <= room else rows[: room - 1]
        parts: list[RenderableType] = [
            Text(self.title(), "bold"),
            ProgressBar(total=self.steps, completed=self.step, width=min(self.console.width, 100)),
            Text("  ·  ".join(self.pace()), "cyan", no_wrap=True, overflow="ellipsis"),
            self._table(shown, rows),
        ]
        if len(shown) < len(rows):
            rest = rows[len(shown) :]
            parts.append(Text(f"… and {len(rest)} more runs: {self.totals(rest)}", no_wrap=True, overflow="ellipsis"))
        parts.append(Text(f"{self.folder}  (Ctrl-C stops; resume goes on)", "dim", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _table(self, shown: Sequence[Row], rows: Sequence[Row]) -> Table:
        width = self.console.width
        several = len({row.run.label for row in rows}) > 1
        names = [row.run.id if several else f"seed {row.run.seed}" for row in shown]
        name_width = max(4, min(max(map(len, names), default=4), width // 3))
        columns: dict[str, int] = {"last": 9, "state": 13}  # by what a narrow terminal can do without least
        columns |= {"best": 9} if width >= 60 else {}
        columns |= {"episodes": 9} if width >= 72 else {}
        columns |= {"evaluation": 11} if width >= 84 and any(row.evaluation is not None for row in rows) else {}
        curve_width = width - name_width - sum(size + 1 for size in columns.values()) - 2
        low, high = bounds(rows)
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
        table.add_column("run", width=name_width, no_wrap=True, overflow="ellipsis")
        if curve_width >= 6:
            table.add_column("return of each episode", width=curve_width, no_wrap=True)
        order = [name for name in ("last", "best", "episodes", "evaluation", "state") if name in columns]
        for column in order:
            side: Literal["left", "right"] = "left" if column == "state" else "right"
            table.add_column(column, width=columns[column], no_wrap=True, justify=side)
        for name, row in zip(names, shown, strict=True):
            returns = list(row.returns)
            cells: dict[str, RenderableType] = {
                "last": number(returns[-1]) if returns else "",
                "best": number(max(returns)) if returns else "",
                "episodes": str(len(returns)),
                "evaluation": "" if row.evaluation is None else number(row.evaluation),
                "state": row.state(),
            }
            curve = [sparkline(returns, curve_width, low, high, row.run.task.r_limit)] if curve_width >= 6 else []
            table.add_row(name, *curve, *(cells[column] for column in order))
        return table


class PlainDisplay(Progress):
    """A line at each twentieth of the way, and at least one a minute."""

    def __enter__(self) -> "PlainDisplay":
        self._say(PREPARING)
        return self

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        super().on_start(folder, runs, steps, step)
        self._say(f"{self.title()}, in {folder}" + (f", from step {step:,}" if step else ""))
        self._told, self._told_at = 20 * step // steps, time.monotonic()

    def on_step(self, step: int) -> None:
        super().on_step(step)
        reached = 20 * step // self.steps
        if reached > self._told or time.monotonic() - self._told_at > 60:
            self._told, self._told_at = reached, time.monotonic()
            self._say(f"{step / self.steps:4.0%}  {', '.join(self.pace())}: {self.totals(list(self.rows.values()))}")

    def on_status(self, run: Run, status: str, detail: str | None) -> None:
        super().on_status(run, status, detail)
        solved = self.rows[run.id].solved
        if status == "finished" and solved is not None:
            self._say(f"{run.id} is solved: {solved} episodes came before the solving ones.")

    def _say(self, line: str) -> None:
        # A log is searched by line, so none is wrapped; and it is read while training goes on.
        self.console.print(line, soft_wrap=True, highlight=False, markup=False)
        self.console.file.flush()


def make_display(console: Console, max_minutes: float | None = None) -> Progress:
    live = console.is_terminal and not console.is_dumb_terminal
    return (LiveDisplay if live else PlainDisplay)(console, max_minutes)


def sparkline(returns: Sequence[float], width: int, low: float, high: float, limit: float | None = None) -> Text:
    """A bar for each episode, or for the mean of several where there are more than fit; green above the limit."""
    if width < 1 or not returns:
        return Text()
    values = np.asarray(returns, dtype=np.float64)
    if len(values) > width:
        values = np.array([part.mean() for part in np.array_split(values, width)])
    heights = np.clip((values - low) / max(high - low, 1e-12) * len(BARS), 0, len(BARS) - 1)
    curve = Text()
    for value, height in zip(values, np.nan_to_num(heights), strict=True):
        curve.append(BARS[int(height)], "green" if limit is not None and value > limit else "cyan")
    return curve


def bounds(rows: Sequence[Row]) -> tuple[float, float]:
    """All curves share one scale, so that they can be compared."""
    returns = [list(row.returns) for row in rows if row.returns]
    return (min(map(min, returns)), max(map(max, returns))) if returns else (0.0, 1.0)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _place(folder: Path, runs: Sequence[Run]) -> tuple[int, int]:
    """Which of the experiment's cohorts this is, from 1 on, and how many there are."""
    try:
        cohorts = json.loads((folder / "experiment.json").read_bytes())["cohorts"]
    except (OSError, ValueError, KeyError):
        return 1, 1
    ids = [[run["run"] for run in cohort] for cohort in cohorts]
    ours = [run.id for run in runs]
    return (ids.index(ours) + 1 if ours in ids else 1), len(ids)
