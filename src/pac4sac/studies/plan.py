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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from pac4sac.base.errors import UserError
from pac4sac.base.files import check_kinds, check_links, write_json
from pac4sac.base.text import assignments, file_name
from pac4sac.runs.archive import read_study_file, stale_runs
from pac4sac.runs.identity import identity
from pac4sac.runs.reading import read_experiment, read_run
from pac4sac.runs.run import Run, plan_cohorts
from pac4sac.runs.status import ENDED
from pac4sac.studies.definition import Study
from pac4sac.tasks import simulator_seconds
from pac4sac.training import backends
from pac4sac.training.experiment import choose_again, create
from pac4sac.training.learner import cohort_bytes
from pac4sac.training.options import Options

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
    runs: tuple[Run, ...]  # by the code of today; none where that lacks a setting of theirs
    edited: str  # in words, how the code of today differs; nothing where it does not


def stored_cohorts(study: Study, root: Path) -> Iterator[StoredCohort]:
    """Of the algorithms and environments that the study names: no other code is imported because
    data name it."""
    today = {
        (run.algo, run.task.env_id): {"revision": run.revision, "code": run.code}
        for run in study.runs()
    }
    for path in sorted(root.glob("experiments/*/experiment.json")):
        stored = [about for cohort in read_experiment(path.parent)["cohorts"] for about in cohort]
        known = [today.get((about["algo"], about["task"]["env_id"])) for about in stored]
        # of all: a cohort has one class and one environment
        code = next((code for code in known if code), None)
        if code is not None:
            trained_by = {
                "revision": stored[0].get("revision", 1),
                "code": stored[0].get("code", {}),
            }
            edited, runs = "" if trained_by == code else "their code is not recorded", list[Run]()
            try:
                runs = [Run.from_description(about | code) for about in stored]
                edited = replace(runs[0], **trained_by).edited() or edited
            except TypeError:
                edited = "their algorithm lacks a setting that it had"
            yield StoredCohort(path.parent, tuple(map(identity, stored)), tuple(runs), edited)


def plan(
    study: Study,
    root: Path,
    memory: int,
    on_gpu: bool = False,
    *,
    keep_stale: bool = False,
    known: Collection[str] = (),
) -> list[PlannedCohort]:
    """The cohorts of a study in a folder: those begun there, then those to be begun, each within
    `memory` bytes. What was begun by other code than today's counts only if it came to its end and
    is to be kept. Runs whose identity is `known` are trained elsewhere."""
    cohorts = []
    check_links(root)
    # Each identity once: the same run under a second name is not trained again.
    each = {run.identity: run for run in reversed(study.runs()) if run.identity not in known}
    wanted = dict(reversed(each.items()))
    for stored in sorted(stored_cohorts(study, root), key=lambda stored: stored.edited != ""):
        if any(run.identity in wanted for run in stored.runs):
            cohort = PlannedCohort(stored.folder, stored.runs, cohort_bytes(stored.runs))
            if stored.edited:
                kept = keep_stale and cohort.done() == len(cohort.runs)
                outcome = (
                    "are kept, and marked"
                    if kept
                    else "are to be trained again, unless --keep-stale keeps them"
                )
                runs = (
                    f"{cohort.title}: {len(cohort.runs)} runs were trained by other code than "
                    "today's"
                )
                warnings.warn(f"{runs} ({stored.edited}) and {outcome}.", stacklevel=2)
                if not kept:
                    continue
            cohorts.append(cohort)
            for run in stored.runs:
                wanted.pop(run.identity, None)
    for together in plan_cohorts(list(wanted.values()), on_gpu):
        for part in split_by_memory(together, memory):
            digest = hashlib.sha256("".join(run.identity for run in part).encode()).hexdigest()[:8]
            name = file_name(f"{part[0].task.name}-{part[0].algo}-{digest}")
            cohorts.append(
                PlannedCohort(root / "experiments" / name, tuple(part), cohort_bytes(part))
            )
    return cohorts


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
    """Write the study and its experiments down, so that they can be trained by anyone who has the
    folder."""
    root.mkdir(parents=True, exist_ok=True)
    runs = study.runs() if study.kind != "cost" else []  # which times its runs and keeps none
    names = ("run", "task", "algo", "label", "seed", "identity")
    values = [(run.id, run.task.name, run.algo, run.label, run.seed, run.identity) for run in runs]
    expected = [dict(zip(names, row, strict=True)) for row in values]
    # Runs by their identity, each with that of the run which takes its place.
    stale = dict[str, str]()
    for stored in stored_cohorts(study, root):
        if stored.edited:
            stale |= dict(
                zip_longest(stored.identities, (run.identity for run in stored.runs), fillvalue="")
            )
    if (previous := read_study(root)) is not None:
        if previous["study"] != study.name:
            raise UserError(
                f"{root} holds the study {previous['study']!r}; choose another folder with --out."
            )
        # What was asked for before, with more seeds or tasks perhaps, is asked for still.
        rows, stale = [*previous["expected_runs"], *expected], stale_runs(previous) | stale
        expected = list({(row["task"], row["label"], row["seed"]): row for row in rows}.values())
    about = {
        "version": VERSION,
        "study": study.name,
        "title": study.title,
        "question": study.question,
    }
    about["definition"] = study.definition
    about |= {"kind": study.kind, "baseline": study.baseline, "expected_runs": expected}
    current = {row.get("identity") for row in expected}
    if stale := {known: instead for known, instead in stale.items() if known not in current}:
        about["stale"] = stale
    write_json(root / "study.json", about)
    for cohort in cohorts:
        if not (cohort.folder / "experiment.json").exists():
            options = Options(
                **{**study.options_for(cohort.runs[0].task), **overrides, "steps": cohort.steps}
            )
            create(cohort.folder, [cohort.runs], options)
        elif cohort.done() < len(cohort.runs) and (kept := choose_again(cohort.folder, overrides)):
            own = ", ".join(assignments(kept))
            warnings.warn(f"{cohort.title} was begun with {own} and goes on with it.", stacklevel=2)


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
