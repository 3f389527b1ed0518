"""`pac4sac list`: tables of what there is to choose from."""

from collections.abc import Iterable, Sequence
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

    rows = []
    for task in TASKS.values():
        limit = "" if task.r_limit is None else f"{task.r_limit:g}"
        numbers = (f"{task.steps:,}", f"{task.horizon or '':,}", limit, str(task.updates_per_step))
        rows.append((task.name, task.env_id, *numbers))
    headers = ("name", "environment", "steps", "episode", "solved above", "updates\nper step")
    caption = "The four of the paper. Any Gymnasium id with continuous actions is a task too, such as Pendulum-v1."
    return _table("Tasks", headers, rows, caption)


def algorithms() -> Table:
    from pac4sac.agents import ALGORITHMS

    rows = ((name, algo.title, ", ".join(algo.agent.presets)) for name, algo in ALGORITHMS.items())
    caption = "Your own: --algo module:Class. Their settings: pac4sac list settings --algo NAME"
    return _table("Algorithms", ("name", "what it is", "presets"), rows, caption)


def presets() -> Table:
    from pac4sac.agents import ALGORITHMS

    rows = []
    for name, algorithm in ALGORITHMS.items():
        for preset, values in algorithm.agent.presets.items():
            texts = [f"{key}={setting_text(value)}" for key, value in {**algorithm.defaults, **values}.items()]
            if (times := algorithm.agent.updates_of_task.get(preset, 1)) > 1:
                texts.append(f"updates_per_step={times} × the task's")
            rows.append((name, preset, ", ".join(texts) or "none"))
    return _table("Presets", ("algorithm", "preset", "settings in which it differs from the defaults"), rows)


def settings(algo: str) -> Table:
    from pac4sac.agents import get_algorithm

    algorithm, rows = get_algorithm(algo), []
    for f in fields(algorithm.agent.Config):
        allowed = ("true", "false") if f.metadata["allowed"] is None else f.metadata["allowed"]
        values = ", ".join(allowed) if isinstance(allowed, tuple) else str(allowed).replace("at least -inf", "any")
        star = "*" if f.metadata["per_run"] else ""
        default = setting_text(algorithm.defaults.get(f.name, f.default))
        rows.append((f.name + star, default, values, f.metadata["help"]))
    caption = "Set one by --set NAME=VALUE. Those with a star can differ between the runs of one cohort."
    return _table(f"Settings of {algo}", ("name", "default", "allowed", "meaning"), rows, caption)


def studies() -> Table:
    from pac4sac.studies.definition import load_study, shipped_studies

    rows = ((name, title, str(len(load_study(name).runs()))) for name, title in shipped_studies().items())
    caption = "Run one by pac4sac study run NAME. One of your own is a TOML file, see docs/studies.md."
    return _table("Studies", ("name", "what it is", "runs"), rows, caption)


def _table(title: str, headers: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None) -> Table:
    table = plain_table(title)
    table.caption = caption
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
