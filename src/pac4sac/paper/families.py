"""Which variants are the rows of the paper's tables and the boxes of its figure, and in which
families all are tested.

Rows are found by their settings, not by their names: the four algorithms as our reading of the
paper has them, the four combinations of loss terms, the numbers of shots. Runs in miniature, of the
smoke study say, fill the rows too, and are then marked as not comparable. A test is corrected for
the others of its family, and each variant is in one."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from pac4sac.base.text import assignments
from pac4sac.paper.numbers import (
    ALGORITHMS,
    PAPER_TASKS,
    TABLE_1,
    TABLE_2,
    TERM_TITLES,
    PaperCell,
    shipped_study,
)
from pac4sac.report.comparison import Context, Family, first_with_results
from pac4sac.report.looks import KNOWN
from pac4sac.report.variants import TaskView, Variant, defaults, variants_by_task
from pac4sac.runs.collection import Collection, FoundStudy

# By whether the conservative and the exploration term are switched on.
TERMS = {
    (c, x): "bellman" + c * "+conservative" + x * "+exploration"
    for c in (False, True)
    for x in (False, True)
}
FULL = TERMS[True, True]
SHOOTING_TASK = "cartpole-swingup"
PAPER_SHOTS = 500
HORIZON = 1000  # of the paper's tasks
XI, CONSERVATIVE = 0.01, 1.0  # of a term that is switched on
SWEPT = ("xi", "conservative", "shots")
CONTROLS, BEYOND, BEST, OTHERS, PUBLISHED = "controls", "beyond", "best", "others", "published"
STUDY_TITLES = {
    CONTROLS: "Controls",
    BEYOND: "Beyond the paper",
    BEST: "The preset `best`",
    OTHERS: "Other runs",
}
OF_TABLE_1, OF_TABLE_2, SHOTS = "Algorithms of Table 1", "Loss terms of Table 2", "Numbers of shots"
ALL = "All variants"
ORDER = ("pac4sac", "ddpg", "sac", "oac")  # of variants, before all others
# Rows of Table 1 that read once more what the paper leaves open about a rival, by algorithm and
# preset; the paper's numbers are set beside both readings.
READINGS = {"sac-calibrated": ("sac", "calibrated")}


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
        again = {
            row: algo
            for row, (algo, _) in READINGS.items()
            if any(found == row for _, found in self.table_1)
        }
        algorithms = ALGORITHMS | {row: KNOWN[row].name for row in again}
        printed = {
            task: cells | {row: cells[algo] for row, algo in again.items()}
            for task, cells in TABLE_1.items()
        }
        return [
            PaperTable(
                "table-1",
                "Table 1: the four algorithms",
                "Algorithm",
                algorithms,
                printed,
                self.table_1,
            ),
            PaperTable("table-2", terms, "Loss terms", TERM_TITLES, TABLE_2, self.table_2, free),
        ]


def task_differences(task: TaskView) -> list[str]:
    """In what it is not the paper's task."""
    paper = PAPER_TASKS.get(task.name)
    if paper is None:
        return ["the paper has no such task"]
    wanted = {
        "horizon": HORIZON,
        "r_limit": paper.r_limit,
        "steps": paper.e_max * HORIZON,
        "env_kwargs": {},
    }
    return assignments(
        {key: task.settings[key] for key, value in wanted.items() if task.settings[key] != value}
    )


def departures(variant: Variant, free: Sequence[str] = ()) -> list[str]:
    """In what it is not the paper's setting, but for settings that are free."""
    is_a_reading = any(has_settings(variant, *reading, {}) for reading in READINGS.values())
    changed = (
        {}
        if is_a_reading
        else {n: value for n, value in variant.departures.items() if n not in free}
    )
    return [*task_differences(variant.task), *assignments(changed)]


def find_paper_rows(variants: Mapping[str, Sequence[Variant]]) -> PaperRows:
    table_1: dict[tuple[str, str], Variant] = {}
    table_2: dict[tuple[str, str], Variant] = {}
    shooting: dict[int, Variant] = {}
    on_tasks = [members for members in variants.values() if members[0].task.name in PAPER_TASKS]

    def rank(members: Sequence[Variant]) -> tuple[int, int, str]:
        """The task as the paper has it before any that was changed."""
        task = members[0].task
        return list(PAPER_TASKS).index(task.name), len(task_differences(task)), task.title

    for members in sorted(on_tasks, key=rank):
        name = members[0].task.name
        # Another preset is no reading of the paper, not even where nothing nearer to it was
        # trained.
        results = [
            variant for variant in members if variant.is_result and variant.preset == "paper"
        ]
        family = _family([variant for variant in results if variant.algo == "pac4sac"])
        main = _main_shots(family)
        for variant in family:
            terms = TERMS[variant.config["conservative"] > 0, variant.config["xi"] > 0]
            is_main = variant.config["shots"] == main
            if is_main and name in TABLE_2:
                table_2.setdefault((name, terms), variant)
            if name == SHOOTING_TASK and terms == FULL:
                shooting.setdefault(variant.config["shots"], variant)
            if is_main and terms == FULL:
                table_1.setdefault((name, "pac4sac"), variant)
        # As our reading of the paper has it, or at least called by the algorithm's name alone.
        plain = [
            v for v in results if v.algo in ALGORITHMS and (not v.departures or v.algo in v.labels)
        ]
        for variant in sorted(
            plain, key=lambda v: (list(ALGORITHMS).index(v.algo), len(v.departures))
        ):
            table_1.setdefault((name, variant.algo), variant)
        read_again = product(
            READINGS.items(), (variant for variant in members if variant.is_result)
        )
        table_1 |= {
            (name, row): v for (row, reading), v in read_again if has_settings(v, *reading, {})
        }
    only_full = all(terms == FULL for _, terms in table_2)
    return PaperRows(table_1, {} if only_full else table_2, shooting if len(shooting) > 1 else {})


def _family(variants: Sequence[Variant]) -> list[Variant]:
    """Variants alike but for loss terms and shots: those nearest to the paper's settings, or else
    the most."""
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
    """The S at which the loss terms are compared: the paper's, else the one of the plain name, else
    the only one."""
    shots = [variant.config["shots"] for variant in family]
    if PAPER_SHOTS in shots:
        return PAPER_SHOTS
    named = [variant.config["shots"] for variant in family if variant.algo in variant.labels]
    several = sorted({s for s in shots if shots.count(s) > 1}, reverse=True)
    return next(iter([*named, *several]), shots[0] if len(set(shots)) == 1 else None)


# --- families


@dataclass(frozen=True)
class PaperContext(Context):
    rows: PaperRows
    is_about_paper: bool


def context_of(collection: Collection) -> PaperContext:
    variants = variants_by_task(collection.runs, list(PAPER_TASKS), ORDER)
    rows = find_paper_rows(variants)
    # A comparison is about the question of the one who made it, also on a task that the paper has.
    kinds = {study.kind for study in collection.studies}
    is_about_paper = bool(kinds - {"comparison", PUBLISHED, ""}) or (not kinds and bool(rows.all))
    rows = rows if is_about_paper else PaperRows({}, {}, {})
    ours = {
        variant.task.title: variant
        for (_, algo), variant in rows.table_1.items()
        if algo == "pac4sac"
    }
    context = PaperContext(
        collection,
        variants,
        families={},
        baselines={},
        references=ours,
        rows=rows,
        is_about_paper=is_about_paper,
    )
    return replace(
        context,
        families={title: families_of(context, title) for title in variants},
        baselines={
            title: find_baseline(collection.studies, context.results(title)) for title in variants
        },
    )


def families_of(context: PaperContext, task: str) -> list[Family]:
    """Of the results on one task, each in the first family that has it."""
    if not context.is_about_paper:
        return [Family(ALL, results)] if (results := context.results(task)) else []
    rows, of_study = context.rows, partial(study_members, context, task=task)
    wanted: dict[str, Iterable[Variant]] = {
        OF_TABLE_1: rows.table_1.values(),
        OF_TABLE_2: rows.table_2.values(),
        # S = 1 is a control wherever there are controls, as on their own page; the shots are
        # compared with it.
        STUDY_TITLES[CONTROLS]: of_study(CONTROLS),
        SHOTS: rows.shooting.values(),
        **{STUDY_TITLES[kind]: of_study(kind) for kind in (BEYOND, BEST, OTHERS)},
    }
    first = {
        variant: title for title, candidates in reversed(wanted.items()) for variant in candidates
    }
    members = {
        title: [v for v in context.results(task) if first.get(v) == title] for title in wanted
    }
    families = [Family(title, variants) for title, variants in members.items() if variants]
    return [Family(ALL, families[0].members)] if len(families) == 1 else families


def study_members(context: PaperContext, kind: str, task: str) -> list[Variant]:
    """The results on one task that a study of this kind has, or that neither a study nor a table
    has."""
    asked = {
        study.name: study.kind for study in context.collection.studies if study.kind in STUDY_TITLES
    }

    def belongs(variant: Variant) -> bool:
        kinds = {asked[name] for name in variant.studies if name in asked}
        # trained by hand: the studies of the package may know it
        if not kinds and variant not in context.rows.all:
            kinds = {
                next(
                    (known for known in (CONTROLS, BEYOND, BEST) if _is_shipped(variant, known)),
                    OTHERS,
                )
            }
        # The preset meets all that its study sets it against, whoever trained it.
        return kind in kinds or (kind == BEST and _is_shipped(variant, BEST))

    return [variant for variant in context.results(task) if belongs(variant)]


def is_preset_best(variant: Variant) -> bool:
    """By its settings: runs of the preset with some of them changed have the same label."""
    return has_settings(variant, "pac4sac", "best", {})


def _is_shipped(variant: Variant, study: str) -> bool:
    about = shipped_study(study)
    return any(
        variant.task.name in block.get("tasks", about["tasks"])
        and has_settings(variant, block["algo"], block.get("preset", "paper"), block.get("set", {}))
        for block in about["variant"]
    )


def has_settings(variant: Variant, algo: str, preset: str, changes: Mapping[str, Any]) -> bool:
    return variant.algo == algo and variant.config == {
        **defaults(algo, preset, variant.task.settings),
        **changes,
    }


def find_baseline(
    studies: Sequence[FoundStudy], variants: Sequence[Variant], kind: str | None = None
) -> Variant | None:
    """The one the studies name (that of `kind` first), else SAC, else PAC4SAC, else the first with
    results; but where the preset `best` is asked about, it or none."""
    if kind == BEST:
        return first_with_results([variant for variant in variants if is_preset_best(variant)])
    ranked = sorted(studies, key=lambda study: (study.kind != (kind or "table-1"), study.name))
    named = [study.baseline for study in ranked if study.baseline and kind in (None, study.kind)]
    return first_with_results(variants, [*named, *(["pac4sac"] if kind else []), "sac", "pac4sac"])


def coverage_baseline(studies: Sequence[FoundStudy], variants: Sequence[Variant]) -> Variant | None:
    """PAC4SAC as the paper has it, whose parts are said to foster exploration; without it, the
    studies' own."""
    ours = (variant for variant in variants if variant.algo == "pac4sac" and not variant.departures)
    return next(ours, None) or find_baseline(studies, variants)
