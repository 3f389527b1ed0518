"""Draw returns as a line of bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"


def sparkline(
    returns: Sequence[float], width: int, low: float, high: float, limit: float | None = None
) -> Text:
    """Return a bar for each episode, or for the mean of several if more are given than fit. Bars
    above the solve threshold `limit` are green."""
    curve = Text()
    if width < 1 or not returns:
        return curve
    values = _means_of_parts(np.asarray(returns, dtype=np.float64), width)
    heights = (values - low) / max(high - low, 1e-12) * len(BARS)
    heights = np.clip(heights, 0, len(BARS) - 1).astype(int)
    bars = [BARS[height] for height in heights]
    threshold = np.inf if limit is None else limit
    colours = ["green" if value > threshold else "cyan" for value in values]
    # Few long spans are faster to draw than a span for each bar.
    for colour, span in groupby(zip(colours, bars, strict=True), key=itemgetter(0)):
        curve.append("".join(bar for _, bar in span), colour)
    return curve


def _means_of_parts(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Split values into `count` parts of about equal length and return the mean of each part."""
    if len(values) <= count:
        return values
    starts = np.linspace(0, len(values), count, endpoint=False).astype(int)
    return np.add.reduceat(values, starts) / np.diff(starts, append=len(values))


@dataclass(frozen=True)
class Sparkline:
    """Fill the width of a table cell with a sparkline."""

    returns: Sequence[float]
    low: float
    high: float
    limit: float | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield sparkline(self.returns, options.max_width, self.low, self.high, self.limit)
