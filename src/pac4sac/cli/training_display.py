"""Training as it goes: a live picture on a terminal, plain lines elsewhere. Both are callbacks of
the loop."""

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from pac4sac.base.text import brief, clock
from pac4sac.cli.shared import say
from pac4sac.runs.metrics import STREAK
from pac4sac.runs.reading import read_experiment, read_run
from pac4sac.runs.run import Run
from pac4sac.runs.status import BROKEN_OFF, Status
from pac4sac.training.callbacks import Callback

PREPARING = "preparing: simulators, networks, compiler, number of threads …"
SPINNER = Spinner("dots", f"{PREPARING} (Ctrl-C twice stops)")
BARS = "▁▂▃▄▅▆▇█"
STATE_WIDTH = 15
SAMPLE_SECONDS, SAMPLES = 0.5, 30  # speed is that of the last quarter of a minute


@dataclass
class RunProgress:
    """What is known of one run."""

    run: Run
    returns: list[float] = field(default_factory=list)
    evaluation: float | None = None
    status: str = "running"
    solved: int | None = None  # episodes before the solving ones
    above: int = 0  # episodes above the limit
    in_a_row: int = 0  # of them, up to now
    streak: int = 0  # the most of them in a row

    def add(self, *returns: float) -> None:
        for value in returns:
            self.returns.append(value)
            is_above = self.run.task.r_limit is not None and value > self.run.task.r_limit
            self.above += is_above
            self.in_a_row = self.in_a_row + 1 if is_above else 0
            self.streak = max(self.streak, self.in_a_row)
            if self.solved is None and self.in_a_row == STREAK:
                self.solved = len(self.returns) - STREAK

    def state(self) -> Text:
        if self.status in BROKEN_OFF:
            return Text(self.status, "bold red")
        if self.solved is not None:
            return Text(f"solved at {self.solved}", "bold green")
        if self.streak and self.status == "running":
            return Text(f"best streak {self.streak}", "cyan")
        return Text(self.status, "dim" if self.status == "running" else "")


class TrainingDisplay(Callback):
    """Keeps what a display shows."""

    def __init__(self, console: Console, max_minutes: float | None = None) -> None:
        self.console = console
        self.deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.rows: dict[str, RunProgress] = {}  # none before a cohort starts and after it has ended

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        self.folder, self.steps, self.step = folder, steps, step
        count = f"{len(runs)} runs in lockstep" if len(runs) > 1 else "one run"
        planned = (
            read_experiment(folder)["cohorts"] if (folder / "experiment.json").exists() else []
        )
        all_runs = [run["run"] for cohort in planned for run in cohort]
        first = all_runs.index(runs[0].id) + 1 if runs[0].id in all_runs else 0
        which = (
            f", {first} to {first + len(runs) - 1} of {len(all_runs)}"
            if len(runs) < len(all_runs)
            else ""
        )
        self.title = f"{runs[0].algo} on {runs[0].task.name}: {count}{which}"
        self._samples = deque([(time.monotonic(), step)], maxlen=SAMPLES)
        self._warmup = max(run.config.warmup for run in runs)
        self._learning = (time.monotonic(), step) if step >= self._warmup else None
        rows = {run.id: RunProgress(run) for run in runs}
        for row in rows.values():
            record = read_run(folder / "runs" / row.run.id)  # not empty where training goes on
            row.status = record.status
            row.add(*record.returns.tolist())
        self.rows = rows

    def on_step(self, step: int) -> None:
        self.step = step
        now = time.monotonic()
        if self._learning is None and step >= self._warmup:
            self._learning = (now, step)
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
        elif status == Status.STOPPED:
            self.console.print(Text(f"{run.id} was stopped by a callback: {detail}", "yellow"))

    def on_end(self, folder: Path) -> None:
        self.rows = {}

    def pace(self) -> list[str]:
        """Steps, their speed over all runs, and the time left, in words."""
        parts = [f"{self.step:,} of {self.steps:,} steps"]
        limits = [] if self.deadline is None else [max(0.0, self.deadline - time.monotonic())]
        # copied: another thread draws
        (start, first), *_, (end, last) = [*self._samples, self._samples[-1]]
        if last > first:
            speed = (last - first) / (end - start)  # lockstep steps per second
            running = sum(row.status == "running" for row in self.rows.values())
            parts.append(f"{speed * max(1, running):,.0f} steps/s")
        if self._learning is not None and last > self._learning[1]:
            # Since the updates began: the steps before them take next to no time.
            began, at = self._learning
            limits.append((self.steps - self.step) * (end - began) / (last - at))
        if self.step == self.steps:
            parts.append("finishing …")
        elif limits:
            parts.append(f"{clock(min(limits))} left")
        return parts


class LiveDisplay(TrainingDisplay):
    """A picture that is redrawn three times a second, by a thread of its own; the loop only leaves
    numbers here."""

    def picture(self) -> RenderableType:
        rows, width = list(self.rows.values()), self.console.width
        if not rows:
            return SPINNER
        # all but the rows of the table take nine lines, with some air
        room = max(1, self.console.height - 9)
        shown = rows if len(rows) <= room else rows[: room - 1]
        percent = f" {self.step / self.steps:4.0%}"
        bar = min(width, 100) - len(percent)
        done = bar * self.step // self.steps
        lines = [
            Text(self.title, "bold"),
            Text.assemble(("━" * done, "green"), ("━" * (bar - done), "bright_black"), percent),
            Text(" · ".join(self.pace()), "cyan"),
            Text(),
            *_table(shown, rows, width),
        ]
        if rest := rows[len(shown) :]:
            lines.append(Text(f"… and {len(rest)} more runs: {totals(rest)}"))
        lines += [Text(), Text(f"{self.folder}  (Ctrl-C stops; resume goes on)", "dim")]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return Text("\n").join(lines)


def _table(shown: Sequence[RunProgress], rows: Sequence[RunProgress], width: int) -> list[Text]:
    """Lines set by hand: rich's own tables would take several times as long, time which training
    lacks."""
    several = len({row.run.label for row in rows}) > 1
    names = [row.run.id if several else f"seed {row.run.seed}" for row in shown]
    name_width = min(max(map(len, names), default=0), width // 3)
    limit = rows[0].run.task.r_limit
    episodes = "episodes" if limit is None else f"above {limit:g}"
    # of consoles that have room for the column
    least_widths = {"last": 0, "best": 60, episodes: 72}
    if any(row.evaluation is not None for row in rows):
        least_widths["evaluation"] = 84
    columns = {
        name: max(len(name) + 2, 12 if name == episodes else 9)
        for name, least in least_widths.items()
        if width >= least
    }
    room = width - name_width - sum(columns.values()) - STATE_WIDTH - 1
    curve_width = room if room >= 7 else 0
    returns = [value for row in rows for value in list(row.returns)]
    # of all curves, which are to be compared
    scale = (min(returns), max(returns)) if returns else (0.0, 1.0)

    def line(name: str, curve: Text, cells: Mapping[str, str], state: Text) -> Text:
        text = Text(name)
        text.truncate(name_width, overflow="ellipsis", pad=True)
        text.append(" ").append_text(curve).pad_right(curve_width - len(curve))
        text.append("".join(cells.get(column, "").rjust(columns[column]) for column in columns))
        return text.append("  ").append_text(state)

    title = "return of each episode" if curve_width >= 22 else "returns" if curve_width else ""
    lines = [line("run", Text(title), {name: name for name in columns}, Text("state"))]
    lines[0].stylize("dim")
    for name, row in zip(names, shown, strict=True):
        returns = list(row.returns)
        numbers = {"last": returns[-1], "best": max(returns)} if returns else {}
        numbers |= {} if row.evaluation is None else {"evaluation": row.evaluation}
        cells = {column: brief(value) for column, value in numbers.items()}
        cells[episodes] = str(len(returns)) if limit is None else f"{row.above} of {len(returns)}"
        curve = sparkline(returns, curve_width, *scale, limit)
        lines.append(line(name, curve, cells, row.state()))
    return lines


class PlainDisplay(TrainingDisplay):
    """A line at each twentieth of the way, and at least one a minute."""

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        super().on_start(folder, runs, steps, step)
        say(self.console, f"{self.title}, in {folder}" + (f", from step {step:,}" if step else ""))
        self._reached, self._said_at = 20 * step // steps, time.monotonic()

    def on_step(self, step: int) -> None:
        super().on_step(step)
        reached = 20 * step // self.steps
        if reached > self._reached or time.monotonic() - self._said_at > 60:
            self._reached, self._said_at = reached, time.monotonic()
            say(
                self.console,
                f"{step / self.steps:4.0%}  {', '.join(self.pace())}: "
                f"{totals(list(self.rows.values()))}",
            )

    def on_status(self, run: Run, status: str, detail: str | None) -> None:
        super().on_status(run, status, detail)
        solved = self.rows[run.id].solved
        if status == "finished" and solved is not None:
            say(
                self.console, f"{run.id} is solved: {solved} episodes came before the solving ones."
            )


@contextlib.contextmanager
def displayed(console: Console, max_minutes: float | None = None) -> Iterator[TrainingDisplay]:
    """A display to show training on while it is entered."""
    if console.is_terminal and not console.is_dumb_terminal:
        live = LiveDisplay(console, max_minutes)
        with Live(
            console=console,
            get_renderable=live.picture,
            refresh_per_second=3,
            transient=True,
            vertical_overflow="crop",
        ):
            yield live
    else:
        say(console, PREPARING)
        yield PlainDisplay(console, max_minutes)


def sparkline(
    returns: Sequence[float], width: int, low: float, high: float, limit: float | None = None
) -> Text:
    """A bar for each episode, or for the mean of several where there are more than fit; green above
    the limit."""
    curve = Text()
    if width < 1 or not returns:
        return curve
    values = np.asarray(returns, dtype=np.float64)
    if len(values) > width:
        starts = np.linspace(0, len(values), width, endpoint=False).astype(int)
        values = np.add.reduceat(values, starts) / np.diff(starts, append=len(values))
    heights = np.clip((values - low) / max(high - low, 1e-12) * len(BARS), 0, len(BARS) - 1).astype(
        int
    )
    above = (values > (np.inf if limit is None else limit)).tolist()
    for green, part in groupby(zip(above, heights.tolist(), strict=True), key=itemgetter(0)):
        curve.append("".join(BARS[height] for _, height in part), "green" if green else "cyan")
    return curve


def totals(rows: Sequence[RunProgress]) -> str:
    """One run or many in one sentence."""
    last, limit = (
        [row.returns[-1] for row in rows if row.returns],
        rows[0].run.task.r_limit if rows else None,
    )
    what = "mean of the last returns" if len(rows) > 1 else "last return"
    parts = [f"{what} {brief(float(np.mean(last)))}" if last else "no episode ended yet"]
    if limit is not None:
        solved = sum(row.solved is not None for row in rows)
        if solved or len(rows) > 1:
            parts.append(f"{solved} of {len(rows)} solved" if len(rows) > 1 else "solved")
        if above := sum(row.above for row in rows):
            parts.append(
                f"{above} of {sum(len(row.returns) for row in rows)} episodes above {limit:g}"
            )
        if above and solved < len(rows):
            parts.append(
                f"best streak {max(row.streak for row in rows if row.solved is None)} of {STREAK}"
            )
    if broken := sum(row.status in BROKEN_OFF for row in rows):
        parts.append(f"{broken} broke off")
    return ", ".join(parts)
