"""An archive: runs in small, readable text files that change by whole lines when runs are added.

    runs/<task>.jsonl     one line per run: its run.json and its logs, column by column
    studies/<name>.json   the question of a study, and the identities of its expected runs
    costs/<machine>.json  the measurements of the cost study on a machine

A run that several studies share is stored once; each of them finds it by its identity.
"""

import dataclasses
import json
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import (
    COPY,
    check_if_there,
    check_kinds,
    check_links,
    natural,
    read_json,
    read_jsonl,
    write_whole,
)
from pac4sac.base.text import file_name
from pac4sac.runs.logs import REPORTED, log_columns
from pac4sac.runs.merging import OUTCOME, completion, contradict, merge
from pac4sac.runs.reading import (
    LINE_SUM,
    RunRecord,
    files_below,
    is_changed,
    read_below,
    read_experiment,
    sealed,
    sum_of_line,
    warn_of_damage,
)


@dataclass
class ArchiveChanges:
    """Hold the changes of an archive when runs were added."""

    new: int = 0
    # copies replaced with a finished or longer copy, or a copy with more measurements
    replaced: int = 0
    known: int = 0
    differing: list[str] = field(default_factory=list)  # omitted copies with different returns
    unfinished: list[str] = field(default_factory=list)  # omitted
    studies: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # study -> (runs present, runs expected)


def add_to_archive(
    folders: Sequence[Path],
    archive: Path,
    *,
    unfinished: bool = False,
    keep_first: bool = False,
    leave_out: Container[str] = (),
) -> ArchiveChanges:
    """Add the runs, studies and costs below some folders to an archive.

    Args:
        folders: Folders of experiments and studies.
        archive: Folder of the archive, created if needed.
        unfinished: Add unfinished runs too.
        keep_first: If copies of a run have different returns, keep the first one.
        leave_out: Identities of runs to omit, as if they were unfinished.

    Returns:
        The changes of the archive.

    Raises:
        UserError: If the folders hold no runs, or copies of a run have different returns.
    """
    check_folders(folders)
    check_links(archive)
    held = {run.identity: run for run in _runs_below(archive, experiments=False)}
    changes = _add_runs(folders, held, unfinished, keep_first, leave_out)
    studies, costs = _merged_studies([archive, *folders]), _merged_costs([archive, *folders])
    if not (held or studies or costs or changes.unfinished):
        raise UserError(
            f"No runs or studies were found in {', '.join(map(str, folders))}; give folders of "
            "experiments or studies."
        )
    changes.studies = {name: _present_and_expected(about, held) for name, about in studies.items()}
    _write_archive(archive, held.values(), studies, costs)
    return changes


def _add_runs(
    folders: Sequence[Path],
    held: dict[str, RunRecord],
    unfinished: bool,
    keep_first: bool,
    leave_out: Container[str],
) -> ArchiveChanges:
    """Add the runs below some folders to the stored ones, and return the changes."""
    changes, left_out = ArchiveChanges(), dict[str, str]()
    for run in chain.from_iterable(map(_runs_below, folders)):
        if run.identity not in leave_out and (unfinished or completion(run)):
            _add_run(run, held, changes, keep_first)
        else:
            left_out[run.identity] = str(run.folder)
    changes.unfinished = [place for key, place in left_out.items() if key not in held]
    return changes


def _add_run(
    run: RunRecord, held: dict[str, RunRecord], changes: ArchiveChanges, keep_first: bool
) -> None:
    """Add a run to the stored runs, or keep the better of two copies."""
    before = held.setdefault(run.identity, run)
    if before is run:
        changes.new += 1
    elif contradict(before, run):
        if not keep_first:
            raise UserError(
                f"{before.folder} and {run.folder} are copies of the same run with different "
                "returns; leave one out, or add --keep-first to keep the first copy of each run."
            )
        changes.known += 1
        changes.differing.append(str(run.folder))
    else:
        held[run.identity] = merge([before, run])[0]
        is_known = held[run.identity] is before
        changes.known += is_known
        changes.replaced += not is_known


def _present_and_expected(study: Mapping[str, Any], held: Container[str]) -> tuple[int, int]:
    """Return the numbers of stored and of expected runs of a study."""
    expected = study["expected_runs"]
    return sum(row.get("identity") in held for row in expected), len(expected)


def _write_archive(
    archive: Path,
    runs: Iterable[RunRecord],
    studies: Mapping[str, dict[str, Any]],
    costs: Mapping[str, dict[str, Any]],
) -> None:
    """Write the files of an archive whose content has changed."""
    for task, lines in _lines_by_task(runs).items():
        _write(archive / "runs" / f"{task}.jsonl", "".join(lines))
    for name, about in studies.items():
        _write(archive / "studies" / f"{file_name(name)}.json", _study_text(about))
    for name, cost in costs.items():
        _write(archive / "costs" / f"{name}.json", json.dumps(_resealed(cost), indent=1) + "\n")


def _merged_costs(folders: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the costs below some folders by machine; the last one of a machine counts."""
    costs = (read_cost(path) for folder in folders for path in cost_files([folder]))
    return {_machine_name(cost): cost for cost in costs}


# --- runs


def archived(archive: Path) -> list[RunRecord]:
    """Return the runs of an archive that have an outcome; empty if it does not exist yet."""
    if not archive.exists():
        return []
    check_folders([archive])
    runs = _runs_below(archive, experiments=False)
    return [run for run in runs if completion(run) == OUTCOME]


def check_folders(folders: Iterable[Path]) -> None:
    """Raise a UserError if one of some folders does not exist."""
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder; give folders of experiments or studies.")


def _runs_below(folder: Path, experiments: bool = True) -> Iterator[RunRecord]:
    """Yield the runs below a folder with facts on their cohort, and warn of damaged logs.

    Raises:
        UserError: If a run is unreadable.
    """
    runs, unreadable = read_below(folder, experiments=experiments)
    if unreadable:
        raise unreadable[0]
    warn_of_damage(runs)
    for run in runs:
        if "same_as" not in run.about:  # otherwise it is a copy, which its study stores by name
            yield dataclasses.replace(run, about=_cohort_facts(run) | run.about)


def _cohort_facts(run: RunRecord) -> dict[str, Any]:
    """Return the size and the training time of a run's cohort, if its experiment has them."""
    experiment = run.folder.parent.parent
    if not (experiment / "experiment.json").exists():  # an archive, or one run folder
        return {}
    for number, cohort in enumerate(read_experiment(experiment)["cohorts"]):
        if any(about["run"] == run.run for about in cohort):
            times = experiment / "cohorts" / f"{number:03d}" / "times.jsonl"
            return {"cohort": {"runs": len(cohort)} | _training_time(times)}
    return {}


def _training_time(times: Path) -> dict[str, float]:
    """Return the training seconds of a cohort over all resumes; empty without such a log."""
    rows, _ = read_jsonl(times)
    seconds = [float(row["seconds"]) for row in rows if type(row.get("seconds")) in (int, float)]
    # The clock restarts with every resume.
    ends = [now for now, after in pairwise([*seconds, 0.0]) if after <= now]
    return {"seconds": round(sum(ends), 1)} if ends else {}


def _lines_by_task(runs: Iterable[RunRecord]) -> dict[str, list[str]]:
    """Return the lines of an archive in the order of labels and seeds, by name of the file."""
    lines: dict[str, list[str]] = {}
    for run in sorted(runs, key=_order_of_lines):
        lines.setdefault(file_name(run.task["name"].lower()), []).append(_line(run))
    return lines


def _order_of_lines(run: RunRecord) -> tuple[Any, ...]:
    """Return the sort key of a run in an archive."""
    return natural(str(run.about.get("label", run.run))), run.seed, run.identity


def _line(run: RunRecord) -> str:
    """Return a run as a line of an archive."""
    row = dict(run.about)
    for name in REPORTED:
        columns = log_columns(name, getattr(run, name))
        if columns or name == "episodes":
            row[name] = columns
    if run.damage:
        row["damage"] = dict(run.damage)
    if "cohort" in row:
        row["cohort"] = row.pop("cohort")  # moved to the end, as in earlier archives
    # The checksum of the line replaces those of the log files. Older runs have none and stay
    # unchanged.
    checksums = row.pop("logs", None), row.pop(LINE_SUM, None)
    if any(checksums):
        row[LINE_SUM] = sum_of_line(row)
    return json.dumps(row) + "\n"


# --- studies and costs


def study_files(folders: Iterable[Path]) -> list[Path]:
    """Return the files below some folders that describe a study."""
    return files_below(folders, "study.json", "studies/*.json")


def stale_runs(study: Mapping[str, Any]) -> dict[str, str]:
    """Return a map from identities of runs by older code to identities with the current code."""
    stale = study.get("stale")
    return {key: str(instead) for key, instead in stale.items()} if isinstance(stale, dict) else {}


def _merged_studies(folders: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the studies below some folders by name, each with the expected runs of all its
    parts."""
    studies: dict[str, dict[str, Any]] = {}
    for path in (path for folder in folders for path in study_files([folder])):
        about = read_study_file(path)
        name = about["study"]
        studies[name] = _with_runs_of(studies.get(name, {}), about)
    return studies


def _with_runs_of(before: Mapping[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """Return a study that also expects the runs of an earlier part of it.

    If both parts expect the same run, the later identity counts.
    """
    rows = {
        (row["task"], row["label"], row["seed"]): row
        for piece in (before, about)
        for row in piece.get("expected_runs", [])
    }
    order = sorted(rows, key=lambda key: (key[0], natural(key[1]), key[2]))
    study = about | {"expected_runs": [rows[key] for key in order]}
    stale = stale_runs(before) | stale_runs(about)
    return study | {"stale": stale} if stale else study


def read_study_file(path: Path) -> dict[str, Any]:
    """Return the description of a study, and the runs that it expects.

    Raises:
        UserError: If the file lacks a part, or a part has the wrong type.
    """
    about = read_json(path, {"study": str})
    texts = dict.fromkeys(("title", "question", "kind", "definition"), str)
    check_if_there(about, texts | {"baseline": str | None, "expected_runs": list}, str(path))
    kinds = {"task": str, "label": str, "seed": int, "identity": str | None}
    for row in about.get("expected_runs", []):
        check_kinds(row, kinds, f"A run in {path}")
    return about


def _study_text(about: dict[str, Any]) -> str:
    """Return a study as JSON with one expected run per line, so an added run is an added line."""
    rows = ",\n  ".join(json.dumps(row) for row in about["expected_runs"])
    text = json.dumps(about | {"expected_runs": []}, indent=1)
    if not rows:
        return text
    return text.replace('"expected_runs": []', f'"expected_runs": [\n  {rows}\n ]')


def cost_files(folders: Iterable[Path]) -> list[Path]:
    """Return the files below some folders with the results of a cost study."""
    files = files_below(folders, "cost.json", "costs/*.json")
    # studies/cost.json describes a study.
    return [path for path in files if path.parent.name != "studies"]


def read_cost(path: Path) -> dict[str, Any]:
    """Return the name and the measurements of a cost study.

    Raises:
        UserError: If the file lacks a part, or a part has the wrong type.
    """
    cost = read_json(path, {"rows": list})
    if is_changed(cost):
        raise UserError(f"{path} has been changed since it was written; {COPY}")
    check_if_there(cost, {"version": int, "machine": dict, "versions": dict}, str(path))
    for row in cost["rows"]:
        check_kinds(row, {"seconds_per_1000_steps": list}, f"A row of {path}")
        check_if_there(row, {"algo": str, "label": str, "task": str}, f"A row of {path}")
        if wrong := [time for time in row["seconds_per_1000_steps"] if not _is_time(time)]:
            raise UserError(f"{path} is damaged: {wrong[0]!r} is not a time; {COPY}")
    study = path.parent / "study.json"
    named = read_json(study) if study.exists() else cost
    return cost | {"study": str(named.get("study", "cost"))}


def _resealed(cost: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a cost with a new checksum. Costs of earlier versions have no checksum and stay
    unchanged."""
    return sealed(cost) if LINE_SUM in cost else cost


def _is_time(value: Any) -> bool:
    """Return whether a value is a positive number of seconds."""
    return type(value) in (int, float) and 0 < value < math.inf


def _machine_name(cost: dict[str, Any]) -> str:
    """Return the file name of a cost: study, device and processor or GPU."""
    machine, device = cost.get("machine", {}), str(cost.get("device", "cpu"))
    if device == "cpu":
        hardware = f"{machine.get('processor', '')}-{machine.get('cores', '')}-cores"
    else:
        hardware = machine.get("gpu") or ""
    study = "" if cost["study"] == "cost" else f"{cost['study']}-"
    return file_name("-".join(f"{study}{device}-{hardware}".lower().split()))


def _write(path: Path, text: str) -> None:
    """Write a file unless it already has this content."""
    if not path.exists() or path.read_bytes() != text.encode():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
