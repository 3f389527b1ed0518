"""The statistics of reports, which docs/statistics.md explains.

Several tasks are given as strata, one array of runs for each. A bootstrap resamples the runs within
each stratum.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts on first use, because scipy.stats takes a second to import
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
# verdicts on the bias of a critic
OVERESTIMATES, UNDERESTIMATES, UNDECIDED = ("overestimates", "underestimates", "undecided")
CONFIDENCE = 0.95
EQUIVALENCE = 0.90  # confidence of the interval that gives two one-sided tests at 5%
POWER, MOST_SEEDS = 0.8, 1000  # of `seeds_needed`
RESAMPLES = 9999
BAND_RESAMPLES = 2000  # resamples for each point of a curve
SEED = 20240721  # seed of every bootstrap, so the same runs give the same interval


@dataclass(frozen=True)
class Summary:
    """Hold the number, mean and standard deviation of values."""

    n: int
    mean: float
    sd: float | None  # with n − 1; None for a single run


@dataclass(frozen=True)
class Estimate:
    """Hold a value with its 95% confidence interval; a single run has no interval."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Difference(Estimate):
    """Hold a difference of two means with Welch's interval and p-value.

    Interval and p-value require a standard deviation on both sides, at least one of them above
    zero.
    """

    p: float | None = None


def summarise(values: ArrayLike) -> Summary:
    """Return number, mean and standard deviation of values."""
    x = np.asarray(values, dtype=np.float64)
    return Summary(len(x), float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else None)


def half_width(values: Floats, confidence: float = CONFIDENCE) -> Floats:
    """Return half the width of Student's interval of the mean over the first axis.

    The axis has at least two values.
    """
    n = len(values)
    return np.asarray(
        scipy.special.stdtrit(n - 1, (1 + confidence) / 2) * values.std(0, ddof=1) / np.sqrt(n)
    )


def mean_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """Return a mean with Student's interval."""
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean())
    if len(x) < 2:
        return Estimate(mean)
    half = float(half_width(x, confidence))
    return Estimate(mean, mean - half, mean + half)


def side_of_zero(estimate: Estimate | None, above: str, below: str, neither: str) -> str:
    """Return `above` or `below` if the whole interval is on that side of zero, else `neither`."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return neither
    if estimate.low > 0:
        return above
    return below if estimate.high < 0 else neither


def bias_verdict(bias: Estimate) -> str:
    """Return the verdict on a critic, given the difference between values and observed returns."""
    return side_of_zero(bias, OVERESTIMATES, UNDERESTIMATES, UNDECIDED)


def interquartile_mean(strata: Sequence[ArrayLike], seed: int = SEED) -> Estimate:
    """Return the interquartile mean of each task's runs, averaged over tasks.

    The interval is a stratified percentile bootstrap. All tasks have the same weight, regardless of
    their number of seeds.
    """

    def middle_half(*strata: Floats, axis: int) -> Floats:
        """Return the mean of the middle half of each stratum, averaged over strata."""
        return np.asarray(
            np.mean([scipy.stats.trim_mean(x, 0.25, axis=axis) for x in strata], axis=0)
        )

    return _bootstrap(strata, middle_half, seed)


def median(values: ArrayLike, seed: int = SEED, confidence: float = CONFIDENCE) -> Estimate:
    """Return a median with its bootstrap interval."""
    return _bootstrap([values], lambda x, axis: np.median(x, axis=axis), seed, confidence)


def probability_of_improvement(
    ours: Sequence[ArrayLike],
    theirs: Sequence[ArrayLike],
    *,
    lower_is_better: bool,
    seed: int = SEED,
) -> Estimate:
    """Return the probability that a run of ours beats one of theirs, averaged over tasks.

    A tie counts half. The strata of both sides are the same tasks in the same order.
    """
    sign = -1.0 if lower_is_better else 1.0

    def probability(*runs: Floats, axis: int) -> Floats:
        """Return the probability, given the strata of ours followed by those of theirs."""
        by_task = []
        for a, b in zip(runs[: len(ours)], runs[len(ours) :], strict=True):
            ahead = sign * (a[..., :, None] - b[..., None, :])
            by_task.append(((ahead > 0) + 0.5 * (ahead == 0)).mean((-2, -1)))
        return np.asarray(np.mean(by_task, axis=0))

    return _bootstrap([*ours, *theirs], probability, seed)


def performance_profile(
    strata: Sequence[ArrayLike], thresholds: Floats, *, lower_is_better: bool
) -> tuple[Floats, Floats, Floats]:
    """Return the fraction of runs better than each threshold, and both ends of its interval.

    Fractions are averaged over tasks.
    """
    sign = -1.0 if lower_is_better else 1.0
    return bootstrap_band([sign * (np.asarray(runs)[:, None] - thresholds) > 0 for runs in strata])


def bootstrap_band(strata: Sequence[ArrayLike], seed: int = SEED) -> tuple[Floats, Floats, Floats]:
    """Return the mean of curves over runs and then over tasks, and both ends of its interval.

    The interval is a percentile bootstrap at each point, so it stays within the range of the runs.

    Args:
        strata: Curves of each task, of shape [runs, points].
        seed: Seed of the bootstrap.
    """
    generator = np.random.default_rng(seed)
    means, resampled = [], []
    for stratum in strata:
        curves = np.asarray(stratum, dtype=np.float64)
        n = len(curves)
        counts = generator.multinomial(n, np.full(n, 1 / n), size=BAND_RESAMPLES)
        means.append(curves.mean(0))
        resampled.append(counts @ curves / n)
    ends = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(np.mean(resampled, axis=0), ends, axis=0)
    return np.mean(means, axis=0), low, high


def welch(ours: Summary, theirs: Summary, confidence: float = CONFIDENCE) -> Difference:
    """Return ours minus theirs with Welch's interval, from means and standard deviations."""
    return welch_over_strata([(ours, theirs)], confidence)


def welch_over_strata(
    pairs: Sequence[tuple[Summary, Summary]], confidence: float = CONFIDENCE
) -> Difference:
    """Return the mean over strata, such as tasks, of ours minus theirs.

    Differences between strata do not widen the interval.
    """
    difference = float(np.mean([ours.mean - theirs.mean for ours, theirs in pairs]))
    sides = [side for pair in pairs for side in pair]
    variances = [side.sd**2 / side.n / len(pairs) ** 2 for side in sides if side.sd is not None]
    variance = sum(variances)
    if len(variances) < len(sides) or variance == 0:
        return Difference(difference)
    # Degrees of freedom by Welch and Satterthwaite.
    parts = zip(variances, sides, strict=True)
    freedom = variance**2 / sum(part**2 / (side.n - 1) for part, side in parts)
    half_width = float(scipy.special.stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(variance))
    p = float(2 * scipy.stats.t.sf(abs(difference) / np.sqrt(variance), freedom))
    return Difference(difference, difference - half_width, difference + half_width, p)


def seeds_needed(
    ours: Summary, theirs: Summary, level: float = 1 - CONFIDENCE, power: float = POWER
) -> int | None:
    """Return the number of seeds per side with which a t-test detects a difference of this size.

    Args:
        ours: Summary of the observed values.
        theirs: Summary of the other side's values.
        level: Level of the test, two-sided.
        power: Probability that the test detects the difference.

    Returns:
        The number, at most `MOST_SEEDS`; None if a standard deviation is unknown or both are 0.
    """
    if ours.sd is None or theirs.sd is None or ours.sd == theirs.sd == 0:
        return None
    spread = np.sqrt((ours.sd**2 + theirs.sd**2) / 2)
    n = np.arange(2, MOST_SEEDS + 1)
    shift = abs(ours.mean - theirs.mean) / spread * np.sqrt(n / 2)
    limit = scipy.special.stdtrit(2 * n - 2, 1 - level / 2)
    shown = scipy.stats.nct.sf(limit, 2 * n - 2, shift) >= power
    return int(n[np.argmax(shown)]) if shown.any() else MOST_SEEDS


def is_within(difference: Estimate, margin: float) -> bool:
    """Return whether a 90% interval is within ±margin.

    These are two one-sided tests at 5% each (TOST).
    """
    if difference.low is None or difference.high is None:
        return False
    return -margin < difference.low and difference.high < margin


def mann_whitney(ours: ArrayLike, theirs: ArrayLike) -> float | None:
    """Return the p-value of the Mann–Whitney test, or None if all values are equal or too few.

    The test compares ranks, so an extremely bad run has no more weight than any other bad run.
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if min(len(a), len(b)) < 2 or np.ptp(np.concatenate([a, b])) == 0:
        return None
    return float(scipy.stats.mannwhitneyu(a, b).pvalue)


def fisher(ours: tuple[int, int], theirs: tuple[int, int]) -> float:
    """Return Fisher's p-value for two pairs (solved runs, all runs)."""
    table = [[solved, n - solved] for solved, n in (ours, theirs)]
    return float(scipy.stats.fisher_exact(table).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for all comparisons of one table (Holm).

    Comparisons without a p-value are not counted and keep None.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = largest
    return adjusted


def fraction(count: int, n: int) -> Estimate:
    """Return a fraction of runs with Wilson's interval, which is valid at 0 and 1 too."""
    interval = scipy.stats.binomtest(count, n).proportion_ci(CONFIDENCE, method="wilson")
    return Estimate(count / n, float(interval.low), float(interval.high))


def solved_fraction_curve(
    solved_at: Sequence[int | None], until: int
) -> tuple[Floats, list[Estimate]]:
    """Return the episodes from 0 to `until`, and the fraction of runs solved by each of them.

    None in `solved_at` means that a run was never solved.
    """
    first = np.array([np.inf if x is None else x for x in solved_at])
    episodes = np.arange(until + 1, dtype=np.float64)
    by_count = {count: fraction(count, len(first)) for count in range(len(first) + 1)}
    return episodes, [by_count[int((first <= episode).sum())] for episode in episodes]


def _bootstrap(
    samples: Sequence[ArrayLike],
    statistic: Callable[..., Floats],
    seed: int,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Return a statistic with its percentile-bootstrap interval if each sample has two values."""
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    value = float(statistic(*arrays, axis=-1))
    if min(map(len, arrays)) < 2:
        return Estimate(value)
    bootstrap = scipy.stats.bootstrap(
        arrays,
        statistic,
        axis=-1,
        vectorized=True,
        random_state=np.random.default_rng(seed),
        confidence_level=confidence,
        n_resamples=RESAMPLES,
        method="percentile",
        batch=2000,
    )
    low, high = bootstrap.confidence_interval
    return Estimate(value, float(low), float(high))
