"""Reading runs back: an experiment folder holds `runs/<id>/` with `run.json` and logs; an archive holds
`runs/<task>.jsonl`, where each line is a run with its logs (written by `archive.py`)."""

import hashlib
import importlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pac4sac.base.errors import UserError
from pac4sac.base.files import natural, read_jsonl
from pac4sac.runs.known import chosen, completed

VERSION = 1
EPISODE_COLUMNS = ("episode", "step", "return", "length")
MEASUREMENTS = ("bias", "coverage")  # made where an option asks for them, whatever is trained
LOGS = ("episodes", "evaluations", *MEASUREMENTS)  # those that reports are made of


@dataclass(frozen=True)
class RunRecord:
    folder: Path
    run: str
    task: dict[str, Any]
    algo: str
    seed: int
    config: dict[str, Any]
    status: str  # running, finished, diverged, failed or interrupted
    status_detail: str | None
    versions: dict[str, Any]
    machine: dict[str, Any]
    episodes: tuple[dict[str, Any], ...]
    skipped_lines: int  # of episodes.jsonl, damaged or half-written by a killed process
    label: str = ""
    preset: str = "paper"
    computed: dict[str, str] = field(default_factory=dict)  # device, backend, precision; older runs do not tell
    started_from: str | None = None  # the agent whose weights it began with, by the checksum of its file
    identity: str = ""  # of what was trained, whatever it is called: equal for the same run in two folders
    evaluations: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    bias: tuple[dict[str, Any], ...] = field(default=(), repr=False)  # of the values that the critic claims
    coverage: tuple[dict[str, Any], ...] = field(default=(), repr=False)  # how widely visited states lie

    @property
    def returns(self) -> NDArray[np.float64]:
        return np.array([row["return"] for row in self.episodes], dtype=np.float64)

    @property
    def steps(self) -> NDArray[np.int64]:
        """The number of environment steps at each episode's end."""
        return np.array([row["step"] for row in self.episodes], dtype=np.int64)


def find_runs(path: str | Path) -> list[Path]:
    """The run folders of an experiment folder, or the one run folder that `path` is."""
    path = Path(path)
    if (path / "run.json").is_file():
        return [path]
    runs = sorted((found.parent for found in path.glob("runs/*/run.json")), key=lambda run: natural(run.name))
    if not runs:
        state = "does not exist" if not path.exists() else "holds neither run.json nor runs/"
        raise UserError(f"{path} {state}: give the folder of an experiment, or of one of its runs.")
    return runs


def find_runs_below(path: Path) -> list[Path]:
    """The run folders of all experiments in a folder, however deep; none is an answer too."""
    if (path / "run.json").is_file():
        return [path]
    return sorted(found.parent for found in path.rglob("run.json") if found.parent.parent.name == "runs")


def find_archived(path: Path) -> list[Path]:
    """The files of all archives in a folder, however deep."""
    return sorted(found for found in path.rglob("*.jsonl") if found.parent.name == "runs")


def read_runs(path: str | Path) -> list[RunRecord]:
    """Of an experiment or study folder, one run folder, or an archive."""
    path = Path(path)
    archived = sorted(path.glob("runs/*.jsonl"))
    if archived:
        return [archived_run(file, row) for file in archived for row in read_jsonl(file)[0]]
    is_study = (path / "study.json").exists()
    return [read_run(folder) for folder in (find_runs_below(path) if is_study else find_runs(path))]


def read_run(folder: Path) -> RunRecord:
    about = read_run_json(folder / "run.json")
    return _record(folder, about, {name: read_jsonl(folder / f"{name}.jsonl") for name in LOGS})


def archived_run(file: Path, row: dict[str, Any]) -> RunRecord:
    check_run(row, f"A line of {file}")
    try:
        logs = {name: (as_rows(row.get(name, {})), 0) for name in LOGS if name != "episodes"}
        logs["episodes"] = episode_rows(row.get("episodes", {})), int(row.get("skipped_lines", 0))
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"The logs of {row['run']} in {file} cannot be read; take that line from an older one."
        ) from error
    return _record(file / row["run"], row, logs)


def _record(place: Path, about: dict[str, Any], logs: dict[str, tuple[list[dict[str, Any]], int]]) -> RunRecord:
    rows, skipped = logs["episodes"]
    episodes = tuple(row for row in rows if all(_is_number(row.get(name)) for name in EPISODE_COLUMNS))
    return RunRecord(
        folder=place,
        run=about["run"],
        task=about["task"],
        algo=about["algo"],
        seed=about["seed"],
        config=completed(about["algo"], about["config"]),
        status=about["status"],
        status_detail=about.get("status_detail"),
        versions=about.get("versions", {}),
        machine=about.get("machine", {}),
        episodes=episodes,
        skipped_lines=skipped + len(rows) - len(episodes),
        label=str(about.get("label") or re.sub(r"-seed\d+$", "", about["run"])),
        preset=str(about.get("preset", "paper")),
        computed=_computed(about.get("computed")),
        started_from=about.get("started_from"),
        identity=identity(about),
        evaluations=tuple(logs["evaluations"][0]),
        bias=tuple(logs["bias"][0]),
        coverage=tuple(logs["coverage"][0]),
    )


def _computed(told: Any) -> dict[str, str]:
    names = ("device", "backend", "precision")
    return {name: str(told[name]) for name in names} if isinstance(told, dict) and all(n in told for n in names) else {}


def as_rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def episode_rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """An archive leaves out what follows from the rest: numbers and steps of episodes, and a length that all have."""
    returns = columns.get("return", [])
    lengths = columns.get("length", [])
    lengths = lengths if isinstance(lengths, list) else [lengths] * len(returns)
    derived = {"episode": list(range(len(returns))), "step": list(itertools.accumulate(lengths))}
    return as_rows(derived | columns | {"length": lengths})


def identity(about: Mapping[str, Any]) -> str:
    """Of what was trained, whatever it is called: two runs of one identity give the same result. A setting at its
    default is left out of it, so that a run stays the same when settings are added."""
    trained = {key: about.get(key) for key in ("task", "algo", "revision", "seed")}
    trained["config"] = chosen(about["algo"], about["config"])
    if about.get("started_from"):  # otherwise not even named, so that no run from scratch gets another identity
        trained["started_from"] = about["started_from"]
    return hashlib.sha256(json.dumps(trained, sort_keys=True).encode()).hexdigest()


def varying_settings(runs: Iterable[RunRecord]) -> tuple[str, ...]:
    """The settings in which runs of the same task and algorithm differ, in the order of their configs."""
    first_values: dict[tuple[str, str, str], Any] = {}
    varying: dict[str, None] = {}
    for run in runs:
        for name, value in run.config.items():
            if first_values.setdefault((run.task["name"], run.algo, name), value) != value:
                varying[name] = None
    return tuple(varying)


def results(path: str | Path) -> Any:
    """Every training episode of a run, experiment or study: a pandas DataFrame, or a dict of arrays without pandas.

    Columns: run, task, algo, seed, episode, step, return, length, and each setting in which the runs differ.
    """
    runs = read_runs(path)
    columns = _columns(runs)
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return {name: np.array(values) for name, values in columns.items()}
    return pandas.DataFrame(columns)


def _columns(runs: Sequence[RunRecord]) -> dict[str, list[Any]]:
    settings = varying_settings(runs)
    columns: dict[str, list[Any]] = {name: [] for name in ("run", "task", "algo", "seed", *EPISODE_COLUMNS, *settings)}
    for run in runs:
        same_in_every_row = {"run": run.run, "task": run.task["name"], "algo": run.algo, "seed": run.seed}
        same_in_every_row |= {name: run.config.get(name) for name in settings}
        for row in run.episodes:
            for name, value in same_in_every_row.items():
                columns[name].append(value)
            for name in EPISODE_COLUMNS:
                columns[name].append(row[name])
    return columns


def read_run_json(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as reason:
        raise UserError(f"{path} cannot be read ({reason}); leave this run out, or train it again.") from reason
    check_run(about, str(path))
    return dict(about)


def check_run(about: Any, path: str) -> None:
    if not isinstance(about, dict) or "version" not in about:
        raise UserError(f"{path} does not describe a run of pac4sac; give another folder.")
    if about["version"] != VERSION:
        raise UserError(
            f"{path} has version {about['version']}, and this pac4sac reads version {VERSION}; "
            "use the pac4sac that wrote it."
        )
    expected = {"run": str, "task": dict, "algo": str, "seed": int, "config": dict, "status": str}
    wrong = [name for name, kind in expected.items() if not isinstance(about.get(name), kind)]
    if "task" not in wrong and not isinstance(about["task"].get("name"), str):
        wrong.append("task.name")
    if wrong:
        raise UserError(f"{path} lacks a readable {', '.join(wrong)}; leave this run out, or train it again.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
