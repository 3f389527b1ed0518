"""What the commands share: exit codes, sentences on the console, tables, and mistakes in writing files."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

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
        place = f"{target} ({error.filename})" if error.filename and error.filename != str(target) else target
        raise UserError(
            f"Writing {place} failed: {error.strerror}. What was written before stays readable; "
            "make room or choose a folder you may write, then resume or start again."
        ) from error


def plain_table(title: str, *left: str, right: Sequence[str] = (), caption: str | None = None) -> Table:
    """With columns that begin on the left and may be folded, then columns of numbers."""
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.title_justify = table.caption_justify = "left"
    for header in left:
        table.add_column(header, overflow="fold")
    for header in right:
        table.add_column(header, justify="right", no_wrap=True)
    return table
