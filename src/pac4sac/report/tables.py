"""Tables and the sections around them: a table is columns and rows, from which all formats follow."""

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

from pac4sac.base.text import NOTHING, decimals, digits_of, number
from pac4sac.runs.statistics import Estimate, Summary

TEXTS = tomllib.loads((Path(__file__).parent / "texts.toml").read_text(encoding="utf-8"))  # the long ones


@dataclass(frozen=True)
class Cell:
    """A value as it is shown."""

    text: str = NOTHING
    value: float | int | str | None = None  # to sort by
    published: str = ""  # what others found, shown below ours
    verdict: str = ""
    hint: str = ""
    note: str = ""  # on how many runs, where not on all

    @property
    def lines(self) -> list[str]:
        return [part for part in (self.text, self.note, self.published, self.verdict) if part]


Get = Callable[[Any], Any] | str


@dataclass(frozen=True)
class Column:
    """What `get` takes from a row, or the attribute of that name, and how it is shown: a number, text, Estimate,
    Summary, Difference, tuple or cell. `keys` are its names in CSV, where an estimate has a value and two ends, and a
    summary a mean and a deviation."""

    title: str  # without one it is for CSV alone
    get: Get
    keys: str | tuple[str, ...] = ()
    group: str = ""  # a common head over neighbours
    numeric: bool = True
    code: bool = False
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
        scale = self.scale(row) if callable(self.scale) else self.scale
        if content is None:
            text = NOTHING
        elif self.show:
            text = self.show(content)
        elif isinstance(content, Estimate):
            text = with_interval(content, scale, self.digits)
        elif isinstance(content, Summary):
            text = mean_sd(content, scale)
        else:
            text = number(content, scale) if isinstance(content, float) else str(content)
        return Cell(text) if self.code else Cell(text, _numbers(content)[0])

    def record(self, row: Any) -> dict[str, Any]:
        keys = (self.keys,) if isinstance(self.keys, str) else self.keys
        return dict.fromkeys(keys) | dict(zip(keys, _numbers(self.content(row)), strict=False))


words = partial(Column, numeric=False)


def command(get: Get, key: str = "", title: str = "Repeat with") -> Column:
    return words(title, get, key, code=True)


def data(*keys: str, get: Get) -> Column:
    """For CSV alone."""
    return Column("", get, keys)


def numbered(titles: Sequence[str], numeric: Sequence[str] = ()) -> list[Column]:
    """Of rows that are tuples, in their order."""
    return [Column(title, itemgetter(place), numeric=title in numeric) for place, title in enumerate(titles)]


def shown_if(condition: bool, columns: Iterable[Column]) -> list[Column]:
    """Otherwise they are for CSV alone."""
    return [column if condition else replace(column, title="") for column in columns]


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
    header: Sequence[str] = ()  # order of the keys in CSV, where it is not that of the columns

    @property
    def shown(self) -> list[Column]:
        return [column for column in self.columns if column.title]

    @cached_property
    def cells(self) -> list[list[Cell]]:
        return [[column.cell(row) for column in self.shown] for row in self.rows]

    @property
    def records(self) -> list[dict[str, Any]]:
        """What CSV gets; nothing where no column has a key, which then gets the cells as shown."""
        keyed = [column for column in self.columns if column.keys]
        lines = [part for row in self.rows for part in self.parts(row)] if keyed else []
        records = [{key: value for column in keyed for key, value in column.record(line).items()} for line in lines]
        return [{key: record[key] for key in self.header or record} for record in records]


@dataclass(frozen=True)
class Picture:
    name: str
    caption: str
    draw: Callable[[], Any]  # a figure, when it is written


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    blocks: Sequence["Block"]


Block = str | list[str] | Table | Picture  # a list has an item for each sentence


def _numbers(content: Any) -> tuple[Any, ...]:
    if isinstance(content, Estimate):
        return content.value, content.low, content.high
    if isinstance(content, Summary):
        return content.mean, content.sd
    return content if isinstance(content, tuple) else (content.value if isinstance(content, Cell) else content,)


def mean_sd(summary: Summary | None, scale: float = 1.0) -> str:
    if summary is None:
        return NOTHING
    digits = digits_of(summary.mean / scale)  # for both, so that they can be compared
    sd = "" if summary.sd is None else f" ± {decimals(summary.sd / scale, digits)}"
    return decimals(summary.mean / scale, digits) + sd


def with_interval(estimate: Estimate | None, scale: float = 1.0, digits: int | None = None) -> str:
    if estimate is None:
        return NOTHING
    digits = digits_of(estimate.value / scale) if digits is None else digits
    known = [x for x in (estimate.value, estimate.low, estimate.high) if x is not None]
    value, *ends = (decimals(x / scale, digits) for x in known)
    return f"{value} [{', '.join(ends)}]" if ends else value
