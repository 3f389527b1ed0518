"""Sections on studies that ask what the paper does not, and on runs that chose a setting: by calibration, how near it
brings the baselines to the paper's numbers, or by search, what has the least regret."""

import math
from collections.abc import Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

from pac4sac.base.text import NOTHING, file_name, setting_text
from pac4sac.paper import families
from pac4sac.paper import numbers as paper
from pac4sac.paper.families import BEST, STUDY_TITLES, PaperContext
from pac4sac.paper.numbers import TEXTS
from pac4sac.paper.paper_rows import TASKS, task_differences
from pac4sac.paper.table_sections import METRICS, beside_the_paper, cell_beside
from pac4sac.paper.verdicts import compare_cell
from pac4sac.report.comparison import BETTER, compare_headline, comparison_table, runs_cell, tally
from pac4sac.report.figures import ranking_figure
from pac4sac.report.sections import mixtures
from pac4sac.report.tables import TEXTS as GENERAL_TEXTS
from pac4sac.report.tables import Cell, Column, Picture, Section, Table, command, data, words
from pac4sac.report.variants import METRICS as ALL_METRICS
from pac4sac.report.variants import Variant
from pac4sac.runs.statistics import summarise

BASELINES = ("ddpg", "sac")


def study_sections(context: PaperContext) -> list[Section]:
    sections = []
    for kind, title in STUDY_TITLES.items():
        blocks: list[Any] = _preset_beside_the_paper(context) if kind == BEST else []
        for task in context.variants:
            blocks += _study_on_task(context, kind, task)
        if blocks:
            intro = f"{TEXTS['studies'][kind]} {TEXTS['studies']['family'].format(**GENERAL_TEXTS)}"
            sections.append(Section(kind, title, [intro, *blocks]))
    return sections


def _study_on_task(context: PaperContext, kind: str, title: str) -> list[Any]:
    rows, studies, results = context.rows, context.collection.studies, context.results(title)
    members = families.study_members(kind, results, rows, studies)
    baseline = families.find_baseline(studies, results, kind)
    if kind == families.OTHERS and len(members) == len(results):
        return []  # the task's own section has them all
    if baseline is None or not any(variant is not baseline for variant in members):
        return []
    members = [baseline, *(variant for variant in members if variant is not baseline)]
    compared = compare_headline(members, baseline, STUDY_TITLES[kind])
    main = [variant for variant in results if variant in rows.table_1.values() and variant not in members]
    if kind == families.CONTROLS and main:
        # SAC stands beside its controls, with the verdict of the family in which it is tested.
        compared += [row for row in compare_headline(main, baseline, families.TABLE_1) if row.variant.algo == "sac"]
    task, name = baseline.task, f"{kind}-{file_name(title)}"
    sign = 1 if task.headline.lower_is_better else -1
    estimates = {row.variant.label: row.iqm for row in compared if row.iqm}
    ranked = dict(sorted(estimates.items(), key=lambda item: sign * item[1].value))
    caption = f"{title}: interquartile mean with bootstrap 95 % interval, best on top"
    return [
        f"On {title}, against `{baseline.label}`: {tally(compared)}.",
        Picture(name, caption, partial(ranking_figure, ranked, baseline.label, task.unit, task.scale)),
        comparison_table(name, f"{STUDY_TITLES[kind]} on {title}", compared, task),
        *mixtures([row.variant for row in compared]),
    ]


def _preset_beside_the_paper(context: PaperContext) -> list[Any]:
    """The preset in the place of PAC4SAC in the paper's Table 1: other settings, but the same tasks."""
    row = "pac4sac-best"
    candidates = [
        v for v in context.all_variants if v.is_result and families.is_preset_best(v) and not task_differences(v.task)
    ]
    presets = {(variant.task.name, row): variant for variant in candidates}
    if not presets:
        return []
    printed = {task: {row: cells["pac4sac"]} for task, cells in paper.TABLE_1.items()}
    title = "The preset beside the paper's PAC4SAC"
    free = [name for variant in presets.values() for name in variant.config]
    blocks, compared = beside_the_paper(BEST, title, "Variant", {row: row}, printed, presets, free)
    others = [
        f"on {TASKS[cell.task]} by {ALL_METRICS[cell.metric].title} ({cell.judged.verdict})"
        for cell in compared
        if cell.judged.verdict != BETTER
    ]
    better = f"The preset is better than the paper's PAC4SAC in {len(compared) - len(others)} of {len(compared)} cells"
    return [better + (f"; not {', '.join(others)}." if others else "."), *blocks]


# --- runs that chose a setting


def calibration_section(context: PaperContext) -> Section | None:
    blocks: list[Any] = []
    for name, members in _chosen_by("calibration", context).items():
        title = members[0].task.title
        if task_differences(members[0].task):  # the paper has nothing to compare with
            blocks.append(_table(name, f"Calibration on {title}", members))
        else:
            blocks += [*_nearest(members), _calibration_table(name, f"Calibration on {title}", members)]
    return Section("calibration", "Calibration", [TEXTS["calibration"], *blocks]) if blocks else None


def search_section(context: PaperContext) -> Section | None:
    chosen = _chosen_by("search", context).items()
    blocks = [_table(name, f"Search on {members[0].task.title}", members) for name, members in chosen]
    return Section("search", "Search", [TEXTS["search"], *blocks]) if blocks else None


def _chosen_by(kind: str, context: PaperContext) -> dict[str, list[Variant]]:
    """The variants of each task, by the name of its table."""
    chosen = {t: [v for v in variants if v.chose == kind] for t, variants in context.variants.items()}
    return {f"{kind}-{file_name(title)}": members for title, members in chosen.items() if members}


def _table(name: str, caption: str, members: Sequence[Variant]) -> Table:
    return comparison_table(name, caption, compare_headline(members, None), members[0].task)


def _calibration_table(name: str, caption: str, members: Sequence[Variant]) -> Table:
    def beside(metric: str, variant: Variant) -> Cell:
        printed = paper.paper_cell(variant.task.name, variant.algo)
        theirs = getattr(printed, metric) if printed else None
        verdict = compare_cell(variant, metric, theirs, list(variant.config)) if theirs else None
        return cell_beside(variant, metric, theirs, verdict)

    def written(metric: str, variant: Variant) -> tuple[Any, ...]:
        (values, note), printed = variant.shown(metric), paper.paper_cell(variant.task.name, variant.algo)
        own = astuple(summarise(values))[1:] if values else (None, None)
        notes = (note,) if metric == "regret" else ()
        return (*own, *notes, getattr(printed, metric).mean if printed else None, beside(metric, variant).verdict)

    columns = [data("task", get="task.title"), words("Variant", _label, "variant"), Column("Runs", runs_cell, "runs")]
    for metric, (title, _) in METRICS.items():
        notes = ("regret_note",) if metric == "regret" else ()
        keys = (metric, f"{metric}_sd", *notes, f"paper_{metric}", f"{metric}_verdict")
        columns += [Column(title, partial(beside, metric)), data(*keys, get=partial(written, metric))]
    columns += [
        Column("regret, × paper", regret_ratio, "regret_times_paper", show=lambda x: f"{x:.2f}" if x else NOTHING),
        Column("solved", lambda v: Cell(v.solved_text, v.solved), "solved"),
        command("command", "command"),
    ]
    caption += ". Regret in thousands and episodes until solved, mean ± sd, ours above the paper's"
    return Table(name, caption, columns, members)


def _label(variant: Variant) -> str:
    return variant.label.removesuffix(" (calibration)")


def regret_ratio(variant: Variant) -> float | None:
    printed, own = paper.paper_cell(variant.task.name, variant.algo), variant.summary("regret")
    return own.mean / printed.regret.mean if printed and own else None


def _nearest(members: Sequence[Variant]) -> list[str]:
    """The settings by how far the baselines' regrets are from the paper's, as a factor, whichever way."""
    title, baselines = members[0].task.title, [variant for variant in members if variant.algo in BASELINES]
    if waiting := ", ".join(f"`{_label(variant)}`" for variant in baselines if variant.under_way):
        return [f"On {title} the settings are not ranked: runs of {waiting} are unfinished."]
    varied = [name for name in members[0].config if _varies(name, members)]
    ratios: dict[str, list[float]] = {}
    for variant in baselines:
        if ratio := regret_ratio(variant):
            setting = ", ".join(f"{name}={setting_text(variant.config.get(name))}" for name in varied)
            ratios.setdefault(setting, []).append(abs(math.log(ratio)))
    complete = {setting: logs for setting, logs in ratios.items() if len(logs) == len(BASELINES)}
    factors = {setting: math.exp(sum(logs) / len(logs)) for setting, logs in complete.items()}
    ranked = [
        f"`{setting}` (a factor of {factors[setting]:.2f})" for setting in sorted(factors, key=factors.__getitem__)
    ]
    text = f"On {title}, from the nearest to the paper's regret of DDPG and SAC: {', then '.join(ranked)}."
    return [text] if len(ranked) > 1 else []


def _varies(name: str, members: Sequence[Variant]) -> bool:
    values: dict[str, Any] = {}
    return any(values.setdefault(v.algo, v.config.get(name)) != v.config.get(name) for v in members)
