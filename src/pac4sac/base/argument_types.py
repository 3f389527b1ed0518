"""Check the arguments of public functions against their annotations."""

import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pac4sac.base.errors import WrongType, WrongValue

WORDS: dict[Any, str] = {
    **{bool: "true or false", int: "a whole number", float: "a number", str: "a string"},
    **{Path: "a path", NoneType: "None", Mapping: "a dictionary", tuple: "a pair of numbers"},
    **{Sequence: "a list", Iterable: "a list", Callable: "a function"},
}
# Accepted types for an annotated type, if they are not just that type.
NUMBERS: dict[Any, type[Any]] = {int: Integral, float: Real}
ACCEPTED: dict[Any, type[Any]] = {Path: os.PathLike, Any: object}
LONGEST_NAME = 255  # largest number of bytes in the name of a file


def check_types(
    function: Callable[..., Any], given: Mapping[str, Any], leave: Collection[str] = ()
) -> None:
    """Refuse arguments with types that a function does not declare.

    Args:
        function: The function, which calls `check_types` first.
        given: Its arguments by name, from `locals()`.
        leave: Arguments that other code checks, with a better message.

    Raises:
        WrongType: If an argument has another type; the message has its name and the expected type.
        WrongValue: If a string has characters that file names cannot have, or a path is too long.
    """
    for name, hint in _types_of(function).items():
        if name not in given or name in leave:
            continue
        if not _accepts(hint, given[name]):
            raise WrongType(f"{name} must be {_expected(hint)}, not {_brief(given[name])}.")
        if isinstance(given[name], str | os.PathLike):
            _check_text(name, os.fspath(given[name]), is_path=Path in get_args(hint))


_types_of = functools.cache(get_type_hints)


def _accepts(hint: Any, value: Any) -> bool:
    """Return whether a value has a type. The items of containers are checked only for pairs."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_accepts(part, value) for part in parts)
    if kind is tuple:
        is_pair = isinstance(value, tuple | list) and len(value) == len(parts)
        return is_pair and all(map(_accepts, parts, value))
    if kind in NUMBERS:
        return _is_number(kind, value)
    return isinstance(value, ACCEPTED.get(kind, kind))


def _is_number(kind: type, value: Any) -> bool:
    """Return whether a value can be converted to a kind of number. A boolean is not a number."""
    if isinstance(value, bool) or not isinstance(value, NUMBERS[kind]):
        return False
    try:
        kind(value)
    except OverflowError:  # a whole number that is too large for a float
        return False
    return True


def _check_text(name: str, text: str, is_path: bool) -> None:
    """Refuse a string that cannot be stored or printed, and a path that is too long for a file."""
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        data = b"\0"
    if b"\0" in data:
        raise WrongValue(
            f"{name} contains characters that cannot be stored: {_brief(text)}; use printable "
            "characters only."
        )
    if is_path and max(map(len, data.split(os.sep.encode()))) > LONGEST_NAME:
        raise WrongValue(f"{name} is too long for a file name: {_brief(text)}; use a shorter name.")


def _expected(hint: Any) -> str:
    """Return the accepted types in words: a name, a pac4sac.Task or a function."""
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    words = list(dict.fromkeys(map(_words, parts)))
    if any("pac4sac." in word for word in words):  # the string names such an object
        words = ["a name" if word == WORDS[str] else word for word in words]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _words(hint: Any) -> str:
    """Return an accepted type in words."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is type:
        return f"a subclass of pac4sac.{parts[0].__name__}"
    return WORDS.get(kind) or f"a pac4sac.{kind.__name__}"


def _brief(value: Any) -> str:
    """Return a value as text for a message."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return f"such a large {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}…"
