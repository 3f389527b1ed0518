"""Functions that all commands share: they print sentences and tables, and report write errors."""

import contextlib
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.status import Status
from rich.table import Table

from pac4sac.base.errors import UserError
from pac4sac.base.stopping import StopReason

SOME_FAILED = 3  # exit code if only some runs failed
INTERRUPTED = 130  # exit code after Ctrl-C, as shells report it


def say(console: Console, line: str) -> None:
    """Print a line without wrapping, so that logs can be searched and paths can be copied."""
    console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.file.flush()  # makes logs readable during training


def code_of_stop(reason: StopReason | None) -> int:
    """Return 130 after Ctrl-C, else 0."""
    return INTERRUPTED if reason is not None and reason.by_signal else 0


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """Report a full disk, a missing write permission and similar errors in a sentence."""
    try:
        yield
    except OSError as error:
        if error.strerror is None or isinstance(error, ConnectionError):  # not an error of a file
            raise
        place = str(target)
        if error.filename and error.filename != place:
            place += f" ({error.filename})"
        raise UserError(
            f"Writing {place} failed ({error.strerror}). Earlier results are still readable. "
            f"Free some space or choose a writable folder, then resume or start again."
        ) from error


def plain_table(
    title: str, *left: str, right: Sequence[str] = (), caption: str | None = None
) -> Table:
    """Return a table with columns of text, which may wrap, followed by columns of numbers."""
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.show_edge = table.pad_edge = False
    table.title_justify = table.caption_justify = "left"
    for header in left:
        table.add_column(header, overflow="fold")
    for header in right:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def show_whole_words(console: Console, table: Table) -> None:
    """Print a plain table without breaking words, if the console is wide enough.

    Each column gets the width of its longest word, then an equal share of the remaining width up to
    its longest line. (A rich table with minimum widths would exceed the console.)
    """
    texts = ["\n".join(map(str, (column.header, *column.cells))) for column in table.columns]
    words = [_longest(text.split()) for text in texts]
    lines = [_longest(text.splitlines()) for text in texts]
    lacking = {index: lines[index] - words[index] for index in range(len(texts))}
    rest = console.width - sum(words) - 2 * (len(texts) - 1)  # minus the space between columns
    if rest >= 0:
        for done, index in enumerate(sorted(lacking, key=lacking.__getitem__)):
            share = min(lacking[index], rest // (len(texts) - done))
            table.columns[index].width = words[index] + share
            rest -= share
    console.print(table)


def _longest(texts: Iterable[str]) -> int:
    return max(map(len, texts))


class OutputFull(UserError):
    """Report that standard output cannot be written."""


class CheckedOutput:
    """Wrap standard output to report a full device in a separate sentence."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with self._sentence():
            return self.stream.write(text)

    def flush(self) -> None:
        with self._sentence():
            self.stream.flush()

    @contextlib.contextmanager
    def _sentence(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFull(
                f"Standard output cannot be written ({error.strerror}); redirect it to another "
                f"file or device."
            ) from error


class Terminal(Console):
    """Extend a console with questions while a spinner is shown."""

    spinner: Status | None = None

    def status(self, *what: Any, **how: Any) -> Status:
        self.spinner = super().status(*what, **how)
        return self.spinner

    def ask(self, question: str) -> bool:
        """Ask a question on standard error; only y or yes means yes."""
        if self.spinner is not None:
            self.spinner.stop()  # the spinner would overwrite the answer
        print(question, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")


class WholeWords(io.TextIOBase):
    """Wrap long lines of a help text, because the parser does not wrap usage and summary."""

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
