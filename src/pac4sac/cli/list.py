"""`pac4sac list`: tables of what there is to choose from."""

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from pac4sac.base.text import setting_text
from pac4sac.cli.shared import plain_table


@dataclass(frozen=True)
class ListCommand:
    """List what there is to choose from."""

    # What to list.
    what: Annotated[
        Positional[Literal["tasks", "algos", "presets", "settings", "studies"]],
        arg(metavar="tasks|algos|presets|settings|studies"),
    ]
    # Algorithm whose settings are listed.
    algo: str = "pac4sac"

    def run(self, console: Console) -> int:
        tables = {"tasks": tasks, "algos": algorithms, "presets": presets, "studies": studies}
        console.print(settings(self.algo) if self.what == "settings" else tables[self.what]())
        return 0


def tasks() -> Table:
    from pac4sac.tasks import TASKS

    headers = ("name", "environment", "steps", "episode", "solved above", "updates\nper step")
    caption = "The four of the paper. Any Gymnasium id with continuous actions is a task too, such as Pendulum-v1."
    table = plain_table("Tasks", headers, caption=caption)
    for task in TASKS.values():
        limit = "" if task.r_limit is None else f"{task.r_limit:g}"
        numbers = (f"{task.steps:,}", f"{task.horizon or '':,}", limit, str(task.updates_per_step))
        table.add_row(task.name, task.env_id, *numbers)
    return table


def algorithms() -> Table:
    from pac4sac.agents import ALGORITHMS

    caption = "Your own: --algo module:Class. Their settings: pac4sac list settings --algo NAME"
    table = plain_table("Algorithms", ("name", "what it is", "presets"), caption=caption)
    for name, algorithm in ALGORITHMS.items():
        table.add_row(name, algorithm.title or algorithm.agent.title, ", ".join(algorithm.agent.presets))
    return table


def presets() -> Table:
    from pac4sac.agents import ALGORITHMS

    table = plain_table("Presets", ("algorithm", "preset", "settings in which it differs from the defaults"))
    for name, algorithm in ALGORITHMS.items():
        for preset, values in algorithm.agent.presets.items():
            texts = [f"{key}={setting_text(value)}" for key, value in {**algorithm.defaults, **values}.items()]
            if (times := algorithm.agent.updates_of_task.get(preset, 1)) > 1:
                texts.append(f"updates_per_step={times} × the task's")
            table.add_row(name, preset, ", ".join(texts) or "none")
    return table


def settings(algo: str) -> Table:
    from pac4sac.agents import get_algorithm

    algorithm = get_algorithm(algo)
    caption = "Set one by --set NAME=VALUE. Those with a star can differ between the runs of one cohort."
    table = plain_table(f"Settings of {algo}", ("name", "default", "allowed", "meaning"), caption=caption)
    for f in fields(algorithm.agent.Config):
        allowed = ("true", "false") if f.metadata["allowed"] is None else f.metadata["allowed"]
        values = ", ".join(allowed) if isinstance(allowed, tuple) else str(allowed).replace("at least -inf", "any")
        name = f"{f.name}*" if f.metadata["per_run"] else f.name
        table.add_row(name, setting_text(algorithm.defaults.get(f.name, f.default)), values, f.metadata["help"])
    return table


def studies() -> Table:
    from pac4sac.studies.definition import load_study, shipped_studies

    caption = "Run one by pac4sac study run NAME. One of your own is a TOML file, see docs/studies.md."
    table = plain_table("Studies", ("name", "what it is", "runs"), caption=caption)
    for name, title in shipped_studies().items():
        table.add_row(name, title, str(len(load_study(name).runs())))
    return table
