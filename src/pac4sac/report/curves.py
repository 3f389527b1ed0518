"""The returns of all runs for the page of a report. The page draws and scores them again: its
script (`report.js`) computes solved episodes and regret as `runs/metrics.py` does."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pac4sac.report.comparison import Context
from pac4sac.report.figures import AT_ONCE
from pac4sac.report.variants import Outcome, TaskView, Variant
from pac4sac.runs.metrics import STREAK
from pac4sac.runs.reading import RunRecord

VIDEOS = ("episode.gif", "episode.mp4")  # as `pac4sac watch` names them in the folder of a run
DIGITS = 5  # significant digits of the largest return of a task

NO_CURVES: dict[str, Any] = {"streak": STREAK, "tasks": []}


def curves_of(context: Context, out: Path) -> dict[str, Any]:
    """Return the returns of all runs for the page in the folder `out`."""
    titles = [title for title in context.variants if _own(context.variants[title])]
    return NO_CURVES | {"tasks": [_task(context, title, out) for title in titles]}


def _own(variants: Sequence[Variant]) -> list[Variant]:
    """Return the variants with training episodes; curves of other projects have none."""
    return [variant for variant in variants if not variant.is_foreign]


def _task(context: Context, title: str, out: Path) -> dict[str, Any]:
    variants, groups = _own(context.variants[title]), context.groups[title]
    task, baseline = variants[0].task, context.baselines.get(title)
    group_of = {variant: group.title for group in groups for variant in group.members}
    shown = (_own(groups[0].members) if groups else variants)[:AT_ONCE]
    digits = _digits(variants)
    # Without a threshold the page cannot score runs again, so it shows these means.
    answers_by = task.answers_by if task.r_limit is None else []

    def about(variant: Variant) -> dict[str, Any]:
        return {
            "label": variant.label,
            "name": variant.style.name,
            "family": group_of.get(variant, variant.chose.capitalize()),
            "colour": variant.style.place,
            "line": variant.style.dashes,
            "shown": variant in shown,
            "baseline": variant is baseline,
            "metrics": [_mean(variant, metric.key) for metric in answers_by],
            "runs": [_run(outcome, variant, digits, out) for outcome in variant.outcomes],
        }

    return {
        "title": title,
        "limit": task.r_limit,
        "metrics": [metric.title for metric in answers_by],
        "e_max": task.e_max,
        "horizon": task.settings.get("horizon"),
        "steps": task.settings.get("steps"),
        "scale": 10**digits,
        "variants": [about(variant) for variant in variants],
    }


def _mean(variant: Variant, metric: str) -> float | None:
    summary = variant.summary(metric)
    return None if summary is None else round(summary.mean, 3)


def _digits(variants: Sequence[Variant]) -> int:
    """Return the number of decimals that stored returns keep."""
    returns = [abs(value) for variant in variants for run in variant.runs for value in run.returns]
    largest = max(filter(math.isfinite, returns), default=1.0)
    return max(0, DIGITS - math.ceil(math.log10(largest or 1.0) + 1e-9))


def _run(outcome: Outcome, variant: Variant, digits: int, out: Path) -> dict[str, Any]:
    record = outcome.run.record
    about: dict[str, Any] = {"run": outcome.run.place, "seed": record.seed, "status": record.status}
    about["returns"] = [_whole(float(value), digits, variant.task) for value in record.returns]
    if variant.task.e_max is None:  # otherwise all episodes have the same length
        about["steps"] = record.steps.tolist()
    if video := _video(record):
        place = Path(os.path.relpath(video.resolve(), out.resolve())).as_posix()
        about["film"] = f"./{quote(place)}"
    return about


def _video(run: RunRecord) -> Path | None:
    """Return the video in the folder of a run, or None. Symbolic links are not followed."""
    for name in VIDEOS:
        path = run.folder / name
        if path.is_file() and not path.is_symlink():
            return path
    return None


def _whole(value: float, digits: int, task: TaskView) -> int | None:
    """Return a return in units of its last decimal, rounded so that it stays on its side of the
    threshold."""
    if not math.isfinite(value):
        return None
    scale: int = 10**digits
    limit, whole = task.r_limit, round(value * scale)
    if limit is not None and (whole / scale > limit) != (value > limit):
        whole += 1 if value > limit else -1
    return whole
