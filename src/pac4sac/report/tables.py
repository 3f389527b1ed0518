"""Tables and sections of a report. A table consists of columns and rows, and all formats are made
from these."""

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from pac4sac.base.text import NOTHING, decimals, digits_of
from pac4sac.runs.statistics import Estimate, Summary

# the long ones
TEXTS = tomllib.loads((Path(__file__).parent / "texts.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Cell:
    """Hold a value and its displayed text."""

    text: str = NOTHING
    value: float | int | str | None = None  # sort key
    published: str = ""  # published value, shown below ours
    verdict: str = ""
    hint: str = ""
    note: str = ""  # number of runs, if not all
    name: str = ""  # display name of the text, for HTML

    @property
    def lines(self) -> list[str]:
        return [part for part in (self.text, self.note, self.published, self.verdict) if part]


def verdict_cell(verdict: str, hint: str = "", text: str = "") -> Cell:
    """Return a cell that shows a verdict and is sorted by it."""
    if not verdict:
        return Cell(text or NOTHING, "")
    return Cell(text, verdict, verdict=verdict, hint=hint)


Get = Callable[[Any], Any] | str


@dataclass(frozen=True)
class Column:
    """Define how to get a value from a row and how to show it.

    `get` is a function of a row, or the name of an attribute. It returns a number, text, Estimate,
    Summary, Difference, tuple or cell. `keys` are the names in a CSV: an estimate has a value and
    two ends, a summary has a mean and a standard deviation.
    """

    title: str  # empty: only in the CSV
    get: Get
    keys: str | tuple[str, ...] = ()
    group: str = ""  # common title above adjacent columns
    numeric: bool = True
    code: bool = False
    folded: bool = False  # in HTML, folded into the details of a row
    show: Callable[[Any], str] | None = None
    scale: float | Callable[[Any], float] = 1.0  # divisor of the displayed value
    digits: int | None = None

    @property
    def head(self) -> str:
        return f"{self.group}: {self.title}" if self.group else self.title

    def content(self, row: Any) -> Any:
        return attrgetter(self.get)(row) if isinstance(self.get, str) else self.get(row)

    def cell(self, row: Any) -> Cell:
        content = self.content(row)
        if isinstance(content, Cell):
            return content
        if content is None:
            return Cell()
        scale = self.scale(row) if callable(self.scale) else self.scale
        text = self.show(content) if self.show else in_digits(content, scale, self.digits)
        return Cell(text) if self.code else Cell(text, _numbers(content)[0])

    def record(self, row: Any) -> dict[str, Any]:
        keys = (self.keys,) if isinstance(self.keys, str) else self.keys
        return dict.fromkeys(keys) | dict(zip(keys, _numbers(self.content(row)), strict=False))


words = partial(Column, numeric=False)


def command(get: Get, key: str = "", title: str = "Command") -> Column:
    return words(title, get, key, code=True, folded=True)


def data(*keys: str, get: Get) -> Column:
    """Return a column for the CSV only."""
    return Column("", get, keys)


def numbered(titles: Sequence[str], numeric: Sequence[str] = ()) -> list[Column]:
    """Return one column per title for rows that are tuples."""
    return [
        Column(title, itemgetter(place), numeric=title in numeric)
        for place, title in enumerate(titles)
    ]


def with_ends(key: str) -> tuple[str, ...]:
    return key, f"{key}_low", f"{key}_high"


@dataclass(frozen=True)
class Table:
    name: str  # stem of its file names
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Any]
    parts: Callable[[Any], Iterable[Any]] = lambda row: [row]  # splits a row into lines of the CSV
    folded: bool = False

    @property
    def shown(self) -> list[Column]:
        return [column for column in self.columns if column.title]

    @cached_property
    def cells(self) -> list[list[Cell]]:
        return [[column.cell(row) for column in self.shown] for row in self.rows]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return the lines of the CSV as dictionaries; empty if no column has keys."""
        keyed = [column for column in self.columns if column.keys]
        if not keyed:
            return []
        lines = [part for row in self.rows for part in self.parts(row)]
        return [_record(keyed, line) for line in lines]


def _record(columns: Iterable[Column], line: Any) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for column in columns:
        record |= column.record(line)
    return record


@dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    draw: Callable[[], Any]  # called when the figure is written
    is_detail: bool = False  # shown on the HTML page only


@dataclass(frozen=True)
class Answer:
    """Hold a question, its answer and the verdict."""

    question: str
    text: str
    verdict: str = ""
    section: str = ""  # name of the section with the details


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    blocks: Sequence["Block"]


Block = str | Sequence[str | Answer] | Table | Picture  # a sequence is a list of items


def _numbers(content: Any) -> tuple[Any, ...]:
    """Return the values that the CSV shows for a content."""
    if isinstance(content, tuple):
        return content
    if isinstance(content, Estimate):
        return content.value, content.low, content.high
    if isinstance(content, Summary):
        return content.mean, content.sd
    return (content.value if isinstance(content, Cell) else content,)


def in_digits(content: Any, scale: float = 1.0, digits: int | None = None) -> str:
    """Return a number, mean ± standard deviation, or estimate [interval] as text.

    All numbers have as many digits as the first. Other content is converted by `str`.
    """
    if content is None:
        return NOTHING
    if not isinstance(content, float | Estimate | Summary):
        return str(content)
    numbers = [x / scale for x in _numbers(content) if x is not None]
    if digits is None:
        digits = digits_of(numbers[0])
    first, *others = [decimals(x, digits) for x in numbers]
    if isinstance(content, Summary):
        return " ± ".join([first, *others])
    return f"{first} [{', '.join(others)}]" if others else first
