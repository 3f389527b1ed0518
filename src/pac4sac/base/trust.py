"""Which custom code may run.

Files name algorithms and environments as `module:Name`. A module is imported only if the user
named it: with --trust, or as the algorithm or the task of the command or call itself.

An environment variable holds the modules, so workers and the cohorts of a study trust the same
modules as their parent.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pac4sac.base.errors import UserError

TRUSTED = "PAC4SAC_TRUST"


def trusted() -> list[str]:
    """Return the modules that may be imported."""
    return [module for module in os.environ.get(TRUSTED, "").split(",") if module]


def allow(modules: str | Iterable[str]) -> None:
    """Allow modules that the user named, each as `module` or as `module:Name`."""
    named = [modules] if isinstance(modules, str) else modules
    allowed = [name.rpartition(":")[0] or name for name in named]
    os.environ[TRUSTED] = ",".join(dict.fromkeys([*trusted(), *allowed]))


def allow_named(*names: Any) -> None:
    """Allow the modules of algorithms and tasks that the user named as `module:Name`."""
    allow(name.strip() for name in names if isinstance(name, str) and ":" in name)


@contextlib.contextmanager
def consent_of_one_command() -> Iterator[None]:
    """Forget after a command which modules it allowed."""
    before = trusted()
    try:
        yield
    finally:
        os.environ[TRUSTED] = ",".join(before)


def trusted_module(name: str) -> str:
    """Return the module of `module:Name`, or nothing for a name without a module.

    Raises:
        UserError: If the user did not name the module, or it is not the name of a module.
    """
    module = name.rpartition(":")[0]
    if not module:
        return ""
    if not all(part.isidentifier() for part in module.split(".")):
        raise UserError(
            f"{name!r} could not be imported: {module!r} is no module; write your_module:Name."
        )
    if module not in trusted():
        raise UserError(
            f"{name!r} comes from a file and asks to import the module {module!r}, which "
            "would run its code; "
            f"if you trust it, allow it with --trust {module}, in Python with trust={module!r}."
        )
    return module


def own_class(name: str, what: str, base: type[Any]) -> type[Any]:
    """Return the user's class `module:Class`.

    Args:
        name: Module and class.
        what: What the class is, for error messages.
        base: Class that it must be derived from.

    Raises:
        UserError: If it is not such a class, cannot be imported, or its module is not trusted.
    """
    module, _, class_name = name.rpartition(":")
    if not (module and class_name):
        raise UserError(f"{name!r} is no {what}; name a class of your own as module:Class.")
    own = own_object(name, what)
    if not (isinstance(own, type) and issubclass(own, base)):
        raise UserError(f"{name!r} is not a subclass of pac4sac.{base.__name__}.")
    return own


def own_object(name: str, what: str) -> Any:
    """Return the object `module:Name` of a trusted module."""
    try:
        module = importlib.import_module(trusted_module(name))
        return getattr(module, name.rpartition(":")[2])
    except Exception as error:  # the user's module can raise anything
        is_missing = isinstance(error, ImportError | AttributeError)
        kind = "" if is_missing else f"{type(error).__name__}: "
        raise UserError(f"The {what} {name!r} could not be imported: {kind}{error}.") from error


def import_path() -> str:
    """Return the import path for a process that must import the same modules as this one."""
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path if isinstance(entry, str))
