"""Allowed values of settings and options: an interval of numbers, or a choice of words."""

import math
from dataclasses import dataclass
from typing import Any

from pac4sac.base.errors import WrongType, WrongValue

LARGEST = 3.4e38  # largest float32, the precision of a learner
LARGEST_WHOLE = 2**63 - 1  # of int64
# Type of a setting -> its name, accepted types and largest number.
NUMBERS: dict[type, tuple[str, tuple[type[Any], ...], float]] = {
    int: ("a whole number", (int,), LARGEST_WHOLE),
    float: ("a number", (int, float), LARGEST),
}


@dataclass(frozen=True)
class Interval:
    """Hold an interval of numbers; an end is included unless it is open.

    Attributes:
        low: Lower end.
        high: Upper end.
        low_open: Whether `low` is excluded.
        high_open: Whether `high` is excluded.

    Example:
        >>> from pac4sac.agents.api import Interval
        >>> 0 in Interval(0, 1, low_open=True)
        False
    """

    low: float
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def __contains__(self, x: float) -> bool:
        is_excluded_end = (self.low_open and x == self.low) or (self.high_open and x == self.high)
        return self.low <= x <= self.high and not is_excluded_end

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"{'above' if self.low_open else 'at least'} {self.low:g}"
        left, right = "(" if self.low_open else "[", ")" if self.high_open else "]"
        return f"in {left}{self.low:g}, {self.high:g}{right}"


POSITIVE = Interval(0, low_open=True)
NON_NEGATIVE = Interval(0)
AT_LEAST_ONE = Interval(1)
UNIT = Interval(0, 1)
OPEN_UNIT = Interval(0, 1, low_open=True, high_open=True)
BELOW_ONE = Interval(0, 1, high_open=True)
ANY = Interval(-math.inf)
EPISODES = Interval(1, 1_000_000)  # as many as fit into memory

Allowed = Interval | tuple[str, ...] | None  # numbers, words, or any value of the type


def check_value(name: str, value: Any, kind: type, allowed: Allowed, other: str = "") -> None:
    """Refuse a value that has the wrong type or is not allowed.

    Args:
        name: Name of the setting or option.
        value: Its value.
        kind: Type of the value, unless `allowed` is a tuple of words.
        allowed: Interval of a number, or words; None for a boolean or a string.
        other: Word that is allowed in place of a number.

    Raises:
        WrongValue, WrongType: If the value is not allowed; the message says what is expected.
    """
    is_right, expected = _check(value, kind, allowed)
    if other and isinstance(allowed, Interval):
        is_right, expected = is_right or value == other, f"{other} or {expected}"
    if not is_right:
        accepted = str if isinstance(allowed, tuple) else NUMBERS.get(kind, ("", (kind,), 0))[1]
        error = WrongValue if isinstance(value, accepted) else WrongType
        raise error(f"{name} must be {expected}, not {_short(value)}.")


def _check(value: Any, kind: type, allowed: Allowed) -> tuple[bool, str]:
    """Return whether a value is allowed, and the expected values in words."""
    if isinstance(allowed, tuple):
        return value in allowed, f"one of {', '.join(allowed)}"
    if kind in (bool, str):
        return isinstance(value, kind), "true or false" if kind is bool else "a string"
    assert isinstance(allowed, Interval)
    return _check_number(value, kind, allowed)


def _check_number(value: Any, kind: type, allowed: Interval) -> tuple[bool, str]:
    """Return whether a value is a number of this type in the interval, and the expected values in
    words."""
    expected, accepted, largest = NUMBERS[int if kind is int else float]
    if allowed is not ANY:
        expected += f" {allowed}"
    if isinstance(value, bool) or not isinstance(value, accepted) or value not in allowed:
        return False, expected
    return abs(value) <= largest, f"{expected}, of at most {largest:.1g}"


def _short(value: Any) -> str:
    """Return a value as text of limited length."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "a number with too many digits"
    return repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:200]}…"
