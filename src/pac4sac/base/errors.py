"""Errors with a message for the user. The command line prints the message and exits with code 2."""

import importlib
import importlib.metadata
import shutil
import sys
from pathlib import Path
from typing import Any


class UserError(Exception):
    """Report an error that the user can fix; the message says what is wrong and what to do."""


class WrongType(UserError, TypeError):
    """Report an argument of a type that is not accepted."""


class WrongValue(UserError, ValueError):
    """Report an argument with a value that is not accepted."""


def how_to_install(extra: str) -> str:
    """Return the part of an error message that says how to install an extra into this environment.

    The command depends on whether this package is a clone, and on whether uv made the environment.
    """
    # not with find_spec: setuptools mistakes that for a start of pip, and then breaks torch's
    # compiler
    has_pip = any(importlib.metadata.distributions(name="pip"))
    pip = _program("pip") if has_pip else "uv pip"
    clone = Path(__file__).parents[3]
    if not (clone / "constraints.txt").is_file():
        return f"install it with {pip} install 'pac4sac[{extra}]'"
    command = f"{pip} install -c constraints.txt -e '.[{extra}]'"
    return f"install it with {command}{'' if Path.cwd() == clone else f' in {clone}'}"


def _program(name: str) -> str:
    """Return the command for a program of this environment, which may not be the active
    environment."""
    path = Path(sys.executable).with_name(name)
    if not path.is_file() or Path(shutil.which(name) or "") == path:
        return name
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


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
