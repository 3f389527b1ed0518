"""Sections on runs that chose a setting, by search or calibration, on each task and across tasks.

Regrets differ by factors between tasks, so logarithms are averaged over seeds and tasks.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TypeVar

import numpy as np

from pac4sac.base.grouping import group_by
from pac4sac.base.text import file_name, number, p_value
from pac4sac.report.comparison import Context, compare_headline, comparison_table
from pac4sac.report.tables import TEXTS, Block, Column, Section, Table, with_ends, words
from pac4sac.report.uncertainty import OFFERED, error_over_std, in_times
from pac4sac.report.variants import Variant
from pac4sac.runs.collection import FoundStudy
from pac4sac.runs.statistics import (
    Difference,
    Estimate,
    Summary,
    holm,
    summarise,
    welch_over_strata,
)

OnTasks = Mapping[str, Sequence[Variant]]  # title of a task -> variants
Factors = Mapping[str, float]  # title of a task -> factor of a variant
Row = tuple[str, Factors]  # (label of a variant, its factors)
T = TypeVar("T")
NOTHING_COMPLETE = "There are no complete runs of any setting yet."


def chosen_by(context: Context, study: FoundStudy) -> dict[str, list[Variant]]:
    """Return the variants of a study by task, with only its own runs: other studies may add
    seeds."""
    own = [v for v in context.all_variants if v.chose == study.kind and study.name in v.studies]
    by_task = group_by(own, key=lambda variant: variant.task.title)
    return {
        title: [variant.of_study(study.name) for variant in members]
        for title, members in by_task.items()
    }


def studies_of_kind(context: Context, kind: str) -> list[FoundStudy]:
    """Return the studies of a kind, each name once."""
    return list({s.name: s for s in context.collection.studies if s.kind == kind}.values())


def chosen_section(context: Context, kind: str) -> Section | None:
    """Return the section on the studies of this kind, calibration or search."""
    blocks: list[Block] = []
    for study in studies_of_kind(context, kind):
        if on_tasks := chosen_by(context, study):
            blocks += [study_heading(study), *chosen_blocks(study, on_tasks)]
    intro = TEXTS["search"]["intro" if kind == "search" else kind]
    return Section(kind, kind.capitalize(), [intro, *blocks]) if blocks else None


def study_heading(study: FoundStudy) -> str:
    return f"{study.title}. {study.question}".rstrip()


def chosen_blocks(study: FoundStudy, on_tasks: OnTasks) -> list[Block]:
    blocks: list[Block] = []
    if study.kind == "search" and len(on_tasks) > 1:
        blocks += search_tables(study, on_tasks)
    for title, members in on_tasks.items():
        name, caption = file_name(f"{study.name}-{title}"), f"{study.kind.capitalize()} on {title}"
        compared = compare_headline(members, None)
        blocks.append(comparison_table(name, caption, compared, members[0].task))
    return blocks


def chosen_answer(on_tasks: OnTasks) -> str:
    """Return the best settings of the section in one sentence."""
    if len(on_tasks) > 1 and (ranked := over_the_least(on_tasks)):
        ranking = [
            f"`{label}` ({geometric_mean(factors):.2f})" for label, factors in ranked.items()
        ]
        return (
            f"Settings with the lowest regret over {len(on_tasks)} tasks (geometric mean of regret "
            f"÷ lowest regret on the task): {', then '.join(ranking[:2])}."
        )
    best = [text for members in on_tasks.values() if (text := _best_on_task(members))]
    return f"The best settings with complete runs: {'; '.join(best)}." if best else NOTHING_COMPLETE


def _best_on_task(members: Sequence[Variant]) -> str:
    task = members[0].task
    means = {v: fmean(v.values(task.headline.key)) for v in members if v.has_results}
    if not means:
        return ""
    choose = min if task.headline.lower_is_better else max
    best = choose(means, key=means.__getitem__)
    return f"on {task.title} `{best.label}`, {task.unit} {number(means[best], task.scale)}"


def search_tables(study: FoundStudy, on_tasks: OnTasks) -> list[Table]:
    return [*_regret_table(study, on_tasks), *_deviation_table(study, on_tasks)]


def geometric_mean(factors: Factors) -> float:
    return math.exp(fmean(map(math.log, factors.values())))


def typical_factor(factors: Factors) -> float:
    """Return the mean factor by which values differ from 1; 2 and 0.5 differ by the same factor."""
    return math.exp(fmean(abs(math.log(factor)) for factor in factors.values()))


def _on_all_tasks(
    on_tasks: OnTasks, measure: Callable[[Variant], T | None]
) -> dict[str, dict[str, T]]:
    """Return a measure by label and task, for the variants that have it on all tasks."""
    found: dict[str, dict[str, T]] = {}
    for title, members in on_tasks.items():
        for variant in members:
            value = measure(variant)
            if value is not None:
                found.setdefault(variant.label, {})[title] = value
    return {label: values for label, values in found.items() if values.keys() == on_tasks.keys()}


def _sorted_by(
    measure: Callable[[Factors], float], rows: Mapping[str, Factors]
) -> dict[str, Factors]:
    """Return rows sorted by a measure, lowest first."""
    return dict(sorted(rows.items(), key=lambda row: (measure(row[1]), row[0])))


# --- regrets


def log_regrets(on_tasks: OnTasks) -> dict[str, dict[str, Summary]]:
    """Return log-regrets by label and task, for the variants with regrets on all tasks."""
    return _on_all_tasks(on_tasks, _log_regrets)


def _log_regrets(variant: Variant) -> Summary | None:
    regrets = variant.values("regret") if variant.has_results else []
    if not regrets or min(regrets) <= 0:
        return None
    return summarise(np.log(regrets))


def over_the_least(on_tasks: OnTasks) -> dict[str, Factors]:
    """Return regret ÷ lowest regret of the task by variant, sorted by the geometric mean."""
    logs = log_regrets(on_tasks)
    if len(logs) < 2:
        return {}
    least = {title: min(of_tasks[title].mean for of_tasks in logs.values()) for title in on_tasks}
    factors = {
        label: {t: math.exp(of_tasks[t].mean - least[t]) for t in on_tasks}
        for label, of_tasks in logs.items()
    }
    return _sorted_by(geometric_mean, factors)


def over_the_baseline(on_tasks: OnTasks, baseline: str) -> dict[str, Difference]:
    """Return log(regret ÷ regret of the baseline) of each other variant.

    p-values are corrected by Holm's method. The result is empty if the baseline lacks a task.
    """
    logs = log_regrets(on_tasks)
    theirs = logs.pop(baseline, None)
    if theirs is None:
        return {}
    found = {
        label: welch_over_strata([(ours[t], theirs[t]) for t in on_tasks])
        for label, ours in logs.items()
    }
    corrected = holm([difference.p for difference in found.values()])
    return {label: replace(found[label], p=p) for label, p in zip(found, corrected, strict=True)}


def _regret_table(study: FoundStudy, on_tasks: OnTasks) -> list[Table]:
    rows, label = over_the_least(on_tasks), f"{study.baseline} ({study.kind})"
    if not rows:
        return []
    compared = over_the_baseline(on_tasks, label) if study.baseline else {}
    if not compared:
        mean = Column("geometric mean", lambda row: geometric_mean(row[1]), "times", digits=2)
        caption = "Regret divided by the lowest regret on the task"
        return [_table(study, "over-tasks", caption, on_tasks, rows, mean)]
    scaled: dict[str, Factors] = {}
    for other, factors in rows.items():
        scaled[other] = {task: factors[task] / rows[label][task] for task in on_tasks}

    def times(row: Row) -> Estimate:
        return in_times(compared[row[0]]) if row[0] in compared else Estimate(1.0)

    def p(row: Row) -> float | None:
        return compared[row[0]].p if row[0] in compared else None

    columns = [
        Column("geometric mean [95%]", times, with_ends("times"), digits=2),
        Column("p (Holm)", p, "p", show=p_value),
    ]
    caption = f"Regret divided by the regret of {study.baseline}"
    return [_table(study, "over-tasks", caption, on_tasks, scaled, *columns)]


# --- deviations


def std_ratios_over_tasks(on_tasks: OnTasks) -> dict[str, Factors]:
    """Return error ÷ std at the end by variant and task, nearest to 1 first."""
    return _sorted_by(typical_factor, _on_all_tasks(on_tasks, _error_over_std))


def _error_over_std(variant: Variant) -> float | None:
    ratio = error_over_std(variant)
    return ratio.value if ratio and ratio.value > 0 else None


def _deviation_table(study: FoundStudy, on_tasks: OnTasks) -> list[Table]:
    rows = std_ratios_over_tasks(on_tasks)
    if not rows:
        return []

    def ends(name: str, row: Row) -> list[list[float]]:
        """Return the final values of the seeds on each task."""
        variants = [v for members in on_tasks.values() for v in members if v.label == row[0]]
        return [OFFERED.ends(variant, name) for variant in variants]

    def mean(name: str, row: Row) -> float | None:
        of_tasks = ends(name, row)
        return fmean(map(fmean, of_tasks)) if all(of_tasks) else None

    def of_root_mean_squares(row: Row) -> float | None:
        """Return the ratio of the root mean squares of error and std.

        If two critics agree, their std is nearly 0, and such a state would dominate a mean of
        quotients.
        """
        logs = []
        for errors, deviations in zip(ends("rms", row), ends("deviation", row), strict=True):
            pairs = zip(errors, deviations, strict=True)
            logs.append([math.log(e / d) for e, d in pairs if e > 0 and d > 0])
        return math.exp(fmean(map(fmean, logs))) if all(logs) else None

    columns = [
        Column(
            "geometric mean", lambda row: geometric_mean(row[1]), "error_by_deviation", digits=2
        ),
        Column(
            "typical factor between error and std",
            lambda row: typical_factor(row[1]),
            "off_by",
            digits=2,
        ),
        Column(
            "ratio of root mean squares", of_root_mean_squares, "of_root_mean_squares", digits=2
        ),
        Column("covered by ± 2 std", partial(mean, "covered"), "covered", digits=2),
        Column("rank correlation", partial(mean, "rank"), "rank", digits=2),
    ]
    caption = "Error ÷ std at the end of training"
    return [_table(study, "deviations", caption, on_tasks, rows, *columns)]


def _table(
    study: FoundStudy,
    name: str,
    caption: str,
    on_tasks: OnTasks,
    rows: Mapping[str, Factors],
    *over_tasks: Column,
) -> Table:
    """Return a table with summary columns over all tasks and a factor for each task."""

    def on_task(title: str, row: Row) -> float:
        return row[1][title]

    columns = [
        words("Variant", lambda row: row[0], "variant"),
        *over_tasks,
        *(
            Column(title, partial(on_task, title), title, "on each task", digits=2)
            for title in on_tasks
        ),
    ]
    return Table(
        file_name(f"{study.name}-{name}"), f"{study.title}. {caption}", columns, [*rows.items()]
    )
