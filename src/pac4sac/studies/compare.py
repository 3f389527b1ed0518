"""Comparison of algorithms on a task: a study with one variant for each, and its report."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pac4sac.agents import Agent, algorithm_name, get_algorithm, setting_names
from pac4sac.base.argument_types import check_types
from pac4sac.base.errors import UserError
from pac4sac.base.known_names import no_such_setting, our_setting, our_settings, takes_known_names
from pac4sac.base.objects import short_name
from pac4sac.base.text import file_name
from pac4sac.base.trust import allow, allow_named
from pac4sac.report.formats import tables_as_text
from pac4sac.report.tables import Table
from pac4sac.runs.collection import Collection, FoundRun
from pac4sac.runs.curve_files import check_curves_on, read_curves
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.seeds import seed_list
from pac4sac.studies.definition import Study, StudyVariant
from pac4sac.studies.run import study_folder, train_and_report
from pac4sac.studies.watcher import Watcher
from pac4sac.tasks import Environment, chosen_task
from pac4sac.tasks.pool import check_workers
from pac4sac.training.experiment import Result, warn_of_objects
from pac4sac.training.options import make_options
from pac4sac.training.run import settings_grid

if TYPE_CHECKING:
    from pac4sac.report.comparison import Context


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Hold the result of `compare`; printing it shows the table of `pac4sac compare`.

    Attributes:
        folder: Study folder.
        complete: Whether all runs are trained; if not, the same call continues.
        reason: Why training stopped early; None if it did not.
        records: The compared runs.
        tables: The tables of the report.
        page: The report, an HTML page.
        answer: Best algorithm against the baseline in words, with effect and interval.
        advice: Number of seeds that could decide undecided comparisons; empty if all are decided.

    Example:
        >>> comparison = pac4sac.compare("Pendulum-v1", "sac,td3", seeds="0:5")
        >>> means = [row["mean"] for row in comparison.rows]
    """

    records: Sequence[RunRecord] = field(repr=False, kw_only=True)
    tables: Sequence[Table] = field(repr=False, kw_only=True)
    page: Path = field(kw_only=True)  # report on all runs of the folder
    answer: str = field(default="", kw_only=True)
    # number of seeds that could decide undecided comparisons
    advice: str = field(default="", kw_only=True)

    @property
    def runs(self) -> list[RunRecord]:
        """Return the compared runs; the folder may contain more."""
        return list(self.records)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return one row per algorithm, for example for a data frame.

        A row has `mean`, `sd` and interquartile mean `iqm` of the `metric` (regret, or mean return
        on a task without regret), the `difference` from the baseline with Welch's interval, the
        corrected p-value `p_holm` of Welch's test, `episodes` until solved, `solved_fraction` and
        more. Names that end in `_low` and `_high` are the ends of 95% intervals. Unknown values are
        None.
        """
        tables = [table for table in self.tables if table.name.startswith("task-")]
        return [dict(row) for table in tables for row in table.records]

    @property
    def figures(self) -> list[Path]:
        """Return the files of the report's figures."""
        return sorted((self.page.parent / "figures").glob("*.svg"))

    def __str__(self) -> str:
        text = tables_as_text(self.tables)
        if self.complete:
            return "\n".join([text, "", *filter(None, (self.answer, self.advice))]).rstrip()
        return (
            f"{text}\n\nTraining is unfinished, because {self.reason}; the same call continues it."
        )


@takes_known_names
def compare(
    task: Environment,
    algos: str | Sequence[str | type[Agent]] = ("pac4sac", "sac", "ddpg"),
    *,
    seeds: int | str | Iterable[int] = range(5),
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    steps: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Any] = (),
    baseline: str | type[Agent] | None = None,
    out: str | Path | None = None,
    parallel: int | None = None,
    max_minutes: float | None = None,
    keep_stale: bool = False,
    callbacks: str | Iterable[str] = (),
    watcher: Watcher | None = None,
    trust: str | Iterable[str] = (),
    curves: Sequence[str | Path] = (),
    **options: Any,
) -> Comparison:
    """Train several algorithms on a task, and compare them with a baseline.

    Runs that are already in the folder are not trained again. The same call continues an unfinished
    comparison, and a call with more seeds or algorithms extends it. The report and its figures are
    in the folder. Cohorts train in separate processes. If an environment or algorithm is defined in
    a script, notebook or function, its cohorts train in this process.

    Args:
        task: Name of a task, id of an environment, a class or function that makes an environment,
            an environment that `gymnasium.make` made, or a `Task`.
        algos: Names of the algorithms, as a list or separated by commas, or subclasses of `Agent`.
        seeds: Seeds of each algorithm.
        preset: Preset of all algorithms, or one for each, as in "pac4sac:mujoco,sac:default".
        settings: One value for each setting; an algorithm gets the settings that it has. To change
            a setting of one algorithm, write {"sac:alpha": 0.1}.
        steps: Environment steps of each run; None for the task's default.
        env_kwargs: Arguments of the environment.
        wrappers: Wrappers around the environment, as in `train`.
        baseline: Algorithm with which the others are compared; None for the first one.
        out: Study folder; None for a folder in experiments/ named after the task.
        parallel: Number of cohorts to train at the same time; None to choose automatically.
        max_minutes: Time limit in minutes; the same call continues.
        keep_stale: Keep runs trained by another version of the code, and mark them in every table.
            By default they are trained again.
        callbacks: Names of trackers ("tensorboard", "wandb", "trackio") or "module:Class".
        watcher: Object that is informed of the progress.
        trust: Custom modules that other runs of the folder need.
        curves: CSV files with learning curves of other projects on the same task, in the columns
            exp_name, env_name, seed, metric, env_step and value. They become further variants.
        **options: Fields of `Options`, as in `train`.

    Returns:
        The comparison, complete or unfinished.

    Raises:
        UserError: If an argument is invalid, or a cohort failed.

    Example:
        >>> comparison = pac4sac.compare("Pendulum-v1", "sac,td3", seeds="0:5")
        >>> table = str(comparison)
    """
    check_types(compare, locals(), leave=["task"])
    allow(trust)
    named = _as_list(callbacks)
    allow_named(*named)
    # matplotlib takes a second to import
    from pac4sac.report.report import compose, context_of, main_tables

    chosen = chosen_task(task, steps, env_kwargs, wrappers)
    study = comparison_study(chosen, algos, seeds, settings, None, baseline, preset)
    # both refuse invalid options before a folder is created
    how = make_options(chosen.steps, options)
    check_workers(chosen, how.workers)
    warn_of_objects([*(variant.algo for variant in study.variants), *chosen.code_names])
    root, files = study_folder(study, out), [*map(Path, curves)]
    check_curves_on(read_curves(files), chosen.name, chosen.env_id, chosen.steps)
    launching: Any = {
        "curves": files,
        "parallel": parallel,
        "max_minutes": max_minutes,
        "keep_stale": keep_stale,
        "callbacks": named,
    }
    result, report = train_and_report(
        study, root, watcher or Watcher(), options=options, **launching
    )
    context, tables = report.context, report.main_tables
    runs = _runs_of(study, context.collection)
    if len(runs) < len(context.collection.runs):  # the folder has further runs
        context = context_of(dataclasses.replace(context.collection, runs=runs))
        tables = main_tables(compose(context))
    answer, advice = _in_words(context)
    return Comparison(
        **vars(result),
        records=[run.record for run in runs if not run.record.is_foreign],
        tables=tables,
        page=report.page,
        answer=answer,
        advice=advice,
    )


def _in_words(context: "Context") -> tuple[str, str]:
    """Return the answer and the advice of a comparison."""
    from pac4sac.report.advice import seeds_advice
    from pac4sac.report.answers import answer_on_task, compared_by_answers

    compared = [
        compared_by_answers(context, title) for title in filter(context.results, context.variants)
    ]
    answers = [answer_on_task(by_metric).text for by_metric in compared]
    return "\n".join(answers), "\n".join(chain.from_iterable(map(seeds_advice, compared)))


def comparison_study(
    task: Environment,
    algos: str | Sequence[str | type[Agent]],
    seeds: int | str | Iterable[int],
    settings: Mapping[str, Any] | None,
    steps: int | None,
    baseline: str | type[Agent] | None,
    preset: str = "default",
) -> Study:
    """Return the study that compares algorithms on a task, with one variant for each.

    Args:
        task: The task, in any form that `chosen_task` accepts.
        algos: At least two algorithms, as in `compare`.
        seeds: Seeds of every algorithm.
        settings: One value for each setting; an algorithm gets the settings that it has.
        steps: Number of steps; None for the task's.
        baseline: Algorithm with which the others are compared; None for the first one.
        preset: Preset of all algorithms, or one for each, as in "pac4sac:mujoco,sac:default".

    Raises:
        UserError: If an argument is invalid, no algorithm has a setting, one lacks the preset, or
            one would not learn in these steps.
    """
    names = algorithm_names(algos)
    first = names[0] if baseline is None else algorithm_name(baseline)
    if first not in names:
        raise UserError(
            f"The baseline {first!r} is not among the compared algorithms; it must be one of "
            f"{', '.join(names)}."
        )
    values, presets = _single_values(settings, names), _preset_by_algorithm(preset, names)
    chosen = chosen_task(task, steps)
    variants = {name: _variant(name, presets[name], values) for name in names}
    _check_settings(variants, values)
    study = Study(
        name=file_name(f"compare-{chosen.name}".lower()),
        title=f"{', '.join(map(short_name, names))} on {chosen.name}",
        tasks=(chosen,),
        variants=tuple(variants.values()),
        seeds=tuple(seed_list(seeds)),
        baseline=variants[first].name,
    )
    _check_warmup(study)
    return study


def algorithm_names(algos: str | Sequence[str | type[Agent]]) -> list[str]:
    """Return the names of at least two different algorithms, and trust their modules.

    Args:
        algos: Names, as a list or separated by commas, or classes of agents.
    """
    if not algos or not isinstance(algos, str | Sequence):
        raise UserError(
            f"algos must be names such as 'pac4sac,sac' or ['pac4sac', 'sac'], not {algos!r}."
        )
    names = [algorithm_name(algo) for algo in _split_names(algos)]
    allow_named(*names)
    if len(names) < 2:
        raise UserError(
            f"compare needs at least two algorithms, not only {names[0]}; add another one, or use "
            "train."
        )
    if len(set(names)) < len(names):
        raise UserError("An algorithm is listed twice; list each algorithm once.")
    if len({*map(short_name, names)}) < len(names):
        raise UserError("Two algorithms have the same name; rename one of the classes.")
    return names


def _split_names(names: str | Sequence[Any]) -> list[Any]:
    """Return a list of names, which may be given as one string, separated by commas."""
    if isinstance(names, str):
        return [name.strip() for name in names.split(",")]
    return list(names)


def _single_values(settings: Mapping[str, Any] | None, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return the value of each setting after a check that it has only one."""
    grid = {_with_full_name(key, names): values for key, values in settings_grid(settings).items()}
    if swept := [name for name, values in grid.items() if len(values) != 1]:
        raise UserError(
            f"compare accepts only one value for each setting, but {swept[0]} has several; sweep "
            f"over {swept[0]} with train, or in a study file."
        )
    return {name: values[0] for name, values in grid.items()}


def _with_full_name(text: str, names: Sequence[str]) -> str:
    """Return "MyAgent:alpha" as "__main__:MyAgent:alpha", if that is one of the algorithms."""
    owner, colon, rest = text.rpartition(":")
    full = {short_name(name): name for name in names}
    return f"{full.get(owner, owner)}{colon}{rest}"


def _preset_by_algorithm(preset: str, names: Sequence[str]) -> dict[str, str]:
    """Return the preset of each algorithm.

    Args:
        preset: One preset for all, or presets of single algorithms as in "pac4sac:mujoco".
        names: The algorithms.

    Raises:
        UserError: If a named algorithm is not compared, or lacks its preset.
    """
    chosen = dict.fromkeys(names, "default")
    for text in map(str.strip, preset.split(",")):
        owner, _, name = _with_full_name(text, names).rpartition(":")
        if owner and owner not in names:
            raise UserError(
                f"The preset {text!r} is for {owner}, which is not among the compared algorithms."
            )
        chosen |= dict.fromkeys([owner] if owner else names, name)
    _check_presets(chosen)
    return chosen


def _check_presets(chosen: Mapping[str, str]) -> None:
    """Refuse presets that their algorithms lack."""
    known = {algo: get_algorithm(algo).agent.presets for algo in chosen}
    lacking = {algo: name for algo, name in chosen.items() if name not in known[algo]}
    if not lacking:
        return
    facts = [
        f"{short_name(algo)} has no preset {name!r}; it has {', '.join(known[algo])}."
        for algo, name in lacking.items()
    ]
    possible = {**chosen, **dict.fromkeys(lacking, "default")}
    each = ",".join(f"{short_name(algo)}:{name}" for algo, name in possible.items())
    raise UserError(f"{' '.join(facts)} Name a preset for each algorithm, as in {each}.")


def _variant(algo: str, preset: str, values: Mapping[str, Any]) -> StudyVariant:
    """Return an algorithm with its preset, the common settings that it has, and its own settings.

    Args:
        algo: Name of the algorithm.
        preset: Its preset.
        values: Values by setting, or by algorithm and setting, as in "sac:alpha".
    """
    known = setting_names(algo)
    common = {name: value for name, value in values.items() if our_setting(name, known) in known}
    own = {
        name.removeprefix(f"{algo}:"): value
        for name, value in values.items()
        if name.rpartition(":")[0] == algo
    }
    name = short_name(algo)
    label = name if preset == "default" else f"{name}-{preset}"
    common, own = our_settings(common, known), our_settings(own, known)
    return StudyVariant(label, algo, preset, common | own)


def _check_settings(variants: Mapping[str, StudyVariant], values: Mapping[str, Any]) -> None:
    """Refuse a setting that none of the algorithms has, or that is for another algorithm."""
    names = ", ".join(variants)
    used = {*chain(*(variant.settings for variant in variants.values()))}
    for name in values:
        owner, _, setting = name.rpartition(":")
        if owner and owner not in variants:
            raise UserError(
                f"The setting {name} is for {owner}, which is not among the compared algorithms "
                f"{names}."
            )
        if our_setting(setting, used) not in used:
            known = dict.fromkeys(chain(*(setting_names(v.algo) for v in variants.values())))
            raise no_such_setting(f"None of {names} has a", setting, known)


def _check_warmup(study: Study) -> None:
    """Refuse a comparison with an algorithm whose warm-up does not end."""
    idle = {
        run.label: f"{run.label} ({run.config.warmup} steps)"
        for run in study.runs()
        if run.config.warmup >= run.task.steps
    }
    if idle:
        raise UserError(
            "Some algorithms would learn nothing, because their warm-up does not end within the "
            f"{study.tasks[0].steps} steps of a run: {', '.join(idle.values())}. Train longer "
            "with --steps, or reduce warmup."
        )


def _runs_of(study: Study, collection: Collection) -> tuple[FoundRun, ...]:
    """Return the runs of a collection that a study asks for, with kept stale runs and curves of
    other projects."""
    asked = {run.identity for run in study.runs()}
    return tuple(
        run
        for run in collection.runs
        if run.record.is_foreign or (run.instead or run.record.identity) in asked
    )


def _as_list(names: str | Iterable[str]) -> list[str]:
    """Return a list of names, given a list or a single name; other values are refused later."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [names]
    return list(names)
