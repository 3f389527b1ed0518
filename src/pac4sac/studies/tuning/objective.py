"""The objective of a search: final evaluation, area under the learning curve, or regret."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pac4sac.base.errors import UserError
from pac4sac.runs.metrics import final_metrics
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.status import BROKEN_OFF
from pac4sac.tasks import Task

# objective -> metric
METRICS = {"final": "final_deterministic", "area": "mean_return", "regret": "regret"}

Values = Mapping[str, Sequence[float]]  # task -> values of the seeds


@dataclass(frozen=True)
class ScoreReference:
    """Hold the returns on a task that count as 0 (random policy) and 1 (default settings)."""

    zero: float
    one: float

    def score(self, value: float) -> float:
        """Return the normalised score of a value."""
        return (value - self.zero) / (self.one - self.zero)


@dataclass(frozen=True)
class SearchObjective:
    """Measure trials: in the unit of the task if there is one task, and with normalised scores
    otherwise."""

    name: str
    tasks: tuple[Task, ...]

    def __post_init__(self) -> None:
        if self.name not in METRICS:
            raise UserError(f"Unknown objective {self.name!r}; use {', '.join(METRICS)}.")
        lacking = [t.name for t in self.tasks if t.r_limit is None or not t.horizon]
        if self.name == "regret" and lacking:
            raise UserError(
                f"The objective regret needs a return threshold and a horizon, which {lacking[0]} "
                "lacks; use the objective final, or set r_limit and horizon with --set-task."
            )

    @property
    def metric(self) -> str:
        """Return the key of the metric."""
        return METRICS[self.name]

    @property
    def lower_is_better(self) -> bool:
        """Return whether lower is better; for normalised scores, higher is always better."""
        return self.name == "regret" and len(self.tasks) == 1

    def values(self, runs: Sequence[RunRecord]) -> Values:
        """Return the metric of each seed on each task.

        Raises:
            BrokenOff: If a run diverged, failed or was stopped, or was not evaluated.
        """
        found: dict[str, list[float]] = {task.name: [] for task in self.tasks}
        for run in sorted(runs, key=lambda run: run.seed):
            value = final_metrics(run).get(self.metric)
            if value is None or run.status in BROKEN_OFF:
                raise BrokenOff(f"seed {run.seed} on {run.task['name']}: {run.status}")
            found[run.task["name"]].append(value)
        return found

    def scores(self, values: Values, references: Mapping[str, ScoreReference]) -> Values:
        """Return the compared values of the seeds, normalised if references exist."""
        if not references:
            return values
        return {task: [references[task].score(x) for x in each] for task, each in values.items()}

    def total(self, scores: Values) -> float:
        """Return the mean over seeds, then over tasks."""
        return fmean(map(fmean, scores.values()))

    def reference(self, runs: Sequence[RunRecord], task: Task) -> ScoreReference:
        """Return the reference of a task, from runs of the default settings on it.

        The random policy is that of the warm-up.

        Raises:
            UserError: If the defaults are not better than a random policy.
        """
        own = [run for run in runs if run.task["name"] == task.name]
        one, zero = fmean(self.values(runs)[task.name]), fmean(map(_random_return, own))
        if self.name == "regret":
            assert task.r_limit is not None
            zero = max(0.0, task.r_limit - zero) * max(1, task.steps // (task.horizon or 1))
        if not (one < zero if self.name == "regret" else one > zero):
            raise UserError(
                f"The default settings do not beat a random policy on {task.name} in "
                f"{task.steps:,} steps, so scores cannot be normalised; train longer, or search "
                f"on one task."
            )
        return ScoreReference(zero, one)


class BrokenOff(Exception):
    """Report which run of a trial has no result."""


def _random_return(run: RunRecord) -> float:
    """Return the mean return of the warm-up, in which actions are uniformly random."""
    warmup = run.config.get("warmup", 0)
    random = [row["return"] for row in run.episodes if row["step"] <= warmup]
    return fmean(random or [run.episodes[0]["return"]])
