"""Reading runs back: an experiment folder holds `runs/<id>/` with `run.json` and logs; an archive
holds `runs/<task>.jsonl`, where each line is a run with its logs (written by `archive.py`)."""

import hashlib
import json
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pac4sac.base.errors import UserError
from pac4sac.base.files import (
    COPY,
    Kinds,
    all_below,
    check_if_there,
    check_inside,
    check_kinds,
    check_links,
    is_file_name,
    natural,
    read_json,
    read_jsonl,
)
from pac4sac.runs.identity import check_description, identity
from pac4sac.runs.logs import (
    LOGS,
    REPORTED,
    LogRow,
    as_rows,
    episode_rows,
    fits,
    read_log,
    unreadable,
)

VERSION = 1  # of run.json and experiment.json
HOW = ("device", "backend", "precision")
# that all runs have
KINDS = {"run": str, "task": dict, "algo": str, "seed": int, "config": dict, "status": str}
# What runs may have, and older ones lack.
FURTHER: Kinds = {
    "label": str,
    "preset": str,
    "given": dict,
    "given_task": dict,
    "revision": int | None,
    "code": dict,
    "simulators": dict,
    "earlier_code": list,
    "started_from": str | None,
    "versions": dict,
    "machine": dict,
}
OF_TASK: Kinds = {
    "env_id": str,
    "horizon": int | None,
    "r_limit": int | float | None,
    "steps": int,
    "env_kwargs": dict,
}
LOGS_OF_LINE = (*REPORTED, "damage")
SETTING = bool | int | float | str | None
LINE_SUM = "sha256"  # of a line of an archive


@dataclass(frozen=True)
class RunRecord:
    """A run as its folder, or an archive, has it."""

    folder: Path  # of an archived run: its file, and its name
    about: dict[str, Any] = field(repr=False)  # all that is stored of it beside its logs
    run: str
    label: str
    task: dict[str, Any]
    algo: str
    preset: str
    seed: int
    config: dict[str, Any]  # all settings in force
    given: dict[str, Any]  # those that were chosen beside the preset's
    started_from: str | None  # the agent whose weights it began with, by the checksum of its file
    identity: (
        str  # of what was trained, whatever it is called: equal for the same run in two folders
    )
    status: str  # running, finished, diverged, failed, stopped or interrupted
    status_detail: str | None
    computed: dict[str, str]  # device, backend, precision; older runs do not tell
    versions: dict[str, Any]
    machine: dict[str, Any]
    # in words, by log: lines that are no rows, or that were there when the run ended
    damage: dict[str, str]
    episodes: tuple[LogRow, ...]
    evaluations: tuple[LogRow, ...] = field(repr=False)
    bias: tuple[LogRow, ...] = field(repr=False)  # of the values that the critic claims
    coverage: tuple[LogRow, ...] = field(repr=False)  # how widely visited states lie

    @property
    def returns(self) -> NDArray[np.float64]:
        return np.array([row["return"] for row in self.episodes], dtype=np.float64)

    @property
    def steps(self) -> NDArray[np.int64]:
        """The number of environment steps at each episode's end."""
        return np.array([row["step"] for row in self.episodes], dtype=np.int64)


def files_below(folders: Iterable[Path], *patterns: str) -> list[Path]:
    """The files of all the folders, however deep, each once."""
    files = set()
    for folder in folders:
        found = {path for path in all_below(folder) if any(map(path.match, patterns))}
        check_inside(folder, *found)
        files |= found
    return sorted(files)


def run_folders_below(*folders: Path) -> list[Path]:
    runs = [path.parent for path in files_below(folders, "run.json")]
    return sorted(
        (run for run in runs if run.parent.name == "runs" or run in folders),
        key=lambda r: natural(str(r)),
    )


def find_runs(path: str | Path) -> list[Path]:
    """The run folders of an experiment or a study, or the one run folder that `path` is."""
    path = Path(path)
    if not (runs := run_folders_below(path)):
        state = "does not exist" if not path.exists() else "holds neither run.json nor runs/"
        raise UserError(f"{path} {state}: give the folder of an experiment, or of one of its runs.")
    for run in runs:
        check_links(run)
    return runs


def read_runs(path: str | Path) -> list[RunRecord]:
    """Of an experiment or study folder, one run folder, or an archive."""
    runs, unreadable = read_below(Path(path))
    if unreadable:
        raise unreadable[0]
    return runs or [read_run(run) for run in find_runs(path)]  # which tells that there are none


def read_below(*folders: Path, experiments: bool = True) -> tuple[list[RunRecord], list[UserError]]:
    """Return the runs of archives and experiments below some folders, and what is unreadable."""
    runs, unreadable = [], []
    readers = [partial(read_run, run) for run in run_folders_below(*folders)] if experiments else []
    for file in files_below(folders, "*.jsonl"):
        if file.parent.name == "runs":
            lines, skipped = read_jsonl(file)
            readers += [partial(archived_run, file, line) for line in lines]
            if skipped:
                unreadable.append(
                    UserError(
                        f"{file} has {skipped} lines that are not JSON; repair it before you add "
                        "runs to it."
                    )
                )
    for read in readers:
        try:
            runs.append(read())
        except UserError as reason:
            unreadable.append(reason)
    return runs, unreadable


def read_run(folder: Path) -> RunRecord:
    check_links(folder)
    about = read_json(folder / "run.json")
    _check(about, str(folder / "run.json"))
    seals = about["logs"] if isinstance(about.get("logs"), dict) else {}  # older runs have none
    logs = {name: read_log(folder / f"{name}.jsonl", seals.get(name)) for name in LOGS}
    damage = {name: wrong for name, (_, wrong) in logs.items() if wrong}
    return _record(folder, about, {name: logs[name][0] for name in REPORTED}, damage)


def read_experiment(folder: Path) -> dict[str, Any]:
    """What an experiment.json says, as far as all who read it rely on it."""
    path = folder / "experiment.json"
    about = read_json(path, {"options": dict, "cohorts": list}, VERSION)
    for cohort in about["cohorts"]:
        if not isinstance(cohort, list) or not cohort:
            raise UserError(f"{path} is damaged: a cohort is no list of runs; {COPY}")
        for run in cohort:
            check_kinds(
                check_description(run, f"A run in {path}"), {"run": str}, f"A run in {path}"
            )
    return about


def archived_run(file: Path, line: dict[str, Any]) -> RunRecord:
    """Return the run of a line of an archive.

    Raises:
        UserError: If the line is damaged, or was changed since it was written.
    """
    _check(line, f"A line of {file}")
    sealed = {name: value for name, value in line.items() if name != LINE_SUM}
    if LINE_SUM in line and line[LINE_SUM] != sum_of_line(sealed):
        raise UserError(
            f"The line of {line['run']} in {file} was changed since it was written; take it "
            "from a copy."
        )
    about = {name: value for name, value in line.items() if name not in LOGS_OF_LINE}
    logs, damage = _logs_of_line(file, line)
    return _record(file / about["run"], about, logs, damage)


def _logs_of_line(
    file: Path, line: dict[str, Any]
) -> tuple[dict[str, list[LogRow]], dict[str, str]]:
    """Return the rows of each log that are whole, and what is damaged, in words."""
    try:
        logs = {name: as_rows(line.get(name, {})) for name in REPORTED if name != "episodes"}
        logs["episodes"] = episode_rows(line.get("episodes", {}))
        damage = {str(name): str(wrong) for name, wrong in line.get("damage", {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        what = f"The logs of {line['run']} in {file} cannot be read"
        raise UserError(f"{what}; take that line from an older one.") from error
    whole = {name: [row for row in rows if fits(name, row)] for name, rows in logs.items()}
    for name, rows in logs.items():
        if lost := unreadable(len(rows) - len(whole[name])):
            damage[name] = f"{damage[name]}, {lost}" if name in damage else lost
    return whole, damage


def sum_of_line(line: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line).encode()).hexdigest()


def _check(about: dict[str, Any], path: str) -> None:
    check_kinds(about, KINDS, path, VERSION)
    check_if_there(about, FURTHER, path)
    check_kinds(about["task"], {"name": str}, f"The task in {path}")
    check_if_there(about["task"], OF_TASK, f"The task in {path}")
    versions = about.get("versions", {})
    check_kinds(versions, dict.fromkeys(versions, str | None), f"What tells versions in {path}")
    for name, value in about["config"].items():
        if not isinstance(value, SETTING):
            raise UserError(f"The config in {path} is damaged: it lacks a readable {name}; {COPY}")
    if not is_file_name(about["run"]):
        raise UserError(
            f"{path} is damaged: it lacks a readable run; {about['run']!r} is no name of a folder."
        )


def _record(
    folder: Path, about: dict[str, Any], logs: dict[str, list[LogRow]], damage: dict[str, str]
) -> RunRecord:
    computed = about.get("computed")
    is_recorded = isinstance(computed, dict) and all(name in computed for name in HOW)
    stored: dict[str, Any] = {name: tuple(rows) for name, rows in logs.items()}
    as_they_are = ("run", "task", "algo", "seed", "status", "status_detail", "started_from")
    stored |= {name: about.get(name) for name in as_they_are}
    return RunRecord(
        folder=folder,
        about=about,
        label=str(about.get("label") or re.sub(r"-seed\d+$", "", about["run"])),
        preset=str(about.get("preset", "")),
        config=dict(about["config"]),
        given=about.get("given", {}),
        identity=identity(about),
        computed={name: str(computed[name]) for name in HOW} if computed and is_recorded else {},
        versions=about.get("versions", {}),
        machine=about.get("machine", {}),
        damage=damage,
        **stored,
    )


def damage_text(run: RunRecord) -> str:
    return ", ".join(f"{log} ({wrong})" for log, wrong in sorted(run.damage.items()))


def tell_damage(runs: Iterable[RunRecord], unreadable: Iterable[UserError] = ()) -> list[str]:
    """Warn of what could not be read; the sentences."""
    damaged = ((run.folder, damage_text(run)) for run in runs if run.damage)
    sentences = [
        f"{run} has damaged logs, of which the whole lines were read: {text}."
        for run, text in damaged
    ]
    sentences = [*map(str, unreadable), *sentences]
    for sentence in sentences:
        warnings.warn(sentence, stacklevel=3)
    return sentences
