"""The section on cost: every machine side by side with the paper's."""

import shlex
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from pac4sac.paper.numbers import COST, TEXTS
from pac4sac.report.tables import Cell, Column, Section, Table, data, with_interval, words
from pac4sac.runs.collection import FoundCost
from pac4sac.runs.statistics import Estimate, median, summarise

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
        times = {label: row.get("seconds_per_1000_steps", []) for label, row in self.rows.items()}
        seconds = {label: [float(s) for s in row if isinstance(s, int | float)] for label, row in times.items()}
        # Round by round or repetition by repetition.
        self.seconds = {label: row for label, row in seconds.items() if row}

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
        repeat = f"`{shlex.join(['pac4sac', 'study', 'run', self.study, '--device', self.device])}`"
        return f"{self.title}: {', '.join(parts)}. Repeat with {repeat}.{note}"

    def _how(self, name: str) -> str:
        """Once where all algorithms agree."""
        known = {label: str(row[name]) for label, row in self.rows.items() if row.get(name) is not None}
        if len(set(known.values())) == 1:
            return next(iter(known.values()))
        return " and ".join(f"{value} ({label})" for label, value in known.items())

    def numbers(self, label: str) -> tuple[Any, ...]:
        """How many times it was timed, their middle, deviation and ends, and their ratio to SAC's with its interval."""
        if label not in self.seconds:
            return (0, *[None] * 7)
        seconds, ratio = self.seconds[label], self.relative(label)
        times = summarise(seconds)
        middle = float(np.median(seconds)) if self.in_turns else times.mean
        ends = (min(seconds), max(seconds))
        return times.n, middle, times.sd, *ends, *(astuple(ratio) if ratio else (None, None, None))

    def seconds_cell(self, label: str) -> Cell:
        n, middle, sd, least, largest, *_ = self.numbers(label)
        spread = f" ({least:.2f} to {largest:.2f})" if self.in_turns and n else f" ± {sd:.2f}" if sd is not None else ""
        return Cell(f"{middle:.2f}{spread}", middle) if n else Cell()

    def relative_cell(self, label: str) -> Cell:
        ratio = self.relative(label)
        shown = Estimate(ratio.value) if ratio and not self.in_turns else ratio
        return Cell(with_interval(shown, digits=2), ratio.value) if ratio else Cell()

    def relative(self, label: str) -> Estimate | None:
        """To SAC: in turns the median of the ratios within rounds, else the ratio of the means with the interval of
        one whose means have small errors."""
        own, reference = self.seconds.get(label), self.seconds.get(REFERENCE)
        if own is None or reference is None or (self.in_turns and len(own) != len(reference)):
            return None
        if label == REFERENCE:
            return Estimate(1.0)
        if self.in_turns:
            return median([mine / theirs for mine, theirs in zip(own, reference, strict=True)])
        sides = (summarise(own), summarise(reference))
        ratio = sides[0].mean / sides[1].mean
        errors = [(side.sd / side.mean) ** 2 / side.n for side in sides if side.sd is not None]
        if len(errors) < 2:
            return Estimate(ratio)
        half_width = NORMAL_97_5 * float(ratio * np.sqrt(sum(errors)))
        return Estimate(ratio, ratio - half_width, ratio + half_width)


def machines(costs: Sequence[FoundCost]) -> list[Machine]:
    return [machine for machine in map(Machine, costs) if machine.seconds]


def cost_section(costs: Sequence[FoundCost]) -> Section | None:
    timed = machines(costs)
    if not timed:
        return None
    relative_of_paper = {label: seconds.mean / COST[REFERENCE].mean for label, seconds in COST.items()}

    def paper_seconds(label: str) -> Cell:
        return Cell(f"{COST[label].mean:.2f} ± {COST[label].sd:.2f}", COST[label].mean) if label in COST else Cell()

    def paper_relative(label: str) -> Cell:
        return Cell(f"{relative_of_paper[label]:.2f}", relative_of_paper[label]) if label in COST else Cell()

    def on_machines(label: str) -> list[tuple[Any, ...]]:
        of_paper = (COST[label].mean if label in COST else None, relative_of_paper.get(label))
        return [(m.title, m.device, label, m.in_turns, *m.numbers(label), *of_paper) for m in timed]

    keys = """machine device algorithm in_turns repetitions seconds sd least largest relative_to_sac relative_low
        relative_high paper_seconds paper_relative_to_sac"""
    of_paper = ("Paper, Apple M2 Max", paper_seconds, paper_relative)
    columns = [words("Algorithm", str), data(*keys.split(), get=lambda numbers: numbers)]
    for group, seconds, relative in (of_paper, *((m.title, m.seconds_cell, m.relative_cell) for m in timed)):
        columns += [Column("seconds", seconds, group=group), Column("× SAC", relative, group=group)]
    in_turns = f" {TEXTS['cost_in_turns'].format(comparable=COMPARABLE)}" if any(m.in_turns for m in timed) else ""
    labels = list(dict.fromkeys([*COST, *(label for machine in timed for label in machine.seconds)]))
    caption = "Seconds per 1000 steps, and how many times those of SAC"
    table = Table("cost", caption, columns, labels, on_machines)
    return Section("cost", "Cost", [TEXTS["cost"] + in_turns, table, [m.about for m in timed]])
