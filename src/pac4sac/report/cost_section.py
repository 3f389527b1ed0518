"""The section on cost: every machine side by side with the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pac4sac.paper import numbers as paper
from pac4sac.report.tables import Cell, Column, Listing, Section, Table, with_interval
from pac4sac.runs.collection import FoundCost
from pac4sac.runs.statistics import Estimate, Summary, median, summarise

REFERENCE = "sac"
NORMAL_97_5 = 1.959964
TURNS = 2  # the version of cost.json since which the algorithms are timed in turns
INTRO = (
    "Seconds per 1000 steps of one run of Cartpole Swingup with one update per step. Machines differ, so the numbers "
    "to compare are those relative to SAC. The paper does not say how many updates a step has."
)
IN_TURNS = (
    "The algorithms are timed in turns: in each round every one of them takes 1000 steps, in an order that rotates. "
    "Seconds are the median of the rounds (least to largest). How many times those of SAC is the median of the ratios "
    "within rounds, with a 95 % bootstrap interval over rounds: what slows the machine for a while slows both sides of "
    "a ratio. Cost counts as comparable where that interval lies below 1.25. Rounds on one machine are not independent "
    "machines: the interval tells how steady the ratio was there, and not what it is elsewhere."
)
ONE_AFTER_ANOTHER = (
    "Not taken in turns: one algorithm was timed after another, mean ± sd of the repetitions, so that a machine that "
    "changes its pace changes the ratios."
)


@dataclass(frozen=True)
class Machine:
    cost: FoundCost

    @property
    def in_turns(self) -> bool:
        return int(self.cost.content.get("version", 1)) >= TURNS

    @cached_property
    def seconds(self) -> dict[str, list[float]]:
        """Per 1000 steps, round by round or repetition by repetition, by algorithm."""
        rows = {str(row.get("label", row.get("algo"))): seconds(row) for row in self.cost.content["rows"]}
        return {label: found for label, found in rows.items() if found}

    @cached_property
    def times(self) -> dict[str, Summary]:
        return {label: summarise(found) for label, found in self.seconds.items()}

    @property
    def device(self) -> str:
        return str(self.cost.content.get("device", "cpu"))

    @property
    def title(self) -> str:
        about = self.cost.content.get("machine", {})
        if self.device.startswith("cuda"):
            name = str(about.get("gpu") or self.device)
        else:
            name = " ".join(["CPU", *(str(about[key]) for key in ("processor",) if about.get(key))])
            name += f", {about['cores']} cores" if about.get("cores") else ""
        return name if self.cost.study == "cost" else f"{name} (study {self.cost.study})"

    @property
    def about(self) -> str:
        machine = {name: value for name, value in self.cost.content.get("machine", {}).items() if value is not None}
        versions = {name: self.cost.content.get("versions", {}).get(name) for name in ("pac4sac", "torch")}
        told = [f"{name} {value}" for name, value in {**machine, **versions}.items() if value is not None]
        told += [f"{name} {found}" for name in ("backend", "threads") if (found := self._told_by_rows(name))]
        told.append(f"{min(map(len, self.seconds.values()))} {'rounds' if self.in_turns else 'repetitions'}")
        told += [str(self.cost.content["date"])] if self.cost.content.get("date") else []
        command = f"pac4sac study run {self.cost.study} --device {self.device}"
        note = "" if self.in_turns else f" {ONE_AFTER_ANOTHER}"
        return f"{self.title}: {', '.join(told)}. Repeat with `{command}`.{note}"

    def _told_by_rows(self, name: str) -> str:
        """Once where all algorithms agree."""
        found = {str(row.get("label", row.get("algo"))): row.get(name) for row in self.cost.content["rows"]}
        known = {label: str(value) for label, value in found.items() if value is not None}
        if len(set(known.values())) == 1:
            return next(iter(known.values()))
        return " and ".join(f"{value} ({label})" for label, value in known.items())

    def seconds_cell(self, label: str) -> Cell:
        found = self.seconds.get(label)
        if not found:
            return Cell()
        if self.in_turns:
            middle = float(np.median(found))
            return Cell(f"{middle:.2f} ({min(found):.2f} to {max(found):.2f})", middle)
        own = self.times[label]
        return Cell(f"{own.mean:.2f}" + (f" ± {own.sd:.2f}" if own.sd is not None else ""), own.mean)

    def relative_cell(self, label: str) -> Cell:
        ratio = self.relative(label)
        if ratio is None:
            return Cell()
        return Cell(with_interval(ratio if self.in_turns else Estimate(ratio.value), digits=2), ratio.value)

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
    found = [Machine(cost) for cost in costs]
    return [machine for machine in found if machine.times]


def cost_section(costs: Sequence[FoundCost]) -> Section | None:
    found = machines(costs)
    if not found:
        return None
    labels = list(dict.fromkeys([*paper.COST, *(label for machine in found for label in machine.times)]))
    columns = [Column("Algorithm", numeric=False)]
    for group in ("Paper, Apple M2 Max", *(machine.title for machine in found)):
        columns += [Column("seconds", group), Column("× SAC", group)]
    body, records = [], []
    for label in labels:
        printed = paper.COST.get(label)
        theirs = printed.mean / paper.COST[REFERENCE].mean if printed else None
        cells = [Cell(label, label)]
        cells.append(Cell(f"{printed.mean:.2f} ± {printed.sd:.2f}", printed.mean) if printed else Cell())
        cells.append(Cell(f"{theirs:.2f}", theirs) if theirs else Cell())
        for machine in found:
            times, summary, ratio = machine.seconds.get(label, []), machine.times.get(label), machine.relative(label)
            cells += [machine.seconds_cell(label), machine.relative_cell(label)]
            records.append({
                "machine": machine.title, "device": machine.device, "algorithm": label, "in_turns": machine.in_turns,
                "repetitions": len(times), "seconds": cells[-2].value, "sd": summary.sd if summary else None,
                "least": min(times, default=None), "largest": max(times, default=None),
                "relative_to_sac": ratio.value if ratio else None,
                "relative_low": ratio.low if ratio else None, "relative_high": ratio.high if ratio else None,
                "paper_seconds": printed.mean if printed else None, "paper_relative_to_sac": theirs,
            })  # fmt: skip
        body.append(cells)
    intro = f"{INTRO} {IN_TURNS}" if any(machine.in_turns for machine in found) else INTRO
    caption = "Seconds per 1000 steps, and how many times those of SAC"
    listing = Listing([machine.about for machine in found])
    return Section("cost", "Cost", [intro, Table("cost", caption, columns, body, records), listing])


def seconds(row: Mapping[str, Any]) -> list[float]:
    return [float(s) for s in row.get("seconds_per_1000_steps", []) if isinstance(s, int | float)]
