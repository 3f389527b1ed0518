"""Tables and the sections around them: a table is columns and rows, from which all formats
follow."""

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
    """Hold a value as it is shown."""

    text: str = NOTHING
    value: float | int | str | None = None  # to sort by
    published: str = ""  # what others found, shown below ours
    verdict: str = ""
    hint: str = ""
    note: str = ""  # on how many runs, if not on all
    name: str = ""  # plain words for the text, on a page

    @property
    def lines(self) -> list[str]:
        return [part for part in (self.text, self.note, self.published, self.verdict) if part]


def verdict_cell(verdict: str, hint: str = "", text: str = "") -> Cell:
    """Return a cell with a verdict, by which it is sorted."""
    if not verdict:
        return Cell(text or NOTHING, "")
    return Cell(text, verdict, verdict=verdict, hint=hint)


Get = Callable[[Any], Any] | str


@dataclass(frozen=True)
class Column:
    """Take a value from a row and show it.

    `get` is a function of a row, or the name of an attribute. It returns a number, text, Estimate,
    Summary, Difference, tuple or cell. `keys` are the names in a CSV: an estimate has a value and
    two ends, a summary has a mean and a standard deviation.
    """

    title: str  # without one it is for CSV alone
    get: Get
    keys: str | tuple[str, ...] = ()
    group: str = ""  # a common head over neighbours
    numeric: bool = True
    code: bool = False
    folded: bool = False  # on a page, into the detail of its row
    show: Callable[[Any], str] | None = None
    scale: float | Callable[[Any], float] = 1.0  # by which it is divided when shown
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
    """Return the columns of rows that are tuples, in their order."""
    return [
        Column(title, itemgetter(place), numeric=title in numeric)
        for place, title in enumerate(titles)
    ]


def with_ends(key: str) -> tuple[str, ...]:
    return key, f"{key}_low", f"{key}_high"


@dataclass(frozen=True)
class Table:
    name: str  # of its files
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Any]
    parts: Callable[[Any], Iterable[Any]] = lambda row: [row]  # of a row, each a line of the CSV
    folded: bool = False

    @property
    def shown(self) -> list[Column]:
        return [column for column in self.columns if column.title]

    @cached_property
    def cells(self) -> list[list[Cell]]:
        return [[column.cell(row) for column in self.shown] for row in self.rows]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return the lines of the CSV by the keys of columns; nothing if no column has one."""
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
    draw: Callable[[], Any]  # a figure, when it is written
    is_detail: bool = False  # too many or too large for a repository: on the HTML page only


@dataclass(frozen=True)
class Answer:
    """Hold a question, and the result with the number that decides it."""

    question: str
    text: str
    verdict: str = ""
    section: str = ""  # that has it in full


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    blocks: Sequence["Block"]


Block = str | Sequence[str | Answer] | Table | Picture  # a sequence has an item for each sentence


def _numbers(content: Any) -> tuple[Any, ...]:
    """Return what the CSV shows of a content: a value, or several."""
    if isinstance(content, tuple):
        return content
    if isinstance(content, Estimate):
        return content.value, content.low, content.high
    if isinstance(content, Summary):
        return content.mean, content.sd
    return (content.value if isinstance(content, Cell) else content,)


def in_digits(content: Any, scale: float = 1.0, digits: int | None = None) -> str:
    """Return a number, mean ± standard deviation, or estimate [interval] as text.

    All numbers have as many digits as the first, so they can be compared. Other content is shown
    as it is.
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
