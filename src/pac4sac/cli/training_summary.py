"""Training shown as it goes, then what came of it: the paper's two metrics of each run, beside the
paper's numbers."""

import io
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pac4sac.base.stopping import StopRequest
from pac4sac.base.text import brief
from pac4sac.base.trust import trusted
from pac4sac.cli.arguments import callback_flags
from pac4sac.cli.shared import code_of_stop, plain_table, say, writing
from pac4sac.cli.training_display import displayed, sparkline
from pac4sac.export.tracking import callbacks_named
from pac4sac.paper.numbers import PAPER_TASKS, SEEDS, paper_cell
from pac4sac.report.tables import in_digits
from pac4sac.runs.metrics import (
    STREAK,
    is_complete,
    is_solved,
    last_evaluations,
    longest_streak,
    score_run,
)
from pac4sac.runs.reading import RunRecord, tell_damage
from pac4sac.runs.status import BROKEN_OFF, Status
from pac4sac.training.experiment import Result

PICTURE = "learning-curves.png"
LAST = 10  # episodes, whose mean stands in for the metrics where there are none
CURVE_WIDTHS = (30, 20, 10)  # of which the widest is taken that the terminal has room for
# columns that are left out where it has not, in this order
SPARE = ("returns", "above", "deterministic", "shooting")
# headers by policy
EVALUATIONS = {"deterministic": "evaluation", "shooting": "evaluation,\nshooting"}


class TableNumber(NamedTuple):
    """A number, or what it is at least while its run is unfinished."""

    value: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥ ' if self.at_least else ''}{_short(self.value)}"


def train_and_show(
    train: Callable[..., Result],
    console: Console,
    folder: Path,
    max_minutes: float | None,
    callbacks: Sequence[str],
) -> int:
    """Show training while it goes on and what came of it; give the exit code. Callbacks are given
    by their names."""
    StopRequest(max_minutes)  # says what is wrong with it before anything is prepared
    watching = callbacks_named(callbacks)
    with writing(folder):
        with displayed(console, max_minutes) as display:
            result = train(callbacks=[display, *watching])
        if not (result.folder / "runs").exists():
            say(console, f"Training was stopped because {result.reason}, before its first step.")
            say(console, f"Go on with:      {_how_to_go_on(result.folder, callbacks)}")
            return code_of_stop(result.reason)
        show_result(result, console, callbacks)
    return code_of_stop(result.reason) or int(
        all(run.status in BROKEN_OFF or unevaluated(run) for run in result.runs)
    )


def unevaluated(run: RunRecord) -> bool:
    """Whether all episodes of its last evaluation failed."""
    returns = run.evaluations[-1]["returns"] if run.evaluations else None
    return bool(returns) and not any(value is not None for value in returns or ())


def show_result(result: Result, console: Console, callbacks: Sequence[str] = ()) -> None:
    """The table, the picture, in a sentence how it ended, and what can be done next."""
    runs, folder = result.runs, shlex.quote(str(result.folder))
    tell_damage(runs)
    for task in dict.fromkeys(run.task["name"] for run in runs):
        console.print(
            result_table([run for run in runs if run.task["name"] == task], console.width)
        )
    ending = (
        "Training is complete"
        if result.complete
        else f"Training was stopped because {result.reason}"
    )
    text = Text(ending, "bold")
    if achieved := achievement(runs):
        text.append(f": {achieved}", "bold green" if any(map(is_solved, runs)) else "bold")
    text.append(".")
    if broken := sum(run.status in BROKEN_OFF for run in runs):
        text.append(
            f" {broken} of {len(runs)} runs broke off (see status_detail in run.json).", "red"
        )
    if stopped := sum(run.status == Status.STOPPED for run in runs):
        text.append(
            f" A callback stopped {stopped} of {len(runs)} runs (see status_detail in run.json).",
            "yellow",
        )
    console.print(text, soft_wrap=True)
    if any(run.episodes for run in runs):
        # matplotlib takes a second to import
        from pac4sac.report.figures import learning_curve_picture

        learning_curve_picture(result.folder / PICTURE, runs)
        say(console, f"Learning curves: {result.folder / PICTURE}")
    say(console, f"Run folders:     {result.folder / 'runs'}")
    allowed = "".join(f" --trust {module}" for module in trusted())
    if not result.complete:
        say(console, f"Go on with:      {_how_to_go_on(result.folder, callbacks)}")
    if any((run.folder / "agent.safetensors").is_file() for run in runs):
        say(console, f"Film it with:    pac4sac watch {folder}{allowed}")
        say(console, f"Test it with:    pac4sac evaluate {folder}{allowed}")
        say(console, f"Write it up:     pac4sac report {folder}")


def _how_to_go_on(folder: Path, callbacks: Sequence[str]) -> str:
    allowed = "".join(f" --trust {module}" for module in trusted())
    return f"pac4sac resume {shlex.quote(str(folder))}{callback_flags(callbacks)}{allowed}"


def achievement(runs: Sequence[RunRecord]) -> str:
    """How far runs came, in words; nothing where no limit tells."""
    limited = [run for run in runs if run.task["r_limit"] is not None]
    solved, streaks = (
        sum(map(is_solved, limited)),
        [longest_streak(run.returns, run.task["r_limit"]) for run in limited],
    )
    if not limited or (solved == len(limited) == 1):
        return "solved" if limited else ""
    parts = [f"{solved} of {len(limited)} runs solved"] if len(limited) > 1 else []
    if solved < len(limited):
        limits = " and ".join(
            f"{limit:g}" for limit in dict.fromkeys(run.task["r_limit"] for run in limited)
        )
        above = sum(int((run.returns > run.task["r_limit"]).sum()) for run in limited)
        best = f"at most {max(streaks)} in a row, where {STREAK} in a row count as solved"
        episodes = sum(len(run.episodes) for run in limited)
        parts.append(
            f"{above} of {episodes} episodes above {limits}"
            if above
            else f"no episode above {limits} yet"
        )
        parts += [best] if above and not solved else []
    return ", ".join(parts)


def result_table(runs: Sequence[RunRecord], width: int) -> Table:
    """One task's runs, for a console of that width: the names of the runs stay whole, and what
    there is no room for beside them is left out."""
    ruler = Console(width=10_000, file=io.StringIO())
    sizes = [*CURVE_WIDTHS, *[0] * len(SPARE)]
    for place, curve_width in enumerate(sizes):
        left_out = SPARE[: max(0, place + 1 - len(CURVE_WIDTHS))]
        table = _result_table(runs, curve_width, left_out)
        if Measurement.get(ruler, ruler.options, table).maximum <= width:
            break
    else:
        table.columns[0].no_wrap = False
    return table


def _result_table(runs: Sequence[RunRecord], curve_width: int, left_out: Sequence[str]) -> Table:
    r_limit = runs[0].task["r_limit"]
    scored = all(score_run(run) is not None for run in runs)
    policies = [
        policy for policy in EVALUATIONS if any(policy in last_evaluations(run) for run in runs)
    ]
    policies = [policy for policy in policies if policy not in left_out]
    headers = (
        ["episodes\nuntil\nsolved", "regret\n(1000s)"] if scored else [f"mean of\nlast {LAST}"]
    )
    rule = f" (solved: five episodes in a row above {r_limit:g})" if r_limit is not None else ""
    table = plain_table(runs[0].task["name"] + rule, "run")
    table.columns[0].no_wrap = True
    before = ["returns"] if curve_width else []
    after = [f"above\n{r_limit:g}"] if r_limit is not None and "above" not in left_out else []
    for header in (
        *before,
        *headers,
        *(EVALUATIONS[policy] for policy in policies),
        *after,
        "state",
    ):
        table.add_column(
            header, justify="left" if header in ("returns", "state") else "right", no_wrap=True
        )

    returns = [run.returns for run in runs if run.episodes]
    low, high = (
        min((r.min() for r in returns), default=0.0),
        max((r.max() for r in returns), default=1.0),
    )
    labels = [run.run.removesuffix(f"-seed{run.seed}") for run in runs]
    groups: dict[str, list[list[TableNumber | None]]] = {label: [] for label in labels}
    for run, label in zip(runs, labels, strict=True):
        numbers = measured(run, policies, scored)
        groups[label].append(numbers)
        curve = [sparkline(run.returns.tolist(), curve_width, low, high, r_limit)] if before else []
        above = [f"{int((run.returns > r_limit).sum())} of {len(run.episodes)}"] if after else []
        name = run.run if len(groups) > 1 else f"seed {run.seed}"
        table.add_row(name, *curve, *(str(number or "") for number in numbers), *above, state(run))
    table.add_section()
    nothing = [""] * len(before)
    for label, group in groups.items():
        if len(group) > 1:
            name = f"{label}, mean ± sd" if len(groups) > 1 else "mean ± sd"
            table.add_row(name, *nothing, *map(mean_and_sd, zip(*group, strict=True)), style="bold")
    algos = list(dict.fromkeys(run.algo for run in runs)) if scored else []
    for algo in algos:
        name = f"paper ({SEEDS} seeds)" if len(algos) == 1 else f"paper's {algo} ({SEEDS} seeds)"
        if published := paper_numbers(next(run for run in runs if run.algo == algo)):
            table.add_row(name, *nothing, *published, style="magenta")
    return table


def measured(run: RunRecord, policies: Sequence[str], scored: bool) -> list[TableNumber | None]:
    """The numbers of a run, in the order of the table's columns."""
    numbers: list[TableNumber | None] = [
        TableNumber(float(run.returns[-LAST:].mean())) if run.episodes else None
    ]
    if scored and (score := score_run(run)):
        numbers = [
            TableNumber(value, not score.complete)
            for value in (score.episodes, score.regret / 1000)
        ]
    means = last_evaluations(run)
    return numbers + [
        TableNumber(means[policy]) if policy in means else None for policy in policies
    ]


def state(run: RunRecord) -> Text:
    if run.status in BROKEN_OFF:
        return Text(run.status, "bold red")
    if is_solved(run):
        return Text("solved", "bold green")
    if run.task["r_limit"] is not None and (
        streak := longest_streak(run.returns, run.task["r_limit"])
    ):
        return Text(f"best streak {streak}", "cyan")
    if run.task["r_limit"] is not None and is_complete(run):
        return Text("not solved", "yellow")
    return Text("unfinished" if run.status in ("running", "interrupted") else run.status, "dim")


def paper_numbers(run: RunRecord) -> list[str]:
    """The paper's numbers for this task and algorithm, where the run was scored by the paper's
    rules."""
    task, rules, published = (
        run.task,
        PAPER_TASKS.get(run.task["name"]),
        paper_cell(run.task["name"], run.algo),
    )
    if rules is None or published is None or run.preset != "paper" or run.started_from:
        return []
    if task["r_limit"] != rules.r_limit or task["steps"] // task["horizon"] != rules.e_max:
        return []
    return [in_digits(published.episodes), in_digits(published.regret, 1000)]


def mean_and_sd(numbers: Sequence[TableNumber | None]) -> str:
    known = [number for number in numbers if number is not None]
    if len(known) < 2:
        return "".join(map(str, known))
    values = [number.value for number in known]
    mean = TableNumber(float(np.mean(values)), any(number.at_least for number in known))
    return f"{mean} ± {_short(float(np.std(values, ddof=1)))}"


def _short(value: float) -> str:
    return f"{value:g}" if value == int(value) and abs(value) < 1000 else brief(value)
