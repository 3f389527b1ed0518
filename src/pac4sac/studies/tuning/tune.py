"""`pac4sac.tune`: search settings, train the best settings again with fresh seeds, and report on
both."""

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from pac4sac.base.argument_types import check_types
from pac4sac.base.errors import UserError
from pac4sac.base.files import as_json, write_json
from pac4sac.base.stopping import StopReason
from pac4sac.base.text import file_name
from pac4sac.base.trust import allow, allow_named
from pac4sac.report.commands import train_command
from pac4sac.report.tuning import about_search
from pac4sac.runs.reading import RunRecord, read_runs
from pac4sac.runs.seeds import seed_list, seeds_text
from pac4sac.runs.tuning import SUMMARY, VERSION
from pac4sac.studies.definition import Study
from pac4sac.studies.ray.cluster import cluster_address
from pac4sac.studies.run import check_engine_options
from pac4sac.studies.tuning.objective import BrokenOff, SearchObjective
from pac4sac.studies.tuning.sampling import make_pruner, make_sampler
from pac4sac.studies.tuning.search import OUTCOME, VALUES, Plan, Search, SearchStopped, locked
from pac4sac.studies.tuning.space import make_space
from pac4sac.studies.tuning.storage import open_storage
from pac4sac.studies.watcher import Watcher
from pac4sac.tasks import Task, get_task
from pac4sac.training.experiment import check_computing
from pac4sac.training.options import make_options
from pac4sac.training.run import make_runs, settings_grid

if TYPE_CHECKING:
    from pac4sac.report.report import WrittenReport

JOURNAL = "optuna.log"
CONFIRM = "confirm"
TUNED, DEFAULT = "tuned", "default"
FEWEST_FOR_IMPORTANCE = 4  # trials with a value


@dataclass(frozen=True)
class Tuning:
    """Hold the result of `tune`; printing it shows the output of `pac4sac tune`.

    Attributes:
        folder: Folder of the search.
        complete: Whether all trials and the final training have ended; if not, the same call
            continues.
        reason: Why it is not complete; None if it is.
        settings: The best settings found; empty if no trial has a result.
        summary: Content of tune.json: trials, scores, importance of the settings.
        page: The report.

    Example:
        >>> found = pac4sac.tune("Pendulum-v1", "sac", space={"lr": "1e-4:1e-2:log"}, trials=20)
        >>> list(found.settings)
        ['lr']
    """

    folder: Path
    complete: bool
    reason: StopReason | None
    settings: dict[str, Any]
    summary: dict[str, Any] = field(repr=False)
    page: Path

    @property
    def command(self) -> str:
        """Return the shell command that trains the best settings again."""
        return str(self.summary.get("command", ""))

    def __str__(self) -> str:
        sentences = about_search(self.summary)
        if not self.complete:
            reason = f", because {self.reason}" if self.reason else ""
            sentences.append(f"The search is unfinished{reason}; the same call continues it.")
        return "\n".join(sentences)


def tune(
    task: str | Task | Sequence[str | Task],
    algo: str = "pac4sac",
    *,
    space: Mapping[str, Any],
    trials: int = 50,
    seeds: int | str | Iterable[int] = range(1000, 1005),
    fresh_seeds: int | str | Iterable[int] = range(3000, 3010),
    objective: str = "final",
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    steps: int | None = None,
    sampler: str = "TPE",
    pruner: str = "seeds",
    rungs: Sequence[float] = (0.25, 0.5),
    sampler_seed: int = 0,
    at_once: int = 8,
    storage: str | None = None,
    out: str | Path | None = None,
    parallel: int | None = None,
    memory: int | None = None,
    max_minutes: float | None = None,
    engine: str = "local",
    address: str | None = None,
    watcher: Watcher | None = None,
    trust: str | Iterable[str] = (),
    **options: Any,
) -> Tuning:
    """Search for settings of an algorithm, with several seeds per trial.

    Trials that differ only in per-run settings train in one cohort. At the end, the best settings
    and the defaults are trained with fresh seeds, because the best of many trials also benefits
    from chance. The same call continues an interrupted search, and several calls with the same
    storage and folder share its trials.

    Args:
        task: Name of a task, a `Task`, or a list of these. Scores on several tasks are normalised:
            0 is a random policy, 1 the default settings.
        algo: Name of the algorithm.
        space: For each searched setting a string such as "1e-5:1e-2:log", "1:10" or "relu,silu", a
            list of values, a dictionary with low, high and optionally log or step, or a
            distribution of Optuna.
        trials: Number of trials of the whole search.
        seeds: Seeds of each trial.
        fresh_seeds: Seeds of the final training, other than those of the trials.
        objective: "final" for the last evaluation, "area" for the mean return of all training
            episodes, "regret" for a task with a return threshold.
        preset: Preset of all trials.
        settings: Settings of all trials.
        steps: Environment steps of each run; None for the task's default.
        sampler: Name of a sampler of Optuna, with optional arguments as in
            "TPE:n_startup_trials=5".
        pruner: "seeds" to end trials whose seeds are significantly worse than the best ones,
            "none", or the name of a pruner of Optuna.
        rungs: Fractions of the steps at which trials may be pruned.
        sampler_seed: Seed of the sampler.
        at_once: Number of trials to choose and train together.
        storage: URL of a database or path of a journal file for Optuna; None for one in `out`.
        out: Folder of the search; None for a new one in experiments/.
        parallel: Number of cohorts to train at the same time; None to choose automatically.
        memory: Largest number of bytes of one cohort's tensors; None for half of the free memory.
        max_minutes: Time limit in minutes; the same call continues.
        engine: "local", or "ray" for a Ray cluster.
        address: Address of the Ray cluster.
        watcher: Object that is informed of the progress.
        trust: Custom modules that may be imported.
        **options: Fields of `Options`, as in `train`.

    Returns:
        The best settings, their result with fresh seeds, and the report.

    Raises:
        UserError: If an argument is wrong, or a cohort failed.

    Example:
        >>> found = pac4sac.tune("Pendulum-v1", "sac", space={"lr": "1e-4:1e-2:log"}, trials=20)
        >>> summary = str(found)
    """
    check_types(tune, locals())
    allow(trust)
    asked = [task] if isinstance(task, str | Task) else [*task]
    allow_named(algo, *(getattr(each, "env_id", each) for each in asked))
    tasks = tuple(get_task(each, steps) for each in asked)
    plan = _plan(
        SearchObjective(objective, tasks), algo, preset, settings, space, seeds, rungs, options
    )
    fresh = tuple(seed_list(fresh_seeds))
    _check_numbers(plan, trials, at_once, fresh)
    # These calls report mistakes before any file is written.
    make_sampler(sampler, plan.space, sampler_seed)
    make_pruner(pruner)
    _check_engine(engine, address, parallel)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    root = Path(out) if out is not None else Path("experiments", _folder_name(plan))
    opened = open_storage(storage) if storage else None
    root.mkdir(parents=True, exist_ok=True)
    launching = {"parallel": parallel, "memory": memory, "engine": engine, "address": address}
    search = Search(
        plan,
        opened or open_storage(str(root / JOURNAL)),
        root,
        watcher or Watcher(),
        sampler=sampler,
        pruner=pruner,
        sampler_seed=sampler_seed,
        at_once=at_once,
        max_minutes=max_minutes,
        launching=launching,
    )
    complete, reason = False, None
    try:
        if complete := search.run(trials):
            _confirm(search, fresh)
    except SearchStopped as stopped:
        complete, reason = False, stopped.reason
    summary = _summary(search, fresh, {"sampler": sampler, "pruner": pruner})
    report = _write(root, summary)
    best = dict(summary["winner"]["settings"]) if "winner" in summary else {}
    return Tuning(root, complete, reason, best, summary, report.page)


def _plan(
    objective: SearchObjective,
    algo: str,
    preset: str,
    settings: Mapping[str, Any] | None,
    space: Mapping[str, Any],
    seeds: int | str | Iterable[int],
    rungs: Sequence[float],
    options: Mapping[str, Any],
) -> Plan:
    """Return the definition of the search after a check of all arguments."""
    grid = settings_grid(settings)
    if swept := [name for name, values in grid.items() if len(values) != 1]:
        raise UserError(
            f"A search needs a single value for {swept[0]}; to search over several values, use "
            "--space."
        )
    values = {name: each for name, (each,) in grid.items()}
    parameters = make_space(algo, space)
    if both := [each.name for each in parameters if each.name in values]:
        raise UserError(
            f"{both[0]} is in the search space and also has a fixed value; omit one of them."
        )
    for task in objective.tasks:
        check_computing(make_options(task.steps, options))
        make_runs(task, algo, preset, [0], grid)  # reports an invalid setting
    runs = make_runs(objective.tasks[0], algo, preset, [0], grid)
    stages = _rungs(objective.tasks, rungs, int(runs[0].config.warmup))
    chosen = tuple(seed_list(seeds))
    return Plan(objective, algo, preset, values, parameters, chosen, stages, options)


def _rungs(tasks: Sequence[Task], rungs: Sequence[float], warmup: int) -> tuple[float, ...]:
    """Return the rungs sorted, without those within the warm-up."""
    if wrong := [part for part in rungs if not (isinstance(part, float) and 0 < part < 1)]:
        raise UserError(
            f"A rung must be a fraction of the steps between 0 and 1, not {wrong[0]!r}."
        )
    shortest = min(task.steps for task in tasks)
    if warmup >= shortest:
        raise UserError(
            f"No trial would learn: the warm-up of {warmup} steps does not end within {shortest} "
            "steps. Train longer with --steps, or reduce warmup."
        )
    return tuple(sorted({float(part) for part in rungs if part * shortest > warmup}))


def _check_numbers(plan: Plan, trials: int, at_once: int, fresh: Sequence[int]) -> None:
    if trials < 1 or at_once < 1:
        raise UserError(f"The number of trials must be at least 1, not {min(trials, at_once)}.")
    if shared := sorted({*plan.seeds} & {*fresh}):
        raise UserError(
            f"Seed {shared[0]} is used by trials and by the final training; choose other fresh "
            f"seeds."
        )
    names = [task.name for task in plan.tasks]
    if len({*names}) < len(names):
        raise UserError("A task is listed twice; list each task once.")


def _check_engine(engine: str, address: str | None, parallel: int | None) -> None:
    if engine not in ("local", "ray"):
        raise UserError(f"A search supports only the engines local and ray, not {engine!r}.")
    check_engine_options(engine, address, parallel)
    if engine == "ray":
        cluster_address(address)


def _folder_name(plan: Plan) -> str:
    names = "-".join(task.name for task in plan.tasks)
    return file_name(f"tune-{names}-{plan.algo}".lower())


# --- the final training


def _confirm(search: Search, fresh: Sequence[int]) -> None:
    """Train the best settings and the defaults with fresh seeds."""
    winner = _best(search)
    if winner is None:
        return
    study, root = confirming_study(search.plan, winner.params, fresh), search.root / CONFIRM
    root.mkdir(parents=True, exist_ok=True)
    with locked(root):
        search.train(study, root)


def confirming_study(plan: Plan, best: Mapping[str, Any], fresh: Sequence[int]) -> Study:
    """Return the study that compares the best settings with the defaults on fresh seeds."""
    variants = [plan.variant(DEFAULT, {})]
    if best != plan.defaults():
        variants.append(plan.variant(TUNED, best))
    return Study(
        CONFIRM,
        f"Settings of {plan.algo} found by a search, and the defaults",
        plan.tasks,
        tuple(variants),
        tuple(fresh),
        question="Do the settings found by the search beat the defaults on fresh seeds?",
        baseline=DEFAULT,
        options=dict(plan.options),
    )


def _best(search: Search) -> FrozenTrial | None:
    """Return the best complete trial, or None."""
    return search.study.best_trial if search.trials(TrialState.COMPLETE) else None


# --- the summary


def _summary(search: Search, fresh: Sequence[int], how: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of tune.json."""
    plan, winner = search.plan, _best(search)
    about: dict[str, Any] = {
        "version": VERSION,
        **plan.facts(),
        **how,
        "lower_is_better": plan.objective.lower_is_better,
        "metric": plan.objective.metric,
        "trials": [_about_trial(trial) for trial in search.study.get_trials(deepcopy=False)],
        "importance": _importance(search),
        "fresh_seeds": list(fresh),
    }
    if winner is None:
        return about
    about["winner"] = {
        "number": winner.number,
        "settings": winner.params,
        "scores": _scores(search, winner.user_attrs[VALUES]),
    }
    return about | _fresh_results(search, winner)


def _about_trial(trial: FrozenTrial) -> dict[str, Any]:
    """Return the entry of a trial in tune.json; only complete trials have a value."""
    is_complete = trial.state == TrialState.COMPLETE
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "settings": trial.params,
        "value": trial.value if is_complete else None,
        "rungs": {str(step): value for step, value in trial.intermediate_values.items()},
        "values": trial.user_attrs.get(VALUES, {}),
        "outcome": trial.user_attrs.get(OUTCOME, ""),
    }


def _scores(search: Search, values: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return dict(search.plan.objective.scores(values, search.references.get(1.0, {})))


def _importance(search: Search) -> dict[str, float]:
    """Return the importance of each setting for the value of a trial (PED-ANOVA)."""
    if len({trial.value for trial in search.trials(TrialState.COMPLETE)}) < FEWEST_FOR_IMPORTANCE:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            evaluator = PedAnovaImportanceEvaluator()
            return dict(get_param_importances(search.study, evaluator=evaluator))
        except (ValueError, RuntimeError):  # too few good trials
            return {}


def _fresh_results(search: Search, winner: FrozenTrial) -> dict[str, Any]:
    """Return the scores of the final training, and the command that repeats it."""
    root = search.root / CONFIRM
    if not any(root.glob("experiments/*/runs/*/run.json")):
        return {}
    records, tuned = read_runs(root), TUNED if winner.params != search.plan.defaults() else DEFAULT
    about: dict[str, Any] = {}
    try:
        fresh = _fresh_scores(search, records, tuned)
        if _is_whole(fresh):
            about["command"] = _command(search, records, tuned)
        defaults = _fresh_scores(search, records, DEFAULT)
    except BrokenOff as error:
        return about | {"broken_off": str(error)}
    is_whole = _is_whole(fresh) and _is_whole(defaults)
    return about | ({"fresh": fresh, "defaults": defaults} if is_whole else {})


def _fresh_scores(search: Search, records: Sequence[RunRecord], label: str) -> dict[str, Any]:
    """Return the scores of a variant of the final training.

    Raises:
        BrokenOff: If a run has no result.
    """
    try:
        values = search.plan.objective.values([run for run in records if run.label == label])
    except BrokenOff as error:
        raise BrokenOff(f"{label}, {error}") from error
    return _scores(search, values)


def _command(search: Search, records: Sequence[RunRecord], label: str) -> str:
    """Return the command that trains a variant of the final training on the first task."""
    task = search.plan.tasks[0].name
    runs = [run for run in records if run.label == label and run.task["name"] == task]
    return train_command(runs, seeds_text(run.seed for run in runs))


def _is_whole(scores: Mapping[str, Sequence[float]]) -> bool:
    return all(map(len, scores.values()))


def _write(root: Path, summary: Mapping[str, Any]) -> "WrittenReport":
    """Write tune.json and the report."""
    from pac4sac.report.report import write_report  # matplotlib takes a second to import

    write_json(root / SUMMARY, as_json(json.loads(json.dumps(summary))))
    return write_report([root], root / "report")
