"""All runs below some folders, each once, with what the studies there expected and what is missing.

Nothing here depends on the clock, the order of the arguments, or where the folders lie.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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


class Reader:
    """Reads the files below some folders and keeps why some could not be read."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.roots = sorted({Path(os.path.realpath(path)) for path in paths})
        check_folders(self.roots)
        self.base = Path(os.path.commonpath(self.roots)) if self.roots else Path()
        if len(self.roots) == 1:
            self.base = self.base.parent
        self.records, self.reasons = read_below(*self.roots)

    def place(self, path: Path) -> str:
        """Return a path as the report shows it."""
        return path.relative_to(self.base).as_posix() if path != self.base else path.name

    def read(self, paths: Iterable[Path], read: Callable[[Path], T]) -> dict[Path, T]:
        """Return what could be read of some files."""
        contents = {}
        for path in paths:
            try:
                contents[path] = read(path)
            except UserError as reason:
                self.reasons.append(reason)
        return contents

    def unreadable(self) -> tuple[str, ...]:
        """Return why files could not be read."""
        return tuple(str(reason).replace(f"{self.base}/", "") for reason in self.reasons)

    def dates(self) -> tuple[str, ...]:
        """Return the days of training, if the folders have them."""
        files = files_below(self.roots, "cohorts/*/times.jsonl")
        dates = [row.get("date") for path in files for row in read_jsonl(path)[0]]
        return tuple(sorted({date[:10] for date in dates if isinstance(date, str)}))


def collect(paths: Sequence[Path]) -> Collection:
    """Return all runs, studies and costs below some folders, and what is missing.

    Raises:
        UserError: If there is nothing.
    """
    reader = Reader(paths)
    studies = reader.read(study_files(reader.roots), read_study_file)
    experiments = reader.read(files_below(reader.roots, "experiment.json"), _cohorts_of)
    costs = reader.read(cost_files(reader.roots), read_cost)
    found = _with_studies(reader.records, studies, reader.place)
    runs, replaced = _newest_code(*_each_once(found, reader.place))
    if not (runs or costs or studies):
        folders = ", ".join(map(str, reader.roots)) or "Nothing"
        raise UserError(
            f"{folders} holds neither runs nor a study; give folders of experiments or studies."
        )
    expecting = [*studies.values(), *_expected_by(experiments, reader.place)]
    return Collection(
        runs=runs,
        studies=tuple(_study(path, about, reader.place) for path, about in studies.items()),
        missing=_missing(runs, expecting),
        costs=tuple(
            FoundCost(reader.place(path), cost["study"], cost) for path, cost in costs.items()
        ),
        twice=replaced,
        unreadable=reader.unreadable(),
        dates=reader.dates(),
    )


def _cohorts_of(experiment: Path) -> list[list[Description]]:
    cohorts: list[list[Description]] = read_experiment(experiment.parent)["cohorts"]
    return cohorts


def _newest_code(
    runs: Sequence[FoundRun], sentences: Sequence[str]
) -> tuple[tuple[FoundRun, ...], tuple[str, ...]]:
    """Leave out runs by older code that newer code has trained again."""
    present = {run.record.identity for run in runs}
    replaced = tuple(
        f"`{run.place}` was left out: it was trained by older code, and the same run by "
        "newer code is here."
        for run in runs
        if run.instead in present
    )
    return tuple(run for run in runs if run.instead not in present), (*sentences, *replaced)


def _with_studies(
    records: Sequence[RunRecord], studies: Mapping[Path, Description], place: Place
) -> Iterator[FoundRun]:
    """Tell for each run to which studies it belongs.

    In an archive runs are stored beside the studies: they belong together by identity, or by
    name if the study knows no identity.
    """
    expecting: dict[Any, list[tuple[Description, str]]] = {}
    for about, row in _expected(studies.values()):
        for key in (row.get("identity"), _name_of(row)):
            expecting.setdefault(key, []).append((about, str(row.get("label"))))
    stale: dict[str, str] = {}
    for about in studies.values():
        stale |= stale_runs(about)
    for record in records:
        name = (record.task["name"], record.label, record.seed)
        members = expecting.get(record.identity) or expecting.get(name, [])
        around = [about for path, about in studies.items() if path.parent in record.folder.parents]
        beside = [about for about, _ in members]
        yield FoundRun(
            record,
            place(record.folder),
            labels=(record.label, *(label for _, label in members)),
            studies=tuple(str(about.get("study")) for about in (*around, *beside)),
            chose=_choosing_kind(around or beside),
            instead=stale.get(record.identity),
        )


def _name_of(row: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return row.get("task"), row.get("label"), row.get("seed")


def _choosing_kind(studies: Iterable[Description]) -> str:
    """Return the kind of the first study that chose a setting by its runs, or nothing."""
    kinds = (str(about.get("kind")) for about in studies)
    return next((kind for kind in kinds if kind in CHOOSING), "")


def _each_once(
    runs: Iterable[FoundRun], place: Place
) -> tuple[tuple[FoundRun, ...], tuple[str, ...]]:
    """Return the best copy of each run, and sentences on copies that were left out."""
    copies_by_run: dict[tuple[str, str], list[FoundRun]] = {}
    for run in sorted(runs, key=lambda run: run.place):
        copies_by_run.setdefault((run.record.identity, run.chose), []).append(run)
    kept, sentences = [], []
    for copies in copies_by_run.values():
        best, others = merge([copy.record for copy in copies])
        kept.append(_joined(best, copies, place))
        # A study keeps a run that it knows by two names under both, in one folder.
        if elsewhere := [other for other in others if other.folder.parent != best.folder.parent]:
            left_out = ", ".join(place(other.folder) for other in elsewhere)
            sentences.append(
                f"`{place(best.folder)}` was taken and {left_out} left out, the same run: "
                f"{why(best, elsewhere)}."
            )
    return tuple(sorted(kept, key=_order)), tuple(sorted(sentences))


def _joined(best: RunRecord, copies: Sequence[FoundRun], place: Place) -> FoundRun:
    """Return one copy of a run with the labels and studies of all."""
    labels = sorted({label for copy in copies for label in copy.labels}, key=natural)
    studies = sorted({name for copy in copies for name in copy.studies})
    first = copies[0]
    return FoundRun(
        best, place(best.folder), tuple(labels), tuple(studies), first.chose, first.instead
    )


def _order(run: FoundRun) -> tuple[Any, ...]:
    record = run.record
    return record.task["name"], natural(record.label), record.seed, run.place


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
    """Return the runs that studies and experiments expect and that are not there."""
    present: set[Any] = {run.record.identity for run in runs}
    for run in runs:
        present |= {(run.record.task["name"], label, run.record.seed) for label in run.labels}
    first_names: dict[Any, tuple[str, str, int]] = {}  # studies may know a run by different names
    waiting: dict[tuple[str, str, int], set[str]] = {}
    experiments: dict[tuple[str, str, int], str] = {}
    for about, row in _expected(studies):
        seed = row.get("seed")
        if not isinstance(seed, int):
            continue
        name = (str(row.get("task")), str(row.get("label")), seed)
        keys = [row.get("identity") or name, name]
        if present.intersection(keys):
            continue
        known = next((first_names[key] for key in keys if key in first_names), name)
        first_names |= dict.fromkeys(keys, known)
        waiting.setdefault(known, set()).add(str(about.get("study")))
        experiments[known] = experiments.get(known) or about.get("experiment", "")
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
