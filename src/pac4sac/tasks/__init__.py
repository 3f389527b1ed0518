"""Tasks, the environments behind them, and the pool that steps many of them."""

from pac4sac.tasks.registry import TASKS, Task, get_task, make_env, simulator_seconds, task_sizes

__all__ = ["TASKS", "Task", "get_task", "make_env", "simulator_seconds", "task_sizes"]
