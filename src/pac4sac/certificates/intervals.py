"""Calibrated intervals around a critic's value, as wide as its errors in fresh episodes require.

The width is chosen on some episodes and tested on others, so its coverage is estimated without
bias. One interval has the same width everywhere; the other is a multiple of the critic's standard
deviation.
"""

from dataclasses import dataclass, replace

import numpy as np

from pac4sac.certificates.returns import betting_lower, betting_upper
from pac4sac.runs.statistics import Estimate
from pac4sac.training.value_error import LEAST_DEVIATION, Floats, ValueErrors

# coverage of ± 2 std for Gaussian errors
NOMINAL = 0.954


@dataclass(frozen=True)
class WidenedInterval:
    """Hold value ± a width that covers `NOMINAL` of the returns in the measuring episodes."""

    constant: float  # half-width of the constant interval
    constant_covered: Estimate  # its coverage in the certifying episodes
    # The same with a multiple of the critic's standard deviation; None for a critic without one.
    deviations: float | None = None
    covered: Estimate | None = None
    half_width: float | None = None  # its mean


def widen(measuring: ValueErrors, certifying: ValueErrors, delta: float) -> WidenedInterval | None:
    """Return the calibrated interval; None if no step could be judged."""
    if not (measuring.judged.any() and certifying.judged.any()):
        return None
    constant = quantile(measuring, np.ones_like(measuring.m))
    everywhere = np.full_like(certifying.m, constant)
    found = WidenedInterval(constant, coverage(certifying, everywhere, delta))
    if measuring.uncertainty() is None or certifying.uncertainty() is None:
        return found
    deviations = quantile(measuring, _deviation(measuring))
    scaled = deviations * _deviation(certifying)
    return replace(
        found,
        deviations=deviations,
        covered=coverage(certifying, scaled, delta),
        half_width=float(certifying.episode_means(scaled).mean()),
    )


def quantile(errors: ValueErrors, unit: Floats) -> float:
    """Return the smallest multiple of `unit` [E, T] that covers `NOMINAL` of the returns.

    All episodes have the same weight.
    """
    weight = np.where(errors.judged, 1 / errors.judged.sum(1, keepdims=True).clip(1), 0.0)[
        errors.judged
    ]
    sizes = np.abs(errors.error[errors.judged]) / unit[errors.judged]
    order = np.argsort(sizes)
    share = np.cumsum(weight[order]) / weight.sum()
    return float(sizes[order][np.searchsorted(share, NOMINAL * (1 - 1e-12))])


def coverage(errors: ValueErrors, half_width: Floats, delta: float) -> Estimate:
    """Return the coverage of a half-width, with an interval over episodes."""
    shares = errors.episode_means((np.abs(errors.error) <= half_width).astype(np.float64))
    return Estimate(
        float(shares.mean()), betting_lower(shares, delta / 2), betting_upper(shares, delta / 2)
    )


def _deviation(errors: ValueErrors) -> Floats:
    return np.maximum(errors.deviation, LEAST_DEVIATION)
