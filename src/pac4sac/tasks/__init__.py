"""Tasks, their environments, and the pool that steps many environments."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium

from pac4sac.base.objects import name_and_arguments, short_name
from pac4sac.base.trust import allow_named
from pac4sac.tasks import registry
from pac4sac.tasks.catalogue import TASKS, Task
from pac4sac.tasks.custom import recipe
from pac4sac.tasks.registry import TaskEnv, get_task, simulator_seconds, task_sizes
from pac4sac.tasks.wrappers import keeps_rewards

__all__ = [
    "TASKS",
    "Environment",
    "Task",
    "chosen_task",
    "get_task",
    "make_env",
    "simulator_seconds",
    "task_sizes",
]

# A task, its name, an id, a class or function that makes an environment, or an environment that
# gymnasium.make made.
Environment = str | Task | Callable[..., gymnasium.Env[Any, Any]] | gymnasium.Env[Any, Any]


def chosen_task(
    task: Environment,
    steps: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Any] = (),
) -> Task:
    """Return the task that a caller has chosen, and trust the modules that it names.

    Args:
        task: A task, its name, the id of an environment, a class or function that makes an
            environment, or an environment that `gymnasium.make` made. Runs get environments with
            the same id, arguments and wrappers.
        steps: Step budget that replaces the task's.
        env_kwargs: Arguments of the environment, in addition to the task's.
        wrappers: Wrappers around the task's own, as in `Task`. They remove the solve threshold,
            unless all of them are observation or action wrappers.

    Raises:
        UserError: If there is no such task.
    """
    arguments = dict(env_kwargs or {})
    if isinstance(task, TaskEnv):
        task = task.task
    if isinstance(task, gymnasium.Env):
        return _task_like(task, steps, arguments, wrappers)
    if callable(task):
        task, given = name_and_arguments(task)
        arguments = given | arguments
    # the trust in a task from a file was checked when it was read
    allow_named(*(task.code_names if isinstance(task, Task) else [task]))
    chosen = get_task(task, steps)
    name = short_name(chosen.name)
    changed = chosen.changed({"name": name, "env_kwargs": chosen.env_kwargs | arguments})
    if not wrappers:
        return changed
    wrapped = changed.changed({"wrappers": [*chosen.wrappers, *wrappers]})
    added = wrapped.wrappers[len(chosen.wrappers) :]
    allow_named(*(each["wrapper"] for each in added))
    if all(keeps_rewards(each["wrapper"]) for each in added):
        return wrapped
    return wrapped.changed({"r_limit": None})


def _task_like(
    env: gymnasium.Env[Any, Any],
    steps: int | None,
    env_kwargs: dict[str, Any],
    wrappers: Sequence[Any],
) -> Task:
    """Return the task of environments like an existing one."""
    known = recipe(env)
    wrappers = [*known.wrappers, *wrappers]
    task = chosen_task(known.env_id, steps, known.env_kwargs | env_kwargs, wrappers)
    return task if known.horizon is None else task.changed({"horizon": known.horizon})


def make_env(
    task: Environment, render_mode: str | None = None, *, unit_actions: bool = False
) -> TaskEnv:
    """Make the environment of a task, with observations as one vector.

    Args:
        task: A task, its name, the id of an environment, or a class or function that makes an
            environment.
        render_mode: Render mode of the environment.
        unit_actions: Whether actions are vectors in [-1, 1], as learners use them, instead of
            actions in the units of the environment.

    Returns:
        A Gymnasium environment.

    Raises:
        UserError: If the environment cannot be made, or its spaces are not supported.

    Example:
        >>> env = pac4sac.make_env("Pendulum-v1")
        >>> observation, info = env.reset(seed=0)
        >>> observation.shape
        (3,)
    """
    return registry.make_env(chosen_task(task), render_mode, unit_actions=unit_actions)
