"""The definition of a task, and all named tasks.

A task is an environment with its episode length, solve threshold and step budget.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import as_json
from pac4sac.base.objects import name_and_arguments
from pac4sac.base.ranges import ANY, AT_LEAST_ONE, check_value
from pac4sac.base.text import did_you_mean
from pac4sac.tasks.wrappers import wrapper_tables

HORIZON = 1000


@dataclass(frozen=True)
class Task:
    """Define a task: an environment with its episode length, solve threshold and step budget.

    Attributes:
        name: Name of the task.
        env_id: Gymnasium id of the environment, or a class or function that makes it, which is
            stored by name.
        horizon: Number of steps after which an episode is truncated; None for the environment's own
            limit.
        r_limit: Return above which an episode counts as solved; None for no threshold.
        steps: Number of environment steps of a run.
        updates_per_step: Number of updates after each step.
        env_kwargs: Arguments of the environment.
        wrappers: Wrappers around the environment, innermost first. Each is a class, a function, a
            functools.partial of one, a name, or a dictionary such as {"wrapper": "module:Class",
            "scale": 0.1}, and is stored as such a dictionary.

    Example:
        >>> task = pac4sac.Task("pendulum", "Pendulum-v1", horizon=100, env_kwargs={"g": 3.7})
        >>> task.horizon
        100
    """

    name: str
    env_id: str
    horizon: int | None = None  # steps after which an episode is truncated
    r_limit: float | None = None  # return above which an episode counts as solved
    steps: int = 100_000  # step budget of a run
    updates_per_step: int = 1
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    # around the environment, innermost first: {"wrapper": NAME or module:Class, argument: value}
    wrappers: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_value("name", self.name, str, None)
        if callable(self.env_id):
            name, arguments = name_and_arguments(self.env_id)
            object.__setattr__(self, "env_id", name)
            object.__setattr__(self, "env_kwargs", arguments | self.env_kwargs)
        check_value("env_id", self.env_id, str, None)
        for name in ("steps", "updates_per_step"):
            check_value(name, getattr(self, name), int, AT_LEAST_ONE)
        if self.horizon is not None:
            check_value("horizon", self.horizon, int, AT_LEAST_ONE)
        if self.r_limit is not None:
            check_value("r_limit", self.r_limit, float, ANY)
        if not isinstance(self.env_kwargs, dict):
            raise UserError(f"env_kwargs must be a dictionary, not {self.env_kwargs!r}.")
        object.__setattr__(self, "env_kwargs", as_json(self.env_kwargs))
        object.__setattr__(self, "wrappers", as_json(wrapper_tables(self.wrappers)))

    def __repr__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "name"}
        defaults = {f.name: f.default for f in fields(self)}
        if self.env_id == self.name:
            del values["env_id"]
        shown = [f"{n}={v!r}" for n, v in values.items() if v != defaults[n] and v not in ({}, [])]
        return f"Task({', '.join([repr(self.name), *shown])})"

    @property
    def code_names(self) -> list[str]:
        """Return the names of the environment and the wrappers."""
        return [self.env_id, *(each["wrapper"] for each in self.wrappers)]

    def changed(self, changes: Mapping[str, Any]) -> "Task":
        """Return the task with changed fields; the environment cannot be changed.

        Args:
            changes: New values by name of the field.

        Raises:
            UserError: If a field is unknown or has an invalid value.
        """
        known = [f.name for f in fields(self) if f.name != "env_id"]
        if unknown := sorted(set(changes).difference(known)):
            raise UserError(
                f"A task has no field {unknown[0]!r}; {did_you_mean(unknown[0], known, 'it has')}"
            )
        return replace(self, **changes)


def portable(task: Task) -> dict[str, Any]:
    """Return a task as JSON data, for files and workers."""
    description = asdict(task)
    if not task.wrappers:  # as in older files without wrappers
        del description["wrappers"]
    try:
        json.dumps(description)
    except TypeError as problem:
        raise UserError(
            f"Task {task.name!r} has env_kwargs that cannot be stored as JSON ({problem}); use "
            "numbers, strings and lists."
        ) from problem
    return description


# The paper does not state updates per step. The numbers of the first two tasks bring DDPG and SAC
# closest to its rows (see "Calibration" in docs/findings-appendix.md). Ant and Humanoid are not
# calibrated, so we assume one update.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "cartpole-swingup",
            "pac4sac/CartpoleSwingup-v0",
            HORIZON,
            850.0,
            40_000,
            updates_per_step=4,
        ),
        Task("half-cheetah", "pac4sac/HalfCheetah-v0", HORIZON, 2000.0, 250_000),
        Task("ant", "pac4sac/Ant-v0", HORIZON, 2500.0, 500_000),
        Task("humanoid", "pac4sac/Humanoid-v0", HORIZON, 3500.0, 500_000),
    )
}


def _tasks_of_file(name: str) -> dict[str, dict[str, Task]]:
    """Return the tasks of a TOML file in this folder, by required extra."""
    content = tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return {
        extra: {
            task: Task(task, **{"env_id": task, "horizon": HORIZON} | fields)
            for task, fields in tasks.items()
        }
        for extra, tasks in content.items()
    }


FIELD_TASKS = _tasks_of_file("field.toml")
EXPLORATION_TASKS = _tasks_of_file("exploration.toml")
# All named tasks, grouped by the extra that installs their simulator.
TASK_GROUPS: list[tuple[str, dict[str, Task]]] = [
    ("", TASKS),
    *FIELD_TASKS.items(),
    *((extra.replace("none", ""), tasks) for extra, tasks in EXPLORATION_TASKS.items()),
]
NAMED_TASKS = {name: task for _, tasks in TASK_GROUPS for name, task in tasks.items()}
