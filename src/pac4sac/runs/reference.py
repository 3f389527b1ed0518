"""Archived runs that ship with the package, for comparison with your runs.

They are runs of the algorithms of the paper's Table 1, of two controls, and of exploring agents on
a sparse-reward task. `tools/ship.py` makes this archive from `results/`, with rounded returns.
"""

from pathlib import Path

from pac4sac.base.argument_types import check_types
from pac4sac.base.errors import UserError
from pac4sac.base.text import did_you_mean
from pac4sac.runs.frames import Frame, results
from pac4sac.runs.reading import RunRecord, read_runs

SHIPPED = Path(__file__).parents[1] / "shipped"
TASKS = ("cartpole-swingup", "half-cheetah", "ant", "humanoid", "cartpole-swingup-sparse")


def reference(task: str | None = None) -> Frame:
    """Return every training episode of the archived runs that ship with the package.

    Args:
        task: Name of one of the paper's four tasks, or `cartpole-swingup-sparse`; None for all.

    Returns:
        A pandas DataFrame with the columns of `pac4sac.results`, or a dict of arrays if pandas is
        not installed.

    Raises:
        UserError: If there are no archived runs on the task.

    Example:
        >>> curves = pac4sac.reference("cartpole-swingup")
        >>> "pac4sac" in set(curves["algo"])
        True
    """
    check_types(reference, locals())
    check_task(task)
    episodes = results(SHIPPED)
    if task is None:
        return episodes
    chosen = episodes["task"] == task
    if isinstance(episodes, dict):
        return {name: values[chosen] for name, values in episodes.items()}
    return episodes[chosen].reset_index(drop=True)


def reference_runs(task: str | None = None) -> dict[tuple[str, str], list[RunRecord]]:
    """Return the archived runs on a task, or on all tasks, by task and label."""
    check_task(task)
    runs: dict[tuple[str, str], list[RunRecord]] = {}
    for run in sorted(read_runs(SHIPPED), key=lambda run: TASKS.index(run.task["name"])):
        if task in (None, run.task["name"]):
            runs.setdefault((run.task["name"], run.label), []).append(run)
    return runs


def check_task(task: str | None) -> None:
    """Raise a UserError if there are no archived runs on a task."""
    if task is not None and task not in TASKS:
        raise UserError(f"There are no reference curves for {task!r}; {did_you_mean(task, TASKS)}")
