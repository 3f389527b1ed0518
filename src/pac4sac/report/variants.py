"""Runs of one task that differ in their seed only, and what they achieved."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pac4sac.base.files import natural
from pac4sac.base.text import assignments
from pac4sac.report.commands import train_command
from pac4sac.report.style import Style, assign_styles
from pac4sac.report.tables import TEXTS
from pac4sac.runs.collection import FoundRun
from pac4sac.runs.metrics import final_metrics, has_equal_episodes, run_state, score, was_solved
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.seeds import seeds_text
from pac4sac.runs.statistics import Estimate, Summary, fraction, summarise

STALE = " (by older code)"


@dataclass(frozen=True)
class Metric:
    key: str
    title: str
    lower_is_better: bool


METRICS = {key: Metric(key, **about) for key, about in TEXTS["metrics"].items()}


@dataclass(frozen=True)
class Outcome:
    run: FoundRun
    state: str  # complete, unfinished, diverged, failed or stopped
    solved: bool | None  # None: not known yet, or no limit to tell by
    metrics: Mapping[str, float]


class TaskView:
    """A task as it was trained on; the same name with other settings is another task."""

    def __init__(self, title: str, settings: Mapping[str, Any], equal_episodes: bool) -> None:
        self.title, self.settings, self.name = title, settings, str(settings["name"])
        self.r_limit: float | None = settings.get("r_limit")
        horizon, steps = settings.get("horizon"), settings.get("steps")
        self.e_max = max(1, steps // horizon) if horizon and steps and equal_episodes else None

    @property
    def most_regret(self) -> float:
        """The regret of a run that never gets a return; 0 where regret is not defined."""
        return (self.r_limit or 0) * (self.e_max or 0)

    @property
    def headline(self) -> Metric:
        """What variants are ranked by."""
        has_regret = self.r_limit is not None and self.e_max
        return METRICS["regret" if has_regret else "mean_return"]

    @property
    def scale(self) -> float:
        """Large regrets are shown in thousands."""
        return 1000.0 if self.headline.key == "regret" and self.most_regret >= 10_000 else 1.0

    @property
    def unit(self) -> str:
        return self.headline.title + (", thousands" if self.scale > 1 else "")


@dataclass(eq=False)
class Variant:
    """Runs of one task that differ in their seed only."""

    label: str
    task: TaskView
    config: Mapping[str, Any]
    outcomes: Sequence[Outcome]
    chose: str  # kind of the study that chose a setting by these runs; such runs are no results
    style: Style = field(init=False)  # given by the report, where other variants are drawn too

    def __post_init__(self) -> None:
        self.style = assign_styles([self.label])[self.label]

    @cached_property
    def runs(self) -> list[RunRecord]:
        return [outcome.run.record for outcome in self.outcomes]

    @property
    def algo(self) -> str:
        return self.runs[0].algo

    @property
    def preset(self) -> str:
        return self.runs[0].preset

    @property
    def is_result(self) -> bool:
        return not self.chose

    @property
    def seeds(self) -> str:
        return seeds_text(run.seed for run in self.runs)

    @property
    def shots(self) -> int:
        return int(self.config.get("shots", 1))

    @cached_property
    def labels(self) -> list[str]:
        """All names under which its runs were found."""
        return sorted({name for outcome in self.outcomes for name in outcome.run.labels})

    @cached_property
    def studies(self) -> set[str]:
        return {name for outcome in self.outcomes for name in outcome.run.studies}

    @cached_property
    def given(self) -> dict[str, Any]:
        """Settings given beside the preset, and the agent that training began with."""
        run = self.runs[0]
        return run.given | ({"started_from": run.started_from} if run.started_from else {})

    @cached_property
    def command(self) -> str:
        """The shell command that trains these runs again."""
        return train_command(self.runs, self.seeds)

    @property
    def code_note(self) -> str:
        is_stale = any(outcome.run.instead for outcome in self.outcomes)
        return STALE.strip(" ()") if is_stale else ""

    # --- runs by their state

    @cached_property
    def complete(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.state == "complete"]

    @property
    def complete_text(self) -> str:
        return f"{len(self.complete)} of {len(self.outcomes)}" + (STALE if self.code_note else "")

    @cached_property
    def under_way(self) -> list[Outcome]:
        """Runs that have begun and may continue, so it is not known how they end."""
        open_states = ("unfinished", "failed", "stopped")
        return [o for o in self.outcomes if o.state in open_states and o.run.record.episodes]

    @cached_property
    def judged(self) -> list[Outcome]:
        """Runs of which it is known whether they were solved; a diverged run never will be."""
        return [outcome for outcome in self.outcomes if outcome.solved is not None]

    @property
    def solved(self) -> int:
        return sum(bool(outcome.solved) for outcome in self.judged)

    @property
    def solved_text(self) -> str:
        unknown = sum(outcome.solved is None for outcome in self.under_way)
        so_far = " so far" if self.under_way else ""
        return f"{self.solved} of {len(self.judged) + unknown}{so_far}"

    @property
    def solved_fraction(self) -> Estimate | None:
        if not self.judged or self.under_way:
            return None
        return fraction(self.solved, len(self.judged))

    def count(self, state: str) -> int:
        return sum(outcome.state == state for outcome in self.outcomes)

    # --- metrics

    @cached_property
    def has_results(self) -> bool:
        return bool(self.values(self.task.headline.key))

    def values(self, metric: str) -> list[float]:
        """Return the metric of each complete run; nothing while others are under way, since the
        first to be complete are those solved early."""
        if self.under_way:
            return []
        return [outcome.metrics[metric] for outcome in self.complete if metric in outcome.metrics]

    def summary(self, metric: str) -> Summary | None:
        values = self.values(metric)
        return summarise(values) if values else None

    def shown(self, metric: str) -> tuple[list[float], str]:
        """Return values for a table, with a note: while runs are under way, the regret of all at
        the last episode that all have reached."""
        if metric != "regret" or not self.under_way:
            return self.values(metric), ""
        r_limit = self.task.r_limit
        if r_limit is None or not self.task.e_max:
            return [], ""
        episode = min(len(outcome.run.record.episodes) for outcome in self.under_way)
        runs = [*self.complete, *self.under_way]
        regrets = [score(outcome.run.record.returns, r_limit, episode).regret for outcome in runs]
        return regrets, f"so far, at episode {episode}"

    def of_study(self, study: str) -> "Variant":
        """Return the variant with the runs of one study only."""
        outcomes = [outcome for outcome in self.outcomes if study in outcome.run.studies]
        variant = Variant(self.label, self.task, self.config, outcomes, self.chose)
        variant.style = self.style
        return variant


def variants_by_task(
    runs: Sequence[FoundRun], first_tasks: Sequence[str] = (), first_labels: Sequence[str] = ()
) -> dict[str, list[Variant]]:
    """Return the variants of each task by its title: the named ones first, then the others by
    name."""
    tasks: dict[str, list[FoundRun]] = defaultdict(list)
    for run in runs:
        settings = dict(run.record.task)
        settings.pop("updates_per_step", None)  # a setting of the run
        tasks[json.dumps(settings, sort_keys=True)].append(run)
    views = {_task_view(members, list(tasks.values())): members for members in tasks.values()}

    def rank(variant: Variant) -> tuple[int, bool, list[tuple[int, str]]]:
        place = _place(variant.label, first_labels)
        return place, place == len(first_labels) and not variant.is_result, natural(variant.label)

    in_order = sorted(views, key=lambda task: (_place(task.name, first_tasks), task.title))
    by_task = {task.title: sorted(_variants(task, views[task]), key=rank) for task in in_order}
    everything = [variant for variants in by_task.values() for variant in variants]
    styles = assign_styles(variant.label for variant in everything)
    for variant in everything:
        variant.style = styles[variant.label]
    return by_task


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def outcome_of(run: FoundRun) -> Outcome:
    record = run.record
    return Outcome(run, run_state(record), was_solved(record), final_metrics(record))


def _variants(task: TaskView, runs: Sequence[FoundRun]) -> list[Variant]:
    same: dict[str, list[FoundRun]] = defaultdict(list)
    for run in runs:
        key = [run.record.algo, _settings(run), run.chose, _code(run), bool(run.instead)]
        same[json.dumps(key, sort_keys=True)].append(run)
    named: dict[tuple[str, str], list[list[FoundRun]]] = defaultdict(list)
    for members in same.values():
        named[_label(members), _suffix(members[0])].append(members)
    variants = []
    for (label, suffix), groups in named.items():
        compared = [_settings(members[0]) | _code(members[0]) for members in groups]
        for members, facts in zip(groups, compared, strict=True):
            differences = _differences(facts, compared) or members[0].record.algo
            apart = f" ({differences})" if len(groups) > 1 else ""
            members.sort(key=lambda run: run.record.seed)
            outcomes = [outcome_of(run) for run in members]
            settings, chose = _settings(members[0]), members[0].chose
            variants.append(Variant(label + apart + suffix, task, settings, outcomes, chose))
    return variants


def _suffix(run: FoundRun) -> str:
    return (STALE if run.instead else "") + (f" ({run.chose})" if run.chose else "")


def _settings(run: FoundRun) -> dict[str, Any]:
    """Return the settings of a run; weights that it began with set it apart like a setting."""
    record = run.record
    return record.config | ({"started_from": record.started_from} if record.started_from else {})


def _code(run: FoundRun) -> dict[str, Any]:
    """Runs of different code are never taken together."""
    sources = run.record.about.get("code") or {}
    code = (
        hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()[:8]
        if sources
        else "unknown"
    )
    return {"revision": run.record.about.get("revision", 1), "code": code}


def _label(members: Sequence[FoundRun]) -> str:
    """The algorithm's own name, else one that was given rather than made of a sweep, which other
    tasks may lack."""
    labels = {label for run in members for label in run.labels}
    algo = members[0].record.algo
    return (
        algo if algo in labels else min(labels, key=lambda label: ("=" in label, len(label), label))
    )


def _task_view(runs: Sequence[FoundRun], tasks: Sequence[Sequence[FoundRun]]) -> TaskView:
    """The title names what sets it apart from tasks of its name; if only one of these has runs that
    count as results, that one keeps the plain name."""
    settings = runs[0].record.task
    of_name = [other for other in tasks if other[0].record.task["name"] == settings["name"]]
    with_results = [other for other in of_name if not all(run.chose for run in other)]
    is_plain = len(with_results) == 1 and with_results[0] is runs
    differences = (
        "" if is_plain else _differences(settings, [other[0].record.task for other in of_name])
    )
    title = f"{settings['name']} ({differences})" if differences else settings["name"]
    complete = {"horizon": None, "r_limit": None, "steps": None, "env_kwargs": {}} | settings
    return TaskView(title, complete, all(has_equal_episodes(run.record) for run in runs))


def _differences(settings: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(assignments(set_apart(settings, rivals)))


def set_apart(settings: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings that not all have alike."""
    return {
        name: value
        for name, value in settings.items()
        if any(rival.get(name) != value for rival in rivals)
    }
