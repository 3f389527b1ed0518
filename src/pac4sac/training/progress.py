"""The progress of a cohort's runs. A checkpoint stores it in addition to the learner's tensors and
the state of the simulators."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pac4sac.base.errors import DamagedCheckpoint
from pac4sac.runs.status import Status

# Entries of progress.json with one value per run, and the type of the value.
PER_RUN = {
    "status": str,
    "details": str | None,
    "returns": list,
    "best": float | None,
    "so_far": float,
    "length": int,
}


@dataclass
class Progress:
    """Hold the progress of each run; all sequences have one entry per run."""

    status: list[str]
    details: list[str | None]  # reason of the status, if any
    returns: list[list[float]]  # returns of all finished training episodes
    best: list[float | None]  # mean return of the best scheduled evaluation
    so_far: NDArray[np.float64]  # return of the current episode so far
    length: NDArray[np.int64]  # steps of the current episode
    complete: bool = False  # everything is done and written, including the final evaluation
    measured: bool = True  # False if a stop interrupted the measurements of the last step

    @classmethod
    def at_start(cls, runs: int) -> "Progress":
        """Return the progress of runs that have not started."""
        return cls(
            status=[Status.RUNNING] * runs,
            details=[None] * runs,
            returns=[[] for _ in range(runs)],
            best=[None] * runs,
            so_far=np.zeros(runs),
            length=np.zeros(runs, dtype=np.int64),
        )

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any], steps_left: bool) -> "Progress":
        """Return the progress in a checkpoint.

        Args:
            stored: Result of `describe`.
            steps_left: Whether the step budget exceeds the checkpoint's number of steps. If so,
                runs that ended with the former budget continue.
        """
        status = list(stored["status"])
        for run in extended_runs(stored, steps_left):
            status[run] = Status.RUNNING
        return cls(
            status=status,
            details=stored["details"],
            returns=stored["returns"],
            best=stored["best"],
            so_far=np.array(stored["so_far"], dtype=np.float64),
            length=np.array(stored["length"], dtype=np.int64),
            measured=stored.get("measured", True),  # older checkpoints lack it
        )

    def describe(self) -> dict[str, Any]:
        """Return the entries of progress.json."""
        flags = {"complete": self.complete, "measured": self.measured}
        return flags | {name: getattr(self, name) for name in PER_RUN}

    def has_running(self) -> bool:
        """Return whether at least one run has not ended."""
        return Status.RUNNING in self.status

    def running(self) -> list[int]:
        """Return the runs that have not ended."""
        return [run for run, status in enumerate(self.status) if status == Status.RUNNING]


def progress_of_run(stored: Mapping[str, Any], run: int) -> dict[str, Any]:
    """Return the part of stored progress that belongs to one run."""
    of_runs = (*PER_RUN, "logs", "replay_mismatch", "strayed")
    return {name: [value[run]] if name in of_runs else value for name, value in stored.items()}


def extended_runs(stored: Mapping[str, Any], steps_left: bool) -> list[int]:
    """Return the runs that ended with a smaller step budget and can continue.

    A run that was solved, failed or stopped has a detail, and does not continue.
    """
    if not steps_left:
        return []
    ends = zip(stored["status"], stored["details"], strict=True)
    return [run for run, end in enumerate(ends) if end == (Status.FINISHED, None)]


def check_stored(stored: Mapping[str, Any], runs: int) -> None:
    """Refuse progress without a value of the right type for every run.

    Raises:
        DamagedCheckpoint: If an entry has another length or another type.
        KeyError, TypeError: If an entry is missing, or is not a list.
    """
    for name, kind in PER_RUN.items():
        values = stored[name]
        if len(values) != runs or not all(isinstance(value, kind) for value in values):
            raise DamagedCheckpoint(
                f"its progress record has no valid {name} for some of its {runs} runs"
            )
    for returns in stored["returns"]:
        sum(returns)  # raises a TypeError unless all are numbers
    bool(stored["complete"])
