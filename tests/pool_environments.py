"""A small environment that goes wrong on demand, importable by worker processes as
pool_environments:Faulty-v0."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


class Faulty(gymnasium.Env):
    """Drifts by action and seeded noise; in step ``at`` of the episode reset with seed ``victim``
    the fault happens, in every episode where the victim is -2."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, fault: str = "", victim: int = -1, at: int = 0, marker: str = "") -> None:
        self.fault, self.victim, self.at, self.marker = fault, victim, at, marker

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.is_victim = self.victim in (seed, -2)
        if self.is_victim and self.fault == "raise in reset":
            raise OSError("the licence server is down")
        self.steps, self.last_action = 0, np.zeros(2)
        self.state = self.np_random.normal(size=3)
        return self.state.astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        self.state = 0.9 * self.state + 0.1 * self.np_random.normal(size=3)
        self.state[:2] += action - 0.5 * self.last_action
        self.last_action = action  # kept without a copy, as environments do
        reward = float(self.state.sum())
        if self.is_victim and self.steps == self.at:
            match self.fault:
                case "raise":
                    raise ValueError("the robot\nleft the world")
                case "raise some times" if left := int(Path(self.marker).read_text()):
                    Path(self.marker).write_text(str(left - 1))
                    raise MemoryError("no memory is left")
                case "exit some times" if left := int(Path(self.marker).read_text()):
                    Path(self.marker).write_text(str(left - 1))
                    os._exit(3)
                case "nan observation":
                    self.state[1] = np.nan
                case "infinite reward":
                    reward = float("inf")
                case "exit":
                    os._exit(3)
                case "exit once" if not Path(self.marker).exists():
                    Path(self.marker).touch()
                    os._exit(3)
                case "hang":
                    Path(self.marker).touch()
                    time.sleep(3600)
                case "system exit":
                    sys.exit("licence expired")
                case "short observation":
                    return np.zeros(1, np.float32), reward, False, False, {}
                case "text as reward":
                    reward = "1.5"
                case "nothing as reward":
                    reward = None
                case "two rewards":
                    reward = np.ones(2)
                case "hang deaf":  # as inside C code, which lets no handler of Python run
                    signal.pthread_sigmask(
                        signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM, signal.SIGINT}
                    )
                    Path(self.marker).write_text(str(os.getpid()))
                    time.sleep(3600)
                case "unseeded":
                    self.state[0] += int.from_bytes(os.urandom(4)) / 2**32
        return (
            self.state.astype(np.float32),
            reward,
            bool(self.steps > 7 and self.state[2] > 0.2),
            False,
            {},
        )


gymnasium.register("Faulty-v0", Faulty, max_episode_steps=20)
