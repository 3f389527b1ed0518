"""The section on cost: every machine side by side with the paper's."""

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from pac4sac.base.text import duration
from pac4sac.paper.families import HORIZON, departures
from pac4sac.paper.numbers import ALGORITHMS, COST, TASKS, TEXTS
from pac4sac.report.tables import Cell, Column, Get, Section, Table, data, words
from pac4sac.report.variants import Variant
from pac4sac.runs.collection import FoundCost
from pac4sac.runs.statistics import Estimate, Summary, median, summarise

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
        labels = [str(row.get("label", row.get("algo"))) for row in content["rows"]]
        self.times: dict[tuple[Any, str], list[float]] = {}  # by task and label, round by round
        for row, label in zip(content["rows"], labels, strict=True):
            seconds = [
                float(s)
                for s in row.get("seconds_per_1000_steps", [])
                if isinstance(s, int | float)
            ]
            self.times |= {(row.get("task"), label): seconds} if seconds else {}
        # Of a study on several tasks, those of its first.
        first = content["rows"][0].get("task") if labels else None
        self.rows = {
            label: row
            for row, label in zip(content["rows"], labels, strict=True)
            if row.get("task") == first
        }
        self.seconds = {
            label: seconds for (task, label), seconds in self.times.items() if task == first
        }

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
        versions = {
            name: self.content.get("versions", {}).get(name) for name in ("pac4sac", "torch")
        }
        how = {name: self._how(name) or None for name in ("backend", "threads")}
        precision = {"precision": self.content.get("precision")}
        known = {**self.content.get("machine", {}), **versions, **how, **precision}
        parts = [f"{name} {value}" for name, value in known.items() if value is not None]
        parts.append(
            f"{min(map(len, self.seconds.values()))} {'rounds' if self.in_turns else 'repetitions'}"
        )
        parts += [str(self.content["date"])] if self.content.get("date") else []
        note = "" if self.in_turns else f" {TEXTS['cost_one_after_another']}"
        repeat = ["pac4sac", "study", "run", self.study]
        measured = list(dict.fromkeys(task for task, _ in self.times))
        repeat += (
            ["--tasks", ",".join(measured)]
            if self.study == SOLVING and len(measured) < len(TASKS)
            else []
        )
        repeat += ["--device", self.device]
        repeat += ["--precision", "tf32"] if self.content.get("precision") == "tf32" else []
        return f"{self.title}: {', '.join(parts)}. Repeat with `{shlex.join(repeat)}`.{note}"

    def _how(self, name: str) -> str:
        """Once where all algorithms agree."""
        known = {
            label: str(row[name]) for label, row in self.rows.items() if row.get(name) is not None
        }
        if len(set(known.values())) == 1:
            return next(iter(known.values()))
        return " and ".join(f"{value} ({label})" for label, value in known.items())

    def median_of(self, place: tuple[str, str]) -> float | None:
        """Seconds per 1000 steps of an algorithm on a task that the measurement names."""
        return float(np.median(self.times[place])) if place in self.times else None

    def numbers(self, label: str) -> tuple[Any, ...]:
        """How many times it was timed, their middle, deviation and ends."""
        if label not in self.seconds:
            return (0,)
        seconds, times = self.seconds[label], summarise(self.seconds[label])
        middle = float(np.median(seconds)) if self.in_turns else times.mean
        return times.n, middle, times.sd, min(seconds), max(seconds)

    def seconds_shown(self, label: str) -> Cell | Summary | None:
        """In turns their median between their ends, else their mean and its deviation."""
        if not self.in_turns or label not in self.seconds:
            return summarise(self.seconds[label]) if label in self.seconds else None
        _, middle, _, least, largest = self.numbers(label)
        return Cell(f"{middle:.2f} ({least:.2f} to {largest:.2f})", middle)

    def relative_shown(self, label: str) -> Estimate | None:
        ratio = self.relative(label)
        return Estimate(ratio.value) if ratio and not self.in_turns else ratio

    def relative(self, label: str) -> Estimate | None:
        """To SAC: in turns the median of the ratios within rounds, else the ratio of the means with
        the interval of one whose means have small errors."""
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
    return [
        machine for machine in map(Machine, costs) if machine.seconds and machine.study != SOLVING
    ]


def cost_section(
    costs: Sequence[FoundCost], table_1: Mapping[tuple[str, str], Variant]
) -> Section | None:
    until_solved = CostUntilSolved(costs, table_1)
    blocks = [*_per_step(machines(costs)), *(until_solved.blocks() if until_solved.places else [])]
    return Section("cost", "Cost", blocks) if blocks else None


class CostUntilSolved:
    """What a solved run costs: the steps of all runs until they were solved or ended, over the
    number solved, times the seconds of a step on each machine."""

    def __init__(
        self, costs: Sequence[FoundCost], table_1: Mapping[tuple[str, str], Variant]
    ) -> None:
        self.table_1 = table_1
        self.machines = [
            machine
            for machine in map(Machine, costs)
            if machine.study == SOLVING and machine.seconds
        ]
        known = {place for machine in self.machines for place in machine.times}
        self.places = [place for place in product(TASKS, ALGORITHMS) if place in known]
        of_paper = {
            place: variant
            for place, variant in table_1.items()
            if variant.solved and not departures(variant)
        }
        episodes = {place: variant.values("episodes") for place, variant in of_paper.items()}
        self.steps = {  # in thousands, as seconds are given for
            place: sum(of_runs) * HORIZON / 1000 / of_paper[place].solved
            for place, of_runs in episodes.items()
            if of_runs
        }

    def seconds(self, machine: Machine, place: tuple[str, str]) -> float | None:
        seconds, thousands = machine.median_of(place), self.steps.get(place)
        return seconds * thousands if seconds and thousands else None

    def answer(self) -> str:
        """Which algorithm solves each task soonest, machine by machine."""
        sentences = []
        for machine in self.machines:
            soonest = dict[str, tuple[float, str]]()  # by task
            for task, algo in self.places:
                if seconds := self.seconds(machine, (task, algo)):
                    soonest[task] = min(soonest.get(task, (seconds, algo)), (seconds, algo))
            on_tasks = [
                f"{ALGORITHMS[algo]} on {TASKS[task]} ({duration(s)})"
                for task, (s, algo) in soonest.items()
            ]
            sentences += [f"Soonest on {machine.title}: {', '.join(on_tasks)}."] if on_tasks else []
        return " ".join(sentences)

    def blocks(self) -> list[Any]:
        def solved(place: tuple[str, str]) -> Cell | None:
            variant = self.table_1.get(place)
            return Cell(variant.solved_text, variant.solved) if variant else None

        def numbers(place: tuple[str, str]) -> list[tuple[Any, ...]]:
            thousands = self.steps.get(place)
            return [
                (*place, m.title, m.device, m.median_of(place), thousands, self.seconds(m, place))
                for m in self.machines
            ]

        keys = "task algorithm machine device seconds thousand_steps seconds_per_solved"
        columns = [
            words("Task", lambda place: TASKS[place[0]]),
            words("Algorithm", lambda place: ALGORITHMS[place[1]]),
            Column("solved", solved),
            Column("thousand steps per solved run", self.steps.get, digits=1),
            data(*keys.split(), get=lambda numbers: numbers),
        ]
        for machine in self.machines:
            columns.append(
                Column("seconds per 1000", machine.median_of, group=machine.title, digits=2)
            )
            needed = partial(self.seconds, machine)
            columns.append(Column("per solved run", needed, group=machine.title, show=duration))
        caption = "Wall-clock time of a solved run, one run at a time"
        table = Table("cost-to-solve", caption, columns, self.places, numbers)
        return [TEXTS["cost_to_solve"], table, [machine.about for machine in self.machines]]


def _per_step(timed: Sequence[Machine]) -> list[Any]:
    if not timed:
        return []
    relative_of_paper = {
        label: seconds.mean / COST[REFERENCE].mean for label, seconds in COST.items()
    }
    columns = [
        words("Algorithm", str),
        data("machine", "device", get=lambda line: (line[0].title, line[0].device)),
        data("algorithm", "in_turns", get=lambda line: (line[1], line[0].in_turns)),
        data(
            "repetitions",
            "seconds",
            "sd",
            "least",
            "largest",
            get=lambda line: line[0].numbers(line[1]),
        ),
        data(
            "relative_to_sac",
            "relative_low",
            "relative_high",
            get=lambda line: line[0].relative(line[1]),
        ),
        data("paper_seconds", get=lambda line: COST[line[1]].mean if line[1] in COST else None),
        data("paper_relative_to_sac", get=lambda line: relative_of_paper.get(line[1])),
    ]
    sides: list[tuple[str, Get, Get]] = [("Paper, Apple M2 Max", COST.get, relative_of_paper.get)]
    sides += [(m.title, m.seconds_shown, m.relative_shown) for m in timed]
    for group, seconds, relative in sides:
        columns.append(Column("seconds", seconds, group=group, digits=2))
        columns.append(Column("× SAC", relative, group=group, digits=2))
    in_turns = (
        f" {TEXTS['cost_in_turns'].format(comparable=COMPARABLE)}"
        if any(m.in_turns for m in timed)
        else ""
    )
    labels = list(
        dict.fromkeys([*COST, *(label for machine in timed for label in machine.seconds)])
    )
    caption = "Seconds per 1000 steps, and how many times those of SAC"
    table = Table("cost", caption, columns, labels, lambda label: [(m, label) for m in timed])
    return [TEXTS["cost"] + in_turns, table, [m.about for m in timed]]
