"""The section on cost: seconds per 1000 steps on every machine with measurements."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pac4sac.report.tables import TEXTS, Block, Cell, Column, Get, Section, Table, data, words
from pac4sac.runs.collection import FoundCost
from pac4sac.runs.statistics import Estimate, Summary, median, summarise

BASELINE = "sac"
NORMAL_97_5 = 1.959964
TURNS = 2  # since this version of cost.json, algorithms are timed in turns


class Machine:
    """Hold the times that one study measured on one machine."""

    def __init__(self, cost: FoundCost) -> None:
        self.content, self.study = cost.content, cost.study
        self.in_turns = int(self.content.get("version", 1)) >= TURNS
        self.device = str(self.content.get("device", "cpu"))
        rows = self.content["rows"]
        # If a study has several tasks, the first one is shown.
        shown_task = rows[0].get("task") if rows else None
        shown = [row for row in rows if row.get("task") == shown_task]
        timed = [row for row in rows if _times(row)]
        # (task, label) -> seconds of each round
        self.times = {(row.get("task"), _label(row)): _times(row) for row in timed}
        self.seconds = {_label(row): _times(row) for row in shown if row in timed}
        self.rows = {_label(row): row for row in shown}

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
        """Describe the measurement, with the command that repeats it."""
        note = "" if self.in_turns else f" {TEXTS['cost']['one_after_another']}"
        facts = ", ".join(self._facts())
        repeat = f"Repeat the measurement with `{self._command()}`."
        return f"{self.title} ({facts}). {repeat}{note}"

    def _facts(self) -> list[str]:
        """Return machine, versions, backend, precision, number of repetitions and date, each as a
        phrase."""
        content, versions = self.content, self.content.get("versions", {})
        known = {
            **content.get("machine", {}),
            "pac4sac": versions.get("pac4sac"),
            "torch": versions.get("torch"),
            "backend": self._how("backend"),
            "threads": self._how("threads"),
            "precision": content.get("precision"),
        }
        facts = [f"{name} {value}" for name, value in known.items() if value is not None]
        repetitions = min(map(len, self.seconds.values()))
        facts.append(f"{repetitions} {'rounds' if self.in_turns else 'repetitions'}")
        if content.get("date"):
            facts.append(str(content["date"]))
        return facts

    def _command(self) -> str:
        words = ["pac4sac", "study", "run", self.study]
        if tasks := list(dict.fromkeys(task for task, _ in self.times if task)):
            words += ["--tasks", ",".join(tasks)]
        words += ["--device", self.device]
        if self.content.get("precision") == "tf32":
            words += ["--precision", "tf32"]
        return shlex.join(words)

    def _how(self, name: str) -> str | None:
        """Return the backend or precision of the algorithms: one value if all agree, None if not
        recorded."""
        stored = {label: row.get(name) for label, row in self.rows.items()}
        known = {label: str(value) for label, value in stored.items() if value is not None}
        if len(set(known.values())) <= 1:
            return next(iter(known.values()), None)
        return " and ".join(f"{value} ({label})" for label, value in known.items())

    def median_of(self, place: tuple[str, str]) -> float | None:
        """Return the median seconds per 1,000 steps of a (task, label) pair."""
        return float(np.median(self.times[place])) if place in self.times else None

    def numbers(self, label: str) -> tuple[Any, ...]:
        """Return count, median or mean, standard deviation, minimum and maximum of an algorithm's
        times."""
        if label not in self.seconds:
            return (0,)
        seconds, times = self.seconds[label], summarise(self.seconds[label])
        middle = float(np.median(seconds)) if self.in_turns else times.mean
        return times.n, middle, times.sd, min(seconds), max(seconds)

    def seconds_shown(self, label: str) -> Cell | Summary | None:
        """Return the median and range if timed in turns, else the mean and standard deviation."""
        if label not in self.seconds:
            return None
        if not self.in_turns:
            return summarise(self.seconds[label])
        _, middle, _, least, largest = self.numbers(label)
        return Cell(f"{middle:.2f} ({least:.2f}–{largest:.2f})", middle)

    def relative_shown(self, label: str) -> Estimate | None:
        """Return the time relative to SAC as displayed, with an interval if timed in turns."""
        ratio = self.relative(label)
        return Estimate(ratio.value) if ratio and not self.in_turns else ratio

    def relative(self, label: str) -> Estimate | None:
        """Return the time relative to SAC.

        If timed in turns, this is the median of the ratios within rounds, else the ratio of the
        means.
        """
        if not {label, BASELINE} <= self.seconds.keys():
            return None
        if label == BASELINE:
            return Estimate(1.0)
        ours, theirs = self.seconds[label], self.seconds[BASELINE]
        if not self.in_turns:
            return _ratio_of_means(summarise(ours), summarise(theirs))
        if len(ours) != len(theirs):
            return None
        return median([own / sac for own, sac in zip(ours, theirs, strict=True)])


def _label(row: Mapping[str, Any]) -> str:
    return str(row.get("label", row.get("algo")))


def _times(row: Mapping[str, Any]) -> list[float]:
    """Return the times, in seconds per 1,000 steps."""
    return [float(value) for value in row.get("seconds_per_1000_steps", [])]


def _ratio_of_means(ours: Summary, theirs: Summary) -> Estimate:
    """Return the ratio of two means, with the interval of the delta method."""
    ratio = ours.mean / theirs.mean
    if ours.sd is None or theirs.sd is None:
        return Estimate(ratio)
    variance = (ours.sd / ours.mean) ** 2 / ours.n + (theirs.sd / theirs.mean) ** 2 / theirs.n
    half_width = NORMAL_97_5 * float(ratio * np.sqrt(variance))
    return Estimate(ratio, ratio - half_width, ratio + half_width)


def machines(costs: Sequence[FoundCost]) -> list[Machine]:
    """Return the machines with at least one time."""
    return [machine for machine in map(Machine, costs) if machine.seconds]


def cost_section(timed: Sequence[Machine]) -> Section | None:
    """Return the section on cost; None if nothing was timed."""
    if not timed:
        return None
    return Section("cost", "Cost", cost_blocks(timed, TEXTS["cost"]["intro"]))


def cost_blocks(
    timed: Sequence[Machine], intro: str, published: Mapping[str, Summary] | None = None
) -> list[Block]:
    """Return the table of all machines, with published seconds if given."""
    columns = [words("Algorithm", str), *_data_columns()]
    if published:
        columns += _published_columns(published)
    for machine in timed:
        columns += _shown_columns(machine.title, machine.seconds_shown, machine.relative_shown)
    if any(machine.in_turns for machine in timed):
        intro = f"{intro} {TEXTS['cost']['in_turns']}"
    labels = [*(published or []), *(label for machine in timed for label in machine.seconds)]
    table = Table(
        "cost",
        "Seconds per 1,000 steps, and their ratio to the seconds of SAC",
        columns,
        list(dict.fromkeys(labels)),
        lambda label: [(machine, label) for machine in timed],
    )
    return [intro, table, [machine.about for machine in timed]]


def _shown_columns(group: str, seconds: Get, relative: Get) -> list[Column]:
    """Return the columns of one machine; rows are labels."""
    return [
        Column("seconds", seconds, group=group, digits=2),
        Column("÷ SAC", relative, group=group, digits=2),
    ]


def _published_columns(times: Mapping[str, Summary]) -> list[Column]:
    """Return the columns of published times, in the table and in the CSV."""
    mean = {label: seconds.mean for label, seconds in times.items()}
    relative = {label: seconds / mean[BASELINE] for label, seconds in mean.items()}
    return [
        data("paper_seconds", get=lambda line: mean.get(line[1])),
        data("paper_relative_to_sac", get=lambda line: relative.get(line[1])),
        *_shown_columns("Paper, Apple M2 Max", times.get, relative.get),
    ]


def _data_columns() -> list[Column]:
    """Return the columns of the CSV; each line is a machine and a label."""
    times = ("repetitions", "seconds", "sd", "least", "largest")
    relative = ("relative_to_sac", "relative_low", "relative_high")
    return [
        data("machine", "device", get=lambda line: (line[0].title, line[0].device)),
        data("algorithm", "in_turns", get=lambda line: (line[1], line[0].in_turns)),
        data(*times, get=lambda line: line[0].numbers(line[1])),
        data(*relative, get=lambda line: line[0].relative(line[1])),
    ]
