"""Plan studies: find runs that are already trained, and group the other runs into cohorts that fit
into memory.

A study folder contains `study.json` and `experiments/`, with one experiment folder for each planned
cohort. A run is identified by its task, settings, seed and code, so no run is trained twice, even
after a study was extended by seeds or variants. Runs trained by another version of the code are
trained again.
"""

import hashlib
import itertools
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pac4sac.agents import removed_settings
from pac4sac.base.errors import UserError
from pac4sac.base.files import check_kinds, check_links, write_json
from pac4sac.base.objects import short_name
from pac4sac.base.text import assignments, file_name
from pac4sac.runs.archive import read_study_file, stale_runs
from pac4sac.runs.identity import code_changes, identity
from pac4sac.runs.reading import RunRecord, read_experiment, read_run
from pac4sac.runs.status import ENDED
from pac4sac.studies.definition import Study
from pac4sac.tasks import simulator_seconds
from pac4sac.training import backends
from pac4sac.training.experiment import choose_again, create
from pac4sac.training.learner import cohort_bytes
from pac4sac.training.options import Options
from pac4sac.training.retry import is_to_be_retried
from pac4sac.training.run import Run, plan_cohorts, settings_changed

VERSION = 1
COMPUTING = ("device", "backend", "workers", "threads")  # options that depend on the machine


@dataclass(frozen=True)
class PlannedCohort:
    """Hold a cohort of a study, which has its own experiment folder."""

    folder: Path
    runs: tuple[Run, ...]
    bytes: int

    @property
    def title(self) -> str:
        """Return the task and the first labels of the runs."""
        labels = list(dict.fromkeys(run.label for run in self.runs))
        shown, more = ", ".join(labels[:3]), len(labels) - 3
        return f"{self.runs[0].task.name}: {shown}" + (f" and {more} more" if more > 0 else "")

    @property
    def steps(self) -> int:
        """Return the number of steps of each run."""
        return self.runs[0].task.steps

    @property
    def simulating(self) -> float:
        """Return the seconds that one core needs for its simulators."""
        return len(self.runs) * self.steps * simulator_seconds(self.runs[0].task)

    @property
    def duration(self) -> float:
        """Return the seconds that its simulators need with one core each."""
        return self.steps * simulator_seconds(self.runs[0].task)

    def done(self) -> list[Run]:
        """Return the runs that have ended and are not to be trained again."""
        return [
            run
            for run, status in zip(self.runs, self.statuses(), strict=True)
            if status in ENDED and not is_to_be_retried(self.folder, run.id, status)
        ]

    def is_done(self) -> bool:
        """Return whether all runs have ended."""
        return len(self.done()) == len(self.runs)

    def statuses(self) -> list[str]:
        """Return the status of each run; "waiting" before it begins."""
        folders = [self.folder / "runs" / run.id for run in self.runs]
        return [read_run(f).status if (f / "run.json").exists() else "waiting" for f in folders]


@dataclass(frozen=True)
class StoredCohort:
    """Hold the content of an experiment folder of a study, compared with the current code."""

    folder: Path
    identities: tuple[str, ...]  # of its runs when they were trained
    runs: tuple[Run, ...]  # the runs with the current code
    edited: str  # how the current code differs, in words; empty if it does not differ


def stored_cohorts(study: Study, root: Path) -> Iterator[StoredCohort]:
    """Yield the cohorts in a study folder with algorithms and environments of the study.

    Code that only the folder names is not imported.
    """
    today = {(run.algo, run.task.env_id): run.trained_by for run in study.runs()}
    for path in sorted(root.glob("experiments/*/experiment.json")):
        stored = list(itertools.chain(*read_experiment(path.parent)["cohorts"]))
        code = _code_for(stored, today)
        if code is not None:
            identities, edited = tuple(map(identity, stored)), _how_edited(stored[0], code)
            yield StoredCohort(path.parent, identities, _by_today(stored, code), edited)


def _code_for(
    stored: Sequence[Mapping[str, Any]], today: Mapping[tuple[str, str], dict[str, Any]]
) -> dict[str, Any] | None:
    """Return the current code of a stored cohort, which has one agent class and one task, or None.

    Args:
        stored: Its runs.
        today: Current code of each algorithm and environment.
    """
    for about in stored:
        code = today.get((about["algo"], about["task"]["env_id"]))
        if code:
            return code
    return None


def _by_today(stored: Sequence[Mapping[str, Any]], code: Mapping[str, Any]) -> tuple[Run, ...]:
    """Return stored runs with the current code; empty if one of their settings no longer exists."""
    if any(removed_settings(about["algo"], about["config"]) for about in stored):
        return ()
    return tuple(Run.from_description({**about, **code, "earlier_code": []}) for about in stored)


def _how_edited(stored: Mapping[str, Any], today: Mapping[str, Any]) -> str:
    """Describe the differences between the code that trained a stored run and the current code; ""
    if there are none."""
    if stored.get("earlier_code"):
        return "several versions of their code trained them"
    if not stored.get("code"):
        return "their code is not recorded"
    changes = (code_changes(stored, today), settings_changed(stored))
    return "; ".join(change for change in changes if change)


def plan(
    study: Study,
    root: Path,
    memory: int,
    on_gpu: bool = False,
    *,
    keep_stale: bool = False,
    known: Sequence[RunRecord] = (),
) -> list[PlannedCohort]:
    """Return the cohorts of a study: those in its folder, followed by new ones.

    Args:
        study: The study.
        root: Folder of the study.
        memory: Largest number of bytes of a cohort.
        on_gpu: Whether the cohorts train on a GPU.
        keep_stale: Keep finished runs trained by another version of the code.
        known: Runs that are already trained, in an archive.
    """
    check_links(root)
    wanted = _without_known(study.runs(), known, keep_stale)
    begun = list(_begun_cohorts(study, root, wanted, keep_stale))
    for cohort in begun:
        for run in cohort.runs:
            wanted.pop(run.identity, None)
    return [*begun, *_new_cohorts(list(wanted.values()), root, memory, on_gpu)]


def _without_known(
    runs: Sequence[Run], known: Sequence[RunRecord], keep_stale: bool
) -> dict[str, Run]:
    """Return the runs that are not in an archive, by identity.

    A run with two names is included once.
    """
    exact = {record.identity for record in known}
    wanted = {key: run for key, run in _by_identity(runs).items() if key not in exact}
    stale = {run.identity for run in _stale_among(wanted.values(), known).values()}
    if stale:
        warnings.warn(
            f"{len(stale)} of {len(runs)} archived runs were trained by another version of the "
            f"code "
            f"{_outcome(keep_stale)}.",
            stacklevel=2,
        )
    if keep_stale:
        return {key: run for key, run in wanted.items() if key not in stale}
    return wanted


def _by_identity(runs: Sequence[Run]) -> dict[str, Run]:
    """Return runs by identity; the first one of equal runs counts."""
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run.identity, run)
    return first


def _stale_among(runs: Iterable[Run], known: Sequence[RunRecord]) -> dict[str, Run]:
    """Return the runs that differ from a known run only in the code that trained it.

    The keys are the identities of the known runs.
    """
    by_seed: dict[tuple[str, str, int], list[RunRecord]] = defaultdict(list)
    for record in known:
        by_seed[record.task["name"], record.algo, record.seed].append(record)
    stale = {}
    for run in runs:
        for record in by_seed[run.task.name, run.algo, run.seed]:
            if record.identity != run.identity and run.matches(record.about):
                stale[record.identity] = run
    return stale


def _known_stale(study: Study, known: Sequence[RunRecord]) -> dict[str, str]:
    """Map the identities of known stale runs to their identities with the current code."""
    if not known:
        return {}
    stale = _stale_among(study.runs(), known)
    return {identity: run.identity for identity, run in stale.items()}


def _outcome(is_kept: bool) -> str:
    if is_kept:
        return "and are kept and marked"
    return "and will be trained again (use --keep-stale to keep them)"


def _begun_cohorts(
    study: Study, root: Path, wanted: Mapping[str, Run], keep_stale: bool
) -> Iterator[PlannedCohort]:
    """Yield the usable cohorts in the folder; cohorts by the current code come first."""
    missing = set(wanted)
    for stored in sorted(stored_cohorts(study, root), key=lambda stored: stored.edited != ""):
        of_use = missing.intersection(run.identity for run in stored.runs)
        if not of_use:
            continue
        cohort = PlannedCohort(stored.folder, stored.runs, cohort_bytes(stored.runs))
        if not stored.edited or _is_kept(cohort, len(of_use), stored.edited, keep_stale):
            missing -= of_use
            yield cohort


def _is_kept(cohort: PlannedCohort, runs: int, edited: str, keep_stale: bool) -> bool:
    """Return whether a cohort from another version of the code is kept, with a warning.

    Args:
        cohort: The cohort.
        runs: How many of its runs no other cohort has.
        edited: How its code differs from the current code.
        keep_stale: Whether the user wants to keep such runs.
    """
    is_kept = keep_stale and cohort.is_done()
    outcome = _outcome(is_kept)
    if keep_stale and not is_kept:
        outcome = "and will be trained again, because not all of them have ended"
    warnings.warn(
        f"{cohort.title}: {runs} of {len(cohort.runs)} runs were trained by another version of "
        f"the code ({edited}) {outcome}.",
        stacklevel=3,
    )
    return is_kept


def _new_cohorts(
    runs: Sequence[Run], root: Path, memory: int, on_gpu: bool
) -> Iterator[PlannedCohort]:
    """Yield new cohorts for runs, each with a folder named after its runs."""
    for together in plan_cohorts(runs, on_gpu):
        for part in split_by_memory(together, memory):
            digest = hashlib.sha256("".join(run.identity for run in part).encode()).hexdigest()[:8]
            name = file_name(f"{part[0].task.name}-{short_name(part[0].algo)}-{digest}")
            yield PlannedCohort(
                _free_folder(root / "experiments" / name), tuple(part), cohort_bytes(part)
            )


def _free_folder(folder: Path) -> Path:
    """Return a folder without an experiment, with this name or with a number appended.

    A folder with this name may contain an experiment with other runs.
    """
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    candidates = itertools.chain([folder], numbered)
    return next(path for path in candidates if not (path / "experiment.json").exists())


def split_by_memory(runs: Sequence[Run], memory: int) -> list[Sequence[Run]]:
    """Split a cohort into parts of about the same size, each of which fits the memory."""
    each = cohort_bytes(runs[:1])
    if each > memory:
        raise UserError(
            f"One run of {runs[0].label} on {runs[0].task.name} needs {each / 1e9:.1f} GB, "
            f"but only {memory / 1e9:.1f} GB are allowed; raise --memory, or set a smaller "
            f"capacity."
        )
    parts = math.ceil(len(runs) / (memory // each))
    per_part = math.ceil(len(runs) / parts)
    return [runs[first : first + per_part] for first in range(0, len(runs), per_part)]


def begin(
    study: Study,
    root: Path,
    cohorts: Sequence[PlannedCohort],
    overrides: Mapping[str, Any],
    known: Sequence[RunRecord] = (),
) -> None:
    """Write the study and its experiments to the folder, ready for training.

    An experiment that has started keeps its options, with a warning.

    Args:
        study: The study.
        root: Folder of the study.
        cohorts: Its cohorts from `plan`.
        overrides: Training options that override those of the study.
        known: Runs that are already trained, in an archive.
    """
    root.mkdir(parents=True, exist_ok=True)
    write_json(root / "study.json", _description(study, root, known))
    for cohort in cohorts:
        options = {**study.options_for(cohort.runs[0].task), **overrides}
        if not (cohort.folder / "experiment.json").exists():
            create(cohort.folder, [cohort.runs], Options(**{**options, "steps": cohort.steps}))
        elif kept := _kept_options(cohort, options, overrides):
            what = "was trained" if cohort.is_done() else "was started"
            warnings.warn(
                f"{cohort.title} {what} with {', '.join(assignments(kept))} and keeps these "
                "values. To train with the new values, choose another folder with --out.",
                stacklevel=2,
            )


def _kept_options(
    cohort: PlannedCohort, options: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options that an experiment keeps although other values are given now.

    An experiment that has not started gets the new values. Options of the computation are not
    compared, because they depend on the machine and on the overrides of the first start.
    """
    measured = {name: value for name, value in options.items() if name not in COMPUTING}
    return choose_again(cohort.folder, {**measured, **overrides})


def _description(study: Study, root: Path, known: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the content of study.json: the runs of the study, including earlier ones."""
    stale = _stale_identities(study, root) | _known_stale(study, known)
    expected = _expected_runs(study)
    previous = _previous_study(study, root)
    if previous is not None:
        stale = stale_runs(previous) | stale
        rows = [*previous["expected_runs"], *expected]
        expected = list({(row["task"], row["label"], row["seed"]): row for row in rows}.values())
    about = {
        "version": VERSION,
        "study": study.name,
        "title": study.title,
        "question": study.question,
        "definition": study.definition,
        "kind": study.kind,
        "baseline": study.baseline,
        "expected_runs": expected,
    }
    current = {row.get("identity") for row in expected}
    stale = {known: instead for known, instead in stale.items() if known not in current}
    return about | ({"stale": stale} if stale else {})


def _previous_study(study: Study, root: Path) -> dict[str, Any] | None:
    """Return the previous content of study.json, or None; refuse the folder of another study."""
    previous = read_study(root)
    if previous is not None and previous["study"] != study.name:
        raise UserError(
            f"{root} belongs to the study {previous['study']!r}; choose another folder with --out."
        )
    return previous


def _expected_runs(study: Study) -> list[dict[str, Any]]:
    """Return the entries of a study's runs in study.json; a cost study has none."""
    if study.kind == "cost":
        return []
    return [
        {
            "run": run.id,
            "task": run.task.name,
            "algo": run.algo,
            "label": run.label,
            "seed": run.seed,
            "identity": run.identity,
        }
        for run in study.runs()
    ]


def _stale_identities(study: Study, root: Path) -> dict[str, str]:
    """Map the identities of stale runs to their identities with the current code."""
    stale: dict[str, str] = {}
    for stored in stored_cohorts(study, root):
        if stored.edited:
            instead = (run.identity for run in stored.runs)
            stale |= dict(itertools.zip_longest(stored.identities, instead, fillvalue=""))
    return stale


def read_study(root: Path) -> dict[str, Any] | None:
    """Return the content of study.json, or None if the file does not exist."""
    path = root / "study.json"
    if not path.exists():
        return None
    return check_kinds(read_study_file(path), {"expected_runs": list}, str(path))


@dataclass(frozen=True)
class CohortPlace:
    """Hold the device for which cohorts are planned."""

    device: torch.device
    memory: int  # largest number of bytes of one cohort's tensors
    here: bool = True  # False for a GPU that this machine lacks

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"


def place_for_cohorts(device: str, memory: int | None) -> CohortPlace:
    """Return the device and its memory for a cohort.

    Args:
        device: Name of the device; this machine may lack it if `memory` is given.
        memory: Largest number of bytes of one cohort's tensors; None for half of the free memory.
    """
    try:
        chosen = backends.pick_device(device)
    except UserError as error:
        if re.fullmatch(r"cuda(:\d+)?", device) is None:
            raise
        if memory is None:
            raise UserError(
                f"The device {device} is not available on this machine, so its free memory is "
                "unknown; set the memory of one cohort in MB with --memory."
            ) from error
        return CohortPlace(torch.device(device), memory, here=False)
    if memory is None:  # the other half is for activations, checkpoints and other work
        memory = backends.free_bytes(chosen) // 2
    return CohortPlace(chosen, memory)
