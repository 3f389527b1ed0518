"""Learning curves as CSV files in a common schema: exp_name, env_name, seed, metric, env_step,
value.

A curve of another project is a run with evaluation returns only.
"""

import csv
import dataclasses
import io
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import read_file
from pac4sac.base.grouping import group_by
from pac4sac.base.text import file_name
from pac4sac.runs.reading import RunRecord, make_record

COLUMNS = ("exp_name", "env_name", "seed", "metric", "env_step", "value")
EVALUATION = "avg_return"  # metric name of evaluation returns in such files
NEAR = 0.05  # largest distance of the last evaluation from the end, as a fraction of training

Point = tuple[int, float | None]  # step and mean return; None if not finite


@dataclass(frozen=True)
class Curve:
    """Hold the evaluation returns of one run of another project."""

    file: str  # name of the file
    exp_name: str
    env_name: str
    seed: int
    points: tuple[Point, ...]  # sorted by step

    @property
    def steps(self) -> int:
        """Return the step of the last evaluation."""
        return self.points[-1][0]

    def until(self, steps: int) -> "Curve | None":
        """Return the curve up to the evaluation nearest to a step; None if no evaluation is near
        it."""
        nearest = min((step for step, _ in self.points), key=lambda step: abs(step - steps))
        if abs(nearest - steps) > NEAR * steps:
            return None
        kept = tuple(point for point in self.points if point[0] <= nearest)
        return dataclasses.replace(self, points=kept)


def is_curve_file(path: str | Path) -> bool:
    """Return whether a path is a file of curves, not a folder of runs."""
    return Path(path).suffix.lower() == ".csv"


def read_curves(files: Iterable[str | Path]) -> list[Curve]:
    """Return the evaluation curves of some files, sorted by name, task and seed.

    Columns that are not in the schema are ignored, and so are rows of metrics other than
    `avg_return`.

    Raises:
        UserError: If a file is unreadable, lacks a column, has an invalid value or no such row, or
            if a seed has two values at a step or is in two files.
    """
    curves = [curve for file in dict.fromkeys(map(Path, files)) for curve in _curves_of(file)]
    curves.sort(key=lambda curve: (curve.env_name, curve.exp_name, curve.seed, curve.file))
    for name, same in group_by(curves, key=_name).items():
        if len(same) > 1:
            places = " and ".join(curve.file for curve in same)
            raise UserError(f"{_described(name)} is in {places}; keep each run in only one file.")
    return curves


def _name(curve: Curve) -> tuple[str, str, int]:
    return curve.exp_name, curve.env_name, curve.seed


def _described(name: tuple[str, str, int]) -> str:
    exp_name, env_name, seed = name
    return f"Seed {seed} of {exp_name} on {env_name}"


def _curves_of(file: Path) -> Iterator[Curve]:
    """Yield the curves of one file."""
    rows = [row for row in _rows(file) if row[3] == EVALUATION]
    if not rows:
        raise UserError(
            f"{file} has no row with the metric {EVALUATION}; use this name for evaluation returns."
        )
    for (exp_name, env_name, seed), same in group_by(rows, key=lambda row: row[:3]).items():
        points = sorted(((step, value) for *_, step, value in same), key=lambda point: point[0])
        steps = [step for step, _ in points]
        if twice := [step for step in steps if steps.count(step) > 1]:
            what = _described((exp_name, env_name, seed))
            raise UserError(f"{what} has two values at step {twice[0]} in {file}; keep only one.")
        yield Curve(file.name, exp_name, env_name, seed, tuple(points))


def _rows(file: Path) -> Iterator[tuple[str, str, int, str, int, float | None]]:
    """Yield the rows of a file, with numbers parsed."""
    try:
        text = read_file(file).decode()
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not a CSV file in UTF-8 ({error}).") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise UserError(
            f"{file} lacks the column {', '.join(missing)}; a file of curves has the columns "
            f"{', '.join(COLUMNS)}."
        )
    for row in reader:
        yield _row(row, f"Line {reader.line_num} of {file}")


def _row(row: Mapping[str, Any], place: str) -> tuple[str, str, int, str, int, float | None]:
    """Return a row with numbers parsed."""
    if empty := [name for name in COLUMNS if not (row[name] or "").strip()]:
        raise UserError(f"{place} has no {empty[0]}; every line needs one.")
    seed, step = (_whole(row[name], name, place) for name in ("seed", "env_step"))
    value = _number(row["value"], "value", place)
    names = (row[name].strip() for name in ("exp_name", "env_name", "metric"))
    exp_name, env_name, metric = names
    return exp_name, env_name, seed, metric, step, value if math.isfinite(value) else None


def _whole(text: str, name: str, place: str) -> int:
    number = _number(text, name, place)
    if not (number >= 0 and number.is_integer() and number < 2**63):
        raise UserError(
            f"{place} has the {name} {text!r}, but it must be a whole number of at least 0."
        )
    return int(number)


def _number(text: str, name: str, place: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{place} has the {name} {text!r}, but it must be a number.") from None


def check_curves_on(curves: Sequence[Curve], name: str, env_id: str, steps: int) -> None:
    """Refuse curves that cannot be compared with runs of one task.

    Args:
        curves: The curves.
        name: Name of the task.
        env_id: Id of its environment.
        steps: Number of steps of its runs.

    Raises:
        UserError: If a curve is on another task, or has no evaluation near the end.
    """
    for curve in curves:
        if curve.env_name not in (name, env_id):
            others = ", ".join(dict.fromkeys(other.env_name for other in curves))
            raise UserError(
                f"{curve.file} has curves for {others}, but a comparison has only one task; give "
                f"a file that has only rows for {name}, or use pac4sac report."
            )
        if curve.until(steps) is None:
            raise UserError(
                f"{_described(_name(curve))} in {curve.file} has no evaluation within 5% of step "
                f"{steps:,}; the last one is at step {curve.steps:,}. Choose --steps near an "
                f"evaluation."
            )


def foreign_runs(curves: Sequence[Curve], own: Iterable[RunRecord]) -> list[RunRecord]:
    """Convert curves to runs.

    A curve becomes a run on each task of our runs with its name or environment, if it reaches the
    end of training. Curves on other tasks are compared at the last step that all of them reached.

    Args:
        curves: The curves.
        own: Our runs.
    """
    tasks = [*{_task_key(run.task): run.task for run in own}.values()]
    runs: list[RunRecord] = []
    for env_name, members in group_by(curves, key=lambda curve: curve.env_name).items():
        same = [task for task in tasks if env_name in (task["name"], task.get("env_id"))]
        placed = {_name(curve): _records_on(same, curve) for curve in members}
        runs += itertools.chain(*placed.values())
        alone = [curve for curve in members if not placed[_name(curve)]]
        steps = min((curve.steps for curve in alone), default=0)
        runs += [_record_alone(curve.until(steps) or curve, steps) for curve in alone]
    return runs


def _records_on(tasks: Iterable[dict[str, Any]], curve: Curve) -> list[RunRecord]:
    """Return a curve as a run on each of our tasks whose last step it reaches."""
    parts = [(curve.until(task.get("steps", 0)), task) for task in tasks]
    return [_record(part, task) for part, task in parts if part is not None]


def _task_key(task: Mapping[str, Any]) -> str:
    """Return the settings of a task as text, without the settings that belong to runs."""
    return json.dumps({**task, "updates_per_step": None}, sort_keys=True)


def _record_alone(curve: Curve, steps: int) -> RunRecord:
    """Return a curve on a task without our runs, cut near `steps`."""
    task: dict[str, Any] = {"name": curve.env_name, "env_id": curve.env_name, "env_kwargs": {}}
    task |= {"horizon": None, "r_limit": None}
    return _record(curve, task | {"steps": steps if curve.until(steps) else curve.steps})


def _record(curve: Curve, task: dict[str, Any]) -> RunRecord:
    """Return a curve as a finished run with evaluations only."""
    run = f"{file_name(curve.exp_name)}-seed{curve.seed}"
    about: dict[str, Any] = {
        "run": run,
        "label": curve.exp_name,
        "task": task,
        "algo": curve.exp_name,
    }
    about |= {"preset": "default", "seed": curve.seed, "config": {}, "status": "finished"}
    about["foreign"] = curve.file
    rows = [
        {"step": step, "policy": "deterministic", "mean": value, "returns": None}
        for step, value in curve.points
    ]
    logs = {"episodes": [], "evaluations": rows, "bias": [], "coverage": []}
    return make_record(Path(curve.file) / run, about, logs, {})


def to_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows of the schema as CSV text."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    return out.getvalue()
