"""The logs of a run: what a row of each must be, how they are read, and their rows column by
column, as an archive has them. A run that has ended knows lines and checksum of each, so that
nothing can be lost from its logs unnoticed."""

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.files import parse_jsonl, read_if_there

EPISODE_COLUMNS = ("episode", "step", "return", "length")
MEASUREMENTS = ("bias", "coverage")  # made where an option asks for them, whatever is trained
LOGS = ("episodes", "metrics", "evaluations", *MEASUREMENTS)
REPORTED = ("episodes", "evaluations", *MEASUREMENTS)  # those that reports are made of

# By the names in logs, the last of which is that of older ones.
POLICIES = {"deterministic": "deterministic", "shooting": "shooting", "greedy": "deterministic"}

LogRow = dict[str, Any]
LogSeal = dict[str, Any]  # lines and checksum of a log that is complete


def is_number(value: Any) -> bool:
    """That NumPy can hold."""
    return (type(value) is int and abs(value) < 2**63) or (
        type(value) is float and math.isfinite(value)
    )


def is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def is_measured(value: Any) -> bool:
    """A number, or null for one that was not finite."""
    return value is None or is_number(value)


# What each row must have. All else in a row of means or measurements is a number too.
SCHEMAS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "episodes": {"episode": is_count, "step": is_count, "return": is_number, "length": is_count},
    "metrics": {"step": is_count},
    "evaluations": {
        "step": is_count,
        "policy": lambda value: value in POLICIES,
        "mean": is_measured,
        "returns": lambda value: (
            value is None or (isinstance(value, list) and all(map(is_measured, value)))
        ),
    },
    **{name: {"step": is_count} for name in MEASUREMENTS},
}


def fits(log: str, row: LogRow) -> bool:
    if not all(is_right(row.get(name)) for name, is_right in SCHEMAS[log].items()):
        return False
    return log in ("episodes", "evaluations") or all(map(is_measured, row.values()))


def read_log(path: Path, seal: Any = None) -> tuple[list[LogRow], str]:
    """The rows that are as they must be, and in words what is wrong with the others, or with the
    log as a whole where its seal tells how it was."""
    try:
        content = read_if_there(path)
    except OSError as error:
        return [], str(error.strerror)
    parsed, skipped = parse_jsonl(content)
    rows = [row for row in parsed if fits(path.stem, row)]
    damage, found = unreadable(skipped + len(parsed) - len(rows)), seal_of(content)
    if isinstance(seal, dict) and seal != found:
        lines = seal.get("lines")
        cut = (
            f"{found['lines']} of {lines} lines"
            if lines != found["lines"]
            else "changed since the run ended"
        )
        damage = ", ".join(filter(None, (cut, damage)))
    return rows, damage


def unreadable(lines: int) -> str:
    return f"{lines} unreadable {'line' if lines == 1 else 'lines'}" if lines else ""


def seal_of(content: bytes) -> LogSeal:
    return {"lines": content.count(b"\n"), "sha256": hashlib.sha256(content).hexdigest()}


def as_columns(rows: Sequence[LogRow]) -> dict[str, Any]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_rows(columns: dict[str, Any]) -> list[LogRow]:
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def episode_columns(rows: Sequence[LogRow]) -> dict[str, Any]:
    """Without what follows from the rest: numbers and steps of episodes, and a length that all
    have."""
    columns = as_columns(rows)
    short = {name: column for name, column in columns.items() if name not in ("episode", "step")}
    if len(set(columns.get("length", []))) == 1:
        short["length"] = columns["length"][0]
    return short if episode_rows(short) == list(rows) else columns


def episode_rows(columns: dict[str, Any]) -> list[LogRow]:
    returns, lengths = columns.get("return", []), columns.get("length", [])
    lengths = lengths if isinstance(lengths, list) else [lengths] * len(returns)
    derived = {"episode": list(range(len(returns))), "step": list(itertools.accumulate(lengths))}
    return as_rows(derived | columns | {"length": lengths})
