"""Environments from a custom class or function, or from an existing object."""

import contextlib
import functools
import importlib
import inspect
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec

from pac4sac.base.errors import UserError, WrongType
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
    # these errors are reported when the environment is made for training
    with contextlib.suppress(Exception), contextlib.closing(maker()) as env:
        _last_made[env_id] = weakref.ref(env.unwrapped)
        return None if env.spec is None else env.spec.max_episode_steps
    return None


def accepted(spec: EnvSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without the render mode if a custom function does not accept it."""
    keep_mode = takes_render_mode(spec)
    return {name: x for name, x in arguments.items() if keep_mode or name != "render_mode"}


def takes_render_mode(spec: EnvSpec) -> bool:
    """Return whether an environment accepts a render mode; some custom functions do not."""
    maker = spec.entry_point
    if spec.id not in _specs or isinstance(maker, type) or not callable(maker):
        return True
    taken = inspect.signature(maker).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in taken.values())
    return takes_all or "render_mode" in taken


def check_new(spec: EnvSpec, env: Env) -> None:
    """Refuse a function that returns the same environment each time.

    Raises:
        UserError: If the function returned the same environment as in the previous call.
    """
    if spec.id not in _specs:
        return
    last = _last_made.get(spec.id)
    if last is not None and last() is env.unwrapped:
        raise UserError(
            f"{short_name(spec.id)} returns the same environment every time; it must create a new "
            "one at each call, because every run needs its own environment."
        )
    _last_made[spec.id] = weakref.ref(env.unwrapped)


class Recipe(NamedTuple):
    """Hold the spec of environments like an existing one."""

    env_id: str
    env_kwargs: dict[str, Any]
    wrappers: list[functools.partial[Env]]
    horizon: int | None


def recipe(env: Env) -> Recipe:
    """Return the spec of more environments like one that Gymnasium has made.

    Later changes of the environment are unknown, so they are not repeated.

    Raises:
        UserError: If Gymnasium has not made it, or does not know the arguments of a wrapper.
    """
    spec = env.spec
    if spec is None:
        name = type(env.unwrapped).__name__
        raise WrongType(
            f"Every run needs its own environment, but {name} was not made with gymnasium.make, "
            "so its arguments are unknown; give its class with env_kwargs, or a function that "
            "creates it."
        )
    wrappers: list[functools.partial[Env]] = []
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if _is_recorded(layer):
            wrappers.insert(0, _maker_of(layer))
        layer = layer.env
    kwargs = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    return Recipe(spec.id, kwargs, wrappers, spec.max_episode_steps)


def _is_recorded(layer: gymnasium.Wrapper[Any, Any, Any, Any]) -> bool:
    """Return whether a wrapper was added to the wrappers of gymnasium.make."""
    outer, inner = layer.spec, layer.env.spec
    if outer is None or inner is None:
        return True
    return len(outer.additional_wrappers) > len(inner.additional_wrappers)


def _maker_of(layer: gymnasium.Wrapper[Any, Any, Any, Any]) -> functools.partial[Env]:
    """Return the class of a wrapper with the arguments that it was made with."""
    kind: type[Env] = type(layer)
    arguments = None
    if layer.spec is not None:
        arguments = layer.spec.additional_wrappers[-1].kwargs
    if arguments is None and len(inspect.signature(kind).parameters) > 1:
        raise UserError(
            f"The arguments of the wrapper {kind.__name__} are unknown, so it cannot be created "
            "for each run. Pass the environment without the wrapper, and add the wrapper with "
            f"wrappers=[functools.partial({kind.__name__}, ...)]."
        )
    return functools.partial(kind, **arguments or {})
