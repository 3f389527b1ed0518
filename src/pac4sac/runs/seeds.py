"""Seeds as text and as numbers."""

import operator
from collections.abc import Iterable

from pac4sac.base.errors import UserError

MOST_SEEDS = 10_000
MOST_DIGITS = 20  # of a seed, which has at most 64 bits


def parse_seeds(text: str) -> list[int]:
    """Parse seeds such as "3", "0:5" (0 to 4), "0,2,7" or a combination."""
    seeds: list[int] = []
    for part in text.split(","):
        chosen = _seed_range(part.strip(), text)
        if not chosen:
            raise UserError(f"There are no seeds in {text!r}; give at least one, such as 0:5.")
        if len(seeds) + len(chosen) > MOST_SEEDS:
            raise UserError(
                f"There are more than {MOST_SEEDS} seeds in {text!r}; give fewer, such as 0:5."
            )
        seeds += chosen
    return seeds


def _seed_range(part: str, text: str) -> range:
    """Parse one part of a text as a range."""
    first, colon, end = part.partition(":")
    numbers = [first, end] if colon else [first]
    if not all(number.isdecimal() and len(number) <= MOST_DIGITS for number in numbers):
        raise UserError(
            f"Invalid seeds {text!r}; give whole numbers such as 3, 0:5 (0 to 4) or 0,2,7."
        )
    return range(int(first), int(end) if colon else int(first) + 1)


def seed_list(seeds: int | str | Iterable[int]) -> list[int]:
    """Return seeds as a list, given a number, several numbers, or a text for `parse_seeds`."""
    if isinstance(seeds, str):
        return parse_seeds(seeds)
    try:
        several = list(seeds) if isinstance(seeds, Iterable) else [seeds]
        if any(isinstance(seed, bool) for seed in several):
            raise TypeError
        return [operator.index(seed) for seed in several]
    except TypeError:
        raise UserError(
            f"Seeds must be one or several whole numbers, such as range(5), not {seeds!r}."
        ) from None


def seeds_text(seeds: Iterable[int]) -> str:
    """Return seeds in the form that `parse_seeds` reads: ranges such as 0:5 (0 to 4), joined by
    commas."""
    ranges: list[tuple[int, int]] = []
    for seed in sorted(set(seeds)):
        if ranges and ranges[-1][1] == seed:
            ranges[-1] = ranges[-1][0], seed + 1
        else:
            ranges.append((seed, seed + 1))
    return ",".join(f"{first}:{end}" if end - first > 1 else str(first) for first, end in ranges)
