"""Numbers of a certificate as text: about three digits, with intervals in parentheses."""

import math
from collections.abc import Callable

from pac4sac.runs.statistics import Estimate


def number(value: float) -> str:
    """Return a number with about three digits."""
    size = abs(value)
    if math.isnan(value):
        return "?"
    if math.isinf(value):
        return "∞" if value > 0 else "–∞"
    if size >= 1e6:
        return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.0e}" if 0 < size < 0.001 else f"{value:.3g}"


def percent_text(share: float) -> str:
    return f"{100 * share:.0f}%"


def estimate_text(
    estimate: Estimate, write: Callable[[float], str] = number, *, signed: bool = False
) -> str:
    """Return an estimate, with its confidence interval if there is one."""
    value = write(estimate.value)
    if signed and estimate.value > 0:
        value = f"+{value}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} ({write(estimate.low)} to {write(estimate.high)})"
