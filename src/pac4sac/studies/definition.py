"""Study definitions in TOML, shipped with the package or the user's own."""

import dataclasses
import difflib
import itertools
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin

from pac4sac.agents import make_config
from pac4sac.base.errors import UserError
from pac4sac.paper.shipped import FOLDER as SHIPPED_STUDIES
from pac4sac.runs.run import Run, make_runs, safe_label
from pac4sac.runs.seeds import parse_seeds
from pac4sac.tasks import Task, get_task
from pac4sac.training.options import Options

# What a report makes of a study, or `run` of its runs; see docs/studies.md.
KINDS = (
    *("comparison", "table-1", "table-2", "shooting", "controls", "overestimation", "beyond", "best"),
    *("calibration", "search", "cost", "smoke"),
)
Table = dict[str, object]
STUDY_KEYS: Mapping[str, Any] = {
    "title": str,
    "question": str,
    "kind": str,
    "tasks": list[str],
    "seeds": object,
    "baseline": str,
    "repetitions": int,
    "options": Table,
    "set": Table,
    "task": dict[str, Table],
    "variant": list[Table],
}
VARIANT_KEYS: Mapping[str, Any] = {
    "name": str,
    "algo": str,
    "preset": str,
    "set": Table,
    "sweep": Table,
    "tasks": list[str],
}
TASK_KEYS: Mapping[str, Any] = {
    "horizon": int,
    "r_limit": float,
    "steps": int,
    "updates_per_step": int,
    "env_kwargs": Table,
    "options": Table,
}
# Steps are the task's, and all runs of a study start from nothing.
OPTION_KEYS = {f.name: object for f in dataclasses.fields(Options) if f.name not in ("steps", "start_from")}
MEANINGS: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number from 1 on",
    float: "a number",
    Table: "a table",
    list[str]: "a list of names",
    list[Table]: "a list of tables",
    dict[str, Table]: "a table of tables",
}


@dataclass(frozen=True)
class Variant:
    """One row of a table: an algorithm with settings, under a name."""

    name: str
    algo: str
    preset: str = "paper"
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] | None = None  # None: all tasks of the study


@dataclass(frozen=True)
class Study:
    name: str
    title: str
    kind: str
    tasks: tuple[Task, ...]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    question: str = ""
    baseline: str | None = None
    repetitions: int = 20  # of a cost measurement
    options: Mapping[str, Any] = field(default_factory=dict)
    task_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name of the task

    def options_for(self, task: Task) -> dict[str, Any]:
        return {**self.options, **self.task_options.get(task.name, {})}

    def runs(self) -> list[Run]:
        found: list[Run] = []
        for task in self.tasks:
            for variant in self.variants:
                if variant.tasks is None or task.name in variant.tasks:
                    grid = {name: [value] for name, value in variant.settings.items()}
                    made = make_runs(task, variant.algo, variant.preset, self.seeds, grid)
                    found += [dataclasses.replace(run, label=safe_label(variant.name)) for run in made]
        return found


def shipped_studies() -> dict[str, str]:
    """Name and title of every study of the package."""
    return {path.stem: tomllib.loads(path.read_text())["title"] for path in sorted(SHIPPED_STUDIES.glob("*.toml"))}


def load_study(name: str) -> Study:
    """A shipped study by name, or a user's by the path of its TOML file."""
    path = Path(name)
    if path.suffix != ".toml":
        path = SHIPPED_STUDIES / f"{name}.toml"
        if not path.is_file():
            known = shipped_studies()
            close = difflib.get_close_matches(name, known, n=3)
            hint = (
                f"did you mean {' or '.join(close)}?"
                if close
                else f"there are {', '.join(known)}, or give a .toml file."
            )
            raise UserError(f"There is no study {name!r}; {hint}")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"The study {path} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no TOML file: {error}.") from error
    return _Reader(path, text).study()


class _Reader:
    """Reads a definition; a mistake is told with its line."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.lines = path, text.splitlines()
        try:
            self.content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"{path}: {error}.") from error

    def study(self) -> Study:
        c = self.content
        self._check(c, STUDY_KEYS, "a study")
        for key in ("tasks", "variant"):
            if not c.get(key):
                raise self._mistake(key, f"a study needs at least one {key.removesuffix('s')}")
        if twice := [name for name in c["tasks"] if c["tasks"].count(name) > 1]:
            raise self._mistake(twice[0], f"the task {twice[0]!r} is named twice")
        if unknown := [name for name in c.get("task", {}) if name not in c["tasks"]]:
            raise self._mistake(unknown[0], f"[task.{unknown[0]}] is about a task that the study does not have")
        tasks = tuple(self._task(name) for name in c["tasks"])
        variants = tuple(variant for block in c["variant"] for variant in self._variants(block))
        seen: set[tuple[str, str]] = set()
        for task, variant in itertools.product(tasks, variants):
            if variant.tasks is None or task.name in variant.tasks:
                if (task.name, variant.name) in seen:
                    raise self._mistake(
                        variant.name, f"two variants are called {variant.name!r}; give one another name"
                    )
                seen.add((task.name, variant.name))
        baseline = c.get("baseline")
        if baseline is not None and baseline not in {variant.name for variant in variants}:
            raise self._mistake("baseline", f"the baseline {baseline!r} is no variant of the study")
        task_options = {name: about["options"] for name, about in c.get("task", {}).items() if "options" in about}
        for place, options in {"options": c.get("options", {}), **task_options}.items():
            self._check(options, OPTION_KEYS, "[options]" if place == "options" else f"[task.{place}.options]")
            for key, value in options.items():
                self._located(key, Options, steps=1, **{key: value})
        kind = c.get("kind", KINDS[0])
        if kind not in KINDS:
            raise self._mistake("kind", f"there is no kind {kind!r}; {_hint(kind, KINDS)}")
        study = Study(
            name=self.path.stem,
            title=c.get("title", self.path.stem),
            question=c.get("question", ""),
            kind=kind,
            tasks=tasks,
            variants=variants,
            seeds=tuple(self._located("seeds", parse_seeds, _seeds_text(c.get("seeds", "0:5")))),
            baseline=baseline,
            repetitions=c.get("repetitions", 20),
            options=c.get("options", {}),
            task_options=task_options,
        )
        study.runs()  # a wrong setting is told now, not when its cohort starts
        return study

    def _task(self, name: str) -> Task:
        task: Task = self._located(name, get_task, name)
        overrides = self.content.get("task", {}).get(name, {})
        self._check(overrides, TASK_KEYS, f"[task.{name}]")
        changes = {key: value for key, value in overrides.items() if key != "options"}
        return dataclasses.replace(task, **changes)

    def _variants(self, block: Mapping[str, Any]) -> list[Variant]:
        self._check(block, VARIANT_KEYS, "a variant")
        if "algo" not in block:
            raise self._mistake("[[variant]]", "a variant needs an algo")
        common = {**self.content.get("set", {}), **block.get("set", {})}
        name, sweep = block.get("name", block["algo"]), block.get("sweep", {})
        tasks = tuple(block["tasks"]) if "tasks" in block else None
        if unknown := [task for task in tasks or () if task not in self.content["tasks"]]:
            raise self._mistake(unknown[0], f"the variant {name!r} is for {unknown[0]!r}, no task of the study")
        found = []
        for key, values in sweep.items():
            if not isinstance(values, list) or not values:
                raise self._mistake(key, f"the sweep over {key} has no values")
        for values in itertools.product(*sweep.values()):
            chosen = dict(zip(sweep, values, strict=True))
            label = "-".join([name, *(f"{key}={value}" for key, value in chosen.items())])
            settings = {**common, **chosen}
            self._located(block["algo"], make_config, block["algo"], block.get("preset", "paper"), settings)
            found.append(Variant(label, block["algo"], block.get("preset", "paper"), settings, tasks))
        return found

    def _check(self, table: Mapping[str, Any], kinds: Mapping[str, Any], what: str) -> None:
        for key, value in table.items():
            if key not in kinds:
                raise self._mistake(key, f"{what} has no key {key!r}; {_hint(key, kinds)}")
            if not _is_a(kinds[key], value):
                raise self._mistake(key, f"{key} must be {MEANINGS[kinds[key]]}, not {value!r}")

    def _located(self, key: str, function: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except UserError as error:
            raise self._mistake(key, str(error)) from error

    def _mistake(self, key: str, reason: str) -> UserError:
        word = re.compile(rf"(?<!\w){re.escape(key)}(?!\w)")  # not `task` in `tasks`
        line = next((number for number, text in enumerate(self.lines, 1) if word.search(text)), 1)
        return UserError(f"{self.path}, line {line}: {reason}{'' if reason.endswith(('.', '?')) else '.'}")


def _hint(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"


def _seeds_text(seeds: Any) -> str:
    return ",".join(map(str, seeds)) if isinstance(seeds, list) else str(seeds)


def _is_a(kind: Any, value: Any) -> bool:
    if get_origin(kind) is not None:
        members = value.values() if isinstance(value, dict) else value
        return isinstance(value, get_origin(kind)) and all(_is_a(get_args(kind)[-1], member) for member in members)
    if isinstance(value, bool):
        return kind is object
    if kind is int:
        return isinstance(value, int) and value > 0
    return isinstance(value, int | float if kind is float else kind)
