"""What a setting or an option may be: an interval of numbers, or one of some words."""

import math
from dataclasses import dataclass
from typing import Any

from pac4sac.base.errors import UserError

LARGEST = 3.4e38  # a learner computes in float32, where more than this is infinite
LARGEST_WHOLE = 2**63 - 1  # that a tensor can hold


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, each end included unless it is open."""

    low: float
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def __contains__(self, x: float) -> bool:
        above = x > self.low if self.low_open else x >= self.low
        return above and (x < self.high if self.high_open else x <= self.high)

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"{'above' if self.low_open else 'at least'} {self.low:g}"
        return (
            f"in {'(' if self.low_open else '['}{self.low:g}, "
            f"{self.high:g}{')' if self.high_open else ']'}"
        )


POSITIVE = Interval(0, low_open=True)
NON_NEGATIVE = Interval(0)
AT_LEAST_ONE = Interval(1)
UNIT = Interval(0, 1)
OPEN_UNIT = Interval(0, 1, low_open=True, high_open=True)
BELOW_ONE = Interval(0, 1, high_open=True)
ANY = Interval(-math.inf)
EPISODES = Interval(1, 1_000_000)  # that fit into memory side by side

Allowed = Interval | tuple[str, ...] | None  # numbers, words, or anything of its type


def check_value(name: str, value: Any, kind: type, allowed: Allowed, other: str = "") -> None:
    """Refuse a value that is not of its kind or not allowed, and say what it should be; `other` is
    a word that may stand for a number."""
    if isinstance(allowed, tuple):
        right, expected = value in allowed, f"one of {', '.join(allowed)}"
    elif kind in (bool, str):
        right, expected = isinstance(value, kind), "true or false" if kind is bool else "a text"
    else:
        assert isinstance(allowed, Interval)
        right, expected = _check_number(value, kind, allowed)
        if other:
            right, expected = right or value == other, f"{other} or {expected}"
    if not right:
        raise UserError(f"{name} must be {expected}, not {_short(value)}.")


def _check_number(value: Any, kind: type, allowed: Interval) -> tuple[bool, str]:
    """Return whether a value is such a number, and what it should be."""
    expected = "a whole number" if kind is int else "a number"
    if allowed is not ANY:
        expected += f" {allowed}"
    accepted = int if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, accepted) or value not in allowed:
        return False, expected
    largest = LARGEST_WHOLE if kind is int else LARGEST
    return abs(value) <= largest, f"{expected}, of at most {largest:.1g}"


def _short(value: Any) -> str:
    """Of a number with thousands of digits the first ones."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "one of so many digits"
    return repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:200]}…"
