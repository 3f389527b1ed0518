"""Evaluate a trained agent on new episodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pac4sac.base.argument_types import check_types
from pac4sac.base.errors import UserError
from pac4sac.base.ranges import EPISODES, NON_NEGATIVE, check_value
from pac4sac.base.stopping import STEP_SECONDS
from pac4sac.base.text import brief
from pac4sac.base.trust import allow
from pac4sac.tasks import Environment, Task, chosen_task, task_sizes
from pac4sac.training.evaluation import Episodes, EvaluatedPolicy
from pac4sac.training.evaluation import evaluate as returns_of
from pac4sac.training.trained_agent import TrainedAgent, load_chosen


@dataclass(frozen=True)
class Evaluation:
    """Hold the returns of a trained agent in new episodes.

    Attributes:
        run: Name of the run that trained the agent.
        task: Name of the task of the episodes.
        policy: "deterministic" or "shooting".
        returns: Sum of rewards of each episode [E], without episodes that failed.

    Example:
        >>> evaluation = pac4sac.evaluate("experiments/pendulum-v1-sac/runs/sac-seed0", episodes=2)
        >>> len(evaluation.returns)
        2
    """

    run: str
    task: str
    policy: EvaluatedPolicy
    returns: NDArray[np.float64] = field(compare=False)

    @property
    def mean(self) -> float:
        """Return the mean return; NaN if all episodes failed."""
        return float(np.mean(self.returns)) if len(self.returns) else float("nan")

    @property
    def std(self) -> float:
        """Return the standard deviation of the returns; NaN with fewer than two returns."""
        return float(np.std(self.returns, ddof=1)) if len(self.returns) > 1 else float("nan")

    def __repr__(self) -> str:
        about = f"{self.run} on {self.task}, {self.policy} policy"
        if len(self.returns) < 2:
            shown = f"{brief(self.mean)} in one episode" if len(self.returns) else "failed"
        else:
            shown = f"{brief(self.mean)} ± {brief(self.std)} in {len(self.returns)} episodes"
        return f"Evaluation({about}: {shown})"


def evaluate(
    agent: TrainedAgent | str | Path,
    task: Environment | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Any] = (),
    episodes: int = 10,
    seed: int = 0,
    shooting: bool | None = None,
    step_seconds: int = STEP_SECONDS,
    progress: Callable[[int, int], None] | None = None,
    trust: str | Iterable[str] = (),
) -> Evaluation:
    """Evaluate a trained agent on new episodes.

    Args:
        agent: A trained agent, or an argument of `load`.
        task: Task of the episodes, or an environment as in `train`; None for the training task.
        env_kwargs: Arguments of the environment.
        wrappers: Wrappers around the environment, as in `train`, in addition to the task's own.
        episodes: Number of episodes.
        seed: Seed of the episodes; all agents get the same episodes from a seed.
        shooting: Whether to use shooting; None to use it if the agent was trained with shooting.
        step_seconds: Seconds after which a step or reset counts as hanging.
        progress: Function that is called after each step with the number of steps and its maximum.
        trust: Custom modules that a file may import, as in `load`.

    Returns:
        The returns, with their mean and standard deviation.

    Raises:
        UserError: If an argument is invalid, or the task has other observations or actions.

    Example:
        >>> agent = pac4sac.load("experiments/pendulum-v1-sac")
        >>> evaluation = pac4sac.evaluate(agent, "Pendulum-v1", env_kwargs={"g": 3.7}, episodes=2)
        >>> len(evaluation.returns)
        2
    """
    check_types(evaluate, locals(), leave=["task"])
    check_value("episodes", episodes, int, EPISODES)
    check_value("seed", seed, int, NON_NEGATIVE)
    allow(trust)
    trained = agent if isinstance(agent, TrainedAgent) else load_chosen(agent, task, stacklevel=3)
    policy: EvaluatedPolicy = "deterministic"
    if trained.shoots if shooting is None else shooting:
        policy = "shooting"
    played = Episodes(
        trained.agent,
        trained.state,
        _task_for(trained, task, env_kwargs, wrappers),
        seeds=[seed],
        count=episodes,
        occasion="command",
        step_seconds=step_seconds,
        progress=progress,
    )
    returns = returns_of(played, policy)[0]
    return Evaluation(trained.run.id, played.task.name, policy, returns[~np.isnan(returns)])


def _task_for(
    trained: TrainedAgent,
    task: Environment | None,
    env_kwargs: Mapping[str, Any] | None,
    wrappers: Sequence[Any],
) -> Task:
    """Return the task of the episodes, after a check that it fits the agent."""
    chosen = chosen_task(trained.task if task is None else task, None, env_kwargs, wrappers)
    sizes = trained.agent.ds, trained.agent.da
    if task_sizes(chosen) != sizes:
        given = " and ".join(map(str, task_sizes(chosen)))
        raise UserError(
            f"{trained.run.id} was trained with {sizes[0]} observation dimensions and {sizes[1]} "
            f"action dimensions, but {chosen.name} has {given}. Choose a task with the same "
            "numbers of dimensions."
        )
    return chosen
