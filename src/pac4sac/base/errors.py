"""Mistakes of the user, told in one sentence. The command line prints the sentence and exits with
2."""

import importlib
from typing import Any


class UserError(Exception):
    """Something the user can mend; its text says what is wrong and what to do instead."""


def how_to_install(extra: str) -> str:
    """For a sentence about something that an extra brings."""
    return f"install pac4sac[{extra}], in a clone by pip install -c constraints.txt '.[{extra}]'"


def import_extra(extra: str, problem: str, *modules: str, otherwise: str = "") -> Any:
    """The last of some modules that an extra brings; where one is missing, a sentence that begins
    with the problem."""
    try:
        *_, wanted = map(importlib.import_module, modules)
        return wanted
    except ImportError as missing:
        raise UserError(f"{problem}; {how_to_install(extra)}{otherwise}.") from missing


class DamagedCheckpoint(Exception):
    """Why a checkpoint cannot be used."""
