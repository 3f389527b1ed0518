"""Tasks: an environment with its episode length, the return that counts as solved, and a step budget."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    name: str
    env_id: str
    horizon: int | None = None  # steps after which an episode is truncated; None: the environment's own limit
    r_limit: float | None = None  # an episode above this return counts as solved
    steps: int = 100_000  # step budget of a run
    updates_per_step: int = 1
    env_kwargs: dict[str, Any] = field(default_factory=dict)
