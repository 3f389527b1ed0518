"""Variants against a baseline: by their means, by their ranks, and the table that shows both."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pac4sac.base.text import p_value
from pac4sac.paper.families import BEST, SHOTS, STUDY_TITLES, TABLE_2, Family, is_preset_best
from pac4sac.paper.paper_rows import TERMS, PaperRows
from pac4sac.paper.verdicts import SIGNIFICANT, UNFINISHED
from pac4sac.report.tables import Cell, Column, Table, mean_sd
from pac4sac.report.tables import with_interval as text
from pac4sac.report.variants import METRICS, Group, Metric, TaskView
from pac4sac.runs.collection import FoundStudy
from pac4sac.runs.statistics import (
    Difference,
    Estimate,
    Summary,
    holm,
    interquartile_mean,
    mann_whitney,
    probability_of_improvement,
    summarise,
    welch,
)
from pac4sac.runs.statistics import fraction as solved_fraction

BETTER, WORSE, NO_DIFFERENCE = "better", "worse", "no difference shown"
MORE_OFTEN = "more often than not"
WORDS = (BETTER, f"{BETTER} {MORE_OFTEN}", WORSE, f"{WORSE} {MORE_OFTEN}", NO_DIFFERENCE, UNFINISHED, "not to be told")
TESTS = (
    "“better” and “worse” are decided by Welch's test of the means, “more often than not” by Mann and Whitney's test "
    "of the ranks where the means decide nothing"
)


@dataclass(frozen=True)
class Against:
    """One group against the baseline, by one metric."""

    group: Group
    summary: Summary | None
    iqm: Estimate | None
    difference: Difference | None
    p: float | None  # of the means; both are corrected for the other rows of the family
    p_ranks: float | None
    improvement: Estimate | None
    is_baseline: bool
    family: str

    @property
    def in_words(self) -> str:
        if self.is_baseline:
            return "baseline"
        if self.group.under_way:
            return UNFINISHED
        if self.difference is None or self.improvement is None or (self.p is None and self.p_ranks is None):
            return "not to be told"
        by_rank = f"{BETTER if self.improvement.value > 0.5 else WORSE} {MORE_OFTEN}"
        if self.p is not None and self.p < SIGNIFICANT:
            return BETTER if (self.difference.value < 0) == self.group.task.headline.lower_is_better else WORSE
        return by_rank if self.p_ranks is not None and self.p_ranks < SIGNIFICANT else NO_DIFFERENCE


def find_baseline(studies: Sequence[FoundStudy], groups: Sequence[Group], kind: str | None = None) -> Group | None:
    """The one the studies name (that of `kind` first), else SAC, else PAC4SAC, else the first with results; but where
    the preset `best` is asked about, it or none."""
    if kind == BEST:
        return next((g for g in groups if is_preset_best(g) and g.values(g.task.headline.key)), None)
    ranked = sorted(studies, key=lambda s: (s.kind != (kind or "table-1"), s.name))
    named = [s.baseline for s in ranked if s.baseline and (kind is None or s.kind == kind)]
    for label in (*named, *(("pac4sac",) if kind else ()), "sac", "pac4sac"):
        for group in groups:
            if (label == group.label or label in group.labels) and group.values(group.task.headline.key):
                return group
    return next((group for group in groups if group.values(group.task.headline.key)), None)


def family_baseline(
    family: Family, results: Sequence[Group], rows: PaperRows, studies: Sequence[FoundStudy]
) -> Group | None:
    """What its study asks about: all three terms, S = 1, or what the studies name."""
    asked = {
        TABLE_2: rows.table_2.get((family.members[0].task.name, TERMS[True, True])),
        SHOTS: rows.shooting.get(1),
    }.get(family.title)
    if asked and any(asked is group for group in results) and asked.values(asked.task.headline.key):
        return asked
    kind = next((kind for kind, title in STUDY_TITLES.items() if title == family.title), None)
    return find_baseline(studies, results, kind)


def against(groups: Sequence[Group], baseline: Group | None, family: str = "") -> list[Against]:
    """The groups are one family: p-values are corrected for all of them."""
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
        ranks = mann_whitney(values, theirs) if rival else None
        rows.append((group, summary, iqm, difference, ranks, improvement))
    of_means = holm([difference.p if difference else None for *_, difference, _, _ in rows])
    of_ranks = holm([ranks for *_, ranks, _ in rows])
    return [
        Against(group, summary, iqm, difference, p, p_ranks, improvement, group is baseline, family)
        for (group, summary, iqm, difference, _, improvement), p, p_ranks in zip(rows, of_means, of_ranks, strict=True)
    ]


def against_in_families(found: Sequence[Family], baseline: Group | None) -> list[Against]:
    return [row for family in found for row in against(family.members, baseline, family.title)]


def tally(rows: Sequence[Against]) -> str:
    by_word: dict[str, list[str]] = {}
    for row in rows:
        if not row.is_baseline:
            share = (
                f" (P(better) = {row.improvement.value:.2f})" if MORE_OFTEN in row.in_words and row.improvement else ""
            )
            by_word.setdefault(row.in_words, []).append(row.group.label + share)
    return "; ".join(f"{word}: {', '.join(by_word[word])}" for word in WORDS if word in by_word)


def comparison_table(name: str, caption: str, rows: Sequence[Against], task: TaskView) -> Table:
    metric, scale = task.headline, headline_scale(task)
    second = second_metric(task)
    unit = ", thousands" if scale > 1 else ""
    finals = {METRICS["final_greedy"]: "deterministic", METRICS["final_shooting"]: "shooting"}
    in_families = len({row.family for row in rows}) > 1
    has_baseline = any(row.is_baseline for row in rows)
    beside_baseline = [
        Column("P(better than baseline) [95 %]"), Column("means (Welch)", "p (Holm)"),
        Column("ranks (Mann–Whitney)", "p (Holm)"), Column("Against baseline", numeric=False),
    ]  # fmt: skip
    columns = [
        Column("Variant", numeric=False), Column("Runs"), Column(f"{metric.title}{unit}"), Column("IQM [95 %]"),
        *([Column(second.title), Column("solved")] if task.r_limit is not None else []),
        *(Column(policy, "final evaluation") for policy in finals.values()),
        *(beside_baseline if has_baseline else []),
        *([Column("Family", numeric=False)] if in_families else []), Column("Repeat with", numeric=False),
    ]  # fmt: skip
    body, records = [], []
    for row in rows:
        group = row.group
        cells = [
            Cell(group.label, group.label), runs_cell(group), value_cell(group, metric, scale),
            Cell(text(row.iqm, scale), row.iqm.value if row.iqm else None),
        ]  # fmt: skip
        if task.r_limit is not None:
            cells += [value_cell(group, second), Cell(group.solved_text, group.solved)]
        told = [
            Cell(text(row.improvement, digits=2), row.improvement.value if row.improvement else None),
            Cell(p_value(row.p), row.p), Cell(p_value(row.p_ranks), row.p_ranks), Cell(row.in_words, row.in_words),
        ]  # fmt: skip
        cells += [
            *(value_cell(group, final) for final in finals), *(told if has_baseline else []),
            *([Cell(row.family, row.family)] if in_families else []), Cell(group.command, code=True),
        ]  # fmt: skip
        body.append(cells)
        records.append(_record(row))
    return Table(name, caption, columns, body, records)


def _record(row: Against) -> dict[str, Any]:
    d, i, q = row.difference, row.improvement, row.iqm
    group, second = row.group, second_metric(row.group.task)
    fraction = solved_fraction(group.solved, len(group.judged)) if group.judged and not group.under_way else None
    until = summarise(values) if (values := group.values(second.key)) else None
    return {
        "task": row.group.task.title, "variant": row.group.label, "algo": row.group.algo,
        "metric": row.group.task.headline.key, "runs": len(row.group.outcomes), "complete": len(row.group.complete),
        "solved": row.group.solved, "solved_fraction": fraction.value if fraction else None,
        "solved_low": fraction.low if fraction else None, "solved_high": fraction.high if fraction else None,
        second.key: until.mean if until else None, f"{second.key}_sd": until.sd if until else None,
        "mean": row.summary.mean if row.summary else None,
        "sd": row.summary.sd if row.summary else None, "iqm": q.value if q else None, "iqm_low": q.low if q else None,
        "iqm_high": q.high if q else None, "difference": d.value if d else None, "difference_low": d.low if d else None,
        "difference_high": d.high if d else None, "family": row.family, "p_holm": row.p, "p_ranks_holm": row.p_ranks,
        "p_improvement": i.value if i else None,
        "p_improvement_low": i.low if i else None, "p_improvement_high": i.high if i else None,
        "against_baseline": row.in_words, "command": row.group.command,
    }  # fmt: skip


def value_cell(group: Group, metric: Metric, scale: float = 1.0) -> Cell:
    values, note = group.shown(metric.key)
    summary = summarise(values) if values else None
    # What may yet grow has no place in an order.
    return Cell(mean_sd(summary, scale), summary.mean if summary and not note else None, note=note)


def runs_cell(group: Group) -> Cell:
    told = f"{len(group.complete)} of {len(group.outcomes)}"
    broken = [f"{n} {state}" for state in ("diverged", "failed", "unfinished") if (n := group.count(state))]
    return Cell(told + (f" ({', '.join(broken)})" if broken else ""), len(group.complete))


def second_metric(task: TaskView) -> Metric:
    return METRICS["episodes" if task.headline.key == "regret" else "steps_until_solved"]


def headline_scale(task: TaskView) -> float:
    """Thousands, as in the paper, where regrets are that large."""
    return 1000.0 if task.headline.key == "regret" and (task.r_limit or 0) * (task.e_max or 0) >= 10_000 else 1.0
