"""The section on cost: seconds per 1000 steps on every machine that was timed."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pac4sac.report.tables import TEXTS, Block, Cell, Column, Get, Section, Table, data, words
from pac4sac.runs.collection import FoundCost
from pac4sac.runs.statistics import Estimate, Summary, median, summarise

BASELINE = "sac"
NORMAL_97_5 = 1.959964
TURNS = 2  # the version of cost.json since which the algorithms are timed in turns


class Machine:
    """The times that one study measured on one machine."""

    def __init__(self, cost: FoundCost) -> None:
        self.content, self.study = cost.content, cost.study
        self.in_turns = int(self.content.get("version", 1)) >= TURNS
        self.device = str(self.content.get("device", "cpu"))
        # Of a study on several tasks, the first is shown.
        rows = self.content["rows"]
        first = rows[0].get("task") if rows else None
        self.times: dict[tuple[Any, str], list[float]] = {}  # by task and label, round by round
        self.rows: dict[str, dict[str, Any]] = {}
        for row in rows:
            label = str(row.get("label", row.get("algo")))
            if seconds := _numbers(row.get("seconds_per_1000_steps", [])):
                self.times[row.get("task"), label] = seconds
            if row.get("task") == first:
                self.rows[label] = row
        self.seconds = {label: s for (task, label), s in self.times.items() if task == first}

    @property
    def title(self) -> str:
        name = self._hardware(self.content.get("machine", {}))
        return name if self.study.startswith("cost") else f"{name} (study {self.study})"

    def _hardware(self, about: Mapping[str, Any]) -> str:
        if self.device.startswith("cuda"):
            return str(about.get("gpu") or self.device)
        name = f"CPU {about['processor']}" if about.get("processor") else "CPU"
        return name + (f", {about['cores']} cores" if about.get("cores") else "")

    @property
    def about(self) -> str:
        content, versions = self.content, self.content.get("versions", {})
        known = dict(content.get("machine", {}))
        known |= {name: versions.get(name) for name in ("pac4sac", "torch")}
        known |= {name: self._how(name) or None for name in ("backend", "threads")}
        known["precision"] = content.get("precision")
        parts = [f"{name} {value}" for name, value in known.items() if value is not None]
        times = min(map(len, self.seconds.values()))
        parts.append(f"{times} {'rounds' if self.in_turns else 'repetitions'}")
        if content.get("date"):
            parts.append(str(content["date"]))
        note = "" if self.in_turns else f" {TEXTS['cost']['one_after_another']}"
        return f"{self.title}: {', '.join(parts)}. Repeat with `{self._command()}`.{note}"

    def _command(self) -> str:
        words = ["pac4sac", "study", "run", self.study]
        if tasks := list(dict.fromkeys(task for task, _ in self.times if task)):
            words += ["--tasks", ",".join(tasks)]
        words += ["--device", self.device]
        if self.content.get("precision") == "tf32":
            words += ["--precision", "tf32"]
        return shlex.join(words)

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
        own, theirs = self.seconds.get(label), self.seconds.get(BASELINE)
        if own is None or theirs is None or (self.in_turns and len(own) != len(theirs)):
            return None
        if label == BASELINE:
            return Estimate(1.0)
        if self.in_turns:
            return median([ours / sac for ours, sac in zip(own, theirs, strict=True)])
        return _ratio_of_means(summarise(own), summarise(theirs))


def _numbers(values: Sequence[Any]) -> list[float]:
    return [float(value) for value in values if isinstance(value, int | float)]


def _ratio_of_means(ours: Summary, theirs: Summary) -> Estimate:
    """Return the ratio of two means, with the interval for means with small errors."""
    ratio = ours.mean / theirs.mean
    if ours.sd is None or theirs.sd is None:
        return Estimate(ratio)
    errors = [(side.sd / side.mean) ** 2 / side.n for side in (ours, theirs) if side.sd is not None]
    half_width = NORMAL_97_5 * float(ratio * np.sqrt(sum(errors)))
    return Estimate(ratio, ratio - half_width, ratio + half_width)


def machines(costs: Sequence[FoundCost]) -> list[Machine]:
    return [machine for machine in map(Machine, costs) if machine.seconds]


def cost_section(timed: Sequence[Machine]) -> Section | None:
    if not timed:
        return None
    return Section("cost", "Cost", cost_blocks(timed, TEXTS["cost"]["intro"]))


def cost_blocks(
    timed: Sequence[Machine], intro: str, published: Mapping[str, Summary] | None = None
) -> list[Block]:
    """Return the table of all machines, with seconds that others published for theirs if given."""
    times = published or {}
    relative = {label: seconds.mean / times[BASELINE].mean for label, seconds in times.items()}
    columns = [words("Algorithm", str), *_data_columns()]
    sides: list[tuple[str, Get, Get]] = [
        (machine.title, machine.seconds_shown, machine.relative_shown) for machine in timed
    ]
    if published:
        columns += [
            data("paper_seconds", get=lambda line: getattr(times.get(line[1]), "mean", None)),
            data("paper_relative_to_sac", get=lambda line: relative.get(line[1])),
        ]
        sides.insert(0, ("Paper, Apple M2 Max", times.get, relative.get))
    for group, seconds, ratio in sides:
        columns.append(Column("seconds", seconds, group=group, digits=2))
        columns.append(Column("× SAC", ratio, group=group, digits=2))
    if any(machine.in_turns for machine in timed):
        intro = f"{intro} {TEXTS['cost']['in_turns']}"
    labels = [*times, *(label for machine in timed for label in machine.seconds)]
    caption = "Seconds per 1000 steps, and how many times those of SAC"
    table = Table(
        "cost",
        caption,
        columns,
        list(dict.fromkeys(labels)),
        lambda label: [(machine, label) for machine in timed],
    )
    return [intro, table, [machine.about for machine in timed]]


def _data_columns() -> list[Column]:
    """Return the columns of the CSV, of lines that are a machine and a label."""
    times = ("repetitions", "seconds", "sd", "least", "largest")
    relative = ("relative_to_sac", "relative_low", "relative_high")
    return [
        data("machine", "device", get=lambda line: (line[0].title, line[0].device)),
        data("algorithm", "in_turns", get=lambda line: (line[1], line[0].in_turns)),
        data(*times, get=lambda line: line[0].numbers(line[1])),
        data(*relative, get=lambda line: line[0].relative(line[1])),
    ]
