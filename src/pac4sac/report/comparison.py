"""Compare variants with a baseline: the difference of means with its interval, its corrected
p-value, and a verdict in words. Every comparison of a report is made here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter

from pac4sac.base.text import p_value
from pac4sac.report.sentences import verdict_sentences
from pac4sac.report.style import Style
from pac4sac.report.tables import (
    TEXTS,
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
from pac4sac.runs.collection import Collection, FoundStudy
from pac4sac.runs.statistics import Difference, Estimate, summarise
from pac4sac.runs.status import CUT_SHORT

BASELINE, UNFINISHED, UNTESTED = "baseline", "unfinished", "not tested"
NO_DIFFERENCE = "no significant difference"
BETTER, WORSE, USUALLY = "better", "worse", "usually"  # usually: by ranks
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class VariantGroup:
    """Hold variants of one task that form a family: p-values are corrected over its members."""

    title: str
    members: Sequence[Variant]


@dataclass(frozen=True)
class Context:
    """Hold the data that all sections show; tasks are identified by their titles."""

    collection: Collection
    variants: Mapping[str, Sequence[Variant]]  # by task
    groups: Mapping[str, Sequence[VariantGroup]]  # title of a task -> groups; each result is in one
    baselines: Mapping[str, Variant | None]  # title of a task -> its baseline
    companions: Mapping[str, Variant]  # title of a task -> the variant drawn in all its figures

    def results(self, task: str) -> list[Variant]:
        return [variant for variant in self.variants[task] if variant.is_result]

    @property
    def task_names(self) -> list[str]:
        """Return the names of the tasks, each once even if it has several lengths."""
        return list(dict.fromkeys(variant.task.name for variant in self.all_variants))

    @property
    def all_variants(self) -> list[Variant]:
        return [variant for members in self.variants.values() for variant in members]

    @property
    def styles(self) -> dict[str, Style]:
        """Return the styles by label."""
        return {variant.label: variant.style for variant in self.all_variants}


@dataclass(frozen=True)
class Quantity:
    """Define a compared quantity, with the verdicts for above and below the baseline."""

    values: Callable[[Variant], Sequence[float]]
    more: str
    less: str
    test: Callable[[Variant, Variant], Difference] | None = None  # default: Welch's test
    lower_is_better: bool | None = None  # None: no rank test
    metric: Metric | None = None  # the metric with these values, if any


@dataclass(frozen=True)
class Compared:
    variant: Variant
    baseline: Variant | None
    quantity: Quantity
    difference: Difference | None = None
    # p-values, corrected over the family
    p: float | None = None
    p_ranks: float | None = None
    family: str = ""

    @property
    def is_baseline(self) -> bool:
        return self.variant is self.baseline

    @property
    def metric(self) -> Metric:
        """Return the metric of the comparison."""
        return self.quantity.metric or self.variant.task.headline

    @property
    def scale(self) -> float:
        """Return the divisor of the displayed difference."""
        return self.variant.task.scale_of(self.metric)

    @cached_property
    def values(self) -> Sequence[float]:
        return self.quantity.values(self.variant)

    @cached_property
    def iqm(self) -> Estimate | None:
        return statistics.interquartile_mean([self.values]) if self.values else None

    @cached_property
    def improvement(self) -> Estimate | None:
        """Return the probability that a run of the variant is better than one of the baseline."""
        if self.baseline is None or self.difference is None:
            return None
        theirs, lower = self.quantity.values(self.baseline), bool(self.quantity.lower_is_better)
        return statistics.probability_of_improvement([self.values], [theirs], lower_is_better=lower)

    @cached_property
    def verdict(self) -> str:
        """Return the verdict in words, by the means or, if they are not significant, by the
        ranks."""
        if self.is_baseline:
            return BASELINE
        if self._is_under_way:
            return UNFINISHED
        if self.difference is None or (self.p, self.p_ranks) == (None, None):
            return UNTESTED
        if is_significant(self.p):
            return self.quantity.more if self.difference.value > 0 else self.quantity.less
        if is_significant(self.p_ranks) and self.improvement:
            return f"{USUALLY} {BETTER if self.improvement.value > 0.5 else WORSE}"
        return NO_DIFFERENCE

    @property
    def _is_under_way(self) -> bool:
        both = (self.variant, self.baseline)
        return any(variant is not None and variant.in_progress for variant in both)


def is_significant(p: float | None) -> bool:
    return p is not None and p < SIGNIFICANT


def compare(
    variants: Sequence[Variant], baseline: Variant | None, quantity: Quantity, family: str = ""
) -> list[Compared]:
    """Compare variants with a baseline; p-values are corrected over all of them (Holm)."""
    tests = [_test(variant, baseline, quantity) for variant in variants]
    p_means = statistics.holm([difference.p if difference else None for difference, _ in tests])
    p_ranks = statistics.holm([p_rank for _, p_rank in tests])
    return [
        Compared(variant, baseline, quantity, difference, p, p_rank, family)
        for variant, (difference, _), p, p_rank in zip(
            variants, tests, p_means, p_ranks, strict=True
        )
    ]


def _test(
    variant: Variant, baseline: Variant | None, quantity: Quantity
) -> tuple[Difference | None, float | None]:
    """Return the difference from the baseline and the rank test's p-value, both before
    correction."""
    if baseline is None or variant is baseline:
        return None, None
    ours, theirs = quantity.values(variant), quantity.values(baseline)
    if not (ours and theirs):
        return None, None
    difference = quantity.test(variant, baseline) if quantity.test else None
    difference = difference or statistics.welch(summarise(ours), summarise(theirs))
    decides_by_ranks = quantity.lower_is_better is not None
    return difference, statistics.mann_whitney(ours, theirs) if decides_by_ranks else None


def compare_headline(
    variants: Sequence[Variant],
    baseline: Variant | None,
    family: str = "",
    metric: Metric | None = None,
) -> list[Compared]:
    """Compare variants of a task by the task's headline metric, or by another one."""
    metric = metric or variants[0].task.headline
    more, less = (WORSE, BETTER) if metric.lower_is_better else (BETTER, WORSE)
    quantity = Quantity(
        lambda variant: variant.values(metric.key),
        more,
        less,
        lower_is_better=metric.lower_is_better,
        metric=metric,
    )
    return compare(variants, baseline, quantity, family)


def first_with_results(variants: Sequence[Variant], names: Iterable[str] = ()) -> Variant | None:
    """Return the variant of the first name with results, else the first variant with results."""
    known = [variant for variant in variants if variant.has_results]
    for name in names:
        for variant in known:
            if name in (variant.label, *variant.labels):
                return variant
    return known[0] if known else None


def find_baseline(studies: Sequence[FoundStudy], variants: Sequence[Variant]) -> Variant | None:
    """Return the baseline that a study names, else SAC, else the first variant with results."""
    by_name = sorted(studies, key=lambda study: study.name)
    named = [study.baseline for study in by_name if study.baseline]
    return first_with_results(variants, [*named, "sac"])


def tally(rows: Sequence[Compared], start: str) -> str:
    """Return all verdicts in sentences, with P(better) if the rank test decides."""
    verdicts = [(row.verdict, _label_and_chance(row)) for row in rows]
    baseline = next(f"`{row.variant.label}`" for row in rows if row.is_baseline)
    return verdict_sentences(verdicts, TEXTS["verdicts"]["baseline"], start, baseline=baseline)


def _label_and_chance(row: Compared) -> str:
    """Return the label, with P(better) if the rank test decides."""
    label = f"`{row.variant.label}`"
    if USUALLY not in row.verdict or row.improvement is None:
        return label
    return f"{label} (P(better) = {row.improvement.value:.2f})"


# --- the table that shows it


def comparison_table(name: str, caption: str, rows: Sequence[Compared], task: TaskView) -> Table:
    metric, until_solved = task.headline, _metric_until_solved(task)
    evaluation = partial(Column, group="final evaluation")
    # The most important columns come first, because narrow pages fold the last ones.
    columns = [
        words("Variant", lambda row: variant_cell(row.variant)),
        words("Against baseline", lambda row: verdict_cell(row.verdict)),
        Column(task.unit, lambda row: metric_cell(row.variant, metric.key, task.scale)),
        Column("difference [95%]", "difference", scale=task.scale),
        Column(until_solved.title, lambda row: metric_cell(row.variant, until_solved.key)),
        Column("solved", lambda row: Cell(row.variant.solved_text, row.variant.solved)),
        Column("IQM [95%]", "iqm", scale=task.scale),
        Column("P(better than baseline) [95%]", "improvement", digits=2),
        Column("means (Welch)", "p", group="p (Holm)", show=p_value),
        Column("ranks (Mann–Whitney)", "p_ranks", group="p (Holm)", show=p_value),
        Column("Runs", lambda row: runs_cell(row.variant)),
        evaluation("deterministic", lambda row: metric_cell(row.variant, "final_deterministic")),
        evaluation("shooting", lambda row: metric_cell(row.variant, "final_shooting")),
        words("Family", "family", folded=True),
        command("variant.command"),
    ]
    unused = _unused_columns(rows, task)
    shown = [column for column in columns if column.title not in unused]
    return Table(name, caption, [*shown, *_data_columns(task)], rows)


def _metric_until_solved(task: TaskView) -> Metric:
    return METRICS["episodes" if task.headline.key == "regret" else "steps_until_solved"]


def _unused_columns(rows: Sequence[Compared], task: TaskView) -> set[str]:
    """Return the titles of columns without information for these rows."""
    unused: set[str] = set()
    if not any(row.is_baseline for row in rows):
        unused |= {"Against baseline", "difference [95%]", "P(better than baseline) [95%]"}
        unused |= {"means (Welch)", "ranks (Mann–Whitney)"}
    if task.headline.key == "final_deterministic":
        unused.add("deterministic")
    if task.r_limit is None:
        unused |= {_metric_until_solved(task).title, "solved"}
    if len({row.family for row in rows}) == 1:
        unused.add("Family")
    return unused


def _data_columns(task: TaskView) -> list[Column]:
    """Return the columns of the CSV."""
    metric, until_solved = task.headline.key, _metric_until_solved(task).key
    names = attrgetter("variant.task.title", "variant.label", "variant.algo")
    return [
        data("task", "variant", "algo", get=names),
        data("metric", get=lambda _: metric),
        data("runs", get=lambda row: len(row.variant.outcomes)),
        data("complete", get=lambda row: len(row.variant.complete)),
        data("solved", get="variant.solved"),
        data("solved_fraction", "solved_low", "solved_high", get="variant.solved_fraction"),
        data(until_solved, f"{until_solved}_sd", get=lambda row: row.variant.summary(until_solved)),
        data("mean", "sd", get=lambda row: row.variant.summary(metric)),
        data(*with_ends("iqm"), get="iqm"),
        data(*with_ends("difference"), get="difference"),
        data("family", "p_holm", "p_ranks_holm", get=attrgetter("family", "p", "p_ranks")),
        data(*with_ends("p_improvement"), get="improvement"),
        data("against_baseline", "command", get=attrgetter("verdict", "variant.command")),
    ]


def ends_table(
    name: str,
    caption: str,
    by_metric: Mapping[str, Sequence[Compared]],
    only_csv: Sequence[str] = (),
) -> Table:
    """Return the table of all variants with several metrics, some of them in the CSV only."""
    columns = [
        words("Variant", lambda row: variant_cell(row[0].variant)),
        data("variant", get=lambda row: row[0].variant.label),
    ]
    for place, key in enumerate(by_metric):
        of_metric = _columns_of_end(place, key)
        columns += [replace(c, title="") for c in of_metric] if key in only_csv else of_metric
    return Table(name, caption, columns, list(zip(*by_metric.values(), strict=True)))


def _columns_of_end(place: int, key: str) -> list[Column]:
    def mean(row: Sequence[Compared]) -> Estimate | None:
        return mean_of(row[place].values)

    # The caption has the part of the title in brackets.
    group = partial(Column, group=METRICS[key].title.split(" (")[0])
    return [
        group("mean [95%]", mean, with_ends(key)),
        group(
            "against baseline",
            lambda row: verdict_cell(row[place].verdict),
            f"{key}_against_baseline",
        ),
        group(
            "difference [95%]", lambda row: row[place].difference, with_ends(f"{key}_difference")
        ),
        data(f"{key}_p_holm", get=lambda row: row[place].p),
    ]


def mean_of(values: Sequence[float]) -> Estimate | None:
    """Return the mean of values with its interval; None without values."""
    return statistics.mean_interval(values) if values else None


def variant_cell(variant: Variant) -> Cell:
    return Cell(variant.label, variant.label, name=variant.style.name)


def metric_cell(variant: Variant, metric: str, scale: float = 1.0) -> Cell:
    """Return a cell with mean ± standard deviation of a metric."""
    values, note = variant.shown(metric)
    if not values:
        return Cell(note=note)
    summary = summarise(values)
    # Without a sort value, because regret may still grow.
    return Cell(in_digits(summary, scale), None if note else summary.mean, note=note)


def runs_cell(variant: Variant) -> Cell:
    """Return a cell with the number of complete runs, and a note on other states and damaged
    logs."""
    counts = {state: variant.count(state) for state in (*CUT_SHORT, "unfinished")}
    counts["with damaged logs"] = sum(bool(run.damage) for run in variant.runs)
    text = variant.complete_text
    if any(counts.values()):
        text += f" ({', '.join(f'{n} {what}' for what, n in counts.items() if n)})"
    return Cell(text, len(variant.complete))
