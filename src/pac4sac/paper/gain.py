"""Where the gain comes from, in regret: what shooting gives to each kind of critic, and what the
PAC-Bayes critic gives beside plain ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from pac4sac.paper.families import PAPER_SHOTS, PaperContext, has_settings, task_differences
from pac4sac.report.tables import Column, Table, with_ends, words
from pac4sac.runs.statistics import Difference, Summary, welch_over_strata

TWO, ONE, OURS = "two plain critics (SAC)", "one plain critic", "one PAC-Bayes critic (PAC4SAC)"
# Algorithm, preset and changed settings of each; the first three differ in their critics alone.
CRITICS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    TWO: ("sac", "paper", {}),
    ONE: ("sac", "paper", {"critics": 1}),
    OURS: ("pac4sac", "paper", {}),
    "SAC, calibrated α": ("sac", "calibrated", {}),
    "SAC, learned α": ("sac-auto", "paper", {}),
}
THREE = [TWO, ONE, OURS]
ONCE, SHOOTING = 1, PAPER_SHOTS  # candidate actions
Regrets = Mapping[tuple[str, int], Summary]  # on one task, by critic and candidates
Pair = tuple[tuple[str, int], tuple[str, int]]  # what is compared, and with what


@dataclass(frozen=True)
class GainRow:
    task: str
    name: str
    once: Summary | Difference | None
    shooting: Summary | Difference | None
    overall: Difference | None

    @property
    def tells_a_difference(self) -> bool:
        return any(
            isinstance(value, Difference) for value in (self.once, self.shooting, self.overall)
        )


def gain_tables(context: PaperContext) -> list[Table]:
    """On the paper's tasks, where there is anything to tell."""
    tasks = [
        title
        for title, members in context.variants.items()
        if not task_differences(members[0].task)
    ]
    regrets = {title: _regrets(context, title) for title in tasks}
    of_shooting = [row for title in tasks for row in _rows_of_shooting(title, regrets[title])]
    of_critic = [row for title in tasks for row in _rows_of_critic(title, regrets[title])]
    numbers, unit = partial(Column, scale=1000.0), "Regret, thousands"
    tables = [
        Table(
            "gain-of-shooting",
            f"What shooting gives. {unit}",
            [
                words("Task", "task", "task"),
                words("Critic", "name", "critic"),
                numbers("one candidate", "once", ("once", "once_sd")),
                numbers(f"{SHOOTING} candidates", "shooting", ("shooting", "shooting_sd")),
                numbers("difference [95 %]", "overall", with_ends("difference")),
            ],
            of_shooting,
        ),
        Table(
            "gain-of-critic",
            f"What the PAC-Bayes critic gives. {unit}: PAC4SAC's minus that of plain critics "
            "[95 %]",
            [
                words("Task", "task", "task"),
                words("Minus", "name", "minus"),
                numbers("one candidate", "once", with_ends("once")),
                numbers(f"{SHOOTING} candidates", "shooting", with_ends("shooting")),
                numbers("mean of both", "overall", with_ends("both")),
            ],
            of_critic,
        ),
    ]
    return [table for table in tables if any(row.tells_a_difference for row in table.rows)]


def _regrets(context: PaperContext, title: str) -> Regrets:
    found = {}
    for (critic, (algo, preset, changes)), shots in product(CRITICS.items(), (ONCE, SHOOTING)):
        alike = (
            v
            for v in context.results(title)
            if has_settings(v, algo, preset, {**changes, "shots": shots})
        )
        variant = next(alike, None)
        if variant and not variant.under_way and (regret := variant.summary("regret")):
            found[critic, shots] = regret
    return found


def _mean_difference(regrets: Regrets, *pairs: Pair) -> Difference | None:
    """Each pair has the same weight; None where one lacks a side."""
    if not all(side in regrets for pair in pairs for side in pair):
        return None
    return welch_over_strata([(regrets[ours], regrets[theirs]) for ours, theirs in pairs])


def _rows_of_shooting(title: str, regrets: Regrets) -> list[GainRow]:
    pairs = {critic: ((critic, SHOOTING), (critic, ONCE)) for critic in CRITICS}
    rows = []
    for critic, pair in pairs.items():
        shooting, once = (regrets.get(side) for side in pair)
        rows.append(GainRow(title, critic, once, shooting, _mean_difference(regrets, pair)))
    mean = _mean_difference(regrets, *(pairs[critic] for critic in THREE))
    rows.insert(len(THREE), GainRow(title, "mean of these three", None, None, mean))
    return [row for row in rows if row.once or row.shooting or row.overall]


def _rows_of_critic(title: str, regrets: Regrets) -> list[GainRow]:
    rows = []
    for critic in (ONE, TWO):
        pairs = [((OURS, shots), (critic, shots)) for shots in (ONCE, SHOOTING)]
        once, shooting = (_mean_difference(regrets, pair) for pair in pairs)
        rows.append(GainRow(title, critic, once, shooting, _mean_difference(regrets, *pairs)))
    return [row for row in rows if row.once or row.shooting]
