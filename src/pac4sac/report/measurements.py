"""What runs measured at some steps of their training: the value bias of their critics, and how widely states lie that
they visited. Of each the last rows for a table, and curves over the steps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pac4sac.base.text import NOTHING, file_name, p_value
from pac4sac.report.comparison import UNFINISHED, VERDICTS, Compared, Context, Quantity, compare, in_words, side_of_zero
from pac4sac.report.figures import DASHED, add_legend, finish_over_steps, new_figure, pictures, styles
from pac4sac.report.learning_curves import FEWEST_FOR_INTERVAL, draw_mean, half_width_of
from pac4sac.report.record_sections import mixtures
from pac4sac.report.tables import TEXTS, Block, Cell, Column, Section, Table, data, with_ends, words
from pac4sac.report.variants import Variant
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.statistics import Estimate, mean_interval
from pac4sac.runs.status import BROKEN_OFF

OVERESTIMATES, UNDERESTIMATES, NOT_MEASURED = "overestimates", "underestimates", "no measurement at the end"
CRITICS = (OVERESTIMATES, UNDERESTIMATES, "undecided", UNFINISHED, NOT_MEASURED)
WIDER, NARROWER = "wider", "narrower"
WIDTHS = (WIDER, NARROWER, *VERDICTS)
QUANTITIES = {"nearest": "distance to the nearest state", "log_volume": "log-volume"}
WIDE = 30.0  # ratio of biases above which a linear axis hides the small ones


@dataclass(frozen=True)
class Measurements:
    log: str  # its name, as a record has it
    numbers: tuple[str, ...]  # without which a row is not whole

    def of(self, run: RunRecord) -> list[Mapping[str, float]]:
        """The rows of a run that are whole; one that diverged has some of no finite size."""
        return [row for row in getattr(run, self.log) if all(is_finite(row.get(name)) for name in self.numbers)]

    def measured(self, variants: Sequence[Variant]) -> list[Variant]:
        return [variant for variant in variants if any(self.of(run) for run in variant.runs)]

    def at_the_end(self, variant: Variant) -> list[list[Mapping[str, float]]]:
        """All rows of each run that is complete and was measured at its end; none while others are under way, since
        the first to be complete are those solved early."""
        runs = [] if variant.under_way else [outcome.run.record for outcome in variant.complete]
        rows_of_runs = [(run, self.of(run)) for run in runs]
        return [
            rows for run, rows in rows_of_runs if rows and (not len(run.steps) or rows[-1]["step"] >= run.steps[-1])
        ]

    def ends(self, variant: Variant, name: str) -> list[float]:
        return [rows[-1][name] for rows in self.at_the_end(variant)]

    def columns(self) -> list[Column]:
        """The first ones of its table."""
        return [
            data("task", get="task.title"),
            words("Variant", "label", "variant"),
            data("algo", get="algo"),
            Column("S", "shots", "shots"),
            Column(
                "Runs", lambda v: Cell(f"{len(self.at_the_end(v))} of {len(v.runs)}", len(self.at_the_end(v))), "runs"
            ),
        ]

    def figure(self, variants: Sequence[Variant], quantities: Mapping[str, str]) -> Figure:
        """A panel for each quantity, with the title of its axis, over the steps of training."""
        figure, panels = new_figure(len(quantities))
        look = styles([variant.label for variant in variants])
        for variant in variants:
            sound = [run for run in variant.runs if run.status not in BROKEN_OFF]
            for panel, name in zip(panels, quantities, strict=True):
                self._draw(panel, name, variant.label, sound or variant.runs, *look[variant.label])
        for panel, title in zip(panels, quantities.values(), strict=True):
            finish_over_steps(panel, title)
        add_legend(figure, panels[0])
        return figure

    def _draw(self, panel: Any, name: str, label: str, runs: Sequence[RunRecord], colour: str, line: str) -> None:
        curves = [{row["step"]: row[name] for row in self.of(run)} for run in runs]
        curves = [curve for curve in curves if curve]
        for curve in curves if 1 < len(curves) < FEWEST_FOR_INTERVAL else []:
            panel.plot(list(curve), list(curve.values()), color=colour, linewidth=0.7, alpha=0.35)
        # Where one of the runs has no measurement, the mean would be of other runs.
        steps = sorted(set.intersection(*map(set, curves))) if curves else []
        values = np.array([[curve[step] for step in steps] for curve in curves]).reshape(len(curves), len(steps))
        means = values.mean(0) if curves else np.empty(0)
        seeds = f"{len(curves)} seed{'s' if len(curves) != 1 else ''}"
        draw_mean(panel, (np.array(steps), means, half_width_of(values)), f"{label} ({seeds})", colour, line)


BIAS = Measurements("bias", ("step", "bias", "rms", "mean_return"))
COVERAGE = Measurements("coverage", ("step", "nearest", "log_volume"))


def is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# --- what critics claim against what then happens


def final_bias(variant: Variant) -> Estimate | None:
    """At the end of training, over the seeds that came to it."""
    rows = [rows[-1] for rows in BIAS.at_the_end(variant)]
    if len(rows) == 1 and is_finite(rows[0].get("low")) and is_finite(rows[0].get("high")):
        return Estimate(rows[0]["bias"], rows[0]["low"], rows[0]["high"])
    return mean_interval([row["bias"] for row in rows]) if rows else None


def critic_verdict(variant: Variant) -> str:
    if variant.under_way:
        return UNFINISHED
    bias = final_bias(variant)
    return side_of_zero(bias, OVERESTIMATES, UNDERESTIMATES, "undecided") if bias else NOT_MEASURED


def bias_section(context: Context) -> Section | None:
    """The variants of the study that asks come first, in one picture."""
    asking = {study.name for study in context.collection.studies if study.kind == "overestimation"}
    blocks: list[Block] = []
    for title, variants in context.variants.items():
        if members := BIAS.measured(variants):
            blocks += _bias_on_task(title, sorted(members, key=lambda variant: asking.isdisjoint(variant.studies)))
    return Section("bias", "What critics claim, and what then happens", [TEXTS["bias"], *blocks]) if blocks else None


def _bias_on_task(title: str, variants: Sequence[Variant]) -> list[Block]:
    def mean(variant: Variant, name: str) -> float | None:
        values = BIAS.ends(variant, name)
        return float(np.mean(values)) if values else None

    def share(variant: Variant) -> float | None:
        bias, size = final_bias(variant), mean(variant, "mean_return")
        return bias.value / abs(size) if bias and size else None

    columns = [
        *BIAS.columns(),
        Column("bias [95 %]", final_bias, with_ends("bias")),
        Column("mean value G", lambda variant: mean(variant, "mean_return"), "mean_return"),
        Column("bias / |G|", share, "relative_bias", show=_percent),
        Column("root-mean-square error", lambda variant: mean(variant, "rms"), "rms"),
        words("Critic", critic_verdict, "verdict"),
    ]
    name, sentences = f"bias-{file_name(title)}", []
    for shooting in ("without", "with"):
        alike = [variant for variant in variants if (variant.shots > 1) == (shooting == "with")]
        verdicts = in_words([(critic_verdict(variant), f"`{variant.label}`") for variant in alike], CRITICS)
        sentences += [f"On {title} at the end of training, {shooting} shooting: {verdicts}."] if alike else []
    caption = f"{title}: bias of the critic's values during training, mean of the seeds with its 95 % interval"
    table = Table(name, f"Value bias on {title} at the end of training", columns, variants)
    return [" ".join(sentences), *pictures(name, [(caption, variants)], bias_figure), table, *mixtures(variants)]


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:+.1f} %".replace("-", "−")


def bias_figure(variants: Sequence[Variant]) -> Figure:
    """Left the bias, right the root-mean-square error, both over the steps of training."""
    figure = BIAS.figure(variants, {"bias": "bias, above 0 overestimated", "rms": "root-mean-square error"})
    left, right = figure.axes
    left.axhline(0, **DASHED)
    sizes = [abs(row["bias"]) for variant in variants for run in variant.runs for row in BIAS.of(run) if row["bias"]]
    typical = float(np.median(sizes)) if sizes else 0.0
    if typical and max(sizes) > WIDE * typical:
        left.set_yscale("symlog", linthresh=typical)
    right.set_yscale("log")
    return figure


# --- how widely states were visited: does anything foster exploration?


def coverage_section(context: Context, choose: Callable[[Sequence[Variant]], Variant | None]) -> Section | None:
    """`choose` finds the baseline among those that were measured."""
    blocks: list[Block] = []
    for title, variants in context.variants.items():
        if members := COVERAGE.measured(variants):
            blocks += _coverage_on_task(title, members, choose(members))
    return Section("coverage", "How widely states were visited", [TEXTS["coverage"], *blocks]) if blocks else None


def compare_coverage(name: str, variants: Sequence[Variant], baseline: Variant | None) -> list[Compared]:
    return compare(variants, baseline, Quantity(lambda variant: COVERAGE.ends(variant, name), WIDER, NARROWER))


def over_training(variant: Variant, name: str) -> float | None:
    runs = COVERAGE.at_the_end(variant)
    return float(np.mean([np.mean([row[name] for row in rows]) for rows in runs])) if runs else None


def _coverage_on_task(title: str, variants: Sequence[Variant], baseline: Variant | None) -> list[Block]:
    name, columns, sentences = f"coverage-{file_name(title)}", COVERAGE.columns(), []
    for quantity in QUANTITIES:
        rows = compare_coverage(quantity, variants, baseline)
        columns += _coverage_columns(quantity, {row.variant: row for row in rows})
        verdicts = in_words([(row.verdict, f"`{row.variant.label}`") for row in rows], WIDTHS)
        sentences.append(f"By {QUANTITIES[quantity]}, {verdicts or 'nothing to compare'}.")
    caption = f"{title}: states of the replay buffer during training, mean of the seeds with its 95 % interval"
    return [
        *(
            [f"On {title} at the end of training, against `{baseline.label}`. {' '.join(sentences)}"]
            if baseline
            else []
        ),
        *pictures(name, [(caption, variants)], coverage_figure),
        Table(name, f"State coverage on {title}", columns, variants),
        *mixtures(variants),
    ]


def _coverage_columns(name: str, rows: Mapping[Variant, Compared]) -> list[Column]:
    def end(variant: Variant) -> Estimate | None:
        return mean_interval(rows[variant].values) if rows[variant].values else None

    group = QUANTITIES[name]
    return [
        Column("at the end [95 %]", end, with_ends(name), group),
        Column("difference [95 %]", lambda v: rows[v].difference, with_ends(f"{name}_difference"), group),
        Column("p (Holm)", lambda v: rows[v].p, f"{name}_p_holm", group, show=p_value),
        Column("mean over training", lambda v: over_training(v, name), f"{name}_over_training", group),
        words("against baseline", lambda v: rows[v].verdict, f"{name}_against_baseline", group),
    ]


def coverage_figure(variants: Sequence[Variant]) -> Figure:
    figure = COVERAGE.figure(variants, QUANTITIES | {"nearest": "mean distance to the nearest state"})
    figure.axes[0].set_ylim(bottom=0)
    return figure
