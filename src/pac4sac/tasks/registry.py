"""Tasks by name, and their environments.

Any Gymnasium environment with continuous actions can be a task. A thin wrapper gives it flat
float32 observations and, for learners, actions in [-1, 1].
"""

import contextlib
import copy
import difflib
import functools
import importlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from pac4sac.base.errors import UserError, WrongType, how_to_install
from pac4sac.base.objects import check_script, is_in_process, object_of
from pac4sac.base.trust import allow_registered, trusted_module
from pac4sac.tasks.catalogue import HORIZON, NAMED_TASKS, TASKS, Task
from pac4sac.tasks.custom import accepted, check_new, custom_spec, made_spec
from pac4sac.tasks.offscreen import VARIABLE, advice_on, choose_offscreen_rendering, withdraw_choice
from pac4sac.tasks.wrappers import wrap, wrapper_maker

Vector = NDArray[np.float32]
ToVector = Callable[[Any], Vector]
ToAction = Callable[[Vector], Any]

# Task fields that --set-task and --steps change.
GIVEN = ("name", "horizon", "r_limit", "env_kwargs", "steps", "updates_per_step", "wrappers")
# Class in robots.py and the original solve threshold of each environment.
ROBOTS = {"CartpoleSwingup": 800.0, "HalfCheetah": 3000.0, "Ant": 2500.0, "Humanoid": None}


def register_environments() -> None:
    """Register the four PyBullet environments; PyBullet is imported when one is made."""
    for robot, threshold in ROBOTS.items():
        if (env_id := f"pac4sac/{robot}-v0") not in gymnasium.registry:
            home = f"pac4sac.tasks.robots:{robot}"
            gymnasium.register(env_id, home, reward_threshold=threshold, max_episode_steps=HORIZON)


def get_task(task: str | Task, steps: int | None = None) -> Task:
    """Return a task.

    Args:
        task: A task, the name of a shipped task, or a Gymnasium id, which gives a task with the
            environment's own limits.
        steps: Step budget that replaces the task's.

    Raises:
        UserError: If there is no such task.
    """
    if isinstance(task, str):
        task = known_task(task) or _task_of(task, find_spec(task))
    elif not isinstance(task, Task):
        raise WrongType(
            "task must be a name, a pac4sac.Task, or a class or function that creates an "
            f"environment, not {task!r}."
        )
    return task if steps is None else replace(task, steps=steps)


def known_task(name: str) -> Task | None:
    """Return the task with a name; None if the task needs an import or a user's object."""
    register_environments()
    spec = gymnasium.registry.get(name)
    return NAMED_TASKS.get(name) or (None if spec is None else _task_of(name, spec))


def _task_of(name: str, spec: EnvSpec) -> Task:
    return Task(name, name, spec.max_episode_steps, spec.reward_threshold)


def given_task(task: Task) -> dict[str, Any]:
    """Return the name with which `get_task` finds a task, and the overridden fields."""
    is_shipped = task.name in NAMED_TASKS and task.env_id == NAMED_TASKS[task.name].env_id
    name = task.name if is_shipped else task.env_id
    known = known_task(name) or Task(name, name)
    changes = {
        f.name: getattr(task, f.name)
        for f in fields(task)
        if f.name in GIVEN and _differs(getattr(task, f.name), getattr(known, f.name))
    }
    return {"task": name, "changes": changes}


def _differs(value: Any, other: Any) -> bool:
    """Compare values as JSON, because 850 and 850.0 differ in the identity of a run."""
    return json.dumps(value) != json.dumps(other)


def time_limit(task: Task) -> int | None:
    """Return the number of steps after which an episode is truncated; None without a time limit."""
    return task.horizon or find_spec(task.env_id).max_episode_steps


def find_spec(env_id: str) -> EnvSpec:
    """Return the Gymnasium spec of an environment, after importing the module that registers it."""
    register_environments()
    if is_in_process(env_id):
        return made_spec(env_id, object_of(env_id, "environment"))
    check_script(env_id)
    module = trusted_module(env_id)
    if module:
        _import_home(env_id, module)
    elif env_id.startswith("dm_control/"):
        _import_dm_control(env_id)
    spec = gymnasium.registry.get(env_id.rpartition(":")[2] if module else env_id)
    if spec is None and module:
        spec = custom_spec(env_id)
    if spec is None:
        raise UserError(f"Unknown task or environment {env_id!r}; {_nearest(env_id, module)}")
    if module and isinstance(spec.entry_point, str):
        allow_registered(module, spec.entry_point.partition(":")[0])
    return spec


def _import_home(env_id: str, module: str) -> None:
    """Import the module that registers an environment."""
    try:
        _registered_by(module)
    except ModuleNotFoundError as missing:
        raise UserError(
            f"Task {env_id!r} needs the module {module!r}, but there is no module "
            f"{missing.name!r}; install it or add its folder to PYTHONPATH."
        ) from missing


def _import_dm_control(env_id: str) -> None:
    """Import the module that registers the environments of dm_control."""
    choose_offscreen_rendering()
    try:
        importlib.import_module("dm_control")
        importlib.import_module("shimmy")
    except ModuleNotFoundError as missing:
        raise UserError(
            f"Task {env_id!r} needs dm_control ({missing}); {how_to_install('dmc')}."
        ) from missing
    except Exception as error:  # error of the chosen rendering library
        if withdraw_choice():
            return _import_dm_control(env_id)  # training does not render
        cause = f"{type(error).__name__}: {error}".strip().rstrip(".")
        raise UserError(
            f"Task {env_id!r} needs dm_control, which cannot be imported ({cause})."
            f"{advice_on(error)}"
        ) from error


def _nearest(env_id: str, module: str | None) -> str:
    """Return the end of an error message about an unknown id, with similar ids."""
    own = _environments_of(module) if module else set()
    known = {known.lower(): known for known in (own or {*gymnasium.registry, *NAMED_TASKS})}
    name, cutoff = env_id.rpartition(":")[2].lower(), 0.0 if own else 0.65
    close = difflib.get_close_matches(name, known, n=3, cutoff=cutoff)
    if module and not close:
        return f"the module {module!r} has no such class or function, and registers no such id."
    if not close:
        return (
            f"use one of {', '.join(TASKS)}, or any Gymnasium id with continuous actions. "
            "List tasks: pac4sac list tasks."
        )
    prefix = f"{module}:" if own else ""
    return f"did you mean {' or '.join(prefix + known[match] for match in close)}?"


def environment_modules(task: Task) -> set[str]:
    """Return the modules that register and define an environment.

    For a custom environment, the modules of its base environments are included.
    """
    entry, module = find_spec(task.env_id).entry_point, task.env_id.rpartition(":")[0]
    if isinstance(entry, str):
        home, _, name = entry.partition(":")
        bases = _environment_bases(home, name) if module else set()
    else:
        home, bases = getattr(entry, "__module__", ""), set()
    wrappers = {wrapper_maker(each["wrapper"]).__module__ for each in task.wrappers}
    return {module, home, *bases, *wrappers} - {""}


def _environment_bases(module: str, name: str) -> set[str]:
    """Return the modules of those base classes of a custom class that are Gymnasium
    environments."""
    try:
        custom = getattr(importlib.import_module(module), name, None)
    except Exception:  # errors of custom code are reported when the environment is made
        return set()
    homes = {base.__module__ for base in getattr(custom, "__mro__", ())}
    return {home for home in homes if home.startswith("gymnasium.envs.")}


def _environments_of(module: str) -> set[str]:
    """Return the ids that a module registers, and the names of its classes of environments."""
    classes = {
        name
        for name, thing in vars(importlib.import_module(module)).items()
        if isinstance(thing, type)
        and issubclass(thing, gymnasium.Env)
        and not issubclass(thing, gymnasium.Wrapper)
        and thing.__module__ == module
    }
    return _registered_by(module) | classes


@functools.cache
def _registered_by(module: str) -> set[str]:
    """Return the ids that importing a module registers; empty if it was imported before."""
    before = set(gymnasium.registry)
    importlib.import_module(module)
    return set(gymnasium.registry) - before


class TaskEnv(gymnasium.Wrapper[Vector, Vector, Any, Any]):
    """Replace the wrappers TimeLimit, FlattenObservation and, with `unit_actions`, RescaleAction.

    One wrapper makes fewer calls per step.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], task: Task, unit_actions: bool) -> None:
        super().__init__(env)
        self.task, self.horizon, self.elapsed_steps = task, time_limit(task), 0
        unit, self.from_unit, self.to_unit = _action_adapter(env.action_space, task.name)
        self.observation_space, self.to_vector = _observation_adapter(
            env.observation_space, task.name
        )
        if unit_actions:
            self.action_space = unit
        self._to_action = self.from_unit if unit_actions else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
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
    """Make the environment of a task, whose module must be trusted.

    Args:
        task: The task.
        render_mode: Render mode of the environment.
        unit_actions: Whether actions are vectors in [-1, 1].

    Raises:
        UserError: If the environment cannot be made, or its spaces are not supported.
    """
    # Without the wrappers of gymnasium.make, because TaskEnv counts the steps.
    spec = copy.deepcopy(find_spec(task.env_id))
    spec.order_enforce = False
    spec.max_episode_steps = None
    kwargs = task.env_kwargs | ({} if render_mode is None else {"render_mode": render_mode})
    try:
        env = gymnasium.make(spec, disable_env_checker=True, **accepted(spec, kwargs))
    except (Exception, SystemExit) as error:  # environments can raise any exception
        raise UserError(_why_not_made(task, kwargs, error)) from error
    check_new(spec, env)
    if env.unwrapped.spec is not None:
        env.unwrapped.spec.max_episode_steps = time_limit(task)  # some wrappers read it
    try:
        return TaskEnv(wrap(env, task.wrappers), task, unit_actions)
    except UserError:
        env.close()
        raise


def _why_not_made(task: Task, kwargs: Mapping[str, Any], error: BaseException) -> str:
    """Return a sentence on an environment that could not be made."""
    if isinstance(error, gymnasium.error.DependencyNotInstalled):
        if "mujoco" in str(error).lower():
            needed = f"MuJoCo, which is not installed; {how_to_install('mujoco')}."
        else:
            needed = f"a package that is not installed: {error}"
        return f"Task {task.name!r} needs {needed}"
    if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
        return (
            f"The environment of task {task.name!r} does not take all of the options "
            f"{', '.join(kwargs)}; leave out those it lacks."
        )
    cause = f"{type(error).__name__}: {error}"
    if advice := advice_on(error) if VARIABLE in os.environ else "":
        return f"The environment of task {task.name!r} cannot be made ({cause}).{advice}"
    return f"The environment of task {task.name!r} cannot be made ({cause}); fix it first."


_sizes: dict[str, tuple[EnvSpec, tuple[int, int]]] = {}  # (environment, options) -> spec and sizes
_seconds: dict[str, float] = {}


def _key(task: Task) -> str:
    return f"{task.env_id} {task.env_kwargs} {task.wrappers}"


def task_sizes(task: Task) -> tuple[int, int]:
    """Return the lengths of an observation and of an action.

    This makes an environment once, and again if its id is registered again.
    """
    key, spec = _key(task), find_spec(task.env_id)
    if key not in _sizes or _sizes[key][0] is not spec:
        with contextlib.closing(make_env(task, unit_actions=True)) as env:
            sizes = (
                math.prod(env.observation_space.shape or ()),
                math.prod(env.action_space.shape or ()),
            )
        _sizes[key] = spec, sizes
    return _sizes[key][1]


def simulator_seconds(task: Task) -> float:
    """Return the time of one step with random actions, measured once; 0 after an error."""
    key = _key(task)
    if key not in _seconds:
        taken = sorted([0.0, *_measured_steps(task)])
        # The lower quartile, because other programs slow down some steps.
        _seconds[key] = taken[len(taken) // 4]
    return _seconds[key]


def _measured_steps(task: Task) -> list[float]:
    """Return the times of 50 steps with random actions, or of those before an error."""
    taken: list[float] = []
    with (
        contextlib.closing(make_env(task, unit_actions=True)) as env,
        contextlib.suppress(Exception),
    ):
        env.action_space.seed(0)
        env.reset(seed=0)
        for _ in range(50):
            action = env.action_space.sample()
            start = time.perf_counter()
            _, _, terminated, truncated, _ = env.step(action)
            taken.append(time.perf_counter() - start)
            if terminated or truncated:
                env.reset()
    return taken


def _action_adapter(
    space: spaces.Space[Any], name: str
) -> tuple[spaces.Space[Vector], ToAction | None, ToVector | None]:
    """Return the space of agents' actions, in [-1, 1], and the functions to and from a space.

    The functions are None if the spaces are the same.
    """
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        kind = "integer" if isinstance(space, spaces.Box) else type(space).__name__
        raise UserError(
            f"Task {name!r} has {kind} actions, but agents support only continuous actions. "
            "Choose an environment with a Box as its action space."
        )
    if np.any(np.abs([space.low, space.high]) >= np.finfo(np.float32).max):
        raise UserError(
            f"Task {name!r} has an unbounded action space; wrap the environment so that its "
            "actions have finite bounds."
        )
    unit = spaces.Box(-1.0, 1.0, (math.prod(space.shape),), np.float32)
    if space == unit:
        return unit, None, None
    low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    middle, half, shape, dtype = (high + low) / 2, (high - low) / 2, space.shape, space.dtype

    def from_unit(action: Vector) -> Any:
        return np.clip(middle + half * action, low, high).astype(dtype).reshape(shape)

    def to_unit(action: Any) -> Vector:
        centred = np.asarray(action, np.float64).reshape(-1) - middle
        return np.divide(centred, half, out=np.zeros_like(half), where=half > 0).astype(np.float32)

    return unit, from_unit, to_unit


def _observation_adapter(
    space: spaces.Space[Any], name: str
) -> tuple[spaces.Space[Vector], ToVector | None]:
    """Return the space of flat float32 observations, and the conversion function if needed."""
    if _has_image(space):
        raise UserError(
            f"Task {name!r} has image observations, which the agents do not support; choose an "
            "environment with vector observations."
        )
    if not space.is_np_flattenable:
        raise UserError(
            f"Task {name!r} has the observation space {type(space).__name__}, which has no fixed "
            "length; wrap the environment so that its observation space is a Box or a Dict of "
            "Boxes."
        )
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    vector = spaces.Box(
        flat.low.astype(np.float32), flat.high.astype(np.float32), flat.shape, np.float32
    )
    if space == vector:
        return vector, None
    if isinstance(space, spaces.Box):
        return vector, lambda observation: np.asarray(observation, np.float32).reshape(-1)
    return vector, lambda observation: np.asarray(spaces.flatten(space, observation), np.float32)


def _has_image(space: spaces.Space[Any]) -> bool:
    """Return whether a space contains images."""
    if isinstance(space, spaces.Dict):
        return any(map(_has_image, space.values()))
    if isinstance(space, spaces.Tuple):
        return any(map(_has_image, space.spaces))
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1
