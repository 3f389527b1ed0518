"""Runs of one task that differ in their seed alone, what they achieved, and the command that
repeats them."""

import dataclasses
import hashlib
import json
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pac4sac.base.files import natural
from pac4sac.base.text import assignments
from pac4sac.report.looks import looks
from pac4sac.report.tables import TEXTS
from pac4sac.runs.collection import FoundRun
from pac4sac.runs.identity import updates_of_task, usual_settings
from pac4sac.runs.logs import MEASUREMENTS
from pac4sac.runs.metrics import has_equal_episodes, score, standing
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.seeds import seeds_text
from pac4sac.runs.statistics import Summary, fraction, summarise
from pac4sac.tasks.registry import TASKS, known_task

STALE = " (by older code)"
DEFAULT_STEPS = 100_000  # of a task that is not shipped
USUAL_EPISODES = 5  # of an evaluation
# of a task, beside what settings and options say
CHANGEABLE = ("name", "horizon", "r_limit", "env_kwargs")


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
    """A task as it was trained on; the same name with other settings is another one."""

    def __init__(self, title: str, settings: Mapping[str, Any], equal_episodes: bool) -> None:
        self.title, self.settings, self.name = title, settings, str(settings["name"])
        self.r_limit: float | None = settings.get("r_limit")
        horizon, steps = settings.get("horizon"), settings.get("steps")
        self.e_max = max(1, steps // horizon) if horizon and steps and equal_episodes else None
        # What variants are ranked by, shown in thousands where regrets are that large.
        self.headline = METRICS[
            "regret" if self.r_limit is not None and self.e_max else "mean_return"
        ]
        is_large = (
            self.headline.key == "regret" and (self.r_limit or 0) * (self.e_max or 0) >= 10_000
        )
        self.scale = 1000.0 if is_large else 1.0
        self.unit = self.headline.title + (", thousands" if is_large else "")


class Variant:
    """Its runs are told apart by their seeds; `chose` is the kind of study that was to choose a
    setting by them."""

    def __init__(
        self,
        label: str,
        task: TaskView,
        config: Mapping[str, Any],
        outcomes: Sequence[Outcome],
        chose: str,
    ) -> None:
        self.label, self.task, self.config, self.outcomes, self.chose = (
            label,
            task,
            config,
            outcomes,
            chose,
        )
        self.is_result = not chose
        self.look = looks([label])[label]  # that of its report, where others are beside it
        self.runs = [outcome.run.record for outcome in outcomes]
        self.algo, self.preset = self.runs[0].algo, self.runs[0].preset
        self.seeds = seeds_text(run.seed for run in self.runs)
        self.shots = int(config.get("shots", 1))
        self.labels = sorted({name for outcome in outcomes for name in outcome.run.labels})
        self.studies = {name for outcome in outcomes for name in outcome.run.studies}
        self.complete = [outcome for outcome in outcomes if outcome.state == "complete"]
        self.code_note = (
            STALE.strip(" ()") if any(outcome.run.instead for outcome in outcomes) else ""
        )
        self.complete_text = f"{len(self.complete)} of {len(outcomes)}" + (
            STALE if self.code_note else ""
        )
        # Runs that have begun and may yet go on, so that nobody knows how they end.
        self.under_way = [
            o
            for o in outcomes
            if o.state in ("unfinished", "failed", "stopped") and o.run.record.episodes
        ]
        # Runs of which it is known whether they were solved; a diverged run never will be.
        self.judged = [outcome for outcome in outcomes if outcome.solved is not None]
        self.solved = sum(bool(outcome.solved) for outcome in self.judged)
        unknown = sum(outcome.solved is None for outcome in self.under_way)
        so_far = " so far" if self.under_way else ""
        self.solved_text = f"{self.solved} of {len(self.judged) + unknown}{so_far}"
        is_known = self.judged and not self.under_way
        self.solved_fraction = fraction(self.solved, len(self.judged)) if is_known else None
        self.has_results = bool(self.values(task.headline.key))

    def values(self, metric: str) -> list[float]:
        """Of the complete runs. None while others are under way: the first to be complete are those
        solved early."""
        if self.under_way:
            return []
        return [outcome.metrics[metric] for outcome in self.complete if metric in outcome.metrics]

    def summary(self, metric: str) -> Summary | None:
        values = self.values(metric)
        return summarise(values) if values else None

    def shown(self, metric: str) -> tuple[list[float], str]:
        """Values for a table, and what must be said of them: while runs are under way, what all had
        lost by the last episode that all have come to."""
        if (
            not self.under_way
            or metric != "regret"
            or self.task.r_limit is None
            or not self.task.e_max
        ):
            return self.values(metric), ""
        episode = min(len(outcome.run.record.episodes) for outcome in self.under_way)
        runs = [*self.complete, *self.under_way]
        regrets = [
            score(outcome.run.record.returns, self.task.r_limit, episode).regret for outcome in runs
        ]
        return regrets, f"so far, at episode {episode}"

    def count(self, state: str) -> int:
        return sum(outcome.state == state for outcome in self.outcomes)

    def of_study(self, study: str) -> "Variant":
        """With the runs of one study alone."""
        outcomes = [outcome for outcome in self.outcomes if study in outcome.run.studies]
        variant = Variant(self.label, self.task, self.config, outcomes, self.chose)
        variant.look = self.look
        return variant

    @cached_property
    def departures(self) -> dict[str, Any]:
        """Settings that are not those of the preset `paper`."""
        return differing(self.config, defaults(self.algo, "paper", self.task.settings))

    @cached_property
    def command(self) -> str:
        """For a shell: what trains these runs again."""
        settings, name = self.task.settings, self.task.name
        is_shipped = name in TASKS and settings["env_id"] == TASKS[name].env_id
        base = name if is_shipped else str(settings["env_id"])
        task = known_task(base)
        known = (
            dataclasses.asdict(task)
            if task
            else {"name": base, "steps": DEFAULT_STEPS, "env_kwargs": {}}
        )
        # As JSON, where 850 and 850.0 differ, as they do in the identity of a run.
        now, then = (
            {key: json.dumps(value) for key, value in of.items()} for of in (known, settings)
        )
        of_task = [f"{key}={then[key]}" for key in CHANGEABLE if then[key] != now.get(key)]
        # With the updates that the task has today, not when it was trained.
        usual = defaults(self.algo, self.preset, {**settings, **known})
        changed, agent = (
            differing(self.config, usual) if usual else self.config,
            self.config.get("started_from"),
        )
        options: dict[str, Any] = {
            "--algo": self.algo,
            "--seeds": self.seeds,
            "--steps": settings["steps"] if then["steps"] not in ("null", now["steps"]) else None,
            "--preset": self.preset if usual and self.preset != "paper" else None,
            "--from": f"AGENT-{agent}" if agent else None,
            "--set-task": of_task,
            "--set": assignments(
                {name: value for name, value in changed.items() if name != "started_from"}
            ),
            # A run that was not solved cannot tell.
            "--stop-when-solved": any(
                (run.status_detail or "").startswith("solved") for run in self.runs
            ),
            **_common([_options_of(run) for run in self.runs]),
        }
        words = ["pac4sac", "train", base]
        for option, value in options.items():
            if value:
                values = value if isinstance(value, list) else [] if value is True else [value]
                words += [option, *map(str, values)]
        return shlex.join(words)


def _options_of(run: RunRecord) -> dict[str, Any]:
    """The options, other than usual, that computed and measured as they did in this run, as far as
    it tells."""
    precision, device = run.computed.get("precision"), run.computed.get("device")
    options: dict[str, Any] = {
        "--precision": precision if precision != "float32" else None,
        "--device": device,
    }
    counts = {
        len(row["returns"])
        for row in run.evaluations
        if isinstance(row.get("returns"), list) and row["returns"]
    }
    options["--evaluation-episodes"] = (
        max(counts) if counts and max(counts) != USUAL_EPISODES else None
    )
    for name in ("evaluations", *MEASUREMENTS):
        steps = sorted({row["step"] for row in getattr(run, name) if type(row.get("step")) is int})
        # all have a last one at the end, which of evaluations is usual
        if len(steps) > (name == "evaluations"):
            options[f"--{name.replace('evaluations', 'evaluate')}-every"] = steps[0]
    return options


def _common(options: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Those that all have alike."""
    first, *others = options
    return {
        name: value
        for name, value in first.items()
        if all(other.get(name) == value for other in others)
    }


def defaults(algo: str, preset: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a preset, with the updates per step that come with a task of these
    settings."""
    config, times, own = (
        usual_settings(algo, preset),
        updates_of_task(algo, preset),
        task.get("updates_per_step"),
    )
    return {**config, **({"updates_per_step": times * own} if config and times and own else {})}


def differing(config: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing where it is not known what is usual, as of a user's own algorithm."""
    return set_apart(config, [usual]) if usual else {}


def variants_by_task(
    runs: Sequence[FoundRun], first_tasks: Sequence[str] = (), first_labels: Sequence[str] = ()
) -> dict[str, list[Variant]]:
    """The variants of each task by its title: first those named, in that order, then the others by
    name."""
    tasks: dict[str, list[FoundRun]] = defaultdict(list)
    for run in runs:
        settings = {
            name: value for name, value in run.record.task.items() if name != "updates_per_step"
        }
        tasks[json.dumps(settings, sort_keys=True)].append(run)
    views = {_task_view(members, list(tasks.values())): members for members in tasks.values()}

    def rank(variant: Variant) -> tuple[int, bool, list[tuple[int, str]]]:
        place = _place(variant.label, first_labels)
        return place, place == len(first_labels) and not variant.is_result, natural(variant.label)

    in_order = sorted(views, key=lambda task: (_place(task.name, first_tasks), task.title))
    by_task = {task.title: sorted(_variants(task, views[task]), key=rank) for task in in_order}
    everywhere = looks(variant.label for variants in by_task.values() for variant in variants)
    for variant in (variant for variants in by_task.values() for variant in variants):
        variant.look = everywhere[variant.label]
    return by_task


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def outcome_of(run: FoundRun) -> Outcome:
    return Outcome(run, *standing(run.record))


def _variants(task: TaskView, runs: Sequence[FoundRun]) -> list[Variant]:
    alike: dict[str, list[FoundRun]] = defaultdict(list)
    for run in runs:
        trained = [
            run.record.algo,
            _whole_config(run.record, task),
            run.chose,
            _code(run),
            bool(run.instead),
        ]
        alike[json.dumps(trained, sort_keys=True)].append(run)
    names = {
        what: (_label(same), same[0].chose, bool(same[0].instead)) for what, same in alike.items()
    }
    settings = {
        what: _whole_config(same[0].record, task) | _code(same[0]) for what, same in alike.items()
    }
    variants = []
    for what, (label, chose, is_stale) in names.items():
        first = alike[what][0].record
        rivals = [settings[other] for other, name in names.items() if name == names[what]]
        differing_in = (
            f" ({_differences(settings[what], rivals) or first.algo})" if len(rivals) > 1 else ""
        )
        whole_label = (
            label + differing_in + (STALE if is_stale else "") + (f" ({chose})" if chose else "")
        )
        outcomes = [outcome_of(run) for run in sorted(alike[what], key=lambda run: run.record.seed)]
        variants.append(Variant(whole_label, task, _whole_config(first, task), outcomes, chose))
    return variants


def _whole_config(record: RunRecord, task: TaskView) -> dict[str, Any]:
    """With the settings that came to be after it was trained: their defaults change nothing.
    Weights that it began with set it apart like a setting."""
    began = {"started_from": record.started_from} if record.started_from else {}
    return {**defaults(record.algo, record.preset, task.settings), **record.config, **began}


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
