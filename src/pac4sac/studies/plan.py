"""Planning a study: which runs are there already, and how the others go into cohorts that fit the
memory.

A study folder holds `study.json` and `experiments/`, one ordinary experiment folder for each
planned cohort. A run is identified by its task, settings, seed and the code that trains it, so that
nothing is trained twice, also after a study was extended by seeds or variants, and what was trained
by other code than today's is trained again."""

import hashlib
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from pac4sac.agents import removed_settings
from pac4sac.base.errors import UserError
from pac4sac.base.files import check_kinds, check_links, write_json
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
from pac4sac.training.run import Run, plan_cohorts, settings_changed

VERSION = 1


@dataclass(frozen=True)
class PlannedCohort:
    """A cohort of a study, in an experiment folder of its own."""

    folder: Path
    runs: tuple[Run, ...]
    bytes: int

    @property
    def title(self) -> str:
        labels = list(dict.fromkeys(run.label for run in self.runs))
        shown = ", ".join(labels[:3]) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")
        return f"{self.runs[0].task.name}: {shown}"

    @property
    def steps(self) -> int:
        return self.runs[0].task.steps

    @property
    def simulating(self) -> float:
        """Seconds that one core would need for its simulators."""
        return len(self.runs) * self.steps * simulator_seconds(self.runs[0].task)

    @property
    def duration(self) -> float:
        """Seconds that its simulators need with a core for each."""
        return self.steps * simulator_seconds(self.runs[0].task)

    def done(self) -> int:
        """Runs that have come to their end."""
        return sum(status in ENDED for status in self.statuses())

    def statuses(self) -> list[str]:
        folders = [self.folder / "runs" / run.id for run in self.runs]
        return [read_run(f).status if (f / "run.json").exists() else "waiting" for f in folders]


@dataclass(frozen=True)
class StoredCohort:
    """What an experiment folder of a study holds, and whether the code of today would train the
    same."""

    folder: Path
    identities: tuple[str, ...]  # of its runs as they were trained
    runs: tuple[Run, ...]  # as today's code would train them
    edited: str  # in words, how the code of today differs; nothing where it does not


def stored_cohorts(study: Study, root: Path) -> Iterator[StoredCohort]:
    """Yield the cohorts in a study folder whose algorithm and environment the study names.

    No other code is imported because data name it.
    """
    today = {(run.algo, run.task.env_id): run.trained_by for run in study.runs()}
    for path in sorted(root.glob("experiments/*/experiment.json")):
        stored = [about for cohort in read_experiment(path.parent)["cohorts"] for about in cohort]
        known = [today.get((about["algo"], about["task"]["env_id"])) for about in stored]
        code = next((code for code in known if code), None)  # a cohort has one class and one task
        if code is not None:
            identities, edited = tuple(map(identity, stored)), _how_edited(stored[0], code)
            yield StoredCohort(path.parent, identities, _by_today(stored, code), edited)


def _by_today(stored: Sequence[Mapping[str, Any]], code: Mapping[str, Any]) -> tuple[Run, ...]:
    """Return stored runs as today's code would train them; none if it lacks a setting of theirs."""
    if any(removed_settings(about["algo"], about["config"]) for about in stored):
        return ()
    return tuple(Run.from_description({**about, **code, "earlier_code": []}) for about in stored)


def _how_edited(stored: Mapping[str, Any], today: Mapping[str, Any]) -> str:
    """Describe how the code that trained a stored run differs from today's, or return nothing."""
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
    """Return the cohorts of a study: those begun in its folder, then those to begin.

    Args:
        study: The study.
        root: Its folder.
        memory: Bytes that a cohort may take.
        on_gpu: Whether the cohorts train on a GPU.
        keep_stale: Keep finished runs that other code than today's has trained.
        known: Runs that are trained elsewhere, in an archive.
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
    """Return the runs that are not trained elsewhere, by identity.

    The same run under a second name is there once.
    """
    exact = {record.identity for record in known}
    wanted: dict[str, Run] = {}
    for run in runs:
        if run.identity not in exact:
            wanted.setdefault(run.identity, run)
    by_seed: dict[tuple[str, str, int], list[RunRecord]] = {}
    for record in known:
        by_seed.setdefault((record.task["name"], record.algo, record.seed), []).append(record)
    stale = [
        run
        for run in wanted.values()
        if any(
            run.matches(record.about)
            for record in by_seed.get((run.task.name, run.algo, run.seed), ())
        )
    ]
    if stale:
        warnings.warn(
            f"{len(stale)} of {len(runs)} runs were trained by other code than today's "
            f"{_outcome(keep_stale)}.",
            stacklevel=2,
        )
    if keep_stale:
        for run in stale:
            del wanted[run.identity]
    return wanted


def _outcome(is_kept: bool) -> str:
    if is_kept:
        return "and are kept, and marked"
    return "and are to be trained again, unless --keep-stale keeps them"


def _begun_cohorts(
    study: Study, root: Path, wanted: Mapping[str, Run], keep_stale: bool
) -> Iterator[PlannedCohort]:
    """Yield the cohorts in the folder that count, those by today's code first."""
    missing = set(wanted)
    for stored in sorted(stored_cohorts(study, root), key=lambda stored: stored.edited != ""):
        if missing.isdisjoint(run.identity for run in stored.runs):
            continue
        cohort = PlannedCohort(stored.folder, stored.runs, cohort_bytes(stored.runs))
        is_kept = not stored.edited or (keep_stale and cohort.done() == len(cohort.runs))
        if stored.edited:
            warnings.warn(
                f"{cohort.title}: {len(cohort.runs)} runs were trained by other code than "
                f"today's ({stored.edited}) {_outcome(is_kept)}.",
                stacklevel=2,
            )
        if is_kept:
            missing -= {run.identity for run in stored.runs}
            yield cohort


def _new_cohorts(
    runs: Sequence[Run], root: Path, memory: int, on_gpu: bool
) -> Iterator[PlannedCohort]:
    for together in plan_cohorts(runs, on_gpu):
        for part in split_by_memory(together, memory):
            digest = hashlib.sha256("".join(run.identity for run in part).encode()).hexdigest()[:8]
            name = file_name(f"{part[0].task.name}-{part[0].algo}-{digest}")
            yield PlannedCohort(root / "experiments" / name, tuple(part), cohort_bytes(part))


def split_by_memory(runs: Sequence[Run], memory: int) -> list[Sequence[Run]]:
    each = cohort_bytes(runs[:1])
    if each > memory:
        raise UserError(
            f"One run of {runs[0].label} on {runs[0].task.name} needs {each / 1e9:.1f} GB, "
            f"and {memory / 1e9:.1f} GB "
            "are allowed; allow more with --memory, or set a smaller capacity."
        )
    parts = math.ceil(len(runs) / (memory // each))
    per_part = math.ceil(len(runs) / parts)  # parts of about the same size
    return [runs[first : first + per_part] for first in range(0, len(runs), per_part)]


def begin(
    study: Study, root: Path, cohorts: Sequence[PlannedCohort], overrides: Mapping[str, Any]
) -> None:
    """Write the study and its experiments down; anyone who has the folder can then train them."""
    root.mkdir(parents=True, exist_ok=True)
    write_json(root / "study.json", _description(study, root))
    for cohort in cohorts:
        if not (cohort.folder / "experiment.json").exists():
            options = {**study.options_for(cohort.runs[0].task), **overrides}
            create(cohort.folder, [cohort.runs], Options(**{**options, "steps": cohort.steps}))
        elif kept := choose_again(cohort.folder, overrides):
            own, is_done = ", ".join(assignments(kept)), cohort.done() == len(cohort.runs)
            what = "was trained" if is_done else "was begun"
            warnings.warn(
                f"{cohort.title} {what} with {own} and keeps that; the new values are ignored. "
                "Choose another folder with --out to train with them.",
                stacklevel=2,
            )


def _description(study: Study, root: Path) -> dict[str, Any]:
    """Return what study.json is to say: what is asked, and what was asked there before."""
    runs = study.runs() if study.kind != "cost" else []  # which times its runs and keeps none
    expected = [
        {
            "run": run.id,
            "task": run.task.name,
            "algo": run.algo,
            "label": run.label,
            "seed": run.seed,
            "identity": run.identity,
        }
        for run in runs
    ]
    stale = _stale_identities(study, root)
    if (previous := read_study(root)) is not None:
        if previous["study"] != study.name:
            raise UserError(
                f"{root} holds the study {previous['study']!r}; choose another folder with --out."
            )
        rows, stale = [*previous["expected_runs"], *expected], stale_runs(previous) | stale
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


def _stale_identities(study: Study, root: Path) -> dict[str, str]:
    """Return runs by other code, each with the identity that it would have by today's."""
    stale = dict[str, str]()
    for stored in stored_cohorts(study, root):
        if stored.edited:
            instead = (run.identity for run in stored.runs)
            stale |= dict(zip_longest(stored.identities, instead, fillvalue=""))
    return stale


def read_study(root: Path) -> dict[str, Any] | None:
    path = root / "study.json"
    if not path.exists():
        return None
    return check_kinds(read_study_file(path), {"expected_runs": list}, str(path))


@dataclass(frozen=True)
class CohortPlace:
    """Where cohorts are to be trained, for which they are cut."""

    device: torch.device
    memory: int  # bytes that the tensors of one cohort may take
    here: bool = True  # False: a GPU that this machine lacks

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"


def place_for_cohorts(device: str, memory: int | None) -> CohortPlace:
    """A GPU need not be in this machine where it is told how much memory a cohort may take
    there."""
    try:
        chosen = backends.pick_device(device)
    except UserError as error:
        if re.fullmatch(r"cuda(:\d+)?", device) is None:
            raise
        if memory is None:
            raise UserError(
                f"This machine has no {device} whose free memory could be asked for; plan for "
                "one with --memory, "
                "the MB that one cohort may take there."
            ) from error
        return CohortPlace(torch.device(device), memory, here=False)
    # Half of what is free now: the rest is for activations' peaks, checkpoints and other work.
    return CohortPlace(chosen, backends.free_bytes(chosen) // 2 if memory is None else memory)
