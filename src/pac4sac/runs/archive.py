"""An archive: runs in a form that is small, can be read by people, and changes by whole lines when runs are added.

    runs/<task>.jsonl     a line for each run: what its run.json says, and its logs, column by column
    studies/<name>.json   what a study asks, and the runs that it expects, by identity
    costs/<machine>.json  what the cost study measured there

A run that several studies have in common is there once; all of them find it by its identity.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import natural, read_json, read_jsonl
from pac4sac.base.text import file_name
from pac4sac.runs.reading import (
    MEASUREMENTS,
    check_run,
    episode_rows,
    find_archived,
    find_runs_below,
    identity,
    read_run,
    read_run_json,
)

Row = dict[str, Any]
KEPT = "_=+"  # in names of files
RANKS = {"finished": 2, "diverged": 2, "failed": 1}  # a failed run may be trained again; any other is unfinished


@dataclass
class Added:
    """What became of the runs that were offered."""

    new: int = 0
    replaced: int = 0  # unfinished or failed before
    known: int = 0
    differing: list[str] = field(default_factory=list)  # of runs trained twice, those that were not taken
    unfinished: list[str] = field(default_factory=list)
    studies: dict[str, tuple[int, int]] = field(default_factory=dict)  # runs present, runs expected


def add_to_archive(
    folders: Sequence[Path], archive: Path, *, unfinished: bool = False, keep_first: bool = False
) -> Added:
    """Put the runs, studies and costs below some folders into an archive, which need not exist yet."""
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is no folder; give folders of studies or experiments.")
    held: dict[str, tuple[str, Row]] = {identity(row): (place, row) for place, row in _archived(archive)}
    added, left_out = Added(), {}
    for place, row in (offer for folder in folders for offer in (*_trained(folder), *_archived(folder))):
        key = identity(row)
        if not (unfinished or RANKS.get(row["status"])):
            left_out[key] = place
        elif key not in held:
            held[key] = place, row
            added.new += 1
        elif _is_better(row, held[key][1]):
            held[key] = place, row | _lacking(row, held[key][1])
            added.replaced += 1
        else:
            added.known += 1
            if _differs(row, held[key][1]):
                if not keep_first:
                    raise UserError(
                        f"{held[key][0]} and {place} are the same run with different returns; leave one out, or keep "
                        "the first of each such pair with --keep-first."
                    )
                added.differing.append(place)
    added.unfinished = [place for key, place in left_out.items() if key not in held]
    studies = _merged_studies([archive, *folders])
    costs = {_machine_name(content): content for folder in (archive, *folders) for content in _costs(folder)}
    if not held and not studies and not costs and not left_out:
        raise UserError(f"{', '.join(map(str, folders))} holds neither runs nor a study.")
    _write_runs(archive, [row for _, row in held.values()])
    for name, about in studies.items():
        expected = about["expected_runs"]
        added.studies[name] = sum(row.get("identity") in held for row in expected), len(expected)
        _write(archive / "studies" / f"{file_name(name, '_=+')}.json", _study_text(about))
    for name, content in costs.items():
        _write(archive / "costs" / f"{name}.json", json.dumps(content, indent=1) + "\n")
    return added


# --- runs


def _trained(folder: Path) -> Iterator[tuple[str, Row]]:
    for run in find_runs_below(folder):
        about = read_run_json(run / "run.json")
        if "same_as" not in about:  # a copy under another name, which the study knows
            yield str(run), packed(run, about)


def packed(folder: Path, about: Row) -> Row:
    record = read_run(folder)
    row = {**about, "episodes": episode_columns(record.episodes)}
    for name in ("evaluations", *MEASUREMENTS):
        if rows := getattr(record, name):
            row[name] = as_columns(rows)
    if record.skipped_lines:
        row["skipped_lines"] = record.skipped_lines
    if cohort := _cohort(folder, identity(about)):
        row["cohort"] = cohort
    return row


def _archived(folder: Path) -> Iterator[tuple[str, Row]]:
    for file in find_archived(folder):
        rows, skipped = read_jsonl(file)
        if skipped:
            raise UserError(f"{file} has {skipped} lines that cannot be read; mend it before runs are added.")
        for row in rows:
            check_run(row, f"A line of {file}")
            yield f"{file}, {row['run']},", row


def as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def episode_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = as_columns(rows)
    short = {name: column for name, column in columns.items() if name not in ("episode", "step")}
    if len(set(columns.get("length", []))) == 1:
        short["length"] = columns["length"][0]
    return short if episode_rows(short) == list(rows) else columns


def _is_better(offered: Row, held: Row) -> bool:
    mine, theirs = (RANKS.get(row["status"], 0) for row in (offered, held))
    more = len(_returns(offered)) > len(_returns(held))
    measured = bool(_lacking(held, offered))
    return mine > theirs or (mine == theirs and (measured or (mine < RANKS["finished"] and more)))


def _lacking(row: Row, other: Row) -> Row:
    """Measurements that were made of a run when it was trained another time, to the same end."""
    same = _returns(row) == _returns(other)
    return {name: other[name] for name in MEASUREMENTS if same and name in other and name not in row}


def _differs(offered: Row, held: Row) -> bool:
    """Two ends of what should be one run; a shorter run that did not come to its end is none."""
    return all(RANKS.get(row["status"]) == RANKS["finished"] for row in (offered, held)) and (
        _returns(offered) != _returns(held)
    )


def _returns(row: Row) -> list[float]:
    return list(row.get("episodes", {}).get("return", []))


def _cohort(run: Path, wanted: str) -> dict[str, Any] | None:
    """With how many others it was trained, and for how long."""
    experiment = run.parent.parent
    cohorts = (read_json(experiment / "experiment.json") or {}).get("cohorts", [])
    for number, cohort in enumerate(cohorts):
        if any(identity(about) == wanted for about in cohort):
            rows, _ = read_jsonl(experiment / "cohorts" / f"{number:03d}" / "times.jsonl")
            seconds = [float(row["seconds"]) for row in rows if "seconds" in row]
            # The clock starts anew with every resume.
            ends = [now for now, after in pairwise([*seconds, 0.0]) if after <= now]
            return {"runs": len(cohort)} | ({"seconds": round(sum(ends), 1)} if ends else {})
    return None


def _write_runs(archive: Path, rows: Iterable[Row]) -> None:
    by_file: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (natural(str(row.get("label", row["run"]))), row["seed"], identity(row))):
        by_file.setdefault(file_name(row["task"]["name"], KEPT), []).append(row)
    for name, found in by_file.items():
        _write(archive / "runs" / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in found))


# --- studies and costs


def _merged_studies(folders: Sequence[Path]) -> dict[str, Row]:
    """Pieces of a study expect the runs of all pieces; of a run that was expected twice the later identity counts."""
    merged: dict[str, Row] = {}
    for folder in folders:
        for path in study_files(folder):
            about = read_json(path)
            if about is None or "study" not in about:
                raise UserError(f"{path} cannot be read; mend it before runs are added.")
            before = merged.get(about["study"], {}).get("expected_runs", [])
            rows = {(r["task"], r["label"], r["seed"]): r for r in [*before, *about.get("expected_runs", [])]}
            order = sorted(rows, key=lambda key: (key[0], natural(key[1]), key[2]))
            merged[about["study"]] = about | {"expected_runs": [rows[key] for key in order]}
    return merged


def study_files(folder: Path) -> list[Path]:
    return sorted([*folder.rglob("study.json"), *folder.rglob("studies/*.json")])


def cost_files(folder: Path) -> list[Path]:
    return sorted([*folder.rglob("cost.json"), *folder.rglob("costs/*.json")])


def _study_text(about: Row) -> str:
    """Expected runs in a line each, so that a longer study is a few lines more."""
    rows = ",\n  ".join(json.dumps(row) for row in about["expected_runs"])
    text = json.dumps(about | {"expected_runs": []}, indent=1)
    return text.replace('"expected_runs": []', f'"expected_runs": [\n  {rows}\n ]' if rows else '"expected_runs": []')


def _costs(folder: Path) -> Iterator[Row]:
    for path in cost_files(folder):
        content = read_json(path)
        if content is not None and isinstance(content.get("rows"), list):
            study = (read_json(path.parent / "study.json") or {}).get("study", content.get("study", "cost"))
            yield content | {"study": study}


def _machine_name(cost: Row) -> str:
    machine, device = cost.get("machine", {}), str(cost.get("device", "cpu"))
    what = machine.get("gpu") if device != "cpu" else f"{machine.get('processor', '')}-{machine.get('cores', '')}-cores"
    study = "" if cost["study"] == "cost" else f"{cost['study']}-"
    return file_name(f"{study}{device}-{what or ''}", KEPT)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and not where nothing changes."""
    data = text.encode()
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)
