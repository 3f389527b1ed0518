"""Errors with a message for the user; the command line prints it and exits with 2."""

import importlib
from typing import Any


class UserError(Exception):
    """Report an error that the user can fix; the message says what is wrong and what to do."""


class WrongType(UserError, TypeError):
    """Report an argument of a type that is not accepted."""


class WrongValue(UserError, ValueError):
    """Report an argument with a value that is not accepted."""


def how_to_install(extra: str) -> str:
    """Return the part of an error message that says how to install an extra."""
    return f"install pac4sac[{extra}], or in a clone pip install -c constraints.txt '.[{extra}]'"


def import_extra(extra: str, problem: str, *modules: str, otherwise: str = "") -> Any:
    """Import modules of an extra and return the last one.

    Args:
        extra: Name of the extra.
        problem: Beginning of the error message.
        modules: Names of the modules.
        otherwise: End of the error message.

    Raises:
        UserError: If a module is missing.
    """
    try:
        *_, wanted = map(importlib.import_module, modules)
        return wanted
    except ImportError as missing:
        raise UserError(f"{problem}; {how_to_install(extra)}{otherwise}.") from missing


class DamagedCheckpoint(Exception):
    """Report why a checkpoint cannot be used."""
