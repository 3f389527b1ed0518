"""Successive halving: a search in rungs, each longer than the one before and with the better part
of its variants.

Each rung is a study folder of its own, whose runs start from nothing: a cohort in lockstep cannot
lose runs, and the rungs before the last cost together about as much as it does."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pac4sac.runs.metrics import final_metrics
from pac4sac.runs.reading import RunRecord, find_runs, read_run


@dataclass(frozen=True)
class Halving:
    steps: Mapping[str, Sequence[int]]  # of each task, in every rung
    keep: float = (
        0.5  # share of the variants that reach the next rung, but for controls, all of which do
    )
    controls: tuple[str, ...] = ()

    @property
    def rungs(self) -> int:
        return len(next(iter(self.steps.values())))


def mean_ranks(runs: Sequence[RunRecord]) -> dict[str, float]:
    """Of each variant, its place among all by mean regret over seeds, in the mean over tasks, best
    first. On a task without a limit the mean return counts, and a run that broke off is the worst
    there is."""
    losses: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        numbers = final_metrics(run)
        loss = numbers.get("regret", np.inf)
        if run.task.get("r_limit") is None:
            loss = -numbers.get("mean_return", -np.inf)
        losses[run.task["name"]][run.label].append(loss)
    places = defaultdict(list)
    for by_label in losses.values():
        for place, label in enumerate(sorted(by_label, key=lambda label: np.mean(by_label[label]))):
            places[label].append(place + 1)
    return dict(
        sorted(
            ((label, float(np.mean(each))) for label, each in places.items()),
            key=lambda item: item[1],
        )
    )


def survivors(folder: Path, halving: Halving) -> dict[str, float]:
    """The variants of a rung that go on, with their mean ranks."""
    ranks = mean_ranks([read_run(run) for run in find_runs(folder)])
    rivals = [label for label in ranks if label not in halving.controls]
    kept = {*rivals[: max(1, round(halving.keep * len(rivals)))], *halving.controls}
    return {label: rank for label, rank in ranks.items() if label in kept}
