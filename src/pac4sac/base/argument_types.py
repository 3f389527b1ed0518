"""Check the arguments of public functions against their annotations."""

import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pac4sac.base.errors import WrongType, WrongValue

WORDS: dict[Any, str] = {
    **{bool: "true or false", int: "a whole number", float: "a number", str: "a string"},
    **{Path: "a path", NoneType: "None", Mapping: "a dictionary"},
    tuple: "a pair of numbers",
    **{Sequence: "a list", Iterable: "a list", Callable: "a function"},
}
NUMBERS: dict[Any, type[Any]] = {int: Integral, float: Real}


def check_types(
    function: Callable[..., Any], given: Mapping[str, Any], leave: Collection[str] = ()
) -> None:
    """Refuse arguments whose type differs from a function's annotation.

    Args:
        function: The function, which calls this first.
        given: Its arguments by name, as `locals()` has them.
        leave: Arguments that are checked elsewhere, with a better message.

    Raises:
        WrongType: If one has another type; the message names the parameter and the expected type.
        WrongValue: If a string has characters that no file name can have.
    """
    for name, hint in _types_of(function).items():
        if name not in given or name in leave:
            continue
        if not _accepts(hint, given[name]):
            expected = " or ".join(dict.fromkeys(_words(hint)))
            raise WrongType(f"{name} must be {expected}, not {_brief(given[name])}.")
        if isinstance(given[name], str | Path) and not _is_text(str(given[name])):
            raise WrongValue(
                f"{name} has invalid characters: {_brief(given[name])}; use printable text."
            )


_types_of = functools.cache(get_type_hints)


def _accepts(hint: Any, value: Any) -> bool:
    """Return whether a value has a type; of containers, only the items of pairs are checked."""
    if hint is Any:
        return True
    if get_origin(hint) in (Union, UnionType):
        return any(_accepts(part, value) for part in get_args(hint))
    kind = get_origin(hint) or hint
    if kind is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if kind is Callable:
        return callable(value)
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
    if kind is tuple:
        parts = get_args(hint)
        is_pair = isinstance(value, tuple | list) and len(value) == len(parts)
        return is_pair and all(map(_accepts, parts, value))
    if kind is Path:
        return isinstance(value, os.PathLike)
    return not isinstance(kind, type) or isinstance(value, kind)


def _is_text(text: str) -> bool:
    """Return whether a string can be stored, printed and used as a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _words(hint: Any) -> list[str]:
    """Return the accepted types in words."""
    if get_origin(hint) in (Union, UnionType):
        return [word for part in get_args(hint) for word in _words(part)]
    kind = get_origin(hint) or hint
    if kind is Literal:
        return [repr(word) for word in get_args(hint)]
    name = str(getattr(kind, "__name__", kind))
    return [WORDS.get(kind) or f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"]


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
