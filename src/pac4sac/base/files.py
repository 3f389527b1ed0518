"""Files that appear whole or not at all, files that may be damaged, and what can be written into
JSON."""

import errno
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any

from pac4sac.base.errors import UserError


def write_durably(path: Path, data: bytes) -> None:
    """Not through a link: what is written lies where it was to be written."""
    with open(
        path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666)
    ) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, content: bytes | str) -> None:
    """Replace a file so that a reader, or a crash, sees the old content or the new, never a
    part."""
    part = path.with_name(path.name + ".part")
    write_durably(part, as_bytes(content) if isinstance(content, str) else content)
    part.replace(path)


def as_bytes(text: str) -> bytes:
    """With question marks for half characters, which names of files have where they are no
    UTF-8."""
    return text.encode(errors="replace")


def write_json(path: Path, about: Mapping[str, Any]) -> None:
    data = json.dumps(about, indent=1).encode()
    if SUSPECT.search(data):
        data = json.dumps(
            json.loads(as_bytes(json.dumps(about, ensure_ascii=False))), indent=1
        ).encode()
    write_whole(path, data)


def is_file_name(name: str) -> bool:
    """Of a file or folder right here: neither a path nor a way up."""
    return name not in ("", ".", "..") and not {"/", "\\", "\0"}.intersection(name)


def check_inside(folder: Path, *paths: Path) -> None:
    """Refuse paths that symbolic links lead out of a folder that the user named."""
    root = os.path.realpath(folder)
    for path in paths:
        if os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise UserError(
                f"{path} is or lies behind a symbolic link that leads out of {folder}; put "
                "what it leads to in its "
                "place, or name the folder that it leads to."
            )


def check_links(folder: Path) -> None:
    """Refuse a folder in which any link leads out of it, so that whatever is read or written there
    lies there."""
    check_inside(folder, *(path for path in all_below(folder) if path.is_symlink()))


def all_below(folder: Path) -> Iterator[Path]:
    """Links that lead nowhere among them, which no pattern of pathlib finds."""
    return (
        Path(place, name)
        for place, folders, files in os.walk(folder)
        for name in (*folders, *files)
    )


def read_file(path: Path) -> bytes:
    """Of a file as we write them; anything else, such as a pipe, would keep its reader waiting."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    return path.read_bytes()


def read_if_there(path: Path) -> bytes:
    return read_file(path) if os.path.lexists(path) else b""


def sync_folder(folder: Path) -> None:
    """What was made, renamed or removed in a folder is on the disk for good."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


Kinds = Mapping[str, type | UnionType]
ANY: Kinds = {}
COPY = "put a whole copy in its place, or leave it out."
SUSPECT = re.compile(rb"\\u[dD][89a-fA-F]|\d{19}")  # half a character perhaps, or more than 64 bits


def parse_json(data: bytes | str) -> Any:
    """A ValueError where it is no JSON, or has half a character or a number beyond 64 bits, which
    nothing we write has and hardly anything can take."""
    data = data.encode() if isinstance(data, str) else data
    try:
        content = json.loads(data, parse_int=_whole_number if SUSPECT.search(data) else None)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if SUSPECT.search(data):
        json.dumps(content, ensure_ascii=False).encode()
    return content


def _whole_number(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**64:
        raise ValueError(f"{text[:20]}… has more than 64 bits")
    return int(text)


def read_json(path: Path, kinds: Kinds = ANY, version: int | None = None) -> dict[str, Any]:
    """What a file of ours says; a mistake of the user where it is not as it was written."""
    try:
        about = parse_json(read_file(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); {COPY}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); {COPY}") from error
    return check_kinds(about, kinds, str(path), version)


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a definition that the user wrote, and what it says."""
    try:
        text = read_file(path).decode()
        return text, tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); name another file.") from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # of TOML, of UTF-8, or of what is nested too deeply
        raise UserError(f"{path} is no TOML file: {error}.") from error


def read_jsonl(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of a file, and the number of lines skipped because they are damaged or
    half-written."""
    try:
        return parse_jsonl(read_if_there(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); {COPY}") from error


def parse_jsonl(content: bytes) -> tuple[list[dict[str, Any]], int]:
    rows: list[dict[str, Any]] = []
    skipped = 0
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            skipped += 1
    return rows, skipped


def check_kinds(about: Any, kinds: Kinds, what: str, version: int | None = None) -> dict[str, Any]:
    """Return what was read, if it has all that it should have, each of its kind."""
    if not isinstance(about, dict):
        raise UserError(f"{what} is damaged: it is no table of names and values; {COPY}")
    if version is not None and about.get("version", version) != version:
        reads = f"this pac4sac reads version {version}; use the pac4sac that wrote it."
        raise UserError(f"{what} has version {about['version']}, and {reads}")
    kinds = kinds if version is None else {"version": int, **kinds}
    wrong = [name for name, kind in kinds.items() if not _is_of_kind(about.get(name), kind)]
    if wrong:
        raise UserError(f"{what} is damaged: it lacks a readable {', '.join(wrong)}; {COPY}")
    return about


def _is_of_kind(value: Any, kind: type | UnionType) -> bool:
    """Return whether a value is of a kind; bool does not count as a number."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def check_if_there(about: Any, kinds: Kinds, what: str) -> None:
    """What need not be there, but is of its kind where it is."""
    check_kinds(about, {name: kind for name, kind in kinds.items() if name in about}, what)


def as_json(value: Any, not_finite: Callable[[float], Any] = lambda number: number) -> Any:
    """Return a value as JSON knows it: lists and numbers instead of NumPy's. `not_finite` gives
    what stands for a number that is not finite."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, dict):
        return {key: as_json(item, not_finite) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [as_json(item, not_finite) for item in value]
    return not_finite(value) if isinstance(value, float) and not math.isfinite(value) else value


def natural(text: str) -> list[tuple[int, str]]:
    """Sorts seed 9 before seed 10."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)
    ]
