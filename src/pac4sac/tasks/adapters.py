"""Any Gymnasium environment as a task: flat float32 observations, for learners actions in [-1, 1], one thin wrapper."""

import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from pac4sac.base.errors import UserError, how_to_install
from pac4sac.tasks.registry import Task, find_spec, time_limit

Vector = NDArray[np.float32]
ToVector = Callable[[Any], Vector]
ToAction = Callable[[Vector], Any]


class TaskEnv(gymnasium.Wrapper[Vector, Vector, Any, Any]):
    """Does what TimeLimit, FlattenObservation and, with `unit_actions`, RescaleAction would, in one call per step."""

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, horizon: int | None, unit_actions: bool) -> None:
        super().__init__(env)
        self.horizon, self.elapsed_steps = horizon, 0
        unit, self.from_unit = _action_adapter(env.action_space, name)
        self.observation_space, self.to_vector = _observation_adapter(env.observation_space, name)
        if unit_actions:
            self.action_space = unit
        self._to_action = self.from_unit if unit_actions else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        self.elapsed_steps = 0
        observation, info = self.env.reset(seed=seed, options=options)
        return self.to_vector(observation) if self.to_vector else observation, info

    def step(self, action: Vector) -> tuple[Vector, SupportsFloat, bool, bool, dict[str, Any]]:
        if self._to_action:
            action = self._to_action(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.to_vector:
            observation = self.to_vector(observation)
        self.elapsed_steps += 1
        if self.elapsed_steps == self.horizon:
            truncated = True
        return observation, reward, terminated, truncated, info


def make_env(task: Task, render_mode: str | None = None, *, unit_actions: bool = False) -> TaskEnv:
    """The environment of a task, with observations as one vector. Actions are its own, as those of a trained agent are;
    or in [-1, 1], as learners give them."""
    # Without the stack of wrappers that gymnasium.make puts around: TaskEnv keeps the time.
    spec = copy.deepcopy(find_spec(task.env_id))
    spec.order_enforce = False
    spec.max_episode_steps = None
    kwargs = task.env_kwargs | ({} if render_mode is None else {"render_mode": render_mode})
    try:
        env = gymnasium.make(spec, disable_env_checker=True, **kwargs)
    except gymnasium.error.DependencyNotInstalled as missing:
        needed = f"a package that is not installed: {missing}"
        if "mujoco" in needed.lower():
            needed = f"MuJoCo, which is not installed; {how_to_install('mujoco')}."
        raise UserError(f"Task {task.name!r} needs {needed}") from missing
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise UserError(
            f"The environment of task {task.name!r} does not take all of the options {', '.join(kwargs)}; "
            "leave out those it lacks."
        ) from error
    try:
        return TaskEnv(env, task.name, time_limit(task), unit_actions)
    except UserError:
        env.close()
        raise


_sizes: dict[str, tuple[EnvSpec, tuple[int, int]]] = {}  # by environment and its options


def task_sizes(task: Task) -> tuple[int, int]:
    """Lengths of an observation and of an action. An environment is built for them once, and again when another one was
    registered under its id."""
    key, spec = f"{task.env_id} {task.env_kwargs}", find_spec(task.env_id)
    if key not in _sizes or _sizes[key][0] is not spec:
        with contextlib.closing(make_env(task, unit_actions=True)) as env:
            _sizes[key] = spec, (math.prod(env.observation_space.shape or ()), math.prod(env.action_space.shape or ()))
    return _sizes[key][1]


def _action_adapter(space: spaces.Space[Any], name: str) -> tuple[spaces.Space[Vector], ToAction | None]:
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        kind = "integer" if isinstance(space, spaces.Box) else type(space).__name__
        raise UserError(
            f"Task {name!r} takes {kind} actions; choose an environment with continuous (Box) actions, "
            "the only kind these agents learn."
        )
    if np.any(np.abs([space.low, space.high]) >= np.finfo(np.float32).max):
        raise UserError(
            f"Task {name!r} has an unbounded action space, so that [-1, 1] cannot be scaled to it; "
            "wrap the environment so that its actions have finite bounds."
        )
    unit = spaces.Box(-1.0, 1.0, (math.prod(space.shape),), np.float32)
    if space == unit:
        return unit, None
    low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    middle, half, shape, dtype = (high + low) / 2, (high - low) / 2, space.shape, space.dtype
    return unit, lambda action: np.clip(middle + half * action, low, high).astype(dtype).reshape(shape)


def _observation_adapter(space: spaces.Space[Any], name: str) -> tuple[spaces.Space[Vector], ToVector | None]:
    if _has_image(space):
        raise UserError(
            f"Task {name!r} observes images, which these agents cannot read; "
            "choose an environment that observes numbers (joint angles, velocities, ...)."
        )
    if not space.is_np_flattenable:
        raise UserError(
            f"Task {name!r} observes a {type(space).__name__}, which has no fixed length; "
            "wrap the environment so that it observes a Box or a Dict of Boxes."
        )
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    vector = spaces.Box(flat.low.astype(np.float32), flat.high.astype(np.float32), flat.shape, np.float32)
    if space == vector:
        return vector, None
    if isinstance(space, spaces.Box):
        return vector, lambda observation: np.asarray(observation, np.float32).reshape(-1)
    return vector, lambda observation: np.asarray(spaces.flatten(space, observation), np.float32)


def _has_image(space: spaces.Space[Any]) -> bool:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return any(map(_has_image, space.values() if isinstance(space, spaces.Dict) else space.spaces))
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1
