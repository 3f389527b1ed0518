"""Study definitions in TOML, shipped with the package or written by users. definition.toml lists
their keys."""

import dataclasses
import itertools
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pac4sac.agents import make_config
from pac4sac.base.errors import UserError
from pac4sac.base.files import read_toml
from pac4sac.base.grouping import differing_values
from pac4sac.base.known_names import answer_on_option
from pac4sac.base.text import did_you_mean
from pac4sac.runs.seeds import parse_seeds
from pac4sac.studies.shipped import SHIPPED_STUDIES, shipped_studies
from pac4sac.studies.slurm.resources import checked
from pac4sac.tasks import Task, get_task
from pac4sac.training.options import Options
from pac4sac.training.run import Run, combinations, make_runs

FORMAT: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
KINDS = FORMAT["kinds"]
AS_WRITTEN = ("title", "question", "kind", "baseline", "repetitions", "options", "slurm")
# Steps come from the task, all runs of a study start with new weights, and `Options` checks the
# values.
OPTIONS = {
    f.name: "any" for f in dataclasses.fields(Options) if f.name not in ("steps", "start_from")
}


def _is_list_of(kind: type, value: Any) -> bool:
    """Return whether a value is a list with entries of one type only."""
    return isinstance(value, list) and {*map(type, value)} <= {kind}


CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "a string": lambda value: isinstance(value, str),
    "a whole number above 0": lambda value: type(value) is int and value > 0,
    "a number": lambda value: type(value) in (int, float),
    "a table": lambda value: isinstance(value, dict),
    "a table of tables": lambda value: (
        isinstance(value, dict) and _is_list_of(dict, [*value.values()])
    ),
    "a list of tables": lambda value: _is_list_of(dict, value),
    "a list of names": lambda value: _is_list_of(str, value),
}


@dataclass(frozen=True)
class StudyVariant:
    """Hold a variant, which is a row of a table: an algorithm with settings, and a name."""

    name: str
    algo: str
    preset: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] | None = None  # None: all tasks of the study
    seeds: tuple[int, ...] | None = None  # None: the study's seeds
    steps: int | None = None  # None: the task's steps

    def is_for(self, task: Task) -> bool:
        """Return whether the variant is trained on a task."""
        return self.tasks is None or task.name in self.tasks

    def runs(self, task: Task, seeds: Sequence[int]) -> list[Run]:
        """Return the runs of the variant on a task. The variant may override the seeds of the study
        and the number of steps of the task."""
        if self.steps is not None:
            task = task.changed({"steps": self.steps})
        grid = {name: [value] for name, value in self.settings.items()}
        made = make_runs(
            task, self.algo, self.preset, seeds if self.seeds is None else self.seeds, grid
        )
        return [dataclasses.replace(run, label=self.name) for run in made]


@dataclass(frozen=True)
class Study:
    """Hold a named set of runs that answers a question: variants on tasks with seeds."""

    name: str
    title: str
    tasks: tuple[Task, ...]
    variants: tuple[StudyVariant, ...]
    seeds: tuple[int, ...]
    definition: str = ""  # the argument of `pac4sac study run`
    kind: str = KINDS[0]
    question: str = ""
    baseline: str | None = None
    repetitions: int = 20  # rounds of a cost measurement
    options: Mapping[str, Any] = field(default_factory=dict)
    # name of a task -> options
    task_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    slurm: Mapping[str, Any] = field(default_factory=dict)  # what its jobs request

    def options_for(self, task: Task) -> dict[str, Any]:
        """Return the training options on a task; its own options override the study's."""
        return {**self.options, **self.task_options.get(task.name, {})}

    def with_seeds(self, seeds: tuple[int, ...]) -> "Study":
        """Return the study with other seeds, for all variants."""
        variants = tuple(dataclasses.replace(variant, seeds=None) for variant in self.variants)
        return dataclasses.replace(self, seeds=seeds, variants=variants)

    def runs(self) -> list[Run]:
        """Return all runs, task by task and variant by variant."""
        runs: list[Run] = []
        for task, variant in itertools.product(self.tasks, self.variants):
            if variant.is_for(task):
                runs += variant.runs(task, self.seeds)
        return runs

    def differing_settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings that variants share by name but not by value.

        Returns:
            For each such setting, its values by variant.
        """
        return differing_values({run.label: dataclasses.asdict(run.config) for run in self.runs()})


def load_study(name: str) -> Study:
    """Return a study: a shipped one by name, or a custom one by the path of its TOML file.

    Raises:
        UserError: If there is no such study, or its definition is invalid.
    """
    is_own = Path(name).suffix == ".toml"
    path = Path(name) if is_own else SHIPPED_STUDIES / f"{name}.toml"
    if not is_own and not path.is_file():
        raise UserError(
            f"Unknown study {name!r}; {did_you_mean(name, shipped_studies())} A custom study "
            "is a .toml file. List studies: pac4sac list studies."
        )
    return _Reader(path, *read_toml(path)).study()


class _Reader:
    """Read the definition of a study; every error names the file and line of the mistake."""

    def __init__(self, path: Path, text: str, content: dict[str, Any]) -> None:
        self.path, self.lines, self.content = path, text.splitlines(), content

    def study(self) -> Study:
        """Return the study that the file defines.

        Raises:
            UserError: If a key or a value is invalid.
        """
        self._check(self.content, FORMAT["study"], "a study")
        self._check_needed("tasks", "task")
        self._check_needed("variant", "variant")
        tasks = self._tasks()
        variants = self._all_variants(tasks)
        self._check_baseline(variants)
        self._check_options(self.content, "[options]")
        self._check_kind()
        for key, value in self.content.get("slurm", {}).items():
            self._located(key, checked, {key: value})
        is_shipped = self.path.parent == SHIPPED_STUDIES
        study = Study(
            name=self.path.stem,
            definition=self.path.stem if is_shipped else str(self.path),
            tasks=tasks,
            variants=variants,
            seeds=self._seeds(self.content.get("seeds", "0:5")),
            task_options=self._task_options(),
            **self._as_written(),
        )
        study.runs()  # reports an invalid setting before any cohort starts
        return study

    def _as_written(self) -> dict[str, Any]:
        """Return the fields of a study that are taken from the file unchanged."""
        written = {key: self.content[key] for key in AS_WRITTEN if key in self.content}
        return {"title": self.path.stem} | written

    def _seeds(self, written: Any) -> tuple[int, ...]:
        text = ",".join(map(str, written)) if isinstance(written, list) else str(written)
        return tuple(self._located(text if text == str(written) else "seeds", parse_seeds, text))

    # --- tasks

    def _tasks(self) -> tuple[Task, ...]:
        """Return the tasks of the study, each with the changes in its own table."""
        names, tables = self.content["tasks"], self.content.get("task", {})
        if twice := _repeated(names):
            raise self._mistake(twice, f"the task {twice!r} is listed twice")
        if unknown := [name for name in tables if name not in names]:
            raise self._mistake(
                unknown[0], f"[task.{unknown[0]}] is for a task that the study does not have"
            )
        return tuple(self._task(name, tables.get(name, {})) for name in names)

    def _task(self, name: str, table: Mapping[str, Any]) -> Task:
        task: Task = self._located(name, get_task, name)
        self._check(table, FORMAT["task"], f"[task.{name}]")
        self._check_options(table, f"[task.{name}.options]")
        changes = {key: value for key, value in table.items() if key != "options"}
        return dataclasses.replace(task, **changes)

    def _task_options(self) -> dict[str, Mapping[str, Any]]:
        """Return the training options of tasks that have their own."""
        tables = self.content.get("task", {})
        return {name: table["options"] for name, table in tables.items() if "options" in table}

    # --- variants

    def _all_variants(self, tasks: Sequence[Task]) -> tuple[StudyVariant, ...]:
        """Return the variants of all blocks; their names must differ on each task."""
        blocks = [self._variants(block) for block in self.content["variant"]]
        variants = tuple(itertools.chain(*blocks))
        for task in tasks:
            if twice := _repeated([variant.name for variant in variants if variant.is_for(task)]):
                raise self._mistake(twice, f"two variants are called {twice!r}; rename one")
        return variants

    def _variants(self, block: Mapping[str, Any]) -> list[StudyVariant]:
        """Return the variants of a block, one for every combination of swept values."""
        self._check(block, FORMAT["variant"], "a variant")
        if "algo" not in block:
            raise self._mistake("[[variant]]", "a variant needs an algo")
        algo = block["algo"]
        preset = block.get("preset", self.content.get("preset", "default"))
        name = block.get("name", algo)
        seeds = self._seeds(block["seeds"]) if "seeds" in block else None
        tasks = self._tasks_of_variant(name, block.get("tasks"))
        variants = []
        sweep = block.get("sweep", {})
        self._check_sweep(sweep)
        for swept in combinations(sweep):
            label = "-".join([name, *(f"{key}={value}" for key, value in swept.items())])
            settings = {**self.content.get("set", {}), **block.get("set", {}), **swept}
            self._located(algo, make_config, algo, preset, settings)
            variants.append(
                StudyVariant(label, algo, preset, settings, tasks, seeds, block.get("steps"))
            )
        return variants

    def _tasks_of_variant(self, name: str, tasks: list[str] | None) -> tuple[str, ...] | None:
        """Return the tasks that a variant is limited to, or None if it is for all tasks."""
        if tasks is None:
            return None
        if unknown := [task for task in tasks if task not in self.content["tasks"]]:
            raise self._mistake(
                unknown[0],
                f"the variant {name!r} is for {unknown[0]!r}, which is not a task of the study",
            )
        return tuple(tasks)

    def _check_sweep(self, sweep: Mapping[str, Any]) -> None:
        """Refuse a sweep with a setting that has no values."""
        for key, values in sweep.items():
            if not isinstance(values, list) or not values:
                raise self._mistake(key, f"the sweep over {key} has no values")

    # --- checks

    def _check_needed(self, key: str, what: str) -> None:
        if not self.content.get(key):
            raise self._mistake(key, f"a study needs at least one {what}")

    def _check_baseline(self, variants: Sequence[StudyVariant]) -> None:
        baseline = self.content.get("baseline")
        if baseline is not None and baseline not in {variant.name for variant in variants}:
            raise self._mistake(
                "baseline", f"the baseline {baseline!r} is not a variant of the study"
            )

    def _check_kind(self) -> None:
        kind = self.content.get("kind", KINDS[0])
        if kind not in KINDS:
            raise self._mistake("kind", f"unknown kind {kind!r}; {did_you_mean(kind, KINDS)}")

    def _check_options(self, table: Mapping[str, Any], title: str) -> None:
        """Refuse unknown training options and invalid values."""
        options = table.get("options", {})
        self._check(options, OPTIONS, title)
        for key, value in options.items():
            self._located(key, Options, steps=1, **{key: value})

    def _check(self, table: Mapping[str, Any], keys: Mapping[str, str], what: str) -> None:
        """Refuse unknown keys of a table, and values of the wrong type.

        Args:
            table: The table in the file.
            keys: Description of the value by allowed key.
            what: Name of the table, for the message.
        """
        for key, value in table.items():
            if key not in keys:
                instead = answer_on_option(key) or did_you_mean(key, keys)
                raise self._mistake(key, f"{what} has no key {key!r}; {instead}")
            if keys[key] in CHECKS and not CHECKS[keys[key]](value):
                raise self._mistake(key, f"{key} must be {keys[key]}, not {value!r}")

    # --- errors with their line

    def _located(
        self, key: str, function: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Any:
        """Call a function, and add the line of `key` to an error that it raises."""
        try:
            return function(*arguments, **named)
        except UserError as error:
            raise self._mistake(key, str(error)) from error

    def _mistake(self, key: str, reason: str) -> UserError:
        """Return an error that names the first line with the word `key`."""
        word = re.compile(rf"(?<!\w){re.escape(key)}(?!\w)")  # not `task` in `tasks`
        line = next((number for number, text in enumerate(self.lines, 1) if word.search(text)), 1)
        end = "" if reason.endswith((".", "?")) else "."
        return UserError(f"{self.path}, line {line}: {reason}{end}")


def _repeated(names: Sequence[str]) -> str | None:
    """Return the first name that is listed twice, or None."""
    return next((name for name in names if names.count(name) > 1), None)
