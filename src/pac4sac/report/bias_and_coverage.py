"""Sections on two measurements during training: the value bias of critics and the coverage of
states. A table shows the last measurements, a figure the curves over training steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pac4sac.base.text import file_name, p_value
from pac4sac.report import figures
from pac4sac.report.comparison import (
    UNFINISHED,
    Compared,
    Context,
    Quantity,
    compare,
    find_baseline,
    mean_of,
    variant_cell,
)
from pac4sac.report.provenance import mixtures
from pac4sac.report.sentences import verdict_sentences
from pac4sac.report.style import Style
from pac4sac.report.tables import (
    TEXTS,
    Block,
    Cell,
    Column,
    Section,
    Table,
    data,
    verdict_cell,
    with_ends,
    words,
)
from pac4sac.report.variants import Variant
from pac4sac.runs.logs import is_number
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.statistics import Estimate, bias_verdict
from pac4sac.runs.status import BROKEN_OFF

NOT_MEASURED = "no measurement at the end"
WIDER, NARROWER = "wider", "narrower"
QUANTITIES = {"nearest": "distance to the nearest state", "log_volume": "log-volume"}
Choose = Callable[[Sequence[Variant]], Variant | None]
# (title of a task, its measured variants) -> sentences and columns
About = Callable[[str, Sequence[Variant]], tuple[list[str], list[Column]]]
Row = Mapping[str, float]
WIDE = 30.0  # ratio of biases above which a linear axis hides the small ones


@dataclass(frozen=True)
class Measurements:
    log: str  # attribute of a `RunRecord` that holds the rows
    numbers: tuple[str, ...]  # keys that a complete row has
    study: str = ""  # kind of the studies whose variants come first
    section: str = ""  # name of the section, if it is not that of the log
    is_detail: bool = False  # figures for the HTML page only

    @property
    def name(self) -> str:
        return self.section or self.log

    def of(self, run: RunRecord) -> list[Row]:
        """Return the complete rows of a run; a diverged run can have rows without a number."""
        rows = getattr(run, self.log)
        return [row for row in rows if all(is_number(row.get(name)) for name in self.numbers)]

    def measured(self, variants: Sequence[Variant]) -> list[Variant]:
        """Return the variants with at least one measured run."""
        return [variant for variant in variants if any(map(self.of, variant.runs))]

    def at_the_end(self, variant: Variant) -> list[list[Row]]:
        """Return all rows of each run that is complete and was measured at its end.

        The list is empty while runs are in progress, because the first complete runs are the early
        solved ones.
        """
        if variant.in_progress:
            return []
        logs = [self._up_to_the_end(outcome.run.record) for outcome in variant.complete]
        return [rows for rows in logs if rows]

    def _up_to_the_end(self, run: RunRecord) -> list[Row]:
        """Return the rows of a run; empty if its log is damaged or ends early."""
        rows = self.of(run)
        if not rows or self.log in run.damage:
            return []
        return rows if all(rows[-1]["step"] >= run.steps[-1:]) else []

    def ends(self, variant: Variant, name: str) -> list[float]:
        """Return the last value of each run that has one."""
        last_rows = [rows[-1] for rows in self.at_the_end(variant)]
        return [row[name] for row in last_rows if is_number(row.get(name))]

    def mean_end(self, variant: Variant, name: str) -> Estimate | None:
        """Return the mean of the last values with its interval; None if there are none."""
        return mean_of(self.ends(variant, name))

    def compose(self, context: Context, about: About, draw: figures.Draw) -> Section | None:
        """Return the section on all tasks with measured results.

        `about` returns the sentences on a task and further columns of its table.
        """
        blocks: list[Block] = []
        for title in context.variants:
            blocks += self._on_task(context, title, about, draw)
        texts = TEXTS[self.name]
        return Section(self.name, texts["title"], [texts["intro"], *blocks]) if blocks else None

    def _on_task(
        self, context: Context, title: str, about: About, draw: figures.Draw
    ) -> list[Block]:
        """Return sentences, figures and table of the measured results on a task."""
        asking = {study.name for study in context.collection.studies if study.kind == self.study}
        measured = self.measured(context.results(title))
        members = sorted(measured, key=lambda variant: asking.isdisjoint(variant.studies))
        if not members:
            return []
        texts, name = TEXTS[self.name], f"{self.name}-{file_name(title)}"
        sentences, columns = about(title, members)
        curves = [variant for variant in members if self.curves(variant)[0]]
        caption = texts["picture"].format(title)
        drawn = figures.pictures(name, [(caption, curves)], draw, is_detail=self.is_detail)
        table = Table(name, texts["table"].format(title), self._columns(columns), members)
        return [*sentences, *drawn, table, *mixtures(members)]

    def _columns(self, columns: Sequence[Column]) -> list[Column]:
        def runs_cell(variant: Variant) -> Cell:
            measured = len(self.at_the_end(variant))
            return Cell(f"{measured} of {len(variant.runs)}", measured)

        return [
            data("task", get="task.title"),
            words("Variant", variant_cell, "variant"),
            data("algo", get="algo"),
            data("shots", get="shots"),
            data("runs", get=runs_cell),
            *columns,
            Column("S", "shots"),
            Column("Runs", runs_cell),
        ]

    def figure(self, variants: Sequence[Variant], quantities: Mapping[str, str]) -> Figure:
        """Draw one panel per quantity over the training steps; `quantities` maps keys to axis
        titles."""
        title = f"{variants[0].task.title}: {TEXTS[self.name]['title']}"
        figure, panels = figures.new_figure(title, len(quantities))
        for panel, (name, axis) in zip(panels, quantities.items(), strict=True):
            ends, last = list[tuple[Style, Estimate]](), 1.0
            for variant in variants:
                last = max(last, self.curves(variant)[0][-1])
                ends.append((variant.style, self._draw_curve(panel, variant, name)))
            figures.finish_over_steps(
                panel, axis, "Mean over seeds; right: final value with 95% CI"
            )
            figures.draw_ends(panel, last, ends)
        figures.add_legend(figure, panels[0])
        return figure

    def _draw_curve(self, panel: Any, variant: Variant, name: str) -> Estimate:
        """Draw the mean over seeds, and return its final value."""
        steps, rows = self.curves(variant)
        values = np.array([[row[name] for row in of_run] for of_run in rows])
        mean, low, high = figures.band_of(values)
        label = figures.drawn(f"{variant.style.name} ({figures.count_seeds(len(rows))})")
        panel.plot(steps, mean, **figures.curve_look(variant.style, len(steps)), label=label)
        return Estimate(mean[-1], *((low[-1], high[-1]) if np.isfinite(low[-1]) else ()))

    def curves(self, variant: Variant) -> tuple[list[float], list[list[Row]]]:
        """Return the steps at which all runs were measured, and the rows of each run there.

        At other steps the mean would be over fewer runs.
        """
        logs = self._rows_by_step(variant)
        if not logs:
            return [], []
        steps = sorted(set.intersection(*map(set, logs)))
        return steps, [[log[step] for step in steps] for log in logs]

    def _rows_by_step(self, variant: Variant) -> list[dict[float, Row]]:
        """Return the rows of each measured run by step, without runs that ended early unless all
        did."""
        unbroken = [run for run in variant.runs if run.status not in BROKEN_OFF]
        logs = [self.of(run) for run in unbroken or variant.runs]
        return [{row["step"]: row for row in rows} for rows in logs if rows]


BIAS = Measurements("bias", ("step", "bias", "rms", "mean_return"), "overestimation")
COVERAGE = Measurements("coverage", ("step", "nearest", "log_volume"), is_detail=True)


# --- predicted and observed returns


def final_bias(variant: Variant) -> Estimate | None:
    """Return the mean bias at the end of training over the seeds that reached it."""
    rows = [rows[-1] for rows in BIAS.at_the_end(variant)]
    if len(rows) == 1 and all(is_number(rows[0].get(end)) for end in ("low", "high")):
        return Estimate(rows[0]["bias"], rows[0]["low"], rows[0]["high"])
    return mean_of([row["bias"] for row in rows])


def critic_verdict(variant: Variant) -> str:
    """Return whether the critic overestimates at the end of training."""
    if variant.in_progress:
        return UNFINISHED
    bias = final_bias(variant)
    return bias_verdict(bias) if bias else NOT_MEASURED


def bias_section(context: Context) -> Section | None:
    """Return the section on the value bias of critics; None if it was not measured."""
    columns = [
        words("Critic", lambda variant: verdict_cell(critic_verdict(variant))),
        Column("bias [95%]", final_bias, with_ends("bias")),
        Column("mean return G", partial(_mean_end, name="mean_return"), "mean_return"),
        Column(
            "bias / |G|",
            _relative_bias,
            "relative_bias",
            show=lambda part: f"{100 * part:+.1f}%".replace("-", "−"),
        ),
        Column("root-mean-square error", partial(_mean_end, name="rms"), "rms"),
        data("verdict", get=critic_verdict),
    ]

    def about(title: str, variants: Sequence[Variant]) -> tuple[list[str], list[Column]]:
        return [_critics_in_words(title, variants)], columns

    return BIAS.compose(context, about, bias_figure)


def _critics_in_words(title: str, variants: Sequence[Variant]) -> str:
    """Return sentences with the verdicts on the critics of a task, without shooting and with it."""
    by_shooting = {
        "without": [variant for variant in variants if variant.shots <= 1],
        "with": [variant for variant in variants if variant.shots > 1],
    }
    sentences = []
    for shooting, members in by_shooting.items():
        verdicts = [(critic_verdict(variant), f"`{variant.label}`") for variant in members]
        start = f"At the end of training on {title} {shooting} shooting,"
        sentences.append(verdict_sentences(verdicts, TEXTS["verdicts"]["bias"], start))
    return " ".join(filter(None, sentences))


def _mean_end(variant: Variant, name: str) -> float | None:
    values = BIAS.ends(variant, name)
    return float(np.mean(values)) if values else None


def _relative_bias(variant: Variant) -> float | None:
    """Return the bias as a fraction of the mean value."""
    bias, size = final_bias(variant), _mean_end(variant, "mean_return")
    return bias.value / abs(size) if bias and size else None


def bias_figure(variants: Sequence[Variant]) -> Figure:
    """Draw the bias and the root-mean-square error over the steps of training."""
    figure = BIAS.figure(
        variants, {"bias": "bias (above 0: overestimated)", "rms": "root-mean-square error"}
    )
    left, right = figure.axes
    left.axhline(0, **figures.DASHED)
    sizes = [size for variant in variants for size in _bias_sizes(variant)]
    typical = float(np.median(sizes)) if sizes else 0.0
    if typical and max(sizes) > WIDE * typical:
        left.set_yscale("symlog", linthresh=typical)
    right.set_yscale("log")
    return figure


def _bias_sizes(variant: Variant) -> list[float]:
    """Return the absolute values of all biases that are not 0."""
    rows = [row for run in variant.runs for row in BIAS.of(run)]
    return [abs(row["bias"]) for row in rows if row["bias"]]


# --- coverage of states


def coverage_section(context: Context, choose: Choose | None = None) -> Section | None:
    """Return the section; `choose` finds the baseline among the variants that were measured."""

    def about(title: str, variants: Sequence[Variant]) -> tuple[list[str], list[Column]]:
        studies = context.collection.studies
        baseline = choose(variants) if choose else find_baseline(studies, variants)
        columns, sentences = list[Column](), list[str]()
        for name, quantity in QUANTITIES.items():
            rows = {row.variant: row for row in compare_coverage(name, variants, baseline)}
            columns += _coverage_columns(name, quantity, rows)
            verdicts = [(row.verdict, f"`{variant.label}`") for variant, row in rows.items()]
            sentences.append(_coverage_in_words(verdicts, f"In terms of the {quantity},", baseline))
        if baseline is None:
            return [], columns
        against = (
            f"At the end of training on {title}, all other variants are compared with "
            f"`{baseline.label}`."
        )
        told_apart = " ".join(filter(None, sentences)) or "There is no other variant."
        return [f"{against} {told_apart}"], columns

    return COVERAGE.compose(context, about, coverage_figure)


def _coverage_in_words(
    verdicts: Sequence[tuple[str, str]], start: str, baseline: Variant | None
) -> str:
    """Return sentences on the variants whose states are spread more or less widely."""
    if baseline is None:
        return ""
    templates = TEXTS["verdicts"]["coverage"] | TEXTS["verdicts"]["baseline"]
    return verdict_sentences(verdicts, templates, start, baseline=f"`{baseline.label}`")


def _coverage_columns(name: str, title: str, rows: Mapping[Variant, Compared]) -> list[Column]:
    end = partial(COVERAGE.mean_end, name=name)
    group = partial(Column, group=title)
    mean = partial(over_training, name=name)
    return [
        group("against baseline", lambda v: verdict_cell(rows[v].verdict), numeric=False),
        group("at the end [95%]", end, with_ends(name)),
        group("difference [95%]", lambda v: rows[v].difference, with_ends(f"{name}_difference")),
        group("p (Holm)", lambda v: rows[v].p, f"{name}_p_holm", show=p_value),
        group("mean over training", mean, f"{name}_over_training"),
        data(f"{name}_against_baseline", get=lambda v: rows[v].verdict),
    ]


def compare_coverage(
    name: str, variants: Sequence[Variant], baseline: Variant | None
) -> list[Compared]:
    return compare(
        variants, baseline, Quantity(lambda variant: COVERAGE.ends(variant, name), WIDER, NARROWER)
    )


def over_training(variant: Variant, name: str) -> float | None:
    """Return the mean over training and seeds; None without complete runs."""
    runs = [[row[name] for row in rows] for rows in COVERAGE.at_the_end(variant)]
    return float(np.mean([np.mean(values) for values in runs])) if runs else None


def coverage_figure(variants: Sequence[Variant]) -> Figure:
    """Draw the coverage of states over the training steps."""
    figure = COVERAGE.figure(
        variants, QUANTITIES | {"nearest": "mean distance to the nearest state"}
    )
    figure.axes[0].set_ylim(bottom=0)
    return figure
