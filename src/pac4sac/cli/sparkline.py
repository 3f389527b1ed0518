"""Draw returns as a line of bars."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"


def sparkline(
    returns: Sequence[float], width: int, low: float, high: float, limit: float | None = None
) -> Text:
    """Return a bar for each episode, or for means of several episodes if the bars do not fit. Bars
    above the solve threshold `limit` are green."""
    if width < 1 or not returns:
        return Text()
    values = _means_of_parts(np.asarray(returns, dtype=np.float64), width)
    heights = (values - low) / max(high - low, 1e-12) * len(BARS)
    places = np.clip(heights, 0, len(BARS) - 1).astype(int)
    curve = Text("".join(BARS[place] for place in places), "cyan")
    if limit is not None:
        for start, end in _spans(values > limit):
            curve.stylize("green", start, end)
    return curve


def _spans(wanted: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the start and end of each longest stretch of true values."""
    edges = np.flatnonzero(np.diff(wanted, prepend=False, append=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _means_of_parts(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the means of `count` parts of about equal length."""
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
