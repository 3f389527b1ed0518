"""Training with a display, followed by a table of the runs and next commands."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pac4sac.base.trust import trust_flags
from pac4sac.cli.arguments import callback_flags
from pac4sac.cli.result_table import episodes_above, result_table
from pac4sac.cli.shared import INTERRUPTED, SOME_FAILED, say, writing
from pac4sac.cli.training_display import displayed
from pac4sac.export.tracking import callbacks_named
from pac4sac.runs.metrics import STREAK, is_solved, longest_streak
from pac4sac.runs.reading import RunRecord, warn_of_damage
from pac4sac.runs.status import BROKEN_OFF, Status
from pac4sac.training.experiment import Result

PICTURE = "learning-curves.png"
REASON = "(see status_detail in run.json)"


def train_and_show(
    start: Callable[..., Result],
    console: Console,
    *,
    out: Path,
    max_minutes: float | None,
    callbacks: Sequence[str],
) -> int:
    """Train with a display, print the result, and return the exit code.

    Args:
        start: Function that starts or resumes the training, with the keyword argument `callbacks`.
        console: Console to print to.
        out: Folder of the experiment.
        max_minutes: Time limit of the training.
        callbacks: Names of trackers and of custom callbacks.
    """
    watching = callbacks_named(callbacks)
    with writing(out):
        with displayed(console, max_minutes) as display:
            result = start(callbacks=[display, *watching])
        show_result(result, console, callbacks)
    return exit_code(result)


def exit_code(result: Result) -> int:
    """Return 130 after Ctrl-C, 1 if every run failed or diverged, 3 if some failed, else 0."""
    if result.reason is not None and result.reason.by_signal:
        return INTERRUPTED
    if not has_runs(result):
        return 0
    runs = result.runs
    if all(run.status in BROKEN_OFF or unevaluated(run) for run in runs):
        return 1
    return SOME_FAILED if any(map(has_failed, runs)) else 0


def has_failed(run: RunRecord) -> bool:
    """Return whether the simulators of a run failed, in training or in the last evaluation."""
    return run.status == Status.FAILED or unevaluated(run)


def has_runs(result: Result) -> bool:
    """Return whether a training has reached its first step."""
    return (result.folder / "runs").exists()


def unevaluated(run: RunRecord) -> bool:
    """Return whether all episodes of the last evaluation failed."""
    if not run.evaluations:
        return False
    returns = run.evaluations[-1]["returns"]
    return bool(returns) and all(value is None for value in returns)


def show_result(result: Result, console: Console, callbacks: Sequence[str] = ()) -> None:
    """Print the table of runs, the end of training, and next commands.

    Args:
        result: Result of the training.
        console: Console to print to.
        callbacks: Names to repeat in the command that resumes the training.
    """
    resume = f"Resume with:     {_resume_command(result.folder, callbacks)}"
    if not has_runs(result):
        say(console, f"Training was stopped before its first step, because {result.reason}.")
        say(console, resume)
        return
    runs = result.runs
    warn_of_damage(runs)
    for members in _by_task(runs):
        console.print(result_table(members, console))
    console.print(ending(result, runs), soft_wrap=True)
    if any(run.episodes for run in runs):
        say(console, f"Learning curves: {_save_picture(result.folder, runs)}")
    say(console, f"Run folders:     {result.folder / 'runs'}")
    if not result.complete:
        say(console, resume)
    elif any(run.status == Status.FAILED for run in runs):
        say(console, f"Retry with:      {_resume_command(result.folder, callbacks)}")
    for line in _next_commands(result.folder, runs):
        say(console, line)


def _by_task(runs: Sequence[RunRecord]) -> list[list[RunRecord]]:
    tasks: dict[str, list[RunRecord]] = {}
    for run in runs:
        tasks.setdefault(run.task["name"], []).append(run)
    return list(tasks.values())


def _next_commands(folder: Path, runs: Sequence[RunRecord]) -> Iterator[str]:
    if not any((run.folder / "agent.safetensors").is_file() for run in runs):
        return
    path = shlex.quote(str(folder))
    yield f"Record a video:  pac4sac watch {path}{trust_flags()}"
    yield f"Evaluate:        pac4sac evaluate {path}{trust_flags()}"
    yield f"Write a report:  pac4sac report {path}"


def ending(result: Result, runs: Sequence[RunRecord]) -> Text:
    """Describe the end of training in a sentence, with the runs that failed or were stopped."""
    how = "is complete" if result.complete else f"was stopped because {result.reason}"
    text = Text(f"Training {how}", "bold")
    if achieved := achievement(runs):
        text.append(f": {achieved}", "bold green" if any(map(is_solved, runs)) else "bold")
    text.append(".")
    broken = sum(run.status in BROKEN_OFF for run in runs)
    if broken:
        text.append(f" {broken} of {len(runs)} runs failed or diverged {REASON}.", "red")
    stopped = sum(run.status == Status.STOPPED for run in runs)
    if stopped:
        text.append(f" A callback stopped {stopped} of {len(runs)} runs {REASON}.", "yellow")
    return text


def _save_picture(folder: Path, runs: Sequence[RunRecord]) -> Path:
    # matplotlib takes a second to import
    from pac4sac.report.learning_curves import learning_curve_picture

    learning_curve_picture(folder / PICTURE, runs)
    return folder / PICTURE


def _resume_command(folder: Path, callbacks: Sequence[str]) -> str:
    return f"pac4sac resume {shlex.quote(str(folder))}{callback_flags(callbacks)}{trust_flags()}"


def achievement(runs: Sequence[RunRecord]) -> str:
    """Describe how close runs came to solving the task; empty without a solve threshold."""
    limited = [run for run in runs if run.task["r_limit"] is not None]
    if not limited:
        return ""
    solved = sum(map(is_solved, limited))
    if len(limited) == 1:
        return "solved" if solved else _episodes_above(limited)
    counted = f"{solved} of {len(limited)} runs solved"
    return counted if solved == len(limited) else f"{counted}, {_episodes_above(limited)}"


def _episodes_above(runs: Sequence[RunRecord]) -> str:
    limits = " and ".join(dict.fromkeys(f"{run.task['r_limit']:g}" for run in runs))
    above = sum(map(episodes_above, runs))
    if not above:
        return f"no episode above {limits} yet"
    text = f"{above} of {sum(len(run.episodes) for run in runs)} episodes above {limits}"
    if any(map(is_solved, runs)):
        return text
    streak = max(longest_streak(run.returns, run.task["r_limit"]) for run in runs)
    return f"{text}, at most {streak} in a row; {STREAK} in a row solve the task"
