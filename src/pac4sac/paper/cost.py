"""The section on cost: every machine side by side with the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pac4sac.paper.numbers import COST, TEXTS
from pac4sac.report.tables import Cell, Column, Listing, Section, Table, data, with_interval, words
from pac4sac.runs.collection import FoundCost
from pac4sac.runs.statistics import Estimate, Summary, median, summarise

REFERENCE = "sac"
COMPARABLE = 1.25  # times the cost of SAC, at most
NORMAL_97_5 = 1.959964
TURNS = 2  # the version of cost.json since which the algorithms are timed in turns


@dataclass(frozen=True)
class Machine:
    cost: FoundCost

    @property
    def in_turns(self) -> bool:
        return int(self.cost.content.get("version", 1)) >= TURNS

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        return {str(row.get("label", row.get("algo"))): row for row in self.cost.content["rows"]}

    @cached_property
    def seconds(self) -> dict[str, list[float]]:
        """Per 1000 steps, round by round or repetition by repetition, by algorithm."""
        times = {label: row.get("seconds_per_1000_steps", []) for label, row in self.rows.items()}
        numbers = {label: [float(s) for s in row if isinstance(s, int | float)] for label, row in times.items()}
        return {label: row for label, row in numbers.items() if row}

    @cached_property
    def times(self) -> dict[str, Summary]:
        return {label: summarise(times) for label, times in self.seconds.items()}

    @property
    def device(self) -> str:
        return str(self.cost.content.get("device", "cpu"))

    @property
    def title(self) -> str:
        about = self.cost.content.get("machine", {})
        if self.device.startswith("cuda"):
            name = str(about.get("gpu") or self.device)
        else:
            name = f"CPU {about['processor']}" if about.get("processor") else "CPU"
            name += f", {about['cores']} cores" if about.get("cores") else ""
        return name if self.cost.study == "cost" else f"{name} (study {self.cost.study})"

    @property
    def about(self) -> str:
        content = self.cost.content
        versions = {name: content.get("versions", {}).get(name) for name in ("pac4sac", "torch")}
        how = {name: self._how(name) or None for name in ("backend", "threads")}
        known = {**content.get("machine", {}), **versions, **how}
        parts = [f"{name} {value}" for name, value in known.items() if value is not None]
        parts.append(f"{min(map(len, self.seconds.values()))} {'rounds' if self.in_turns else 'repetitions'}")
        parts += [str(content["date"])] if content.get("date") else []
        repeat = f"`pac4sac study run {self.cost.study} --device {self.device}`"
        note = "" if self.in_turns else f" {TEXTS['cost_one_after_another']}"
        return f"{self.title}: {', '.join(parts)}. Repeat with {repeat}.{note}"

    def _how(self, name: str) -> str:
        """Once where all algorithms agree."""
        known = {label: str(row[name]) for label, row in self.rows.items() if row.get(name) is not None}
        if len(set(known.values())) == 1:
            return next(iter(known.values()))
        return " and ".join(f"{value} ({label})" for label, value in known.items())

    def middle(self, label: str) -> float | None:
        if label not in self.seconds:
            return None
        return float(np.median(self.seconds[label])) if self.in_turns else self.times[label].mean

    def seconds_cell(self, label: str) -> Cell:
        if (middle := self.middle(label)) is None:
            return Cell()
        times, sd = self.seconds[label], self.times[label].sd
        spread = (
            f" ({min(times):.2f} to {max(times):.2f})" if self.in_turns else f" ± {sd:.2f}" if sd is not None else ""
        )
        return Cell(f"{middle:.2f}{spread}", middle)

    def relative(self, label: str) -> Estimate | None:
        """To SAC: in turns the median of the ratios within rounds, else the ratio of the means."""
        own, reference = self.seconds.get(label), self.seconds.get(REFERENCE)
        if own is None or reference is None or (self.in_turns and len(own) != len(reference)):
            return None
        if label == REFERENCE:
            return Estimate(1.0)
        if not self.in_turns:
            return ratio_of_means(self.times[label], self.times[REFERENCE])
        return median([mine / theirs for mine, theirs in zip(own, reference, strict=True)])


def ratio_of_means(own: Summary, reference: Summary) -> Estimate:
    """With the interval of a ratio of two means that have small errors."""
    ratio = own.mean / reference.mean
    if own.sd is None or reference.sd is None:
        return Estimate(ratio)
    error = ratio * np.sqrt(sum((s.sd / s.mean) ** 2 / s.n for s in (own, reference) if s.sd is not None))
    return Estimate(ratio, float(ratio - NORMAL_97_5 * error), float(ratio + NORMAL_97_5 * error))


def machines(costs: Sequence[FoundCost]) -> list[Machine]:
    return [machine for machine in map(Machine, costs) if machine.times]


def _published(label: str) -> tuple[float | None, float | None]:
    """Seconds, and how many times those of SAC."""
    return (COST[label].mean, COST[label].mean / COST[REFERENCE].mean) if label in COST else (None, None)


def cost_section(costs: Sequence[FoundCost]) -> Section | None:
    timed = machines(costs)
    if not timed:
        return None

    def relative(label: str, machine: Machine) -> Cell:
        ratio = machine.relative(label)
        shown = Estimate(ratio.value) if ratio and not machine.in_turns else ratio
        return Cell(with_interval(shown, digits=2), ratio.value) if ratio else Cell()

    def paper_seconds(label: str) -> Cell:
        return Cell(f"{COST[label].mean:.2f} ± {COST[label].sd:.2f}", COST[label].mean) if label in COST else Cell()

    def paper_relative(label: str) -> Cell:
        ratio = _published(label)[1]
        return Cell(f"{ratio:.2f}", ratio) if ratio else Cell()

    paper, labels = "Paper, Apple M2 Max", [label for machine in timed for label in machine.times]
    columns = [words("Algorithm", str), Column("seconds", paper_seconds, group=paper)]
    columns.append(Column("× SAC", paper_relative, group=paper))
    for m in timed:
        columns.append(Column("seconds", lambda label, m=m: m.seconds_cell(label), group=m.title))
        columns.append(Column("× SAC", lambda label, m=m: relative(label, m), group=m.title))
    columns += [
        data(("machine", "device"), lambda part: (part[1].title, part[1].device)),
        data(("algorithm", "in_turns"), lambda part: (part[0], part[1].in_turns)),
        data("repetitions", lambda part: len(part[1].seconds.get(part[0], []))),
        data("seconds", lambda part: part[1].middle(part[0])),
        data("sd", lambda part: part[1].times[part[0]].sd if part[0] in part[1].times else None),
        data("least", lambda part: min(part[1].seconds.get(part[0], []), default=None)),
        data("largest", lambda part: max(part[1].seconds.get(part[0], []), default=None)),
        data(("relative_to_sac", "relative_low", "relative_high"), lambda part: part[1].relative(part[0])),
        data(("paper_seconds", "paper_relative_to_sac"), lambda part: _published(part[0])),
    ]
    in_turns = f" {TEXTS['cost_in_turns'].format(comparable=COMPARABLE)}" if any(m.in_turns for m in timed) else ""
    caption, rows = "Seconds per 1000 steps, and how many times those of SAC", list(dict.fromkeys([*COST, *labels]))
    table = Table("cost", caption, columns, rows, lambda label: [(label, machine) for machine in timed])
    return Section("cost", "Cost", [TEXTS["cost"] + in_turns, table, Listing([m.about for m in timed])])
