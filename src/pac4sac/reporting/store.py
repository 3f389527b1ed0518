"""Reading run folders back: an experiment folder holds `runs/<id>/` with `run.json` and `episodes.jsonl`."""

import hashlib
import importlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pac4sac.errors import UserError

VERSION = 1
EPISODE_COLUMNS = ("episode", "step", "return", "length")


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
    skipped_lines: int  # of episodes.jsonl, half-written by a killed process
    label: str = ""
    preset: str = "paper"
    identity: str = ""  # of what was trained, whatever it is called: equal for the same run in two folders
    evaluations: tuple[dict[str, Any], ...] = field(default=(), repr=False)

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
    runs = sorted((found.parent for found in path.glob("runs/*/run.json")), key=lambda run: _natural(run.name))
    if not runs:
        state = "does not exist" if not path.exists() else "holds neither run.json nor runs/"
        raise UserError(f"{path} {state}: give the folder of an experiment, or of one of its runs.")
    return runs


def find_runs_below(path: Path) -> list[Path]:
    """The run folders of all experiments in a folder, however deep; none is an answer too."""
    if (path / "run.json").is_file():
        return [path]
    return sorted(found.parent for found in path.rglob("run.json") if found.parent.parent.name == "runs")


def read_runs(path: str | Path) -> list[RunRecord]:
    return [read_run(folder) for folder in find_runs(path)]


def read_run(folder: Path) -> RunRecord:
    about = _read_run_json(folder / "run.json")
    rows, skipped = read_jsonl(folder / "episodes.jsonl")
    episodes = tuple(row for row in rows if all(_is_number(row.get(name)) for name in EPISODE_COLUMNS))
    return RunRecord(
        folder=folder,
        run=about["run"],
        task=about["task"],
        algo=about["algo"],
        seed=about["seed"],
        config=about["config"],
        status=about["status"],
        status_detail=about.get("status_detail"),
        versions=about.get("versions", {}),
        machine=about.get("machine", {}),
        episodes=episodes,
        skipped_lines=skipped + len(rows) - len(episodes),
        label=str(about.get("label") or re.sub(r"-seed\d+$", "", about["run"])),
        preset=str(about.get("preset", "paper")),
        identity=identity(about),
        evaluations=tuple(read_jsonl(folder / "evaluations.jsonl")[0]),
    )


def identity(about: dict[str, Any]) -> str:
    trained = {key: about.get(key) for key in ("task", "algo", "revision", "seed", "config")}
    return hashlib.sha256(json.dumps(trained, sort_keys=True).encode()).hexdigest()


def read_jsonl(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of a file, and the number of lines skipped because a killed writer left them unreadable."""
    if not path.exists():
        return [], 0
    rows: list[dict[str, Any]] = []
    skipped = 0
    for line in path.read_bytes().split(b"\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            skipped += 1
    return rows, skipped


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
    """Every training episode of a run or an experiment: a pandas DataFrame, or a dict of arrays without pandas.

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


def _read_run_json(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as reason:
        raise UserError(f"{path} cannot be read ({reason}); leave this run out, or train it again.") from reason
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
    return about


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts seed 10 after seed 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
