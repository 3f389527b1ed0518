"""Sections on the runs of each task, and on how much the return threshold matters."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from pac4sac.base.text import file_name, setting_text
from pac4sac.report import figures, rankings
from pac4sac.report.advice import differing_settings_table, seeds_advice
from pac4sac.report.answers import compare_on_task, compared_by_answers
from pac4sac.report.comparison import (
    Context,
    VariantGroup,
    comparison_table,
    ends_table,
    metric_cell,
    variant_cell,
)
from pac4sac.report.learning_curves import evaluation_figure, learning_figure
from pac4sac.report.provenance import mixtures
from pac4sac.report.sentences import listed
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

# Thresholds as fractions of the task's own. They are finest near final returns, where steps of a
# tenth would hide a change of order.
DRAWN = tuple(round(0.5 + 0.02 * k, 3) for k in range(20)) + tuple(
    round(0.9 + 0.005 * k, 3) for k in range(41)
)
TABLED = (0.5, 0.7, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0, 1.02, 1.04)
ENDS = ("end_return", "final_deterministic")  # metrics at the end of training


def task_section(context: Context, title: str) -> Section:
    results, groups = context.results(title), context.groups[title]
    task, name, baseline = results[0].task, file_name(title), context.baselines[title]
    compared = compare_on_task(context, title)
    curves, ends = TEXTS["task"]["curves"], _ends(context, title, f"ends-{name}")
    if task.has_regret:
        curves += TEXTS["task"]["curves_solved"]
    drawn = [(f"{title}: {group.title}. {curves}", group.members) for group in groups]
    blocks: list[Block] = [
        _about(context, task, baseline),
        *(ends if task.r_limit is None else []),  # the headline without a threshold
        comparison_table(f"task-{name}", f"All variants on {title}", compared, task),
        *seeds_advice(compared_by_answers(context, title)),
        *([] if task.r_limit is None else ends),
        *differing_settings_table(title, results),
        *mixtures(results),
        *figures.pictures(
            f"learning-{name}",
            drawn,
            learning_figure,
            context.companions.get(title),
            is_detail=True,
        ),
        *_evaluation_curves(f"evaluations-{name}", groups, context.companions.get(title)),
        *_profiles(f"profile-{name}", groups[0], baseline),
        _further_metrics(f"metrics-{name}", task, results),
    ]
    return Section(f"task-{name}", f"Task {title}", blocks)


def _ends(context: Context, title: str, name: str) -> list[Table]:
    """Return the table of returns at the end of training, if any are known."""
    task = context.variants[title][0].task
    has_threshold = task.r_limit is not None
    first = [] if has_threshold else [metric.key for metric in task.answers_by]
    keys = dict.fromkeys([*first, *ENDS])
    by_metric = {key: compare_on_task(context, title, METRICS[key]) for key in keys}
    known = {key: rows for key, rows in by_metric.items() if any(row.values for row in rows)}
    if not known:
        return []
    caption = TEXTS["task"]["ends" if has_threshold else "without_threshold"].format(title=title)
    return [ends_table(name, caption, known, only_csv=[] if has_threshold else ENDS[:1])]


def _about(context: Context, task: TaskView, baseline: Variant | None) -> str:
    """Describe the ranking metric and the comparison with the baseline."""
    if not baseline:
        return _ranked_by(task)
    texts, groups = TEXTS["task"], context.groups[task.title]
    sizes = {group.title: len(group.members) - (baseline in group.members) for group in groups}
    named = listed([f"*{title}* ({n})" for title, n in sizes.items() if n])
    by = texts["baseline"].format(
        label=baseline.label, metric=task.headline.title, tests=TEXTS["tests"]
    )
    corrected = texts["families" if len(sizes) > 1 else "family"].format(named=named)
    return f"{_ranked_by(task)} {by} {corrected}"


def _ranked_by(task: TaskView) -> str:
    texts = TEXTS["task"]
    if task.has_foreign:
        return str(texts["foreign"])
    if task.r_limit is None:
        return str(texts["no_limit"])
    text = texts["episodes" if task.e_max else "steps"]
    return str(text.format(limit=setting_text(task.r_limit), e_max=task.e_max))


def _evaluation_curves(
    name: str, groups: Sequence[VariantGroup], companion: Variant | None
) -> list[Picture]:
    """Return the figures of evaluations during training; empty unless the task has foreign
    curves."""
    task = groups[0].members[0].task
    if not task.has_foreign:
        return []
    caption = TEXTS["task"]["evaluations"]
    drawn = [(f"{task.title}: {group.title}. {caption}", group.members) for group in groups]
    return figures.pictures(name, drawn, evaluation_figure, companion, is_detail=True)


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
    """Return the table of all metrics; its CSV has a line for each run."""
    known = [m for m in METRICS.values() if any(variant.shown(m.key)[0] for variant in variants)]
    keys = [m.key for m in known]
    columns = [
        words("Variant", variant_cell),
        *(
            Column(m.title, partial(metric_cell, metric=m.key, scale=task.scale_of(m)))
            for m in known
        ),
        data("variant", "seed", "state", "solved", *keys, get=lambda numbers: numbers),
    ]
    unit = " (regrets in thousands)" if task.scale > 1 else ""
    caption = f"All metrics on {task.title}, mean ± std{unit}; the CSV has every run"
    return Table(name, caption, columns, variants, partial(_runs_of, metrics=keys), folded=True)


def _runs_of(variant: Variant, metrics: Iterable[str]) -> list[tuple[Any, ...]]:
    """Return label, seed, state, solved and the metrics of each run."""
    return [
        (variant.label, o.run.record.seed, o.state, o.solved, *map(o.metrics.get, metrics))
        for o in variant.outcomes
    ]


# --- the return threshold


def threshold_section(context: Context, intro: str = "") -> Section | None:
    """Return the section on the return threshold; None without results in episodes."""
    blocks: list[Block] = []
    for title in context.variants:
        blocks += _threshold_on_task(context, title)
    if not blocks:
        return None
    about = f"{intro} {TEXTS['threshold']}".strip()
    return Section("threshold", "Effect of the return threshold", [about, *blocks])


def _threshold_on_task(context: Context, title: str) -> list[Block]:
    results = context.results(title)
    if not results or not results[0].task.most_regret:
        return []
    swept = {variant.label: sweep(variant, TABLED) for variant in results}
    if not any(map(_has_known_mean, swept.values())):
        return []
    rows = [(label, *means.values()) for label, means in swept.items()]
    name = f"threshold-{file_name(title)}"
    caption = f"Mean episodes until solved on {title}, for each return threshold"
    heads = [f"{threshold:g}" for threshold in swept[results[0].label]]
    first = context.groups[title][0]  # the page's slider covers the other groups
    drawn = [(f"{caption} (dashed: the task's threshold). {first.title}", first.members)]
    return [
        *figures.pictures(name, drawn, sweep_figure, context.companions.get(title), is_detail=True),
        Table(name, caption, numbered(("Variant", *heads), heads), rows),
        *mixtures(results),
    ]


def _has_known_mean(means: Mapping[float, float | None]) -> bool:
    return any(mean is not None for mean in means.values())


def sweep(variant: Variant, parts: Iterable[float]) -> dict[float, float | None]:
    """Return the mean episodes until solved by threshold; `parts` are fractions of the task's
    own."""
    task_threshold = variant.task.r_limit or 0.0
    thresholds = sorted(round(task_threshold * part, 6) for part in parts)
    return {threshold: _mean_episodes(variant, threshold) for threshold in thresholds}


def _mean_episodes(variant: Variant, threshold: float) -> float | None:
    """Return the mean episodes until solved, or None if a run ended too early to tell.

    Diverged runs are left out.
    """
    episodes = []
    for run in variant.runs:
        solved_after = _solved_after(run, threshold, variant.task.e_max or 0)
        if solved_after is not None:
            episodes.append(solved_after)
        elif run.status != "diverged":
            return None
    return fmean(episodes) if episodes else None


def _solved_after(run: RunRecord, threshold: float, e_max: int) -> int | None:
    """Return the episodes until solved, E_max if never solved, or None if the run ended too
    early."""
    first = solved_at(run.returns[:e_max], threshold)
    if first is None and len(run.episodes) >= e_max:
        return e_max
    return first


def sweep_figure(variants: Sequence[Variant]) -> Figure:
    """Draw the mean episodes until solved over the return threshold."""
    figure, (panel,) = figures.new_figure(
        f"Episodes until solved, for each return threshold, on {variants[0].task.title}", 1
    )
    for variant in variants:
        swept = sweep(variant, DRAWN)
        known = {threshold: mean for threshold, mean in swept.items() if mean is not None}
        if known:
            look, label = (
                figures.curve_look(variant.style, len(known)),
                figures.drawn(variant.style.name),
            )
            panel.plot(list(known), list(known.values()), **look, label=label)
    panel.axvline(variants[0].task.r_limit, **figures.DASHED, label="the task's threshold")
    figures.finish_panel(panel, "return threshold", "mean episodes until solved")
    panel.set_ylim(bottom=0)
    figures.add_legend(figure, panel)
    return figure
