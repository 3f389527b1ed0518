"""All runs below some folders, each once, with what the studies there expected and what is missing.

Nothing here depends on the clock, the order of the arguments, or where the folders lie.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import natural, read_json, read_jsonl
from pac4sac.runs.archive import cost_files, study_files
from pac4sac.runs.metrics import Score, score, solved_at
from pac4sac.runs.reading import (
    MEASUREMENTS,
    RunRecord,
    archived_run,
    find_archived,
    find_runs_below,
    identity,
    read_run,
)

CHOOSING = ("calibration", "search")  # kinds of studies that choose a setting, on seeds of their own


@dataclass(frozen=True)
class FoundRun:
    record: RunRecord
    place: str  # its folder, as the report shows it
    labels: tuple[str, ...]  # under which it was found, in whatever folders
    studies: tuple[str, ...]
    chose: str  # kind of the study that was to choose a setting by it; such a run must not count as a result


@dataclass(frozen=True)
class FoundStudy:
    place: str
    name: str
    title: str
    kind: str
    question: str
    baseline: str | None


@dataclass(frozen=True)
class MissingRun:
    task: str
    label: str
    seed: int
    studies: tuple[str, ...]  # all that wait for it; none where an experiment alone does


@dataclass(frozen=True)
class FoundCost:
    place: str
    study: str
    content: dict[str, Any]


@dataclass(frozen=True)
class Collection:
    runs: tuple[FoundRun, ...]
    studies: tuple[FoundStudy, ...]
    missing: tuple[MissingRun, ...]
    costs: tuple[FoundCost, ...]
    twice: tuple[str, ...]  # sentences on runs found in several folders
    unreadable: tuple[str, ...]
    dates: tuple[str, ...]  # of training, where the folders tell


def collect(paths: Sequence[Path]) -> Collection:
    roots = sorted({Path(os.path.realpath(path)) for path in paths})
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root} is no folder; give folders of experiments or studies.")
    base = Path(os.path.commonpath(roots)) if len(roots) > 1 else roots[0].parent if roots else Path()

    def place(path: Path) -> str:
        return path.relative_to(base).as_posix() if path != base else path.name

    study_paths = sorted({path for root in roots for path in study_files(root)})
    contents = {path: content for path in study_paths if (content := read_json(path)) is not None}
    unreadable = [f"{place(path)} cannot be read" for path in study_paths if path not in contents]
    records, damaged = _records(roots, place)
    unreadable += damaged
    expecting: dict[Any, list[tuple[dict[str, Any], str]]] = {}
    for about in contents.values():
        for row in about.get("expected_runs", []):
            if isinstance(row, dict):
                for key in (row.get("identity"), (row.get("task"), row.get("label"), row.get("seed"))):
                    expecting.setdefault(key, []).append((about, str(row.get("label"))))
    found: list[FoundRun] = []
    for record in records:
        # In an archive a run lies beside the studies: its identity tells to which of them it belongs, or else its name,
        # where an identity is of an older kind.
        around = [about for path, about in contents.items() if path.parent in record.folder.parents]
        name = (record.task["name"], record.label, record.seed)
        members = expecting.get(record.identity) or expecting.get(name, [])
        studies = around or [about for about, _ in members]
        names = {str(about.get("study")) for about in (*around, *(about for about, _ in members))}
        labels = dict.fromkeys([record.label, *(label for _, label in members)])
        chose = next((str(about["kind"]) for about in studies if about.get("kind") in CHOOSING), "")
        found.append(FoundRun(record, place(record.folder), tuple(labels), tuple(sorted(names)), chose))
    runs, twice = _each_once(found)
    costs = [
        FoundCost(place(path), _cost_study(path, content), content)
        for path in sorted({path for root in roots for path in cost_files(root)})
        if (content := read_json(path)) is not None and isinstance(content.get("rows"), list)
    ]
    if not runs and not costs and not contents:
        told = ", ".join(str(root) for root in roots) or "Nothing"
        raise UserError(f"{told} holds neither runs nor a study; give folders of experiments or studies.")
    return Collection(
        runs=runs,
        studies=tuple(_study(place(_study_place(path)), about) for path, about in contents.items()),
        missing=_missing(runs, contents, roots),
        costs=tuple(costs),
        twice=tuple(twice),
        unreadable=tuple(unreadable),
        dates=tuple(sorted(set(_dates(roots)))),
    )


def score_run(run: RunRecord) -> Score | None:
    """The paper's metrics; None without a limit, or where episodes differ in length. E_max is the number of episodes
    that the budget of steps has room for, which of such episodes nobody knows before they end; a run that fails sooner
    would have more of them, and so more regret, without being worse."""
    horizon, r_limit = run.task.get("horizon"), run.task.get("r_limit")
    if r_limit is None or not horizon or not has_equal_episodes(run):
        return None
    return score(run.returns, r_limit, max(1, run.task.get("steps", horizon * len(run.episodes)) // horizon))


def has_equal_episodes(run: RunRecord) -> bool:
    return all(row["length"] == run.task.get("horizon") for row in run.episodes)


def is_solved(run: RunRecord) -> bool:
    """Within E_max, or ever where episodes differ in length."""
    if (scored := score_run(run)) is not None:
        return scored.solved
    r_limit = run.task.get("r_limit")
    return r_limit is not None and solved_at(run.returns, r_limit) is not None


def is_complete(run: RunRecord) -> bool:
    """Whether its metrics are final: solved already, or at the end of its budget."""
    scored = score_run(run)
    return scored.complete if scored else run.status == "finished"


def _each_once(found: Sequence[FoundRun]) -> tuple[tuple[FoundRun, ...], list[str]]:
    """Of the same run in several folders the complete one, then the one with more episodes, then with more measured;
    what was measured of another to the same end is taken with it."""
    by_identity: dict[tuple[str, str], list[FoundRun]] = {}
    for run in found:
        by_identity.setdefault((run.record.identity, run.chose), []).append(run)
    kept, twice = [], []
    for copies in by_identity.values():
        copies.sort(
            key=lambda run: (
                not is_complete(run.record),
                -len(run.record.episodes),
                -len(run.record.bias),
                -len(run.record.coverage),
                run.place,
            )
        )
        best = copies[0]
        # A study keeps a run that it knows by two names under both, side by side: nothing to tell.
        others = [copy for copy in copies[1:] if copy.record.folder.parent != best.record.folder.parent]
        if others:
            left_out = ", ".join(copy.place for copy in others)
            twice.append(f"`{best.place}` was taken and {left_out} left out, the same run: {_why([best, *others])}.")
        labels = tuple(sorted({label for copy in copies for label in copy.labels}, key=natural))
        studies = tuple(sorted({name for copy in copies for name in copy.studies}))
        kept.append(dataclasses.replace(best, record=_measured(copies), labels=labels, studies=studies))
    kept.sort(key=lambda run: (run.record.task["name"], natural(run.record.label), run.record.seed, run.place))
    return tuple(kept), sorted(twice)


def _measured(copies: Sequence[FoundRun]) -> RunRecord:
    best, *others = (copy.record for copy in copies)
    for other in others:
        if best.returns.tolist() == other.returns.tolist():
            logs = {name: getattr(other, name) for name in MEASUREMENTS if not getattr(best, name)}
            best = dataclasses.replace(best, **logs)
    return best


def _why(copies: Sequence[FoundRun]) -> str:
    best, *others = (copy.record for copy in copies)
    if is_complete(best) and not any(is_complete(other) for other in others):
        return "it alone is complete"
    if all(best.returns.tolist() == other.returns.tolist() for other in others):
        return "they are equal"
    if any(len(best.episodes) > len(other.episodes) for other in others):
        return "it has more episodes"
    return "they differ, and it is the first by name"


def _missing(
    runs: Sequence[FoundRun], studies: dict[Path, dict[str, Any]], roots: Sequence[Path]
) -> tuple[MissingRun, ...]:
    identities = {run.record.identity for run in runs}
    names = {(run.record.task["name"], label, run.record.seed) for run in runs for label in run.labels}
    missing: list[MissingRun] = []
    places: dict[Any, int] = {}  # by identity and by name: studies may know a run by different names
    for study, row in _expected(studies, roots):
        name = (str(row.get("task")), str(row.get("label")), row.get("seed"))
        if row.get("identity") in identities or name in names or not isinstance(name[2], int):
            continue
        keys = [key for key in (row.get("identity"), name) if key]
        place = next((places[key] for key in keys if key in places), len(missing))
        if place == len(missing):
            missing.append(MissingRun(name[0], name[1], name[2], ()))
        waiting = {*missing[place].studies, study} - {""}
        missing[place] = dataclasses.replace(missing[place], studies=tuple(sorted(waiting)))
        places |= dict.fromkeys(keys, place)
    return tuple(sorted(missing, key=lambda run: (run.task, natural(run.label), run.seed)))


def _expected(studies: dict[Path, dict[str, Any]], roots: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    for about in studies.values():
        for row in about.get("expected_runs", []):
            if isinstance(row, dict):
                yield str(about.get("study")), row
    for path in sorted({path for root in roots for path in root.rglob("experiment.json")}):
        for cohort in (read_json(path) or {}).get("cohorts", []):
            for run in cohort:
                row = {"task": run["task"]["name"], "label": run["label"], "seed": run["seed"]}
                yield "", row | {"identity": identity(run)}


def _records(roots: Sequence[Path], place: Callable[[Path], str]) -> tuple[list[RunRecord], list[str]]:
    """All runs in folders and archives, and sentences on what cannot be read."""
    records, unreadable = [], []
    for folder in sorted({folder for root in roots for folder in find_runs_below(root)}):
        try:
            records.append(read_run(folder))
        except UserError as error:
            unreadable.append(str(error).replace(str(folder), place(folder)))
    for file in sorted({file for root in roots for file in find_archived(root)}):
        rows, skipped = read_jsonl(file)
        unreadable += [f"{place(file)} has {skipped} lines that are no JSON"] if skipped else []
        for row in rows:
            try:
                records.append(archived_run(file, row))
            except UserError as error:
                unreadable.append(str(error).replace(str(file), place(file)))
    return records, unreadable


def _study_place(path: Path) -> Path:
    return path.parent if path.name == "study.json" else path


def _study(place: str, about: dict[str, Any]) -> FoundStudy:
    name = str(about.get("study", place))
    title, question = str(about.get("title", name)), str(about.get("question", ""))
    return FoundStudy(place, name, title, str(about.get("kind", "")), question, about.get("baseline"))


def _cost_study(path: Path, content: dict[str, Any]) -> str:
    return str((read_json(path.parent / "study.json") or content).get("study", "cost"))


def _dates(roots: Sequence[Path]) -> Iterator[str]:
    for path in {path for root in roots for path in root.rglob("cohorts/*/times.jsonl")}:
        for row in read_jsonl(path)[0]:
            if isinstance(row.get("date"), str):
                yield row["date"][:10]
