"""Sections on studies that ask what the paper does not, and on runs that chose a setting: by
calibration, how near it brings the baselines to the paper's numbers, or by search, what has the
least regret."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from pac4sac.base.files import natural
from pac4sac.base.text import assignments, file_name, number
from pac4sac.paper import families
from pac4sac.paper.families import (
    BEST,
    CONTROLS,
    STUDY_TITLES,
    PaperContext,
    PaperTable,
    task_differences,
)
from pac4sac.paper.gain import gain_tables
from pac4sac.paper.numbers import ALGORITHMS, TABLE_1, TASKS, TEXTS, paper_cell
from pac4sac.paper.search_tables import geometric_mean, over_the_least, search_tables
from pac4sac.paper.table_sections import METRICS, OURS_ABOVE, beside_the_paper, cell_beside
from pac4sac.paper.verdicts import compare_cell
from pac4sac.report.answers import ranking_picture
from pac4sac.report.comparison import (
    BETTER,
    Compared,
    compare_headline,
    comparison_table,
    runs_cell,
    tally,
)
from pac4sac.report.sections import mixtures
from pac4sac.report.tables import TEXTS as GENERAL_TEXTS
from pac4sac.report.tables import Cell, Column, Section, Table, command, data, words
from pac4sac.report.variants import METRICS as ALL_METRICS
from pac4sac.report.variants import Variant, set_apart
from pac4sac.runs.collection import FoundStudy
from pac4sac.runs.statistics import Summary, summarise

BASELINES = ("ddpg", "sac")
READINGS = {"oac-gauss": "oac", "oac-lab": "oac"}  # of one row of the paper


def study_sections(context: PaperContext) -> list[Section]:
    sections = []
    for kind, title in STUDY_TITLES.items():
        blocks: list[Any] = _preset_beside_the_paper(context) if kind == BEST else []
        if kind == CONTROLS and (tables := gain_tables(context)):
            blocks += [TEXTS["studies"]["gain"], *tables]
        for task in context.variants:
            blocks += _study_on_task(context, kind, task)
        if blocks:
            intro = f"{TEXTS['studies'][kind]} {TEXTS['studies']['family'].format(**GENERAL_TEXTS)}"
            sections.append(Section(kind, title, [intro, *blocks]))
    return sections


def compare_study(context: PaperContext, kind: str, title: str) -> list[Compared]:
    """What a study of this kind compares on a task, its baseline first; nothing where that is
    nothing."""
    results, main = context.results(title), context.rows.table_1.values()
    members = families.study_members(context, kind, title)
    baseline = families.find_baseline(context.collection.studies, results, kind)
    if kind == families.OTHERS and len(members) == len(results):
        return []  # the task's own section has them all
    if baseline is None or not any(variant is not baseline for variant in members):
        return []
    members = [baseline, *(variant for variant in members if variant is not baseline)]
    compared = compare_headline(members, baseline, STUDY_TITLES[kind])
    others = [variant for variant in results if variant in main and variant not in members]
    if kind == families.CONTROLS and others:
        # SAC stands beside its controls, with the verdict of the family in which it is tested.
        rivals = compare_headline(others, baseline, families.OF_TABLE_1)
        compared += [row for row in rivals if row.variant.algo == "sac"]
    return compared


def _study_on_task(context: PaperContext, kind: str, title: str) -> list[Any]:
    if not (compared := compare_study(context, kind, title)):
        return []
    baseline, name = compared[0].variant, f"{kind}-{file_name(title)}"
    heading = f"{STUDY_TITLES[kind]} on {title}"
    picture = ranking_picture(context, name, heading.replace("`", ""), compared)
    return [
        f"On {title}, against `{baseline.label}`: {tally(compared)}.",
        *([picture] if picture else []),
        comparison_table(name, heading, compared, baseline.task),
        *mixtures([row.variant for row in compared]),
    ]


def _preset_beside_the_paper(context: PaperContext) -> list[Any]:
    """The preset in the place of PAC4SAC in the paper's Table 1: other settings, but the same
    tasks."""
    results = [variant for title in context.variants for variant in context.results(title)]
    candidates = [v for v in results if families.is_preset_best(v) and not task_differences(v.task)]
    if not candidates:
        return []
    row, title = "pac4sac-best", "The preset beside the paper's PAC4SAC"
    presets = {(variant.task.name, row): variant for variant in candidates}
    printed = {task: {row: cells["pac4sac"]} for task, cells in TABLE_1.items()}
    free = [name for variant in candidates for name in variant.config]
    blocks, compared = beside_the_paper(
        PaperTable(BEST, title, "Variant", {row: row}, printed, presets, free)
    )
    others = [
        f"on {TASKS[cell.task]} by {ALL_METRICS[cell.metric].title} ({cell.judged.verdict})"
        for cell in compared
        if cell.judged.verdict != BETTER
    ]
    better = (
        f"The preset is better than the paper's PAC4SAC in {len(compared) - len(others)} of "
        f"{len(compared)} cells"
    )
    return [better + (f"; not {', '.join(others)}." if others else "."), *blocks]


# --- runs that chose a setting


def chosen_by(context: PaperContext, study: FoundStudy) -> dict[str, list[Variant]]:
    """By task, with the study's own runs: another may have begun more."""
    chosen = {
        title: [
            v.of_study(study.name)
            for v in variants
            if v.chose == study.kind and study.name in v.studies
        ]
        for title, variants in context.variants.items()
    }
    return {title: members for title, members in chosen.items() if members}


def chosen_section(context: PaperContext, kind: str) -> Section | None:
    """Of the studies of this kind, calibration or search."""
    blocks: list[Any] = []
    for study in {
        study.name: study for study in context.collection.studies if study.kind == kind
    }.values():
        on_tasks = chosen_by(context, study)
        beside = beside_paper(study, on_tasks)
        blocks += (
            [f"{study.title}. {study.question}".rstrip(), *_nearest_over_tasks(beside)]
            if on_tasks
            else []
        )
        blocks += search_tables(study, on_tasks) if kind == "search" and len(on_tasks) > 1 else []
        for title, members in on_tasks.items():
            name, caption = file_name(f"{study.name}-{title}"), f"{kind.capitalize()} on {title}"
            if title in beside:
                blocks += [*_nearest(members), _calibration_table(name, caption, members)]
            else:
                compared = compare_headline(members, None)
                blocks.append(comparison_table(name, caption, compared, members[0].task))
    return Section(kind, kind.capitalize(), [TEXTS[kind], *blocks]) if blocks else None


def beside_paper(
    study: FoundStudy, on_tasks: Mapping[str, list[Variant]]
) -> dict[str, list[Variant]]:
    """Where there is something of the paper's to compare with."""
    return {
        t: m
        for t, m in on_tasks.items()
        if study.kind == "calibration" and not task_differences(m[0].task)
    }


def chosen_answer(context: PaperContext, study: FoundStudy) -> str:
    """The first of what the section ranks, in a line."""
    on_tasks = chosen_by(context, study)
    beside = beside_paper(study, on_tasks)
    nearest = [*_nearest_over_tasks(beside, brief=True)]
    nearest = nearest or [
        first for members in beside.values() for first in _nearest(members, brief=True)
    ]
    if beside:
        return (
            f"Nearest to the paper's regret: {', '.join(nearest)}."
            if nearest
            else "No setting is complete yet."
        )
    if len(on_tasks) > 1 and (ranked := over_the_least(on_tasks)):
        told = [f"`{label}` ({geometric_mean(factors):.2f})" for label, factors in ranked.items()]
        return (
            f"Least regret over {len(on_tasks)} tasks, as so many times the least on each: "
            f"{', then '.join(told[:2])}."
        )
    best = []
    for title, members in on_tasks.items():
        metric, scale = members[0].task.headline, members[0].task.scale
        known = {
            variant: fmean(variant.values(metric.key)) for variant in members if variant.has_results
        }
        if known:
            first = (min if metric.lower_is_better else max)(known, key=known.__getitem__)
            best.append(
                f"on {title} `{first.label}`, {members[0].task.unit} {number(known[first], scale)}"
            )
    return f"Best of those complete: {'; '.join(best)}." if best else "No setting is complete yet."


def _calibration_table(name: str, caption: str, members: Sequence[Variant]) -> Table:
    def beside(metric: str, variant: Variant) -> Cell:
        theirs = _published(variant, metric)
        return cell_beside(
            variant, metric, theirs, compare_cell(variant, metric, theirs, list(variant.config))
        )

    def own(metric: str, variant: Variant) -> Summary | None:
        values, _ = variant.shown(metric)
        return summarise(values) if values else None

    def of_paper(metric: str, variant: Variant) -> tuple[Any, ...]:
        theirs = _published(variant, metric)
        return theirs.mean if theirs else None, beside(metric, variant).verdict

    names = {
        variant: _name(variant.algo, settings) for variant, settings in _choices(members).items()
    }
    columns = [
        data("task", get="task.title"),
        words("Variant", names.__getitem__, "variant"),
        Column("Runs", runs_cell, "runs"),
    ]
    for metric, (title, _) in METRICS.items():
        columns += [
            Column(title, partial(beside, metric)),
            data(metric, f"{metric}_sd", get=partial(own, metric)),
        ]
        columns += (
            [data("regret_note", get=lambda v: v.shown("regret")[1])] if metric == "regret" else []
        )
        columns.append(data(f"paper_{metric}", f"{metric}_verdict", get=partial(of_paper, metric)))
    columns += [
        Column("regret, × paper", regret_ratio, "regret_times_paper", digits=2),
        Column("solved", lambda v: Cell(v.solved_text, v.solved), "solved"),
        command("command", "command"),
    ]
    return Table(
        name,
        f"{caption}. {OURS_ABOVE} above the paper's",
        columns,
        sorted(members, key=lambda v: natural(names[v])),
    )


def _name(algo: str, settings: Mapping[str, Any]) -> str:
    return "-".join([algo, *assignments(settings)])


def _choices(members: Sequence[Variant]) -> dict[Variant, dict[str, Any]]:
    """The settings in which the variants of an algorithm differ."""
    configs = {
        variant: [other.config for other in members if other.algo == variant.algo]
        for variant in members
    }
    return {
        variant: dict(sorted(set_apart(variant.config, rivals).items()))
        for variant, rivals in configs.items()
    }


def _row(variant: Variant) -> str:
    """The row of the paper's Table 1 that it is to reach."""
    return READINGS.get(variant.algo, variant.algo)


def _is_rival(variant: Variant) -> bool:
    return _row(variant) in ALGORITHMS and _row(variant) != "pac4sac"


def _published(variant: Variant, metric: str) -> Summary | None:
    return getattr(paper_cell(variant.task.name, _row(variant)), metric, None)


def regret_ratio(variant: Variant) -> float | None:
    theirs, own = _published(variant, "regret"), variant.summary("regret")
    return own.mean / theirs.mean if theirs and own else None


def _nearest_first(logs: Mapping[str, Sequence[float]], notes: Mapping[str, str]) -> list[str]:
    """Choices by the mean distance of their regrets from the paper's, whichever way; nothing where
    there is none to choose from."""
    ranked = sorted((math.exp(fmean(of_choice)), choice) for choice, of_choice in logs.items())
    named = [
        f"`{choice}` (a factor of {factor:.2f}{notes.get(choice, '')})" for factor, choice in ranked
    ]
    return named if len(named) > 1 else []


def _nearest(members: Sequence[Variant], brief: bool = False) -> list[str]:
    """The settings that the baselines share, on one task; in brief, the nearest alone."""
    title, choices, logs = (
        members[0].task.title,
        _choices(members),
        defaultdict[str, list[float]](list),
    )
    rivals = [variant for variant in members if _is_rival(variant)]
    if waiting := ", ".join(f"`{_name(v.algo, choices[v])}`" for v in rivals if v.under_way):
        unfinished = f"On {title} the settings are not ranked: runs of {waiting} are unfinished."
        return [f"not ranked on {title}, where runs are unfinished" if brief else unfinished]
    for variant in rivals:
        if variant.algo in BASELINES and choices[variant] and (ratio := regret_ratio(variant)):
            logs[", ".join(assignments(choices[variant]))].append(abs(math.log(ratio)))
    ranked = _nearest_first(
        {choice: of for choice, of in logs.items() if len(of) == len(BASELINES)}, {}
    )
    if brief or not ranked:
        return [f"{first} on {title}" for first in ranked[:1]]
    return [
        f"On {title}, from the nearest to the paper's regret of DDPG and SAC: "
        f"{', then '.join(ranked)}."
    ]


def _nearest_over_tasks(
    on_tasks: Mapping[str, Sequence[Variant]], brief: bool = False
) -> list[str]:
    """For each rival its choices over the tasks on which all its runs are complete, with the
    updates per step that bring a choice nearest on each task."""
    sentences = []
    for row, algorithm in ALGORITHMS.items():
        found: dict[str, dict[str, tuple[float, int]]] = defaultdict(dict)  # by choice and task
        for title, members in on_tasks.items():
            rivals = [variant for variant in members if _is_rival(variant) and _row(variant) == row]
            ratios, choices = (
                {variant: regret_ratio(variant) for variant in rivals},
                _choices(members),
            )
            for variant, ratio in ratios.items() if all(ratios.values()) else ():
                settings = {
                    name: value
                    for name, value in choices[variant].items()
                    if name != "updates_per_step"
                }
                here = (abs(math.log(ratio or math.nan)), variant.config["updates_per_step"])
                of_choice = found[_name(variant.algo, settings)]
                of_choice[title] = min(of_choice.get(title, here), here)
        tasks = {title: None for of_choice in found.values() for title in of_choice}
        on_all = {
            choice: of_choice.values()
            for choice, of_choice in found.items()
            if of_choice.keys() == tasks.keys()
        }
        updates = {
            choice: ", with " + ", ".join(str(n) for _, n in nearest)
            for choice, nearest in on_all.items()
        }
        notes = {} if brief else updates
        if ranked := _nearest_first(
            {c: [log for log, _ in nearest] for c, nearest in on_all.items()}, notes
        ):
            over = (
                f"{algorithm} over {', '.join(tasks)}, with the updates per step that suit each "
                "task best"
            )
            whole = f"{over}, from the nearest to the paper's regret: {', then '.join(ranked)}."
            sentences.append(ranked[0] if brief else whole)
    return sentences
