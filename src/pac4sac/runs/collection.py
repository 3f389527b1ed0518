"""All runs below some folders, each once, with what the studies there expected and what is missing.

Nothing here depends on the clock, the order of the arguments, or where the folders lie.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pac4sac.agents import ALGORITHMS
from pac4sac.base.errors import UserError
from pac4sac.base.files import natural, read_jsonl
from pac4sac.runs.archive import (
    check_folders,
    cost_files,
    read_cost,
    read_study_file,
    stale_runs,
    study_files,
)
from pac4sac.runs.identity import identity
from pac4sac.runs.merging import merge, why
from pac4sac.runs.reading import RunRecord, files_below, read_below, read_experiment

# kinds of studies that choose a setting, on seeds of their own
CHOOSING = ("calibration", "search")

Description = dict[str, Any]  # of a study, as it is stored
T = TypeVar("T")
Place = Callable[[Path], str]  # a path as the report shows it


@dataclass(frozen=True)
class FoundRun:
    record: RunRecord
    place: str  # its folder, as the report shows it
    labels: tuple[str, ...]  # under which it was found, in whatever folders
    studies: tuple[str, ...]
    # kind of the study that was to choose a setting by it; such a run must not count as a result
    chose: str
    instead: str | None = (
        None  # of a run by other code than today's: the identity that it would have by today's
    )


@dataclass(frozen=True)
class FoundStudy:
    place: str
    name: str
    title: str
    kind: str
    question: str
    definition: str  # by which it is called, nothing where it is no study of `pac4sac study`
    baseline: str | None


@dataclass(frozen=True)
class MissingRun:
    task: str
    label: str
    seed: int
    studies: tuple[str, ...]  # all that wait for it; none where an experiment alone does
    experiment: str  # that waits for it, as the report shows its place, or nothing


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
    check_folders(roots)
    base = (
        Path(os.path.commonpath(roots)) if len(roots) > 1 else roots[0].parent if roots else Path()
    )

    def place(path: Path) -> str:
        return path.relative_to(base).as_posix() if path != base else path.name

    records, reasons = read_below(*roots)

    def whole(paths: Iterable[Path], read: Callable[[Path], T]) -> dict[Path, T]:
        """What could be read; why the others could not is told."""
        contents = {}
        for path in paths:
            try:
                contents[path] = read(path)
            except UserError as reason:
                reasons.append(reason)
        return contents

    studies = whole(study_files(roots), read_study_file)
    experiments = whole(
        files_below(roots, "experiment.json"), lambda path: read_experiment(path.parent)["cohorts"]
    )
    costs = whole(cost_files(roots), read_cost)
    unreadable = [str(reason).replace(f"{base}/", "") for reason in reasons]
    runs, twice = _each_once(_with_studies(records, studies, place), place)
    present = {run.record.identity for run in runs}
    for run in (run for run in runs if run.instead in present):
        twice += (
            f"`{run.place}` was left out: it was trained by older code, and the same run by "
            "newer code is here.",
        )
    runs = tuple(run for run in runs if run.instead not in present)
    if not (runs or costs or studies):
        folders = ", ".join(map(str, roots)) or "Nothing"
        raise UserError(
            f"{folders} holds neither runs nor a study; give folders of experiments or studies."
        )
    times = [
        row for path in files_below(roots, "cohorts/*/times.jsonl") for row in read_jsonl(path)[0]
    ]
    return Collection(
        runs=runs,
        studies=tuple(_study(path, about, place) for path, about in studies.items()),
        missing=_missing(runs, [*studies.values(), *_expected_by(experiments, place)]),
        costs=tuple(FoundCost(place(path), cost["study"], cost) for path, cost in costs.items()),
        twice=twice,
        unreadable=tuple(unreadable),
        dates=tuple(
            sorted({row["date"][:10] for row in times if isinstance(row.get("date"), str)})
        ),
    )


def _with_studies(
    records: Sequence[RunRecord], studies: Mapping[Path, Description], place: Place
) -> Iterator[FoundRun]:
    """In an archive a run lies beside the studies: its identity tells to which of them it belongs,
    or else its name, where an identity is of an older kind."""
    expecting: dict[Any, list[tuple[Description, str]]] = {}
    for about, row in _expected(studies.values()):
        for key in (row.get("identity"), (row.get("task"), row.get("label"), row.get("seed"))):
            expecting.setdefault(key, []).append((about, str(row.get("label"))))
    stale = {
        known: instead for about in studies.values() for known, instead in stale_runs(about).items()
    }
    for record in records:
        name = (record.task["name"], record.label, record.seed)
        members = expecting.get(record.identity) or expecting.get(name, [])
        around = [about for path, about in studies.items() if path.parent in record.folder.parents]
        beside = [about for about, _ in members]
        labels = (record.label, *(label for _, label in members))
        names = tuple(str(about.get("study")) for about in (*around, *beside))
        chose = next(
            (str(about["kind"]) for about in around or beside if about.get("kind") in CHOOSING), ""
        )
        instead = stale.get(record.identity, _of_today(record))
        yield FoundRun(record, place(record.folder), labels, names, chose, instead)


def _of_today(record: RunRecord) -> str | None:
    """The identity that a run of a shipped algorithm would have by its revision of today, where
    that is another."""
    revision = record.about.get("revision")
    today = ALGORITHMS[record.algo].agent.revision if record.algo in ALGORITHMS else revision
    return identity(record.about | {"revision": today}) if revision not in (None, today) else None


def _each_once(
    runs: Iterable[FoundRun], place: Place
) -> tuple[tuple[FoundRun, ...], tuple[str, ...]]:
    """The best of the copies of a run, with the labels and studies of all, and sentences on the
    others."""
    copies_by_run: dict[tuple[str, str], list[FoundRun]] = {}
    for run in sorted(runs, key=lambda run: run.place):
        copies_by_run.setdefault((run.record.identity, run.chose), []).append(run)
    kept, twice = [], []
    for (_, chose), copies in copies_by_run.items():
        best, others = merge([copy.record for copy in copies])
        labels = sorted({label for copy in copies for label in copy.labels}, key=natural)
        studies = sorted({name for copy in copies for name in copy.studies})
        kept.append(
            FoundRun(
                best, place(best.folder), tuple(labels), tuple(studies), chose, copies[0].instead
            )
        )
        # A study keeps a run that it knows by two names under both, side by side: nothing to tell.
        if others := [other for other in others if other.folder.parent != best.folder.parent]:
            left_out, reason = ", ".join(place(other.folder) for other in others), why(best, others)
            twice.append(
                f"`{place(best.folder)}` was taken and {left_out} left out, the same run: {reason}."
            )
    kept.sort(
        key=lambda run: (
            run.record.task["name"],
            natural(run.record.label),
            run.record.seed,
            run.place,
        )
    )
    return tuple(kept), tuple(sorted(twice))


def _expected(studies: Iterable[Description]) -> Iterator[tuple[Description, dict[str, Any]]]:
    return (
        (about, row)
        for about in studies
        for row in about.get("expected_runs", [])
        if isinstance(row, dict)
    )


def _expected_by(
    experiments: Mapping[Path, list[list[Description]]], place: Place
) -> Iterator[Description]:
    """Experiments expect runs as studies do, under no name."""
    for path, cohorts in experiments.items():
        for cohort in cohorts:
            names = [
                {"task": run["task"].get("name"), "label": run["label"], "seed": run["seed"]}
                for run in cohort
            ]
            rows = [
                name | {"identity": identity(run)} for name, run in zip(names, cohort, strict=True)
            ]
            yield {"study": "", "expected_runs": rows, "experiment": place(path.parent)}


def _missing(runs: Sequence[FoundRun], studies: Iterable[Description]) -> tuple[MissingRun, ...]:
    present: set[Any] = {run.record.identity for run in runs}
    present |= {
        (run.record.task["name"], label, run.record.seed) for run in runs for label in run.labels
    }
    first_names: dict[Any, tuple[str, str, int]] = {}  # studies may know a run by different names
    waiting: dict[tuple[str, str, int], set[str]] = {}
    experiments: dict[tuple[str, str, int], str] = {}
    for about, row in _expected(studies):
        task, label, seed = str(row.get("task")), str(row.get("label")), row.get("seed")
        keys = [row.get("identity") or (task, label, seed), (task, label, seed)]
        if isinstance(seed, int) and not present.intersection(keys):
            name = next(
                (first_names[key] for key in keys if key in first_names), (task, label, seed)
            )
            first_names |= dict.fromkeys(keys, name)
            waiting.setdefault(name, set()).add(str(about.get("study")))
            experiments.setdefault(name, "")
            experiments[name] = experiments[name] or about.get("experiment", "")
    missing = [
        MissingRun(*name, tuple(sorted(names - {""})), experiments[name])
        for name, names in waiting.items()
    ]
    return tuple(sorted(missing, key=lambda run: (run.task, natural(run.label), run.seed)))


def _study(path: Path, about: Description, place: Place) -> FoundStudy:
    where = place(path.parent if path.name == "study.json" else path)
    name = str(about.get("study", where))
    title, question = str(about.get("title", name)), str(about.get("question", ""))
    kind, definition = str(about.get("kind", "")), str(about.get("definition", name))
    return FoundStudy(where, name, title, kind, question, definition, about.get("baseline"))
