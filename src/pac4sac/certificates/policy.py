"""A certificate for the policy: from fresh episodes, what its expected return exceeds with high confidence.

Episodes of a fixed policy are independent, and returns within known limits are all that is asked of them: no normal
distribution, no large number. Samples here are scaled to [0, 1].
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pac4sac.base.errors import UserError
from pac4sac.runs.statistics import Estimate, mean_interval

Floats = NDArray[np.float64]
BETS = (np.arange(20) + 0.5) / 20  # shares of what can be lost at once, from careful to bold
BISECTIONS = 60
NEGLIGIBLE = 1e-3  # relative to what is known without data: a bound that near to it is vacuous


@dataclass(frozen=True)
class ReturnCertificate:
    policy: str
    episodes: int
    mean: Estimate  # with Student's interval, which trusts the returns to be normal
    delta: float
    range: tuple[float, float] | None
    empirical_bernstein: float | None  # lower bounds on the expected return, each with confidence 1 − δ
    betting: float | None
    remark: str  # on what they rest, or why there are none

    def vacuous(self, bound: float) -> bool:
        """No more than the least possible return."""
        return self.range is not None and bound <= self.range[0] + NEGLIGIBLE * abs(self.range[0])


def certify_returns(
    returns: Sequence[float] | Floats,
    limits: tuple[float, float] | None,
    delta: float = 0.05,
    *,
    policy: str = "policy",
    because: str = "given",
) -> ReturnCertificate:
    """Lower bounds on the expected return. Only the lower limit is an assumption: returns above the upper one are cut
    to it, which can but lower the mean."""
    x = np.asarray(returns, np.float64)
    if x.ndim != 1 or not len(x) or not np.isfinite(x).all():
        raise UserError("A certificate needs the finite returns of at least one episode.")
    check_delta(delta)
    mean = mean_interval(x, 1 - delta)

    def without(why: str) -> ReturnCertificate:
        return ReturnCertificate(policy, len(x), mean, delta, limits, None, None, why)

    if limits is None:
        return without("no bound: nothing is known about the least return; give one with --return-range")
    low, high = limits
    if not low < high:
        raise UserError(f"A range of returns needs its lower limit first, not {low:g} and {high:g}.")
    if x.min() < low:
        return without(f"no bound: a return of {x.min():g} refutes the assumed lower limit {low:g}")
    unit = np.minimum((x - low) / (high - low), 1.0)
    bernstein, betting = empirical_bernstein_lower(unit, delta), betting_lower(unit, delta)
    return ReturnCertificate(
        policy, len(x), mean, delta, limits, low + (high - low) * bernstein, low + (high - low) * betting, because
    )


def empirical_bernstein_lower(unit: ArrayLike, delta: float) -> float:
    """Maurer and Pontil (2009), theorem 4: mean − √(2 V ln(2/δ)/n) − 7 ln(2/δ)/(3(n − 1)), V the sample variance."""
    x = _unit(unit)
    check_delta(delta)
    if len(x) < 2:
        return 0.0
    log = np.log(2 / delta)
    bound = x.mean() - np.sqrt(2 * x.var(ddof=1) * log / len(x)) - 7 * log / (3 * (len(x) - 1))
    return float(max(bound, 0.0))


def betting_lower(unit: ArrayLike, delta: float) -> float:
    """The least mean on which a gambler has not won 1/δ times the stake (Waudby-Smith and Ramdas 2023).

    Against a mean m the gambler bets a share f that the next sample lies above it: the capital Π(1 + f (x/m − 1)) has
    expectation 1 if m is the mean, so that by Markov's inequality it reaches 1/δ with probability δ at most. The stake
    is spread evenly over `BETS`. Capital falls as m grows, hence bisection.
    """
    x = _unit(unit)
    check_delta(delta)

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


def betting_upper(unit: ArrayLike, delta: float) -> float:
    """The same for the other side: what the expectation lies below."""
    return 1.0 - betting_lower(1.0 - _unit(unit), delta)


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise UserError(f"delta is {delta:g}: it must be between 0 and 1, both excluded.")


def _unit(values: ArrayLike) -> Floats:
    x = np.asarray(values, np.float64)
    if not len(x) or x.min() < 0 or x.max() > 1:
        raise UserError("A bound for samples in [0, 1] needs at least one, and all of them within.")
    return x
