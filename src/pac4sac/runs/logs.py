"""The logs of a run: required entries of rows, reading, and the columns that an archive stores.

A run that has ended stores a seal of each log, which is its number of lines and its checksum.
Readers use the seal to detect lost lines.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.files import parse_jsonl, read_if_there

EPISODE_COLUMNS = ("episode", "step", "return", "length")
MEASUREMENTS = ("bias", "coverage")  # optional logs, for any algorithm
LOGS = ("episodes", "metrics", "evaluations", *MEASUREMENTS)
REPORTED = ("episodes", "evaluations", *MEASUREMENTS)  # logs that reports and archives need

# Policies by their names in logs; older logs have "greedy".
POLICIES = {"deterministic": "deterministic", "shooting": "shooting", "greedy": "deterministic"}

LogRow = dict[str, Any]
LogSeal = dict[str, Any]  # number of lines and checksum of a complete log


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number that NumPy can hold."""
    if type(value) is int:
        return abs(value) < 2**63
    return type(value) is float and math.isfinite(value)


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number, at least 0, that NumPy can hold."""
    return type(value) is int and 0 <= value < 2**63


def is_measured(value: Any) -> bool:
    """Return whether a value is a number, or None for one that was not finite."""
    return value is None or is_number(value)


def is_measured_list(value: Any) -> bool:
    """Return whether a value is a list of measured values, or None."""
    return value is None or (isinstance(value, list) and all(map(is_measured, value)))


# Required entries of each row. All other entries of means and measurements are numbers too.
SCHEMAS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "episodes": {"episode": is_count, "step": is_count, "return": is_number, "length": is_count},
    "metrics": {"step": is_count},
    "evaluations": {
        "step": is_count,
        "policy": lambda value: isinstance(value, str) and value in POLICIES,
        "mean": is_measured,
        "returns": is_measured_list,
    },
    **{name: {"step": is_count} for name in MEASUREMENTS},
}


def fits(log: str, row: LogRow) -> bool:
    """Return whether a row has all required entries of this log."""
    if not all(is_right(row.get(name)) for name, is_right in SCHEMAS[log].items()):
        return False
    return log in ("episodes", "evaluations") or all(map(is_measured, row.values()))


def valid_rows(log: str, rows: Sequence[LogRow], skipped: int = 0) -> tuple[list[LogRow], str]:
    """Return the valid rows of a log, and a phrase with the number of unreadable lines.

    Args:
        log: Name of the log.
        rows: Rows that were read.
        skipped: Number of lines that could not be parsed as rows.
    """
    valid = [row for row in rows if fits(log, row)]
    lost = skipped + len(rows) - len(valid)
    if not lost:
        return valid, ""
    return valid, f"{lost} unreadable {'line' if lost == 1 else 'lines'}"


def read_log(path: Path, seal: Any = None) -> tuple[list[LogRow], str]:
    """Return the valid rows of a log, and a description of its damage.

    Args:
        path: File of the log; a missing file counts as an empty log.
        seal: Number of lines and checksum when the run ended, if stored.
    """
    try:
        content = read_if_there(path)
    except OSError as error:
        return [], str(error.strerror)
    rows, unreadable = valid_rows(path.stem, *parse_jsonl(content))
    return rows, join_damage(_change_since(seal, content), unreadable)


def join_damage(*damage: str) -> str:
    """Join the descriptions of damage that are not empty."""
    return ", ".join(filter(None, damage))


def _change_since(seal: Any, content: bytes) -> str:
    """Describe the difference between a log and its seal; "" without a difference or a seal."""
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
    """Return one list for each name in any row, with None for rows without this name."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_rows(columns: dict[str, Any]) -> list[LogRow]:
    """Return columns of equal length row by row."""
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def episode_columns(rows: Sequence[LogRow]) -> dict[str, Any]:
    """Return the columns of episodes without those that `episode_rows` can restore.

    Numbers and steps of episodes are omitted. If all episodes have the same length, it is stored
    once.
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
