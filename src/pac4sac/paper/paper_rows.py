"""Which variants are the rows of the paper's tables and the boxes of its figure.

Rows are found by their settings, not by their names: the four algorithms as our reading of the paper has them, the
four combinations of loss terms, the numbers of shots. Runs in miniature, of the smoke study say, fill the rows too,
and are then marked as not comparable.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pac4sac.base.text import setting_text
from pac4sac.paper.numbers import ALGORITHMS, PAPER_TASKS, TABLE_1, TABLE_2, TERM_TITLES, PaperCell
from pac4sac.report.variants import TaskView, Variant

# By whether the conservative and the exploration term are switched on.
TERMS = {(c, x): "bellman" + c * "+conservative" + x * "+exploration" for c in (False, True) for x in (False, True)}
SHOOTING_TASK = "cartpole-swingup"
PAPER_SHOTS = 500
HORIZON = 1000  # of the paper's tasks
XI, CONSERVATIVE = 0.01, 1.0  # of a term that is switched on
SWEPT = ("xi", "conservative", "shots")


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, and our variants in their places in it."""

    name: str  # that of its study too
    title: str
    head: str  # of the rows
    titles: Mapping[str, str]  # of the rows, by their names
    printed: Mapping[str, Mapping[str, PaperCell]]  # by task, then row
    variants: Mapping[tuple[str, str], Variant]  # by task and row
    free: Sequence[str] = ()  # settings that make the rows, so no departures from the paper's


@dataclass(frozen=True)
class PaperRows:
    table_1: Mapping[tuple[str, str], Variant]  # by task and algorithm
    table_2: Mapping[tuple[str, str], Variant]  # by task and loss terms
    shooting: Mapping[int, Variant]  # by S

    @property
    def all(self) -> list[Variant]:
        return [*self.table_1.values(), *self.table_2.values(), *self.shooting.values()]

    @property
    def tables(self) -> list[PaperTable]:
        terms, free = "Table 2: the terms of the critic's loss", ("xi", "conservative")
        return [
            PaperTable("table-1", "Table 1: the four algorithms", "Algorithm", ALGORITHMS, TABLE_1, self.table_1),
            PaperTable("table-2", terms, "Loss terms", TERM_TITLES, TABLE_2, self.table_2, free),
        ]


def task_differences(task: TaskView) -> list[str]:
    """In what it is not the paper's task."""
    paper = PAPER_TASKS.get(task.name)
    if paper is None:
        return ["the paper has no such task"]
    wanted = {"horizon": HORIZON, "r_limit": paper.r_limit, "steps": paper.e_max * HORIZON, "env_kwargs": {}}
    return [f"{key}={setting_text(task.settings[key])}" for key, value in wanted.items() if task.settings[key] != value]


def departures(variant: Variant, free: Sequence[str] = ()) -> list[str]:
    """In what it is not the paper's setting, but for settings that are free."""
    changed = {name: value for name, value in variant.departures.items() if name not in free}
    return [*task_differences(variant.task), *(f"{name}={setting_text(value)}" for name, value in changed.items())]


def find_paper_rows(variants: Mapping[str, Sequence[Variant]]) -> PaperRows:
    table_1: dict[tuple[str, str], Variant] = {}
    table_2: dict[tuple[str, str], Variant] = {}
    shooting: dict[int, Variant] = {}
    on_tasks = [members for members in variants.values() if members[0].task.name in PAPER_TASKS]
    # The task as the paper has it before any that was changed.
    on_tasks.sort(key=lambda members: (len(task_differences(members[0].task)), members[0].task.title))
    on_tasks.sort(key=lambda members: list(PAPER_TASKS).index(members[0].task.name))
    for members in on_tasks:
        name = members[0].task.name
        # Another preset is no reading of the paper, not even where nothing nearer to it was trained.
        results = [variant for variant in members if variant.is_result and variant.preset == "paper"]
        family = _family([variant for variant in results if variant.algo == "pac4sac"])
        main = _main_shots(family)
        for variant in family:
            terms = TERMS[variant.config["conservative"] > 0, variant.config["xi"] > 0]
            if variant.config["shots"] == main and name in TABLE_2:
                table_2.setdefault((name, terms), variant)
            if name == SHOOTING_TASK and terms == TERMS[True, True]:
                shooting.setdefault(variant.config["shots"], variant)
            if variant.config["shots"] == main and terms == TERMS[True, True]:
                table_1.setdefault((name, "pac4sac"), variant)
        plain = [variant for variant in results if variant.algo in ALGORITHMS and _is_plain(variant)]
        for variant in sorted(plain, key=lambda v: (list(ALGORITHMS).index(v.algo), len(v.departures))):
            table_1.setdefault((name, variant.algo), variant)
    only_full = all(terms == TERMS[True, True] for _, terms in table_2)
    return PaperRows(table_1, {} if only_full else table_2, shooting if len(shooting) > 1 else {})


def _is_plain(variant: Variant) -> bool:
    """As our reading of the paper has it, or at least called by the algorithm's name alone."""
    return not variant.departures or variant.algo in variant.labels


def _family(variants: Sequence[Variant]) -> list[Variant]:
    """Variants alike but for loss terms and shots: those nearest to the paper's settings, or else the most."""
    families: dict[str, list[Variant]] = {}
    for variant in variants:
        c = variant.config
        if "shots" in c and c.get("xi") in (0, XI) and c.get("conservative") in (0, CONSERVATIVE):
            rest = {name: value for name, value in variant.config.items() if name not in SWEPT}
            families.setdefault(json.dumps(rest, sort_keys=True), []).append(variant)

    def rank(family: list[Variant]) -> tuple[int, int, str]:
        departures = min(len(set(variant.departures) - set(SWEPT)) for variant in family)
        return (departures, -len(family), family[0].label)

    return min(families.values(), key=rank, default=[])


def _main_shots(family: Sequence[Variant]) -> int | None:
    """The S at which the loss terms are compared: the paper's, else the one of the plain name, else the only one."""
    shots = [variant.config["shots"] for variant in family]
    if PAPER_SHOTS in shots:
        return PAPER_SHOTS
    named = [variant.config["shots"] for variant in family if variant.algo in variant.labels]
    several = sorted({s for s in shots if shots.count(s) > 1}, reverse=True)
    return next(iter([*named, *several]), shots[0] if len(set(shots)) == 1 else None)
