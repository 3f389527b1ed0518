"""The context of the paper's report: rows of its tables, and groups of variants that are tested
together. A p-value is corrected for the others of its group, and each variant is in one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pac4sac.paper.numbers import PAPER_TASKS
from pac4sac.paper.rows import OURS, PRESET, PaperRows, find_paper_rows, has_settings
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
ORDER = ("pac4sac", "ddpg", "sac", "oac")  # of variants, before all others


@dataclass(frozen=True)
class PaperContext(Context):
    rows: PaperRows


def context_of(collection: Collection) -> PaperContext:
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
    """Return the groups of the results on one task, each in the first that has it."""
    rows = context.rows
    # S = 1 is a control wherever there are controls, as on their own page; the shots are compared
    # with it.
    wanted: dict[str, Iterable[Variant]] = {
        OF_TABLE_1: rows.table_1.values(),
        OF_TABLE_2: rows.table_2.values(),
        STUDY_TITLES[CONTROLS]: study_members(context, CONTROLS, task),
        SHOTS: rows.shooting.values(),
    }
    for kind in (BEYOND, BEST, OTHERS):
        wanted[STUDY_TITLES[kind]] = study_members(context, kind, task)
    first: dict[Variant, str] = {}
    for title, variants in wanted.items():
        for variant in variants:
            first.setdefault(variant, title)
    groups = []
    for title in wanted:
        members = [variant for variant in context.results(task) if first.get(variant) == title]
        if members:
            groups.append(VariantGroup(title, members))
    return [VariantGroup(ALL_VARIANTS, groups[0].members)] if len(groups) == 1 else groups


def study_members(context: PaperContext, kind: str, task: str) -> list[Variant]:
    """Return the results on one task that a study of this kind has, or that neither a study nor a
    table has."""
    kinds = {study.name: study.kind for study in context.collection.studies}
    asked = {name: kind for name, kind in kinds.items() if kind in STUDY_TITLES}

    def belongs(variant: Variant) -> bool:
        # The preset is compared with all that its study names, whichever study trained it.
        if kind == BEST and _is_shipped(variant, BEST):
            return True
        studies = {asked[name] for name in variant.studies if name in asked}
        if studies or variant in context.rows.all:
            return kind in studies
        return kind == _kind_by_settings(variant)

    return [variant for variant in context.results(task) if belongs(variant)]


def _kind_by_settings(variant: Variant) -> str:
    """Return the shipped study that has the settings of a run trained by hand."""
    return next((kind for kind in (CONTROLS, BEYOND, BEST) if _is_shipped(variant, kind)), OTHERS)


def is_preset_best(variant: Variant) -> bool:
    """By its settings: runs of the preset with some of them changed have the same label."""
    return has_settings(variant, OURS, "best", {})


def _is_shipped(variant: Variant, study: str) -> bool:
    definition = shipped_study(study)
    return any(_is_block(variant, block, definition) for block in definition["variant"])


def _is_block(variant: Variant, block: dict[str, Any], definition: dict[str, Any]) -> bool:
    tasks = block.get("tasks", definition["tasks"])
    preset, settings = block.get("preset", PRESET), block.get("set", {})
    return variant.task.name in tasks and has_settings(variant, block["algo"], preset, settings)


def find_baseline(
    studies: Sequence[FoundStudy], variants: Sequence[Variant], kind: str | None = None
) -> Variant | None:
    """Return the baseline that the studies name (of `kind` first), else SAC, else PAC4SAC, else the
    first with results; if the preset `best` is asked about, only that."""
    if kind == BEST:
        return first_with_results([variant for variant in variants if is_preset_best(variant)])
    ranked = sorted(studies, key=lambda study: (study.kind != (kind or "table-1"), study.name))
    named = [study.baseline for study in ranked if study.baseline and kind in (None, study.kind)]
    return first_with_results(variants, [*named, *([OURS] if kind else []), "sac", OURS])


def coverage_baseline(studies: Sequence[FoundStudy], variants: Sequence[Variant]) -> Variant | None:
    """Return PAC4SAC as the paper has it, whose parts are said to foster exploration; without it,
    the baseline of the studies."""
    ours = (variant for variant in variants if has_settings(variant, OURS, PRESET, {}))
    return next(ours, None) or find_baseline(studies, variants)
