"""How widely the states lie that runs visited, each variant against a baseline: does anything foster exploration?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pac4sac.base.text import file_name, number, p_value
from pac4sac.paper.verdicts import SIGNIFICANT, UNFINISHED
from pac4sac.report.computing import mixtures
from pac4sac.report.measurements import Measurements, pictures
from pac4sac.report.tables import Cell, Column, Section, Table, with_interval
from pac4sac.report.variants import Group
from pac4sac.report.versus_baseline import NO_DIFFERENCE, find_baseline
from pac4sac.runs.collection import FoundStudy
from pac4sac.runs.statistics import Difference, Estimate, holm, mean_interval, summarise, welch

COVERAGE = Measurements("coverage", ("step", "nearest", "log_volume"))
QUANTITIES = {"nearest": "distance to the nearest state", "log_volume": "log-volume"}
BASELINE, WIDER, NARROWER, UNKNOWN = "baseline", "wider", "narrower", "not to be told"
ORDER = (WIDER, NARROWER, NO_DIFFERENCE, UNFINISHED, UNKNOWN)
INTRO = (
    "How widely the states lie in which a run acted, by a thousand of those that its replay buffer still holds: the "
    "mean distance to the nearest other one, and the log-volume, which is more by 1 where states fill e times the "
    "volume (`docs/metrics.md` defines both). They are in the units of observations: numbers of two tasks cannot be "
    "compared, nor those of buffers of different lengths. More is not better. An agent that has learned to stay where "
    "rewards are high covers little, and one that only fails may cover much: coverage speaks for exploration where "
    "returns are alike, or early. “Wider” and “narrower” are decided by Welch's test of the means at the end of "
    "training at 5 %, corrected (Holm) for the comparisons of one table by the same quantity."
)


@dataclass(frozen=True)
class Spread:
    """One quantity of one group against the baseline."""

    end: Estimate | None  # over the seeds that came to the end of training
    during: float | None  # mean over training, of the same
    difference: Difference | None
    p: float | None  # corrected for the other groups
    in_words: str


def coverage_section(groups: Mapping[str, Sequence[Group]], studies: Sequence[FoundStudy]) -> Section | None:
    blocks: list[Any] = []
    for found in groups.values():
        if members := COVERAGE.measured(found):
            blocks += _of_task(members, _baseline(members, studies))
    return Section("coverage", "How widely states were visited", [INTRO, *blocks]) if blocks else None


def _baseline(members: Sequence[Group], studies: Sequence[FoundStudy]) -> Group | None:
    """PAC4SAC as the paper has it, whose parts are said to foster exploration; without it, the studies' own."""
    ours = [group for group in members if group.algo == "pac4sac" and not group.departures]
    return ours[0] if ours else find_baseline(studies, members)


def spreads(what: str, groups: Sequence[Group], baseline: Group | None) -> list[Spread]:
    """Of all groups of a task: they are one family, for which p-values are corrected."""
    theirs = [row[what] for row in COVERAGE.last_rows(baseline)] if baseline else []
    found = []
    for group in groups:
        runs = COVERAGE.at_the_end(group)
        ends = [rows[-1][what] for rows in runs]
        rival = bool(ends and theirs and group is not baseline)
        during = float(np.mean([np.mean([row[what] for row in rows]) for rows in runs])) if runs else None
        difference = welch(summarise(ends), summarise(theirs)) if rival else None
        found.append((group, mean_interval(ends) if ends else None, during, difference))
    corrected = holm([difference.p if difference else None for *_, difference in found])
    return [
        Spread(end, during, difference, p, BASELINE if group is baseline else _in_words(group, difference, p))
        for (group, end, during, difference), p in zip(found, corrected, strict=True)
    ]


def _in_words(group: Group, difference: Difference | None, p: float | None) -> str:
    if group.under_way:
        return UNFINISHED
    if difference is None or p is None:
        return UNKNOWN
    return NO_DIFFERENCE if p >= SIGNIFICANT else WIDER if difference.value > 0 else NARROWER


def _of_task(members: Sequence[Group], baseline: Group | None) -> list[Any]:
    task = members[0].task
    name = f"coverage-{file_name(task.title)}"
    compared = {what: spreads(what, members, baseline) for what in QUANTITIES}
    columns = [Column("Variant", numeric=False), Column("S"), Column("Runs")]
    for title in QUANTITIES.values():
        heads = ("at the end [95 %]", "difference [95 %]", "p (Holm)", "mean over training")
        columns += [*(Column(head, title) for head in heads), Column("against baseline", title, numeric=False)]
    body, records = [], []
    for place, group in enumerate(members):
        shots, runs = int(group.config.get("shots", 1)), len(COVERAGE.last_rows(group))
        cells = [Cell(group.label, group.label), Cell(str(shots), shots), Cell(f"{runs} of {len(group.runs)}", runs)]
        record = {"task": task.title, "variant": group.label, "algo": group.algo, "shots": shots, "runs": runs}
        for what in QUANTITIES:
            cells += _cells(compared[what][place])
            record |= _record(what, compared[what][place])
        body.append(cells)
        records.append(record)
    caption = f"{task.title}: states of the replay buffer during training, mean of the seeds with its 95 % interval"
    return [
        *([_told(task.title, baseline, members, compared)] if baseline else []),
        *pictures(name, caption, members, coverage_figure),
        Table(name, f"State coverage on {task.title}", columns, body, records),
        *mixtures(members),
    ]


def _told(title: str, baseline: Group, members: Sequence[Group], compared: Mapping[str, Sequence[Spread]]) -> str:
    told = []
    for what, found in compared.items():
        by_word: dict[str, list[str]] = {}
        for group, spread in zip(members, found, strict=True):
            by_word.setdefault(spread.in_words, []).append(f"`{group.label}`")
        words = [f"{word}: {', '.join(by_word[word])}" for word in ORDER if word in by_word]
        told.append(f"By {QUANTITIES[what]}, {'; '.join(words) or 'nothing to compare'}.")
    return f"On {title} at the end of training, against `{baseline.label}`. {' '.join(told)}"


def _cells(spread: Spread) -> list[Cell]:
    end, d = spread.end, spread.difference
    return [
        Cell(with_interval(end), end.value if end else None),
        Cell(with_interval(Estimate(d.value, d.low, d.high) if d else None), d.value if d else None),
        Cell(p_value(spread.p), spread.p),
        Cell(number(spread.during), spread.during),
        Cell(spread.in_words, spread.in_words),
    ]


def _record(what: str, spread: Spread) -> dict[str, Any]:
    end, d = spread.end, spread.difference
    return {
        what: end.value if end else None, f"{what}_low": end.low if end else None,
        f"{what}_high": end.high if end else None, f"{what}_difference": d.value if d else None,
        f"{what}_difference_low": d.low if d else None, f"{what}_difference_high": d.high if d else None,
        f"{what}_p_holm": spread.p, f"{what}_over_training": spread.during,
        f"{what}_against_baseline": spread.in_words,
    }  # fmt: skip


def coverage_figure(groups: Sequence[Group]) -> Figure:
    figure = COVERAGE.figure(groups, {"nearest": "mean distance to the nearest state", "log_volume": "log-volume"})
    figure.axes[0].set_ylim(bottom=0)
    return figure
