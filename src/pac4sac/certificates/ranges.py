"""Between which numbers a task's rewards lie: what a bound for bounded losses or returns has to assume."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pac4sac.base.errors import UserError
from pac4sac.tasks import Task

ROUNDING = 1e-6  # of float32, as rewards are stored


@dataclass(frozen=True)
class RewardRange:
    low: float
    high: float
    because: str
    proven: bool  # by the task's definition; otherwise an assumption that data can only refute
    each_step: bool = True  # otherwise it is about the mean of an episode's rewards

    def __post_init__(self) -> None:
        if not -np.inf < self.low < self.high < np.inf:
            raise UserError(f"A range needs two finite numbers, the lower first, not {self.low:g} and {self.high:g}.")

    @property
    def width(self) -> float:
        return self.high - self.low

    def of_values(self, gamma: float) -> tuple[float, float]:
        """Between which any discounted sum of rewards lies, however long."""
        return min(self.low, 0.0) / (1 - gamma), max(self.high, 0.0) / (1 - gamma)

    def of_returns(self, horizon: int) -> tuple[float, float]:
        """Of an episode of at least one and at most `horizon` steps."""
        return (self.low * (horizon if self.low < 0 else 1), self.high * (horizon if self.high > 0 else 1))

    def farthest_outside(self, rewards: ArrayLike) -> float | None:
        """None where all lie within, but for rounding."""
        x = np.asarray(rewards, np.float64)
        excess = np.maximum(self.low - x, x - self.high)
        rounding = ROUNDING * max(abs(self.low), abs(self.high))
        return float(x[excess.argmax()]) if excess.max() > rounding else None

    def __str__(self) -> str:
        return f"rewards in [{self.low:g}, {self.high:g}] ({'' if self.proven else 'assumed: '}{self.because})"


KNOWN = {
    "pac4sac/CartpoleSwingup-v0": RewardRange(-1, 1, "the reward is the cosine of the pole's angle", proven=True),
    "Pendulum-v1": RewardRange(
        -(np.pi**2 + 0.1 * 8**2 + 0.001 * 2**2), 0, "angle, speed and torque are limited", proven=True
    ),
    # The walkers' speeds have no limit, only none that was ever seen outside these; over an episode, not in each step.
    "pac4sac/HalfCheetah-v0": RewardRange(
        -3.6, 6, "an episode's mean speed lies within -3 and 6 m/s", proven=False, each_step=False
    ),
    "pac4sac/Ant-v0": RewardRange(
        -0.8, 5, "an episode's mean speed lies within -1 and 4 m/s", proven=False, each_step=False
    ),
    "pac4sac/Humanoid-v0": RewardRange(
        -0.7, 6, "an episode's mean speed lies within -1 and 4 m/s", proven=False, each_step=False
    ),
}


def known_range(task: Task) -> RewardRange | None:
    return KNOWN.get(task.env_id.rpartition(":")[2])


def given_range(low: float, high: float) -> RewardRange:
    return RewardRange(low, high, "you gave it", proven=False)


def observed_range(rewards: ArrayLike) -> RewardRange:
    """What was seen, where nothing is known: a scale to judge errors by, not a limit."""
    low, high = float(np.min(rewards)), float(np.max(rewards))
    if low == high:  # a constant reward is on the scale of its own size
        low, high = min(low, 0.0), max(high, 0.0) or 1.0
    return RewardRange(low, high, "the extremes seen so far; others may come", proven=False)
