"""Arguments that several commands share, and their parsing: training options, settings,
callbacks."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, field, fields, make_dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from pac4sac.base.errors import UserError
from pac4sac.base.files import parse_json
from pac4sac.base.ranges import Interval
from pac4sac.training.options import AUTO, Options


def optional(metavar: str, otherwise: str = "") -> Any:
    """Describe an optional argument; `otherwise` is its default in words."""
    hint = f"(default: {otherwise})" if otherwise else "(optional)"
    return arg(metavar=metavar, help_behavior_hint=hint)


def whole_number(*words: str) -> Any:
    """Describe an argument that is a whole number (1e6 is accepted too) or one of these words."""

    def read(texts: list[str]) -> int | str:
        (text,) = texts
        return text if text in words else _read_whole_number(text, words)

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="N",
        instance_from_str=read,
        is_instance=lambda _: True,
        str_from_instance=lambda n: [str(n)],
    )


def _read_whole_number(text: str, words: Sequence[str]) -> int:
    try:
        return int(text)  # exact for numbers that a float cannot represent
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number.is_integer():
        return int(number)
    expected = f"neither {' nor '.join(words)} nor" if words else "not"
    raise ValueError(f"{text!r} is {expected} a whole number.")


TASK_HELP = "Train on this task: a name from `pac4sac list tasks` or a Gymnasium id."
Seeds = Annotated[
    str, arg(metavar="SEEDS", help="Train with these seeds: 3, 0:5 (0 to 4) or 0,2,7.")
]
SettingTexts = Annotated[UseAppendAction[list[list[str]]], arg(name="set", metavar="NAME=VALUE")]
TaskChanges = Annotated[
    UseAppendAction[list[list[str]]],
    arg(
        metavar="NAME=VALUE",
        help=(
            "Override fields of the task with JSON values, e.g. r_limit=500, horizon=100 or "
            "'env_kwargs={\"g\": 3.7}'."
        ),
    ),
]
SlurmOptions = Annotated[
    UseAppendAction[list[list[str]]],
    arg(
        metavar="NAME=VALUE",
        help=(
            "Request these resources for each Slurm job, e.g. time=4:00:00 mem=16G partition=gpu; "
            "see docs/cluster.md."
        ),
    ),
]
Wrappers = Annotated[
    UseAppendAction[list[list[str]]],
    arg(
        name="wrapper",
        metavar="MODULE:CLASS",
        help=(
            "Wrap the environment, innermost first; arguments follow as NAME=VALUE, e.g. "
            "--wrapper action-repeat times=2 --wrapper my_module:Scale."
        ),
    ),
]
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
    arg(help=("Also log every run to this tracker, offline by default; see docs/command-line.md.")),
]
Callback = Annotated[
    str | None,
    arg(
        metavar="MODULE:CLASS",
        help=(
            "Call these custom subclasses of pac4sac.Callback during training, separated by commas."
        ),
        help_behavior_hint="(optional)",
    ),
]
MaxMinutes = Annotated[float | None, optional("M")]
Parallel = Annotated[
    NumberOrNone,
    arg(
        metavar="N",
        help="Train N cohorts at the same time.",
        help_behavior_hint="(default: based on available cores)",
    ),
]
KeepStale = Annotated[
    bool,
    arg(
        help=(
            "Keep runs trained by another version of the code and mark them in every table, "
            "instead of training them again."
        )
    ),
]
Folder = Annotated[Positional[Path], arg(metavar="DIR")]
Folders = Annotated[Positional[list[Path]], arg(metavar="DIR...", help_behavior_hint="(required)")]

# Flags whose names differ from their fields.
FLAG_NAMES = {"settings": "set", "start_from": "from", "wrappers": "wrapper"}
OPTIONS = {option.name: option for option in fields(Options)}
T = TypeVar("T")


def with_options(*names: str, otherwise: str = "") -> Callable[[type[T]], type[T]]:
    """Return a decorator that gives a command a flag for each of these training options.

    Args:
        names: Fields of `Options`, which also have the default, type and help.
        otherwise: Default to display instead of that of `Options`; the value is then None.
    """

    def add(command: type[T]) -> type[T]:
        flags = [_flag(OPTIONS[name], otherwise) for name in names]
        namespace = {"__doc__": command.__doc__}
        made = make_dataclass(
            command.__name__, flags, bases=(command,), namespace=namespace, frozen=True
        )
        # tyro reads the help of the other flags from the source code of the command. Since Python
        # 3.13, it finds that code by line number.
        for place in ("__module__", "__firstlineno__"):
            if hasattr(command, place):
                setattr(made, place, getattr(command, place))
        return made

    return add


def _flag(option: "Field[Any]", otherwise: str) -> tuple[str, Any, Any]:
    """Return name, annotated type and default of a command's field for an option."""
    allowed, default = option.metadata["allowed"], option.default
    kind: Any = option.type
    if isinstance(allowed, tuple):
        kind = Literal[allowed]
    hint = None
    if default is None:
        hint = "(optional)"
    elif otherwise or default is MISSING:
        hint = (
            f"(default: {otherwise}, else {default})" if otherwise else "(default: the task's own)"
        )
        kind, default = kind | None, None
    about = arg(
        name=FLAG_NAMES.get(option.name),
        metavar=_metavar(option),
        help=option.metadata["help"],
        help_behavior_hint=hint,
    )
    if isinstance(allowed, Interval):
        kind = Annotated[kind, whole_number(*_words(option))]
    return option.name, Annotated[kind, about], field(default=default)


def _metavar(option: "Field[Any]") -> str | None:
    allowed = option.metadata["allowed"]
    if isinstance(allowed, tuple):
        return f"{{{','.join(allowed)}}}"
    if isinstance(allowed, Interval):
        return "|".join(["N", *_words(option)])
    metavar: str | None = option.metadata["metavar"]
    return metavar


def _words(option: "Field[Any]") -> list[str]:
    """Return the words that an option accepts instead of a number."""
    return [AUTO] if option.default == AUTO else []


def options_of(command: object) -> dict[str, Any]:
    """Return the values of a command's training options."""
    given = {name: getattr(command, name, None) for name in OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


def callback_names(track: str, callback: str | None) -> list[str]:
    """Return the names in --track and --callback."""
    names = [] if track == "none" else [track]
    if callback:
        names += [name.strip() for name in callback.split(",")]
    return names


def callback_flags(names: Sequence[str]) -> str:
    """Return the flags that `callback_names` reads, each preceded by a space."""
    flags = [f" --track {name}" for name in names if ":" not in name]
    classes = [name for name in names if ":" in name]
    if classes:
        flags.append(f" --callback {','.join(classes)}")
    return "".join(flags)


def parse_settings(groups: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Parse settings such as "xi=0.05" and "shots=1,100". A later value of a name replaces an
    earlier value."""
    settings = {}
    for text in chain.from_iterable(groups):
        name, _, values = text.partition("=")
        chosen = [value.strip() for value in values.split(",")]
        if not name.strip() or not all(chosen):
            raise UserError(
                f"--set must be NAME=VALUE or NAME=VALUE,VALUE, not {text!r} (a task goes before "
                f"--set)."
            )
        settings[name.strip()] = chosen
    return settings


def parse_task_changes(groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Parse task fields such as "r_limit=500"; a value that is not JSON is a string."""
    return {name: _json_or_text(value) for name, value in _named_values("--set-task", groups)}


def parse_slurm_options(groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """Parse requests such as "time=4:00:00"."""
    return dict(_named_values("--slurm", groups))


def _named_values(flag: str, groups: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each NAME=VALUE after a flag."""
    for text in chain.from_iterable(groups):
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{flag} must be NAME=VALUE, not {text!r}.")
        yield name.strip(), value


def parse_wrappers(groups: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Parse wrappers such as ["my_module:Scale", "factor=0.1"] into their names and arguments."""
    tables = []
    for words in groups:
        if not words or "=" in words[0]:
            raise UserError(
                f"--wrapper must be a name and its arguments, as in --wrapper my_module:Scale "
                f"factor=0.1, not {' '.join(words)!r} (a task goes before --wrapper)."
            )
        table: dict[str, Any] = {"wrapper": words[0]}
        for word in words[1:]:
            name, equals, value = word.partition("=")
            if not equals:
                raise UserError(
                    f"An argument of the wrapper {words[0]} must be NAME=VALUE, not {word!r}. "
                    f"Give each wrapper its own --wrapper; a task goes before it."
                )
            table[name.strip()] = _json_or_text(value)
        tables.append(table)
    return tables


def _json_or_text(value: str) -> Any:
    try:
        return parse_json(value)
    except ValueError:
        return value
