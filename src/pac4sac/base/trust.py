"""Whose code may run. Files name algorithms and environments as `module:Name`, but a module is
imported only where the user named it: with --trust, or as the algorithm or the task of the command
or call itself.

The modules are kept in an environment variable, so that workers and the cohorts of a study trust
what their parent does, and nothing else."""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pac4sac.base.errors import UserError

TRUSTED = "PAC4SAC_TRUST"


def trusted() -> list[str]:
    return [module for module in os.environ.get(TRUSTED, "").split(",") if module]


def allow(modules: str | Iterable[str]) -> None:
    """Modules that the user names, each alone or with a class or an environment of it behind a
    colon."""
    named = [modules] if isinstance(modules, str) else modules
    os.environ[TRUSTED] = ",".join(
        dict.fromkeys([*trusted(), *(name.rpartition(":")[0] or name for name in named)])
    )


def allow_named(*names: Any) -> None:
    """The modules of algorithms and tasks that the user names; most have none."""
    allow(name.strip() for name in names if isinstance(name, str) and ":" in name)


@contextlib.contextmanager
def consent_of_one_command() -> Iterator[None]:
    before = trusted()
    try:
        yield
    finally:
        os.environ[TRUSTED] = ",".join(before)


def trusted_module(name: str) -> str:
    """The module that is to be imported for `module:Name`, where the user named it; empty for a
    name without one."""
    module = name.rpartition(":")[0]
    if module and not all(part.isidentifier() for part in module.split(".")):
        raise UserError(
            f"{name!r} could not be imported: {module!r} is no module; write your_module:Name."
        )
    if module and module not in trusted():
        raise UserError(
            f"{name!r} comes from a file and asks to import the module {module!r}, which "
            "would run its code; "
            f"if you trust it, allow it with --trust {module}, in Python with trust={module!r}."
        )
    return module


def own_class(name: str, what: str, base: type[Any]) -> type[Any]:
    """The user's own class `module:Class`, where `what` says in a word what it is to be; a subclass
    of `base`."""
    module, _, class_name = name.rpartition(":")
    if not (module and class_name):
        raise UserError(f"{name!r} is no {what}; name a class of your own as module:Class.")
    try:
        own = getattr(importlib.import_module(trusted_module(name)), class_name)
    except Exception as error:  # whatever the module of the user's own raises
        kind = (
            "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        )
        raise UserError(f"The {what} {name!r} could not be imported: {kind}{error}.") from error
    if not (isinstance(own, type) and issubclass(own, base)):
        raise UserError(f"{name!r} is not a subclass of pac4sac.{base.__name__}.")
    return own


def import_path() -> str:
    """For a process that shall import what this one can, from wherever it is started."""
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path if isinstance(entry, str))
