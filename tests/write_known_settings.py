"""Writes what names stand for, settings of algorithms and tasks, where reports find it without torch.

Run it after a default has changed: python tests/write_known_settings.py
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pac4sac.reporting
from pac4sac.agents import ALGORITHMS, make_config
from pac4sac.tasks import TASKS

PATH = Path(pac4sac.reporting.__file__).parent / "known_settings.json"


def known_settings() -> dict[str, Any]:
    algorithms = {
        name: {preset: dataclasses.asdict(make_config(name, preset)) for preset in algorithm.agent.presets}
        for name, algorithm in ALGORITHMS.items()
    }
    updates = {name: dict(algorithm.agent.updates_of_task) for name, algorithm in ALGORITHMS.items()}
    return {
        "algorithms": algorithms,
        "updates_of_task": updates,
        "tasks": {name: dataclasses.asdict(task) for name, task in TASKS.items()},
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(known_settings(), indent=1) + "\n")
