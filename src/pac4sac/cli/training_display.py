"""Training as it goes: a live picture on a terminal, plain lines elsewhere. Both are callbacks of the loop."""

import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from pac4sac.base.text import brief, clock
from pac4sac.runs.metrics import solved_at
from pac4sac.runs.reading import read_run
from pac4sac.runs.run import Run
from pac4sac.runs.status import BROKEN_OFF
from pac4sac.training.callbacks import Callback

PREPARING = "preparing: simulators, networks, compiler, number of threads …"
BARS = "▁▂▃▄▅▆▇█"
STATE_WIDTH = 14
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
            parts.append("finishing …")
        elif (left := self.seconds_left()) is not None:
            parts.append(f"{clock(left)} left")
        return parts

    def title(self) -> str:
        run = next(iter(self.rows.values())).run
        count = f"{len(self.rows)} runs in lockstep" if len(self.rows) > 1 else "one run"
        cohort = f", cohort {self.cohort} of {self.cohorts}" if self.cohorts > 1 else ""
        return f"{run.algo} on {run.task.name}: {count}{cohort}"

    def totals(self, rows: Sequence[Row]) -> str:
        """Many runs in one sentence."""
        last = [row.returns[-1] for row in rows if row.returns]
        parts = [f"mean of the last returns {brief(float(np.mean(last)))}" if last else "no episode ended yet"]
        if rows and rows[0].run.task.r_limit is not None:
            parts.append(f"{sum(row.solved is not None for row in rows)} of {len(rows)} solved")
        if broken := sum(row.status in BROKEN_OFF for row in rows):
            parts.append(f"{broken} broke off")
        return ", ".join(parts)


class LiveDisplay(Progress):
    """A picture that is redrawn three times a second, by a thread of its own; the loop only leaves numbers here."""

    def __enter__(self) -> "LiveDisplay":
        self._spinner = Spinner("dots", f"{PREPARING} (Ctrl-C twice stops)")
        self._live = Live(
            console=self.console,
            get_renderable=self.picture,
            refresh_per_second=3,
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
        width = self.console.width
        rows = list(self.rows.values())
        room = max(1, self.console.height - 9)  # all but the rows of the table take nine lines, with some air
        shown = rows if len(rows) <= room else rows[: room - 1]
        bar = min(width, 100)
        done = bar * self.step // self.steps
        lines = [
            Text(self.title(), "bold"),
            Text.assemble(("━" * done, "green"), ("━" * (bar - done), "bright_black")),
            Text(" · ".join(self.pace()), "cyan"),
            Text(),
            *self._table(shown, rows, width),
        ]
        if rest := rows[len(shown) :]:
            lines.append(Text(f"… and {len(rest)} more runs: {self.totals(rest)}"))
        lines += [Text(), Text(f"{self.folder}  (Ctrl-C stops; resume goes on)", "dim")]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return Text("\n").join(lines)

    def _table(self, shown: Sequence[Row], rows: Sequence[Row], width: int) -> list[Text]:
        """Rows set by hand: rich's own tables would take several times as long, time which training lacks."""
        several = len({row.run.label for row in rows}) > 1
        names = [row.run.id if several else f"seed {row.run.seed}" for row in shown]
        name_width = min(max(map(len, names), default=0), width // 3)
        numbers = ["last", *(["best"] if width >= 60 else []), *(["episodes"] if width >= 72 else [])]
        if width >= 84 and any(row.evaluation is not None for row in rows):
            numbers.append("evaluation")
        curve_width = width - name_width - sum(map(_column, numbers)) - STATE_WIDTH - 1
        low, high = bounds(rows)
        curve_title = "return of each episode" if curve_width >= 22 else "returns"
        head = "run".ljust(name_width + 1) + (curve_title.ljust(curve_width) if curve_width >= 7 else "")
        lines = [Text(head + "".join(name.rjust(_column(name)) for name in numbers) + "  state", "dim")]
        for name, row in zip(names, shown, strict=True):
            returns = list(row.returns)
            line = Text(name)
            line.truncate(name_width, overflow="ellipsis", pad=True)
            line.append(" ")
            if curve_width >= 7:
                curve = sparkline(returns, curve_width, low, high, row.run.task.r_limit)
                line.append_text(curve).append(" " * (curve_width - len(curve)))
            cells = {
                "episodes": str(len(returns)),
                "evaluation": "" if row.evaluation is None else brief(row.evaluation),
            }
            cells |= {"last": brief(returns[-1]), "best": brief(max(returns))} if returns else {"last": "", "best": ""}
            line.append("".join(cells[column].rjust(_column(column)) for column in numbers)).append("  ")
            lines.append(line.append_text(row.state()))
        return lines


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
        starts = np.linspace(0, len(values), width, endpoint=False).astype(int)
        values = np.add.reduceat(values, starts) / np.diff(starts, append=len(values))
    heights = np.clip((values - low) / max(high - low, 1e-12) * len(BARS), 0, len(BARS) - 1).astype(int)
    above = (values > limit if limit is not None else np.zeros(len(values), bool)).tolist()
    curve = Text()
    for green, part in groupby(zip(above, heights.tolist(), strict=True), key=itemgetter(0)):
        curve.append("".join(BARS[height] for _, height in part), "green" if green else "cyan")
    return curve


def bounds(rows: Sequence[Row]) -> tuple[float, float]:
    """All curves share one scale, so that they can be compared."""
    returns = [list(row.returns) for row in rows if row.returns]
    return (min(map(min, returns)), max(map(max, returns))) if returns else (0.0, 1.0)


def _column(header: str) -> int:
    return max(len(header) + 2, 9)


def _place(folder: Path, runs: Sequence[Run]) -> tuple[int, int]:
    """Which of the experiment's cohorts this is, from 1 on, and how many there are."""
    try:
        cohorts = json.loads((folder / "experiment.json").read_bytes())["cohorts"]
    except (OSError, ValueError, KeyError):
        return 1, 1
    ids = [[run["run"] for run in cohort] for cohort in cohorts]
    ours = [run.id for run in runs]
    return (ids.index(ours) + 1 if ours in ids else 1), len(ids)
