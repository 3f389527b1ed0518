"""Logs of runs as data frames: `pac4sac.results`."""

import hashlib
import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from pac4sac.base.argument_types import check_types
from pac4sac.base.errors import UserError
from pac4sac.base.grouping import group_by
from pac4sac.base.text import did_you_mean
from pac4sac.runs.logs import EPISODE_COLUMNS, LOGS, MEASUREMENTS, REPORTED, LogRow, read_log
from pac4sac.runs.reading import RunRecord, read_below, read_runs, warn_of_damage

if TYPE_CHECKING:
    from pandas import DataFrame

    Frame: TypeAlias = DataFrame | dict[str, NDArray[Any]]  # arrays if pandas is not installed
else:
    Frame = Any  # pandas is optional
Log = tuple[RunRecord, Sequence[LogRow]]
IN_EVERY_ROW = ("run", "task", "algo", "seed")


def results(path: str | Path, kind: str = "episodes") -> Frame:
    """Return the logs of a run, an experiment, a study or an archive as a data frame.

    The columns are run, task, algo and seed, the columns of the log, and each setting in which the
    runs differ. If a log has a column of the same name, the column of the setting is named `setting
    alpha`, for example. If runs of an algorithm on a task differ in length, code or simulators,
    there are columns `run_steps`, `code` and `simulators`. If two runs on a task have the same
    name, there is a column `experiment`. Damaged rows are omitted with a warning, which is also in
    the frame's `attrs["left_out"]`.

    Args:
        path: Folder of a run, an experiment or a study, or an archive.
        kind: One of episodes (every training episode), metrics (means of logged training metrics),
            evaluations, bias and coverage. `docs/metrics.md` explains their columns.

    Returns:
        A pandas DataFrame, or a dict of arrays if pandas is not installed.

    Raises:
        UserError: If there are no such logs.

    Example:
        >>> frame = pac4sac.results("experiments/pendulum-v1-sac")
        >>> sorted(set(frame["run"]))
        ['sac-seed0', 'sac-seed1']
    """
    check_types(results, locals())
    if kind not in LOGS:
        raise UserError(f"Unknown kind of results {kind!r}; {did_you_mean(kind, LOGS)}")
    runs, unreadable = read_below(Path(path))
    if not runs:
        runs, unreadable = read_runs(path), []
    left_out = warn_of_damage(runs, unreadable)
    logs = [(run, _rows(run, kind)) for run in runs]
    if kind != "episodes" and not _logged_names(logs):
        how = f", which are written with --{kind}-every N" if kind in MEASUREMENTS else ""
        raise UserError(f"No run in {path} has logged {kind}{how}.")
    return _frame(_columns(logs, kind), left_out)


def varying_settings(runs: Iterable[RunRecord]) -> tuple[str, ...]:
    """Return the settings in which runs of the same task and algorithm differ."""
    first_values: dict[tuple[str, str, str], Any] = {}
    varying: dict[str, None] = {}
    for run in runs:
        for name, value in run.config.items():
            if first_values.setdefault((run.task["name"], run.algo, name), value) != value:
                varying[name] = None
    return tuple(varying)


def trained_by(run: RunRecord) -> dict[str, Any]:
    """Return the facts besides settings that runs must share to be averaged."""
    about = run.about
    code = [about.get(name) for name in ("revision", "code", "earlier_code")]
    simulators = (about.get("simulators") or {}).items()
    return {
        "run_steps": run.task.get("steps"),
        "code": hashlib.sha256(json.dumps(code, sort_keys=True).encode()).hexdigest()[:8],
        "simulators": " ".join(f"{name} {version}" for name, version in sorted(simulators)),
    }


def _varying_facts(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the facts in which runs of the same task and algorithm differ."""
    groups = group_by(runs, key=lambda run: (run.task["name"], run.algo)).values()
    facts = [[trained_by(run) for run in group] for group in groups]
    return tuple(
        name
        for name in ("run_steps", "code", "simulators")
        if any(len({fact[name] for fact in group}) > 1 for group in facts)
    )


def _rows(run: RunRecord, kind: str) -> Sequence[LogRow]:
    """Return the rows of one log of a run; an archive has only the logs that reports need."""
    if kind in REPORTED:
        return tuple(getattr(run, kind))
    # The record stores the damage of these logs.
    return read_log(run.folder / f"{kind}.jsonl")[0] if run.folder.is_dir() else ()


def _columns(logs: Sequence[Log], kind: str) -> dict[str, list[Any]]:
    """Return one list per column, with None if an algorithm does not log a metric."""
    logged = EPISODE_COLUMNS if kind == "episodes" else _logged_names(logs)
    runs = [run for run, _ in logs]
    # A learned setting such as alpha is logged too.
    settings = {
        name: f"setting {name}" if name in logged else name for name in varying_settings(runs)
    }
    further = _varying_facts(runs)
    if len({(run.task["name"], run.run) for run in runs}) < len(runs):
        further = ("experiment", *further)
    names = (*IN_EVERY_ROW, *further, *logged, *settings.values())
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for run, rows in logs:
        facts = _facts(run, settings, further)
        for row in rows:
            _append(row | facts, columns)
    return columns


def _append(cells: LogRow, columns: Mapping[str, list[Any]]) -> None:
    """Append a row to the columns, with None for missing values."""
    for name, column in columns.items():
        column.append(cells.get(name))


def _logged_names(logs: Iterable[Log]) -> tuple[str, ...]:
    """Return the names in all rows, each once, in the order of their first row."""
    return tuple(dict.fromkeys(name for _, rows in logs for row in rows for name in row))


def _facts(run: RunRecord, settings: Mapping[str, str], further: Sequence[str]) -> dict[str, Any]:
    """Return the values that are the same in every row of a run."""
    facts = {"run": run.run, "task": run.task["name"], "algo": run.algo, "seed": run.seed}
    known = {"experiment": str(run.folder.parent.parent), **trained_by(run)}
    facts |= {name: known[name] for name in further}
    return facts | {column: run.config.get(name) for name, column in settings.items()}


def _frame(columns: dict[str, list[Any]], left_out: list[str]) -> Frame:
    """Return columns as a DataFrame, or as a dict of arrays if pandas is not installed."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        kinds = {"returns": object}  # lists of different lengths
        return {name: np.array(values, kinds.get(name)) for name, values in columns.items()}
    frame = pandas.DataFrame(columns)
    frame.attrs["left_out"] = left_out
    return cast("Frame", frame)
