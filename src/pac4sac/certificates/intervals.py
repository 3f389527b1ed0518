"""An interval around a critic's value that can be relied on: the deviation that it offers,
multiplied by what it takes.

How wide it must be is found in some episodes and tried in others, so that whatever the deviation is
worth, the share of returns that it covers is an honest one. How wide it then is tells what the
deviation is worth."""

from dataclasses import dataclass

import numpy as np

from pac4sac.certificates.returns import betting_lower, betting_upper
from pac4sac.runs.statistics import Estimate
from pac4sac.training.value_error import LEAST_DEVIATION, Floats, ValueErrors

# of returns would lie within two deviations, were the errors Gaussian with that deviation
NOMINAL = 0.954


@dataclass(frozen=True)
class WidenedInterval:
    """m_p ± a multiple of the deviation, beside one that is equally wide everywhere."""

    deviations: (
        float  # to each side: what covers NOMINAL of the returns in the episodes that measure
    )
    covered: Estimate  # of the returns in those that certify
    half_width: float  # its mean there
    constant: float  # half-width that covers as much without knowing the deviation
    constant_covered: Estimate


def widen(measuring: ValueErrors, certifying: ValueErrors, delta: float) -> WidenedInterval | None:
    """None for a critic that offers no deviation."""
    if measuring.uncertainty() is None or certifying.uncertainty() is None:
        return None
    deviations, constant = (
        quantile(measuring, _deviation(measuring)),
        quantile(measuring, np.ones_like(measuring.m)),
    )
    scaled = deviations * _deviation(certifying)
    return WidenedInterval(
        deviations,
        coverage(certifying, scaled, delta),
        float(certifying.episode_means(scaled).mean()),
        constant,
        coverage(certifying, np.full_like(scaled, constant), delta),
    )


def quantile(errors: ValueErrors, unit: Floats) -> float:
    """The least multiple of `unit` [E, T] that covers NOMINAL of the returns, in which all episodes
    weigh the same."""
    weight = np.where(errors.judged, 1 / errors.judged.sum(1, keepdims=True).clip(1), 0.0)[
        errors.judged
    ]
    sizes = np.abs(errors.error[errors.judged]) / unit[errors.judged]
    order = np.argsort(sizes)
    share = np.cumsum(weight[order]) / weight.sum()
    return float(sizes[order][np.searchsorted(share, NOMINAL * (1 - 1e-12))])


def coverage(errors: ValueErrors, half_width: Floats, delta: float) -> Estimate:
    """The share of returns within, with an interval over episodes."""
    shares = errors.episode_means((np.abs(errors.error) <= half_width).astype(np.float64))
    return Estimate(
        float(shares.mean()), betting_lower(shares, delta / 2), betting_upper(shares, delta / 2)
    )


def _deviation(errors: ValueErrors) -> Floats:
    return np.maximum(errors.deviation, LEAST_DEVIATION)
