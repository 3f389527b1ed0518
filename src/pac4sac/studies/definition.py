"""Study definitions in TOML, shipped with the package or the user's own."""

import dataclasses
import difflib
import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pac4sac.agents import make_config
from pac4sac.arguments import parse_seeds
from pac4sac.errors import UserError
from pac4sac.tasks import Task, get_task
from pac4sac.training.options import Options
from pac4sac.training.runs import Run, make_runs, safe_label

SHIPPED = Path(__file__).parent / "shipped"
STUDY_KEYS = (
    "title",
    "question",
    "kind",
    "tasks",
    "seeds",
    "baseline",
    "repetitions",
    "options",
    "set",
    "task",
    "variant",
)
VARIANT_KEYS = ("name", "algo", "preset", "set", "sweep", "tasks")
TASK_KEYS = ("horizon", "r_limit", "steps", "updates_per_step", "env_kwargs", "options")


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
    return {path.stem: tomllib.loads(path.read_text())["title"] for path in sorted(SHIPPED.glob("*.toml"))}


def load_study(name: str) -> Study:
    """A shipped study by name, or a user's by the path of its TOML file."""
    path = Path(name)
    if path.suffix != ".toml":
        path = SHIPPED / f"{name}.toml"
        if not path.is_file():
            known = shipped_studies()
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or list(known)
            raise UserError(f"There is no study {name!r}; there are {', '.join(close)}, or give a .toml file.")
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(f"The study {path} cannot be read ({error.strerror}).") from error
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
        self._only(c, STUDY_KEYS, "a study")
        for key in ("tasks", "variant"):
            if not isinstance(c.get(key), list) or not c[key]:
                raise self._mistake(key, f"a study needs at least one {key.removesuffix('s')}")
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
        known = tuple(f.name for f in dataclasses.fields(Options))
        task_options = {name: about["options"] for name, about in c.get("task", {}).items() if "options" in about}
        for place, options in {"options": c.get("options", {}), **task_options}.items():
            self._only(options, known, "[options]" if place == "options" else f"[task.{place}.options]")
        unknown = [name for name in c.get("task", {}) if name not in c["tasks"]]
        if unknown:
            raise self._mistake(unknown[0], f"[task.{unknown[0]}] is about a task that the study does not have")
        study = Study(
            name=self.path.stem,
            title=c.get("title", self.path.stem),
            question=c.get("question", ""),
            kind=c.get("kind", "comparison"),
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
        self._only(overrides, TASK_KEYS, f"[task.{name}]")
        changes = {key: value for key, value in overrides.items() if key != "options"}
        return dataclasses.replace(task, **changes)

    def _variants(self, block: Mapping[str, Any]) -> list[Variant]:
        self._only(block, VARIANT_KEYS, "a variant")
        if "algo" not in block:
            raise self._mistake("[[variant]]", "a variant needs an algo")
        common = {**self.content.get("set", {}), **block.get("set", {})}
        name, sweep = block.get("name", block["algo"]), block.get("sweep", {})
        tasks = tuple(block["tasks"]) if "tasks" in block else None
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

    def _only(self, table: Mapping[str, Any], allowed: tuple[str, ...], what: str) -> None:
        for key in table:
            if key not in allowed:
                close = difflib.get_close_matches(key, allowed, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(allowed)}"
                raise self._mistake(key, f"{what} has no key {key!r}; {hint}")

    def _located(self, key: str, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except UserError as error:
            raise self._mistake(key, str(error).rstrip(".")) from error

    def _mistake(self, key: str, reason: str) -> UserError:
        line = next((number for number, text in enumerate(self.lines, 1) if key in text), 1)
        return UserError(f"{self.path}, line {line}: {reason}.")


def _seeds_text(seeds: Any) -> str:
    return ",".join(map(str, seeds)) if isinstance(seeds, list) else str(seeds)
