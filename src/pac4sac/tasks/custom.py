"""Environments that a custom class or function makes."""

import contextlib
import importlib
import inspect
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from pac4sac.base.errors import UserError
from pac4sac.base.objects import short_name

Env = gymnasium.Env[Any, Any]
Maker = Callable[..., Env]  # a class or a function

_specs: dict[str, EnvSpec] = {}  # by name
_last_made: dict[str, weakref.ref[Env]] = {}


def custom_spec(env_id: str) -> EnvSpec | None:
    """Return the spec of the environment `module:Name` of an imported module.

    The result is None if the module has no such class or function.
    """
    module, _, name = env_id.rpartition(":")
    maker = getattr(importlib.import_module(module), name, None)
    is_other_class = isinstance(maker, type) and not issubclass(maker, gymnasium.Env)
    return made_spec(env_id, maker) if callable(maker) and not is_other_class else None


def made_spec(env_id: str, maker: Maker) -> EnvSpec:
    """Return the Gymnasium spec of an environment that `maker` makes."""
    if env_id not in _specs or _specs[env_id].entry_point is not maker:
        _specs[env_id] = EnvSpec(env_id, maker, max_episode_steps=_time_limit(env_id, maker))
    return _specs[env_id]


def _time_limit(env_id: str, maker: Maker) -> int | None:
    """Return the time limit of an environment that a function makes with gymnasium.make, or
    None."""
    if isinstance(maker, type):
        return None
    # errors here are reported when the environment is made for use
    with contextlib.suppress(Exception), contextlib.closing(maker()) as env:
        _last_made[env_id] = weakref.ref(env.unwrapped)
        return None if env.spec is None else env.spec.max_episode_steps
    return None


def accepted(spec: EnvSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without the render mode if a custom function does not accept it."""
    maker = spec.entry_point
    if spec.id not in _specs or isinstance(maker, type) or not callable(maker):
        return dict(arguments)
    taken = inspect.signature(maker).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values())
    keep_mode = takes_all or "render_mode" in taken
    return {name: x for name, x in arguments.items() if keep_mode or name != "render_mode"}


def check_new(spec: EnvSpec, env: Env) -> None:
    """Refuse a function that returns the same environment in every call.

    Raises:
        UserError: If it returned the same environment as in the previous call.
    """
    if spec.id not in _specs:
        return
    last = _last_made.get(spec.id)
    if last is not None and last() is env.unwrapped:
        raise UserError(
            f"{short_name(spec.id)} returns the same environment every time; it must make a new "
            "one in each call, because every run needs its own."
        )
    _last_made[spec.id] = weakref.ref(env.unwrapped)
