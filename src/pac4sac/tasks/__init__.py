"""Tasks, the environments behind them, and the pool that steps many of them."""

from pac4sac.base.trust import allow_named
from pac4sac.tasks import registry
from pac4sac.tasks.registry import TASKS, Task, TaskEnv, get_task, simulator_seconds, task_sizes

__all__ = ["TASKS", "Task", "get_task", "make_env", "simulator_seconds", "task_sizes"]


def make_env(
    task: str | Task, render_mode: str | None = None, *, unit_actions: bool = False
) -> TaskEnv:
    """The environment of a task, or of one that you name, with observations as one vector. Actions
    are its own, as those of a trained agent are; or in [-1, 1], as learners give them."""
    # a task out of a file was asked about when it was read
    allow_named(getattr(task, "env_id", task))
    return registry.make_env(get_task(task), render_mode, unit_actions=unit_actions)
