"""Wrappers of tasks: rewards that are rare, made from any environment, and repeated actions.

A task names them in `wrappers`, by a name of `WRAPPERS` or as a custom `module:Class`."""

from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from pac4sac.base.errors import UserError
from pac4sac.base.text import did_you_mean
from pac4sac.base.trust import own_class

Env = gymnasium.Env[Any, Any]
Step = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]
Limits = Mapping[str, float] | None


class TargetReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reward 1 in a step that ends inside a box of observations, and 0 elsewhere.

    Args:
        env: An environment whose observation is a vector.
        low: Lower limits of components of the observation, by index.
        high: Upper limits likewise.
    """

    def __init__(self, env: Env, low: Limits = None, high: Limits = None) -> None:
        super().__init__(env)
        size = int(np.prod(env.observation_space.shape or (0,)))
        self._low = _limits("low", low, size, -np.inf)
        self._high = _limits("high", high, size, np.inf)
        if np.any(self._low > self._high):
            raise UserError("The limits low of the wrapper sparse-target exceed its limits high.")

    def step(self, action: Any) -> Step:
        observation, _, terminated, truncated, info = self.env.step(action)
        seen = np.asarray(observation).reshape(-1)
        reward = float(np.all((self._low <= seen) & (seen <= self._high)))
        return observation, reward, terminated, truncated, info


class PositionDelay(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reward forward speed only beyond a distance: 1[x ≥ c] · Δx/Δt − w ‖a‖².

    Staying alive is not rewarded. It suits robots with an x position: those of PyBullet here, and
    MuJoCo's.

    Args:
        env: The robot.
        distance: c, in metres from the origin.
        action_cost: w, the weight of the squared action.
    """

    def __init__(self, env: Env, distance: float = 2.0, action_cost: float = 1e-3) -> None:
        super().__init__(env)
        _check_number("distance of the wrapper position-delay", distance)
        _check_number("action_cost of the wrapper position-delay", action_cost)
        self._distance, self._action_cost = float(distance), float(action_cost)
        self._x = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._x = x_position(self.env)
        return observation, info

    def step(self, action: Any) -> Step:
        observation, _, terminated, truncated, info = self.env.step(action)
        before, self._x = self._x, x_position(self.env)
        speed = (self._x - before) / seconds_per_step(self.env)
        cost = self._action_cost * float(np.square(np.asarray(action, np.float64)).sum())
        reward = (speed if self._x >= self._distance else 0.0) - cost
        return observation, reward, terminated, truncated, info


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeat each action; the reward of a step is the sum of its repetitions.

    Args:
        env: Any environment.
        times: How often an action is taken in a row.
    """

    def __init__(self, env: Env, times: int = 2) -> None:
        super().__init__(env)
        if not isinstance(times, int) or isinstance(times, bool) or times < 1:
            raise UserError(
                "times of the wrapper action-repeat must be a whole number from 1 on, "
                f"not {times!r}."
            )
        self._times = times

    def step(self, action: Any) -> Step:
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


WRAPPERS: Mapping[str, type[gymnasium.Wrapper[Any, Any, Any, Any]]] = {
    "sparse-target": TargetReward,
    "position-delay": PositionDelay,
    "action-repeat": ActionRepeat,
}


def x_position(env: Env) -> float:
    """Return how far a robot has come along the x axis, in metres.

    Raises:
        UserError: If the environment has no such position.
    """
    robot: Any = env.unwrapped
    if hasattr(robot, "position"):  # PyBullet's robots
        return float(robot.position()[0])
    try:
        return float(robot.data.qpos[0])  # MuJoCo's
    except AttributeError:
        raise UserError(
            f"{type(robot).__name__} has no x position, which the wrapper position-delay needs. "
            "Use it with robots of PyBullet or MuJoCo that move along x."
        ) from None


def seconds_per_step(env: Env) -> float:
    robot: Any = env.unwrapped
    return float(robot.dt)


def check_wrappers(wrappers: Any) -> None:
    """Check the form of a task's wrappers, without importing any.

    Raises:
        UserError: If they are not a list of tables, each with the name of a wrapper.
    """
    if not isinstance(wrappers, list | tuple):
        raise UserError(f"wrappers must be a list of tables, not {wrappers!r}.")
    for each in wrappers:
        name = each.get("wrapper") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise UserError(
                f'A wrapper is a table such as {{"wrapper": "position-delay", "distance": 2}}, '
                f"not {each!r}."
            )
        if name not in WRAPPERS and ":" not in name:
            raise UserError(f"There is no wrapper {name!r}; {did_you_mean(name, WRAPPERS)}")


def wrap(env: Env, wrappers: Sequence[Mapping[str, Any]]) -> Env:
    """Return an environment inside these wrappers, the first of which is innermost."""
    for description in wrappers:
        arguments = {name: value for name, value in description.items() if name != "wrapper"}
        kind = wrapper_class(description["wrapper"])
        try:
            env = kind(env, **arguments)
        except TypeError as error:
            raise UserError(
                f"The wrapper {description['wrapper']} does not take {arguments}: {error}."
            ) from error
    return env


def wrapper_class(name: str) -> type[gymnasium.Wrapper[Any, Any, Any, Any]]:
    """Return the class of a wrapper, shipped or custom."""
    return WRAPPERS.get(name) or own_class(name, "wrapper", gymnasium.Wrapper)


def _limits(name: str, given: Limits, size: int, default: float) -> Any:
    limits = np.full(size, default)
    for index, limit in (given or {}).items():
        _check_number(f"{name}.{index} of the wrapper sparse-target", limit)
        if not (index.isdecimal() and int(index) < size):
            raise UserError(
                f"The wrapper sparse-target got a limit for observation {index}, "
                f"but observations are numbered from 0 to {size - 1}."
            )
        limits[int(index)] = limit
    return limits


def _check_number(name: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not np.isfinite(value):
        raise UserError(f"{name} must be a number, not {value!r}.")
