"""How an algorithm looks: one plain name, colour, line and marker in every figure and on every
page."""

import re
import tomllib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

_FILE = tomllib.loads((Path(__file__).parent / "looks.toml").read_text(encoding="utf-8"))
COLOURS: tuple[str, ...] = tuple(_FILE["palette"]["light"])
DARK: tuple[str, ...] = tuple(_FILE["palette"]["dark"])  # the same on a dark page
MARKERS = "os^DvPX<>p"  # of the colours, for eyes and printers that see none
DASHES = ((), (5, 2), (1.2, 1.6), (5, 1.6, 1.2, 1.6), (9, 2))  # of the lines, in widths of a line


@dataclass(frozen=True)
class Look:
    name: str  # in plain words
    place: int  # of its colour in the palette; on a page it is `var(--series-PLACE)`
    line: int  # of the dashes

    @property
    def colour(self) -> str:
        return COLOURS[self.place]

    @property
    def marker(self) -> str:
        return MARKERS[self.place]

    @property
    def dashes(self) -> tuple[float, ...]:
        """Lengths of strokes and gaps; nothing of a solid line."""
        return DASHES[self.line]


KNOWN = {label: Look(*look) for label, look in _FILE["looks"].items()}
NAMES: dict[str, str] = {label: look.name for label, look in KNOWN.items()} | _FILE["names"]


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """Of each label. Those that are known look the same wherever they are; others take a colour by
    a checksum of their label, or the next one that is free, in the order of their names, so that it
    is the same for the same labels."""
    labels = list(dict.fromkeys(labels))
    chosen = {label: KNOWN[label] for label in labels if label in KNOWN}
    taken = {(look.line, look.place) for look in chosen.values()}
    names = {look.name for look in chosen.values()}
    for label in sorted(set(labels) - set(chosen)):
        first = zlib.crc32(label.encode()) % len(COLOURS)
        ways = [
            (line, (first + k) % len(COLOURS))
            for line, k in product(range(len(DASHES)), range(len(COLOURS)))
        ]
        line, place = next((way for way in ways if way not in taken), ways[0])
        name = next(name for name in (plain_name(label), label, f"“{label}”") if name not in names)
        chosen[label] = Look(name, place, line)
        taken.add((line, place))
        names.add(name)
    return {label: chosen[label] for label in labels}


def plain_name(label: str) -> str:
    """With the plain name of the algorithm that it begins with and what was set, as in `SAC, α =
    0.1` for `sac-alpha=0.1`; a name of the user's own as it is."""
    if label in NAMES:
        return NAMES[label]
    for known in sorted(NAMES, key=len, reverse=True):
        rest = label.removeprefix(known)
        if rest != label and (
            settings := re.fullmatch(r"((?:(?:-|, )\w+=.+?)*)( \(.*\))?", rest, re.DOTALL)
        ):
            return NAMES[known] + _settings(settings[1]) + (settings[2] or "")
    return label


def _settings(text: str) -> str:
    parts = [part.partition("=") for part in re.split(r"(?:-|, )(?=\w+=)", text)[1:]]
    return "".join(f", {_FILE['settings'].get(name, name)} = {value}" for name, _, value in parts)


def series() -> str:
    """The palette as the variables of a style sheet, for light pages and for dark ones."""
    both = enumerate(zip(COLOURS, DARK, strict=True))
    return " ".join(
        f"--series-{place}: light-dark({light}, {dark});" for place, (light, dark) in both
    )
