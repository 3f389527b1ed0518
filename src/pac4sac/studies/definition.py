"""Study definitions in TOML, shipped with the package or the user's own. definition.toml says what
they may hold."""

import dataclasses
import itertools
import re
import tomllib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pac4sac.agents import make_config
from pac4sac.base.errors import UserError
from pac4sac.base.files import read_toml
from pac4sac.base.text import did_you_mean
from pac4sac.paper.numbers import SHIPPED_STUDIES, shipped_study
from pac4sac.runs.run import Run, make_runs
from pac4sac.runs.seeds import parse_seeds
from pac4sac.studies.halving import Halving
from pac4sac.tasks import Task, get_task
from pac4sac.training.options import Options

FORMAT: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
KINDS = FORMAT["kinds"]
AS_WRITTEN = ("title", "question", "kind", "baseline", "repetitions", "options")
# Steps are the task's, all runs of a study start from nothing, and `Options` itself checks the
# values.
OPTIONS = {
    f.name: "any" for f in dataclasses.fields(Options) if f.name not in ("steps", "start_from")
}
CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "a text": lambda value: isinstance(value, str),
    "a whole number from 1 on": lambda value: type(value) is int and value > 0,
    "a number": lambda value: type(value) in (int, float),
    "a table": lambda value: isinstance(value, dict),
    "a table of tables": lambda value: (
        isinstance(value, dict) and {*map(type, value.values())} <= {dict}
    ),
    "a list of tables": lambda value: isinstance(value, list) and {*map(type, value)} <= {dict},
    "a list of names": lambda value: isinstance(value, list) and {*map(type, value)} <= {str},
    "a share between 0 and 1": lambda value: type(value) is float and 0 < value < 1,
}


@dataclass(frozen=True)
class StudyVariant:
    """One row of a table: an algorithm with settings, under a name."""

    name: str
    algo: str
    preset: str = "paper"
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] | None = None  # None: all tasks of the study
    seeds: tuple[int, ...] | None = None  # None: those of the study

    def is_for(self, task: Task) -> bool:
        return self.tasks is None or task.name in self.tasks


@dataclass(frozen=True)
class Study:
    name: str
    title: str
    tasks: tuple[Task, ...]
    variants: tuple[StudyVariant, ...]
    seeds: tuple[int, ...]
    definition: str = ""  # what `pac4sac study run` calls it by
    kind: str = KINDS[0]
    question: str = ""
    baseline: str | None = None
    repetitions: int = 20  # of a cost measurement
    options: Mapping[str, Any] = field(default_factory=dict)
    # by name of the task
    task_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    halving: Halving | None = None

    def options_for(self, task: Task) -> dict[str, Any]:
        return {**self.options, **self.task_options.get(task.name, {})}

    def rung(self, number: int, labels: Container[str] | None = None) -> "Study":
        """One round of successive halving, with all variants or those of some names."""
        assert self.halving is not None
        tasks = tuple(
            dataclasses.replace(task, steps=self.halving.steps[task.name][number])
            for task in self.tasks
        )
        variants = tuple(
            variant for variant in self.variants if labels is None or variant.name in labels
        )
        return dataclasses.replace(self, tasks=tasks, variants=variants, halving=None)

    def with_seeds(self, seeds: tuple[int, ...]) -> "Study":
        """With other seeds, for all variants."""
        variants = tuple(dataclasses.replace(variant, seeds=None) for variant in self.variants)
        return dataclasses.replace(self, seeds=seeds, variants=variants)

    def runs(self) -> list[Run]:
        runs: list[Run] = []
        for task, variant in itertools.product(self.tasks, self.variants):
            if variant.is_for(task):
                grid = {name: [value] for name, value in variant.settings.items()}
                seeds = self.seeds if variant.seeds is None else variant.seeds
                made = make_runs(task, variant.algo, variant.preset, seeds, grid)
                runs += [dataclasses.replace(run, label=variant.name) for run in made]
        return runs


def shipped_studies() -> dict[str, str]:
    """Name and title of every study of the package."""
    return {
        path.stem: shipped_study(path.stem)["title"]
        for path in sorted(SHIPPED_STUDIES.glob("*.toml"))
    }


def load_study(name: str) -> Study:
    """A shipped study by name, or a user's by the path of its TOML file."""
    is_own = Path(name).suffix == ".toml"
    path = Path(name) if is_own else SHIPPED_STUDIES / f"{name}.toml"
    if not is_own and not path.is_file():
        known = ", ".join(shipped_studies())
        raise UserError(f"There is no study {name!r}; there are {known}, or give a .toml file.")
    return _Reader(path, *read_toml(path)).study()


class _Reader:
    """Reads a definition; a mistake is told with its line."""

    def __init__(self, path: Path, text: str, content: dict[str, Any]) -> None:
        self.path, self.lines, self.content = path, text.splitlines(), content

    def study(self) -> Study:
        content = self.content
        self._check(content, FORMAT["study"], "a study")
        for key in ("tasks", "variant"):
            if not content.get(key):
                raise self._mistake(key, f"a study needs at least one {key.removesuffix('s')}")
        about_tasks = content.get("task", {})
        if twice := _repeated(content["tasks"]):
            raise self._mistake(twice, f"the task {twice!r} is named twice")
        if unknown := [name for name in about_tasks if name not in content["tasks"]]:
            raise self._mistake(
                unknown[0], f"[task.{unknown[0]}] is about a task that the study does not have"
            )
        tasks = tuple(self._task(name, about_tasks.get(name, {})) for name in content["tasks"])
        variants = tuple(
            variant for block in content["variant"] for variant in self._variants(block)
        )
        for task in tasks:
            if twice := _repeated([variant.name for variant in variants if variant.is_for(task)]):
                raise self._mistake(
                    twice, f"two variants are called {twice!r}; give one another name"
                )
        baseline = content.get("baseline")
        if baseline is not None and baseline not in {variant.name for variant in variants}:
            raise self._mistake("baseline", f"the baseline {baseline!r} is no variant of the study")
        self._check_options(content, "[options]")
        kind = content.get("kind", KINDS[0])
        if kind not in KINDS:
            raise self._mistake("kind", f"there is no kind {kind!r}; {did_you_mean(kind, KINDS)}")
        study = Study(
            name=self.path.stem,
            definition=self.path.stem if self.path.parent == SHIPPED_STUDIES else str(self.path),
            tasks=tasks,
            variants=variants,
            seeds=self._seeds(content.get("seeds", "0:5")),
            task_options={
                name: about["options"] for name, about in about_tasks.items() if "options" in about
            },
            halving=self._halving(content["halving"], variants) if "halving" in content else None,
            **{"title": self.path.stem}
            | {key: content[key] for key in AS_WRITTEN if key in content},
        )
        study.runs()  # a wrong setting is told now, not when its cohort starts
        return study

    def _seeds(self, written: Any) -> tuple[int, ...]:
        text = ",".join(map(str, written)) if isinstance(written, list) else str(written)
        return tuple(self._located(text if text == str(written) else "seeds", parse_seeds, text))

    def _halving(self, about: Mapping[str, Any], variants: Sequence[StudyVariant]) -> Halving:
        self._check(about, FORMAT["halving"], "[halving]")
        steps, names = about.get("steps", {}), self.content["tasks"]
        if {*steps} != {*names} or len(
            {len(rungs) for rungs in steps.values() if isinstance(rungs, list)}
        ) != 1:
            raise self._mistake(
                "halving", "[halving.steps] needs a list for every task, all with as many rungs"
            )
        for name, rungs in steps.items():
            if (
                not isinstance(rungs, list)
                or not rungs
                or any(type(n) is not int or n < 1 for n in rungs)
            ):
                raise self._mistake(
                    name, f"the rungs of {name} must be numbers of steps from 1 on, not {rungs!r}"
                )
        if unknown := {*about.get("controls", ())} - {variant.name for variant in variants}:
            raise self._mistake(
                "controls", f"the control {min(unknown)!r} is no variant of the study"
            )
        return Halving(steps, about.get("keep", Halving.keep), tuple(about.get("controls", ())))

    def _task(self, name: str, about: Mapping[str, Any]) -> Task:
        task: Task = self._located(name, get_task, name)
        self._check(about, FORMAT["task"], f"[task.{name}]")
        self._check_options(about, f"[task.{name}.options]")
        return dataclasses.replace(
            task, **{key: value for key, value in about.items() if key != "options"}
        )

    def _check_options(self, table: Mapping[str, Any], title: str) -> None:
        options = table.get("options", {})
        self._check(options, OPTIONS, title)
        for key, value in options.items():
            self._located(key, Options, steps=1, **{key: value})

    def _variants(self, block: Mapping[str, Any]) -> list[StudyVariant]:
        self._check(block, FORMAT["variant"], "a variant")
        if "algo" not in block:
            raise self._mistake("[[variant]]", "a variant needs an algo")
        algo, preset, sweep = block["algo"], block.get("preset", "paper"), block.get("sweep", {})
        name = block.get("name", algo)
        tasks = tuple(block["tasks"]) if "tasks" in block else None
        seeds = self._seeds(block["seeds"]) if "seeds" in block else None
        if unknown := [task for task in tasks or () if task not in self.content["tasks"]]:
            raise self._mistake(
                unknown[0], f"the variant {name!r} is for {unknown[0]!r}, no task of the study"
            )
        for key, values in sweep.items():
            if not isinstance(values, list) or not values:
                raise self._mistake(key, f"the sweep over {key} has no values")
        variants = []
        for values in itertools.product(*sweep.values()):
            swept = dict(zip(sweep, values, strict=True))
            label = "-".join([name, *(f"{key}={value}" for key, value in swept.items())])
            settings = {**self.content.get("set", {}), **block.get("set", {}), **swept}
            self._located(algo, make_config, algo, preset, settings)
            variants.append(StudyVariant(label, algo, preset, settings, tasks, seeds))
        return variants

    def _check(self, table: Mapping[str, Any], keys: Mapping[str, str], what: str) -> None:
        for key, value in table.items():
            if key not in keys:
                raise self._mistake(key, f"{what} has no key {key!r}; {did_you_mean(key, keys)}")
            if keys[key] in CHECKS and not CHECKS[keys[key]](value):
                raise self._mistake(key, f"{key} must be {keys[key]}, not {value!r}")

    def _located(
        self, key: str, function: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Any:
        try:
            return function(*arguments, **named)
        except UserError as error:
            raise self._mistake(key, str(error)) from error

    def _mistake(self, key: str, reason: str) -> UserError:
        word = re.compile(rf"(?<!\w){re.escape(key)}(?!\w)")  # not `task` in `tasks`
        line = next((number for number, text in enumerate(self.lines, 1) if word.search(text)), 1)
        return UserError(
            f"{self.path}, line {line}: {reason}{'' if reason.endswith(('.', '?')) else '.'}"
        )


def _repeated(names: Sequence[str]) -> str | None:
    return next((name for name in names if names.count(name) > 1), None)
