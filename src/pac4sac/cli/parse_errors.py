"""One-sentence messages for mistakes on the command line, in the format of all other errors."""

import contextlib
import difflib
import re
from collections.abc import Callable, Iterator
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.text import did_you_mean

try:  # not yet a stable interface; without it the parser prints boxes
    from tyro import _errors as events
except ImportError:
    events = None  # type: ignore[assignment]


@contextlib.contextmanager
def in_sentences(program: str, help_text: Callable[[], str]) -> Iterator[None]:
    """Raise a `UserError` for each mistake that the parser finds inside the `with` block.

    Args:
        program: The parsed command, such as "pac4sac train".
        help_text: Function that returns the help of that command.

    Raises:
        UserError: If the command line has a mistake.
    """
    if events is None:
        yield
        return

    def refuse(event: Any) -> None:
        if sentence := describe(event, program, help_text):
            raise UserError(f"{sentence} See {program} --help.")

    with events.on_parse_error(refuse):
        yield


def describe(event: Any, program: str, help_text: Callable[[], str]) -> str | None:
    """Describe a mistake in a sentence. Return None if only the parser can describe it."""
    match type(event).__name__:
        case "UnrecognizedArgs":
            return _unknown(event.tokens, program, help_text)
        case "InvalidChoice":
            name, close = flag_of(event.argument), similar(event.value, event.choices)
            hint = did_you_mean(event.value, close or event.choices, "it takes")
            return f"{name} cannot be {event.value!r}; {hint}"
        case "InstantiationFailure" if event.argument is not None:
            return f"{flag_of(event.argument)}: {event.message}"
        case "MissingArgs":
            names = ", ".join(flag_of(each.arg) for each in event.missing_arguments)
            return f"{program} needs {names}."
        case "BadValue" if event.reason == "too_few_values":
            return f"{flag_of(event.argument)} needs a value."
        case "MissingSubcommand":
            names = ", ".join(event.subcommand_spec.parser_from_name)
            return f"{program} needs one of these commands: {names}."
    return None


def _unknown(tokens: list[str], program: str, help_text: Callable[[], str]) -> str:
    """Describe an unknown option in a sentence, with similar ones."""
    token = next((each for each in tokens if each.startswith("-")), tokens[0])
    if not token.startswith("-"):
        return f"{program} got an unexpected argument: {token!r}."
    name = token.partition("=")[0]
    options = sorted(set(re.findall(r"--[a-z][a-z-]+", help_text())))
    hint = f" Did you mean {' or '.join(close)}?" if (close := similar(name, options)) else ""
    return f"{program} has no option {name}.{hint}"


def similar(name: str, known: Any) -> list[str]:
    """Return the names that are most similar to a mistyped name, best first."""
    return difflib.get_close_matches(name, list(known), n=2, cutoff=0.7)


def flag_of(argument: Any) -> str:
    """Return the name of an argument on the command line, such as --steps or TASK."""
    if argument.is_positional():
        return str(argument.lowered.metavar)
    return str(argument.lowered.name_or_flags[0])
