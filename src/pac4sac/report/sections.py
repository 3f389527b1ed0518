"""Sections on the runs of each task, and on how much the return threshold matters."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from pac4sac.base.text import file_name, setting_text
from pac4sac.report import figures, rankings
from pac4sac.report.answers import compare_on_task
from pac4sac.report.comparison import (
    Context,
    VariantGroup,
    comparison_table,
    ends_table,
    metric_cell,
    variant_cell,
)
from pac4sac.report.provenance import mixtures
from pac4sac.report.tables import (
    TEXTS,
    Block,
    Column,
    Picture,
    Section,
    Table,
    data,
    numbered,
    words,
)
from pac4sac.report.variants import METRICS, TaskView, Variant
from pac4sac.runs.metrics import solved_at
from pac4sac.runs.reading import RunRecord

# Thresholds as parts of the task's own, finest where runs end: steps of a tenth would hide where
# an order changes.
DRAWN = tuple(round(0.5 + 0.02 * k, 3) for k in range(20)) + tuple(
    round(0.9 + 0.005 * k, 3) for k in range(41)
)
TABLED = (0.5, 0.7, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0, 1.02, 1.04)
ENDS = ("end_return", "final_deterministic")  # metrics at the end of training


def task_section(context: Context, title: str) -> Section:
    results, groups = context.results(title), context.groups[title]
    task, name, baseline = results[0].task, file_name(title), context.baselines[title]
    compared = compare_on_task(context, title)
    shows_solved = task.r_limit is not None and task.e_max
    curves = TEXTS["task"]["curves"] + (TEXTS["task"]["curves_solved"] if shows_solved else "")
    drawn = [(f"{title}: {group.title}. {curves}", group.members) for group in groups]
    blocks: list[Block] = [
        _about(context, task, baseline),
        comparison_table(f"task-{name}", f"All variants on {title}", compared, task),
        *_ends(context, title, f"ends-{name}"),
        *mixtures(results),
        *figures.pictures(
            f"learning-{name}",
            drawn,
            figures.learning_figure,
            context.companions.get(title),
            is_detail=True,
        ),
        *_profiles(f"profile-{name}", groups[0], baseline),
        _further_metrics(f"metrics-{name}", task, results),
    ]
    return Section(f"task-{name}", f"Task {title}", blocks)


def _ends(context: Context, title: str, name: str) -> list[Table]:
    """Return returns at the end of training, if episodes end early, nothing counts as solved, or
    runs were evaluated on a schedule."""
    by_metric = {key: compare_on_task(context, title, METRICS[key]) for key in ENDS}
    if not any(row.values for row in by_metric[ENDS[0]]):
        return []
    return [ends_table(name, TEXTS["task"]["ends"].format(title=title), by_metric)]


def _about(context: Context, task: TaskView, baseline: Variant | None) -> str:
    texts, ranked_by = TEXTS["task"], "episodes" if task.e_max else "steps"
    if task.r_limit is None:
        ranked_by = "no_limit"
    about = str(texts[ranked_by].format(limit=setting_text(task.r_limit), e_max=task.e_max))
    if not baseline:
        return about
    groups = context.groups[task.title]
    sizes = {group.title: len(group.members) - (baseline in group.members) for group in groups}
    named = ", ".join(f"{title} ({n})" for title, n in sizes.items() if n)
    by = texts["baseline"].format(
        label=baseline.label, metric=task.headline.title, tests=TEXTS["tests"]
    )
    return f"{about} {by} {texts['families' if len(sizes) > 1 else 'family'].format(named=named)}"


def _profiles(name: str, group: VariantGroup, baseline: Variant | None) -> list[Picture]:
    rivals = [
        variant for variant in group.members if variant is not baseline and variant.has_results
    ]
    if baseline is None or not rivals:
        return []
    caption = f"{baseline.task.title}: {group.title}. {TEXTS['profile']['caption']}"
    draw = partial(rankings.task_profile, baseline)
    return figures.pictures(name, [(caption, rivals)], draw, baseline, is_detail=True)


def _further_metrics(name: str, task: TaskView, variants: Sequence[Variant]) -> Table:
    known = [m for m in METRICS.values() if any(variant.shown(m.key)[0] for variant in variants)]
    scales = {m.key: task.scale if "regret" in m.key else 1.0 for m in known}

    columns = [words("Variant", variant_cell)]
    columns += [
        Column(m.title, partial(metric_cell, metric=m.key, scale=scales[m.key])) for m in known
    ]
    columns.append(data("variant", "seed", "state", "solved", *scales, get=lambda numbers: numbers))
    unit = " (regrets in thousands)" if task.scale > 1 else ""
    caption = f"All metrics on {task.title}, mean ± sd{unit}; the CSV has every run"

    def runs(variant: Variant) -> list[tuple[Any, ...]]:
        return [
            (variant.label, o.run.record.seed, o.state, o.solved, *map(o.metrics.get, scales))
            for o in variant.outcomes
        ]

    return Table(name, caption, columns, variants, runs, folded=True)


# --- the return threshold


def threshold_section(context: Context, intro: str = "") -> Section | None:
    blocks: list[Block] = []
    for title in context.variants:
        blocks += _threshold_on_task(context, title)
    if not blocks:
        return None
    about = f"{intro} {TEXTS['threshold']}".strip()
    return Section("threshold", "How much the limit for “solved” matters", [about, *blocks])


def _threshold_on_task(context: Context, title: str) -> list[Block]:
    task = context.variants[title][0].task
    results = context.results(title)
    if not results or not task.r_limit or not task.e_max:
        return []
    swept = {variant.label: sweep(variant, TABLED) for variant in results}
    if not any(any(episodes.values()) for episodes in swept.values()):
        return []
    name = f"threshold-{file_name(title)}"
    caption = f"{title}: mean episodes until solved as the limit is moved"
    thresholds = sorted(swept[results[0].label])
    rows = [(label, *_means(episodes, thresholds)) for label, episodes in swept.items()]
    heads = [f"{threshold:g}" for threshold in thresholds]
    first = context.groups[title][0]  # the page has a slider for all others
    drawn = [(f"{caption}; dashed, the task's own. {first.title}", first.members)]
    return [
        *figures.pictures(name, drawn, sweep_figure, context.companions.get(title), is_detail=True),
        Table(name, caption, numbered(("Variant", *heads), heads), rows),
        *mixtures(results),
    ]


def _means(episodes: Mapping[float, list[float]], at: Iterable[float]) -> list[float | None]:
    return [fmean(episodes[threshold]) if episodes[threshold] else None for threshold in at]


def sweep(variant: Variant, parts: Iterable[float]) -> dict[float, list[float]]:
    """Return the episodes until solved of each run, by threshold; none where a run ended too early
    to tell, unless it diverged."""
    by_threshold: dict[float, list[float]] = {}
    for part in parts:
        threshold = round((variant.task.r_limit or 0.0) * part, 6)
        ends = [_solved_after(run, threshold, variant.task.e_max or 0) for run in variant.runs]
        unknown = [run for run, end in zip(variant.runs, ends, strict=True) if end is None]
        is_known = all(run.status == "diverged" for run in unknown)
        by_threshold[threshold] = [end for end in ends if end is not None] if is_known else []
    return by_threshold


def _solved_after(run: RunRecord, threshold: float, e_max: int) -> float | None:
    """Return the episodes until solved, E_max for a run that never was; None if it ended early."""
    first = solved_at(run.returns[:e_max], threshold)
    if first is None and len(run.episodes) >= e_max:
        first = e_max
    return None if first is None else float(first)


def sweep_figure(variants: Sequence[Variant]) -> Figure:
    figure, (panel,) = figures.new_figure(f"How the limit matters on {variants[0].task.title}", 1)
    for variant in variants:
        points = [
            (limit, fmean(episodes))
            for limit, episodes in sweep(variant, DRAWN).items()
            if episodes
        ]
        if points:
            style, label = figures.stroke(variant.style), figures.drawn(variant.style.name)
            panel.plot(*zip(*points, strict=True), **style, linewidth=1.4, label=label)
    panel.axvline(variants[0].task.r_limit, **figures.DASHED)
    figures.finish_panel(panel, "return that counts as solved", "episodes until solved, mean")
    panel.set_ylim(bottom=0)
    if panel.get_legend_handles_labels()[0]:
        figures.add_legend(figure, panel)
    return figure
