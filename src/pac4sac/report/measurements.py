"""What runs measured at some steps of their training: the last rows for a table, and curves over the steps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from pac4sac.report.figures import AT_ONCE, finish_panel, styles
from pac4sac.report.learning_curves import FEWEST_FOR_INTERVAL, INK, short_count
from pac4sac.report.tables import Picture
from pac4sac.report.variants import Group
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.statistics import mean_interval
from pac4sac.runs.status import BROKEN_OFF

Row = Mapping[str, float]


@dataclass(frozen=True)
class Measurements:
    log: str  # its name, as a record has it
    numbers: tuple[str, ...]  # without which a row is not whole

    def of(self, run: RunRecord) -> list[Row]:
        """The rows of a run that are whole; one that diverged has some of no finite size."""
        return [row for row in getattr(run, self.log) if all(is_finite(row.get(name)) for name in self.numbers)]

    def measured(self, groups: Sequence[Group]) -> list[Group]:
        return [group for group in groups if any(self.of(run) for run in group.runs)]

    def at_the_end(self, group: Group) -> list[list[Row]]:
        """All rows of each run that is complete and was measured at its end; none while others are under way, since
        the first to be complete are those solved early."""
        if group.under_way:
            return []
        found = []
        for outcome in group.complete:
            run = outcome.run.record
            rows = self.of(run)
            if rows and (not len(run.steps) or rows[-1]["step"] >= run.steps[-1]):
                found.append(rows)
        return found

    def last_rows(self, group: Group) -> list[Row]:
        return [rows[-1] for rows in self.at_the_end(group)]

    def figure(self, groups: Sequence[Group], quantities: Mapping[str, str]) -> Figure:
        """A panel for each quantity, with the title of its axis, over the steps of training."""
        figure = Figure(figsize=(10.4, 4.2), layout="constrained")
        panels = figure.subplots(1, len(quantities), squeeze=False)[0]
        look = styles([group.label for group in groups])
        for group in groups:
            sound = [run for run in group.runs if run.status not in BROKEN_OFF]
            for panel, what in zip(panels, quantities, strict=True):
                self._draw(panel, what, group.label, sound or group.runs, *look[group.label])
        for panel, title in zip(panels, quantities.values(), strict=True):
            finish_panel(panel, "environment steps", title)
            panel.xaxis.set_major_formatter(FuncFormatter(short_count))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=3, fontsize=9, frameon=False, labelcolor=INK)
        return figure

    def _draw(self, panel: Any, what: str, label: str, runs: Sequence[RunRecord], colour: str, line: str) -> None:
        curves = [{row["step"]: row[what] for row in self.of(run)} for run in runs]
        curves = [curve for curve in curves if curve]
        for curve in curves if 1 < len(curves) < FEWEST_FOR_INTERVAL else []:
            panel.plot(list(curve), list(curve.values()), color=colour, linewidth=0.7, alpha=0.35)
        # Where one of the runs has no measurement, the mean would be of other runs.
        steps = sorted(set.intersection(*map(set, curves))) if curves else []
        means = [mean_interval([curve[step] for curve in curves]) for step in steps]
        if len(curves) >= FEWEST_FOR_INTERVAL:
            lows, highs = [m.low for m in means], [m.high for m in means]
            panel.fill_between(steps, lows, highs, color=colour, alpha=0.15, linewidth=0)
        seeds = f"{len(curves)} seed{'s' if len(curves) != 1 else ''}"
        panel.plot(steps, [m.value for m in means], line, color=colour, linewidth=2.2, label=f"{label} ({seeds})")


def pictures(
    name: str, caption: str, groups: Sequence[Group], draw: Callable[[Sequence[Group]], Figure]
) -> list[Picture]:
    """As many as it takes, with a few groups in each."""
    return [
        Picture(name if k == 0 else f"{name}-{k + 1}", caption, draw(groups[first : first + AT_ONCE]))
        for k, first in enumerate(range(0, len(groups), AT_ONCE))
    ]


def is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
