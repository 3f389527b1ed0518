"""Group runs by task and variant, and give each group a unique name."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pac4sac.base.files import natural
from pac4sac.base.grouping import group_by
from pac4sac.base.text import assignments
from pac4sac.report.style import assign_styles
from pac4sac.report.variants import FOREIGN, SEVERAL_VERSIONS, STALE, TaskView, Variant, outcome_of
from pac4sac.runs.collection import FoundRun
from pac4sac.runs.metrics import evaluation_episodes, has_equal_episodes


def variants_by_task(
    runs: Sequence[FoundRun], first_tasks: Sequence[str] = (), first_labels: Sequence[str] = ()
) -> dict[str, list[Variant]]:
    """Return the variants of each task by its title, the named ones first, the others sorted by
    name."""
    on_tasks = list(group_by(runs, _task_key).values())
    views = {_task_view(members, on_tasks): members for members in on_tasks}
    in_order = sorted(views, key=lambda task: (_place(task.name, first_tasks), task.title))
    rank = partial(_rank, first_labels=first_labels)
    by_task = {task.title: sorted(_variants(task, views[task]), key=rank) for task in in_order}
    _share_styles([variant for variants in by_task.values() for variant in variants])
    return by_task


def _task_key(run: FoundRun) -> str:
    """Return the settings of the task of a run as text."""
    settings = dict(run.record.task)
    settings.pop("updates_per_step", None)  # belongs to the run, not to the task
    return json.dumps(settings, sort_keys=True)


def _rank(variant: Variant, first_labels: Sequence[str]) -> tuple[int, bool, list[tuple[int, str]]]:
    """Return the sort key of a variant: first labels, then other results, then the rest."""
    place = _place(variant.label, first_labels)
    is_last = place == len(first_labels) and not variant.is_result
    return place, is_last, natural(variant.label)


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _share_styles(variants: Sequence[Variant]) -> None:
    """Give variants of the same label the same style, and other labels different styles."""
    styles = assign_styles(variant.label for variant in variants)
    for variant in variants:
        variant.style = styles[variant.label]


def _variants(task: TaskView, runs: Sequence[FoundRun]) -> list[Variant]:
    """Return the variants of a task. Runs of one variant differ in their seed only."""
    groups = list(group_by(runs, _variant_key).values())
    variants = []
    for same_name in group_by(groups, _label_and_suffix).values():
        facts = [_settings(members[0]) | _code(members[0]) for members in same_name]
        for members, own in zip(same_name, facts, strict=True):
            apart = ""
            if len(same_name) > 1:
                apart = f" ({_differences(own, facts) or members[0].record.algo})"
            for measured_alike, protocol in _by_evaluation_protocol(members):
                variants.append(_variant(task, measured_alike, apart + protocol))
    return variants


def _by_evaluation_protocol(runs: Sequence[FoundRun]) -> list[tuple[Sequence[FoundRun], str]]:
    """Split runs by their number of evaluation episodes; return each part with a suffix for its
    name.

    Runs without evaluations join the largest part.
    """
    counts = Counter(episodes for run in runs if (episodes := evaluation_episodes(run.record)))
    if len(counts) < 2:
        return [(runs, "")]
    ((usual, _),) = counts.most_common(1)
    parts = group_by(runs, lambda run: evaluation_episodes(run.record) or usual)
    return [(part, f" (evaluation_episodes={n})") for n, part in sorted(parts.items())]


def _variant_key(run: FoundRun) -> str:
    """Return the facts that all runs of a variant share, as text."""
    key = [run.record.algo, _settings(run), run.chose, _code(run), bool(run.instead)]
    return json.dumps(key, sort_keys=True)


def _variant(task: TaskView, runs: Sequence[FoundRun], apart: str) -> Variant:
    """Return runs as a variant; `apart` distinguishes it from others of its name."""
    label, suffix = _label_and_suffix(runs)
    in_order = sorted(runs, key=lambda run: run.record.seed)
    outcomes = [outcome_of(run) for run in in_order]
    first = in_order[0]
    return Variant(label + apart + suffix, task, _settings(first), outcomes, first.chose)


def _label_and_suffix(runs: Sequence[FoundRun]) -> tuple[str, str]:
    return _label(runs), _suffix(runs[0])


def _suffix(run: FoundRun) -> str:
    if run.record.is_foreign:
        return FOREIGN
    chosen_by = f" ({run.chose})" if run.chose else ""
    several = SEVERAL_VERSIONS if run.record.about.get("earlier_code") else ""
    return (STALE if run.instead else "") + several + chosen_by


def _settings(run: FoundRun) -> dict[str, Any]:
    """Return the settings of a run; its initial weights count as a setting."""
    record = run.record
    return record.config | ({"started_from": record.started_from} if record.started_from else {})


def _code(run: FoundRun) -> dict[str, Any]:
    """Return code and simulators of a run; runs that differ in these are never averaged."""
    about = run.record.about
    versions = about.get("simulators") or {}
    return {
        "revision": about.get("revision", 1),
        "code": _checksum(about.get("code")) or "unknown",
        "simulators": " ".join(f"{name} {version}" for name, version in sorted(versions.items())),
        "earlier_code": _checksum(about.get("earlier_code")),
    }


def _checksum(facts: Any) -> str:
    """Return a short checksum of facts; an empty string if there are none."""
    if not facts:
        return ""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def _label(members: Sequence[FoundRun]) -> str:
    """Return the algorithm's name if it is one of the runs' labels, else the shortest label without
    "=".

    A label made of the values of a sweep has an equals sign. Other tasks may lack it.
    """
    labels = {label for run in members for label in run.labels}
    algo = members[0].record.algo
    if algo in labels:
        return algo
    return min(labels, key=lambda label: ("=" in label, len(label), label))


def _task_view(runs: Sequence[FoundRun], tasks: Sequence[Sequence[FoundRun]]) -> TaskView:
    """Return the task of some runs with a unique title."""
    settings = runs[0].record.task
    complete = {"horizon": None, "r_limit": None, "steps": None, "env_kwargs": {}} | settings
    equal_episodes = all(has_equal_episodes(run.record) for run in runs)
    has_foreign = any(run.record.is_foreign for run in runs)
    return TaskView(_task_title(runs, tasks), complete, equal_episodes, has_foreign)


def _task_title(runs: Sequence[FoundRun], tasks: Sequence[Sequence[FoundRun]]) -> str:
    """Return the name of a task with the settings that distinguish it from others of its name.

    If only one of the tasks with this name has results, it keeps the plain name.
    """
    settings = runs[0].record.task
    name = str(settings["name"])
    of_name = [other for other in tasks if other[0].record.task["name"] == name]
    with_results = [other for other in of_name if _has_results(other)]
    if len(with_results) == 1 and with_results[0] is runs:
        return name
    differences = _differences(settings, [other[0].record.task for other in of_name])
    return f"{name} ({differences})" if differences else name


def _has_results(runs: Sequence[FoundRun]) -> bool:
    """Return whether some runs count as results; runs that chose a setting do not."""
    return not all(run.chose for run in runs)


def _differences(settings: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(assignments(set_apart(settings, others)))


def set_apart(settings: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings whose values are not the same in all the others."""
    return {
        name: value
        for name, value in settings.items()
        if any(other.get(name) != value for other in others)
    }
