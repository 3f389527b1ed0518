"""The section on cost: every machine side by side with the paper's."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from pac4sac.base.text import NOTHING, duration
from pac4sac.paper.families import HORIZON, departures
from pac4sac.paper.numbers import ALGORITHMS, COST, TASKS, TEXTS
from pac4sac.report.tables import Cell, Column, Section, Table, data, with_interval, words
from pac4sac.report.variants import Variant
from pac4sac.runs.collection import FoundCost
from pac4sac.runs.statistics import Estimate, median, summarise

REFERENCE = "sac"
COMPARABLE = 1.25  # times the cost of SAC, at most
NORMAL_97_5 = 1.959964
SOLVING = "cost-to-solve"  # the study that times all tasks, with their own updates per step
TURNS = 2  # the version of cost.json since which the algorithms are timed in turns


class Machine:
    def __init__(self, cost: FoundCost) -> None:
        content, self.study = cost.content, cost.study
        self.content = content
        self.in_turns = int(content.get("version", 1)) >= TURNS
        self.device = str(content.get("device", "cpu"))
        # Of a study on several tasks, those of its first.
        tasks = [row.get("task") for row in content["rows"]]
        first = [row for row, task in zip(content["rows"], tasks, strict=True) if task == tasks[0]]
        self.rows: dict[str, Any] = {str(row.get("label", row.get("algo"))): row for row in first}
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
        return name if self.study in ("cost", SOLVING) else f"{name} (study {self.study})"

    @property
    def about(self) -> str:
        versions = {name: self.content.get("versions", {}).get(name) for name in ("pac4sac", "torch")}
        how = {name: self._how(name) or None for name in ("backend", "threads")}
        precision = {"precision": self.content.get("precision")}
        known = {**self.content.get("machine", {}), **versions, **how, **precision}
        parts = [f"{name} {value}" for name, value in known.items() if value is not None]
        parts.append(f"{min(map(len, self.seconds.values()))} {'rounds' if self.in_turns else 'repetitions'}")
        parts += [str(self.content["date"])] if self.content.get("date") else []
        note = "" if self.in_turns else f" {TEXTS['cost_one_after_another']}"
        repeat = ["pac4sac", "study", "run", self.study, "--device", self.device]
        repeat += ["--precision", "tf32"] if self.content.get("precision") == "tf32" else []
        return f"{self.title}: {', '.join(parts)}. Repeat with `{shlex.join(repeat)}`.{note}"

    def _how(self, name: str) -> str:
        """Once where all algorithms agree."""
        known = {label: str(row[name]) for label, row in self.rows.items() if row.get(name) is not None}
        if len(set(known.values())) == 1:
            return next(iter(known.values()))
        return " and ".join(f"{value} ({label})" for label, value in known.items())

    def median_of(self, task: str, algo: str) -> float | None:
        """Seconds per 1000 steps on a task that the measurement names."""
        rows = [row for row in self.content["rows"] if (row.get("task"), row.get("label")) == (task, algo)]
        return float(np.median(rows[0]["seconds_per_1000_steps"])) if rows else None

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
    return [machine for machine in map(Machine, costs) if machine.seconds and machine.study != SOLVING]


def cost_section(costs: Sequence[FoundCost], table_1: Mapping[tuple[str, str], Variant]) -> Section | None:
    blocks = [*_per_step(machines(costs)), *_until_solved(costs, table_1)]
    return Section("cost", "Cost", blocks) if blocks else None


def _until_solved(costs: Sequence[FoundCost], table_1: Mapping[tuple[str, str], Variant]) -> list[Any]:
    """What a solved run costs: the steps of all runs until they were solved or ended, over the number solved, times the
    seconds of a step on each machine."""
    timed = [machine for machine in map(Machine, costs) if machine.study == SOLVING and machine.seconds]
    places = [place for place in product(TASKS, ALGORITHMS) if any(m.median_of(*place) for m in timed)]

    def steps(place: tuple[str, str]) -> float | None:
        """In thousands, as seconds are given for."""
        variant = table_1.get(place)
        episodes = variant.values("episodes") if variant and not departures(variant) else []
        return sum(episodes) * HORIZON / 1000 / variant.solved if variant and episodes and variant.solved else None

    def seconds(machine: Machine, place: tuple[str, str]) -> float | None:
        middle, thousands = machine.median_of(*place), steps(place)
        return middle * thousands if middle and thousands else None

    def solved(place: tuple[str, str]) -> Cell:
        variant = table_1.get(place)
        return Cell(variant.solved_text, variant.solved) if variant else Cell()

    def step_cell(machine: Machine, place: tuple[str, str]) -> Cell:
        middle = machine.median_of(*place)
        return Cell(f"{middle:.2f}", middle) if middle else Cell()

    def time_cell(machine: Machine, place: tuple[str, str]) -> Cell:
        needed = seconds(machine, place)
        return Cell(duration(needed), needed) if needed else Cell()

    def on_machines(place: tuple[str, str]) -> list[tuple[Any, ...]]:
        return [(*place, m.title, m.device, m.median_of(*place), steps(place), seconds(m, place)) for m in timed]

    columns = [
        words("Task", lambda place: TASKS[place[0]]),
        words("Algorithm", lambda place: ALGORITHMS[place[1]]),
        Column("solved", solved),
        Column("thousand steps per solved run", steps, show=lambda x: f"{x:.1f}" if x else NOTHING),
        data(
            *["task", "algorithm", "machine", "device", "seconds", "thousand_steps", "seconds_per_solved"],
            get=lambda row: row,
        ),
    ]
    for m in timed:
        columns += [
            Column("seconds per 1000", partial(step_cell, m), group=m.title),
            Column("per solved run", partial(time_cell, m), group=m.title),
        ]
    table = Table("cost-to-solve", "Wall-clock time of a solved run, one run at a time", columns, places, on_machines)
    return [TEXTS["cost_to_solve"], table, [m.about for m in timed]] if places else []


def _per_step(timed: Sequence[Machine]) -> list[Any]:
    if not timed:
        return []
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
    return [TEXTS["cost"] + in_turns, table, [m.about for m in timed]]
