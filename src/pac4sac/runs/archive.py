"""An archive: runs in a form that is small, can be read by people, and changes by whole lines when
runs are added.

    runs/<task>.jsonl     a line for each run: its run.json and its logs, column by column
    studies/<name>.json   what a study asks, and the runs that it expects, by identity
    costs/<machine>.json  what the cost study measured there

A run that several studies have in common is there once; all of them find it by its identity.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import (
    check_if_there,
    check_kinds,
    check_links,
    natural,
    read_json,
    read_jsonl,
    write_whole,
)
from pac4sac.base.text import file_name
from pac4sac.runs.logs import as_columns, episode_columns
from pac4sac.runs.merging import OUTCOME, contradict, end, merge
from pac4sac.runs.reading import (
    LINE_SUM,
    RunRecord,
    files_below,
    read_below,
    read_experiment,
    sum_of_line,
    warn_of_damage,
)


@dataclass
class ArchiveChanges:
    """What became of the runs that were offered."""

    new: int = 0
    replaced: int = 0  # unfinished, failed or less measured before
    known: int = 0
    # of runs trained twice, those that were not taken
    differing: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    studies: dict[str, tuple[int, int]] = field(default_factory=dict)  # runs present, runs expected


def add_to_archive(
    folders: Sequence[Path], archive: Path, *, unfinished: bool = False, keep_first: bool = False
) -> ArchiveChanges:
    """Put the runs, studies and costs below some folders into an archive.

    Args:
        folders: Folders of experiments and studies.
        archive: Folder to put them into; it need not exist.
        unfinished: Take runs that did not come to an end, too.
        keep_first: Keep the first of two runs that should be equal and are not.

    Returns:
        What became of the runs.

    Raises:
        UserError: If there is nothing, or two runs contradict each other.
    """
    check_folders(folders)
    check_links(archive)
    held = {run.identity: run for run in _runs_below(archive, experiments=False)}
    added, left_out = ArchiveChanges(), dict[str, str]()
    for run in (run for folder in folders for run in _runs_below(folder)):
        if unfinished or end(run):
            _take(run, held, added, keep_first)
        else:
            left_out[run.identity] = str(run.folder)
    added.unfinished = [place for key, place in left_out.items() if key not in held]
    studies, costs = _merged_studies([archive, *folders]), _merged_costs([archive, *folders])
    if not (held or studies or costs or left_out):
        raise UserError(f"{', '.join(map(str, folders))} holds neither runs nor a study.")
    for name, about in studies.items():
        expected = about["expected_runs"]
        added.studies[name] = sum(row.get("identity") in held for row in expected), len(expected)
    _write_archive(archive, held.values(), studies, costs)
    return added


def _take(
    run: RunRecord, held: dict[str, RunRecord], added: ArchiveChanges, keep_first: bool
) -> None:
    """Add a run to those held, or the better of two copies."""
    before = held.setdefault(run.identity, run)
    if before is run:
        added.new += 1
    elif contradict(before, run):
        if not keep_first:
            raise UserError(
                f"{before.folder} and {run.folder} are the same run with different returns; leave "
                "one out, or keep the first of each such pair with --keep-first."
            )
        added.known += 1
        added.differing.append(str(run.folder))
    else:
        held[run.identity] = merge([before, run])[0]
        is_known = held[run.identity] is before
        added.known += is_known
        added.replaced += not is_known


def _write_archive(
    archive: Path,
    runs: Iterable[RunRecord],
    studies: Mapping[str, dict[str, Any]],
    costs: Mapping[str, dict[str, Any]],
) -> None:
    for task, lines in _lines_by_task(runs).items():
        _write(archive / "runs" / f"{task}.jsonl", "".join(lines))
    for name, about in studies.items():
        _write(archive / "studies" / f"{file_name(name)}.json", _study_text(about))
    for name, cost in costs.items():
        _write(archive / "costs" / f"{name}.json", json.dumps(cost, indent=1) + "\n")


def _merged_costs(folders: Sequence[Path]) -> dict[str, dict[str, Any]]:
    costs = (read_cost(path) for folder in folders for path in cost_files([folder]))
    return {_machine_name(cost): cost for cost in costs}


# --- runs


def archived(archive: Path) -> list[RunRecord]:
    """Return the runs of an archive that came to an outcome; none if it does not exist yet."""
    if not archive.exists():
        return []
    check_folders([archive])
    return [run for run in _runs_below(archive, experiments=False) if end(run) == OUTCOME]


def check_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is no folder; give folders of experiments or studies.")


def _runs_below(folder: Path, experiments: bool = True) -> Iterator[RunRecord]:
    runs, unreadable = read_below(folder, experiments=experiments)
    if unreadable:
        raise unreadable[0]
    warn_of_damage(runs)
    for run in runs:
        if "same_as" not in run.about:  # a copy under another name, which the study knows
            yield dataclasses.replace(run, about=_cohort(run) | run.about)


def _cohort(run: RunRecord) -> dict[str, Any]:
    """With how many others it was trained, and for how long."""
    experiment = run.folder.parent.parent
    is_there = (experiment / "experiment.json").exists()  # as it is not around an archive
    for number, cohort in enumerate(read_experiment(experiment)["cohorts"] if is_there else ()):
        if any(about["run"] == run.run for about in cohort):
            rows, _ = read_jsonl(experiment / "cohorts" / f"{number:03d}" / "times.jsonl")
            seconds = [
                float(row["seconds"]) for row in rows if type(row.get("seconds")) in (int, float)
            ]
            # The clock starts anew with every resume.
            ends = [now for now, after in pairwise([*seconds, 0.0]) if after <= now]
            return {
                "cohort": {"runs": len(cohort)} | ({"seconds": round(sum(ends), 1)} if ends else {})
            }
    return {}


def _lines_by_task(runs: Iterable[RunRecord]) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for run in sorted(
        runs,
        key=lambda run: (natural(str(run.about.get("label", run.run))), run.seed, run.identity),
    ):
        logs = {
            name: as_columns(getattr(run, name)) for name in ("evaluations", "bias", "coverage")
        }
        row = (
            run.about
            | {"episodes": episode_columns(run.episodes)}
            | {name: log for name, log in logs.items() if log}
        )
        if run.damage:
            row["damage"] = dict(run.damage)
        if "cohort" in row:
            row["cohort"] = row.pop("cohort")  # last, as it was always written
        # The line as a whole, in place of the logs' files; older runs have neither, and stay as
        # they are.
        if row.pop("logs", None) or row.pop(LINE_SUM, None):
            row[LINE_SUM] = sum_of_line(row)
        lines.setdefault(file_name(run.task["name"].lower()), []).append(json.dumps(row) + "\n")
    return lines


# --- studies and costs


def study_files(folders: Iterable[Path]) -> list[Path]:
    return files_below(folders, "study.json", "studies/*.json")


def stale_runs(study: dict[str, Any]) -> dict[str, str]:
    """The identities of runs that other code than the study's has trained, each with that which
    takes its place."""
    stale = study.get("stale")
    return {key: str(instead) for key, instead in stale.items()} if isinstance(stale, dict) else {}


def _merged_studies(folders: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Pieces of a study expect the runs of all pieces; of a run that was expected twice the later
    identity counts."""
    studies: dict[str, dict[str, Any]] = {}
    for path in (path for folder in folders for path in study_files([folder])):
        about = read_study_file(path)
        before = studies.get(about["study"], {}).get("expected_runs", [])
        rows = {
            (r["task"], r["label"], r["seed"]): r
            for r in [*before, *about.get("expected_runs", [])]
        }
        order = sorted(rows, key=lambda key: (key[0], natural(key[1]), key[2]))
        stale = stale_runs(studies.get(about["study"], {})) | stale_runs(about)
        about |= {"expected_runs": [rows[key] for key in order]} | (
            {"stale": stale} if stale else {}
        )
        studies[about["study"]] = about
    return studies


def read_study_file(path: Path) -> dict[str, Any]:
    """What a study asks and expects; a mistake of the user where it is not as studies are
    written."""
    about = read_json(path, {"study": str})
    texts = dict.fromkeys(("title", "question", "kind", "definition"), str) | {
        "baseline": str | None
    }
    check_if_there(about, texts | {"expected_runs": list}, str(path))
    for row in about.get("expected_runs", []):
        check_kinds(
            row,
            {"task": str, "label": str, "seed": int, "identity": str | None},
            f"A run in {path}",
        )
    return about


def _study_text(about: dict[str, Any]) -> str:
    """Expected runs in a line each, so that a longer study is a few lines more."""
    rows = ",\n  ".join(json.dumps(row) for row in about["expected_runs"])
    text = json.dumps(about | {"expected_runs": []}, indent=1)
    return (
        text.replace('"expected_runs": []', f'"expected_runs": [\n  {rows}\n ]') if rows else text
    )


def cost_files(folders: Iterable[Path]) -> list[Path]:
    files = files_below(folders, "cost.json", "costs/*.json")
    # one of which may be called cost
    return [path for path in files if path.parent.name != "studies"]


def read_cost(path: Path) -> dict[str, Any]:
    """What a cost study measured, with the name of its study."""
    cost = read_json(path, {"rows": list})
    check_if_there(cost, {"version": int, "machine": dict, "versions": dict}, str(path))
    for row in cost["rows"]:
        check_kinds(row, {"seconds_per_1000_steps": list}, f"A row of {path}")
    study = path.parent / "study.json"
    return cost | {
        "study": str((read_json(study) if study.exists() else cost).get("study", "cost"))
    }


def _machine_name(cost: dict[str, Any]) -> str:
    machine, device = cost.get("machine", {}), str(cost.get("device", "cpu"))
    what = (
        machine.get("gpu")
        if device != "cpu"
        else f"{machine.get('processor', '')}-{machine.get('cores', '')}-cores"
    )
    study = "" if cost["study"] == "cost" else f"{cost['study']}-"
    return file_name("-".join(f"{study}{device}-{what or ''}".lower().split()))


def _write(path: Path, text: str) -> None:
    """Not where nothing changes."""
    if not path.exists() or path.read_bytes() != text.encode():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
