"""Choose the variants of successive halving: a search in rungs, each longer than the one before and
with the better half of its variants.

Each rung is a separate study folder, whose runs start from nothing: a cohort in lockstep cannot
lose runs. The rungs before the last one cost together about as much as the last one."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pac4sac.runs.metrics import final_metrics
from pac4sac.runs.reading import RunRecord, find_runs, read_run


@dataclass(frozen=True)
class Halving:
    """The rungs of a search."""

    steps: Mapping[str, Sequence[int]]  # of each task, in every rung
    keep: float = 0.5  # share of the variants, without controls, that reach the next rung
    controls: tuple[str, ...] = ()  # variants that reach every rung

    @property
    def rungs(self) -> int:
        """Return the number of rungs."""
        return len(next(iter(self.steps.values())))


def mean_ranks(runs: Sequence[RunRecord]) -> dict[str, float]:
    """Return the rank of each variant on average over tasks, best first.

    The rank on a task is by the mean loss over seeds.
    """
    losses: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        losses[run.task["name"]][run.label].append(_loss(run))
    ranks: dict[str, list[int]] = defaultdict(list)
    for by_label in losses.values():
        best_first = sorted(by_label, key=lambda label: np.mean(by_label[label]))
        for rank, label in enumerate(best_first, 1):
            ranks[label].append(rank)
    means = {label: float(np.mean(each)) for label, each in ranks.items()}
    return dict(sorted(means.items(), key=lambda item: item[1]))


def _loss(run: RunRecord) -> float:
    """Return the regret, or minus the mean return without a solve threshold; ∞ if unknown."""
    metrics = final_metrics(run)
    if run.task.get("r_limit") is None:
        return -metrics.get("mean_return", -np.inf)
    return metrics.get("regret", np.inf)


def survivors(folder: Path, halving: Halving) -> dict[str, float]:
    """Return the variants of a rung that reach the next one, with their mean ranks."""
    ranks = mean_ranks([read_run(run) for run in find_runs(folder)])
    candidates = [label for label in ranks if label not in halving.controls]
    best = candidates[: max(1, round(halving.keep * len(candidates)))]
    kept = {*best, *halving.controls}
    return {label: rank for label, rank in ranks.items() if label in kept}
