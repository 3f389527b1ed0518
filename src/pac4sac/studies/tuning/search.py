"""The search: ask Optuna for trials, train them in batches, prune them at rungs, and report their
values to Optuna.

Optuna's storage contains the trials. The folder of a batch contains its runs, and is locked while a
worker trains it. If the worker is killed, the lock is released, and the next worker continues the
batch.
"""

import contextlib
import fcntl
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from pac4sac.agents import make_config
from pac4sac.base.errors import UserError
from pac4sac.base.files import read_json
from pac4sac.base.grouping import group_by
from pac4sac.base.stopping import StopReason
from pac4sac.runs.reading import RunRecord, read_runs
from pac4sac.studies.definition import Study, StudyVariant
from pac4sac.studies.run import run_study
from pac4sac.studies.tuning.objective import BrokenOff, ScoreReference, SearchObjective
from pac4sac.studies.tuning.sampling import SCORES, make_pruner, make_sampler
from pac4sac.studies.tuning.space import Space
from pac4sac.studies.watcher import Watcher
from pac4sac.tasks import Task
from pac4sac.training.continuation import continue_apart

FOLDER, VALUES, OUTCOME, PASSED = "folder", "values", "outcome", "passed"  # attributes of a trial
LOST = 60  # seconds after which a trial without a folder counts as abandoned
DEFAULTS = "defaults"
ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


@dataclass(frozen=True)
class Plan:
    """Hold the definition of a search, which is the same for all its workers."""

    objective: SearchObjective
    algo: str
    preset: str
    settings: Mapping[str, Any]  # common settings of all trials
    space: Space
    seeds: tuple[int, ...]
    rungs: tuple[float, ...]  # fractions of the steps at which trials are compared
    options: Mapping[str, Any]

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self.objective.tasks

    @property
    def stages(self) -> tuple[float, ...]:
        """Return the fractions of the steps at which training stops; the last one is 1."""
        return (*self.rungs, 1.0)

    def facts(self) -> dict[str, Any]:
        """Return the facts that must agree when a search continues."""
        return {
            "tasks": {task.name: task.steps for task in self.tasks},
            "algo": self.algo,
            "preset": self.preset,
            "settings": dict(self.settings),
            "space": [str(parameter) for parameter in self.space],
            "seeds": list(self.seeds),
            "rungs": list(self.rungs),
            "objective": self.objective.name,
        }

    def variant(self, name: str, chosen: Mapping[str, Any]) -> StudyVariant:
        """Return the variant with chosen settings."""
        return StudyVariant(name, self.algo, self.preset, {**self.settings, **chosen})

    def study(self, variants: Sequence[StudyVariant], part: float) -> Study:
        """Return the study that trains variants to a fraction of the steps."""
        tasks = tuple(task.changed({"steps": steps_at(task, part)}) for task in self.tasks)
        names = ", ".join(task.name for task in self.tasks)
        title = f"Search: settings of {self.algo} on {names}"
        options = dict(self.options)
        return Study(
            "tune", title, tasks, tuple(variants), self.seeds, "", "search", options=options
        )

    def defaults(self) -> dict[str, Any] | None:
        """Return the default values of the searched settings, or None if the space lacks one."""
        config = make_config(self.algo, self.preset, dict(self.settings))
        values = {each.name: getattr(config, each.name) for each in self.space}
        return values if all(values[each.name] in each for each in self.space) else None


def steps_at(task: Task, part: float) -> int:
    """Return the number of steps at a fraction of the budget of a task."""
    return max(1, round(task.steps * part))


class SearchStopped(Exception):
    """Signal that a search was interrupted; the same call continues it."""

    def __init__(self, reason: StopReason | None) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Search:
    """Train the trials of a search up to a wanted number."""

    def __init__(
        self,
        plan: Plan,
        storage: optuna.storages.BaseStorage,
        root: Path,
        watcher: Watcher,
        *,
        sampler: str,
        pruner: str,
        sampler_seed: int,
        at_once: int,
        max_minutes: float | None,
        launching: Mapping[str, Any],
    ) -> None:
        """Begin or continue the search in a storage.

        Args:
            plan: Definition of the search.
            storage: Storage of Optuna.
            root: Folder of the search.
            watcher: Object that is informed of the progress of training.
            sampler: Name of the sampler.
            pruner: Name of the pruner.
            sampler_seed: Seed of the sampler.
            at_once: Number of trials of a batch.
            max_minutes: Time limit in minutes; a later call continues.
            launching: Further arguments of `run_study`.

        Raises:
            UserError: If the storage holds another search of the same name.
        """
        self.plan, self.root, self.watcher = plan, root, watcher
        self.sampler, self.sampler_seed, self.at_once = sampler, sampler_seed, at_once
        self.launching, self.began, self.max_minutes = launching, time.monotonic(), max_minutes
        name = "-".join(["pac4sac", plan.algo, *(task.name for task in plan.tasks)])
        directions = optuna.study.StudyDirection
        lower = plan.objective.lower_is_better
        self.study = optuna.create_study(
            storage=storage,
            pruner=make_pruner(pruner),
            study_name=name,
            direction=directions.MINIMIZE if lower else directions.MAXIMIZE,
            load_if_exists=True,
        )
        self.distributions = {each.name: each.distribution() for each in plan.space}
        self.references: dict[float, dict[str, ScoreReference]] = {}

    def run(self, trials: int) -> bool:
        """Train trials until the storage has the wanted number; return whether all have ended.

        Raises:
            SearchStopped: If a stop was requested.
        """
        with self._alone():
            self._check_facts()
        self._train_defaults()
        while True:
            with contextlib.ExitStack() as working:
                with self._alone():
                    batch, folder = self._next_batch(trials)
                    if batch:
                        working.enter_context(locked(folder))
                if not batch:
                    return not self.trials(TrialState.RUNNING)
                self._train(batch, folder)

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        """Return the trials in some states."""
        found: list[FrozenTrial] = self.study.get_trials(deepcopy=False, states=states)
        return found

    def train(self, study: Study, place: Path) -> None:
        """Train the runs of a study in the time that is left.

        Raises:
            SearchStopped: If a stop was requested, or the time is up.
        """
        left = None
        if self.max_minutes is not None:
            left = max(1e-3, self.max_minutes - (time.monotonic() - self.began) / 60)
        result = run_study(study, place, self.watcher, max_minutes=left, **self.launching)
        if not result.complete:
            raise SearchStopped(result.reason)

    # --- choice of the next trials

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Prevent other workers of this folder from choosing trials during a `with` block."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _check_facts(self) -> None:
        """Store the definition of the search, or refuse to continue a different one."""
        facts = json.loads(json.dumps(self.plan.facts()))
        stored = self.study.user_attrs.get("facts")
        if stored is None:
            self.study.set_user_attr("facts", facts)
            if (defaults := self.plan.defaults()) is not None:
                self.study.enqueue_trial(defaults)
            return
        if differing := [name for name in facts if facts[name] != stored.get(name)]:
            name = differing[0]
            raise UserError(
                f"The search in {self.root} was started with {name}={stored.get(name)}, not "
                f"{facts[name]}. Use the same value, or choose another folder with --out, and "
                "another --storage."
            )

    def _next_batch(self, most: int) -> tuple[list[Trial], Path]:
        """Return a batch of a killed worker, or a new batch; the batch is empty if no trial is
        left."""
        self._fail_lost_trials()
        for place, left in self._left_batches().items():
            return [Trial(self.study, trial._trial_id) for trial in left], Path(place)
        batch: list[Trial] = []
        while len(batch) < self.at_once and len(self.trials(*ENDED, TrialState.RUNNING)) < most:
            if (trial := self._ask()) is not None:
                batch.append(trial)
        if not batch:
            return [], self.root
        folder = self.root / "trials" / f"{batch[0].number:04d}-{batch[-1].number:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        for trial in batch:
            trial.set_user_attr(FOLDER, str(folder.resolve()))
        return batch, folder

    def _left_batches(self) -> dict[str, list[FrozenTrial]]:
        """Return the abandoned trials of this folder, by the folder of their batch."""
        running = self.trials(TrialState.RUNNING)
        placed = [trial for trial in running if FOLDER in trial.user_attrs]
        batches = group_by(placed, key=lambda trial: str(trial.user_attrs[FOLDER]))
        inside = str((self.root / "trials").resolve())
        return {
            folder: trials
            for folder, trials in batches.items()
            if folder.startswith(inside) and Path(folder).is_dir() and not is_locked(Path(folder))
        }

    def _fail_lost_trials(self) -> None:
        """Mark trials as failed if their worker died before it created their folder."""
        for trial in self.trials(TrialState.RUNNING):
            age = datetime.now() - (trial.datetime_start or datetime.now())
            if FOLDER not in trial.user_attrs and age.total_seconds() > LOST:
                self.study.tell(trial.number, state=TrialState.FAIL)

    def _ask(self) -> Trial | None:
        """Return a new trial. Return None if its settings repeat those of an ended trial; it then
        gets the value of that trial."""
        number = len(self.study.get_trials(deepcopy=False))
        self.study.sampler = make_sampler(
            self.sampler, self.plan.space, self.sampler_seed * 100_003 + number
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                trial = self.study.ask(self.distributions)
        except (ValueError, ImportError, NotImplementedError) as error:
            raise UserError(f"{self.sampler} cannot search this space: {error}.") from error
        for other in self.trials(TrialState.COMPLETE):
            if other.params == trial.params:
                trial.set_user_attr(VALUES, other.user_attrs.get(VALUES))
                trial.set_user_attr(OUTCOME, f"the settings of trial {other.number}")
                self.study.tell(trial, other.value)
                return None
        return trial

    # --- training

    def _train_defaults(self) -> None:
        """Train the default settings, with which the scores of several tasks are normalised."""
        if len(self.plan.tasks) == 1:
            return
        before: Path | None = None
        variant = self.plan.variant(DEFAULTS, {})
        for part in self.plan.stages:
            folder = self.root / DEFAULTS / f"{part:g}"
            study = self.plan.study([variant], part)
            records = self._train_stage(study, folder, before)[DEFAULTS]
            self.references[part] = {
                task.name: self.plan.objective.reference(records, task) for task in study.tasks
            }
            before = folder

    def _train(self, batch: Sequence[Trial], folder: Path) -> None:
        """Train a batch stage by stage, with the trials that remain at each rung."""
        left = {f"trial-{trial.number:04d}": trial for trial in batch if self._is_allowed(trial)}
        before: Path | None = None
        for part in self.plan.stages:
            if left:
                left = self._train_to(part, left, folder, before)
            before = folder / f"{part:g}"

    def _train_to(
        self, part: float, trials: Mapping[str, Trial], folder: Path, before: Path | None
    ) -> dict[str, Trial]:
        """Train trials to a fraction of the steps; return those that continue.

        Args:
            part: The fraction.
            trials: The trials by the name of their variant.
            folder: Folder of the batch.
            before: Folder of the previous stage; None for the first stage.
        """
        variants = [self.plan.variant(name, trial.params) for name, trial in trials.items()]
        study = self.plan.study(variants, part)
        records = self._train_stage(study, folder / f"{part:g}", before)
        whole = {
            name: trial for name, trial in trials.items() if self._note(trial, records[name], part)
        }
        if part == 1:
            return {}
        return {name: trial for name, trial in whole.items() if self._goes_on(trial, part)}

    def _is_allowed(self, trial: Trial) -> bool:
        """Return whether settings are compatible with each other; a trial with incompatible
        settings counts as failed."""
        try:
            make_config(self.plan.algo, self.plan.preset, {**self.plan.settings, **trial.params})
        except UserError as error:
            trial.set_user_attr(OUTCOME, str(error))
            self.study.tell(trial, state=TrialState.FAIL)
            return False
        return True

    def _train_stage(
        self, study: Study, place: Path, before: Path | None
    ) -> dict[str, list[RunRecord]]:
        """Train variants to the steps of a stage, from the end of the previous one.

        Returns:
            The runs of each variant.

        Raises:
            SearchStopped: If a stop was requested.
        """
        labels = {variant.name for variant in study.variants}
        if before is not None:
            steps = {task.name: task.steps for task in study.tasks}
            for source in sorted(before.glob("experiments/*/experiment.json")):
                target = place / "experiments" / source.parent.name
                task = read_json(source)["cohorts"][0][0]["task"]["name"]
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    continue_apart(source.parent, labels, target, steps[task])
        self.train(study, place)
        by_label = group_by(read_runs(place), key=lambda run: run.label)
        return {label: by_label[label] for label in labels}

    def _note(self, trial: Trial, runs: Sequence[RunRecord], part: float) -> bool:
        """Store the values of a trial; return whether all of its runs have a result.

        A trial without all results counts as pruned, which is worse than any other trial.
        """
        objective = self.plan.objective
        try:
            values = objective.values(runs)
        except BrokenOff as error:
            trial.set_user_attr(OUTCOME, str(error))
            self.study.tell(trial, state=TrialState.PRUNED)
            return False
        scores = objective.scores(values, self.references.get(part, {}))
        trial.set_user_attr(VALUES, values)
        if part == 1:
            trial.set_user_attr(OUTCOME, "complete")
            self.study.tell(trial, objective.total(scores))
            return True
        step = steps_at(self.plan.tasks[0], part)
        if f"{SCORES}{step}" not in trial.user_attrs:
            trial.set_user_attr(f"{SCORES}{step}", scores)
            trial.report(objective.total(scores), step)
        return True

    def _goes_on(self, trial: Trial, part: float) -> bool:
        """Return whether a trial continues after a rung; each decision is made only once."""
        if trial.user_attrs.get(PASSED, 0) >= part:
            return True
        if trial.should_prune():
            step = steps_at(self.plan.tasks[0], part)
            trial.set_user_attr(OUTCOME, f"pruned at step {step}")
            self.study.tell(trial, state=TrialState.PRUNED)
            return False
        trial.set_user_attr(PASSED, part)
        return True


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder of a batch. The kernel releases the lock when the process ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Return whether a worker trains the batch of a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
