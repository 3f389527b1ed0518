"""Names, colours, lines and markers of algorithms, the same in all figures and pages."""

import re
import tomllib
import zlib
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

_FILE = tomllib.loads((Path(__file__).parent / "style.toml").read_text(encoding="utf-8"))
COLOURS: tuple[str, ...] = tuple(_FILE["palette"]["light"])
DARK: tuple[str, ...] = tuple(_FILE["palette"]["dark"])  # the same colours for dark pages
MARKERS = "os^DvPX<>ph*"  # one per colour, for greyscale print
DASHES = (
    (),
    (5, 2),
    (1.2, 1.6),
    (5, 1.6, 1.2, 1.6),
    (9, 2),
)  # of lines, in multiples of the line width


@dataclass(frozen=True)
class Style:
    name: str  # display name
    place: int  # index of its colour; on a page it is `var(--series-PLACE)`
    line: int  # index of its dashes

    @property
    def colour(self) -> str:
        return COLOURS[self.place]

    @property
    def marker(self) -> str:
        return MARKERS[self.place]

    @property
    def dashes(self) -> tuple[float, ...]:
        """Return the lengths of strokes and gaps; empty for a solid line."""
        return DASHES[self.line]


KNOWN = {label: Style(*style) for label, style in _FILE["styles"].items()}
NAMES: dict[str, str] = {label: style.name for label, style in KNOWN.items()} | _FILE["names"]


def assign_styles(labels: Iterable[str]) -> dict[str, Style]:
    """Return the style of each label; the same labels always get the same styles.

    Labels have different colours as long as there are enough. A known label has its own colour
    unless an earlier one in `style.toml` took it. Labels that share a colour have different lines.
    """
    labels = list(dict.fromkeys(labels))
    in_order = [label for label in KNOWN if label in labels]
    in_order += sorted(set(labels) - set(in_order))
    few = len(labels) <= len(COLOURS)
    chosen: dict[str, Style] = {}
    for label in in_order:
        taken = list(chosen.values())
        style = KNOWN.get(label) or _new_style(label, taken)
        chosen[label] = _in_free_colour(style, taken) if few else style
    return {label: chosen[label] for label in labels}


def _in_free_colour(style: Style, taken: Sequence[Style]) -> Style:
    """Return a style with its own colour, or with the next free one."""
    places = {other.place for other in taken}
    next_places = [(style.place + k) % len(COLOURS) for k in range(len(COLOURS))]
    return replace(style, place=next(place for place in next_places if place not in places))


def _new_style(label: str, taken: Sequence[Style]) -> Style:
    """Return the style of an unknown label; a checksum selects its first choice of line and
    colour."""
    line, place = _free_look(label, {(style.line, style.place) for style in taken})
    return Style(_free_name(label, {style.name for style in taken}), place, line)


def _free_name(label: str, taken: Container[str]) -> str:
    """Return the plain name of a label, or the label if that name is taken."""
    names = (plain_name(label), label, f"“{label}”")
    return next(name for name in names if name not in taken)


def _free_look(label: str, taken: Container[tuple[int, int]]) -> tuple[int, int]:
    """Return the first free pair of line and colour, or the first pair if all are taken."""
    first = zlib.crc32(label.encode()) % len(COLOURS)
    pairs = [
        (line, (first + k) % len(COLOURS))
        for line, k in product(range(len(DASHES)), range(len(COLOURS)))
    ]
    return next((pair for pair in pairs if pair not in taken), pairs[0])


def plain_name(label: str) -> str:
    """Return the display name of an algorithm with its settings; other labels are returned
    unchanged.

    For `sac-alpha=0.1` it is `SAC with α = 0.1`.
    """
    if label in NAMES:
        return NAMES[label]
    for known in sorted(NAMES, key=len, reverse=True):
        settings = re.fullmatch(
            rf"{re.escape(known)}((?:(?:-|, )\w+=.+?)*)( \(.*\))?", label, re.DOTALL
        )
        if settings:
            return _with_settings(NAMES[known], settings[1]) + (settings[2] or "")
    return label


def _with_settings(name: str, text: str) -> str:
    """Return the name followed by its settings, as in "SAC with α = 0.1 and S = 500"."""
    parts = [part.partition("=") for part in re.split(r"(?:-|, )(?=\w+=)", text)[1:]]
    settings = [f"{_FILE['settings'].get(name, name)} = {value}" for name, _, value in parts]
    if not settings:
        return name
    first, *others = settings
    joint = "and" if " with " in name else "with"
    return " ".join([f"{name} {joint} {first}", *(f"and {other}" for other in others)])


def series() -> str:
    """Return the palette as CSS variables for light and dark pages."""
    both = enumerate(zip(COLOURS, DARK, strict=True))
    return " ".join(
        f"--series-{place}: light-dark({light}, {dark});" for place, (light, dark) in both
    )
