"""Train on a custom Gymnasium environment that a module registers.

The name of the task is `module:Name-v0`, in Python and on the command line:

    PYTHONPATH=examples pac4sac train own_environment:Docking-v0 --algo sac

By default the script takes seconds and the agent does not learn; with `--real`, it learns to dock
in a few minutes.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import pac4sac


class Docking(gymnasium.Env[np.ndarray, np.ndarray]):
    """Stop a boat at 0 on a line. Actions are in newtons; pac4sac scales them from [-1, 1]."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        # The motor is stronger in one direction.
        self.action_space = spaces.Box(-3.0, 1.0, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict]:
        # Draw all random numbers from self.np_random, so episodes can be repeated.
        super().reset(seed=seed)
        self.x, self.v = self.np_random.uniform(-1, 1), 0.0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.v += 0.05 * (float(action[0]) - 0.5 * self.v)
        self.x = float(np.clip(self.x + 0.05 * self.v, -3.0, 3.0))
        return self._observe(), 1.0 - min(abs(self.x), 2.0), False, False, {}

    def render(self) -> np.ndarray:  # for `pac4sac watch`, not needed to train
        picture = np.full((60, 300, 3), 230, np.uint8)
        picture[:, 149:151] = (200, 80, 60)
        middle = int(np.clip(150 + 45 * self.x, 6, 294))
        picture[25:35, middle - 6 : middle + 6] = (30, 60, 120)
        return picture

    def _observe(self) -> np.ndarray:
        return np.array([self.x, self.v], np.float32)


if "Docking-v0" not in gymnasium.registry:
    # An episode with a return above the threshold counts as solved.
    gymnasium.register(
        "Docking-v0", "own_environment:Docking", max_episode_steps=200, reward_threshold=160.0
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="experiments/docking", help="new folder for the results")
    parser.add_argument("--real", action="store_true", help="train long enough to learn")
    arguments = parser.parse_args()

    quick = {"width": 32, "depth": 2, "warmup": 500}
    result = pac4sac.train(
        "own_environment:Docking-v0",
        algo="sac",
        settings={} if arguments.real else quick,
        steps=8000 if arguments.real else 600,
        stop_when_solved=True,
        out=arguments.out,
    )
    (run,) = result.runs
    print(f"{run.run} {run.status}; returns: {[round(r) for r in run.returns.tolist()]}")
