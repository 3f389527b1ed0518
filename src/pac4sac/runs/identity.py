"""What a run is, apart from what it is called, and the settings that the name of a shipped
algorithm stands for."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pac4sac.agents import ALGORITHMS, make_config


def identity(about: Mapping[str, Any]) -> str:
    """Of what was trained, whatever it is called: two runs of one identity give the same result. A
    setting at its default is left out of it, so that a run stays the same when settings are
    added."""
    usual = usual_settings(about["algo"])
    trained = {key: about.get(key) for key in ("task", "algo", "revision", "seed")}
    trained["config"] = {
        k: value for k, value in about["config"].items() if k not in usual or value != usual[k]
    }
    # Otherwise not even named, so that no run from scratch, and none of shipped code, gets another
    # identity.
    trained |= {name: about[name] for name in ("started_from", "code") if about.get(name)}
    return hashlib.sha256(json.dumps(trained, sort_keys=True).encode()).hexdigest()


@functools.cache
def usual_settings(algo: str, preset: str = "paper") -> Mapping[str, Any]:
    """Nothing for a user's own algorithm, or a preset of earlier days: code is never imported
    because data name it."""
    if algo not in ALGORITHMS or preset not in ALGORITHMS[algo].agent.presets:
        return {}
    return dataclasses.asdict(make_config(algo, preset))


def updates_of_task(algo: str, preset: str) -> int | None:
    return ALGORITHMS[algo].agent.updates_of_task.get(preset) if algo in ALGORITHMS else None
