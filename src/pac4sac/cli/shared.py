"""What the commands share: exit codes, sentences on the console, tables, and mistakes in writing
files."""

import contextlib
import io
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from pac4sac.base.errors import UserError
from pac4sac.base.stopping import StopReason

INTERRUPTED = 130  # what shells report of a program ended by Ctrl-C


def say(console: Console, line: str) -> None:
    """A line as it is, so that a log can be searched and a path be copied."""
    console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.file.flush()  # a log is read while training goes on


def code_of_stop(reason: StopReason | None) -> int:
    return INTERRUPTED if reason is not None and reason.by_signal else 0


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """A full disk, a folder that may not be written and the like, told in a sentence."""
    try:
        yield
    except OSError as error:
        if error.strerror is None or isinstance(error, ConnectionError):  # not of files
            raise
        place = (
            f"{target} ({error.filename})"
            if error.filename and error.filename != str(target)
            else target
        )
        raise UserError(
            f"Writing {place} failed: {error.strerror}. What was written before stays readable; "
            "make room or choose a folder you may write, then resume or start again."
        ) from error


def plain_table(
    title: str, *left: str, right: Sequence[str] = (), caption: str | None = None
) -> Table:
    """With columns that begin on the left and may be folded, then columns of numbers."""
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.show_edge = table.pad_edge = False
    table.title_justify = table.caption_justify = "left"
    for header in left:
        table.add_column(header, overflow="fold")
    for header in right:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def show_whole_words(console: Console, table: Table) -> None:
    """Print a plain table with no word broken, if there is room for that: each column gets what its
    longest word needs, then those that lack little get it, and the others share what is left. (A
    rich table with minimum widths becomes wider than the console.)"""
    texts = ["\n".join(map(str, (column.header, *column.cells))) for column in table.columns]
    words = [max(map(len, text.split())) for text in texts]
    lines = [max(map(len, text.splitlines())) for text in texts]
    lacking = [line - word for line, word in zip(lines, words, strict=True)]
    rest = console.width - sum(words) - 2 * (len(texts) - 1)  # beside the space between columns
    if rest >= 0:
        for done, index in enumerate(sorted(range(len(texts)), key=lacking.__getitem__)):
            share = min(lacking[index], rest // (len(texts) - done))
            table.columns[index].width, rest = words[index] + share, rest - share
    console.print(table)


class WholeWords(io.TextIOBase):
    """A terminal for help, where lines that are too long go on below: the parser fits in all but
    usage and summary."""

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.terminal.encoding

    def isatty(self) -> bool:
        return self.terminal.isatty()

    def write(self, text: str) -> int:
        return self.terminal.write("\n".join(map(self._fitted, text.split("\n"))))

    def _fitted(self, line: str) -> str:
        width, plain = shutil.get_terminal_size().columns, re.sub(r"\x1b\[[\d;]*m", "", line)
        if len(plain) <= width:
            return line
        usage = plain.startswith("usage:")
        return textwrap.fill(
            plain.replace(",", ", ") if usage else plain,
            width,
            subsequent_indent="  " * usage,
            break_on_hyphens=False,
        )
