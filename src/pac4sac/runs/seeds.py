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
            raise UserError(f"{text!r} are no seeds; give whole numbers such as 3, 0:5 (without the 5) or 0,2,7.")
        chosen = range(int(first), int(end)) if colon else range(int(first), int(first) + 1)
        if not chosen or len(seeds) + len(chosen) > MOST_SEEDS:
            raise UserError(f"The seeds {text} are {'none' if not chosen else 'too many'}; give some, such as 0:5.")
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
        raise UserError(f"Seeds are a whole number or several, such as range(5), not {seeds!r}.") from None


def seeds_text(seeds: Iterable[int]) -> str:
    """0:5 for 0 to 4, and commas between such stretches."""
    stretches: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if stretches and seed == stretches[-1][-1] + 1:
            stretches[-1].append(seed)
        else:
            stretches.append([seed])
    return ",".join(f"{s[0]}:{s[-1] + 1}" if len(s) > 1 else str(s[0]) for s in stretches)
