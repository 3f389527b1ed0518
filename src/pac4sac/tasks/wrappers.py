"""Wrappers of tasks: sparse rewards for any environment, and repeated actions.

A task lists them in `wrappers`, by their names in `WRAPPERS` or as a custom `module:Class`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from pac4sac.base.errors import UserError
from pac4sac.base.objects import name_and_arguments, object_of, short_name
from pac4sac.base.text import did_you_mean

Env = gymnasium.Env[Any, Any]
Step = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]
Limits = Mapping[str, float] | None
FREE, SLIDE = 0, 2  # kinds of joints in MuJoCo


class TargetReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reward 1 in a step that ends inside a box of observations, and 0 in other steps.

    Args:
        env: An environment whose observation is a vector.
        low: Lower limits of components of the observation, by index.
        high: Upper limits, in the same form as `low`.
    """

    def __init__(self, env: Env, low: Limits = None, high: Limits = None) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Box):
            raise UserError(
                "The wrapper sparse-target needs a Box as the observation space, not "
                f"{type(space).__name__}."
            )
        self._low = _limits("low", low, space, -np.inf)
        self._high = _limits("high", high, space, np.inf)
        if np.any(self._low > self._high):
            raise UserError(
                "The wrapper sparse-target has a lower limit above the upper limit; "
                "swap low and high."
            )

    def step(self, action: Any) -> Step:
        observation, _, terminated, truncated, info = self.env.step(action)
        seen = np.asarray(observation).reshape(-1)
        reward = float(np.all((self._low <= seen) & (seen <= self._high)))
        return observation, reward, terminated, truncated, info


class PositionDelay(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reward forward speed only beyond a distance: 1[x ≥ c] · Δx/Δt − w ‖a‖².

    Staying alive is not rewarded. The wrapper works for robots with an x position: those of
        PyBullet and MuJoCo.

    Args:
        env: The robot.
        distance: c, in metres from the origin.
        action_cost: w, the weight of the squared action.
    """

    def __init__(self, env: Env, distance: float = 2.0, action_cost: float = 1e-3) -> None:
        super().__init__(env)
        _check_number("distance of the wrapper position-delay", distance, at_least=0.0)
        _check_number("action_cost of the wrapper position-delay", action_cost, at_least=0.0)
        self._distance, self._action_cost = float(distance), float(action_cost)
        self._read_x, self._x = x_position(env), 0.0
        robot: Any = env.unwrapped
        self._seconds = float(robot.dt)  # seconds of a step

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._x = self._read_x()
        return observation, info

    def step(self, action: Any) -> Step:
        observation, _, terminated, truncated, info = self.env.step(action)
        before, self._x = self._x, self._read_x()
        speed = (self._x - before) / self._seconds
        cost = self._action_cost * float(np.square(np.asarray(action, np.float64)).sum())
        reward = (speed if self._x >= self._distance else 0.0) - cost
        return observation, reward, terminated, truncated, info


class ActionRepeat(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeat each action; the reward of a step is the sum of its repetitions.

    Args:
        env: Any environment.
        times: Number of repetitions of each action.
    """

    def __init__(self, env: Env, times: int = 2) -> None:
        super().__init__(env)
        if not isinstance(times, int) or isinstance(times, bool) or times < 1:
            raise UserError(
                f"times of the wrapper action-repeat must be a whole number above 0, not {times!r}."
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


def x_position(env: Env) -> Callable[[], float]:
    """Return a function that reads the x position of a robot in metres.

    Raises:
        UserError: If the environment has no such position.
    """
    robot: Any = env.unwrapped
    if hasattr(robot, "dt"):
        if callable(getattr(robot, "position", None)):  # PyBullet's robots
            return lambda: float(robot.position()[0])
        if _moves_along_x(getattr(robot, "model", None)):
            return lambda: float(robot.data.qpos[0])
    raise UserError(
        f"{type(robot).__name__} has no x position, which the wrapper position-delay needs. Use "
        "this wrapper with PyBullet or MuJoCo robots that move along x."
    )


def _moves_along_x(model: Any) -> bool:
    """Return whether the first joint of a MuJoCo model is free, or slides along x."""
    kinds: Any = getattr(model, "jnt_type", ())
    if not len(kinds):
        return False
    return bool(kinds[0] == FREE or (kinds[0] == SLIDE and model.jnt_axis[0][0] == 1))


def wrapper_tables(wrappers: Any) -> list[dict[str, Any]]:
    """Return a task's wrappers as dictionaries, without importing any of them.

    Args:
        wrappers: A list of classes, functions, partials of them, names, or dictionaries.

    Raises:
        UserError: If an entry has another type or an unknown name.
    """
    if not isinstance(wrappers, list | tuple):
        raise UserError(
            "wrappers must be a list of classes, functions, names or dictionaries, not "
            f"{wrappers!r}."
        )
    return [_table_of(each) for each in wrappers]


def _table_of(wrapper: Any) -> dict[str, Any]:
    """Return the dictionary of a wrapper: its name under "wrapper", and its arguments."""
    table = dict(wrapper) if isinstance(wrapper, Mapping) else {"wrapper": wrapper}
    name = table.get("wrapper")
    if callable(name):
        table["wrapper"], arguments = name_and_arguments(name)
        return arguments | table
    if not isinstance(name, str):
        raise UserError(
            "A wrapper must be a class, a function, a name, or a dictionary such as "
            f'{{"wrapper": "position-delay", "distance": 2}}, not {wrapper!r}.'
        )
    if name not in WRAPPERS and ":" not in name:
        raise UserError(
            f"Unknown wrapper {name!r}; {did_you_mean(name, WRAPPERS)} Give a custom wrapper as "
            "module:Class."
        )
    return table


def wrap(env: Env, wrappers: Sequence[Mapping[str, Any]]) -> Env:
    """Return an environment inside these wrappers; the first one is innermost."""
    for description in wrappers:
        name = short_name(description["wrapper"])
        arguments = {key: value for key, value in description.items() if key != "wrapper"}
        maker = wrapper_maker(description["wrapper"])
        try:
            env = maker(env, **arguments)
        except UserError:
            raise
        except TypeError as error:
            raise UserError(f"The wrapper {name} does not accept {arguments}: {error}.") from error
        except Exception as error:  # user code can raise any exception
            cause = f"{type(error).__name__}: {error}".rstrip(".")
            raise UserError(f"The wrapper {name} cannot wrap the environment ({cause}).") from error
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"The wrapper {name} must return a gymnasium.Env, not {env!r}.")
    return env


def wrapper_maker(name: str) -> Callable[..., Env]:
    """Return the class or function of a shipped or custom wrapper."""
    if name in WRAPPERS:
        return WRAPPERS[name]
    maker: Any = object_of(name, "wrapper")
    if callable(maker) and (not isinstance(maker, type) or issubclass(maker, gymnasium.Wrapper)):
        return maker
    raise UserError(f"{name!r} must be a subclass of gymnasium.Wrapper or a function.")


def keeps_rewards(name: str) -> bool:
    """Return whether a wrapper leaves rewards and the number of steps unchanged."""
    maker = wrapper_maker(name)
    kinds = (gymnasium.ObservationWrapper, gymnasium.ActionWrapper)
    return isinstance(maker, type) and issubclass(maker, kinds)


def _limits(name: str, given: Limits, space: gymnasium.spaces.Box, default: float) -> Any:
    """Return a limit for each component of the observation."""
    lowest, highest = space.low.reshape(-1), space.high.reshape(-1)
    limits = np.full(lowest.size, default)
    if not isinstance(given, Mapping | None):
        raise UserError(
            f"{name} of the wrapper sparse-target must map indices of the observation to limits, "
            f'as in {{"0": -0.25}}, not {given!r}.'
        )
    for index, limit in (given or {}).items():
        what = f"{name}.{index} of the wrapper sparse-target"
        _check_number(what, limit)
        if not (str(index).isdecimal() and int(index) < limits.size):
            raise UserError(
                f"The wrapper sparse-target has a limit for the index {index} of the observation, "
                f"but the indices are 0 to {limits.size - 1}."
            )
        low, high = lowest[int(index)], highest[int(index)]
        if not low <= limit <= high:
            raise UserError(
                f"{what} must be in [{low:g}, {high:g}], not {limit:g}, because the observation "
                "has this range."
            )
        limits[int(index)] = limit
    return limits


def _check_number(name: str, value: Any, at_least: float = -np.inf) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not np.isfinite(value):
        raise UserError(f"{name} must be a number, not {value!r}.")
    if value < at_least:
        raise UserError(f"{name} must be a number of at least {at_least:g}, not {value!r}.")
