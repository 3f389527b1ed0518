"""Lower bounds on the expected return of a policy, from fresh episodes and the range of rewards.

The bounds assume independent episodes and a lowest possible return. They require neither normal
returns nor many episodes.
"""

import bisect
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from pac4sac.agents.bounds import check_delta
from pac4sac.base.errors import UserError
from pac4sac.certificates.texts import TEXTS
from pac4sac.runs.statistics import Estimate, mean_interval
from pac4sac.tasks import Task

Limits = tuple[float, float]  # (lower, upper)
BETS = (np.arange(20) + 0.5) / 20  # fractions of the largest safe bet
BISECTIONS = 60
USEFUL = (
    0.1  # a useful bound is this close to the mean, as a fraction of mean − lowest possible return
)
MOST_EPISODES = 1_000_000  # largest number of episodes to suggest
NEGLIGIBLE = 1e-3  # a bound this close (relative) to the trivial one is vacuous
ROUNDING = 1e-6  # relative error of stored float32 rewards


@dataclass(frozen=True)
class ReturnCertificate:
    policy: str
    episodes: int
    mean: Estimate  # with Student's interval, which assumes normal returns
    delta: float
    range: Limits | None
    # lower bounds on the expected return, each with confidence 1 − δ
    empirical_bernstein: float | None
    betting: float | None
    remark: str  # their assumption, or the reason for their absence
    # a useful bound, and the number of such episodes with which betting reaches it
    useful: float | None = None
    enough_episodes: int | None = None

    def vacuous(self, bound: float) -> bool:
        """Return whether a bound does not exceed the lowest possible return."""
        return self.range is not None and bound <= self.range[0] + NEGLIGIBLE * abs(self.range[0])

    @property
    def has_vacuous_bound(self) -> bool:
        return self.betting is not None and self.vacuous(self.betting)


def certify_returns(
    returns: ArrayLike,
    limits: Limits | None,
    delta: float = 0.05,
    *,
    policy: str = "policy",
    because: str = "given",
) -> ReturnCertificate:
    """Return lower bounds on the expected return.

    Only the lower limit is an assumption. Returns above the upper limit are clipped, which can only
    lower the mean.
    """
    x = np.asarray(returns, np.float64)
    if not len(x) or not np.isfinite(x).all():
        raise UserError(TEXTS["returns"]["none"].format(policy=policy))
    check_delta(delta)
    certificate = partial(
        ReturnCertificate, policy, len(x), mean_interval(x, 1 - delta), delta, limits
    )
    if limits is None:
        return certificate(None, None, TEXTS["returns"]["unlimited"])
    low, high = limits
    if not -np.inf < low < high < np.inf:
        raise UserError(
            f"The range of returns must be two finite numbers, the lower one first, not {low:g} "
            f"and {high:g}."
        )
    if x.min() < low:
        return certificate(None, None, TEXTS["returns"]["refuted"].format(least=x.min(), low=low))
    unit = np.minimum((x - low) / (high - low), 1.0)
    bernstein = low + (high - low) * empirical_bernstein_lower(unit, delta)
    betting = low + (high - low) * betting_lower(unit, delta)
    target = (1 - USEFUL) * float(unit.mean())
    enough = episodes_needed(unit, target, delta)
    return certificate(bernstein, betting, because, low + (high - low) * target, enough)


# --- bounds on the mean of samples in [0, 1]


def empirical_bernstein_lower(unit: ArrayLike, delta: float) -> float:
    """Return the bound of Maurer and Pontil (2009), theorem 4.

    The bound is mean − √(2 V ln(2/δ)/n) − 7 ln(2/δ)/(3(n − 1)), with the sample variance V.
    """
    x = np.asarray(unit, np.float64)
    if len(x) < 2:
        return 0.0
    log = np.log(2 / delta)
    bound = x.mean() - np.sqrt(2 * x.var(ddof=1) * log / len(x)) - 7 * log / (3 * (len(x) - 1))
    return float(max(bound, 0.0))


def betting_lower(unit: ArrayLike, delta: float) -> float:
    """Return the lower bound by betting (Waudby-Smith and Ramdas 2023).

    It is the smallest mean m that betting does not refute. With bet f on samples above m, the
    capital is Π(1 + f (x/m − 1)). If m is the mean, the capital has expectation 1, and by Markov's
    inequality it reaches 1/δ with probability at most δ. The stake is spread evenly over `BETS`.
    Capital decreases in m, so bisection finds the bound.
    """
    x = np.asarray(unit, np.float64)

    def refuted(m: float) -> bool:
        log_capital = np.log1p(BETS[:, None] * (x / m - 1)).sum(1)
        return bool(np.logaddexp.reduce(log_capital) - np.log(len(BETS)) >= -np.log(delta))

    low, high = 0.0, float(x.mean())
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if middle > 0 and refuted(middle):
            low = middle
        else:
            high = middle
    return low


def episodes_needed(unit: ArrayLike, target: float, delta: float) -> int | None:
    """Return the number of such samples with which `betting_lower` reaches a target; None if no
    number is enough.

    Every value is assumed to occur as often as here, so the capital grows at the same rate.
    """
    x = np.asarray(unit, np.float64)
    if not 0 < target < x.mean():
        return None
    growth = np.log1p(BETS[:, None] * (x / target - 1)).mean(1)

    def is_enough(n: int) -> bool:
        return bool(np.logaddexp.reduce(n * growth) - np.log(len(BETS)) >= -np.log(delta))

    found = bisect.bisect_left(range(MOST_EPISODES), True, key=is_enough)
    return found if found < MOST_EPISODES else None


def betting_upper(unit: ArrayLike, delta: float) -> float:
    """Return the upper bound by betting."""
    return 1.0 - betting_lower(1.0 - np.asarray(unit, np.float64), delta)


# --- ranges of rewards, which bounds on bounded losses or returns have to
# assume


@dataclass(frozen=True)
class RewardRange:
    low: float
    high: float
    because: str
    proven: bool  # follows from the task's definition; otherwise an assumption
    each_step: bool = True  # False: the range of an episode's mean reward

    def __post_init__(self) -> None:
        if not -np.inf < self.low < self.high < np.inf:
            raise UserError(
                f"A range must be two finite numbers, the lower one first, not {self.low:g} and "
                f"{self.high:g}."
            )

    @staticmethod
    def known(task: Task) -> "RewardRange | None":
        return KNOWN.get(task.env_id.rpartition(":")[2])

    @staticmethod
    def observed(rewards: ArrayLike) -> "RewardRange":
        """Return the range of observed rewards, which is a scale for errors, not a limit."""
        low, high = float(np.min(rewards)), float(np.max(rewards))
        if low == high:  # the scale of a constant reward is its absolute value
            low, high = min(low, 0.0), max(high, 0.0) or 1.0
        return RewardRange(
            low, high, "the observed extremes; more extreme rewards are possible", proven=False
        )

    @property
    def width(self) -> float:
        return self.high - self.low

    def of_values(self, gamma: float) -> Limits:
        """Return the limits of discounted sums of rewards of any length."""
        return min(self.low, 0.0) / (1 - gamma), max(self.high, 0.0) / (1 - gamma)

    def of_returns(self, horizon: int) -> Limits:
        """Return the limits of the return of an episode of 1 to `horizon` steps."""
        return (
            self.low * (horizon if self.low < 0 else 1),
            self.high * (horizon if self.high > 0 else 1),
        )

    def farthest_outside(self, rewards: ArrayLike) -> float | None:
        """Return the reward farthest outside the range; None if all are within it up to
        rounding."""
        x = np.asarray(rewards, np.float64)
        excess = np.maximum(self.low - x, x - self.high)
        rounding = ROUNDING * max(abs(self.low), abs(self.high))
        return float(x[excess.argmax()]) if excess.max() > rounding else None

    def __str__(self) -> str:
        known = "" if self.proven else "assumed: "
        return f"rewards in [{self.low:g}, {self.high:g}] ({known}{self.because})"


KNOWN = {env_id: RewardRange(**about) for env_id, about in TEXTS["reward_ranges"].items()}
