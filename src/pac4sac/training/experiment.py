"""Experiments: the cohorts of one `train` call, or one cohort of a study, in a folder."""

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

from pac4sac.agents import Agent, algorithm_name
from pac4sac.base.argument_types import check_types
from pac4sac.base.errors import UserError
from pac4sac.base.files import check_links, read_json, write_json
from pac4sac.base.known_names import takes_known_names
from pac4sac.base.objects import is_in_process, short_name
from pac4sac.base.stopping import StopReason, StopRequest
from pac4sac.base.trust import allow, allow_named
from pac4sac.runs import critic_range
from pac4sac.runs.metrics import Score, score_run
from pac4sac.runs.reading import VERSION, RunRecord, read_experiment, read_runs
from pac4sac.runs.seeds import seed_list
from pac4sac.tasks import Environment, chosen_task, task_sizes
from pac4sac.tasks.pool import check_workers
from pac4sac.training import interleaving
from pac4sac.training.backends import choose_backend, free_bytes, pick_device
from pac4sac.training.callbacks import Callback, Callbacks, Watchers
from pac4sac.training.learner import cohort_bytes
from pac4sac.training.loop import Cohort
from pac4sac.training.options import Options, make_options
from pac4sac.training.retry import RETRIES
from pac4sac.training.retry import retries as failed_again
from pac4sac.training.run import (
    Run,
    make_agent,
    make_runs,
    plan_cohorts,
    settings_changed,
    settings_grid,
)
from pac4sac.training.warm_start import agent_checksum, start_from


@dataclass(frozen=True)
class Result:
    """Hold the result of an experiment: its folder, and whether it is complete.

    Attributes:
        folder: Experiment folder.
        complete: Whether all runs have ended; if not, `resume` continues them.
        reason: Why training was stopped early; None if it was not.

    Example:
        >>> result = pac4sac.resume("experiments/pendulum-v1-sac")
        >>> [run.status for run in result.runs]
        ['finished', 'finished']
    """

    folder: Path
    complete: bool  # False if it was interrupted; `resume` continues it
    reason: StopReason | None = None  # reason of the interruption

    def __repr__(self) -> str:
        state = "complete" if self.complete else f"unfinished, because {self.reason}"
        lines = [f"  {run!r}" for run in self.runs]
        return "\n".join([f"{type(self).__name__}({self.folder}, {state})", *lines])

    @property
    def runs(self) -> list[RunRecord]:
        """Return the runs, each with its folder, settings, status and logs."""
        return read_runs(self.folder)

    def scores(self) -> dict[str, Score]:
        """Return the score of each run by name; docs/metrics.md defines it.

        Returns:
            Scores of the runs whose task has a solve threshold and whose episodes have equal
            length.
        """
        return {run.run: score for run in self.runs if (score := score_run(run)) is not None}


@takes_known_names
def train(
    task: Environment,
    algo: str | type[Agent] = "pac4sac",
    *,
    seeds: int | str | Iterable[int] = (0,),
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    steps: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Any] = (),
    out: str | Path | None = None,
    max_minutes: float | None = None,
    callbacks: Watchers = (),
    **options: Any,
) -> Result:
    """Train an algorithm on a task with all seeds in lockstep.

    Args:
        task: Name of a task, id of an environment, a class or function that makes an environment,
            an environment that `gymnasium.make` made, or a `Task`.
        algo: Name of an algorithm, "module:Class", or a subclass of `Agent`.
        seeds: Seeds, as a number, a list, or text such as "0:5".
        preset: Name of a preset of settings.
        settings: Settings of the algorithm. For a list of values, a run is trained with each, in
            one cohort if possible.
        steps: Environment steps of each run; None for the task's default.
        env_kwargs: Arguments of the environment.
        wrappers: Wrappers around the environment, innermost first: classes, functions, partials of
            them, names, or dictionaries as in `Task`.
        out: New or empty folder; None for a new one in experiments/.
        max_minutes: Time limit in minutes; `resume` continues.
        callbacks: Objects that are informed during training.
        **options: Fields of `Options`, such as device, backend, workers or evaluate_every.

    Returns:
        The experiment, complete or stopped.

    Raises:
        UserError: If an argument is invalid, or the training does not fit into memory.

    Example:
        >>> result = pac4sac.train("Pendulum-v1", "sac", seeds="0:5", steps=30_000)
        >>> result.complete
        True
        >>> import gymnasium
        >>> make = lambda: gymnasium.make("Pendulum-v1", g=3.7)
        >>> result = pac4sac.train(make, "td3", steps=30_000)
    """
    check_types(train, locals(), leave=["task", "algo"])
    algo = algorithm_name(algo)
    allow_named(algo)
    task = chosen_task(task, steps, env_kwargs, wrappers)
    watcher, stop = Callbacks(callbacks), StopRequest(max_minutes)
    how = make_options(task.steps, options)
    runs = make_runs(task, algo, preset, seed_list(seeds), settings_grid(settings))
    if how.start_from:
        agent = agent_checksum(how.start_from)
        runs = [run.starting_from(agent) for run in runs]
    cohorts = startable_cohorts(runs, how)
    warn_of_objects([algo, *task.code_names])
    folder = (
        Path(out)
        if out is not None
        else make_free_folder(Path("experiments"), f"{task.name}-{short_name(algo)}")
    )
    with created(folder, cohorts, how):
        _warn_of_long_warmup(runs, how.steps)
        with stop:
            return _train_cohorts(folder, *_read(folder), watcher, stop)


def warn_of_objects(names: Sequence[str]) -> None:
    """Warn if a name belongs to an object that other programs cannot find.

    Args:
        names: Names of an algorithm, an environment and wrappers.
    """
    if lost := [short_name(name) for name in names if is_in_process(name)]:
        warnings.warn(
            f"Other programs cannot import {' and '.join(dict.fromkeys(lost))}, so they cannot "
            "resume this training, and it is limited to a single process. To avoid both limits, "
            "define these objects at the top level of a module.",
            stacklevel=4,  # the call of train or compare, behind its decorator
        )


def _warn_of_long_warmup(runs: Sequence[Run], steps: int) -> None:
    """Warn if the warm-up of some runs is as long as their training."""
    idle = [run for run in runs if run.config.warmup >= steps]
    if idle:
        whose = "the warm-up" if len(idle) == len(runs) else f"the warm-up of {idle[0].id}"
        warnings.warn(
            f"Nothing is learned in {steps} steps, because {whose} takes {idle[0].config.warmup}.",
            stacklevel=3,
        )


def startable_cohorts(runs: Sequence[Run], options: Options) -> list[Sequence[Run]]:
    """Group the runs of one task into cohorts, after a check that they can be trained here.

    Raises:
        UserError: If the device, backend, memory or the agent to start from is unsuitable.
    """
    device = check_computing(options)
    check_workers(runs[0].task, options.workers)
    cohorts: list[Sequence[Run]] = [*plan_cohorts(runs, device.type == "cuda")]
    if device.type == "cuda":
        cohorts = [part for cohort in cohorts for part in interleaving.parts(cohort)]
    for cohort in cohorts:
        _check_memory(cohort, device)
        if options.start_from:
            agent = make_agent(cohort[:1], *task_sizes(cohort[0].task))
            start_from(options.start_from, agent, agent.initial_state([0], torch.device("cpu")))
    return cohorts


def _check_memory(cohort: Sequence[Run], device: torch.device) -> None:
    """Refuse a cohort that needs more memory than is free."""
    needed, free = cohort_bytes(cohort), free_bytes(device)
    if needed > free:
        raise UserError(
            f"Training a cohort of {len(cohort)} runs needs {needed / 1e9:.1f} GB of memory, but "
            f"only {free / 1e9:.1f} GB are free; set a smaller capacity or width, or train fewer "
            "runs at once."
        )


def check_computing(options: Options) -> torch.device:
    """Return the device after a check that this machine supports it with these options."""
    device = pick_device(options.device)
    choose_backend(options.backend, device, options.steps)
    if options.precision == "tf32" and device.type == "cpu":
        raise UserError("The precision tf32 needs a GPU; use float32 on the CPU.")
    return device


@contextlib.contextmanager
def created(folder: Path, cohorts: Sequence[Sequence[Run]], options: Options) -> Iterator[None]:
    """Write a new experiment to its folder, and lock the folder inside a `with` block."""
    if folder.exists() and not folder.is_dir():
        raise UserError(
            f"{folder} is a file, but an experiment needs a folder; choose another name with --out."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder):
        # A process that was killed at its start leaves only this partial file.
        if any(path.name != "experiment.json.part" for path in folder.iterdir()):
            raise UserError(
                f"{folder} exists and is not empty; resume it, or choose another folder with --out."
            )
        _write(folder, cohorts, options)
        yield


def create(folder: Path, cohorts: Sequence[Sequence[Run]], options: Options) -> None:
    """Write a new experiment to its folder; `resume` then trains it."""
    with created(folder, cohorts, options):
        pass


def choose_again(folder: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Change the options of an experiment that has not started.

    An experiment that has started keeps its options.

    Args:
        folder: Experiment folder.
        given: New values of options.

    Returns:
        The kept options that differ from the given ones, with their values.
    """
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
    retries: int = RETRIES,
) -> Result:
    """Resume an experiment from its last checkpoints.

    On a CPU the result is byte-identical to that of uninterrupted training.

    Args:
        folder: Experiment folder.
        steps: Extend the experiment to this number of steps; its runs then count as runs of this
            length.
        max_minutes: Time limit in minutes; a later call continues.
        callbacks: Objects that are informed during training.
        trust: Custom modules that define its algorithms or its environment.
        keep_stale: Continue runs trained by another version of the code, and record both versions.
            By default such runs are refused.
        retries: Largest number of times that a failed run is trained again, alone and from its last
            checkpoint before the failure.

    Returns:
        The experiment, complete or stopped.

    Raises:
        UserError: If there is no experiment to resume, or another version of the code trained it.

    Example:
        >>> pac4sac.resume("experiments/pendulum-v1-sac").complete
        True
    """
    check_types(resume, locals())
    allow(trust)
    if retries < 0:
        raise UserError(f"retries must be a whole number, 0 or greater, not {retries}.")
    stop, watcher, folder = StopRequest(max_minutes), Callbacks(callbacks), Path(folder)
    options, cohorts = _read(folder)
    if steps is not None:
        options, cohorts = _extended(options, cohorts, steps)
    changes = steps is not None or keep_stale
    with alone_in(folder), stop:
        return _train_cohorts(
            folder,
            options,
            cohorts,
            watcher,
            stop,
            changes=changes,
            keep_stale=keep_stale,
            retries=retries,
        )


def continue_until(folder: Path, watcher: Callback, stop: StopRequest) -> Result:
    """Resume an experiment, with a stop request that the caller has entered."""
    options, cohorts = _read(folder)
    with alone_in(folder):
        return _train_cohorts(folder, options, cohorts, watcher, stop, retries=RETRIES)


def _extended(
    options: Options, cohorts: Sequence[Sequence[Run]], steps: int
) -> tuple[Options, list[list[Run]]]:
    """Return the options and cohorts of an experiment, extended to a larger number of steps."""
    if steps < options.steps:
        raise UserError(
            f"--steps must exceed the {options.steps} steps of this experiment, not {steps}."
        )
    extended = [[run.extended(steps) for run in cohort] for cohort in cohorts]
    return dataclasses.replace(options, steps=steps), extended


def _train_cohorts(
    folder: Path,
    options: Options,
    runs_by_cohort: Sequence[Sequence[Run]],
    watcher: Callback,
    stop: StopRequest,
    *,
    changes: bool = False,
    keep_stale: bool = False,
    retries: int = 0,
) -> Result:
    """Train the cohorts of an experiment from their newest checkpoints.

    Args:
        folder: Experiment folder, locked by this process.
        options: Training options.
        runs_by_cohort: The runs of each cohort.
        watcher: Callback that is informed during training.
        stop: Stop request, entered by the caller.
        changes: Whether experiment.json must be rewritten, because options or runs changed.
        keep_stale: Whether to continue runs trained by another version of the code.
        retries: Largest number of times that a failed run is trained again.
    """
    device = pick_device(options.device)
    for runs in runs_by_cohort:
        _check_memory(runs, device)
    watcher.on_prepare()
    cohorts = [
        Cohort(folder, f"{number:03d}", runs, options, watcher)
        for number, runs in enumerate(runs_by_cohort)
    ]
    again: list[Cohort] = []  # cohorts that train failed runs again

    def write_changes() -> None:
        if changes:
            now = {run.id: run for cohort in (*cohorts, *again) for run in cohort.runs}
            runs = [[now[run.id] for run in cohort.runs] for cohort in cohorts]
            _write(folder, runs, options)

    def retried() -> Iterator[list[Cohort]]:
        for cohort in failed_again(cohorts, retries):
            again.append(cohort)
            yield [cohort]

    groups = interleaving.interleaved_groups(cohorts, device)
    for together in itertools.chain(groups, retried()):
        if not interleaving.train_interleaved(together, stop, watcher, write_changes, keep_stale):
            return Result(folder, complete=False, reason=stop.reason)
    _warn_of_critic_ranges(folder, [run for cohort in cohorts for run in cohort.runs])
    return Result(folder, complete=True)


def _warn_of_critic_ranges(folder: Path, runs: Sequence[Run]) -> None:
    """Warn of runs whose categorical critic had targets outside its range."""
    for run in runs:
        if text := critic_range.warning_of(read_json(folder / "runs" / run.id / "run.json")):
            warnings.warn(text, stacklevel=2)


def _read(folder: Path) -> tuple[Options, list[list[Run]]]:
    """Return the options and the cohorts of an experiment.

    Raises:
        UserError: If there is no experiment, it is damaged, or its algorithm has other settings.
    """
    check_links(folder)
    if not (folder / "experiment.json").exists():
        raise UserError(f"{folder} is not an experiment to resume: it has no experiment.json.")
    about = read_experiment(folder)
    try:
        options, cohorts = Options(**about["options"]), experiment_runs(about)
    except (KeyError, TypeError) as error:
        raise UserError(f"{folder / 'experiment.json'} is damaged ({error}).") from error
    for run in itertools.chain(*about["cohorts"]):
        if changed := settings_changed(run):
            raise UserError(
                f"{folder} cannot be resumed: {changed}. Use the version of pac4sac that trained "
                "it, or train again into another folder."
            )
    return options, cohorts


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock a folder inside a `with` block, so that two processes do not write the same logs.

    The kernel releases the lock when the process ends, even if the process is killed.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder} is in use: another process is training in it. Wait for that process, "
                "or stop it first."
            ) from None
        yield
    finally:
        os.close(descriptor)


def _write(folder: Path, cohorts: Sequence[Sequence[Run]], options: Options) -> None:
    described = [[run.describe() for run in cohort] for cohort in cohorts]
    about = {"version": VERSION, "options": dataclasses.asdict(options), "cohorts": described}
    write_json(folder / "experiment.json", about)


def experiment_runs(about: Mapping[str, Any]) -> list[list[Run]]:
    """Return the runs of an experiment by cohort.

    Args:
        about: Content of experiment.json.
    """
    cohorts = [[Run.from_description(run) for run in cohort] for cohort in about["cohorts"]]
    ids = [run.id for run in itertools.chain(*cohorts)]
    if len(set(ids)) < len(ids):
        raise UserError(
            "The experiment has two runs with the same name, which share a folder; train the "
            "runs again into another folder."
        )
    return cohorts


def make_free_folder(parent: Path, name: str) -> Path:
    """Make a new folder parent/name, with a number appended if it exists, and return it."""
    clean = name.replace("/", "-").replace(":", "-").lower()
    numbered = (f"{clean}-{number}" for number in itertools.count(2))
    candidates = itertools.chain([clean], numbered)
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        path = parent / next(candidates)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
