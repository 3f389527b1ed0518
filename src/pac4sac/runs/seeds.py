"""Seeds as text and as numbers."""

import operator
from collections.abc import Iterable

from pac4sac.base.errors import UserError

MOST_SEEDS = 10_000


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of a text such as "3", "0:5" (0 to 4), "0,2,7", or a mixture."""
    seeds: list[int] = []
    for part in text.split(","):
        chosen = _seed_range(part.strip(), text)
        if not chosen:
            raise UserError(f"There are no seeds in {text}; give some, such as 0:5.")
        if len(seeds) + len(chosen) > MOST_SEEDS:
            raise UserError(
                f"There are more than {MOST_SEEDS} seeds in {text}; give fewer, such as 0:5."
            )
        seeds += chosen
    return seeds


def _seed_range(part: str, text: str) -> range:
    """Return the range of one part of a text."""
    first, colon, end = part.partition(":")
    numbers = [first, end] if colon else [first]
    if not all(number.isdecimal() for number in numbers):
        raise UserError(
            f"{text!r} are not seeds; give whole numbers such as 3, 0:5 (0 to 4) or 0,2,7."
        )
    return range(int(first), int(end) if colon else int(first) + 1)


def seed_list(seeds: int | str | Iterable[int]) -> list[int]:
    """Return the seeds of a number, of several numbers, or of a text for `parse_seeds`."""
    if isinstance(seeds, str):
        return parse_seeds(seeds)
    try:
        several = list(seeds) if isinstance(seeds, Iterable) else [seeds]
        if any(isinstance(seed, bool) for seed in several):
            raise TypeError
        return [operator.index(seed) for seed in several]
    except TypeError:
        raise UserError(
            f"Seeds must be a whole number or several, such as range(5), not {seeds!r}."
        ) from None


def seeds_text(seeds: Iterable[int]) -> str:
    """Return seeds as a text for `parse_seeds`: 0:5 for 0 to 4, and commas between such ranges."""
    ranges: list[tuple[int, int]] = []
    for seed in sorted(set(seeds)):
        if ranges and ranges[-1][1] == seed:
            ranges[-1] = ranges[-1][0], seed + 1
        else:
            ranges.append((seed, seed + 1))
    return ",".join(f"{first}:{end}" if end - first > 1 else str(first) for first, end in ranges)
