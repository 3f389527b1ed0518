"""The section on cost: every machine side by side with the paper's."""

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from pac4sac.base.text import NOTHING
from pac4sac.paper.numbers import COST, TEXTS
from pac4sac.report.tables import Cell, Column, Section, Table, data, with_interval, words
from pac4sac.runs.collection import FoundCost
from pac4sac.runs.statistics import Estimate, Summary, median, summarise

REFERENCE = "sac"
COMPARABLE = 1.25  # times the cost of SAC, at most
NORMAL_97_5 = 1.959964
TURNS = 2  # the version of cost.json since which the algorithms are timed in turns


class Machine:
    def __init__(self, cost: FoundCost) -> None:
        content, self.study = cost.content, cost.study
        self.content = content
        self.in_turns = int(content.get("version", 1)) >= TURNS
        self.device = str(content.get("device", "cpu"))
        self.rows: dict[str, Any] = {str(row.get("label", row.get("algo"))): row for row in content["rows"]}
        # Per 1000 steps, round by round or repetition by repetition, by algorithm.
        times = {label: row.get("seconds_per_1000_steps", []) for label, row in self.rows.items()}
        seconds = {label: [float(s) for s in row if isinstance(s, int | float)] for label, row in times.items()}
        self.seconds = {label: row for label, row in seconds.items() if row}
        self.times = {label: summarise(row) for label, row in self.seconds.items()}

    @property
    def title(self) -> str:
        about = self.content.get("machine", {})
        if self.device.startswith("cuda"):
            name = str(about.get("gpu") or self.device)
        else:
            name = f"CPU {about['processor']}" if about.get("processor") else "CPU"
            name += f", {about['cores']} cores" if about.get("cores") else ""
        return name if self.study == "cost" else f"{name} (study {self.study})"

    @property
    def about(self) -> str:
        versions = {name: self.content.get("versions", {}).get(name) for name in ("pac4sac", "torch")}
        how = {name: self._how(name) or None for name in ("backend", "threads")}
        known = {**self.content.get("machine", {}), **versions, **how}
        parts = [f"{name} {value}" for name, value in known.items() if value is not None]
        parts.append(f"{min(map(len, self.seconds.values()))} {'rounds' if self.in_turns else 'repetitions'}")
        parts += [str(self.content["date"])] if self.content.get("date") else []
        note = "" if self.in_turns else f" {TEXTS['cost_one_after_another']}"
        repeat = f"`pac4sac study run {self.study} --device {self.device}`"
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

    def numbers(self, label: str) -> tuple[Any, ...]:
        """How many times it was timed, their middle, deviation and ends, and their ratio to SAC's with its interval."""
        times, ratio = self.seconds.get(label, []), self.relative(label)
        sd = self.times[label].sd if times else None
        ends = (min(times, default=None), max(times, default=None))
        return len(times), self.middle(label), sd, *ends, *(astuple(ratio) if ratio else (None, None, None))

    def seconds_cell(self, label: str) -> Cell:
        n, middle, sd, least, largest, *_ = self.numbers(label)
        spread = f" ({least:.2f} to {largest:.2f})" if self.in_turns and n else f" ± {sd:.2f}" if sd is not None else ""
        return Cell(f"{middle:.2f}{spread}", middle) if n else Cell()

    def relative_cell(self, label: str) -> Cell:
        ratio = self.relative(label)
        shown = Estimate(ratio.value) if ratio and not self.in_turns else ratio
        return Cell(with_interval(shown, digits=2), ratio.value) if ratio else Cell()

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


def cost_section(costs: Sequence[FoundCost]) -> Section | None:
    timed = machines(costs)
    if not timed:
        return None
    relative_of_paper = {label: seconds.mean / COST[REFERENCE].mean for label, seconds in COST.items()}

    def paper_seconds(label: str) -> Cell:
        return Cell(f"{COST[label].mean:.2f} ± {COST[label].sd:.2f}", COST[label].mean) if label in COST else Cell()

    def two_digits(ratio: float | None) -> str:
        return NOTHING if ratio is None else f"{ratio:.2f}"

    def on_machines(label: str) -> list[tuple[Any, ...]]:
        paper = (COST[label].mean if label in COST else None, relative_of_paper.get(label))
        return [(m.title, m.device, label, m.in_turns, *m.numbers(label), *paper) for m in timed]

    group = "Paper, Apple M2 Max"
    columns = [words("Algorithm", str), Column("seconds", paper_seconds, group=group)]
    columns.append(Column("× SAC", relative_of_paper.get, group=group, show=two_digits))
    for m in timed:
        columns.append(Column("seconds", m.seconds_cell, group=m.title))
        columns.append(Column("× SAC", m.relative_cell, group=m.title))
    keys = """machine device algorithm in_turns repetitions seconds sd least largest relative_to_sac relative_low
        relative_high paper_seconds paper_relative_to_sac"""
    columns.append(data(*keys.split(), get=lambda numbers: numbers))
    in_turns = f" {TEXTS['cost_in_turns'].format(comparable=COMPARABLE)}" if any(m.in_turns for m in timed) else ""
    labels = list(dict.fromkeys([*COST, *(label for machine in timed for label in machine.times)]))
    caption = "Seconds per 1000 steps, and how many times those of SAC"
    table = Table("cost", caption, columns, labels, on_machines)
    return Section("cost", "Cost", [TEXTS["cost"] + in_turns, table, [m.about for m in timed]])
