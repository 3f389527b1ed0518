"""What names of algorithms and tasks stand for; a copy, since to ask the agents would be to import torch."""

import functools
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


@functools.cache
def known_settings() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(__file__).parent / "known_settings.json").read_bytes())
    return content


@functools.cache
def shipped_study(name: str) -> dict[str, Any]:
    """The definition of a study of the package, as it is written."""
    return tomllib.loads((Path(__file__).parents[1] / "studies" / "shipped" / f"{name}.toml").read_text())


def default_settings(algo: str) -> dict[str, Any]:
    """Nothing for a user's own algorithm."""
    defaults: dict[str, Any] = known_settings()["algorithms"].get(algo, {}).get("paper", {})
    return defaults


def completed(algo: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A run that was trained before a setting existed was trained with its default."""
    return default_settings(algo) | dict(config)


def chosen(algo: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not the defaults: the same for a run whether or not it was trained before one existed."""
    defaults = default_settings(algo)
    return {name: value for name, value in config.items() if name not in defaults or value != defaults[name]}
