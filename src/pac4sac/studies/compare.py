"""Compare algorithms on a task: train a study with one variant each, and report on it."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pac4sac.agents import get_algorithm
from pac4sac.base.errors import UserError
from pac4sac.base.text import file_name
from pac4sac.base.trust import allow, allow_named
from pac4sac.report.formats import tables_as_text
from pac4sac.report.tables import Table
from pac4sac.runs.collection import Collection, FoundRun
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.seeds import seed_list
from pac4sac.studies.definition import Study, StudyVariant
from pac4sac.studies.run import study_folder, train_and_report
from pac4sac.studies.watcher import Watcher
from pac4sac.tasks import Task, get_task
from pac4sac.training.experiment import Result
from pac4sac.training.options import make_options
from pac4sac.training.run import settings_grid


@dataclass(frozen=True)
class Comparison(Result):
    """The result of `compare`; printed, it is the table of the command `pac4sac compare`."""

    records: Sequence[RunRecord] = field(repr=False, kw_only=True)
    tables: Sequence[Table] = field(repr=False, kw_only=True)
    page: Path = field(kw_only=True)  # the report on all runs of the folder

    @property
    def runs(self) -> list[RunRecord]:
        """Return the runs that were asked for; the folder may hold more."""
        return list(self.records)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return one row per algorithm, for example for a data frame.

        It has `mean`, `sd` and interquartile mean `iqm` of the `metric` (regret, or mean return on
        a task without regret), the `difference` to the baseline with Welch's interval, the
        corrected p-value `p_holm` of Welch's test, `episodes` until solved, `solved_fraction` and
        more. Names in `_low` and `_high` are the ends of 95% intervals. Unknown values are None.
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
            return text
        return f"{text}\n\nUnfinished, because {self.reason}; the same call goes on."


def compare(
    task: str | Task,
    algos: str | Sequence[str] = ("pac4sac", "sac", "ddpg"),
    *,
    seeds: int | str | Iterable[int] = range(5),
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    steps: int | None = None,
    baseline: str | None = None,
    out: str | Path | None = None,
    parallel: int | None = None,
    max_minutes: float | None = None,
    keep_stale: bool = False,
    callbacks: str | Iterable[str] = (),
    watcher: Watcher | None = None,
    trust: str | Iterable[str] = (),
    **options: Any,
) -> Comparison:
    """Train several algorithms on a task, and compare them with a baseline.

    Runs that the folder holds are not trained again. The same call continues an unfinished
    comparison, and a call with more seeds or algorithms extends it. The report and its figures are
    in the folder. Cohorts train in separate processes, so a custom environment or algorithm must be
    importable, as "module:Name".

    Args:
        task: Name of a task or id of an environment, or a `Task`.
        algos: Names of the algorithms, as a list or separated by commas.
        seeds: Seeds of each algorithm.
        preset: Preset of those algorithms that have it.
        settings: One value for each setting; an algorithm gets those that it has.
        steps: Environment steps of each run; None for the task's.
        baseline: The algorithm that the others are compared with; None for the first.
        out: Folder; None for one in experiments/ that is named after the task.
        parallel: Number of cohorts to train at a time; None to choose.
        max_minutes: Stop after this time; the same call continues.
        keep_stale: Keep runs that other code than today's has trained, and mark them in every
            table. By default they are trained again.
        callbacks: Names of trackers ("tensorboard", "wandb", "trackio") or "module:Class".
        watcher: Is informed of the progress.
        trust: Custom modules that other runs of the folder come from.
        **options: Fields of `Options`, as in `train`.

    Returns:
        The comparison, complete or unfinished.

    Raises:
        UserError: If an argument is wrong, or a cohort failed.
    """
    allow(trust)
    named = _as_list(callbacks)
    allow_named(*named)
    # matplotlib takes a second to import
    from pac4sac.report.report import compose, context_of, main_tables

    study = comparison_study(task, algos, seeds, settings, steps, baseline, preset)
    make_options(study.tasks[0].steps, options)  # refuses wrong options before a folder is made
    root = study_folder(study, out)
    launching: Any = {
        "parallel": parallel,
        "max_minutes": max_minutes,
        "keep_stale": keep_stale,
        "callbacks": named,
    }
    result, report = train_and_report(
        study, root, watcher or Watcher(), options=options, **launching
    )
    collection, tables = report.context.collection, report.main_tables
    runs = _runs_of(study, collection)
    if len(runs) < len(collection.runs):  # the folder holds more
        tables = main_tables(compose(context_of(dataclasses.replace(collection, runs=runs))))
    return Comparison(
        **vars(result), records=[run.record for run in runs], tables=tables, page=report.page
    )


def comparison_study(
    task: str | Task,
    algos: str | Sequence[str],
    seeds: int | str | Iterable[int],
    settings: Mapping[str, Any] | None,
    steps: int | None,
    baseline: str | None,
    preset: str = "default",
) -> Study:
    """Return the study that compares algorithms on a task, with one variant for each.

    Args:
        task: Name of a task or an environment, or a task.
        algos: Names of at least two algorithms, as a list or separated by commas.
        seeds: Seeds of every algorithm.
        settings: One value for each setting; an algorithm gets those that it has.
        steps: Number of steps; None for the task's.
        baseline: The algorithm that the others are compared with; None for the first.
        preset: Preset of those algorithms that have it.

    Raises:
        UserError: If an argument is wrong, or no algorithm has a setting or the preset.
    """
    names = _algorithm_names(algos)
    if baseline is not None and baseline not in names:
        raise UserError(
            f"The baseline {baseline!r} is not compared; it must be one of {', '.join(names)}."
        )
    values = _single_values(settings)
    allow_named(*names, getattr(task, "env_id", task))
    chosen = get_task(task, steps)
    variants = {name: _variant(name, preset, values) for name in names}
    _check_all_used(variants, preset, values)
    return Study(
        name=file_name(f"compare-{chosen.name}".lower()),
        title=f"{', '.join(names)} on {chosen.name}",
        tasks=(chosen,),
        variants=tuple(variants.values()),
        seeds=tuple(seed_list(seeds)),
        baseline=variants[baseline or names[0]].name,
    )


def _algorithm_names(algos: str | Sequence[str]) -> list[str]:
    """Return the names of at least two algorithms, which differ."""
    names = _split_names(algos)
    if not names or not all(isinstance(name, str) for name in names):
        raise UserError(
            f"algos are names such as 'pac4sac,sac' or ['pac4sac', 'sac'], not {algos!r}."
        )
    if len(names) < 2:
        raise UserError(
            f"To compare takes two algorithms, and {names[0]} is one; name another, or use train."
        )
    if len(set(names)) < len(names):
        raise UserError("An algorithm is named twice.")
    return names


def _split_names(names: str | Sequence[str]) -> list[str]:
    """Return names that may be given as text, separated by commas."""
    if isinstance(names, str):
        return [name.strip() for name in names.split(",")]
    return list(names)


def _single_values(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the value of each setting, which must be one."""
    grid = settings_grid(settings)
    if swept := [name for name, values in grid.items() if len(values) != 1]:
        raise UserError(
            f"compare takes one value for {swept[0]}; sweep it with train, or in a study file."
        )
    return {name: values[0] for name, values in grid.items()}


def _variant(algo: str, preset: str, values: Mapping[str, Any]) -> StudyVariant:
    """Return an algorithm with those of the settings that it has, and the preset if it has it."""
    agent = get_algorithm(algo).agent
    known = {setting.name for setting in dataclasses.fields(agent.Config)}
    settings = {name: value for name, value in values.items() if name in known}
    own_preset = preset if preset in agent.presets else "default"
    label = algo if own_preset == "default" else f"{algo}-{preset}"
    return StudyVariant(label, algo, own_preset, settings)


def _check_all_used(
    variants: Mapping[str, StudyVariant], preset: str, values: Mapping[str, Any]
) -> None:
    """Refuse a preset or a setting that none of the algorithms has."""
    if preset not in {variant.preset for variant in variants.values()}:
        raise UserError(
            f"None of {', '.join(variants)} has a preset {preset!r}; see pac4sac list presets."
        )
    unknown = {*values}.difference(*(variant.settings for variant in variants.values()))
    if unknown:
        raise UserError(
            f"None of {', '.join(variants)} has a setting {', '.join(sorted(unknown))}."
        )


def _runs_of(study: Study, collection: Collection) -> tuple[FoundRun, ...]:
    """Return those runs of a collection that a study asks for, and stale runs kept for one."""
    asked = {run.identity for run in study.runs()}
    return tuple(run for run in collection.runs if (run.instead or run.record.identity) in asked)


def _as_list(names: str | Iterable[str]) -> list[str]:
    """Return a list of names, also if one stands alone; other values are refused later."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [names]
    return list(names)
