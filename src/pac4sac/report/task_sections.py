"""Sections on our own runs: each task, and all tasks together."""

from collections.abc import Mapping, Sequence
from typing import Any

from pac4sac.base.text import file_name, setting_text
from pac4sac.paper.families import Family, families
from pac4sac.paper.paper_rows import PaperRows
from pac4sac.report.computing import mixtures
from pac4sac.report.figures import AT_ONCE, learning_figure, ranking_figure
from pac4sac.report.tables import Cell, Column, Picture, Section, Table
from pac4sac.report.tables import with_interval as text
from pac4sac.report.variants import METRICS, Group, TaskView
from pac4sac.report.versus_baseline import (
    TESTS,
    against_in_families,
    comparison_table,
    find_baseline,
    headline_scale,
    value_cell,
)
from pac4sac.runs.collection import FoundStudy
from pac4sac.runs.statistics import interquartile_mean, probability_of_improvement

Groups = Mapping[str, Sequence[Group]]


def task_section(task: TaskView, groups: Sequence[Group], rows: PaperRows, studies: Sequence[FoundStudy]) -> Section:
    results = [group for group in groups if group.is_result]
    baseline = find_baseline(studies, results)
    found = families(results, rows, studies)
    blocks: list[Any] = [_about(task, baseline, found)]
    name = file_name(task.title)
    compared = against_in_families(found, baseline)
    blocks += [comparison_table(f"task-{name}", f"All variants on {task.title}", compared, task), *mixtures(results)]
    for picture, (what, members) in enumerate(picture_sets(results, rows, studies)):
        caption = f"{task.title}: {what}. Bold: mean of the seeds, with its 95 % interval from three seeds on"
        if task.r_limit is not None and task.e_max:
            caption += "; right: fraction of runs solved, with Wilson's 95 % interval"
        suffix = "" if picture == 0 else f"-{picture + 1}"
        blocks.append(Picture(f"learning-{name}{suffix}", caption, learning_figure(members)))
    blocks.append(_further_metrics(f"metrics-{name}", task, results))
    return Section(f"task-{name}", f"Task {task.title}", blocks)


def _about(task: TaskView, baseline: Group | None, found: Sequence[Family]) -> str:
    told = []
    if task.r_limit is None:
        told.append("The task has no return that counts as solved, so variants are ranked by mean return.")
    elif not task.e_max:
        told.append(
            "Episodes differ in length, so variants are ranked by the mean return over steps, and steps until solved "
            f"take the place of episodes; solved means five episodes in a row above {setting_text(task.r_limit)}."
        )
    else:
        told.append(
            f"Solved means five episodes in a row above {setting_text(task.r_limit)}; E_max is {task.e_max} episodes."
        )
    if baseline:
        told.append(f"The baseline is `{baseline.label}`; by {task.headline.title}, {TESTS}, both at 5 %.")
        sizes = {family.title: sum(group is not baseline for group in family.members) for family in found}
        told.append(
            "p-values are corrected (Holm) for the comparisons of the same family and no others: "
            f"{', '.join(f'{title} ({n})' for title, n in sizes.items() if n)}."
            if len(sizes) > 1
            else "p-values are corrected (Holm) for all comparisons of the table."
        )
    return " ".join(told)


def picture_sets(
    results: Sequence[Group], rows: PaperRows, studies: Sequence[FoundStudy]
) -> list[tuple[str, list[Group]]]:
    """Few enough variants for one picture: a family, or a part of it, with PAC4SAC beside it."""
    main = [row for (_, algo), row in rows.table_1.items() if algo == "pac4sac"]
    ours = [group for group in results if any(group is row for row in main)]
    sets = []
    for family in families(results, rows, studies):
        reference = [] if any(member is group for member in family.members for group in ours) else ours
        size = AT_ONCE - len(reference)
        for start in range(0, len(family.members), size):
            members = [*reference, *family.members[start : start + size]]
            if any(group.runs for group in members):
                sets.append((family.title, members))
    return sets


def _further_metrics(name: str, task: TaskView, groups: Sequence[Group]) -> Table:
    known = [m for m in METRICS.values() if any(group.shown(m.key)[0] for group in groups)]
    body, records = [], []
    for group in groups:
        cells = [Cell(group.label, group.label)]
        for metric in known:
            cells.append(value_cell(group, metric, headline_scale(task) if "regret" in metric.key else 1.0))
        body.append(cells)
        for outcome in group.outcomes:
            about = {"variant": group.label, "seed": outcome.run.record.seed, "state": outcome.state}
            records.append(about | {"solved": outcome.solved} | {m.key: outcome.metrics.get(m.key) for m in known})
    unit = " (regrets in thousands)" if headline_scale(task) > 1 else ""
    columns = [Column("Variant", numeric=False), *(Column(metric.title) for metric in known)]
    return Table(name, f"All metrics on {task.title}, mean ± sd{unit}; the CSV has every run", columns, body, records,
                 folded=True)  # fmt: skip


def across_tasks_section(groups: Groups, studies: Sequence[FoundStudy]) -> Section | None:
    """Regret as a fraction of r_limit × E_max, so that tasks can be put together."""
    tasks = [found for found in groups.values() if found[0].task.headline.key == "regret"]
    tasks = [found for found in tasks if (found[0].task.r_limit or 0) > 0]
    # One that a single variant has been trained on compares nothing, and would leave out all others.
    tasks = [found for found in tasks if sum(group.is_result and bool(_normalised(group)) for group in found) > 1]
    if len(tasks) < 2:
        return None
    labels = dict.fromkeys(group.label for found in tasks for group in found if group.is_result)
    strata: dict[str, list[list[float]]] = {}
    for label in labels:
        scores = [_normalised(group) for found in tasks for group in found if group.label == label]
        if len(scores) == len(tasks) and all(scores):
            strata[label] = scores
    if len(strata) < 2:
        return None
    named = [find_baseline(studies, found) for found in tasks]
    baseline = next((group.label for group in named if group and group.label in strata), next(iter(strata)))
    iqm = {label: interquartile_mean(scores) for label, scores in strata.items()}
    body = []
    for label, scores in strata.items():
        better = None
        if label != baseline:
            better = probability_of_improvement(scores, strata[baseline], lower_is_better=True)
        diverged = sum(group.count("diverged") for found in tasks for group in found if group.label == label)
        runs, note = sum(map(len, scores)), f"{diverged} diverged left out" if diverged else ""
        body.append([Cell(label, label), Cell(str(runs), runs, note=note),
                     Cell(text(iqm[label], digits=3), iqm[label].value),
                     Cell(text(better, digits=2), better.value if better else None)])  # fmt: skip
    titles = ("Runs", "IQM of normalised regret [95 %]", f"P(better than {baseline}) [95 %]")
    columns = [Column("Variant", numeric=False), *(Column(title) for title in titles)]
    intro = (
        f"Over {', '.join(found[0].task.title for found in tasks)}: each regret divided by r_limit × E_max; "
        "the interquartile means of the tasks are averaged, so that each has the same weight whatever its seeds, and "
        "the bootstrap resamples seeds within each task. Only variants with results on all of these tasks are shown."
    )
    ranked = dict(sorted(iqm.items(), key=lambda item: item[1].value))
    caption = "Interquartile mean of the normalised regret, with stratified-bootstrap 95 % intervals; less is better"
    picture = Picture("across-tasks", caption, ranking_figure(ranked, baseline, "normalised regret", 1.0))
    table = Table("across-tasks", caption, columns, body)
    shown = [group for found in tasks for group in found if group.label in strata]
    return Section("across-tasks", "Across tasks", [intro, table, *mixtures(shown), picture])


def _normalised(group: Group) -> list[float]:
    most = (group.task.r_limit or 1.0) * (group.task.e_max or 1)
    return [value / most for value in group.values("regret")]
