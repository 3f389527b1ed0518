"""What runs measured at some steps of their training: the value bias of their critics, and how
widely states lie that they visited. Of each the last rows for a table, and curves over the
steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from pac4sac.base.text import file_name, p_value
from pac4sac.report import figures
from pac4sac.report.comparison import (
    UNFINISHED,
    VERDICTS,
    Compared,
    Context,
    Quantity,
    compare,
    in_words,
    variant_cell,
)
from pac4sac.report.looks import Look
from pac4sac.report.sections import mixtures
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
from pac4sac.runs.statistics import (
    OVERESTIMATES,
    UNDECIDED,
    UNDERESTIMATES,
    Estimate,
    bias_verdict,
    mean_interval,
)
from pac4sac.runs.status import BROKEN_OFF

NOT_MEASURED = "no measurement at the end"
CRITICS = (OVERESTIMATES, UNDERESTIMATES, UNDECIDED, UNFINISHED, NOT_MEASURED)
WIDER, NARROWER = "wider", "narrower"
WIDTHS = (WIDER, NARROWER, *VERDICTS)
QUANTITIES = {"nearest": "distance to the nearest state", "log_volume": "log-volume"}
# of a task and the variants measured on it
About = Callable[[str, Sequence[Variant]], tuple[list[str], list[Column]]]
WIDE = 30.0  # ratio of biases above which a linear axis hides the small ones


@dataclass(frozen=True)
class Measurements:
    log: str  # its name, as a record has it
    numbers: tuple[str, ...]  # without which a row is not whole
    study: str = ""  # the kind of which the variants come first
    section: str = ""  # its name, where it is not that of the log

    @property
    def name(self) -> str:
        return self.section or self.log

    def of(self, run: RunRecord) -> list[Mapping[str, float]]:
        """The rows of a run that are whole; one that diverged has some of no finite size."""
        return [
            row
            for row in getattr(run, self.log)
            if all(is_number(row.get(name)) for name in self.numbers)
        ]

    def measured(self, variants: Sequence[Variant]) -> list[Variant]:
        return [variant for variant in variants if any(map(self.of, variant.runs))]

    def at_the_end(self, variant: Variant) -> list[list[Mapping[str, float]]]:
        """All rows of each run that is complete and was measured at its end; none while others are
        under way, since the first to be complete are those solved early."""
        complete = [] if variant.under_way else [outcome.run.record for outcome in variant.complete]
        measured = [
            (run.steps[-1:], rows)
            for run in complete
            if self.log not in run.damage and (rows := self.of(run))
        ]
        return [rows for last_step, rows in measured if all(rows[-1]["step"] >= last_step)]

    def ends(self, variant: Variant, name: str) -> list[float]:
        """Of the runs in whose last row it is a number."""
        return [
            rows[-1][name] for rows in self.at_the_end(variant) if is_number(rows[-1].get(name))
        ]

    def compose(self, context: Context, about: About, draw: figures.Draw) -> Section | None:
        """Of all tasks on which something was measured in runs that count as results; `about` has
        sentences and the further columns of a table."""

        def runs_cell(variant: Variant) -> Cell:
            measured = len(self.at_the_end(variant))
            return Cell(f"{measured} of {len(variant.runs)}", measured)

        first = [data("task", get="task.title"), words("Variant", variant_cell, "variant")]
        first += [data("algo", get="algo"), data("shots", get="shots"), data("runs", get=runs_cell)]
        last = [Column("S", "shots"), Column("Runs", runs_cell)]
        asking = {study.name for study in context.collection.studies if study.kind == self.study}
        blocks, texts = list[Block](), TEXTS[self.name]
        for title in context.variants:
            measured = self.measured(context.results(title))
            if members := sorted(measured, key=lambda variant: asking.isdisjoint(variant.studies)):
                sentences, columns = about(title, members)
                name = f"{self.name}-{file_name(title)}"
                table = Table(
                    name, texts["table"].format(title), [*first, *columns, *last], members
                )
                curves = [variant for variant in members if self.curves(variant)[0]]
                drawn = figures.pictures(name, [(texts["picture"].format(title), curves)], draw)
                blocks += [*sentences, *drawn, table, *mixtures(members)]
        return Section(self.name, texts["title"], [texts["intro"], *blocks]) if blocks else None

    def figure(self, variants: Sequence[Variant], quantities: Mapping[str, str]) -> Figure:
        """A panel for each quantity, with the title of its axis, over the steps of training."""
        title = f"{variants[0].task.title}: {TEXTS[self.name]['title']}"
        figure, panels = figures.new_figure(title, len(quantities))
        for panel, (name, title) in zip(panels, quantities.items(), strict=True):
            ends, last = list[tuple[Look, Estimate]](), 1.0
            for variant in variants:
                steps, rows = self.curves(variant)
                mean, low, high = figures.band_of(
                    np.array([[row[name] for row in of_run] for of_run in rows])
                )
                label = figures.drawn(f"{variant.look.name} ({figures.count_seeds(len(rows))})")
                panel.plot(steps, mean, **figures.stroke(variant.look), linewidth=1.4, label=label)
                at_the_end = Estimate(
                    mean[-1], *((low[-1], high[-1]) if np.isfinite(low[-1]) else ())
                )
                ends.append((variant.look, at_the_end))
                last = max(last, steps[-1])
            figures.finish_over_steps(
                panel, title, "Means of the seeds; right, with 95 % intervals"
            )
            figures.draw_ends(panel, last, ends)
        figures.add_legend(figure, panels[0])
        return figure

    def curves(self, variant: Variant) -> tuple[list[float], list[list[Mapping[str, float]]]]:
        """The steps at which all its runs were measured, and the rows of each there: at others, a
        mean would be of other runs."""
        runs = [run for run in variant.runs if run.status not in BROKEN_OFF] or variant.runs
        at = [{row["step"]: row for row in rows} for run in runs if (rows := self.of(run))]
        steps = sorted(set.intersection(*map(set, at))) if at else []
        return steps, [[of_run[step] for step in steps] for of_run in at]


BIAS = Measurements("bias", ("step", "bias", "rms", "mean_return"), "overestimation")
COVERAGE = Measurements("coverage", ("step", "nearest", "log_volume"))


# --- what critics claim against what then happens


def final_bias(variant: Variant) -> Estimate | None:
    """At the end of training, over the seeds that came to it."""
    rows = [rows[-1] for rows in BIAS.at_the_end(variant)]
    if len(rows) == 1 and is_number(rows[0].get("low")) and is_number(rows[0].get("high")):
        return Estimate(rows[0]["bias"], rows[0]["low"], rows[0]["high"])
    return mean_interval([row["bias"] for row in rows]) if rows else None


def critic_verdict(variant: Variant) -> str:
    if variant.under_way:
        return UNFINISHED
    bias = final_bias(variant)
    return bias_verdict(bias) if bias else NOT_MEASURED


def bias_section(context: Context) -> Section | None:
    def mean(variant: Variant, name: str) -> float | None:
        values = BIAS.ends(variant, name)
        return float(np.mean(values)) if values else None

    def share(variant: Variant) -> float | None:
        bias, size = final_bias(variant), mean(variant, "mean_return")
        return bias.value / abs(size) if bias and size else None

    columns = [
        words("Critic", lambda variant: verdict_cell(critic_verdict(variant))),
        Column("bias [95 %]", final_bias, with_ends("bias")),
        Column("mean value G", lambda variant: mean(variant, "mean_return"), "mean_return"),
        Column(
            "bias / |G|",
            share,
            "relative_bias",
            show=lambda part: f"{100 * part:+.1f} %".replace("-", "−"),
        ),
        Column("root-mean-square error", lambda variant: mean(variant, "rms"), "rms"),
        data("verdict", get=critic_verdict),
    ]

    def about(title: str, variants: Sequence[Variant]) -> tuple[list[str], list[Column]]:
        sentences = []
        for shooting in ("without", "with"):
            alike = [variant for variant in variants if (variant.shots > 1) == (shooting == "with")]
            verdicts = in_words(
                [(critic_verdict(variant), f"`{variant.label}`") for variant in alike], CRITICS
            )
            sentences += (
                [f"On {title} at the end of training, {shooting} shooting: {verdicts}."]
                if alike
                else []
            )
        return [" ".join(sentences)], columns

    return BIAS.compose(context, about, bias_figure)


def bias_figure(variants: Sequence[Variant]) -> Figure:
    """Left the bias, right the root-mean-square error, both over the steps of training."""
    figure = BIAS.figure(
        variants, {"bias": "bias, above 0 overestimated", "rms": "root-mean-square error"}
    )
    left, right = figure.axes
    left.axhline(0, **figures.DASHED)
    sizes = [
        abs(row["bias"])
        for variant in variants
        for run in variant.runs
        for row in BIAS.of(run)
        if row["bias"]
    ]
    typical = float(np.median(sizes)) if sizes else 0.0
    if typical and max(sizes) > WIDE * typical:
        left.set_yscale("symlog", linthresh=typical)
    right.set_yscale("log")
    return figure


# --- how widely states were visited: does anything foster exploration?


def coverage_section(
    context: Context, choose: Callable[[Sequence[Variant]], Variant | None]
) -> Section | None:
    """`choose` finds the baseline among those that were measured."""

    def end(name: str, variant: Variant) -> Estimate | None:
        values = COVERAGE.ends(variant, name)
        return mean_interval(values) if values else None

    def about(title: str, variants: Sequence[Variant]) -> tuple[list[str], list[Column]]:
        baseline, columns, sentences = choose(variants), list[Column](), list[str]()
        for name, quantity in QUANTITIES.items():
            rows = compare_coverage(name, variants, baseline)
            differences = {row.variant: row.difference for row in rows}
            p_values = {row.variant: row.p for row in rows}
            verdicts = {row.variant: row.verdict for row in rows}
            columns += [
                words("against baseline", partial(_told, verdicts), (), quantity),
                Column("at the end [95 %]", partial(end, name), with_ends(name), quantity),
                Column(
                    "difference [95 %]", differences.get, with_ends(f"{name}_difference"), quantity
                ),
                Column("p (Holm)", p_values.get, f"{name}_p_holm", quantity, show=p_value),
                Column(
                    "mean over training",
                    partial(over_training, name=name),
                    f"{name}_over_training",
                    quantity,
                ),
                data(f"{name}_against_baseline", get=verdicts.get),
            ]
            told_apart = in_words(
                [(verdict, f"`{variant.label}`") for variant, verdict in verdicts.items()], WIDTHS
            )
            sentences.append(f"By {quantity}, {told_apart or 'nothing to compare'}.")
        against = (
            f"On {title} at the end of training, against `{baseline.label}`." if baseline else ""
        )
        return [" ".join([against, *sentences])] if baseline else [], columns

    return COVERAGE.compose(context, about, coverage_figure)


def _told(verdicts: Mapping[Variant, str], variant: Variant) -> Cell:
    return verdict_cell(verdicts.get(variant, ""))


def compare_coverage(
    name: str, variants: Sequence[Variant], baseline: Variant | None
) -> list[Compared]:
    return compare(
        variants, baseline, Quantity(lambda variant: COVERAGE.ends(variant, name), WIDER, NARROWER)
    )


def over_training(variant: Variant, name: str) -> float | None:
    runs = COVERAGE.at_the_end(variant)
    return float(np.mean([np.mean([row[name] for row in rows]) for rows in runs])) if runs else None


def coverage_figure(variants: Sequence[Variant]) -> Figure:
    figure = COVERAGE.figure(
        variants, QUANTITIES | {"nearest": "mean distance to the nearest state"}
    )
    figure.axes[0].set_ylim(bottom=0)
    return figure
