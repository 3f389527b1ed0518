"""Which groups of runs are the rows of the paper's tables and the boxes of its figure.

Rows are found by their settings, not by their names: the four algorithms as our reading of the paper has them, the
four combinations of loss terms, the numbers of shots. Runs in miniature, of the smoke study say, fill the rows too,
and are then marked as not comparable.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pac4sac.paper.numbers import PAPER_TASKS, TABLE_2
from pac4sac.report.variants import Group

ALGORITHMS = {"ddpg": "DDPG", "sac": "SAC", "oac": "OAC", "pac4sac": "PAC4SAC"}
TASKS = {"cartpole-swingup": "Cartpole Swingup", "half-cheetah": "Half Cheetah", "ant": "Ant", "humanoid": "Humanoid"}
# By whether the conservative and the exploration term are switched on.
TERMS = {
    (False, False): "bellman",
    (True, False): "bellman+conservative",
    (False, True): "bellman+exploration",
    (True, True): "bellman+conservative+exploration",
}
SHOOTING_TASK = "cartpole-swingup"
PAPER_SHOTS = 500
XI, CONSERVATIVE = 0.01, 1.0  # of a term that is switched on
SWEPT = ("xi", "conservative", "shots")


@dataclass(frozen=True)
class PaperRows:
    table_1: Mapping[tuple[str, str], Group]  # by task and algorithm
    table_2: Mapping[tuple[str, str], Group]  # by task and loss terms
    shooting: Mapping[int, Group]  # by S

    def taken(self, group: Group) -> bool:
        rows = (*self.table_1.values(), *self.table_2.values(), *self.shooting.values())
        return any(group is row for row in rows)


def find_paper_rows(groups: Mapping[str, Sequence[Group]]) -> PaperRows:
    table_1: dict[tuple[str, str], Group] = {}
    table_2: dict[tuple[str, str], Group] = {}
    shooting: dict[int, Group] = {}
    for name in PAPER_TASKS:
        views = [found for found in groups.values() if found[0].task.name == name]
        # The task as the paper has it before any that was changed.
        for found in sorted(views, key=lambda found: (len(found[0].task.differences), found[0].task.title)):
            # Another preset is no reading of the paper, not even where nothing nearer to it was trained.
            results = [group for group in found if group.is_result and group.preset == "paper"]
            family = _family([group for group in results if group.algo == "pac4sac"])
            main = _main_shots(family)
            for group in family:
                terms = TERMS[group.config["conservative"] > 0, group.config["xi"] > 0]
                if group.config["shots"] == main and name in TABLE_2:
                    table_2.setdefault((name, terms), group)
                if name == SHOOTING_TASK and terms == TERMS[True, True]:
                    shooting.setdefault(group.config["shots"], group)
                if group.config["shots"] == main and terms == TERMS[True, True]:
                    table_1.setdefault((name, "pac4sac"), group)
            for algo in ALGORITHMS:
                plain = [group for group in results if group.algo == algo and _is_plain(group)]
                for group in sorted(plain, key=lambda group: len(group.departures)):
                    table_1.setdefault((name, algo), group)
    only_full = all(terms == TERMS[True, True] for _, terms in table_2)
    return PaperRows(table_1, {} if only_full else table_2, shooting if len(shooting) > 1 else {})


def _is_plain(group: Group) -> bool:
    """As our reading of the paper has it, or at least called by the algorithm's name alone."""
    return not group.departures or group.algo in group.labels


def _family(groups: Sequence[Group]) -> list[Group]:
    """Groups alike but for loss terms and shots: those nearest to the paper's settings, or else the most."""
    families: dict[str, list[Group]] = {}
    for group in groups:
        c = group.config
        if "shots" in c and c.get("xi") in (0, XI) and c.get("conservative") in (0, CONSERVATIVE):
            rest = {name: value for name, value in group.config.items() if name not in SWEPT}
            families.setdefault(json.dumps(rest, sort_keys=True), []).append(group)

    def rank(family: list[Group]) -> tuple[int, int, str]:
        departures = min(len(set(group.departures) - set(SWEPT)) for group in family)
        return (departures, -len(family), family[0].label)

    return min(families.values(), key=rank, default=[])


def _main_shots(family: Sequence[Group]) -> int | None:
    """The S at which the loss terms are compared: the paper's, else the one of the plain name, else the only one."""
    shots = [group.config["shots"] for group in family]
    if PAPER_SHOTS in shots:
        return PAPER_SHOTS
    named = [group.config["shots"] for group in family if group.algo in group.labels]
    several = sorted({s for s in shots if shots.count(s) > 1}, reverse=True)
    return next(iter([*named, *several]), shots[0] if len(set(shots)) == 1 else None)
