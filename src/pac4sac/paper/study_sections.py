"""Sections on studies that ask what the paper does not: controls, what goes beyond it, and the preset `best`."""

from collections.abc import Sequence
from typing import Any

from pac4sac.base.text import file_name
from pac4sac.paper import numbers as paper
from pac4sac.paper import verdicts as comparison
from pac4sac.paper.families import BEST, BEYOND, CONTROLS, OTHERS, STUDY_TITLES, TABLE_1, is_preset_best, study_members
from pac4sac.paper.paper_rows import TASKS, PaperRows
from pac4sac.paper.table_sections import beside_the_paper
from pac4sac.report.computing import mixtures
from pac4sac.report.figures import ranking_figure
from pac4sac.report.tables import Picture, Section
from pac4sac.report.task_sections import Groups
from pac4sac.report.variants import METRICS
from pac4sac.report.versus_baseline import (
    TESTS,
    Against,
    against,
    comparison_table,
    find_baseline,
    headline_scale,
    tally,
)
from pac4sac.runs.collection import FoundStudy

INTROS = {
    CONTROLS: "Variants that are no rows of the paper. They tell which part of an algorithm earns its result: a "
    "control that does as well without a part speaks against that part.",
    BEYOND: "Changes to PAC4SAC that the paper does not have, against PAC4SAC as it has it.",
    BEST: "PAC4SAC with the settings of `--preset best`: beside the paper's PAC4SAC, with verdicts as in Table 1, then "
    "against our own runs of what it has to beat. These are judged as better or worse than the preset: it beats those "
    "that are worse.",
    OTHERS: "Variants that are neither rows of the paper nor part of a study that has a section of its own.",
}
FAMILY = (
    f"Here {TESTS}; p-values are corrected (Holm) for the comparisons of the same table, or family if it names some."
)


def study_sections(groups: Groups, rows: PaperRows, studies: Sequence[FoundStudy]) -> list[Section]:
    sections = []
    for kind, title in STUDY_TITLES.items():
        blocks: list[Any] = _beside_the_paper(groups) if kind == BEST else []
        for found in groups.values():
            results = [group for group in found if group.is_result]
            members = study_members(kind, results, rows, studies)
            if kind == OTHERS and len(members) == len(results):
                continue  # the task's own section has them all
            baseline = find_baseline(studies, results, kind)
            if baseline is None or not any(group is not baseline for group in members):
                continue
            members = [baseline, *(group for group in members if group is not baseline)]
            compared = against(members, baseline, STUDY_TITLES[kind])
            if kind == CONTROLS:
                # SAC stands beside its controls, with the verdict of the family in which it is tested.
                main = [group for group in results if any(group is row for row in rows.table_1.values())]
                main = [group for group in main if not any(group is member for member in members)]
                compared += [row for row in against(main, baseline, TABLE_1) if row.group.algo == "sac"]
            blocks += _of_task(kind, compared)
        if blocks:
            sections.append(Section(kind, title, [f"{INTROS[kind]} {FAMILY}", *blocks]))
    return sections


def _beside_the_paper(groups: Groups) -> list[Any]:
    """The preset in the place of PAC4SAC in the paper's Table 1: other settings, but the same tasks."""
    row = "pac4sac-best"
    presets = {
        (group.task.name, row): group
        for found in groups.values()
        for group in found
        if group.is_result and is_preset_best(group) and not group.task.differences
    }
    if not presets:
        return []
    printed = {task: {row: cells["pac4sac"]} for task, cells in paper.TABLE_1.items()}
    title = "The preset beside the paper's PAC4SAC"
    free = [name for group in presets.values() for name in group.config]
    blocks, compared = beside_the_paper(BEST, title, "Variant", {row: row}, printed, presets, free)
    others = [
        f"on {TASKS[cell.task]} by {METRICS[cell.metric].title} ({cell.found.verdict})"
        for cell in compared
        if cell.found.verdict != comparison.BETTER
    ]
    told = f"The preset is better than the paper's PAC4SAC in {len(compared) - len(others)} of {len(compared)} cells"
    return [told + (f"; not {', '.join(others)}." if others else "."), *blocks]


def _of_task(kind: str, compared: Sequence[Against]) -> list[Any]:
    baseline = compared[0].group
    task = baseline.task
    name = f"{kind}-{file_name(task.title)}"
    ranked = sorted(((row.group.label, row.iqm) for row in compared if row.iqm), key=lambda item: item[1].value)
    if not task.headline.lower_is_better:
        ranked.reverse()
    scale = headline_scale(task)
    unit = task.headline.title + (", thousands" if scale > 1 else "")
    caption = f"{task.title}: interquartile mean with bootstrap 95 % interval, best on top"
    return [
        f"On {task.title}, against `{baseline.label}`: {tally(compared)}.",
        Picture(name, caption, ranking_figure(dict(ranked), baseline.label, unit, scale)),
        comparison_table(name, f"{STUDY_TITLES[kind]} on {task.title}", compared, task),
        *mixtures([row.group for row in compared]),
    ]
