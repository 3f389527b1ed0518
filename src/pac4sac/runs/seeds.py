"""Seeds, as text and as numbers."""

import operator
from collections.abc import Iterable

from pac4sac.base.errors import UserError

MOST_SEEDS = 10_000


def parse_seeds(text: str) -> list[int]:
    """ "3", "0:5" (without the 5), "0,2,7", or a mixture."""
    seeds: list[int] = []
    for part in text.split(","):
        first, colon, end = part.strip().partition(":")
        if not (first.isdecimal() and (end.isdecimal() or not colon)):
            raise UserError(
                f"{text!r} are no seeds; give whole numbers such as 3, 0:5 (without the 5) or "
                "0,2,7."
            )
        chosen = range(int(first), int(end)) if colon else range(int(first), int(first) + 1)
        if not chosen or len(seeds) + len(chosen) > MOST_SEEDS:
            raise UserError(
                f"The seeds {text} are {'none' if not chosen else 'too many'}; give some, "
                "such as 0:5."
            )
        seeds += chosen
    return seeds


def seed_list(seeds: int | str | Iterable[int]) -> list[int]:
    """One seed, several, or as text what the command line takes."""
    if isinstance(seeds, str):
        return parse_seeds(seeds)
    try:
        several = list(seeds) if isinstance(seeds, Iterable) else [seeds]
        if any(isinstance(seed, bool) for seed in several):
            raise TypeError
        return [operator.index(seed) for seed in several]
    except TypeError:
        raise UserError(
            f"Seeds are a whole number or several, such as range(5), not {seeds!r}."
        ) from None


def seeds_text(seeds: Iterable[int]) -> str:
    """0:5 for 0 to 4, and commas between such stretches."""
    given = set(seeds)
    firsts, ends = (
        sorted(s for s in given if s - 1 not in given),
        sorted(s + 1 for s in given if s + 1 not in given),
    )
    stretches = zip(firsts, ends, strict=True)
    return ",".join(f"{first}:{end}" if end - first > 1 else str(first) for first, end in stretches)
