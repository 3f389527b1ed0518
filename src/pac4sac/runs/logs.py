"""The logs of a run: what a row of each must have, reading them, and their rows column by column,
as an archive stores them.

A run that has ended stores the seal of each log, its number of lines and checksum, so readers
notice a lost line.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.files import parse_jsonl, read_if_there

EPISODE_COLUMNS = ("episode", "step", "return", "length")
MEASUREMENTS = ("bias", "coverage")  # made on request, by any algorithm
LOGS = ("episodes", "metrics", "evaluations", *MEASUREMENTS)
REPORTED = ("episodes", "evaluations", *MEASUREMENTS)  # that reports and archives need

# By their names in logs; older logs have "greedy".
POLICIES = {"deterministic": "deterministic", "shooting": "shooting", "greedy": "deterministic"}

LogRow = dict[str, Any]
LogSeal = dict[str, Any]  # lines and checksum of a log that is complete


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number that NumPy can hold."""
    if type(value) is int:
        return abs(value) < 2**63
    return type(value) is float and math.isfinite(value)


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number from 0 on that NumPy can hold."""
    return type(value) is int and 0 <= value < 2**63


def is_measured(value: Any) -> bool:
    """Return whether a value is a number, or null for one that was not finite."""
    return value is None or is_number(value)


def is_measured_list(value: Any) -> bool:
    """Return whether a value is a list of measured values, or null."""
    return value is None or (isinstance(value, list) and all(map(is_measured, value)))


# What each row must have. All else in a row of means or measurements is a number too.
SCHEMAS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "episodes": {"episode": is_count, "step": is_count, "return": is_number, "length": is_count},
    "metrics": {"step": is_count},
    "evaluations": {
        "step": is_count,
        "policy": lambda value: value in POLICIES,
        "mean": is_measured,
        "returns": is_measured_list,
    },
    **{name: {"step": is_count} for name in MEASUREMENTS},
}


def fits(log: str, row: LogRow) -> bool:
    """Return whether a row has what a row of this log must have."""
    if not all(is_right(row.get(name)) for name, is_right in SCHEMAS[log].items()):
        return False
    return log in ("episodes", "evaluations") or all(map(is_measured, row.values()))


def valid_rows(log: str, rows: Sequence[LogRow], skipped: int = 0) -> tuple[list[LogRow], str]:
    """Return the valid rows of a log, and in words how many lines are unreadable.

    Args:
        log: Name of the log.
        rows: Rows that were read.
        skipped: Number of lines that are not rows at all.
    """
    valid = [row for row in rows if fits(log, row)]
    lost = skipped + len(rows) - len(valid)
    if not lost:
        return valid, ""
    return valid, f"{lost} unreadable {'line' if lost == 1 else 'lines'}"


def read_log(path: Path, seal: Any = None) -> tuple[list[LogRow], str]:
    """Return the valid rows of a log, and in words what is damaged.

    Args:
        path: File of the log; without it the log is empty.
        seal: Lines and checksum of the log when the run ended, if they were stored.
    """
    try:
        content = read_if_there(path)
    except OSError as error:
        return [], str(error.strerror)
    rows, unreadable = valid_rows(path.stem, *parse_jsonl(content))
    return rows, join_damage(_change_since(seal, content), unreadable)


def join_damage(*damage: str) -> str:
    """Return several descriptions of damage as one; empty ones do not count."""
    return ", ".join(filter(None, damage))


def _change_since(seal: Any, content: bytes) -> str:
    """Return in words how a log differs from its seal; nothing if it does not, or has none."""
    found = seal_of(content)
    if not isinstance(seal, dict) or seal == found:
        return ""
    lines = seal.get("lines")
    if lines != found["lines"]:
        return f"{found['lines']} of {lines} lines"
    return "changed since the run ended"


def seal_of(content: bytes) -> LogSeal:
    """Return the number of lines and the checksum of a log."""
    return {"lines": content.count(b"\n"), "sha256": hashlib.sha256(content).hexdigest()}


def log_columns(log: str, rows: Sequence[LogRow]) -> dict[str, Any]:
    """Return the rows of a log column by column, as an archive stores them."""
    return episode_columns(rows) if log == "episodes" else as_columns(rows)


def log_rows(log: str, columns: dict[str, Any]) -> list[LogRow]:
    """Return the rows of a log from the columns that an archive stores."""
    return episode_rows(columns) if log == "episodes" else as_rows(columns)


def as_columns(rows: Sequence[LogRow]) -> dict[str, Any]:
    """Return one list for each name in any row, with None in rows that lack it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_rows(columns: dict[str, Any]) -> list[LogRow]:
    """Return columns of equal length row by row."""
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def episode_columns(rows: Sequence[LogRow]) -> dict[str, Any]:
    """Return the columns of episodes without what `episode_rows` can restore.

    Numbers and steps of episodes are left out. A length that all episodes have is stored once.
    """
    columns = as_columns(rows)
    short = {name: column for name, column in columns.items() if name not in ("episode", "step")}
    if len(set(columns.get("length", []))) == 1:
        short["length"] = columns["length"][0]
    return short if episode_rows(short) == list(rows) else columns


def episode_rows(columns: dict[str, Any]) -> list[LogRow]:
    """Return the rows of episodes, with numbers and steps restored if the columns lack them."""
    returns, lengths = columns.get("return", []), columns.get("length", [])
    lengths = lengths if isinstance(lengths, list) else [lengths] * len(returns)
    derived = {"episode": list(range(len(returns))), "step": list(itertools.accumulate(lengths))}
    return as_rows(derived | columns | {"length": lengths})
