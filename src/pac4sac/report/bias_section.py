"""What critics claim against what then happens: the value bias that runs logged while they trained."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pac4sac.base.text import NOTHING, file_name, number
from pac4sac.paper.verdicts import UNFINISHED
from pac4sac.report.computing import mixtures
from pac4sac.report.learning_curves import FAINT
from pac4sac.report.measurements import Measurements, Row, is_finite, pictures
from pac4sac.report.tables import Cell, Column, Section, Table, with_interval
from pac4sac.report.variants import Group, TaskView
from pac4sac.runs.collection import FoundStudy
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.statistics import Estimate, mean_interval

BIAS = Measurements("bias", ("step", "bias", "rms", "mean_return"))
ORDER = ("overestimates", "underestimates", "undecided", UNFINISHED, "no measurement at the end")
WIDE = 30.0  # ratio of biases above which a linear axis hides the small ones
INTRO = (
    "Bias is m_p(s, a) − G: what the online critic claims of an action, minus the discounted return that then came, on "
    "episodes played for this alone with the policy itself (no shooting; with entropy where the algorithm has it). "
    "Positive means overestimated. Steps near a time limit are not judged, since their return is not known. Intervals "
    "are over seeds, of a single run over its episodes. “Overestimates” and “underestimates” say that an interval "
    "leaves out 0, each row by itself: nothing is corrected for the number of rows, and of twenty unbiased critics one "
    "would be called biased. The root-mean-square error holds the noise of single returns too, so that no critic "
    "reaches 0 where policy or task are random. Shooting changes what data a critic sees: its replay holds what the "
    "best of S candidates did, while it is asked here about the policy itself. Like should be compared with like. "
    "Repeat it with `pac4sac study run overestimation`, or log it in any training with `--bias-every`."
)


def bias_section(groups: Mapping[str, Sequence[Group]], studies: Sequence[FoundStudy] = ()) -> Section | None:
    """The variants of the study that asks come first, in one picture."""
    asking = {study.name for study in studies if study.kind == "overestimation"}
    blocks: list[Any] = []
    for found in groups.values():
        members = sorted(BIAS.measured(found), key=lambda group: asking.isdisjoint(group.studies))
        if members:
            blocks += _of_task(members[0].task, members)
    return Section("bias", "What critics claim, and what then happens", [INTRO, *blocks]) if blocks else None


def measured(run: RunRecord) -> list[Row]:
    return BIAS.of(run)


def final_bias(group: Group) -> Estimate | None:
    """At the end of training, over the seeds that came to it."""
    rows = BIAS.last_rows(group)
    if len(rows) == 1:
        low, high = rows[0].get("low"), rows[0].get("high")
        return Estimate(rows[0]["bias"], low, high) if is_finite(low) and is_finite(high) else Estimate(rows[0]["bias"])
    return mean_interval([row["bias"] for row in rows]) if rows else None


def verdict(group: Group) -> str:
    estimate = final_bias(group)
    if group.under_way:
        return UNFINISHED
    if estimate is None:
        return "no measurement at the end"
    if estimate.low is None or estimate.high is None:
        return "undecided"
    return "overestimates" if estimate.low > 0 else "underestimates" if estimate.high < 0 else "undecided"


def _of_task(task: TaskView, members: Sequence[Group]) -> list[Any]:
    name = f"bias-{file_name(task.title)}"
    found: dict[bool, dict[str, list[str]]] = {False: {}, True: {}}  # by whether it shoots
    body, records = [], []
    for group in members:
        bias, rows = final_bias(group), BIAS.last_rows(group)
        told, shots = verdict(group), int(group.config.get("shots", 1))
        found[shots > 1].setdefault(told, []).append(f"`{group.label}`")
        size = float(np.mean([row["mean_return"] for row in rows])) if rows else None
        rms = float(np.mean([row["rms"] for row in rows])) if rows else None
        share = bias.value / abs(size) if bias and size else None
        body.append([
            Cell(group.label, group.label), Cell(str(shots), shots),
            Cell(f"{len(rows)} of {len(group.runs)}", len(rows)),
            Cell(with_interval(bias), bias.value if bias else None), Cell(number(size), size),
            Cell(NOTHING if share is None else f"{100 * share:+.1f} %".replace("-", "−"), share),
            Cell(number(rms), rms), Cell(told, told),
        ])  # fmt: skip
        records.append({
            "task": task.title, "variant": group.label, "algo": group.algo, "shots": shots, "runs": len(rows),
            "bias": bias.value if bias else None, "bias_low": bias.low if bias else None,
            "bias_high": bias.high if bias else None, "mean_return": size, "relative_bias": share, "rms": rms,
            "verdict": told,
        })  # fmt: skip
    heads = ("S", "Runs", "bias [95 %]", "mean value G", "bias / |G|", "root-mean-square error")
    columns = [Column("Variant", numeric=False), *map(Column, heads), Column("Critic", numeric=False)]
    sentences = [
        f"On {task.title} at the end of training, {who} shooting: "
        + "; ".join(f"{told}: {', '.join(labels[told])}" for told in ORDER if told in labels) + "."
        for who, labels in zip(("without", "with"), found.values(), strict=True) if labels
    ]  # fmt: skip
    caption = f"{task.title}: bias of the critic's values during training, mean of the seeds with its 95 % interval"
    drawn = pictures(name, caption, members, bias_figure)
    caption = f"Value bias on {task.title} at the end of training"
    return [" ".join(sentences), *drawn, Table(name, caption, columns, body, records), *mixtures(members)]


def bias_figure(groups: Sequence[Group]) -> Figure:
    """Left the bias, right the root-mean-square error, both over the steps of training."""
    figure = BIAS.figure(groups, {"bias": "bias, above 0 overestimated", "rms": "root-mean-square error"})
    left, right = figure.axes
    left.axhline(0, color=FAINT, linewidth=1.2, linestyle=(0, (5, 3)), zorder=1)
    sizes = [abs(row["bias"]) for group in groups for run in group.runs for row in measured(run) if row["bias"]]
    typical = float(np.median(sizes)) if sizes else 0.0
    if typical and max(sizes) > WIDE * typical:
        left.set_yscale("symlog", linthresh=typical)
    right.set_yscale("log")
    return figure
