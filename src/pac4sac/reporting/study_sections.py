"""Sections on studies that ask what the paper does not: controls, and what goes beyond it."""

from collections.abc import Sequence
from typing import Any

from pac4sac.reporting.collection import FoundStudy
from pac4sac.reporting.figures import ranking_figure
from pac4sac.reporting.groups import Group
from pac4sac.reporting.rows import PaperRows
from pac4sac.reporting.tables import Picture, Section
from pac4sac.reporting.task_sections import (
    Against,
    Groups,
    against,
    comparison_table,
    file_name,
    find_baseline,
    headline_scale,
)

TITLES = {"controls": "Controls", "beyond": "Beyond the paper"}
INTROS = {
    "controls": "Variants that are no rows of the paper. They tell which part of an algorithm earns its result: a "
    "control that does as well without a part speaks against that part.",
    "beyond": "Changes to PAC4SAC that the paper does not have, against PAC4SAC as it has it.",
}


def study_sections(groups: Groups, rows: PaperRows, studies: Sequence[FoundStudy]) -> list[Section]:
    asked = {kind: {study.name for study in studies if study.kind == kind} for kind in TITLES}

    def nobody_asked(kind: str, group: Group) -> bool:
        """What is in no study and no table is compared among the controls."""
        return kind == "controls" and not rows.taken(group) and not set().union(*asked.values()) & _studies(group)

    sections = []
    for kind, title in TITLES.items():
        blocks: list[Any] = []
        for found in groups.values():
            results = [group for group in found if not group.calibration]
            members = [group for group in results if asked[kind] & _studies(group) or nobody_asked(kind, group)]
            if kind == "controls" and members:
                sac = rows.table_1.get((found[0].task.name, "sac"))
                members += [group for group in results if group is sac and not asked[kind] & _studies(group)]
            baseline = find_baseline(studies, results, kind)
            if baseline and any(group is not baseline for group in members):
                blocks += _of_task(kind, [baseline, *(group for group in members if group is not baseline)])
        if blocks:
            sections.append(Section(kind, title, [INTROS[kind], *blocks]))
    return sections


def _of_task(kind: str, members: Sequence[Group]) -> list[Any]:
    baseline, task = members[0], members[0].task
    compared = against(members, baseline)
    name = f"{kind}-{file_name(task.title)}"
    ranked = sorted(((row.group.label, row.iqm) for row in compared if row.iqm), key=lambda item: item[1].value)
    if not task.headline.lower_is_better:
        ranked.reverse()
    scale = headline_scale(task)
    unit = task.headline.title + (", thousands" if scale > 1 else "")
    caption = f"{task.title}: interquartile mean with bootstrap 95 % interval, best on top"
    return [
        f"On {task.title}, against `{baseline.label}`: {_tally(compared)}.",
        Picture(name, caption, ranking_figure(dict(ranked), baseline.label, unit, scale)),
        comparison_table(name, f"{TITLES[kind]} on {task.title}", compared, task),
    ]


def _studies(group: Group) -> set[str]:
    return {name for outcome in group.outcomes for name in outcome.run.studies}


def _tally(rows: Sequence[Against]) -> str:
    by_word: dict[str, list[str]] = {}
    for row in rows:
        if not row.is_baseline:
            by_word.setdefault(row.in_words, []).append(row.group.label)
    order = ("better", "worse", "no difference shown", "not to be told")
    return "; ".join(f"{word}: {', '.join(by_word[word])}" for word in order if word in by_word)
