"""`pac4sac list`: tables of tasks, algorithms, presets, settings, studies and names of other
libraries. Their titles, headers and captions are in list.toml.

listed.json caches the rows of algorithms, presets and settings, because torch is slow to import. A
test checks that it is up to date; `python -m pac4sac.cli.list` regenerates it.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from pac4sac.base.known_names import OPTIONS, SETTINGS
from pac4sac.base.ranges import ANY, Allowed
from pac4sac.base.text import assignments, setting_text
from pac4sac.cli.shared import plain_table, show_whole_words

if TYPE_CHECKING:
    from pac4sac.tasks import Task

TEXTS = Path(__file__).with_suffix(".toml")
LISTED = Path(__file__).with_name("listed.json")
Row = Sequence[str]


@dataclass(frozen=True)
class List:
    """List tasks, algorithms, presets, settings or studies."""

    # List items of this kind.
    what: Annotated[
        Positional[Literal["tasks", "algos", "presets", "settings", "studies", "names"]],
        arg(metavar="tasks|algos|presets|settings|studies|names"),
    ]
    algo: str = "pac4sac"  # List the settings of this algorithm.

    def run(self, console: Console) -> int:
        texts = tomllib.loads(TEXTS.read_text(encoding="utf-8"))[self.what]
        title, headers = texts["title"].format(algo=self.algo), texts["headers"]
        table = plain_table(title, *headers, caption=texts.get("caption"))
        for row in self.rows():
            table.add_row(*row)
        show_whole_words(console, table)
        return 0

    def rows(self) -> Iterable[Row]:
        """Return the rows of the table, from listed.json if it has them."""
        if self.what == "tasks":
            return task_rows()
        if self.what == "names":
            return name_rows()
        listed = json.loads(LISTED.read_text(encoding="utf-8"))
        name = f"settings of {self.algo}" if self.what == "settings" else self.what
        if name not in listed:
            return setting_rows(self.algo)
        return [line.split("\t") for line in listed[name]]


def task_rows() -> Iterator[Row]:
    """Yield the rows of the tasks, with a blank line between groups."""
    from pac4sac.tasks.catalogue import TASK_GROUPS

    for group, (extra, tasks) in enumerate(TASK_GROUPS):
        if group:
            yield ()
        for task in tasks.values():
            yield task_row(task, extra)


def task_row(task: "Task", extra: str) -> Row:
    limit = "" if task.r_limit is None else f"{task.r_limit:g}"
    horizon = "" if task.horizon is None else f"{task.horizon:,}"
    return task.name, extra, f"{task.steps:,}", horizon, limit, str(task.updates_per_step)


def name_rows() -> Iterator[Row]:
    """Yield the names of other libraries, with our name or advice."""
    for names in (SETTINGS, OPTIONS):
        for name, there in names.items():
            yield name, there.where, there.ours or there.answer
        if names is SETTINGS:
            yield ()


def setting_rows(algo: str) -> Iterator[Row]:
    """Yield name, default, allowed values and help of each setting of an algorithm; a star marks
    settings that can differ between the runs of a cohort."""
    from pac4sac.agents import get_algorithm

    algorithm = get_algorithm(algo)
    for f in fields(algorithm.agent.Config):
        default = setting_text(algorithm.defaults.get(f.name, f.default))
        name = f"{f.name}*" if f.metadata["per_run"] else f.name
        yield name, default, allowed_text(f.metadata["allowed"]), f.metadata["help"]


def allowed_text(allowed: Allowed) -> str:
    """Return the allowed values of a setting, such as "at least 0" or "relu, tanh"."""
    if allowed is None:
        return "true, false"
    if isinstance(allowed, tuple):
        return ", ".join(allowed)
    return "any" if allowed == ANY else str(allowed)


def preset_rows() -> Iterator[Row]:
    """Yield algorithm, preset and the settings that the preset changes."""
    from pac4sac.agents import ALGORITHMS

    for name, algorithm in ALGORITHMS.items():
        for preset, values in algorithm.agent.presets.items():
            settings = {**algorithm.defaults, **values}
            times = algorithm.agent.updates_of_task.get(preset, 1)
            if times > 1:
                settings["updates_per_step"] = f"{times} × the task's"
            yield name, preset, ", ".join(assignments(settings)) or "none"


def algorithm_rows() -> Iterator[Row]:
    """Yield name, title and presets of each algorithm."""
    from pac4sac.agents import ALGORITHMS

    for name, algorithm in ALGORITHMS.items():
        yield name, algorithm.title or algorithm.agent.title, ", ".join(algorithm.agent.presets)


def study_rows() -> Iterator[Row]:
    """Yield name, title and number of runs of each study of the package."""
    from pac4sac.studies.definition import load_study
    from pac4sac.studies.shipped import shipped_studies

    for name, title in shipped_studies().items():
        yield name, title, str(len(load_study(name).runs()))


def listed_content() -> str:
    """Return the content that listed.json must have."""
    from pac4sac.agents import ALGORITHMS

    listed = {"algos": algorithm_rows(), "presets": preset_rows(), "studies": study_rows()}
    listed |= {f"settings of {name}": setting_rows(name) for name in ALGORITHMS}
    lines = {name: ["\t".join(row) for row in rows] for name, rows in listed.items()}
    return json.dumps(lines, ensure_ascii=False, indent=0) + "\n"


if __name__ == "__main__":
    LISTED.write_text(listed_content(), encoding="utf-8")
