"""The shell command that trains the runs of a variant again."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pac4sac.base.objects import needs_this_process, short_name
from pac4sac.base.text import assignments
from pac4sac.runs.logs import MEASUREMENTS
from pac4sac.runs.metrics import evaluation_episodes
from pac4sac.runs.reading import RunRecord

T = TypeVar("T")
DEFAULT_PRESET = "default"
DEFAULT_EVALUATION_EPISODES = 5
TASK_FIELDS = ("name", "horizon", "r_limit", "env_kwargs", "steps", "wrappers")


def train_command(runs: Sequence[RunRecord], seeds: str) -> str:
    """Return the command for runs that differ in their seed only."""
    first = runs[0]
    if lost := _only_in_a_script(first):
        return f"# Train with the script or notebook that defines {' and '.join(lost)}."
    task, task_changes = _given_task(first)
    steps = task_changes.pop("steps", None)
    # Only a solved run shows whether `stop_when_solved` was set.
    stops_when_solved = any((run.status_detail or "").startswith("solved") for run in runs)
    options: dict[str, Any] = {
        "--algo": first.algo,
        "--seeds": seeds,
        "--steps": steps,
        "--preset": _unless(DEFAULT_PRESET, first.preset),
        "--from": f"AGENT-{first.started_from}" if first.started_from else None,
        "--set-task": [f"{key}={json.dumps(value)}" for key, value in task_changes.items()],
        "--set": assignments(dict(sorted(first.given.items()))),
        "--stop-when-solved": stops_when_solved,
        **_common([_measuring_options(run) for run in runs]),
    }
    words = ["pac4sac", "train", task]
    for option, value in options.items():
        words += _option_words(option, value)
    return shlex.join(words)


def _only_in_a_script(run: RunRecord) -> list[str]:
    """Return the names of the run's algorithm, environment and wrappers that no command can use."""
    wrappers = [each["wrapper"] for each in run.task.get("wrappers", ())]
    names = [run.algo, str(run.task.get("env_id", "")), *wrappers]
    return [short_name(name) for name in names if needs_this_process([name])]


def _given_task(run: RunRecord) -> tuple[str, dict[str, Any]]:
    """Return the task name that `train` accepts, and the task fields that were overridden."""
    given = run.about.get("given_task", {})
    name, changes = given.get("task"), given.get("changes")
    if isinstance(name, str) and isinstance(changes, dict):
        return name, dict(changes)
    # Older runs do not record which fields were overridden, so all of them are given.
    stored = {key: run.task[key] for key in TASK_FIELDS if run.task.get(key)}
    return str(run.task.get("env_id", run.task["name"])), stored


def _unless(default: T, value: T) -> T | None:
    """Return the value, or None if it is the default and needs no option."""
    return None if value == default else value


def _option_words(option: str, value: Any) -> list[str]:
    """Return the words of an option and its values; empty if the value is None or False."""
    if not value:
        return []
    if value is True:
        return [option]
    if isinstance(value, list):
        return [option, *map(str, value)]
    return [option, str(value)]


def _measuring_options(run: RunRecord) -> dict[str, Any]:
    """Return the options of device and measurements that the folder of a run records."""
    options: dict[str, Any] = {
        "--precision": _unless("float32", run.computed.get("precision")),
        "--device": run.computed.get("device"),
        "--evaluation-episodes": _unless(DEFAULT_EVALUATION_EPISODES, evaluation_episodes(run)),
    }
    for log in ("evaluations", *MEASUREMENTS):
        steps = sorted({row["step"] for row in getattr(run, log) if type(row.get("step")) is int})
        # Every log has a final row, but only evaluations are at the end by default.
        if len(steps) > (log == "evaluations"):
            option = f"--{log.replace('evaluations', 'evaluate')}-every"
            options[option] = _interval(steps, pauses=log in MEASUREMENTS)
    return options


def _interval(steps: Sequence[int], pauses: bool) -> int | None:
    """Return the interval of regular measurements before the one at the end, or None.

    An extended run was also measured at each of its former ends, so it may have no interval.

    Args:
        steps: When a run was measured.
        pauses: Whether a run that is solved is not measured again before the end.
    """
    *regular, last = steps
    if not regular:
        return last
    first = regular[0]
    every = regular[1] - first if len(regular) > 1 else first
    is_regular = first % every == 0 and regular == [*range(first, regular[-1] + 1, every)]
    may_end = last - regular[-1] <= every or (pauses and len(regular) > 1)
    return every if is_regular and may_end else None


def _common(options: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the options that have the same value in all mappings."""
    first, *others = options
    return {
        name: value
        for name, value in first.items()
        if all(other.get(name) == value for other in others)
    }
