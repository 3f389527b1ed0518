"""An environment of the size of Cartpole Swingup that costs next to nothing, for comparing
learners."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float32]


class Trivial(gymnasium.Env[Numbers, Numbers]):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, **_: Any) -> None:
        self.seen = list(np.random.default_rng(0).normal(size=(256, 5)).astype(np.float32))
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Numbers, dict[str, Any]]:
        return self.seen[0], {}

    def step(self, action: Numbers) -> tuple[Numbers, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.seen[self.steps % 256], 1.0, False, False, {}


gymnasium.register("Trivial-v0", Trivial, max_episode_steps=1000, disable_env_checker=True)
