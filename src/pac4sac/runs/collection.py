"""All runs below some folders, without duplicates, with their studies and the missing runs.

The result depends neither on the clock, nor on the order of arguments, nor on the location of
folders.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from pac4sac.runs.curve_files import foreign_runs, is_curve_file, read_curves
from pac4sac.runs.identity import identity
from pac4sac.runs.merging import merge, reason_for_choice
from pac4sac.runs.reading import RunRecord, files_below, read_below, read_experiment
from pac4sac.runs.tuning import SUMMARY, FoundSearch, read_search

# kinds of studies that choose a setting, on separate seeds
CHOOSING = ("calibration", "search")

Description = dict[str, Any]  # stored description of a study
T = TypeVar("T")
Place = Callable[[Path], str]  # converts a path to its form in the report
Name = tuple[str, str, int]  # task, label and seed of a run


@dataclass(frozen=True)
class FoundRun:
    """Hold a run with the facts that its folders store about it."""

    record: RunRecord
    place: str  # its folder, as displayed in the report
    labels: tuple[str, ...]  # its labels in all folders
    studies: tuple[str, ...]
    # Kind of the study that chose a setting by this run, so it is not a result.
    chose: str
    instead: str | None = None  # for a run by older code: its identity with the current code


@dataclass(frozen=True)
class FoundStudy:
    """Hold the description of a study."""

    place: str
    name: str
    title: str
    kind: str
    question: str
    definition: str  # name for `pac4sac study`; empty for other studies
    baseline: str | None


@dataclass(frozen=True)
class MissingRun:
    """Hold a run that a study or an experiment expects but that was not found."""

    task: str
    label: str
    seed: int
    studies: tuple[str, ...]  # the studies that expect it
    experiment: str  # folder of the experiment that expects it, or empty


@dataclass(frozen=True)
class FoundCost:
    """Hold the measurements of a cost study on a machine."""

    place: str
    study: str
    content: dict[str, Any]


@dataclass(frozen=True)
class Collection:
    """Hold all input of a report."""

    runs: tuple[FoundRun, ...]
    studies: tuple[FoundStudy, ...]
    missing: tuple[MissingRun, ...]
    costs: tuple[FoundCost, ...]
    twice: tuple[str, ...]  # notes on runs found in several folders
    unreadable: tuple[str, ...]
    dates: tuple[str, ...]  # dates of training, if stored
    searches: tuple[FoundSearch, ...] = ()


class Reader:
    """Read the files below some folders, and keep the reasons why some are unreadable."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.roots = sorted(set(map(_real_path, paths)))
        check_folders(self.roots)
        self.base = Path(os.path.commonpath(self.roots)) if self.roots else Path()
        if len(self.roots) == 1:
            self.base = self.base.parent
        self.records, self.reasons = read_below(*self.roots)

    def place(self, path: Path) -> str:
        """Return a path as displayed in the report."""
        return path.relative_to(self.base).as_posix() if path != self.base else path.name

    def read(self, paths: Iterable[Path], read: Callable[[Path], T]) -> dict[Path, T]:
        """Return the content of the readable files."""
        contents = {}
        for path in paths:
            try:
                contents[path] = read(path)
            except UserError as reason:
                self.reasons.append(reason)
        return contents

    def unreadable(self) -> tuple[str, ...]:
        """Return the reasons why files are unreadable."""
        return tuple(str(reason).replace(f"{self.base}/", "") for reason in self.reasons)

    def dates(self) -> tuple[str, ...]:
        """Return the dates of training, if the folders store them."""
        files = files_below(self.roots, "cohorts/*/times.jsonl")
        dates = [row.get("date") for path in files for row in read_jsonl(path)[0]]
        return tuple(sorted({date[:10] for date in dates if isinstance(date, str)}))


def collect(paths: Sequence[Path]) -> Collection:
    """Return all runs, studies and costs below some folders, and the missing runs.

    Args:
        paths: Folders, and CSV files with curves of other projects.

    Raises:
        UserError: If the paths hold no runs, or a file of curves is invalid.
    """
    curves = read_curves(path for path in paths if is_curve_file(path))
    reader = Reader([path for path in paths if not is_curve_file(path)])
    studies = reader.read(study_files(reader.roots), read_study_file)
    experiments = reader.read(files_below(reader.roots, "experiment.json"), _cohorts_of)
    costs, searches = _costs(reader), _searches(reader)
    found = _with_studies(reader.records, studies, reader.place)
    runs, replaced = _newest_code(*_each_once(found, reader.place))
    foreign = foreign_runs(curves, [run.record for run in runs])
    if not (runs or costs or studies or foreign):
        raise _nothing_in(reader)
    expecting = [*studies.values(), *_expected_by(experiments, reader.place)]
    return Collection(
        runs=(*runs, *map(_foreign, foreign)),
        studies=tuple(_study(path, about, reader.place) for path, about in studies.items()),
        missing=_missing(runs, expecting),
        costs=costs,
        twice=replaced,
        unreadable=reader.unreadable(),
        dates=reader.dates(),
        searches=searches,
    )


def _real_path(path: Path) -> Path:
    """Return a path without symbolic links; refuse a path that no folder can have."""
    try:
        return Path(os.path.realpath(path))
    except ValueError as error:
        raise UserError(
            f"{str(path)!r} is not a folder; give folders of experiments or studies."
        ) from error


def _costs(reader: Reader) -> tuple[FoundCost, ...]:
    """Return the readable measurements of cost."""
    contents = reader.read(cost_files(reader.roots), read_cost)
    return tuple(
        FoundCost(reader.place(path), cost["study"], cost) for path, cost in contents.items()
    )


def _searches(reader: Reader) -> tuple[FoundSearch, ...]:
    """Return the readable searches of settings."""
    contents = reader.read(files_below(reader.roots, SUMMARY), read_search)
    return tuple(FoundSearch(reader.place(path.parent), about) for path, about in contents.items())


def _nothing_in(reader: Reader) -> UserError:
    """Return the error that says that folders hold nothing to report on, or nothing readable."""
    if reader.reasons:
        return reader.reasons[0]
    named = ", ".join(map(str, reader.roots))
    place = f" in {named}" if named else ""
    return UserError(
        f"No runs or studies were found{place}; give folders of experiments or studies."
    )


def _foreign(record: RunRecord) -> FoundRun:
    """Return a curve of another project as a found run."""
    place = f"{record.about['foreign']}: {record.run}"
    return FoundRun(record, place, labels=(record.label,), studies=(), chose="")


def _cohorts_of(experiment: Path) -> list[list[Description]]:
    """Return the descriptions of the runs of each cohort."""
    cohorts: list[list[Description]] = read_experiment(experiment.parent)["cohorts"]
    return cohorts


def _newest_code(
    runs: Sequence[FoundRun], sentences: Sequence[str]
) -> tuple[tuple[FoundRun, ...], tuple[str, ...]]:
    """Omit runs by older code if the same run by newer code exists, and return notes on them."""
    present = {run.record.identity for run in runs}
    replaced = tuple(
        f"`{run.place}` was left out, because the same run was also trained by newer code."
        for run in runs
        if run.instead in present
    )
    return tuple(run for run in runs if run.instead not in present), (*sentences, *replaced)


def _with_studies(
    records: Sequence[RunRecord], studies: Mapping[Path, Description], place: Place
) -> Iterator[FoundRun]:
    """Yield each run with the studies that it belongs to.

    A run belongs to the study whose folder it is in. The runs of an archive are not in the folder
    of a study. They belong to the studies that expect them, by identity, or by name if a study
    stores no identity.
    """
    expecting = _expecting(studies.values())
    stale = _all_stale_runs(studies.values())
    for record in records:
        name = (record.task["name"], record.label, record.seed)
        members = expecting.get(record.identity) or expecting.get(name, [])
        around = [about for path, about in studies.items() if path.parent in record.folder.parents]
        others = [about for about, _ in members]
        yield FoundRun(
            record,
            place(record.folder),
            labels=(record.label, *(row["label"] for _, row in members)),
            studies=tuple(about["study"] for about in (*around, *others)),
            chose=_choosing_kind(around or others),
            instead=stale.get(record.identity),
        )


def _expecting(
    studies: Iterable[Description],
) -> dict[str | Name | None, list[tuple[Description, dict[str, Any]]]]:
    """Return the studies that expect a run, with their rows for it, by identity and by name."""
    expecting: dict[str | Name | None, list[tuple[Description, dict[str, Any]]]] = {}
    for about, row in _expected(studies):
        for key in (row.get("identity"), _name_of(row)):
            expecting.setdefault(key, []).append((about, row))
    return expecting


def _all_stale_runs(studies: Iterable[Description]) -> dict[str, str]:
    """Return the identities of runs by older code in all studies, each with its new identity."""
    stale: dict[str, str] = {}
    for about in studies:
        stale |= stale_runs(about)
    return stale


def _name_of(row: Mapping[str, Any]) -> Name:
    """Return task, label and seed of a run that a study expects."""
    return row["task"], row["label"], row["seed"]


def _choosing_kind(studies: Iterable[Description]) -> str:
    """Return the kind of the first study that chose a setting by its runs, or ""."""
    kinds = (about.get("kind", "") for about in studies)
    return next((kind for kind in kinds if kind in CHOOSING), "")


def _each_once(
    runs: Iterable[FoundRun], place: Place
) -> tuple[tuple[FoundRun, ...], tuple[str, ...]]:
    """Return the best copy of each run, and notes on omitted copies."""
    copies_by_run: dict[tuple[str, str], list[FoundRun]] = {}
    for run in sorted(runs, key=lambda run: run.place):
        copies_by_run.setdefault((run.record.identity, run.chose), []).append(run)
    kept, sentences = [], []
    for copies in copies_by_run.values():
        best, others = merge([copy.record for copy in copies])
        kept.append(_joined(best, copies, place))
        # A study stores a run with two names under both, in one folder.
        elsewhere = [other for other in others if other.folder.parent != best.folder.parent]
        if elsewhere:
            left_out = ", ".join(place(other.folder) for other in elsewhere)
            sentences.append(
                f"`{place(best.folder)}` was used and {left_out} left out: "
                f"{reason_for_choice(best, elsewhere)}."
            )
    return tuple(sorted(kept, key=_order)), tuple(sorted(sentences))


def _joined(best: RunRecord, copies: Sequence[FoundRun], place: Place) -> FoundRun:
    """Return the best copy of a run with the labels and studies of all copies."""
    labels = {label for copy in copies for label in copy.labels}
    studies = {name for copy in copies for name in copy.studies}
    return dataclasses.replace(
        copies[0],
        record=best,
        place=place(best.folder),
        labels=tuple(sorted(labels, key=natural)),
        studies=tuple(sorted(studies)),
    )


def _order(run: FoundRun) -> tuple[Any, ...]:
    """Return the sort key of a found run."""
    record = run.record
    return record.task["name"], natural(record.label), record.seed, run.place


def _expected(studies: Iterable[Description]) -> Iterator[tuple[Description, dict[str, Any]]]:
    """Yield each run that a study expects, with the study."""
    for about in studies:
        for row in about.get("expected_runs", []):
            yield about, row


def _expected_by(
    experiments: Mapping[Path, list[list[Description]]], place: Place
) -> Iterator[Description]:
    """Yield a study without a name, which expects the runs of the cohort, for each cohort of each
    experiment."""
    for path, cohorts in experiments.items():
        for cohort in cohorts:
            rows = [_row(run) for run in cohort]
            yield {"study": "", "expected_runs": rows, "experiment": place(path.parent)}


def _row(run: Description) -> dict[str, Any]:
    """Return a run of an experiment in the form in which studies expect runs."""
    name = {"task": run["task"]["name"], "label": run["label"], "seed": run["seed"]}
    return name | {"identity": identity(run)}


@dataclass
class _Expectation:
    """Hold a run that was not found, with the studies and experiments that expect it."""

    name: Name  # name in the first study; other studies may use another
    studies: set[str] = field(default_factory=set)
    experiment: str = ""

    def add(self, about: Description) -> None:
        """Add a study or an experiment that expects the run."""
        self.studies.add(about["study"])
        self.experiment = self.experiment or about.get("experiment", "")

    def missing_run(self) -> MissingRun:
        """Return the entry of a collection."""
        return MissingRun(*self.name, tuple(sorted(self.studies - {""})), self.experiment)


def _missing(runs: Sequence[FoundRun], studies: Iterable[Description]) -> tuple[MissingRun, ...]:
    """Return the expected runs of studies and experiments that were not found."""
    present = _present(runs)
    expectations: list[_Expectation] = []
    by_key: dict[str | Name, _Expectation] = {}  # by identity and by all names
    for about, row in _expected(studies):
        name = _name_of(row)
        keys = [row.get("identity") or name, name]
        if keys[0] in present:
            continue
        expectation = by_key.get(keys[0]) or by_key.get(name)
        if not expectation:
            expectation = _Expectation(name)
            expectations.append(expectation)
        expectation.add(about)
        by_key |= dict.fromkeys(keys, expectation)
    missing = [expectation.missing_run() for expectation in expectations]
    return tuple(sorted(missing, key=lambda run: (run.task, natural(run.label), run.seed)))


def _present(runs: Iterable[FoundRun]) -> set[str | Name]:
    """Return the identities and names of all runs that were found.

    A run by older code counts as the same run by the current code.
    """
    present: set[str | Name] = set()
    for run in runs:
        present |= {run.record.identity, run.instead or run.record.identity}
        present |= {(run.record.task["name"], label, run.record.seed) for label in run.labels}
    return present


def _study(path: Path, about: Description, place: Place) -> FoundStudy:
    """Return a study, with defaults for fields that its file lacks."""
    name: str = about["study"]
    return FoundStudy(
        place=place(path.parent if path.name == "study.json" else path),
        name=name,
        title=about.get("title", name),
        kind=about.get("kind", ""),
        question=about.get("question", ""),
        definition=about.get("definition", name),
        baseline=about.get("baseline"),
    )
