"""Assign each algorithm one plain name, colour, line and marker for all figures and pages."""

import re
import tomllib
import zlib
from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

_FILE = tomllib.loads((Path(__file__).parent / "style.toml").read_text(encoding="utf-8"))
COLOURS: tuple[str, ...] = tuple(_FILE["palette"]["light"])
DARK: tuple[str, ...] = tuple(_FILE["palette"]["dark"])  # the same on a dark page
MARKERS = "os^DvPX<>p"  # of the colours, for eyes and printers that see none
DASHES = ((), (5, 2), (1.2, 1.6), (5, 1.6, 1.2, 1.6), (9, 2))  # of the lines, in widths of a line


@dataclass(frozen=True)
class Style:
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
        """Return lengths of strokes and gaps; nothing for a solid line."""
        return DASHES[self.line]


KNOWN = {label: Style(*style) for label, style in _FILE["styles"].items()}
NAMES: dict[str, str] = {label: style.name for label, style in KNOWN.items()} | _FILE["names"]


def assign_styles(labels: Iterable[str]) -> dict[str, Style]:
    """Return the style of each label.

    A known label has the same style everywhere. Any other gets a colour by a checksum of the
    label, or the next free one, in the order of the labels, so the same labels always get the
    same styles.
    """
    labels = list(dict.fromkeys(labels))
    chosen = {label: KNOWN[label] for label in labels if label in KNOWN}
    taken = {(style.line, style.place) for style in chosen.values()}
    names = {style.name for style in chosen.values()}
    for label in sorted(set(labels) - set(chosen)):
        line, place = _free_style(label, taken)
        name = _free_name(label, names)
        chosen[label] = Style(name, place, line)
        taken.add((line, place))
        names.add(name)
    return {label: chosen[label] for label in labels}


def _free_name(label: str, taken: Container[str]) -> str:
    """Return the plain name of a label, or the label if that name is taken."""
    names = (plain_name(label), label, f"“{label}”")
    return next(name for name in names if name not in taken)


def _free_style(label: str, taken: Container[tuple[int, int]]) -> tuple[int, int]:
    """Return line and colour: the first pair that is not taken, or the first if all are."""
    first = zlib.crc32(label.encode()) % len(COLOURS)
    pairs = [
        (line, (first + k) % len(COLOURS))
        for line, k in product(range(len(DASHES)), range(len(COLOURS)))
    ]
    return next((pair for pair in pairs if pair not in taken), pairs[0])


def plain_name(label: str) -> str:
    """Return the plain name of an algorithm with its settings; any other label stays as it is.

    For `sac-alpha=0.1` it is `SAC, α = 0.1`.
    """
    if label in NAMES:
        return NAMES[label]
    for known in sorted(NAMES, key=len, reverse=True):
        settings = re.fullmatch(
            rf"{re.escape(known)}((?:(?:-|, )\w+=.+?)*)( \(.*\))?", label, re.DOTALL
        )
        if settings:
            return NAMES[known] + _settings(settings[1]) + (settings[2] or "")
    return label


def _settings(text: str) -> str:
    parts = [part.partition("=") for part in re.split(r"(?:-|, )(?=\w+=)", text)[1:]]
    return "".join(f", {_FILE['settings'].get(name, name)} = {value}" for name, _, value in parts)


def series() -> str:
    """Return the palette as variables of a style sheet, for light pages and for dark ones."""
    both = enumerate(zip(COLOURS, DARK, strict=True))
    return " ".join(
        f"--series-{place}: light-dark({light}, {dark});" for place, (light, dark) in both
    )
