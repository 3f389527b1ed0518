"""Sections on our own runs: each task, across tasks, the controls, and how much the limit for "solved" matters."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pac4sac.reporting.collection import FoundStudy
from pac4sac.reporting.figures import AT_ONCE, learning_figure, ranking_figure, sweep, sweep_figure
from pac4sac.reporting.groups import METRICS, Group, TaskView, short
from pac4sac.reporting.rows import PaperRows
from pac4sac.reporting.statistics import (
    Difference,
    Estimate,
    Summary,
    holm,
    interquartile_mean,
    probability_of_improvement,
    summarise,
    welch,
)
from pac4sac.reporting.tables import NOTHING, Cell, Column, Picture, Section, Table, mean_sd, number, p_value
from pac4sac.reporting.tables import with_interval as text

SIGNIFICANT = 0.05
Groups = Mapping[str, Sequence[Group]]


@dataclass(frozen=True)
class Against:
    """One group against the baseline, by one metric."""

    group: Group
    summary: Summary | None
    iqm: Estimate | None
    difference: Difference | None
    p: float | None  # corrected for all rows of the table
    improvement: Estimate | None
    is_baseline: bool

    @property
    def in_words(self) -> str:
        if self.is_baseline:
            return "baseline"
        if self.p is None or self.difference is None:
            return "not to be told"
        if self.p >= SIGNIFICANT:
            return "no difference shown"
        return "better" if (self.difference.value < 0) == self.group.task.headline.lower_is_better else "worse"


def find_baseline(studies: Sequence[FoundStudy], groups: Sequence[Group], kind: str | None = None) -> Group | None:
    """The one the studies name (that of `kind` first), else SAC, else PAC4SAC, else the first with results."""
    ranked = sorted(studies, key=lambda s: (s.kind != (kind or "table-1"), s.name))
    named = [s.baseline for s in ranked if s.baseline and (kind is None or s.kind == kind)]
    for label in (*named, *(("pac4sac",) if kind else ()), "sac", "pac4sac"):
        for group in groups:
            if (label == group.label or label in group.labels) and group.values(group.task.headline.key):
                return group
    return next((group for group in groups if group.values(group.task.headline.key)), None)


def against(groups: Sequence[Group], baseline: Group | None) -> list[Against]:
    rows = []
    for group in groups:
        metric = group.task.headline
        values = group.values(metric.key)
        theirs = baseline.values(metric.key) if baseline else []
        rival = bool(values and theirs and group is not baseline)
        summary = summarise(values) if values else None
        difference = welch(summary, summarise(theirs)) if summary and rival else None
        improvement = (
            probability_of_improvement([values], [theirs], lower_is_better=metric.lower_is_better) if rival else None
        )
        iqm = interquartile_mean([values]) if values else None
        rows.append((group, summary, iqm, difference, improvement))
    corrected = holm([difference.p if difference else None for *_, difference, _ in rows])
    return [
        Against(group, summary, iqm, difference, p, improvement, group is baseline)
        for (group, summary, iqm, difference, improvement), p in zip(rows, corrected, strict=True)
    ]


def task_section(task: TaskView, groups: Sequence[Group], rows: PaperRows, studies: Sequence[FoundStudy]) -> Section:
    results = [group for group in groups if not group.calibration]
    baseline = find_baseline(studies, results)
    blocks: list[Any] = [_about(task, baseline)]
    name = file_name(task.title)
    blocks.append(comparison_table(f"task-{name}", f"All variants on {task.title}", against(results, baseline), task))
    for picture, (what, members) in enumerate(_sets(task, results, rows)):
        caption = f"{task.title}: {what}. Bold: mean of the seeds, with its 95 % interval from three seeds on"
        if task.r_limit is not None and task.e_max:
            caption += "; right: fraction of runs solved, with Wilson's 95 % interval"
        suffix = "" if picture == 0 else f"-{picture + 1}"
        blocks.append(Picture(f"learning-{name}{suffix}", caption, learning_figure(members)))
    blocks.append(_further_metrics(f"metrics-{name}", task, results))
    return Section(f"task-{name}", f"Task {task.title}", blocks)


def _about(task: TaskView, baseline: Group | None) -> str:
    told = []
    if task.r_limit is None:
        told.append("The task has no return that counts as solved, so variants are ranked by mean return.")
    elif not task.e_max:
        told.append(
            "Episodes differ in length, so variants are ranked by the mean return over steps, and steps until solved "
            f"take the place of episodes; solved means five episodes in a row above {short(task.r_limit)}."
        )
    else:
        told.append(f"Solved means five episodes in a row above {short(task.r_limit)}; E_max is {task.e_max} episodes.")
    if baseline:
        told.append(
            f"The baseline is `{baseline.label}`; p-values are Welch's for {task.headline.title}, with Holm's "
            "correction over this table."
        )
    return " ".join(told)


def comparison_table(name: str, caption: str, rows: Sequence[Against], task: TaskView) -> Table:
    metric, scale = task.headline, headline_scale(task)
    second = METRICS["episodes" if metric.key == "regret" else "steps_until_solved"]
    unit = ", thousands" if scale > 1 else ""
    columns = [
        Column("Variant", numeric=False), Column("Runs"), Column(f"{metric.title}{unit}"), Column("IQM [95 %]"),
        *([Column(second.title), Column("solved")] if task.r_limit is not None else []),
        Column("final evaluation"), Column("P(better than baseline) [95 %]"), Column("p (Holm)"),
        Column("Against baseline", numeric=False), Column("Repeat with", numeric=False),
    ]  # fmt: skip
    body, records = [], []
    for row in rows:
        group = row.group
        extra = group.values(second.key)
        final = group.values("final_shooting") or group.values("final_greedy")
        cells = [
            Cell(group.label, group.label), runs_cell(group),
            Cell(mean_sd(row.summary, scale), row.summary.mean if row.summary else None),
            Cell(text(row.iqm, scale), row.iqm.value if row.iqm else None),
        ]  # fmt: skip
        if task.r_limit is not None:
            cells.append(
                Cell(mean_sd(summarise(extra)) if extra else NOTHING, summarise(extra).mean if extra else None)
            )
            cells.append(Cell(f"{group.solved} of {len(group.judged)}", group.solved))
        cells += [
            Cell(mean_sd(summarise(final)) if final else NOTHING, summarise(final).mean if final else None),
            Cell(text(row.improvement, digits=2), row.improvement.value if row.improvement else None),
            Cell(p_value(row.p), row.p), Cell(row.in_words, row.in_words), Cell(group.command, code=True),
        ]  # fmt: skip
        body.append(cells)
        records.append(_record(row))
    return Table(name, caption, columns, body, records)


def _record(row: Against) -> dict[str, Any]:
    d, i, q = row.difference, row.improvement, row.iqm
    return {
        "task": row.group.task.title, "variant": row.group.label, "algo": row.group.algo,
        "metric": row.group.task.headline.key, "runs": len(row.group.outcomes), "complete": len(row.group.complete),
        "solved": row.group.solved, "mean": row.summary.mean if row.summary else None,
        "sd": row.summary.sd if row.summary else None, "iqm": q.value if q else None, "iqm_low": q.low if q else None,
        "iqm_high": q.high if q else None, "difference": d.value if d else None, "difference_low": d.low if d else None,
        "difference_high": d.high if d else None, "p_holm": row.p, "p_improvement": i.value if i else None,
        "p_improvement_low": i.low if i else None, "p_improvement_high": i.high if i else None,
        "against_baseline": row.in_words, "command": row.group.command,
    }  # fmt: skip


def runs_cell(group: Group) -> Cell:
    told = f"{len(group.complete)} of {len(group.outcomes)}"
    broken = [f"{n} {state}" for state in ("diverged", "failed", "unfinished") if (n := group.count(state))]
    return Cell(told + (f" ({', '.join(broken)})" if broken else ""), len(group.complete))


def headline_scale(task: TaskView) -> float:
    """Thousands, as in the paper, where regrets are that large."""
    return 1000.0 if task.headline.key == "regret" and (task.r_limit or 0) * (task.e_max or 0) >= 10_000 else 1.0


def _sets(task: TaskView, groups: Sequence[Group], rows: PaperRows) -> list[tuple[str, list[Group]]]:
    """Few enough variants for one picture: the paper's rows each, then the rest with PAC4SAC beside them."""

    def pick(found: Mapping[Any, Group]) -> list[Group]:
        return [group for group in groups if any(group is row for row in found.values())]

    main, terms, shots = pick(rows.table_1), pick(rows.table_2), pick(rows.shooting)
    sets = [("the algorithms of Table 1", main), ("the loss terms of Table 2", terms), ("numbers of shots", shots)]
    shown = [group for _, members in sets for group in members]
    rest = [group for group in groups if not any(group is other for other in shown)]
    reference = [group for group in main if group.algo == "pac4sac"]
    size = AT_ONCE - len(reference)
    for start in range(0, len(rest), size):
        sets.append(("controls and others" if main else "all variants", [*reference, *rest[start : start + size]]))
    return [(what, members[:AT_ONCE]) for what, members in sets if members and any(g.runs for g in members)]


def _further_metrics(name: str, task: TaskView, groups: Sequence[Group]) -> Table:
    known = [m for m in METRICS.values() if any(group.values(m.key) for group in groups)]
    body, records = [], []
    for group in groups:
        cells = [Cell(group.label, group.label)]
        for metric in known:
            values = group.values(metric.key)
            scale = headline_scale(task) if "regret" in metric.key else 1.0
            cells.append(Cell(mean_sd(summarise(values), scale) if values else NOTHING,
                              summarise(values).mean if values else None))  # fmt: skip
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
    if len(tasks) < 2:
        return None
    labels = dict.fromkeys(group.label for found in tasks for group in found if not group.calibration)
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
        body.append([Cell(label, label), Cell(str(sum(map(len, scores))), sum(map(len, scores))),
                     Cell(text(iqm[label], digits=3), iqm[label].value),
                     Cell(text(better, digits=2), better.value if better else None)])  # fmt: skip
    titles = ("Runs", "IQM of normalised regret [95 %]", f"P(better than {baseline}) [95 %]")
    columns = [Column("Variant", numeric=False), *(Column(title) for title in titles)]
    intro = (
        f"Over {', '.join(found[0].task.title for found in tasks)}: each regret divided by r_limit × E_max; the "
        "bootstrap resamples seeds within each task. Only variants with results on all of these tasks are shown."
    )
    ranked = dict(sorted(iqm.items(), key=lambda item: item[1].value))
    caption = "Interquartile mean of the normalised regret, with stratified-bootstrap 95 % intervals; less is better"
    picture = Picture("across-tasks", caption, ranking_figure(ranked, baseline, "normalised regret", 1.0))
    return Section("across-tasks", "Across tasks", [intro, Table("across-tasks", caption, columns, body), picture])


def _normalised(group: Group) -> list[float]:
    most = (group.task.r_limit or 1.0) * (group.task.e_max or 1)
    return [value / most for value in group.values("regret")]


def sweep_section(groups: Groups, rows: PaperRows) -> Section | None:
    blocks: list[Any] = []
    for found in groups.values():
        task = found[0].task
        if not task.r_limit or not task.e_max:
            continue
        results = [group for group in found if not group.calibration and group.runs]
        main = [group for group in results if any(group is row for row in rows.table_1.values())]
        members = [*main, *(group for group in results if group not in main)][:AT_ONCE]
        found_at = {group.label: sweep(group) for group in members}
        if not any(values for limits in found_at.values() for values in limits.values()):
            continue
        name = f"threshold-{file_name(task.title)}"
        caption = f"{task.title}: mean episodes until solved as the limit is moved; dashed, the task's own"
        blocks.append(Picture(name, caption, sweep_figure(members)))
        limits = sorted(next(iter(found_at.values())))
        body = []
        for label, by_limit in found_at.items():
            means = [sum(by_limit[limit]) / len(by_limit[limit]) if by_limit[limit] else None for limit in limits]
            body.append([Cell(label, label), *(Cell(number(mean), mean) for mean in means)])
        columns = [Column("Variant", numeric=False), *(Column(f"{limit:g}") for limit in limits)]
        blocks.append(Table(name, caption, columns, body, folded=True))
    if not blocks:
        return None
    intro = (
        "The paper chose the return that counts as solved after seeing results. An order of variants that holds over "
        "all limits does not hang on that choice. Runs that were never solved count as E_max."
    )
    return Section("threshold", "How much the limit for “solved” matters", [intro, *blocks])


def file_name(title: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-")
