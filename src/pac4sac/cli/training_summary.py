"""What came of an experiment: the paper's two metrics for each run and over the seeds, beside the paper's numbers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pac4sac.base.files import read_jsonl
from pac4sac.base.text import brief
from pac4sac.cli.training_display import BROKEN_OFF, sparkline
from pac4sac.paper.numbers import PAPER_TASKS, SEEDS, MeanSd, PaperCell, paper_cell
from pac4sac.runs.collection import is_complete, is_solved, score_run
from pac4sac.runs.metrics import Score
from pac4sac.runs.reading import RunRecord
from pac4sac.training.experiment import Result

PICTURE = "learning-curves.png"
LAST = 10  # episodes, whose mean stands in for the metrics where there are none
WIDTHS_OF_CURVES = (10, 30)  # on a terminal of 80 characters and on a wide one


@dataclass(frozen=True)
class Bound:
    """A number, or what it is at least while its run is unfinished."""

    value: float
    at_least: bool = False


def show_result(result: Result, console: Console) -> None:
    """The table, the picture, and in a sentence how it ended."""
    runs = result.runs
    for task in dict.fromkeys(run.task["name"] for run in runs):
        console.print(result_table([run for run in runs if run.task["name"] == task], console.width))
    console.print(outcome(result, runs), soft_wrap=True)
    picture = draw_curves(result.folder, runs)
    if picture:
        console.print(f"Learning curves: {picture}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"Run folders:     {result.folder / 'runs'}", soft_wrap=True, highlight=False, markup=False)
    if not result.complete:
        go_on = f"Go on with:      pac4sac resume {result.folder}"
        console.print(go_on, soft_wrap=True, highlight=False, markup=False)


def all_broke_off(result: Result) -> bool:
    return all(run.status in BROKEN_OFF for run in result.runs)


def draw_curves(folder: Path, runs: Sequence[RunRecord]) -> Path | None:
    if not any(run.episodes for run in runs):
        return None
    from pac4sac.report.learning_curves import learning_curve_picture  # matplotlib takes a second to import

    learning_curve_picture(folder / PICTURE, runs)
    return folder / PICTURE


def outcome(result: Result, runs: Sequence[RunRecord]) -> Text:
    solved = sum(is_solved(run) for run in runs)
    solvable = any(run.task["r_limit"] is not None for run in runs)
    broken = sum(run.status in BROKEN_OFF for run in runs)
    text = Text("Training is complete" if result.complete else f"Training was stopped because {result.reason}", "bold")
    if solvable and len(runs) == 1:
        text.append(": solved." if solved else ": not solved.", "bold green" if solved else "bold yellow")
    elif solvable:
        text.append(f": {solved} of {len(runs)} runs solved.", "bold green" if solved else "bold yellow")
    else:
        text.append(".")
    if broken:
        text.append(f" {broken} of {len(runs)} runs broke off (see status_detail in run.json).", "red")
    return text


def result_table(runs: Sequence[RunRecord], width: int) -> Table:
    """One task's runs, for a console of that width."""
    r_limit = runs[0].task["r_limit"]
    evaluations = [last_evaluations(run) for run in runs]
    policies = [policy for policy in ("greedy", "shooting") if any(policy in row for row in evaluations)]
    scores = [score for run in runs if (score := score_run(run)) is not None]
    scored = len(scores) == len(runs)
    headers = ["episodes until\nsolved", "regret\n(thousands)"] if scored else [f"mean of\nlast {LAST}"]
    headers += [{"greedy": "evaluation", "shooting": "evaluation,\nshooting"}[policy] for policy in policies]
    title = runs[0].task["name"] + (f" (solved: five episodes in a row above {r_limit:g})" if r_limit else "")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    table.add_column("returns", no_wrap=True)
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)

    low = min((run.returns.min() for run in runs if run.episodes), default=0.0)
    high = max((run.returns.max() for run in runs if run.episodes), default=1.0)
    narrow, wide = WIDTHS_OF_CURVES
    curve_width = min(max(narrow, narrow + width - 80), wide)
    groups = by_label(runs)
    values = []
    for place, (run, evaluation) in enumerate(zip(runs, evaluations, strict=True)):
        mine: list[Bound | None] = [*metrics(scores[place])] if scored else [last_returns(run)]
        mine += [Bound(evaluation[policy]) if policy in evaluation else None for policy in policies]
        values.append(mine)
        curve = sparkline(run.returns.tolist(), curve_width, low, high, r_limit)
        name = run.run if len(groups) > 1 else f"seed {run.seed}"
        table.add_row(name, curve, *map(cell, mine), state(run))
    table.add_section()
    for label, members in groups.items():
        if len(members) > 1:
            columns = zip(*(values[k] for k in members), strict=True)
            name = f"{label}, mean ± sd" if len(groups) > 1 else "mean ± sd"
            table.add_row(name, "", *(mean_and_sd(list(column)) for column in columns), "", style="bold")
    algos = dict.fromkeys(run.algo for run in runs)
    for algo in algos:
        published = comparable_cell(next(run for run in runs if run.algo == algo))
        if published and scored:
            numbers = [paper_number(published.episodes), paper_number(published.regret, 1000)]
            blank = [""] * (len(policies) + 1)
            table.add_row(
                f"paper ({SEEDS} seeds)" if len(algos) == 1 else f"paper's {algo} ({SEEDS} seeds)",
                "",
                *numbers,
                *blank,
                style="magenta",
            )
    return table


def metrics(score: Score) -> tuple[Bound, Bound]:
    return Bound(score.episodes, not score.complete), Bound(score.regret / 1000, not score.complete)


def last_returns(run: RunRecord) -> Bound | None:
    return Bound(float(run.returns[-LAST:].mean())) if run.episodes else None


def state(run: RunRecord) -> Text:
    if run.status in BROKEN_OFF:
        return Text(run.status, "bold red")
    if is_solved(run):
        return Text("solved", "bold green")
    if run.task["r_limit"] is not None and is_complete(run):
        return Text("not solved", "yellow")
    return Text("unfinished" if run.status in ("running", "interrupted") else run.status, "dim")


def last_evaluations(run: RunRecord) -> dict[str, float]:
    """The mean return of the last evaluation of each policy."""
    rows, _ = read_jsonl(run.folder / "evaluations.jsonl")
    return {row["policy"]: row["mean"] for row in rows if row.get("mean") is not None and "policy" in row}


def by_label(runs: Sequence[RunRecord]) -> dict[str, list[int]]:
    """The places of the runs that differ in their seed alone."""
    groups: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        groups.setdefault(run.run.removesuffix(f"-seed{run.seed}"), []).append(place)
    return groups


def comparable_cell(run: RunRecord) -> PaperCell | None:
    """The paper's numbers for this task and algorithm, where the run was scored by the paper's rules."""
    rules = PAPER_TASKS.get(run.task["name"])
    about = json.loads((run.folder / "run.json").read_bytes())
    as_published = about.get("preset") == "paper" and not run.started_from
    if rules is None or not as_published or run.task["r_limit"] != rules.r_limit:
        return None
    same_length = run.task["steps"] // run.task["horizon"] == rules.e_max
    return paper_cell(run.task["name"], run.algo) if same_length else None


def cell(bound: Bound | None) -> str:
    if bound is None:
        return ""
    return f"{'≥ ' if bound.at_least else ''}{_short(bound.value)}"


def mean_and_sd(bounds: Sequence[Bound | None]) -> str:
    known = [bound for bound in bounds if bound is not None]
    values = [bound.value for bound in known]
    if len(values) < 2:
        return cell(known[0]) if known else ""
    mean = cell(Bound(float(np.mean(values)), any(bound.at_least for bound in known)))
    return f"{mean} ± {_short(float(np.std(values, ddof=1)))}"


def paper_number(published: MeanSd, unit: float = 1) -> str:
    return f"{published.mean / unit:.1f} ± {published.sd / unit:.1f}"


def _short(value: float) -> str:
    return f"{value:g}" if value == int(value) and abs(value) < 1000 else brief(value)


def show_evaluations(console: Console, title: str, rows: Sequence[tuple[str, str, Sequence[float]]]) -> None:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("run", overflow="fold")
    table.add_column("policy")
    for header in ("mean ± sd", "lowest", "highest"):
        table.add_column(header, justify="right")
    for run, policy, returns in rows:
        spread = mean_and_sd([Bound(value) for value in returns])
        table.add_row(run, policy, spread, brief(min(returns)), brief(max(returns)))
    console.print(table)
