"""The settings that the name of a shipped algorithm stands for, which a stored run need not tell."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from pac4sac.agents import ALGORITHMS, make_config


@functools.cache
def usual_settings(algo: str, preset: str = "paper") -> Mapping[str, Any]:
    """Nothing for a user's own algorithm, or a preset of earlier days: code is never imported because data name it."""
    if algo not in ALGORITHMS or preset not in ALGORITHMS[algo].agent.presets:
        return {}
    return dataclasses.asdict(make_config(algo, preset))


def updates_of_task(algo: str, preset: str) -> int | None:
    return ALGORITHMS[algo].agent.updates_of_task.get(preset) if algo in ALGORITHMS else None


def completed(algo: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A run that was trained before a setting existed was trained with its default."""
    return {**usual_settings(algo), **config}


def chosen(algo: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are not the defaults: the same for a run whether or not it was trained before one existed."""
    usual = usual_settings(algo)
    return {name: value for name, value in config.items() if name not in usual or value != usual[name]}
