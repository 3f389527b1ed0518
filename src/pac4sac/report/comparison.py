"""Variants against a baseline: the difference of their means with its interval, its corrected
p-value, and a verdict in words. All of the report that compares variants does it here."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter

from pac4sac.base.text import p_value
from pac4sac.report.looks import Look
from pac4sac.report.tables import (
    Cell,
    Column,
    Table,
    command,
    data,
    in_digits,
    verdict_cell,
    with_ends,
    words,
)
from pac4sac.report.variants import METRICS, Metric, TaskView, Variant
from pac4sac.runs import statistics
from pac4sac.runs.collection import Collection
from pac4sac.runs.statistics import Difference, Estimate, summarise
from pac4sac.runs.status import CUT_SHORT

BASELINE, UNFINISHED, UNKNOWN, NO_DIFFERENCE = (
    "baseline",
    "unfinished",
    "unknown",
    "no difference shown",
)
BETTER, WORSE, MORE_OFTEN = "better", "worse", "more often than not"
VERDICTS = (
    BETTER,
    f"{BETTER} {MORE_OFTEN}",
    WORSE,
    f"{WORSE} {MORE_OFTEN}",
    NO_DIFFERENCE,
    UNFINISHED,
    UNKNOWN,
)
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Family:
    """Variants of one task; a test is corrected for the others of its family."""

    title: str
    members: Sequence[Variant]


@dataclass(frozen=True)
class Context:
    """What every section is made of, computed once. Tasks are known by their titles."""

    collection: Collection
    variants: Mapping[str, Sequence[Variant]]  # by task
    families: Mapping[str, Sequence[Family]]  # of the results on a task: each is in one
    baselines: Mapping[str, Variant | None]  # of the results on a task
    references: Mapping[str, Variant]  # what is drawn beside every family of a task

    def results(self, task: str) -> list[Variant]:
        return [variant for variant in self.variants[task] if variant.is_result]

    @property
    def task_names(self) -> list[str]:
        """Each once, however many lengths of it there are."""
        return list(dict.fromkeys(variant.task.name for variant in self.all_variants))

    @property
    def all_variants(self) -> list[Variant]:
        return [variant for members in self.variants.values() for variant in members]

    @property
    def looks(self) -> dict[str, Look]:
        """By label."""
        return {variant.label: variant.look for variant in self.all_variants}


@dataclass(frozen=True)
class Quantity:
    """What variants are compared by, with the verdicts on one that has more or less of it than the
    baseline."""

    values: Callable[[Variant], Sequence[float]]
    more: str
    less: str
    test: Callable[[Variant, Variant], Difference] | None = None  # instead of Welch's of the values
    lower_is_better: bool | None = None  # None: ranks decide nothing


@dataclass(frozen=True)
class Compared:
    variant: Variant
    baseline: Variant | None
    quantity: Quantity
    difference: Difference | None = None
    p: float | None = (
        None  # of the difference; both are corrected for the other variants of the family
    )
    p_ranks: float | None = None
    family: str = ""

    @property
    def is_baseline(self) -> bool:
        return self.variant is self.baseline

    @cached_property
    def values(self) -> Sequence[float]:
        return self.quantity.values(self.variant)

    @cached_property
    def iqm(self) -> Estimate | None:
        return statistics.interquartile_mean([self.values]) if self.values else None

    @cached_property
    def improvement(self) -> Estimate | None:
        """The probability that a run of the variant is better than one of the baseline."""
        if self.baseline is None or self.difference is None:
            return None
        theirs, lower = self.quantity.values(self.baseline), bool(self.quantity.lower_is_better)
        return statistics.probability_of_improvement([self.values], [theirs], lower_is_better=lower)

    @cached_property
    def verdict(self) -> str:
        if self.is_baseline:
            return BASELINE
        if self.variant.under_way or (self.baseline and self.baseline.under_way):
            return UNFINISHED
        if self.difference is None or (self.p is None and self.p_ranks is None):
            return UNKNOWN
        if self.p is not None and self.p < SIGNIFICANT:
            return self.quantity.more if self.difference.value > 0 else self.quantity.less
        if self.p_ranks is not None and self.p_ranks < SIGNIFICANT and self.improvement:
            return f"{BETTER if self.improvement.value > 0.5 else WORSE} {MORE_OFTEN}"
        return NO_DIFFERENCE


def compare(
    variants: Sequence[Variant], baseline: Variant | None, quantity: Quantity, family: str = ""
) -> list[Compared]:
    """The variants are one family: p-values are corrected for all of them."""
    theirs = quantity.values(baseline) if baseline else []
    tested: list[tuple[Difference | None, float | None]] = []
    for variant in variants:
        difference, rank = None, None
        if baseline and variant is not baseline and theirs and (ours := quantity.values(variant)):
            welch = statistics.welch(summarise(ours), summarise(theirs))
            difference = quantity.test(variant, baseline) if quantity.test else welch
            rank = (
                statistics.mann_whitney(ours, theirs)
                if quantity.lower_is_better is not None
                else None
            )
        tested.append((difference, rank))
    p_means = statistics.holm([difference.p if difference else None for difference, _ in tested])
    p_ranks = statistics.holm([rank for _, rank in tested])
    rows = zip(variants, tested, p_means, p_ranks, strict=True)
    return [
        Compared(variant, baseline, quantity, d, p, p_rank, family)
        for variant, (d, _), p, p_rank in rows
    ]


def compare_headline(
    variants: Sequence[Variant],
    baseline: Variant | None,
    family: str = "",
    metric: Metric | None = None,
) -> list[Compared]:
    """By what the variants of a task are ranked by, or another metric."""
    metric = metric or variants[0].task.headline
    words_of = (WORSE, BETTER) if metric.lower_is_better else (BETTER, WORSE)
    quantity = Quantity(
        lambda variant: variant.values(metric.key),
        *words_of,
        lower_is_better=metric.lower_is_better,
    )
    return compare(variants, baseline, quantity, family)


def first_with_results(variants: Sequence[Variant], names: Iterable[str] = ()) -> Variant | None:
    """By the names in their order, else the first variant that has results."""
    known = [variant for variant in variants if variant.has_results]
    named = (v for name in names for v in known if name == v.label or name in v.labels)
    return next(named, known[0] if known else None)


def in_words(labels: Iterable[tuple[str, str]], order: Sequence[str]) -> str:
    """Of verdicts and labels, as in `better: a, b; worse: c`."""
    by_verdict: dict[str, list[str]] = defaultdict(list)
    for verdict, label in labels:
        by_verdict[verdict].append(label)
    return "; ".join(
        f"{verdict}: {', '.join(by_verdict[verdict])}" for verdict in order if verdict in by_verdict
    )


def tally(rows: Sequence[Compared]) -> str:
    rivals = [
        (row, MORE_OFTEN in row.verdict and row.improvement) for row in rows if not row.is_baseline
    ]
    by_rank = [
        (row, f" (P(better) = {better.value:.2f})" if better else "") for row, better in rivals
    ]
    return in_words([(row.verdict, row.variant.label + note) for row, note in by_rank], VERDICTS)


# --- the table that shows it


def comparison_table(name: str, caption: str, rows: Sequence[Compared], task: TaskView) -> Table:
    metric, second = (
        task.headline,
        METRICS["episodes" if task.headline.key == "regret" else "steps_until_solved"],
    )
    until_solved = [
        Column(second.title, lambda row: metric_cell(row.variant, second.key)),
        Column("solved", lambda row: Cell(row.variant.solved_text, row.variant.solved)),
    ]
    verdicts = [words("Against baseline", lambda row: verdict_cell(row.verdict))]
    beside_baseline = [
        Column("P(better than baseline) [95 %]", "improvement", digits=2),
        Column("means (Welch)", "p", group="p (Holm)", show=p_value),
        Column("ranks (Mann–Whitney)", "p_ranks", group="p (Holm)", show=p_value),
    ]
    has_baseline = any(row.is_baseline for row in rows)
    columns = [  # the most telling first, since a narrow page folds the last
        words("Variant", lambda row: variant_cell(row.variant)),
        *(verdicts if has_baseline else []),
        Column(task.unit, lambda row: metric_cell(row.variant, metric.key, task.scale)),
        *([Column("difference [95 %]", "difference", scale=task.scale)] if has_baseline else []),
        *(until_solved if task.r_limit is not None else []),
        Column("IQM [95 %]", "iqm", scale=task.scale),
        *(beside_baseline if has_baseline else []),
        Column("Runs", lambda row: runs_cell(row.variant)),
        Column(
            "deterministic",
            lambda row: metric_cell(row.variant, "final_deterministic"),
            group="final evaluation",
        ),
        Column(
            "shooting",
            lambda row: metric_cell(row.variant, "final_shooting"),
            group="final evaluation",
        ),
        *(
            [words("Family", "family", folded=True)]
            if len({row.family for row in rows}) > 1
            else []
        ),
        command("variant.command"),
        data(
            "task",
            "variant",
            "algo",
            get=attrgetter("variant.task.title", "variant.label", "variant.algo"),
        ),
        data("metric", get=lambda _: metric.key),
        data(
            "runs",
            "complete",
            get=lambda row: (len(row.variant.outcomes), len(row.variant.complete)),
        ),
        data("solved", get="variant.solved"),
        data("solved_fraction", "solved_low", "solved_high", get="variant.solved_fraction"),
        data(second.key, f"{second.key}_sd", get=lambda row: row.variant.summary(second.key)),
        data("mean", "sd", get=lambda row: row.variant.summary(metric.key)),
        data(*with_ends("iqm"), get="iqm"),
        data(*with_ends("difference"), get="difference"),
        data("family", "p_holm", "p_ranks_holm", get=attrgetter("family", "p", "p_ranks")),
        data(*with_ends("p_improvement"), get="improvement"),
        data("against_baseline", "command", get=attrgetter("verdict", "variant.command")),
    ]
    return Table(name, caption, columns, rows)


def ends_table(name: str, caption: str, by_metric: Mapping[str, Sequence[Compared]]) -> Table:
    """All variants by several metrics side by side, as the field tells what came of training."""
    columns = [
        words("Variant", lambda row: variant_cell(row[0].variant)),
        data("variant", get=lambda row: row[0].variant.label),
    ]
    for place, key in enumerate(by_metric):
        columns += _columns_of_end(place, key)
    return Table(name, caption, columns, list(zip(*by_metric.values(), strict=True)))


def _columns_of_end(place: int, key: str) -> list[Column]:
    def mean(row: Sequence[Compared]) -> Estimate | None:
        return statistics.mean_interval(row[place].values) if row[place].values else None

    group = partial(Column, group=METRICS[key].title)
    return [
        group("mean [95 %]", mean, with_ends(key)),
        group(
            "against baseline",
            lambda row: verdict_cell(row[place].verdict),
            f"{key}_against_baseline",
        ),
        group(
            "difference [95 %]", lambda row: row[place].difference, with_ends(f"{key}_difference")
        ),
        data(f"{key}_p_holm", get=lambda row: row[place].p),
    ]


def variant_cell(variant: Variant) -> Cell:
    return Cell(variant.label, variant.label, name=variant.look.name)


def metric_cell(variant: Variant, metric: str, scale: float = 1.0) -> Cell:
    values, note = variant.shown(metric)
    summary = summarise(values) if values else None
    # What may yet grow has no place in an order.
    return Cell(
        in_digits(summary, scale), summary.mean if summary and not note else None, note=note
    )


def runs_cell(variant: Variant) -> Cell:
    broken = [f"{n} {state}" for state in (*CUT_SHORT, "unfinished") if (n := variant.count(state))]
    broken += (
        [f"{n} with damaged logs"] if (n := sum(bool(run.damage) for run in variant.runs)) else []
    )
    return Cell(
        variant.complete_text + (f" ({', '.join(broken)})" if broken else ""), len(variant.complete)
    )
