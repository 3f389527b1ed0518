"""Progress of a training: a live picture on a terminal, lines of text elsewhere. Both are callbacks
of the loop."""

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

from pac4sac.base.stopping import StopRequest
from pac4sac.base.text import brief, clock
from pac4sac.cli.shared import say
from pac4sac.runs.metrics import STREAK
from pac4sac.runs.reading import read_experiment, read_run
from pac4sac.runs.status import BROKEN_OFF, Status
from pac4sac.training.callbacks import Callback
from pac4sac.training.run import Run

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
        self.deadline = StopRequest(max_minutes).deadline
        self.rows: dict[str, RunProgress] = {}  # none before a cohort starts and after it has ended

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        self.folder, self.steps, self.step = folder, steps, step
        self.title = f"{runs[0].algo} on {runs[0].task.name}: {_which_runs(folder, runs)}"
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


def _which_runs(folder: Path, runs: Sequence[Run]) -> str:
    """Return how many runs a cohort has, and which of the experiment they are."""
    count = f"{len(runs)} runs in lockstep" if len(runs) > 1 else "one run"
    if not (folder / "experiment.json").exists():
        return count
    planned = [run["run"] for cohort in read_experiment(folder)["cohorts"] for run in cohort]
    if len(runs) >= len(planned) or runs[0].id not in planned:
        return count
    first = planned.index(runs[0].id) + 1
    return f"{count}, {first} to {first + len(runs) - 1} of {len(planned)}"


class LiveDisplay(TrainingDisplay):
    """Draw a picture three times a second, in a thread of its own; the loop only leaves numbers."""

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
            *LiveTable(rows, width).lines(shown),
        ]
        if rest := rows[len(shown) :]:
            lines.append(Text(f"… and {len(rest)} more runs: {totals(rest)}"))
        lines += [Text(), Text(f"{self.folder}  (Ctrl-C stops; resume goes on)", "dim")]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return Text("\n").join(lines)


class LiveTable:
    """Lay out the table of runs by hand: a table of rich would take several times as long, time
    that training lacks."""

    def __init__(self, rows: Sequence[RunProgress], width: int) -> None:
        self.limit = rows[0].run.task.r_limit
        several = len({row.run.label for row in rows}) > 1
        self.names = {row.run.id: row.run.id if several else f"seed {row.run.seed}" for row in rows}
        self.name_width = min(max(map(len, self.names.values())), width // 3)
        self.headers = self._headers(rows, width)
        self.widths = {
            column: max(len(header) + 2, 12 if column == "episodes" else 9)
            for column, header in self.headers.items()
        }
        room = width - self.name_width - sum(self.widths.values()) - STATE_WIDTH - 1
        self.curve_width = room if room >= 7 else 0
        returns = [value for row in rows for value in list(row.returns)]
        # of all curves, which are to be compared
        self.scale = (min(returns), max(returns)) if returns else (0.0, 1.0)

    def _headers(self, rows: Sequence[RunProgress], width: int) -> dict[str, str]:
        """Return the headers of the columns that a console of this width has room for."""
        headers = {"last": "last"}
        if width >= 60:
            headers["best"] = "best"
        if width >= 72:
            headers["episodes"] = "episodes" if self.limit is None else f"above {self.limit:g}"
        if width >= 84 and any(row.evaluation is not None for row in rows):
            headers["evaluation"] = "evaluation"
        return headers

    def lines(self, shown: Sequence[RunProgress]) -> list[Text]:
        """Return the header and a line for each of these runs."""
        title = "return of each episode" if self.curve_width >= 22 else "returns"
        curve = Text(title if self.curve_width else "")
        header = self._line("run", curve, self.headers, Text("state"))
        header.stylize("dim")
        return [header, *map(self._run_line, shown)]

    def _run_line(self, row: RunProgress) -> Text:
        returns = list(row.returns)
        cells = {"episodes": str(len(returns))}
        if self.limit is not None:
            cells["episodes"] = f"{row.above} of {len(returns)}"
        if returns:
            cells |= {"last": brief(returns[-1]), "best": brief(max(returns))}
        if row.evaluation is not None:
            cells["evaluation"] = brief(row.evaluation)
        curve = sparkline(returns, self.curve_width, *self.scale, self.limit)
        return self._line(self.names[row.run.id], curve, cells, row.state())

    def _line(self, name: str, curve: Text, cells: Mapping[str, str], state: Text) -> Text:
        text = Text(name)
        text.truncate(self.name_width, overflow="ellipsis", pad=True)
        text.append(" ").append_text(curve).pad_right(self.curve_width - len(curve))
        for column, width in self.widths.items():
            text.append(cells.get(column, "").rjust(width))
        return text.append("  ").append_text(state)


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
    """Show training on the console while it is entered; yields the callback to train with."""
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
        lines = PlainDisplay(console, max_minutes)
        say(console, PREPARING)
        yield lines


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
    """Sum up one run or many in one sentence."""
    parts = [_last_returns(rows)]
    if rows and rows[0].run.task.r_limit is not None:
        parts += [_solved_runs(rows), _episodes_above(rows, rows[0].run.task.r_limit)]
    if broken := sum(row.status in BROKEN_OFF for row in rows):
        parts.append(f"{broken} broke off")
    return ", ".join(filter(None, parts))


def _last_returns(rows: Sequence[RunProgress]) -> str:
    last = [row.returns[-1] for row in rows if row.returns]
    if not last:
        return "no episode ended yet"
    what = "mean of the last returns" if len(rows) > 1 else "last return"
    return f"{what} {brief(float(np.mean(last)))}"


def _solved_runs(rows: Sequence[RunProgress]) -> str:
    solved = sum(row.solved is not None for row in rows)
    if len(rows) > 1:
        return f"{solved} of {len(rows)} solved"
    return "solved" if solved else ""


def _episodes_above(rows: Sequence[RunProgress], limit: float) -> str:
    above = sum(row.above for row in rows)
    if not above:
        return ""
    text = f"{above} of {sum(len(row.returns) for row in rows)} episodes above {limit:g}"
    streaks = [row.streak for row in rows if row.solved is None]
    return f"{text}, best streak {max(streaks)} of {STREAK}" if streaks else text
