"""Define tasks, make their environments, and step many environments in a pool."""

from pac4sac.base.trust import allow_named
from pac4sac.tasks import registry
from pac4sac.tasks.catalogue import TASKS, Task
from pac4sac.tasks.registry import TaskEnv, get_task, simulator_seconds, task_sizes

__all__ = ["TASKS", "Task", "get_task", "make_env", "simulator_seconds", "task_sizes"]


def make_env(
    task: str | Task, render_mode: str | None = None, *, unit_actions: bool = False
) -> TaskEnv:
    """Make the environment of a task, with observations as one vector.

    Args:
        task: Name of a task or id of an environment, or a `Task`.
        render_mode: Render mode of the environment.
        unit_actions: Whether actions are vectors in [-1, 1], as learners use them. By default they
            are those of the environment, as those of a trained agent are.

    Raises:
        UserError: If the environment cannot be made, or its spaces are not supported.
    """
    # the trust in a task from a file was checked when it was read
    allow_named(getattr(task, "env_id", task))
    return registry.make_env(get_task(task), render_mode, unit_actions=unit_actions)
