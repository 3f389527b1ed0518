"""Arguments that several commands take, and how they are read: options of training, settings, a
TOML file."""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from pac4sac.base.errors import UserError
from pac4sac.base.files import parse_json, read_toml
from pac4sac.base.ranges import Interval
from pac4sac.base.text import did_you_mean
from pac4sac.training.options import AUTO, Options


def optional(metavar: str, otherwise: str = "") -> Any:
    """About an argument that may be left out, with what counts then."""
    return arg(
        metavar=metavar, help_behavior_hint=f"(default: {otherwise})" if otherwise else "(optional)"
    )


def whole_number(*words: str) -> Any:
    """How an argument is read that is a whole number, also as 1e6, or one of some words."""

    def read(texts: list[str]) -> int | str:
        (text,) = texts
        if text in words:
            return text
        with contextlib.suppress(ValueError):
            return int(text)
        with contextlib.suppress(ValueError):
            if (number := float(text)).is_integer():
                return int(number)
        raise ValueError(
            f"{text!r} is {'neither ' + ' nor '.join(words) + ' nor a' if words else 'no'} "
            "whole number."
        )

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="N",
        instance_from_str=read,
        is_instance=lambda _: True,
        str_from_instance=lambda n: [str(n)],
    )


TASK_HELP = "Name from `pac4sac list tasks`, or any Gymnasium id with continuous actions."
Seeds = Annotated[str, arg(metavar="SEEDS", help="Seeds to train with: 3, 0:5 (0 to 4) or 0,2,7.")]
SettingTexts = Annotated[UseAppendAction[list[list[str]]], arg(name="set", metavar="NAME=VALUE")]
TaskChanges = Annotated[UseAppendAction[list[list[str]]], arg(metavar="NAME=VALUE")]
Number = Annotated[int, whole_number(), arg(metavar="N")]
NumberOrNone = Annotated[int | None, whole_number()]
Trust = Annotated[
    UseAppendAction[list[str]],
    arg(
        metavar="MODULE",
        help="Allow files to import this module (runs its code); see docs/trust.md.",
    ),
]
Track = Annotated[
    Literal["none", "tensorboard", "wandb", "trackio"],
    arg(
        help=(
            "Show every run in this tracker too, offline unless it is told otherwise; see "
            "docs/command-line.md."
        )
    ),
]
Callback = Annotated[
    str | None,
    arg(
        metavar="MODULE:CLASS",
        help=(
            "Class of your own that watches training and may end a run, a subclass of "
            "pac4sac.Callback; or several."
        ),
        help_behavior_hint="(optional)",
    ),
]
MaxMinutes = Annotated[float | None, optional("M")]
Parallel = Annotated[
    NumberOrNone,
    arg(
        metavar="N",
        help="Cohorts trained side by side.",
        help_behavior_hint="(default: based on available cores)",
    ),
]
KeepStale = Annotated[
    bool,
    arg(
        help=(
            "Keep runs trained by an older code version, marked in every table; train none of them "
            "again."
        )
    ),
]
Folder = Annotated[Positional[Path], arg(metavar="DIR")]
Folders = Annotated[Positional[list[Path]], arg(metavar="DIR...", help_behavior_hint="(required)")]

# Where a flag is not called like its field, as these are words of Python.
FLAG_NAMES = {"settings": "set", "start_from": "from"}
OPTIONS = {option.name: option for option in fields(Options)}
T = TypeVar("T")


def with_options(*names: str, otherwise: str = "") -> Callable[[type[T]], type[T]]:
    """Give a command a flag for each of these options of training, as `Options` states them. With
    `otherwise`, a flag that is left out is None, and the text says what counts then."""

    def add(command: type[T]) -> type[T]:
        flags = [_flag(OPTIONS[name], otherwise) for name in names]
        namespace = {"__doc__": command.__doc__}
        made = make_dataclass(
            command.__name__, flags, bases=(command,), namespace=namespace, frozen=True
        )
        # In the source of the command are the sentences of its help; from Python 3.13 on a class
        # knows the line too.
        for place in ("__module__", "__firstlineno__"):
            if hasattr(command, place):
                setattr(made, place, getattr(command, place))
        return made

    return add


def _flag(option: "Field[Any]", otherwise: str) -> tuple[str, Any, Any]:
    kind: Any = option.type
    allowed, default, hint, metavar = (
        option.metadata["allowed"],
        option.default,
        None,
        option.metadata["metavar"],
    )
    if isinstance(allowed, tuple):
        kind, metavar = Literal[allowed], f"{{{','.join(allowed)}}}"
    elif isinstance(allowed, Interval):
        metavar = f"N|{AUTO}" if default == AUTO else "N"
    if default is None:
        hint = "(optional)"
    elif otherwise or default is MISSING:
        hint = (
            f"(default: {otherwise}, else {default})" if otherwise else "(default: the task's own)"
        )
        kind, default = kind | None, None
    name, sentence = FLAG_NAMES.get(option.name), option.metadata["help"]
    about = arg(name=name, metavar=metavar, help=sentence, help_behavior_hint=hint)
    if isinstance(allowed, Interval):
        kind = Annotated[kind, whole_number(*([AUTO] if option.default == AUTO else []))]
    return option.name, Annotated[kind, about], field(default=default)


def options_of(command: object) -> dict[str, Any]:
    """The options of training that a command was given or has by default."""
    given = {name: getattr(command, name, None) for name in OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


def callback_names(track: str, callback: str | None) -> list[str]:
    own = [name.strip() for name in callback.split(",")] if callback else []
    return own if track == "none" else [track, *own]


def callback_flags(names: Sequence[str]) -> str:
    """The flags that `callback_names` read."""
    own = ",".join(name for name in names if ":" in name)
    flags = [
        *(f"--track {name}" for name in names if ":" not in name),
        *([f"--callback {own}"] if own else []),
    ]
    return "".join(f" {flag}" for flag in flags)


def parse_settings(groups: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Of "xi=0.05" and "shots=1,100" the values by name; a later mention of a name replaces an
    earlier one."""
    settings = {}
    for text in (text for group in groups for text in group):
        name, equals, values = text.partition("=")
        chosen = [value.strip() for value in values.split(",")]
        if not (equals and name.strip() and all(chosen)):
            raise UserError(
                f"--set takes NAME=VALUE or NAME=VALUE,VALUE, not {text!r} (a task goes "
                "before --set)."
            )
        settings[name.strip()] = chosen
    return settings


def parse_task_changes(groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Of "r_limit=500" the value by name; what is no JSON is text."""
    changes = {}
    for text in (text for group in groups for text in group):
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set-task takes NAME=VALUE, not {text!r}.")
        try:
            changes[name.strip()] = parse_json(value)
        except ValueError:
            changes[name.strip()] = value
    return changes


def flags_of_file(path: Path, command: type[Any], with_task: bool) -> list[str]:
    """Return a config file as the flags that would say the same, so that both are checked in one
    place."""
    # a file cannot ask to be trusted
    taken = [f for f in fields(command) if f.name not in ("config", "trust")]
    kinds = {FLAG_NAMES.get(f.name, f.name): type(f.default) for f in taken}
    task, flags = [], []
    for key, value in read_toml(path)[1].items():
        name = key.replace("-", "_")
        if name not in kinds:
            known = [known.replace("_", "-") for known in sorted(kinds)]
            raise UserError(f"{path} has an unknown key {key!r}; {did_you_mean(key, known)}")
        if name in ("set", "set_task"):
            flags += _setting_flags(path, key, value)
        elif isinstance(value, bool) != (kinds[name] is bool):
            raise UserError(
                f"{path}: {key} cannot be {str(value).lower()}; see pac4sac train --help."
            )
        elif name == "task":
            task = [_as_text(path, key, value)]
        else:
            flags += _option_flags(path, key, value)
    # The task first and the name of the file at the end: a task after --set would be taken for one
    # more setting.
    return [*(task if with_task else []), *flags, "--config", str(path)]


def _setting_flags(path: Path, key: str, table: Any) -> list[str]:
    """Return the flags of a table [set] or [set-task]."""
    if not isinstance(table, dict):
        raise UserError(
            f"{path}: {key} must be a table, [{key}] and below it a line such as xi = 0.05."
        )
    flag = f"--{key.replace('_', '-')}"
    if flag == "--set":
        texts = {name: _as_text(path, name, value) for name, value in table.items()}
    else:
        texts = {name: json.dumps(value, default=str) for name, value in table.items()}
    return [word for name, text in texts.items() for word in (flag, f"{name}={text}")]


def _option_flags(path: Path, key: str, value: Any) -> list[str]:
    flag = key.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", _as_text(path, key, value)]


def _as_text(path: Path, key: str, value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(v, list | dict) for v in values):
        raise UserError(f"{path}: {key} must be a value or a list of values, not {value!r}.")
    return ",".join(str(v).lower() if isinstance(v, bool) else str(v) for v in values)
