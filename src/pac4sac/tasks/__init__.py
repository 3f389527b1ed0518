"""Tasks, the environments behind them, and the pool that steps many of them."""

from pac4sac.tasks.adapters import make_env, task_sizes
from pac4sac.tasks.registry import TASKS, Task, get_task

__all__ = ["TASKS", "Task", "get_task", "make_env", "task_sizes"]
