"""Tables of what there is to choose from: tasks, algorithms, presets, settings and studies."""

import dataclasses
from collections.abc import Callable

from rich import box
from rich.table import Table

from pac4sac.base.text import setting_text


def tasks(_: str) -> Table:
    from pac4sac.tasks import TASKS

    table = _table("Tasks", "name", "environment", "steps", "episode", "solved above", "updates\nper step")
    table.caption = "The four of the paper. Any Gymnasium id with continuous actions is a task too, Pendulum-v1 say."
    for task in TASKS.values():
        limit = "" if task.r_limit is None else f"{task.r_limit:g}"
        numbers = (f"{task.steps:,}", f"{task.horizon or '':,}", limit, str(task.updates_per_step))
        table.add_row(task.name, task.env_id, *numbers)
    return table


def algos(_: str) -> Table:
    from pac4sac.agents import ALGORITHMS

    table = _table("Algorithms", "name", "what it is", "presets")
    table.caption = "Your own: --algo module:Class. Their settings: pac4sac list settings --algo NAME"
    for name, algorithm in ALGORITHMS.items():
        table.add_row(name, algorithm.title, ", ".join(algorithm.agent.presets))
    return table


def presets(_: str) -> Table:
    from pac4sac.agents import ALGORITHMS

    table = _table("Presets", "algorithm", "preset", "settings in which it differs from the defaults")
    for name, algorithm in ALGORITHMS.items():
        for preset, values in algorithm.agent.presets.items():
            differing = {**algorithm.defaults, **values}
            told = ", ".join(f"{setting}={setting_text(value)}" for setting, value in differing.items())
            if (times := algorithm.agent.updates_of_task.get(preset, 1)) > 1:
                told += f", updates_per_step={times} × the task's"
            table.add_row(name, preset, told or "none")
    return table


def settings(algo: str) -> Table:
    from pac4sac.agents import get_algorithm

    algorithm = get_algorithm(algo)
    table = _table(f"Settings of {algo}", "name", "default", "allowed", "meaning")
    table.caption = "--set NAME=VALUE; those with a star can differ between the runs of one cohort"
    for f in dataclasses.fields(algorithm.agent.Config):
        allowed = f.metadata["allowed"]
        told = "true, false" if allowed is None else ", ".join(allowed) if isinstance(allowed, tuple) else str(allowed)
        star = "*" if f.metadata["per_run"] else ""
        default = algorithm.defaults.get(f.name, f.default)
        table.add_row(f.name + star, setting_text(default), told.replace("at least -inf", "any"), f.metadata["help"])
    return table


def studies(_: str) -> Table:
    from pac4sac.studies.definition import load_study, shipped_studies

    table = _table("Studies", "name", "what it is", "runs")
    table.caption = "pac4sac study run NAME; your own: a TOML file, see docs/studies.md"
    for name, title in shipped_studies().items():
        table.add_row(name, title, str(len(load_study(name).runs())))
    return table


TABLES: dict[str, Callable[[str], Table]] = {
    "tasks": tasks,
    "algos": algos,
    "presets": presets,
    "settings": settings,
    "studies": studies,
}


def _table(title: str, *headers: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for header in headers:
        table.add_column(header, overflow="fold")
    return table
