"""Bound the expected return of a policy from below, by fresh episodes and the range of the rewards.

Episodes of a fixed policy are independent. The bounds assume that and a lowest possible return,
and neither a normal distribution nor many episodes."""

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

Limits = tuple[float, float]  # the lower first
BETS = (np.arange(20) + 0.5) / 20  # shares of what can be lost at once, from careful to bold
BISECTIONS = 60
USEFUL = 0.1  # a bound is useful this near to the mean, as a part of mean − least possible return
MOST_EPISODES = 1_000_000  # that are worth naming
NEGLIGIBLE = 1e-3  # relative to what is known without data: a bound that near to it is vacuous
ROUNDING = 1e-6  # of float32, as rewards are stored


@dataclass(frozen=True)
class ReturnCertificate:
    policy: str
    episodes: int
    mean: Estimate  # with Student's interval, which trusts the returns to be normal
    delta: float
    range: Limits | None
    # lower bounds on the expected return, each with confidence 1 − δ
    empirical_bernstein: float | None
    betting: float | None
    remark: str  # on what they rest, or why there are none
    # a bound that is useful, and how many episodes like these raise the bound by betting to it
    useful: float | None = None
    enough_episodes: int | None = None

    def vacuous(self, bound: float) -> bool:
        """Return whether a bound is no more than the least possible return."""
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

    Only the lower limit is an assumption: returns above the upper one are cut to it, which can only
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
            f"A range of returns needs two finite limits, the lower first, not {low:g} and "
            f"{high:g}."
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

    It is mean − √(2 V ln(2/δ)/n) − 7 ln(2/δ)/(3(n − 1)), with the sample variance V.
    """
    x = np.asarray(unit, np.float64)
    if len(x) < 2:
        return 0.0
    log = np.log(2 / delta)
    bound = x.mean() - np.sqrt(2 * x.var(ddof=1) * log / len(x)) - 7 * log / (3 * (len(x) - 1))
    return float(max(bound, 0.0))


def betting_lower(unit: ArrayLike, delta: float) -> float:
    """Return the least mean at which betting has not won 1/δ times the stake (Waudby-Smith and
    Ramdas 2023).

    Against a mean m the gambler bets a share f that the next sample lies above it: the capital Π(1
    + f (x/m − 1)) has expectation 1 if m is the mean, so that by Markov's inequality it reaches 1/δ
    with probability δ at most. The stake is spread evenly over `BETS`. Capital falls as m grows,
    hence bisection."""
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
    """Return how many samples like these raise `betting_lower` to a target; None if none do.

    Each sample is taken to occur as often as here, so its capital grows at the same rate.
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
    """Return an upper bound on the expectation in the same way."""
    return 1.0 - betting_lower(1.0 - np.asarray(unit, np.float64), delta)


# --- between which numbers a task's rewards lie: what a bound for bounded losses or returns has to
# assume


@dataclass(frozen=True)
class RewardRange:
    low: float
    high: float
    because: str
    proven: bool  # by the task's definition; otherwise an assumption that data can only refute
    each_step: bool = True  # otherwise it is about the mean of an episode's rewards

    def __post_init__(self) -> None:
        if not -np.inf < self.low < self.high < np.inf:
            raise UserError(
                f"A range needs two finite numbers, the lower first, not {self.low:g} and "
                f"{self.high:g}."
            )

    @staticmethod
    def known(task: Task) -> "RewardRange | None":
        return KNOWN.get(task.env_id.rpartition(":")[2])

    @staticmethod
    def observed(rewards: ArrayLike) -> "RewardRange":
        """Return the range of the rewards that were seen: a scale to judge errors by, not a
        limit."""
        low, high = float(np.min(rewards)), float(np.max(rewards))
        if low == high:  # a constant reward is on the scale of its own size
            low, high = min(low, 0.0), max(high, 0.0) or 1.0
        return RewardRange(low, high, "the extremes seen so far; others may come", proven=False)

    @property
    def width(self) -> float:
        return self.high - self.low

    def of_values(self, gamma: float) -> Limits:
        """Return the limits of any discounted sum of rewards, however long."""
        return min(self.low, 0.0) / (1 - gamma), max(self.high, 0.0) / (1 - gamma)

    def of_returns(self, horizon: int) -> Limits:
        """Return the limits of the return of an episode of at least one and at most `horizon`
        steps."""
        return (
            self.low * (horizon if self.low < 0 else 1),
            self.high * (horizon if self.high > 0 else 1),
        )

    def farthest_outside(self, rewards: ArrayLike) -> float | None:
        """Return the reward farthest outside the range; None if all are within it, except for
        rounding."""
        x = np.asarray(rewards, np.float64)
        excess = np.maximum(self.low - x, x - self.high)
        rounding = ROUNDING * max(abs(self.low), abs(self.high))
        return float(x[excess.argmax()]) if excess.max() > rounding else None

    def __str__(self) -> str:
        known = "" if self.proven else "assumed: "
        return f"rewards in [{self.low:g}, {self.high:g}] ({known}{self.because})"


KNOWN = {env_id: RewardRange(**about) for env_id, about in TEXTS["reward_ranges"].items()}
