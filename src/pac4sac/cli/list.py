"""`pac4sac list`: tables of what there is to choose from. Their titles, headers and captions are in
list.toml.

What the classes of the algorithms say is also in listed.json, since torch takes its time to import;
a test holds that it is the same. `python -m pac4sac.cli.list` writes it anew."""

import json
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from pac4sac.base.text import setting_text
from pac4sac.cli.shared import plain_table, show_whole_words

LISTED = Path(__file__).parent / "listed.json"
Row = Sequence[str]


@dataclass(frozen=True)
class List:
    """List what there is to choose from."""

    # What to list.
    what: Annotated[
        Positional[Literal["tasks", "algos", "presets", "settings", "studies"]],
        arg(metavar="tasks|algos|presets|settings|studies"),
    ]
    algo: str = "pac4sac"  # Algorithm whose settings are listed.

    def run(self, console: Console) -> int:
        texts = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))[
            self.what
        ]
        table = plain_table(
            texts["title"].format(algo=self.algo), *texts["headers"], caption=texts.get("caption")
        )
        for row in self.rows():
            table.add_row(*row)
        show_whole_words(console, table)
        return 0

    def rows(self) -> Iterable[Row]:
        if self.what == "tasks":
            return task_rows()
        listed = json.loads(LISTED.read_text(encoding="utf-8"))
        known = listed.get(f"settings of {self.algo}" if self.what == "settings" else self.what)
        return setting_rows(self.algo) if known is None else (line.split("\t") for line in known)


def task_rows() -> Iterator[Row]:
    from pac4sac.tasks.registry import FIELD_TASKS, TASKS

    for extra, tasks in {"": TASKS, **FIELD_TASKS}.items():
        if extra:
            yield ()  # a blank line between groups
        for task in tasks.values():
            limit = "" if task.r_limit is None else f"{task.r_limit:g}"
            numbers = (
                f"{task.steps:,}",
                f"{task.horizon or '':,}",
                limit,
                str(task.updates_per_step),
            )
            yield task.name, extra, *numbers


def setting_rows(algo: str) -> Iterator[Row]:
    from pac4sac.agents import get_algorithm

    algorithm = get_algorithm(algo)
    for f in fields(algorithm.agent.Config):
        allowed = ("true", "false") if f.metadata["allowed"] is None else f.metadata["allowed"]
        words = ", ".join(allowed) if isinstance(allowed, tuple) else str(allowed)
        default = setting_text(algorithm.defaults.get(f.name, f.default))
        name = f"{f.name}*" if f.metadata["per_run"] else f.name
        yield name, default, words.replace("at least -inf", "any"), f.metadata["help"]


def preset_rows() -> Iterator[Row]:
    from pac4sac.agents import ALGORITHMS

    for name, algorithm in ALGORITHMS.items():
        for preset, values in algorithm.agent.presets.items():
            changed = {
                key: setting_text(value) for key, value in {**algorithm.defaults, **values}.items()
            }
            if (times := algorithm.agent.updates_of_task.get(preset, 1)) > 1:
                changed["updates_per_step"] = f"{times} × the task's"
            yield (
                name,
                preset,
                ", ".join(f"{key}={text}" for key, text in changed.items()) or "none",
            )


def listed_content() -> str:
    """What listed.json must hold."""
    from pac4sac.agents import ALGORITHMS
    from pac4sac.studies.definition import load_study
    from pac4sac.studies.shipped import shipped_studies

    about = {name: (algorithm.title, algorithm.agent) for name, algorithm in ALGORITHMS.items()}
    listed: dict[str, Iterable[Row]] = {
        "algos": [
            (name, title or agent.title, ", ".join(agent.presets))
            for name, (title, agent) in about.items()
        ],
        "presets": preset_rows(),
        "studies": [
            (name, title, str(len(load_study(name).runs())))
            for name, title in shipped_studies().items()
        ],
        **{f"settings of {name}": setting_rows(name) for name in ALGORITHMS},
    }
    lines = {name: list(map("\t".join, rows)) for name, rows in listed.items()}
    return json.dumps(lines, ensure_ascii=False, indent=0) + "\n"


if __name__ == "__main__":
    LISTED.write_text(listed_content(), encoding="utf-8")
