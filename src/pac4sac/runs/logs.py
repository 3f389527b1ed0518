"""The logs of a run: their names, and their rows column by column, as an archive keeps them."""

import itertools
from collections.abc import Sequence
from typing import Any

EPISODE_COLUMNS = ("episode", "step", "return", "length")
MEASUREMENTS = ("bias", "coverage")  # made where an option asks for them, whatever is trained
LOGS = ("episodes", "metrics", "evaluations", *MEASUREMENTS)
REPORTED = ("episodes", "evaluations", *MEASUREMENTS)  # those that reports are made of

LogRow = dict[str, Any]


def as_columns(rows: Sequence[LogRow]) -> dict[str, Any]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def as_rows(columns: dict[str, Any]) -> list[LogRow]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def episode_columns(rows: Sequence[LogRow]) -> dict[str, Any]:
    """Without what follows from the rest: numbers and steps of episodes, and a length that all have."""
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
