"""The progress of training: a live display in a terminal, lines of text elsewhere."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pac4sac.base.stopping import StopRequest
from pac4sac.base.text import brief, clock
from pac4sac.cli.shared import say
from pac4sac.cli.sparkline import Sparkline
from pac4sac.cli.training_progress import Pace, RunProgress, summary
from pac4sac.runs.reading import read_experiment, read_run
from pac4sac.runs.status import BROKEN_OFF, Status
from pac4sac.training.callbacks import Callback
from pac4sac.training.run import Run

PREPARING = "Preparing simulators, networks and compiler …"
SPINNER = Spinner("dots", f"{PREPARING} (press Ctrl-C twice to stop)")
OTHER_LINES = 9  # lines of the live display besides the rows of runs
TERMINAL_WIDTHS = {  # columns of the live table, with the minimum width of a terminal to show them
    "returns": 40,
    "last": 0,
    "best": 60,
    "episodes": 72,
    "evaluation": 84,
}


class TrainingDisplay(Callback):
    """Collect the data that a display shows."""

    def __init__(self, console: Console, max_minutes: float | None = None) -> None:
        self.console = console
        self.deadline = StopRequest(max_minutes).deadline
        self.rows: dict[str, RunProgress] = {}  # empty if no cohort is training

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        self.folder, self.steps, self.step = folder, steps, step
        self.title = f"{runs[0].algo} on {runs[0].task.name}: {_which_runs(folder, runs)}"
        self._pace = Pace(step, max(run.config.warmup for run in runs))
        self.rows = {run.id: _progress_so_far(folder, run) for run in runs}

    def on_step(self, step: int) -> None:
        self.step = step
        self._pace.add(step)

    def on_log(self, run: Run, kind: str, row: dict[str, Any]) -> None:
        if kind == "episodes":
            self.rows[run.id].add(row["return"])
        elif kind == "evaluations":
            self.rows[run.id].evaluation = row["mean"]

    def on_status(self, run: Run, status: str, detail: str | None) -> None:
        self.rows[run.id].status = status
        if status in BROKEN_OFF:
            self.console.print(Text(f"{run.id} {status}: {detail or 'unknown reason'}", "red"))
        elif status == Status.STOPPED:
            self.console.print(Text(f"{run.id} was stopped by a callback: {detail}", "yellow"))

    def on_end(self, folder: Path) -> None:
        self.rows = {}

    def pace(self) -> list[str]:
        """Return the steps done, the total speed of all runs, and the time left."""
        parts = [f"{self.step:,} of {self.steps:,} steps"]
        speed = self._pace.steps_per_second()
        if speed is not None:
            running = sum(row.status == "running" for row in self.rows.values())
            parts.append(f"{speed * max(1, running):,.0f} steps/s")
        left = self._seconds_left()
        if self.step == self.steps:
            parts.append("finishing …")
        elif left is not None:
            parts.append(f"{clock(left)} left")
        return parts

    def _seconds_left(self) -> float | None:
        """Return the seconds until the last step or the time limit, whichever comes first."""
        estimates = []
        if self.deadline is not None:
            estimates.append(max(0.0, self.deadline - time.monotonic()))
        seconds_per_step = self._pace.seconds_per_step()
        if seconds_per_step is not None:
            estimates.append((self.steps - self.step) * seconds_per_step)
        return min(estimates, default=None)


def _progress_so_far(folder: Path, run: Run) -> RunProgress:
    """Return the progress of a run, with the episodes before a resume."""
    record = read_run(folder / "runs" / run.id)
    progress = RunProgress(run, status=record.status)
    for value in record.returns.tolist():
        progress.add(value)
    return progress


def _which_runs(folder: Path, runs: Sequence[Run]) -> str:
    """Return the number of runs of a cohort, and their position in the experiment."""
    count = f"{len(runs)} runs in lockstep" if len(runs) > 1 else "one run"
    if not (folder / "experiment.json").exists():
        return count
    cohorts = read_experiment(folder)["cohorts"]
    planned = [run["run"] for cohort in cohorts for run in cohort]
    if len(runs) >= len(planned) or runs[0].id not in planned:
        return count
    first = planned.index(runs[0].id) + 1
    return f"{count}, {first} to {first + len(runs) - 1} of {len(planned)}"


class LiveDisplay(TrainingDisplay):
    """Redraw the display twice a second, in a separate thread from the loop."""

    def picture(self) -> RenderableType:
        rows = list(self.rows.values())
        if not rows:
            return SPINNER
        room = max(1, self.console.height - OTHER_LINES)
        shown = rows if len(rows) <= room else rows[: room - 1]
        lines: list[RenderableType] = [
            _line(self.title, "bold"),
            self._progress_bar(),
            _line(" · ".join(self.pace()), "cyan"),
            Text(),
            runs_table(rows, shown, self.console.width),
        ]
        if rest := rows[len(shown) :]:
            lines.append(_line(f"… and {len(rest)} more runs: {summary(rest)}"))
        lines += [
            Text(),
            _line(f"{self.folder}  (press Ctrl-C to stop, pac4sac resume to continue)", "dim"),
        ]
        return Group(*lines)

    def _progress_bar(self) -> Text:
        percent = f" {self.step / self.steps:4.0%}"
        width = min(self.console.width, 100) - len(percent)
        done = width * self.step // self.steps
        return Text.assemble(("━" * done, "green"), ("━" * (width - done), "bright_black"), percent)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def runs_table(rows: Sequence[RunProgress], shown: Sequence[RunProgress], width: int) -> Table:
    """Return a table of the runs `shown` for a terminal of this width. Columns, names and scale
    depend on all `rows`."""
    columns, names, scale = _columns(rows, width), _names(rows), _scale(rows)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=True)
    table.add_column("run", no_wrap=True, max_width=width // 3)
    for name in columns:
        _add_column(table, name, rows[0].threshold)
    table.add_column("state", no_wrap=True)
    for row in shown:
        cells = _cells(row, scale)
        table.add_row(names[row.run.id], *(cells[name] for name in columns), row.state())
    return table


def _columns(rows: Sequence[RunProgress], width: int) -> list[str]:
    """Return the columns that fit into a terminal of this width."""
    columns = [name for name, least in TERMINAL_WIDTHS.items() if width >= least]
    if "evaluation" in columns and all(row.evaluation is None for row in rows):
        columns.remove("evaluation")
    return columns


def _names(rows: Sequence[RunProgress]) -> dict[str, str]:
    """Return a name for each run by its id. If there is only one variant, the name is the seed."""
    if len({row.run.label for row in rows}) > 1:
        return {row.run.id: row.run.id for row in rows}
    return {row.run.id: f"seed {row.run.seed}" for row in rows}


def _scale(rows: Sequence[RunProgress]) -> tuple[float, float]:
    """Return the lowest and the highest return of all runs."""
    returns = [value for row in rows for value in list(row.returns)]
    return (min(returns), max(returns)) if returns else (0.0, 1.0)


def _add_column(table: Table, name: str, threshold: float | None) -> None:
    if name == "returns":
        table.add_column("returns", no_wrap=True, ratio=1)
        return
    header = name
    if name == "episodes" and threshold is not None:
        header = f"above {threshold:g}"
    # A minimum width keeps the columns in place while numbers grow.
    table.add_column(header, justify="right", no_wrap=True, min_width=7)


def _cells(row: RunProgress, scale: tuple[float, float]) -> dict[str, RenderableType]:
    """Return the cells of a run by column."""
    returns = list(row.returns)  # a copy, because the loop appends while another thread draws
    episodes = str(len(returns))
    if row.threshold is not None:
        episodes = f"{row.above} of {episodes}"
    return {
        "returns": Sparkline(returns, *scale, row.threshold),
        "last": brief(returns[-1]) if returns else "",
        "best": brief(max(returns)) if returns else "",
        "episodes": episodes,
        "evaluation": "" if row.evaluation is None else brief(row.evaluation),
    }


class PlainDisplay(TrainingDisplay):
    """Print a line after every twentieth of the steps, and at least one line per minute."""

    def on_prepare(self) -> None:
        say(self.console, PREPARING)

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        super().on_start(folder, runs, steps, step)
        from_step = f", from step {step:,}" if step else ""
        say(self.console, f"{self.title}, in {folder}{from_step}")
        self._reached, self._said_at = 20 * step // steps, time.monotonic()

    def on_step(self, step: int) -> None:
        super().on_step(step)
        reached = 20 * step // self.steps
        if reached > self._reached or time.monotonic() - self._said_at > 60:
            self._reached, self._said_at = reached, time.monotonic()
            pace, result = ", ".join(self.pace()), summary(list(self.rows.values()))
            say(self.console, f"{step / self.steps:4.0%}  {pace}: {result}")

    def on_status(self, run: Run, status: str, detail: str | None) -> None:
        super().on_status(run, status, detail)
        solved = self.rows[run.id].solved
        if status == "finished" and solved is not None:
            sentence = f"{run.id} solved the task after {solved} episodes."
            say(self.console, sentence)


@contextlib.contextmanager
def displayed(console: Console, max_minutes: float | None = None) -> Iterator[TrainingDisplay]:
    """Show a training on the console, and yield the callback that it needs."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield PlainDisplay(console, max_minutes)
        return
    live = LiveDisplay(console, max_minutes)
    with Live(
        console=console,
        get_renderable=live.picture,
        refresh_per_second=2,
        transient=True,
        vertical_overflow="crop",
    ):
        yield live
