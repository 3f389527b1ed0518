"""A small environment for tests of training, importable by worker processes as
training_environments:Drift-v0."""

from typing import Any

import gymnasium
import numpy as np


class Drift(gymnasium.Env):
    """A point pushed by the action and by seeded noise; the last observation is the number of steps
    taken. An episode ends when the second coordinate passes `cliff`; in step `at` of the episode
    with seed `victim` it raises."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, cliff: float = np.inf, victim: int = -1, at: int = 0) -> None:
        self.cliff, self.victim, self.at = cliff, victim, at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.doomed = seed == self.victim
        self.steps = 0
        self.point = self.np_random.normal(size=2)
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        if self.doomed and self.steps == self.at:
            raise ValueError("the robot left the world")
        self.point = 0.9 * self.point + 0.3 * self.np_random.normal(size=2)
        self.point[0] += 0.5 * action[0]
        return (
            self._observe(),
            float(1 - self.point[0] ** 2),
            bool(self.point[1] > self.cliff),
            False,
            {},
        )

    def _observe(self):
        return np.array([*self.point, self.steps], np.float32)


class Arm(gymnasium.Env):
    """Observes a dictionary and takes actions from 1 to 5, in a column."""

    observation_space = gymnasium.spaces.Dict(
        angle=gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64),
        speed=gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32),
    )
    action_space = gymnasium.spaces.Box(1.0, 5.0, (2, 1), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.speed = self.np_random.normal(size=2)
        return self._observe(), {}

    def step(self, action):
        self.speed = 0.5 * self.speed + action[:, 0] - 3
        return self._observe(), -float(abs(self.speed).sum()), False, False, {}

    def _observe(self):
        return {"angle": self.speed[:1] - 1, "speed": self.speed.astype(np.float32)}


gymnasium.register("Arm-v0", Arm, max_episode_steps=20)
gymnasium.register("Drift-v0", Drift, max_episode_steps=30)
gymnasium.register("EndlessDrift-v0", Drift)
gymnasium.register("SolvableDrift-v0", Drift, max_episode_steps=30, reward_threshold=10.0)
