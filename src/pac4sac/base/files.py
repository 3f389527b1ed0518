"""Atomic writing of files, reading of files that may be damaged, and JSON."""

import contextlib
import errno
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO

from pac4sac.base.errors import UserError


def write_durably(path: Path, data: bytes) -> None:
    """Write and sync a file; fail if the path is a symbolic link."""
    with durable_file(path) as file:
        file.write(data)


@contextlib.contextmanager
def durable_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing and sync it on exit; fail if the path is a symbolic link."""
    with open(path, "wb", opener=_open_no_link) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _open_no_link(path: str, flags: int) -> int:
    """Open a file that is not a symbolic link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def write_whole(path: Path, content: bytes | str) -> None:
    """Replace a file atomically: after a crash it has either the old or the new content."""
    part = path.with_name(path.name + ".part")
    write_durably(part, as_bytes(content) if isinstance(content, str) else content)
    part.replace(path)


def append_line(path: Path, line: str) -> None:
    """Append a line to a regular file, and make the file if it is missing.

    Raises:
        OSError: If the file cannot be written, or is a pipe, which would block the writer.
    """
    with open(path, "a", opener=_open_at_once) as file:
        file.write(f"{line}\n")


def _open_at_once(path: str, flags: int) -> int:
    """Open a file for writing without blocking; fail if it is a pipe without a reader."""
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def as_bytes(text: str) -> bytes:
    """Encode a text as UTF-8; undecodable bytes of file names become question marks."""
    return text.encode(errors="replace")


def write_json(path: Path, about: Mapping[str, Any]) -> None:
    """Write a mapping as JSON; undecodable bytes in texts become question marks."""
    data = json.dumps(about, indent=1).encode()
    if SUSPECT.search(data):
        about = json.loads(as_bytes(json.dumps(about, ensure_ascii=False)))
        data = json.dumps(about, indent=1).encode()
    write_whole(path, data)


def is_file_name(name: str) -> bool:
    """Return whether a text can be the name of a file, and not a path or a parent folder."""
    return name not in ("", ".", "..") and not {"/", "\\", "\0"}.intersection(name)


def check_inside(folder: Path, *paths: Path) -> None:
    """Raise a UserError if a symbolic link leads a path out of a folder that the user named."""
    root = os.path.realpath(folder)
    for path in paths:
        if os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise UserError(
                f"{path} leads out of {folder} through a symbolic link; replace the link with a "
                "copy of its target, or give the target folder."
            )


def check_links(folder: Path) -> None:
    """Raise a UserError if a symbolic link in a folder points outside it."""
    links = [path for path in all_below(folder) if path.is_symlink()]
    check_inside(folder, *links)


def all_below(folder: Path) -> Iterator[Path]:
    """Yield all files and folders in a folder and its subfolders, including broken links."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(place, name)


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file for reading; refuse others such as pipes, which block the reader."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with path.open("rb") as file:
        yield file


def read_file(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: If the file cannot be read, or is too large to be a file of this package.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > LARGEST_FILE:
            raise OSError(errno.EFBIG, f"it has more than {LARGEST_FILE >> 20} MB", str(path))
        return file.read()


def read_if_there(path: Path) -> bytes:
    """Return the content of a file; empty if it does not exist."""
    return read_file(path) if os.path.lexists(path) else b""


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that created, renamed and removed files are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LARGEST_FILE = 2**29  # size in bytes of the largest text file that is read, such as an archive
Kinds = Mapping[str, type | UnionType]
ANY: Kinds = {}
COPY = "replace it with an intact copy, or omit it."
# A possible lone surrogate, or a number of more than 64 bits.
SUSPECT = re.compile(rb"\\u[dD][89a-fA-F]|\d{19}")


def parse_json(data: bytes | str) -> Any:
    """Parse JSON strictly.

    Raises:
        ValueError: If the text is not JSON, or has a lone surrogate or a number of more than 64
            bits.
    """
    data = data.encode() if isinstance(data, str) else data
    try:
        content = json.loads(data, parse_int=_whole_number if SUSPECT.search(data) else None)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if SUSPECT.search(data):
        json.dumps(content, ensure_ascii=False).encode()
    return content


def _whole_number(text: str) -> int:
    """Return a whole number of at most 64 bits."""
    if len(text) > 20 or not -(2**63) <= int(text) < 2**64:
        raise ValueError(f"{text[:20]}… has more than 64 bits")
    return int(text)


def read_json(path: Path, kinds: Kinds = ANY, version: int | None = None) -> dict[str, Any]:
    """Return the content of a JSON file that this package wrote.

    Raises:
        UserError: If the file is unreadable, has another version, or has no valid entry of `kinds`.
    """
    try:
        about = parse_json(read_file(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); {COPY}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); {COPY}") from error
    return check_kinds(about, kinds, str(path), version)


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text and the parsed content of a user's TOML file.

    Raises:
        UserError: If the file is unreadable.
    """
    try:
        text = read_file(path).decode()
        return text, tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); name another file.") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, or nested too deeply
        raise UserError(f"{path} is not a valid TOML file: {error}.") from error


def read_jsonl(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a file, and the number of damaged or incomplete lines.

    Raises:
        UserError: If the file exists and cannot be read.
    """
    try:
        return parse_jsonl(read_if_there(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); {COPY}") from error


def parse_jsonl(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """Parse JSON lines. Return the rows, and the number of lines that are not rows."""
    lines = [line for line in content.split(b"\n") if line.strip()]
    rows = [row for row in map(_parse_row, lines) if row is not None]
    return rows, len(lines) - len(rows)


def _parse_row(line: bytes) -> dict[str, Any] | None:
    """Return the row of a line; None if it is not a JSON object."""
    try:
        row = parse_json(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def check_kinds(about: Any, kinds: Kinds, what: str, version: int | None = None) -> dict[str, Any]:
    """Return a parsed value after a check that it is a mapping with all entries of `kinds`.

    Args:
        about: The parsed value.
        kinds: Type of each required entry by name; other entries are allowed.
        what: Subject of the error message.
        version: Required value of its entry "version", if it has this entry.

    Raises:
        UserError: If the value is not such a mapping.
    """
    if not isinstance(about, dict):
        raise UserError(f"{what} is damaged: it is not a table of names and values; {COPY}")
    if version is not None:
        _check_version(about, version, what)
        kinds = {"version": int, **kinds}
    wrong = [name for name, kind in kinds.items() if not _is_of_kind(about.get(name), kind)]
    if wrong:
        raise UserError(f"{what} is damaged: it has no valid {', '.join(wrong)}; {COPY}")
    return about


def _check_version(about: dict[str, Any], version: int, what: str) -> None:
    """Raise a UserError if a mapping has another version."""
    if about.get("version", version) != version:
        reads = f"this version of pac4sac reads version {version}; use the version that wrote it."
        raise UserError(f"{what} has version {about['version']}, but {reads}")


def _is_of_kind(value: Any, kind: type | UnionType) -> bool:
    """Return whether a value has a type; bool does not count as a number."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def check_if_there(about: Any, kinds: Kinds, what: str) -> None:
    """Raise a UserError if an optional entry of a mapping has the wrong type."""
    present = {name: kind for name, kind in kinds.items() if name in about}
    check_kinds(about, present, what)


def as_json(value: Any, not_finite: Callable[[float], Any] = lambda number: number) -> Any:
    """Convert a value for JSON: NumPy arrays and numbers become lists and plain numbers.

    Args:
        value: Value to convert, recursively.
        not_finite: Function that returns the replacement of a number that is not finite.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: as_json(item, not_finite) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [as_json(item, not_finite) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return not_finite(value)
    return value


def natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts seed 9 before seed 10."""
    parts = re.split(r"(\d+)", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
