"""The errors of a critic as measured on fresh episodes: what bounds are held against, and on which scale."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from pac4sac.certificates.evidence import Evidence, bounded_error
from pac4sac.certificates.ranges import RewardRange
from pac4sac.runs.statistics import Estimate, mean_interval

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scales:
    """On what errors are judged; fixed before fresh episodes are played."""

    rewards: RewardRange
    gamma: float

    @property
    def value_width(self) -> float:
        low, high = self.rewards.of_values(self.gamma)
        return high - low

    @property
    def largest_square(self) -> float:
        return self.value_width**2

    @property
    def epsilon(self) -> float:
        """Of the bounded Bellman loss: an error as wide as the rewards' range costs 1 − 1/e."""
        return self.rewards.width

    @property
    def epsilon_value(self) -> float:
        """Of the bounded value loss: a tenth of the width of possible values."""
        return self.value_width / 10


@dataclass(frozen=True)
class Claims:
    """The critic's claims on fresh episodes and what came of them, [E, T]."""

    m: Floats
    v: Floats
    g: Floats
    judged: NDArray[np.bool_]

    def episode_means(self, values: Floats) -> Floats:
        some = self.judged.any(1)
        return np.asarray(np.where(self.judged, values, 0.0).sum(1)[some] / self.judged.sum(1)[some])

    @property
    def squared(self) -> Floats:
        return (self.m - self.g) ** 2 + self.v

    @property
    def absolute(self) -> Floats:
        return np.abs(self.m - self.g)

    def limited(self, largest: float) -> "Claims":
        """Of the same errors, but squares beyond the largest count as that."""
        v = np.minimum(self.v, largest)
        reach = np.sqrt(largest - v)
        return replace(self, m=self.g + np.clip(self.m - self.g, -reach, reach), v=v)

    def bounded(self, epsilon: float) -> Floats:
        return bounded_error(self.m, self.v, np.nan_to_num(self.g), epsilon)


@dataclass(frozen=True)
class Measured:
    """Means over fresh episodes with their intervals: what the bounds are held against. Squared and absolute errors
    beyond the largest that possible values allow count as that, here and in the bounds."""

    bellman: Estimate
    value: Estimate  # from below without, from above with the chance in a single return
    absolute: Estimate  # E |m_p − G|
    bounded_bellman: Estimate
    bounded_value: Estimate
    beyond: tuple[str, ...]  # the quantities of which some errors were larger


def measure(fresh: Evidence, claims: Claims, scales: Scales, delta: float) -> Measured:
    def over_episodes(values: Floats) -> Estimate:
        return mean_interval(values, 1 - delta)

    return Measured(
        bellman=over_episodes(fresh.episode_means(np.minimum(fresh.squared, scales.largest_square))),
        value=value_error(claims.limited(scales.largest_square), delta),
        absolute=over_episodes(claims.episode_means(np.minimum(claims.absolute, scales.value_width))),
        bounded_bellman=over_episodes(fresh.episode_means(fresh.bounded(scales.epsilon))),
        bounded_value=over_episodes(claims.episode_means(claims.bounded(scales.epsilon_value))),
        beyond=beyond(fresh, claims, scales),
    )


def beyond(fresh: Evidence, claims: Claims, scales: Scales) -> tuple[str, ...]:
    """The quantities of which some errors are larger than possible values allow."""
    largest = {
        "squared Bellman error": (fresh.squared, scales.largest_square),
        "value error": (claims.squared[claims.judged], scales.largest_square),
        "absolute value error": (claims.absolute[claims.judged], scales.value_width),
    }
    return tuple(quantity for quantity, (errors, limit) in largest.items() if errors.max(initial=0.0) > limit)


def value_error(claims: Claims, delta: float) -> Estimate:
    """E‖Q_π − Q‖², which a single return G per step only brackets. Above: the mean of (Q − G)², which adds the chance
    in G. Below: the square of the mean error at each time of the episode, from products of different episodes, so
    that chance cancels; by Jensen's inequality the error itself is at least that."""
    above = mean_interval(claims.episode_means(claims.squared), 1 - delta)
    weight = np.where(claims.judged, 1 / claims.judged.sum(1, keepdims=True).clip(1), 0.0)
    error = np.where(claims.judged, claims.m - claims.g, 0.0)
    everyone = np.flatnonzero(claims.judged.any(1))
    if len(everyone) < 3:
        return Estimate(above.value, None, above.high)

    def below(chosen: NDArray[np.int64]) -> float:
        w, x = weight[chosen], error[chosen]
        pairs = w.sum(0) ** 2 - (w**2).sum(0)
        product = (w * x).sum(0) ** 2 - ((w * x) ** 2).sum(0)
        at_time = np.divide(product, pairs, out=np.zeros_like(pairs), where=pairs > 1e-12)
        importance = np.where(pairs > 1e-12, w.sum(0), 0.0)
        return float((at_time * importance).sum() / importance.sum()) if importance.sum() else 0.0

    without = np.array([below(np.delete(everyone, k)) for k in range(len(everyone))])  # the jackknife
    n = len(everyone)
    deviation = math.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    spread = float(claims.episode_means(claims.v).mean())
    low = below(everyone) + spread - float(stdtrit(n - 1, 1 - delta / 2)) * deviation
    return Estimate(above.value, max(low, spread, 0.0), above.high)
