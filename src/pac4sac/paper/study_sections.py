"""Sections on questions that the paper does not ask: controls, changes beyond the paper, and the
preset `best`."""

from collections.abc import Sequence

from pac4sac.base.grouping import group_by
from pac4sac.base.text import file_name
from pac4sac.paper.ablation import ablation_tables
from pac4sac.paper.groups import (
    BEST,
    CONTROLS,
    OF_TABLE_1,
    OTHERS,
    STUDY_TITLES,
    PaperContext,
    is_preset_best,
    study_baseline,
    study_members,
)
from pac4sac.paper.numbers import TABLE_1, TASKS, TEXTS
from pac4sac.paper.rows import PaperTable, task_differences
from pac4sac.paper.table_sections import ComparedCell, compared_blocks
from pac4sac.report.answers import ranking_picture
from pac4sac.report.comparison import BETTER, Compared, compare_headline, comparison_table, tally
from pac4sac.report.provenance import mixtures
from pac4sac.report.sentences import listed
from pac4sac.report.tables import TEXTS as GENERAL_TEXTS
from pac4sac.report.tables import Block, Section
from pac4sac.report.variants import METRICS as ALL_METRICS
from pac4sac.report.variants import Variant


def study_sections(context: PaperContext) -> list[Section]:
    """Return a section for each kind of study that has results."""
    family = TEXTS["studies"]["family"].format(**GENERAL_TEXTS)
    sections = []
    for kind, title in STUDY_TITLES.items():
        blocks = _first_blocks(context, kind)
        for task in context.variants:
            blocks += _study_on_task(context, kind, task)
        if blocks:
            intro = f"{TEXTS['studies'][kind]} {family}"
            sections.append(Section(kind, title, [intro, *blocks]))
    return sections


def _first_blocks(context: PaperContext, kind: str) -> list[Block]:
    """Return the blocks that a section shows before its tasks."""
    if kind == BEST:
        return _preset_blocks(context)
    if kind == CONTROLS and (tables := ablation_tables(context)):
        return [TEXTS["studies"]["gain"], *tables]
    return []


def compare_study(context: PaperContext, kind: str, title: str) -> list[Compared]:
    """Return the comparisons of studies of this kind on a task, baseline first."""
    results = context.results(title)
    members = study_members(context, kind, title)
    if kind == OTHERS and len(members) == len(results):
        return []  # the section on the task shows the same comparisons
    baseline = study_baseline(context.collection.studies, results, kind)
    others = [variant for variant in members if variant is not baseline]
    if baseline is None or not others:
        return []
    compared = compare_headline([baseline, *others], baseline, STUDY_TITLES[kind])
    if kind == CONTROLS:
        compared += _sac_with_controls(context, results, [baseline, *others])
    return compared


def compare_study_on_all_tasks(context: PaperContext, kind: str) -> list[Compared]:
    """Return the comparisons of studies of this kind, task by task."""
    return [row for title in context.variants for row in compare_study(context, kind, title)]


def _sac_with_controls(
    context: PaperContext, results: Sequence[Variant], members: Sequence[Variant]
) -> list[Compared]:
    """Return SAC next to its controls, with the verdict of the group in which it is tested."""
    table_1 = context.rows.table_1.values()
    others = [variant for variant in results if variant in table_1 and variant not in members]
    if not others:
        return []
    rows = compare_headline(others, members[0], OF_TABLE_1)
    return [row for row in rows if row.variant.algo == "sac"]


def _study_on_task(context: PaperContext, kind: str, title: str) -> list[Block]:
    """Return the blocks of a section on one task: verdicts, figure and table."""
    compared = compare_study(context, kind, title)
    if not compared:
        return []
    baseline, name = compared[0].variant, f"{kind}-{file_name(title)}"
    heading = f"{STUDY_TITLES[kind]} on {title}"
    picture = ranking_picture(context, name, heading.replace("`", ""), compared)
    return [
        tally(compared, f"On {title},"),
        *([picture] if picture else []),
        comparison_table(name, heading, compared, baseline.task),
        *mixtures([row.variant for row in compared]),
    ]


def _preset_blocks(context: PaperContext) -> list[Block]:
    """Return the comparison of the preset with the PAC4SAC row of the paper's Table 1, on the same
    tasks."""
    row, title = "pac4sac-best", "The preset compared with the paper's PAC4SAC"
    variants = {(v.task.name, row): v for v in context.all_variants if _is_preset_on_paper_task(v)}
    if not variants:
        return []
    printed = {task: {row: cells["pac4sac"]} for task, cells in TABLE_1.items()}
    table = PaperTable(BEST, title, "Variant", {row: row}, printed, variants, free=["preset"])
    blocks, compared = compared_blocks(table)
    return [_preset_in_short(compared), *blocks]


def _is_preset_on_paper_task(variant: Variant) -> bool:
    """Return whether a variant is a result of the preset on one of the paper's unchanged tasks."""
    return variant.is_result and is_preset_best(variant) and not task_differences(variant.task)


def _preset_in_short(compared: Sequence[ComparedCell]) -> str:
    """Return a sentence with the number of cells in which the preset is better, and the others."""
    others = [cell for cell in compared if cell.judged.verdict != BETTER]
    names = [
        f"*{verdict}* for {listed([_name_of(cell) for cell in cells])}"
        for verdict, cells in group_by(others, key=lambda cell: cell.judged.verdict).items()
    ]
    counts = f"{len(compared) - len(others)} of {len(compared)} cells"
    better = f"The preset is better than the paper's PAC4SAC in {counts}."
    return (
        f"{better} In the other cells, the verdict is {', and '.join(names)}." if names else better
    )


def _name_of(cell: ComparedCell) -> str:
    return f"{ALL_METRICS[cell.metric].title} on {TASKS[cell.task]}"
