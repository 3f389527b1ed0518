"""The context of the paper's report: rows of its tables and groups of variants. p-values are
corrected within a group, and each variant is in one group."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from pac4sac.paper.numbers import PAPER_TASKS
from pac4sac.paper.rows import OURS, PRESET, PaperRows, find_paper_rows, find_settings, has_settings
from pac4sac.report.comparison import Context, VariantGroup, first_with_results
from pac4sac.report.grouping import variants_by_task
from pac4sac.report.report import ALL_VARIANTS
from pac4sac.report.variants import Variant
from pac4sac.runs.collection import Collection, FoundStudy
from pac4sac.studies.shipped import shipped_study

CONTROLS, BEYOND, BEST, OTHERS, PUBLISHED = "controls", "beyond", "best", "others", "published"
STUDY_TITLES = {
    CONTROLS: "Controls",
    BEYOND: "Beyond the paper",
    BEST: "The preset `best`",
    OTHERS: "Other runs",
}
OF_TABLE_1, OF_TABLE_2, SHOTS = "Algorithms of Table 1", "Loss terms of Table 2", "Numbers of shots"
ORDER = ("pac4sac", "ddpg", "sac", "oac")  # these variants come before all others


@dataclass(frozen=True)
class PaperContext(Context):
    """Hold the data of all sections of the paper's report."""

    rows: PaperRows


def context_of(collection: Collection) -> PaperContext:
    """Return the context of a report on these runs: variants, rows, groups and baselines."""
    variants = variants_by_task(collection.runs, list(PAPER_TASKS), ORDER)
    rows = find_paper_rows(variants)
    ours = {v.task.title: v for (_, algo), v in rows.table_1.items() if algo == OURS}
    context = PaperContext(
        collection, variants, groups={}, baselines={}, companions=ours, rows=rows
    )
    studies = collection.studies
    return replace(
        context,
        groups={title: groups_of(context, title) for title in variants},
        baselines={title: find_baseline(studies, context.results(title)) for title in variants},
    )


def groups_of(context: PaperContext, task: str) -> list[VariantGroup]:
    """Return the groups of the results on one task; a variant joins the first group that fits."""
    rows = context.rows
    of_study = partial(study_members, context, task=task)
    # Variants with one candidate are controls too, so the section on controls also shows them.
    candidates: dict[str, Iterable[Variant]] = {
        OF_TABLE_1: rows.table_1.values(),
        OF_TABLE_2: rows.table_2.values(),
        STUDY_TITLES[CONTROLS]: of_study(CONTROLS),
        SHOTS: rows.shooting.values(),
        STUDY_TITLES[BEYOND]: of_study(BEYOND),
        STUDY_TITLES[BEST]: of_study(BEST),
        STUDY_TITLES[OTHERS]: of_study(OTHERS),
    }
    groups = []
    left = context.results(task)
    for title, variants in candidates.items():
        chosen = set(variants)
        if members := [variant for variant in left if variant in chosen]:
            groups.append(VariantGroup(title, members))
            left = [variant for variant in left if variant not in chosen]
    return [VariantGroup(ALL_VARIANTS, groups[0].members)] if len(groups) == 1 else groups


def study_members(context: PaperContext, kind: str, task: str) -> list[Variant]:
    """Return the results of studies of this kind on one task."""
    return [v for v in context.results(task) if kind in _study_kinds(context, v)]


def _study_kinds(context: PaperContext, variant: Variant) -> set[str]:
    """Return the kinds of the studies with this variant or, if no study or table has it, the kind
    of the shipped study with its settings."""
    by_name = {study.name: study.kind for study in context.collection.studies}
    kinds = {by_name[name] for name in variant.studies if by_name.get(name) in STUDY_TITLES}
    if not kinds and variant not in context.rows.all:
        kinds = {_kind_by_settings(variant)}
    # The preset is compared with all variants that its study names, whichever study trained them.
    return kinds | {BEST} if _is_shipped(variant, BEST) else kinds


def _kind_by_settings(variant: Variant) -> str:
    """Return the kind of the shipped study that has the settings of a run trained by hand."""
    return next((kind for kind in (CONTROLS, BEYOND, BEST) if _is_shipped(variant, kind)), OTHERS)


def is_preset_best(variant: Variant) -> bool:
    """Return whether a variant is the unchanged preset `best`, whatever its label."""
    return has_settings(variant, OURS, "best", {})


def _is_shipped(variant: Variant, study: str) -> bool:
    definition = shipped_study(study)
    return any(_is_block(variant, block, definition) for block in definition["variant"])


def _is_block(variant: Variant, block: dict[str, Any], definition: dict[str, Any]) -> bool:
    tasks = block.get("tasks", definition["tasks"])
    preset, settings = block.get("preset", PRESET), block.get("set", {})
    return variant.task.name in tasks and has_settings(variant, block["algo"], preset, settings)


def find_baseline(studies: Sequence[FoundStudy], variants: Sequence[Variant]) -> Variant | None:
    """Return the baseline named by the studies of these variants (Table 1 first), else SAC, else
    PAC4SAC, else the first variant with results."""
    present = {name for variant in variants for name in variant.studies}
    own = [study for study in studies if study.name in present]
    table_1_first = sorted(own, key=lambda study: (study.kind != "table-1", study.name))
    named = [study.baseline for study in table_1_first if study.baseline]
    return first_with_results(variants, [*named, "sac", OURS])


def study_baseline(
    studies: Sequence[FoundStudy], variants: Sequence[Variant], kind: str
) -> Variant | None:
    """Return the baseline named by studies of this kind, else PAC4SAC, else SAC, else the first
    variant with results. For the study of the preset `best`, return only the preset."""
    if kind == BEST:
        return first_with_results([variant for variant in variants if is_preset_best(variant)])
    by_name = sorted(studies, key=attrgetter("name"))
    named = [study.baseline for study in by_name if study.kind == kind and study.baseline]
    return first_with_results(variants, [*named, OURS, "sac"])


def coverage_baseline(studies: Sequence[FoundStudy], variants: Sequence[Variant]) -> Variant | None:
    """Return PAC4SAC with the paper's settings, or the baseline of the studies if it is missing."""
    return find_settings(variants, OURS, PRESET, {}) or find_baseline(studies, variants)
