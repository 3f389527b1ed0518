"""Sections on our own runs: each task, all tasks together, and how much the limit for "solved" matters."""

from collections.abc import Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.lib.stride_tricks import sliding_window_view

from pac4sac.base.text import file_name, setting_text
from pac4sac.report.comparison import Context, compare_headline, comparison_table, metric_cell
from pac4sac.report.figures import DASHED, add_legend, finish_panel, new_figure, pictures, ranking_figure, styles
from pac4sac.report.learning_curves import learning_figure
from pac4sac.report.record_sections import mixtures
from pac4sac.report.tables import TEXTS, Block, Cell, Column, Picture, Section, Table, data, words
from pac4sac.report.variants import METRICS, TaskView, Variant
from pac4sac.runs.metrics import STREAK, Returns
from pac4sac.runs.statistics import interquartile_mean, probability_of_improvement

# Limits as parts of the task's own, finest where runs end up: a step of a tenth would hide where an order turns round.
DRAWN = tuple(round(0.5 + 0.02 * k, 3) for k in range(20)) + tuple(round(0.9 + 0.005 * k, 3) for k in range(41))
TABLED = (0.5, 0.7, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0, 1.02, 1.04)


def task_section(context: Context, title: str) -> Section:
    results = context.results(title)
    task, name, baseline = results[0].task, file_name(title), context.baselines[title]
    families = context.families[title]
    compared = [row for family in families for row in compare_headline(family.members, baseline, family.title)]
    curves = "Bold: mean of the seeds, with its 95 % interval from three seeds on"
    if task.r_limit is not None and task.e_max:
        curves += "; right: fraction of runs solved, with Wilson's 95 % interval"
    drawn = [(f"{title}: {family.title}. {curves}", family.members) for family in families]
    blocks: list[Block] = [
        _about(context, task, baseline),
        comparison_table(f"task-{name}", f"All variants on {title}", compared, task),
        *mixtures(results),
        *pictures(f"learning-{name}", drawn, learning_figure, context.references.get(title)),
        _further_metrics(f"metrics-{name}", task, results),
    ]
    return Section(f"task-{name}", f"Task {title}", blocks)


def _about(context: Context, task: TaskView, baseline: Variant | None) -> str:
    if task.r_limit is None:
        about = "The task has no return that counts as solved, so variants are ranked by mean return."
    elif not task.e_max:
        about = (
            "Episodes differ in length, so variants are ranked by the mean return over steps, and steps until solved "
            f"take the place of episodes; solved means five episodes in a row above {setting_text(task.r_limit)}."
        )
    else:
        limit = setting_text(task.r_limit)
        about = f"Solved means five episodes in a row above {limit}; E_max is {task.e_max} episodes."
    if not baseline:
        return about
    families = context.families[task.title]
    sizes = {family.title: sum(variant is not baseline for variant in family.members) for family in families}
    corrected = "p-values are corrected (Holm) for all comparisons of the table."
    if len(sizes) > 1:
        named = ", ".join(f"{title} ({n})" for title, n in sizes.items() if n)
        corrected = f"p-values are corrected (Holm) for the comparisons of the same family and no others: {named}."
    by = f"The baseline is `{baseline.label}`; by {task.headline.title}, {TEXTS['tests']}, both at 5 %."
    return f"{about} {by} {corrected}"


def _further_metrics(name: str, task: TaskView, variants: Sequence[Variant]) -> Table:
    known = [m for m in METRICS.values() if any(variant.shown(m.key)[0] for variant in variants)]
    scales = {m.key: task.scale if "regret" in m.key else 1.0 for m in known}

    def runs(variant: Variant) -> list[tuple[Any, ...]]:
        about = [(o, (variant.label, o.run.record.seed, o.state, o.solved)) for o in variant.outcomes]
        return [(*numbers, *map(outcome.metrics.get, scales)) for outcome, numbers in about]

    columns = [words("Variant", "label")]
    columns += [Column(m.title, partial(metric_cell, metric=m.key, scale=scales[m.key])) for m in known]
    columns.append(data("variant", "seed", "state", "solved", *scales, get=lambda numbers: numbers))
    unit = " (regrets in thousands)" if task.scale > 1 else ""
    caption = f"All metrics on {task.title}, mean ± sd{unit}; the CSV has every run"
    return Table(name, caption, columns, variants, runs, folded=True)


# --- all tasks together


def across_tasks_section(context: Context) -> Section | None:
    """Regret as a fraction of r_limit × E_max, so that tasks can be put together."""
    tasks = {title: context.results(title) for title in context.variants}
    # One that a single variant has been trained on compares nothing, and would leave out all others.
    tasks = {title: members for title, members in tasks.items() if sum(map(bool, map(_normalised, members))) > 1}
    strata: dict[str, list[list[float]]] = {}
    for label in dict.fromkeys(variant.label for members in tasks.values() for variant in members):
        scores = [_normalised(variant) for members in tasks.values() for variant in members if variant.label == label]
        if len(scores) == len(tasks) and all(scores):
            strata[label] = scores
    if len(tasks) < 2 or len(strata) < 2:
        return None
    named = [context.baselines[title] for title in tasks]
    baseline = next((variant.label for variant in named if variant and variant.label in strata), next(iter(strata)))
    iqm = {label: interquartile_mean(scores) for label, scores in strata.items()}
    shown = [variant for members in tasks.values() for variant in members if variant.label in strata]

    def runs_cell(label: str) -> Cell:
        runs, diverged = sum(map(len, strata[label])), sum(v.count("diverged") for v in shown if v.label == label)
        return Cell(str(runs), runs, note=f"{diverged} diverged left out" if diverged else "")

    def better(label: str) -> Any:
        if label == baseline:
            return None
        return probability_of_improvement(strata[label], strata[baseline], lower_is_better=True)

    columns = [
        words("Variant", str),
        Column("Runs", runs_cell),
        Column("IQM of normalised regret [95 %]", iqm.__getitem__, digits=3),
        Column(f"P(better than {baseline}) [95 %]", better, digits=2),
    ]
    intro = f"Over {', '.join(tasks)}: {TEXTS['across_tasks']}"
    ranked = dict(sorted(iqm.items(), key=lambda item: item[1].value))
    caption = "Interquartile mean of the normalised regret, with stratified-bootstrap 95 % intervals; less is better"
    picture = Picture("across-tasks", caption, lambda: ranking_figure(ranked, baseline, "normalised regret", 1.0))
    table = Table("across-tasks", caption, columns, list(strata))
    return Section("across-tasks", "Across tasks", [intro, table, *mixtures(shown), picture])


def _normalised(variant: Variant) -> list[float]:
    task = variant.task
    most = (task.r_limit or 0) * (task.e_max or 0)
    return [value / most for value in variant.values("regret")] if most > 0 else []


# --- the limit for "solved"


def threshold_section(context: Context, intro: str) -> Section | None:
    blocks: list[Block] = []
    for title, variants in context.variants.items():
        task, results = variants[0].task, [variant for variant in context.results(title) if variant.runs]
        at = {variant.label: sweep(variant, TABLED) for variant in results} if task.r_limit and task.e_max else {}
        if not any(values for limits in at.values() for values in limits.values()):
            continue
        name, caption = f"threshold-{file_name(title)}", f"{title}: mean episodes until solved as the limit is moved"
        rows = [{"variant": label} | {limit: _mean(values) for limit, values in at[label].items()} for label in at]
        columns = [words("Variant", itemgetter("variant"))]
        columns += [Column(f"{limit:g}", itemgetter(limit)) for limit in sorted(at[results[0].label])]
        drawn = [(f"{caption}; dashed, the task's own. {f.title}", f.members) for f in context.families[title]]
        blocks += pictures(name, drawn, sweep_figure, context.references.get(title))
        blocks += [Table(name, caption, columns, rows), *mixtures(results)]
    return Section("threshold", "How much the limit for “solved” matters", [intro, *blocks]) if blocks else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def sweep(variant: Variant, parts: Iterable[float]) -> dict[float, list[float]]:
    """Episodes until solved of each run, by limit; none where a run ended too early to tell, unless it diverged."""
    e_max, r_limit = variant.task.e_max or 0, variant.task.r_limit or 0.0
    lowest = [(run, _lowest_in_a_row(run.returns[:e_max])) for run in variant.runs]
    by_limit: dict[float, list[float]] = {}
    for limit in (round(r_limit * part, 6) for part in parts):
        values: list[float] = []
        unknown = False
        for run, lows in lowest:
            above = [*np.flatnonzero(lows > limit)[:1], *([e_max] if len(run.episodes) >= e_max else [])]
            values += map(float, above[:1])
            unknown |= not above and run.status != "diverged"
        by_limit[limit] = [] if unknown else values
    return by_limit


def _lowest_in_a_row(returns: Returns) -> Any:
    """The least return of each five in a row: the first above a limit is where the run is solved."""
    return sliding_window_view(returns, STREAK).min(-1) if len(returns) >= STREAK else np.empty(0)


def sweep_figure(variants: Sequence[Variant]) -> Figure:
    figure, (panel,) = new_figure(1, 7.6, 4.4)
    look = styles([variant.label for variant in variants])
    for variant in variants:
        colour, line = look[variant.label]
        points = [(limit, np.mean(episodes)) for limit, episodes in sweep(variant, DRAWN).items() if episodes]
        if points:
            panel.plot(*zip(*points, strict=True), line, color=colour, linewidth=1.8, label=variant.label)
    panel.axvline(variants[0].task.r_limit, **DASHED)
    finish_panel(panel, "return that counts as solved", "episodes until solved, mean")
    panel.set_ylim(bottom=0)
    if panel.get_legend_handles_labels()[0]:
        add_legend(figure, panel)
    return figure
