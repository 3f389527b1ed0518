"""What the command line is given as text or as a TOML file: seeds, settings, options."""

import difflib
import tomllib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError

# Where a flag is not called like its field, as these are words of Python.
FLAG_NAMES = {"settings": "set", "start_from": "from"}


def parse_settings(texts: Sequence[str]) -> dict[str, list[str]]:
    """Of "xi=0.05" and "shots=1,100" the values by name; a later mention of a name replaces an earlier one."""
    settings = {}
    for text in texts:
        name, equals, values = text.partition("=")
        chosen = [value.strip() for value in values.split(",")]
        if not (equals and name.strip() and all(chosen)):
            raise UserError(f"--set takes NAME=VALUE or NAME=VALUE,VALUE, not {text!r} (a task goes before --set).")
        settings[name.strip()] = chosen
    return settings


def flags_of_file(path: Path, command: type[Any], with_task: bool) -> list[str]:
    """A config file as the flags that would say the same, so that both are checked in one place."""
    content = _read_toml(path)
    names = {FLAG_NAMES.get(f.name, f.name) for f in fields(command)} - {"config"}
    kinds = {f.name: type(f.default) for f in fields(command)}
    task: list[str] = []
    settings: list[str] = []
    flags: list[str] = []
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in names:
            known = [known.replace("_", "-") for known in sorted(names)]
            close = difflib.get_close_matches(key, known, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}."
            raise UserError(f"{path} has an unknown key {key!r}; {hint}")
        if name == "set":
            if not isinstance(value, dict):
                raise UserError(f"{path}: set must be a table of settings, [set] and below it xi = 0.05.")
            for setting, chosen in value.items():
                settings += ["--set", f"{setting}={_as_text(path, setting, chosen)}"]
        elif kinds.get(name) is bool or isinstance(value, bool):
            if not (kinds.get(name) is bool and isinstance(value, bool)):
                raise UserError(f"{path}: {key} cannot be {str(value).lower()}; see pac4sac train --help.")
            flags.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
        elif name != "task":
            flags += [f"--{name.replace('_', '-')}", _as_text(path, key, value)]
        elif with_task:
            task = [_as_text(path, key, value)]
    # In this order, and with the name of the file again, lest a --set take a task behind it for one more setting.
    return [*task, *settings, *flags, "--config", str(path)]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"The config file {path} cannot be read ({error.strerror}).") from error
    except ValueError as error:  # of TOML, or of UTF-8
        raise UserError(f"{path} is no TOML file: {error}.") from error


def _as_text(path: Path, key: str, value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(v, list | dict) for v in values):
        raise UserError(f"{path}: {key} must be a value or a list of values, not {value!r}.")
    return ",".join(str(v).lower() if isinstance(v, bool) else str(v) for v in values)
