"""An experiment: the cohorts of one `train` or one study, in one folder, started or taken up
again."""

import contextlib
import dataclasses
import fcntl
import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pac4sac.base.errors import UserError
from pac4sac.base.files import check_links, write_json
from pac4sac.base.stopping import StopReason, StopRequest
from pac4sac.base.trust import allow, allow_named
from pac4sac.runs.metrics import Score, score_run
from pac4sac.runs.reading import VERSION, RunRecord, read_experiment, read_runs
from pac4sac.runs.seeds import seed_list
from pac4sac.tasks import Task, get_task, task_sizes
from pac4sac.training import interleaving
from pac4sac.training.agent_file import agent_checksum, start_from
from pac4sac.training.backends import choose_backend, free_bytes, pick_device
from pac4sac.training.callbacks import Callback, Callbacks, Watchers
from pac4sac.training.learner import cohort_bytes
from pac4sac.training.loop import Cohort
from pac4sac.training.options import Options, make_options
from pac4sac.training.run import (
    Run,
    make_agent,
    make_runs,
    plan_cohorts,
    settings_changed,
    settings_grid,
)


@dataclass(frozen=True)
class Result:
    """What an experiment has come to."""

    folder: Path
    complete: bool  # False where it was interrupted; `resume` goes on
    reason: StopReason | None = None  # of the interruption

    @property
    def runs(self) -> list[RunRecord]:
        """Each with its folder, settings, status and logs."""
        return read_runs(self.folder)

    def scores(self) -> dict[str, Score]:
        """The paper's metrics by run, of those that have them: see `score_run`."""
        return {run.run: score for run in self.runs if (score := score_run(run)) is not None}


def train(
    task: str | Task,
    algo: str = "pac4sac",
    *,
    seeds: int | str | Iterable[int] = (0,),
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    steps: int | None = None,
    out: str | Path | None = None,
    max_minutes: float | None = None,
    callbacks: Watchers = (),
    **options: Any,
) -> Result:
    """Train an algorithm on a task with all seeds in lockstep.

    `settings` are those of the algorithm; a list of values is swept, inside the cohort where it can
    be. `options` are those of `Options`: device, backend, workers, checkpoint_every,
    evaluate_every, stop_when_solved and so on."""
    allow_named(algo, getattr(task, "env_id", task))
    task, watcher, stop = get_task(task, steps), Callbacks(callbacks), StopRequest(max_minutes)
    how = make_options(task.steps, options)
    runs = make_runs(task, algo, preset, seed_list(seeds), settings_grid(settings))
    if how.start_from:
        agent = agent_checksum(how.start_from)
        runs = [run.starting_from(agent) for run in runs]
    cohorts = startable_cohorts(runs, how)
    folder = (
        Path(out)
        if out is not None
        else make_free_folder(Path("experiments"), f"{task.name}-{algo}")
    )
    with created(folder, cohorts, how):
        if idle := [run for run in runs if run.config.warmup >= how.steps]:
            whose = "the warm-up" if len(idle) == len(runs) else f"the warm-up of {idle[0].id}"
            told = (
                f"In {how.steps} steps nothing is learned: {whose} takes {idle[0].config.warmup}."
            )
            warnings.warn(told, stacklevel=2)
        return _continue(folder, watcher, stop, is_ours=True)


def startable_cohorts(runs: Sequence[Run], options: Options) -> list[Sequence[Run]]:
    """Runs of one task by cohort. Whatever cannot work is said before a folder is made for it."""
    device = check_computing(options)
    cohorts: list[Sequence[Run]] = [*plan_cohorts(runs, device.type == "cuda")]
    if device.type == "cuda":
        cohorts = [part for cohort in cohorts for part in interleaving.parts(cohort)]
    for cohort in cohorts:
        needed, free = cohort_bytes(cohort), free_bytes(device)
        if needed > free:
            raise UserError(
                f"Training needs {needed / 1e9:.1f} GB of memory in one cohort of "
                f"{len(cohort)}, and "
                f"{free / 1e9:.1f} GB are free; set a smaller capacity or width, or train "
                "fewer runs at once."
            )
        if options.start_from:
            agent = make_agent(cohort[:1], *task_sizes(cohort[0].task))
            start_from(options.start_from, agent, agent.initial_state([0], torch.device("cpu")))
    return cohorts


def check_computing(options: Options) -> torch.device:
    """The device, where this machine can compute on it as asked."""
    device = pick_device(options.device)
    choose_backend(options.backend, device, options.steps)
    if options.precision == "tf32" and device.type == "cpu":
        raise UserError(
            "The precision tf32 needs a GPU and would change nothing on the CPU; leave it at "
            "float32."
        )
    return device


@contextlib.contextmanager
def created(folder: Path, cohorts: Sequence[Sequence[Run]], options: Options) -> Iterator[None]:
    """Write down the experiment and keep others out of its folder: of many who try at once, one
    comes to train."""
    if folder.exists() and not folder.is_dir():
        raise UserError(
            f"{folder} is a file, and an experiment is a folder; choose another name with --out."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder):
        # A process killed in the first moment leaves an unfinished experiment.json, and nothing
        # that could be lost.
        if any(path.name != "experiment.json.part" for path in folder.iterdir()):
            raise UserError(
                f"{folder} exists and is not empty; resume it, or choose another folder with --out."
            )
        _write(folder, cohorts, options)
        yield


def create(folder: Path, cohorts: Sequence[Sequence[Run]], options: Options) -> None:
    """Write down the experiment; `resume` then trains it."""
    with created(folder, cohorts, options):
        pass


def choose_again(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Have an experiment that was written down trained with these options, if it was not begun. One
    that was begun keeps its own: they are given back where they differ."""
    about = read_experiment(folder)
    kept = {
        name: about["options"].get(name)
        for name, value in given.items()
        if about["options"].get(name) != value
    }
    if kept and [path.name for path in folder.iterdir()] == ["experiment.json"]:
        write_json(folder / "experiment.json", about | {"options": about["options"] | given})
        return {}
    return kept


def resume(
    folder: str | Path,
    *,
    steps: int | None = None,
    max_minutes: float | None = None,
    callbacks: Watchers = (),
    trust: str | Iterable[str] = (),
    keep_stale: bool = False,
) -> Result:
    """Resume an experiment from its last checkpoints, exactly as if it had never stopped.

    Args:
        folder: Experiment folder.
        steps: Extend the experiment to this number of steps; its runs are then runs of that length.
        max_minutes: Stop after this time; a later call continues.
        callbacks: Objects that are informed during training.
        trust: Modules of yours that its algorithms or its environment come from.
        keep_stale: Continue runs that other code has trained so far, and record both versions.
            By default they are refused.

    Returns:
        The experiment, complete or stopped.
    """
    allow(trust)
    stop = StopRequest(max_minutes)
    return _continue(Path(folder), Callbacks(callbacks), stop, steps, keep_stale=keep_stale)


def _continue(
    folder: Path,
    watcher: Callback,
    stop: StopRequest,
    steps: int | None = None,
    *,
    keep_stale: bool = False,
    is_ours: bool = False,
) -> Result:
    options, cohorts = _read(folder)
    changed = steps is not None or keep_stale
    if steps is not None:
        if steps < options.steps:
            raise UserError(
                f"This experiment has {options.steps} steps already; --steps can only extend it."
            )
        options = dataclasses.replace(options, steps=steps)
        cohorts = [[run.extended(steps) for run in cohort] for cohort in cohorts]
    with contextlib.nullcontext() if is_ours else alone_in(folder), stop:
        waiting = [
            Cohort(folder, f"{number:03d}", runs, options, watcher)
            for number, runs in enumerate(cohorts)
        ]

        def started() -> None:
            """Write down what changed once a cohort trains: its checkpoint was usable then."""
            if changed:
                _write(folder, [cohort.runs for cohort in waiting], options)

        for together in interleaving.interleaved_groups(waiting, pick_device(options.device)):
            if not interleaving.train_interleaved(together, stop, watcher, started, keep_stale):
                return Result(folder, complete=False, reason=stop.reason)
    return Result(folder, complete=True)


def _read(folder: Path) -> tuple[Options, list[list[Run]]]:
    check_links(folder)
    if not (folder / "experiment.json").exists():
        raise UserError(f"{folder} holds no experiment to resume; it has no experiment.json.")
    about = read_experiment(folder)
    try:
        options, cohorts = Options(**about["options"]), experiment_runs(about)
    except (KeyError, TypeError) as error:
        raise UserError(f"{folder / 'experiment.json'} is damaged ({error}).") from error
    for run in (run for cohort in about["cohorts"] for run in cohort):
        if changed := settings_changed(run):
            raise UserError(
                f"{folder} cannot be resumed: {changed}. Use the pac4sac that trained it, or "
                "train again into another folder."
            )
    return options, cohorts


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Two processes must not write the same logs. The kernel frees the lock of a process however it
    ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder} is being trained by another process; wait for it, or stop it first."
            ) from None
        yield
    finally:
        os.close(descriptor)


def _write(folder: Path, cohorts: Sequence[Sequence[Run]], options: Options) -> None:
    described = [[run.describe() for run in cohort] for cohort in cohorts]
    about = {"version": VERSION, "options": dataclasses.asdict(options), "cohorts": described}
    write_json(folder / "experiment.json", about)


def experiment_runs(about: Mapping[str, Any]) -> list[list[Run]]:
    """The runs of an experiment by cohort."""
    cohorts = [[Run.from_description(run) for run in cohort] for cohort in about["cohorts"]]
    ids = [run.id for cohort in cohorts for run in cohort]
    if len(set(ids)) < len(ids):
        raise UserError(
            "The experiment has two runs of one name, which would write into one folder; "
            "train them anew."
        )
    return cohorts


def make_free_folder(parent: Path, name: str) -> Path:
    """parent/name, or with a number behind it where that is taken. It is made at once, lest another
    take it."""
    clean = name.replace("/", "-").replace(":", "-").lower()
    candidates = (parent / (clean if k == 1 else f"{clean}-{k}") for k in itertools.count(1))
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        path = next(candidates)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
