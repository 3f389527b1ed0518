"""Files that appear whole or not at all, files that may be damaged, and what can be written into JSON."""

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError


def write_durably(path: Path, data: bytes) -> None:
    """Not through a link: what is written lies where it was to be written."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file so that a reader, or a crash, sees the old content or the new, never a part."""
    part = path.with_name(path.name + ".part")
    write_durably(part, data)
    part.replace(path)


def is_file_name(name: str) -> bool:
    """Of a file or folder right here: neither a path nor a way up."""
    return name not in ("", ".", "..") and not {"/", "\\", "\0"}.intersection(name)


def check_inside(folder: Path, *paths: Path) -> None:
    """Refuse paths that symbolic links lead out of a folder that the user named."""
    root = os.path.realpath(folder)
    for path in paths:
        if os.path.commonpath([root, os.path.realpath(path)]) != root:
            raise UserError(
                f"{path} is or lies behind a symbolic link that leads out of {folder}; put what it leads to in its "
                "place, or name the folder that it leads to."
            )


def check_links(folder: Path) -> None:
    """Refuse a folder in which any link leads out of it, so that whatever is read or written there lies there."""
    below = (Path(place, name) for place, folders, files in os.walk(folder) for name in (*folders, *files))
    check_inside(folder, *(path for path in below if path.is_symlink()))


def sync_folder(folder: Path) -> None:
    """What was made, renamed or removed in a folder is on the disk for good."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def read_jsonl(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of a file, and the number of lines skipped because they are damaged or half-written."""
    return parse_jsonl(path.read_bytes()) if path.is_file() else ([], 0)


def parse_jsonl(content: bytes) -> tuple[list[dict[str, Any]], int]:
    rows: list[dict[str, Any]] = []
    skipped = 0
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            skipped += 1
    return rows, skipped


def plain(value: Any, not_finite: Callable[[float], Any] = lambda number: number) -> Any:
    """As JSON knows it: lists and numbers instead of NumPy's, and what is to stand for a number that is not finite."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, dict):
        return {key: plain(item, not_finite) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item, not_finite) for item in value]
    return not_finite(value) if isinstance(value, float) and not math.isfinite(value) else value


def natural(text: str) -> list[tuple[int, str]]:
    """Sorts seed 9 before seed 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]
