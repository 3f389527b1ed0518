"""Environments whose values are known in closed form, importable by workers as
probe_environments:probe/...-v0.

All have one action, and one observation that is 0 or 1: SAC-NR looks at states through random
linear maps, and nothing but zero and non-zero survives those."""

from typing import Any

import gymnasium
import numpy as np


class Probe(gymnasium.Env[np.ndarray, np.ndarray]):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def first_state(self) -> int:
        return 0

    def outcome(self, state: int, action: float) -> tuple[float, int, bool]:
        """Reward, next state, and whether the episode ends in it."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.state = self.first_state()
        return np.array([self.state], np.float32), {}

    def step(self, action):
        reward, self.state, terminated = self.outcome(self.state, float(action[0]))
        return np.array([self.state], np.float32), reward, terminated, False, {}


class ConstantReward(Probe):
    """One step, reward 1."""

    def outcome(self, state: int, action: float) -> tuple[float, int, bool]:
        return 1.0, 0, True


class RewardByObservation(Probe):
    """One step, reward 1 in state 1 and −1 in state 0."""

    def first_state(self) -> int:
        return int(self.np_random.integers(2))

    def outcome(self, state: int, action: float) -> tuple[float, int, bool]:
        return 2.0 * state - 1, state, True


class TwoSteps(Probe):
    """From state 0 to state 1 without reward, then the end with reward 1."""

    def outcome(self, state: int, action: float) -> tuple[float, int, bool]:
        return float(state), 1, state == 1


class RewardByAction(Probe):
    """One step, reward −(a − a*)², where a* is 0.5 in state 1 and −0.5 in state 0."""

    def first_state(self) -> int:
        return int(self.np_random.integers(2))

    def outcome(self, state: int, action: float) -> tuple[float, int, bool]:
        return -((action - (state - 0.5)) ** 2), state, True


class Endless(Probe):
    """From state 0 to state 1 without reward, then reward 1 for ever; a time limit sends it back to
    state 0. Whoever takes the limit for an end, or state 0 for what follows it, undervalues state
    1."""

    def outcome(self, state: int, action: float) -> tuple[float, int, bool]:
        return float(state), 1, False


gymnasium.register("probe/ConstantReward-v0", ConstantReward)
gymnasium.register("probe/RewardByObservation-v0", RewardByObservation)
gymnasium.register("probe/TwoSteps-v0", TwoSteps)
gymnasium.register("probe/RewardByAction-v0", RewardByAction)
gymnasium.register("probe/Endless-v0", Endless, max_episode_steps=4)
