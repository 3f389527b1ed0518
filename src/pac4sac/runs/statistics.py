"""The statistics of reports: what each is and why is told in docs/statistics.md.

Several tasks come as strata, one array of runs for each; a bootstrap resamples the runs within each
stratum."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import stdtrit

Floats = NDArray[np.float64]
# what a critic does
OVERESTIMATES, UNDERESTIMATES, UNDECIDED = ("overestimates", "underestimates", "undecided")
CONFIDENCE = 0.95
EQUIVALENCE = 0.90  # confidence of the interval whose two ends are one-sided tests at 5 % each
RESAMPLES = 9999
BAND_RESAMPLES = 2000  # of each point of a curve
SEED = 20240721  # of every bootstrap: the same runs give the same interval


@dataclass(frozen=True)
class Summary:
    n: int
    mean: float
    sd: float | None  # with n − 1; None for a single run


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, which a single run does not have."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Difference(Estimate):
    """Of two means, by Welch: interval and p-value need a standard deviation of either side, one of
    them above zero."""

    p: float | None = None


def summarise(values: ArrayLike) -> Summary:
    x = np.asarray(values, dtype=np.float64)
    return Summary(len(x), float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else None)


def half_width(values: Floats, confidence: float = CONFIDENCE) -> Floats:
    """Of Student's interval of the mean over the first axis, which has two values or more."""
    n = len(values)
    return np.asarray(stdtrit(n - 1, (1 + confidence) / 2) * values.std(0, ddof=1) / np.sqrt(n))


def mean_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """A mean with Student's interval."""
    x = np.asarray(values, dtype=np.float64)
    mean, half = float(x.mean()), float(half_width(x, confidence)) if len(x) > 1 else None
    return Estimate(mean) if half is None else Estimate(mean, mean - half, mean + half)


def side_of_zero(estimate: Estimate | None, above: str, below: str, neither: str) -> str:
    """The word for the side on which the whole interval lies."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return neither
    return above if estimate.low > 0 else below if estimate.high < 0 else neither


def bias_verdict(bias: Estimate) -> str:
    """On a critic whose values lie that far above what follows."""
    return side_of_zero(bias, OVERESTIMATES, UNDERESTIMATES, UNDECIDED)


def interquartile_mean(strata: Sequence[ArrayLike], seed: int = SEED) -> Estimate:
    """Mean of the middle half of the runs of each task, then over tasks, with a stratified
    percentile-bootstrap interval: a task with more seeds has no more weight."""

    def middle_half(*strata: Floats, axis: int) -> Floats:
        return np.asarray(np.mean([stats.trim_mean(x, 0.25, axis=axis) for x in strata], axis=0))

    return _bootstrap(strata, middle_half, seed)


def median(values: ArrayLike, seed: int = SEED, confidence: float = CONFIDENCE) -> Estimate:
    return _bootstrap([values], lambda x, axis: np.median(x, axis=axis), seed, confidence)


def probability_of_improvement(
    ours: Sequence[ArrayLike],
    theirs: Sequence[ArrayLike],
    *,
    lower_is_better: bool,
    seed: int = SEED,
) -> Estimate:
    """That a run of ours beats one of theirs on the same task, ties counted half, averaged over
    tasks."""
    sign = -1.0 if lower_is_better else 1.0

    def probability(*runs: Floats, axis: int) -> Floats:
        pairs = zip(runs[: len(ours)], runs[len(ours) :], strict=True)
        ahead = [sign * (a[..., :, None] - b[..., None, :]) for a, b in pairs]
        return np.asarray(
            np.mean([((x > 0) + 0.5 * (x == 0)).mean((-2, -1)) for x in ahead], axis=0)
        )

    return _bootstrap([*ours, *theirs], probability, seed)


def performance_profile(
    strata: Sequence[ArrayLike], thresholds: Floats, *, lower_is_better: bool
) -> tuple[Floats, Floats, Floats]:
    """The fraction of runs better than each threshold, averaged over tasks, with the ends of its
    interval."""
    sign = -1.0 if lower_is_better else 1.0
    return bootstrap_band([sign * (np.asarray(runs)[:, None] - thresholds) > 0 for runs in strata])


def bootstrap_band(strata: Sequence[ArrayLike], seed: int = SEED) -> tuple[Floats, Floats, Floats]:
    """Of curves of shape [runs, points] for each task: their mean, over runs and then over tasks,
    with the ends of its percentile-bootstrap interval at each point, which lie within what the runs
    reached."""
    generator, curves = (
        np.random.default_rng(seed),
        [np.asarray(x, dtype=np.float64) for x in strata],
    )
    draws = [
        generator.multinomial(len(x), np.full(len(x), 1 / len(x)), size=BAND_RESAMPLES)
        for x in curves
    ]
    resampled = np.mean(
        [counts @ x / len(x) for counts, x in zip(draws, curves, strict=True)], axis=0
    )
    low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return np.mean([x.mean(0) for x in curves], axis=0), low, high


def welch(ours: Summary, theirs: Summary, confidence: float = CONFIDENCE) -> Difference:
    """Ours minus theirs, from means and standard deviations, so that published numbers can stand on
    one side."""
    return welch_over_strata([(ours, theirs)], confidence)


def welch_over_strata(
    pairs: Sequence[tuple[Summary, Summary]], confidence: float = CONFIDENCE
) -> Difference:
    """The mean over strata, such as tasks, of ours minus theirs; what strata differ by among
    themselves is no noise."""
    difference = float(np.mean([ours.mean - theirs.mean for ours, theirs in pairs]))
    sides = [(side.sd, side.n) for pair in pairs for side in pair]
    spreads = [(sd**2 / n / len(pairs) ** 2, n - 1) for sd, n in sides if sd is not None]
    variance = sum(part for part, _ in spreads)
    if len(spreads) < len(sides) or variance == 0:
        return Difference(difference)
    freedom = variance**2 / sum(part**2 / freedom_of_part for part, freedom_of_part in spreads)
    half_width = float(stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(variance))
    p = float(2 * stats.t.sf(abs(difference) / np.sqrt(variance), freedom))
    return Difference(difference, difference - half_width, difference + half_width, p)


def is_within(difference: Estimate, margin: float) -> bool:
    """Of a 90 % interval: two one-sided tests at 5 % each (TOST), that the difference is more than
    −margin, and less than margin."""
    low, high = difference.low, difference.high
    return low is not None and high is not None and -margin < low and high < margin


def mann_whitney(ours: ArrayLike, theirs: ArrayLike) -> float | None:
    """p-value of the ranks, on which a run that got stuck has no more weight than any other that
    lost."""
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if min(len(a), len(b)) < 2 or np.ptp(np.concatenate([a, b])) == 0:
        return None
    return float(stats.mannwhitneyu(a, b).pvalue)


def fisher(ours: tuple[int, int], theirs: tuple[int, int]) -> float:
    """p-value of two numbers of solved runs, each with the number of all."""
    return float(stats.fisher_exact([[solved, n - solved] for solved, n in (ours, theirs)]).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted for all the comparisons of one table; what has no p-value stays without, and is not
    counted."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    raised = (min(1.0, (len(known) - rank) * p) for rank, (p, _) in enumerate(known))
    adjusted = dict(
        zip((place for _, place in known), itertools.accumulate(raised, max), strict=True)
    )
    return [adjusted.get(place) for place in range(len(p_values))]


def fraction(count: int, n: int) -> Estimate:
    """A fraction of runs with Wilson's interval, which behaves at 0 and 1 too."""
    interval = stats.binomtest(count, n).proportion_ci(CONFIDENCE, method="wilson")
    return Estimate(count / n, float(interval.low), float(interval.high))


def solved_fraction_curve(
    solved_at: Sequence[int | None], until: int
) -> tuple[Floats, list[Estimate]]:
    """The fraction of runs solved by each episode from 0 to `until`; None: never solved."""
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
    arrays = [np.asarray(sample, dtype=np.float64) for sample in samples]
    value = float(statistic(*arrays, axis=-1))
    if min(map(len, arrays)) < 2:
        return Estimate(value)
    how = {
        "confidence_level": confidence,
        "n_resamples": RESAMPLES,
        "method": "percentile",
        "batch": 2000,
    }
    generator = np.random.default_rng(seed)
    interval = stats.bootstrap(
        arrays, statistic, axis=-1, vectorized=True, random_state=generator, **how
    )
    low, high = interval.confidence_interval
    return Estimate(value, float(low), float(high))
