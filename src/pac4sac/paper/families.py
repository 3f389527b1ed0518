"""What all sections of a report are made of, with what this paper adds: rows of its tables, and families of variants. A
test is corrected for the others of its family, and each variant is in one of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pac4sac.paper.numbers import PAPER_TASKS, shipped_study
from pac4sac.paper.paper_rows import TERMS, PaperRows, find_paper_rows
from pac4sac.report.comparison import Context, Family, first_with_results
from pac4sac.report.variants import Variant, defaults, variants_by_task
from pac4sac.runs.collection import Collection, FoundStudy

CONTROLS, BEYOND, BEST, OTHERS = "controls", "beyond", "best", "others"
STUDY_TITLES = {CONTROLS: "Controls", BEYOND: "Beyond the paper", BEST: "The preset `best`", OTHERS: "Other runs"}
TABLE_1, TABLE_2, SHOTS = "Algorithms of Table 1", "Loss terms of Table 2", "Numbers of shots"
ALL = "All variants"
ORDER = ("pac4sac", "ddpg", "sac", "oac")  # of variants, before all others


@dataclass(frozen=True)
class PaperContext(Context):
    rows: PaperRows


def context_of(collection: Collection) -> PaperContext:
    variants = variants_by_task(collection.runs, list(PAPER_TASKS), ORDER)
    rows = find_paper_rows(variants)
    ours = {variant.task.title: variant for (_, algo), variant in rows.table_1.items() if algo == "pac4sac"}
    context = PaperContext(collection, variants, families={}, baselines={}, references=ours, rows=rows)
    return replace(
        context,
        families={title: families_of(context, title) for title in variants},
        baselines={title: find_baseline(collection.studies, context.results(title)) for title in variants},
    )


def families_of(context: PaperContext, task: str) -> list[Family]:
    """Of the results on one task, each in the first family that has it."""
    rows, of_study = context.rows, partial(study_members, context, task=task)
    wanted: dict[str, Iterable[Variant]] = {
        TABLE_1: rows.table_1.values(),
        TABLE_2: rows.table_2.values(),
        # S = 1 is a control wherever there are controls, as on their own page; the shots are compared with it.
        STUDY_TITLES[CONTROLS]: of_study(CONTROLS),
        SHOTS: rows.shooting.values(),
        **{STUDY_TITLES[kind]: of_study(kind) for kind in (BEYOND, BEST, OTHERS)},
    }
    first = {variant: title for title, candidates in reversed(wanted.items()) for variant in candidates}
    members = {title: [v for v in context.results(task) if first.get(v) == title] for title in wanted}
    families = [Family(title, variants) for title, variants in members.items() if variants]
    return [Family(ALL, families[0].members)] if len(families) == 1 else families


def study_members(context: PaperContext, kind: str, task: str) -> list[Variant]:
    """The results on one task that a study of this kind has, or that neither a study nor a table has."""
    asked = {study.name: study.kind for study in context.collection.studies if study.kind in STUDY_TITLES}

    def belongs(variant: Variant) -> bool:
        kinds = {asked[name] for name in variant.studies if name in asked}
        if not kinds and variant not in context.rows.all:  # trained by hand: the studies of the package may know it
            kinds = {next((known for known in (CONTROLS, BEYOND, BEST) if _is_shipped(variant, known)), OTHERS)}
        # The preset meets all that its study sets it against, whoever trained it.
        return kind in kinds or (kind == BEST and _is_shipped(variant, BEST))

    return [variant for variant in context.results(task) if belongs(variant)]


def is_preset_best(variant: Variant) -> bool:
    """By its settings: runs of the preset with some of them changed have the same label."""
    return _has_settings(variant, "pac4sac", "best", {})


def _is_shipped(variant: Variant, study: str) -> bool:
    about = shipped_study(study)
    return any(
        variant.task.name in block.get("tasks", about["tasks"])
        and _has_settings(variant, block["algo"], block.get("preset", "paper"), block.get("set", {}))
        for block in about["variant"]
    )


def _has_settings(variant: Variant, algo: str, preset: str, changes: dict[str, Any]) -> bool:
    return variant.algo == algo and variant.config == defaults(algo, preset, variant.task) | changes


def find_baseline(
    studies: Sequence[FoundStudy], variants: Sequence[Variant], kind: str | None = None
) -> Variant | None:
    """The one the studies name (that of `kind` first), else SAC, else PAC4SAC, else the first with results; but where
    the preset `best` is asked about, it or none."""
    if kind == BEST:
        return first_with_results([variant for variant in variants if is_preset_best(variant)])
    ranked = sorted(studies, key=lambda study: (study.kind != (kind or "table-1"), study.name))
    named = [study.baseline for study in ranked if study.baseline and kind in (None, study.kind)]
    return first_with_results(variants, [*named, *(["pac4sac"] if kind else []), "sac", "pac4sac"])


def coverage_baseline(studies: Sequence[FoundStudy], variants: Sequence[Variant]) -> Variant | None:
    """PAC4SAC as the paper has it, whose parts are said to foster exploration; without it, the studies' own."""
    ours = (variant for variant in variants if variant.algo == "pac4sac" and not variant.departures)
    return next(ours, None) or find_baseline(studies, variants)


def family_baseline(context: PaperContext, family: Family) -> Variant | None:
    """What its study asks about: all three terms, S = 1, or what the studies name."""
    task, rows = family.members[0].task, context.rows
    results = context.results(task.title)
    asked = {TABLE_2: rows.table_2.get((task.name, TERMS[True, True])), SHOTS: rows.shooting.get(1)}.get(family.title)
    if asked and asked in results and asked.has_results:
        return asked
    kind = next((kind for kind, title in STUDY_TITLES.items() if title == family.title), None)
    return find_baseline(context.collection.studies, results, kind)
