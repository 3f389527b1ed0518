"""`pac4sac list`: tables of what there is to choose from. Their titles, headers and captions are in list.toml."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from pac4sac.base.text import setting_text
from pac4sac.cli.shared import plain_table


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
        texts = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))[self.what]
        table = plain_table(texts["title"].format(algo=self.algo), *texts["headers"], caption=texts.get("caption"))
        for row in self.rows():
            table.add_row(*row)
        console.print(table)
        return 0

    def rows(self) -> Iterator[tuple[str, ...]]:
        if self.what == "tasks":
            from pac4sac.tasks import TASKS

            for task in TASKS.values():
                limit = "" if task.r_limit is None else f"{task.r_limit:g}"
                numbers = (f"{task.steps:,}", f"{task.horizon or '':,}", limit, str(task.updates_per_step))
                yield task.name, task.env_id, *numbers
            return
        from pac4sac.agents import ALGORITHMS, get_algorithm  # torch takes its time to import
        from pac4sac.studies.definition import load_study, shipped_studies

        match self.what:
            case "algos":
                for name, algorithm in ALGORITHMS.items():
                    yield name, algorithm.title or algorithm.agent.title, ", ".join(algorithm.agent.presets)
            case "presets":
                for name, algorithm in ALGORITHMS.items():
                    for preset, values in algorithm.agent.presets.items():
                        changed = {key: setting_text(value) for key, value in {**algorithm.defaults, **values}.items()}
                        if (times := algorithm.agent.updates_of_task.get(preset, 1)) > 1:
                            changed["updates_per_step"] = f"{times} × the task's"
                        yield name, preset, ", ".join(f"{key}={text}" for key, text in changed.items()) or "none"
            case "settings":
                algorithm = get_algorithm(self.algo)
                for f in fields(algorithm.agent.Config):
                    allowed = ("true", "false") if f.metadata["allowed"] is None else f.metadata["allowed"]
                    words = ", ".join(allowed) if isinstance(allowed, tuple) else str(allowed)
                    default = setting_text(algorithm.defaults.get(f.name, f.default))
                    name = f"{f.name}*" if f.metadata["per_run"] else f.name
                    yield name, default, words.replace("at least -inf", "any"), f.metadata["help"]
            case "studies":
                for name, title in shipped_studies().items():
                    yield name, title, str(len(load_study(name).runs()))
