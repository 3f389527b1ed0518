"""Config files. A TOML file of options is converted to flags, which the parser checks."""

import itertools
import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import read_toml
from pac4sac.base.known_names import answer_on_option, our_options
from pac4sac.base.text import did_you_mean
from pac4sac.cli.arguments import FLAG_NAMES

NOT_IN_FILES = ("config", "trust")  # a file must not decide which modules are trusted


def flags_of_file(path: Path, command: type[Any], with_task: bool) -> list[str]:
    """Convert a config file to the flags of a command."""
    kinds = {
        FLAG_NAMES.get(f.name, f.name): type(f.default)
        for f in fields(command)
        if f.name not in NOT_IN_FILES
    }
    task, flags = [], []
    for key, value in our_options(read_toml(path)[1]).items():
        name = key.replace("-", "_")
        _check_key(path, key, kinds)
        if name == "task":
            _check_truth_value(path, key, value, expected=False)
            task = [_as_text(path, key, value)]
        else:
            flags += _flags_of_key(path, key, value, kinds[name])
    # The task goes first, because after --set the parser would read it as a setting.
    return [*(task if with_task else []), *flags, "--config", str(path)]


def _flags_of_key(path: Path, key: str, value: Any, kind: type[Any]) -> list[str]:
    """Return the flags of a key other than the task; `kind` is the type of its default."""
    name = key.replace("-", "_")
    if name == "wrapper":
        return _wrapper_flags(path, value)
    if name in ("set", "set_task"):
        return _setting_flags(path, key, value)
    _check_truth_value(path, key, value, kind is bool)
    return _option_flags(path, key, value)


def _wrapper_flags(path: Path, value: Any) -> list[str]:
    """Return a flag for each wrapper, a string such as "my_module:Scale factor=0.1"."""
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise UserError(
            f'{path}: wrapper must be a string such as "my_module:Scale factor=0.1", or a list of '
            f"strings, not {value!r}."
        )
    return list(itertools.chain(*(["--wrapper", *shlex.split(text)] for text in texts)))


def _check_key(path: Path, key: str, kinds: dict[str, type[Any]]) -> None:
    if (name := key.replace("-", "_")) not in kinds:
        if advice := answer_on_option(name):
            raise UserError(f"{path} has an unknown key {key!r}: {advice}.")
        known = [name.replace("_", "-") for name in sorted(kinds)]
        raise UserError(f"{path} has an unknown key {key!r}; {did_you_mean(key, known)}")


def _check_truth_value(path: Path, key: str, value: Any, expected: bool) -> None:
    """Refuse true or false for an option that takes other values, and other values for a switch."""
    if isinstance(value, bool) != expected:
        raise UserError(f"{path}: {key} cannot be {str(value).lower()}; see the command's --help.")


def _setting_flags(path: Path, key: str, table: Any) -> list[str]:
    """Return the flags of a table [set] or [set-task]."""
    if not isinstance(table, dict):
        raise UserError(
            f"{path}: {key} must be a table, which starts with [{key}] and has lines such as xi = "
            "0.05."
        )
    flags = []
    for name, value in table.items():
        if key == "set":
            flags += ["--set", f"{name}={_as_text(path, name, value)}"]
        else:
            flags += ["--set-task", f"{name}={json.dumps(value, default=str)}"]
    return flags


def _option_flags(path: Path, key: str, value: Any) -> list[str]:
    flag = key.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", _as_text(path, key, value)]


def _as_text(path: Path, key: str, value: Any) -> str:
    """Return a value, or a list of values, in the format of the command line."""
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(item, list | dict) for item in values):
        raise UserError(f"{path}: {key} must be a value or a list of values, not {value!r}.")
    return ",".join(str(item).lower() if isinstance(item, bool) else str(item) for item in values)
