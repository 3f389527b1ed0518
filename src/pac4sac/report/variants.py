"""Variants: runs of one task that differ only in their seeds, and their results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pac4sac.report.commands import train_command
from pac4sac.report.style import Style, assign_styles
from pac4sac.report.tables import TEXTS
from pac4sac.runs.collection import FoundRun
from pac4sac.runs.metrics import final_metrics, run_state, score, was_solved
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.seeds import seeds_text
from pac4sac.runs.statistics import Estimate, Summary, fraction, summarise

STALE = " (by older code)"
SEVERAL_VERSIONS = " (by several versions of its code)"
FOREIGN = " (foreign)"


@dataclass(frozen=True)
class Metric:
    key: str
    title: str
    lower_is_better: bool

    def with_article(self, side: str) -> str:
        """Return `lower` or `higher` with the title, as in `a higher mean return`."""
        article = "" if "regret" in self.key else "a "
        return f"{article}{side} {self.title}"


METRICS = {key: Metric(key, **about) for key, about in TEXTS["metrics"].items()}


@dataclass(frozen=True)
class Outcome:
    run: FoundRun
    state: str  # complete, unfinished, diverged, failed or stopped
    solved: bool | None  # None: unknown so far, or no threshold
    metrics: Mapping[str, float]


def outcome_of(run: FoundRun) -> Outcome:
    """Return the state and the metrics of a run."""
    record = run.record
    return Outcome(run, run_state(record), was_solved(record), final_metrics(record))


class TaskView:
    """Hold a task with its settings; the same name with other settings is another task."""

    def __init__(
        self,
        title: str,
        settings: Mapping[str, Any],
        equal_episodes: bool,
        has_foreign: bool = False,
    ) -> None:
        self.title, self.settings, self.name = title, settings, str(settings["name"])
        self.has_foreign = has_foreign  # has curves of other projects
        self.r_limit: float | None = settings.get("r_limit")
        horizon, steps = settings.get("horizon"), settings.get("steps")
        self.e_max = max(1, steps // horizon) if horizon and steps and equal_episodes else None

    @property
    def has_regret(self) -> bool:
        """Return whether regret is defined: the task has a return threshold and E_max."""
        return self.r_limit is not None and self.e_max is not None

    @property
    def most_regret(self) -> float:
        """Return the largest possible regret, r_limit × E_max; 0 if regret is not defined."""
        return (self.r_limit or 0) * (self.e_max or 0)

    @property
    def headline(self) -> Metric:
        """Return the metric that variants are ranked by."""
        if self.has_foreign:
            return METRICS["final_deterministic"]
        return METRICS["regret" if self.has_regret else "mean_return"]

    @property
    def answers_by(self) -> list[Metric]:
        """Return the metrics of the answers: the headline or, without a threshold, the final
        evaluation and the area under the learning curve."""
        if self.r_limit is None and not self.has_foreign:
            return [METRICS["final_deterministic"], self.headline]
        return [self.headline]

    @property
    def scale(self) -> float:
        """Return the divisor of the displayed headline: large regrets are in thousands."""
        return self.scale_of(self.headline)

    def scale_of(self, metric: Metric) -> float:
        """Return the divisor of a displayed metric."""
        return 1000.0 if "regret" in metric.key and self.most_regret >= 10_000 else 1.0

    @property
    def unit(self) -> str:
        """Return the title of the headline with its unit."""
        return self.headline.title + (", thousands" if self.scale > 1 else "")


@dataclass(eq=False)
class Variant:
    """Hold runs of one task that differ in their seed only."""

    label: str
    task: TaskView
    config: Mapping[str, Any]
    outcomes: Sequence[Outcome]
    chose: str  # kind of the study that chose a setting by these runs; they are not results
    style: Style = field(init=False)  # set later: it depends on the other variants

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
    def is_foreign(self) -> bool:
        return self.runs[0].is_foreign

    @property
    def seeds(self) -> str:
        return seeds_text(run.seed for run in self.runs)

    @property
    def shots(self) -> int:
        return int(self.config.get("shots", 1))

    @cached_property
    def labels(self) -> list[str]:
        """Return all labels that the runs have."""
        return sorted({name for outcome in self.outcomes for name in outcome.run.labels})

    @cached_property
    def studies(self) -> set[str]:
        return {name for outcome in self.outcomes for name in outcome.run.studies}

    @cached_property
    def given(self) -> dict[str, Any]:
        """Return the settings that differ from the preset, and the agent that training started
        from."""
        run = self.runs[0]
        return run.given | ({"started_from": run.started_from} if run.started_from else {})

    @cached_property
    def command(self) -> str:
        """Return the shell command that trains these runs again; empty for foreign curves."""
        if self.is_foreign:
            return ""
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
    def in_progress(self) -> list[Outcome]:
        """Return the runs in progress; their outcome is unknown."""
        open_states = ("unfinished", "failed", "stopped")
        return [o for o in self.outcomes if o.state in open_states and o.run.record.episodes]

    @cached_property
    def judged(self) -> list[Outcome]:
        """Return the runs known to be solved or not; a diverged run counts as not solved."""
        return [outcome for outcome in self.outcomes if outcome.solved is not None]

    @property
    def solved(self) -> int:
        return sum(bool(outcome.solved) for outcome in self.judged)

    @property
    def solved_text(self) -> str:
        if self.is_foreign:
            return "unknown"
        unknown = sum(outcome.solved is None for outcome in self.in_progress)
        so_far = " so far" if self.in_progress else ""
        return f"{self.solved} of {len(self.judged) + unknown}{so_far}"

    @property
    def solved_fraction(self) -> Estimate | None:
        if not self.judged or self.in_progress:
            return None
        return fraction(self.solved, len(self.judged))

    def count(self, state: str) -> int:
        return sum(outcome.state == state for outcome in self.outcomes)

    # --- metrics

    @cached_property
    def has_results(self) -> bool:
        return bool(self.values(self.task.headline.key))

    def values(self, metric: str) -> list[float]:
        """Return the metric of each complete run; empty while runs are in progress, because the
        first complete runs are the early solved ones."""
        if self.in_progress:
            return []
        return [outcome.metrics[metric] for outcome in self.complete if metric in outcome.metrics]

    def summary(self, metric: str) -> Summary | None:
        values = self.values(metric)
        return summarise(values) if values else None

    def shown(self, metric: str) -> tuple[list[float], str]:
        """Return the values for a table with a note. While runs are in progress, the values are the
        regrets of all runs at the last episode that all have reached."""
        if metric != "regret" or not self.in_progress:
            return self.values(metric), ""
        r_limit = self.task.r_limit
        if r_limit is None or not self.task.has_regret:
            return [], ""
        episode = min(len(outcome.run.record.episodes) for outcome in self.in_progress)
        runs = [*self.complete, *self.in_progress]
        regrets = [score(outcome.run.record.returns, r_limit, episode).regret for outcome in runs]
        return regrets, f"so far, at episode {episode}"

    def of_study(self, study: str) -> "Variant":
        """Return a copy of the variant with only the runs of one study."""
        outcomes = [outcome for outcome in self.outcomes if study in outcome.run.studies]
        variant = Variant(self.label, self.task, self.config, outcomes, self.chose)
        variant.style = self.style
        return variant
