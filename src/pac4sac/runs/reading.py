"""Read runs. An experiment folder contains `runs/<id>/` with `run.json` and logs. An archive, which
`archive.py` writes, contains `runs/<task>.jsonl`; each of its lines is a run with its logs."""

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
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
    as_bytes,
    check_if_there,
    check_inside,
    check_kinds,
    check_links,
    is_file_name,
    natural,
    read_json,
    read_jsonl,
)
from pac4sac.base.text import brief
from pac4sac.runs.identity import FURTHER_KINDS, check_description, identity
from pac4sac.runs.logs import LOGS, REPORTED, LogRow, join_damage, log_rows, read_log, valid_rows

LAST_EPISODES = 10  # ranks runs without an evaluation
VERSION = 1  # of run.json and experiment.json
HOW = ("device", "backend", "precision")
# Required entries of run.json and of a line of an archive.
KINDS = {"run": str, "task": dict, "algo": str, "seed": int, "config": dict, "status": str}
# Optional entries; older runs lack some of them.
FURTHER: Kinds = {
    "label": str,
    "preset": str,
    "versions": dict,
    "machine": dict,
    "targets_outside": int | float | None,
    **FURTHER_KINDS,
}
OF_TASK: Kinds = {
    "env_id": str,
    "horizon": int | None,
    "r_limit": int | float | None,
    "steps": int,
    "env_kwargs": dict,
}
LOGS_OF_LINE = (*REPORTED, "damage")  # the rest of a line describes the run
SETTING = bool | int | float | str | None
LINE_SUM = "sha256"  # of a line of an archive, and of a run.json


@dataclass(frozen=True)
class RunRecord:
    """Hold a run as stored in its folder or in an archive.

    Attributes:
        folder: Folder of the run; of an archived run, the file of the archive and the run's name.
        about: Content of run.json.
        run: Name of the run, such as "sac-seed0".
        label: Name of its variant, such as "sac".
        task: Fields of its task.
        algo: Name of the algorithm.
        preset: Name of the preset.
        seed: Seed of the run.
        config: All settings in force.
        given: Settings that were chosen in addition to the preset.
        started_from: Checksum of the agent file that training started from; None for new weights.
        identity: Checksum of the facts that determine the result; equal for copies of a run.
        status: running, interrupted, finished, stopped, diverged or failed.
        status_detail: Reason for the status, or None.
        computed: Device, backend and precision; empty for older runs.
        versions: Versions of Python and of packages.
        machine: Description of the machine.
        damage: Descriptions of damage, by log.
        episodes: Lines of episodes.jsonl.
        evaluations: Lines of evaluations.jsonl.
        bias: Lines of bias.jsonl.
        coverage: Lines of coverage.jsonl.

    Example:
        >>> run = pac4sac.resume("experiments/pendulum-v1-sac").runs[0]
        >>> run.algo, run.seed, len(run.returns)
        ('sac', 0, 2)
    """

    folder: Path  # for an archived run, the file of the archive and the name of the run
    about: dict[str, Any] = field(repr=False)  # stored description without the logs
    run: str
    label: str
    task: dict[str, Any]
    algo: str
    preset: str
    seed: int
    config: dict[str, Any]  # all settings in force
    given: dict[str, Any]  # settings that were chosen in addition to the preset
    started_from: str | None  # checksum of the agent file with the initial weights
    identity: str  # checksum of the facts that determine the result
    status: str  # running, finished, diverged, failed, stopped or interrupted
    status_detail: str | None
    computed: dict[str, str]  # device, backend, precision; empty for older runs
    versions: dict[str, Any]
    machine: dict[str, Any]
    damage: dict[str, str]  # log -> unreadable lines and changes since the run ended
    episodes: tuple[LogRow, ...]
    evaluations: tuple[LogRow, ...] = field(repr=False)
    bias: tuple[LogRow, ...] = field(repr=False)  # bias of the critic's values
    coverage: tuple[LogRow, ...] = field(repr=False)  # spread of the visited states

    def __repr__(self) -> str:
        last = self.returns[-LAST_EPISODES:]
        mean = f", mean return of the last {len(last)}: {brief(last.mean())}" if len(last) else ""
        return (
            f"RunRecord({self.run}: {self.algo} on {self.task['name']}, {self.status}, "
            f"{len(self.episodes)} episodes{mean})"
        )

    @property
    def returns(self) -> NDArray[np.float64]:
        """Return the return of each training episode."""
        return np.array([row["return"] for row in self.episodes], dtype=np.float64)

    @property
    def is_foreign(self) -> bool:
        """Return whether the run is a curve of another project, with evaluations only."""
        return "foreign" in self.about

    @property
    def steps(self) -> NDArray[np.int64]:
        """Return the number of environment steps at the end of each episode."""
        return np.array([row["step"] for row in self.episodes], dtype=np.int64)


def files_below(folders: Iterable[Path], *patterns: str) -> list[Path]:
    """Return the files below some folders that match a pattern, without duplicates.

    Raises:
        UserError: If a symbolic link to such a file leads out of its folder.
    """
    files = set()
    for folder in folders:
        found = {path for path in all_below(folder) if any(map(path.match, patterns))}
        check_inside(folder, *found)
        files |= found
    return sorted(files)


def run_folders_below(*folders: Path) -> list[Path]:
    """Return the run folders among some folders and all their subfolders."""
    found = [path.parent for path in files_below(folders, "run.json")]
    runs = [folder for folder in found if folder.parent.name == "runs" or folder in folders]
    return sorted(runs, key=lambda run: natural(str(run)))


def find_runs(path: str | Path) -> list[Path]:
    """Return the run folders of an experiment or a study, or `path` itself if it is a run folder.

    Raises:
        UserError: If there is no run, or a symbolic link leads outside.
    """
    path = Path(path)
    runs = run_folders_below(path)
    if not runs:
        state = "does not exist" if not path.exists() else "has neither run.json nor runs/"
        raise UserError(f"{path} {state}; give the folder of an experiment, or of one of its runs.")
    for run in runs:
        check_links(run)
    return runs


def read_runs(path: str | Path) -> list[RunRecord]:
    """Return the runs of an experiment or study folder, of one run folder, or of an archive.

    Raises:
        UserError: If there is no run, or a run is unreadable.
    """
    runs, unreadable = read_below(Path(path))
    if unreadable:
        raise unreadable[0]
    # raises an error if there are no runs
    return runs or [read_run(run) for run in find_runs(path)]


def read_below(*folders: Path, experiments: bool = True) -> tuple[list[RunRecord], list[UserError]]:
    """Return the runs of experiments and archives below some folders, and errors on unreadable
    files.

    Args:
        folders: Folders to search, with all their subfolders.
        experiments: Read run folders too, not only archives.
    """
    run_folders = run_folders_below(*folders) if experiments else []
    lines, unreadable = _archive_lines(folders)
    readers: list[Callable[[], RunRecord]] = [partial(read_run, run) for run in run_folders]
    readers += [partial(archived_run, file, line) for file, line in lines]
    runs = []
    for read in readers:
        try:
            runs.append(read())
        except UserError as reason:
            unreadable.append(reason)
    return runs, unreadable


def _archive_lines(
    folders: Iterable[Path],
) -> tuple[list[tuple[Path, dict[str, Any]]], list[UserError]]:
    """Return all lines of the archives below some folders with their files, and errors on invalid
    lines."""
    lines: list[tuple[Path, dict[str, Any]]] = []
    unreadable = []
    for file in files_below(folders, "*.jsonl"):
        if file.parent.name != "runs":
            continue
        content, skipped = read_jsonl(file)
        distinct = {json.dumps(line): line for line in content}
        lines += [(file, line) for line in distinct.values()]
        repeated = len(content) - len(distinct)
        for count, what in ((skipped, "that are not JSON"), (repeated, "that are duplicates")):
            if count:
                problem = f"{file} has {count} lines {what}; repair it before you add runs."
                unreadable.append(UserError(problem))
        if not content and not skipped:
            unreadable.append(UserError(f"{file} is empty; {COPY}"))
    return lines, unreadable


def read_run(folder: Path) -> RunRecord:
    """Return the run of a run folder.

    Raises:
        UserError: If run.json is unreadable, or a symbolic link leads out of the folder.
    """
    check_links(folder)
    about = read_json(folder / "run.json")
    _check_description(about, str(folder / "run.json"))
    if is_changed(about):
        raise UserError(f"{folder / 'run.json'} has been changed since it was written; {COPY}")
    about.pop(LINE_SUM, None)
    seals = about.get("logs")
    seals = seals if isinstance(seals, dict) else {}  # older runs have no seals
    logs = {name: read_log(folder / f"{name}.jsonl", seals.get(name)) for name in LOGS}
    damage = {name: wrong for name, (_, wrong) in logs.items() if wrong}
    return make_record(folder, about, {name: logs[name][0] for name in REPORTED}, damage)


def read_experiment(folder: Path) -> dict[str, Any]:
    """Return the content of an experiment.json.

    Raises:
        UserError: If options, cohorts or the description of a run are unreadable.
    """
    path = folder / "experiment.json"
    about = read_json(path, {"options": dict, "cohorts": list}, VERSION)
    what = f"A run in {path}"
    for cohort in about["cohorts"]:
        if not isinstance(cohort, list) or not cohort:
            raise UserError(f"{path} is damaged: a cohort is not a list of runs; {COPY}")
        for run in cohort:
            check_kinds(check_description(run, what), {"run": str}, what)
    return about


def archived_run(file: Path, line: dict[str, Any]) -> RunRecord:
    """Return the run of a line of an archive.

    Raises:
        UserError: If the line is damaged, or was changed since it was written.
    """
    _check_description(line, f"A line of {file}")
    _check_line_sum(file, line)
    about = {name: value for name, value in line.items() if name not in LOGS_OF_LINE}
    logs, damage = _logs_of_line(file, line)
    return make_record(file / about["run"], about, logs, damage)


def _check_line_sum(file: Path, line: dict[str, Any]) -> None:
    """Raise a UserError if the checksum of a line does not match."""
    if is_changed(line):
        raise UserError(
            f"The line of {line['run']} in {file} has been changed since it was written; restore "
            "the line from a copy of the file."
        )


def _logs_of_line(
    file: Path, line: dict[str, Any]
) -> tuple[dict[str, list[LogRow]], dict[str, str]]:
    """Return the valid rows of each log, and descriptions of damage."""
    try:
        stored = {name: log_rows(name, line.get(name, {})) for name in REPORTED}
        damage = {str(name): str(wrong) for name, wrong in line.get("damage", {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        what = f"The logs of {line['run']} in {file} cannot be read"
        raise UserError(f"{what}; restore that line from a copy of the archive.") from error
    logs = {}
    for name, rows in stored.items():
        logs[name], unreadable = valid_rows(name, rows)
        if unreadable:
            damage[name] = join_damage(damage.get(name, ""), unreadable)
    return logs, damage


def is_changed(about: Mapping[str, Any]) -> bool:
    """Return whether the checksum of a stored run does not match. Older runs have no checksum."""
    content = {name: value for name, value in about.items() if name != LINE_SUM}
    return LINE_SUM in about and about[LINE_SUM] != sum_of_line(content)


def sealed(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description as a file can store it, with its checksum."""
    text = as_bytes(json.dumps(about, ensure_ascii=False))
    content = {name: value for name, value in json.loads(text).items() if name != LINE_SUM}
    return content | {LINE_SUM: sum_of_line(content)}


def sum_of_line(line: dict[str, Any]) -> str:
    """Return the checksum of a line of an archive or of a run.json."""
    return hashlib.sha256(json.dumps(line).encode()).hexdigest()


def _check_description(about: dict[str, Any], path: str) -> None:
    """Raise a UserError if a stored run lacks an entry, or an entry has the wrong type."""
    check_kinds(about, KINDS, path, VERSION)
    check_if_there(about, FURTHER, path)
    check_kinds(about["task"], {"name": str}, f"The task in {path}")
    check_if_there(about["task"], OF_TASK, f"The task in {path}")
    versions = about.get("versions", {})
    check_kinds(versions, dict.fromkeys(versions, str | None), f"The table of versions in {path}")
    for name, value in about["config"].items():
        if not isinstance(value, SETTING):
            raise UserError(f"The config in {path} is damaged: it has no valid {name}; {COPY}")
    if not is_file_name(about["run"]):
        raise UserError(
            f"{path} is damaged: its entry run, {about['run']!r}, is not a valid folder name; "
            f"{COPY}"
        )


def make_record(
    folder: Path, about: dict[str, Any], logs: dict[str, list[LogRow]], damage: dict[str, str]
) -> RunRecord:
    """Return the record of a run from its checked description and its logs."""
    label = about.get("label") or re.sub(r"-seed\d+$", "", about["run"])
    stored_logs: dict[str, Any] = {name: tuple(rows) for name, rows in logs.items()}
    return RunRecord(
        folder=folder,
        about=about,
        run=about["run"],
        label=str(label),
        task=about["task"],
        algo=about["algo"],
        preset=str(about.get("preset", "")),
        seed=about["seed"],
        config=dict(about["config"]),
        given=about.get("given", {}),
        started_from=about.get("started_from"),
        identity=identity(about),
        status=about["status"],
        status_detail=about.get("status_detail"),
        computed=_computed(about),
        versions=about.get("versions", {}),
        machine=about.get("machine", {}),
        damage=damage,
        **stored_logs,
    )


def _computed(about: dict[str, Any]) -> dict[str, str]:
    """Return device, backend and precision; empty if one of them was not stored."""
    computed = about.get("computed")
    if not isinstance(computed, dict) or not computed.keys() >= set(HOW):
        return {}
    return {name: str(computed[name]) for name in HOW}


def damage_text(run: RunRecord) -> str:
    """Describe the damaged logs of a run."""
    return ", ".join(f"{log} ({wrong})" for log, wrong in sorted(run.damage.items()))


def warn_of_damage(runs: Iterable[RunRecord], unreadable: Iterable[UserError] = ()) -> list[str]:
    """Warn about damaged and unreadable runs, and return the warnings."""
    sentences = [str(reason) for reason in unreadable]
    for run in runs:
        if run.damage:
            sentences.append(
                f"{run.folder} has damaged logs; only complete lines were read: {damage_text(run)}."
            )
    for sentence in sentences:
        warnings.warn(sentence, stacklevel=3)
    return sentences
