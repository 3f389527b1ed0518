"""Grouping of items by a key, and of values that differ."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by key; keys and items keep their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def differing_values(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the values by table of each key that all tables have with different values."""
    values: dict[str, dict[str, Any]] = {}
    for table, content in tables.items():
        for key, value in content.items():
            values.setdefault(key, {})[table] = value
    return {key: by for key, by in values.items() if len({*map(str, by.values())}) > 1}
