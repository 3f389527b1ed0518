"""Trackers of training. Each run is logged as a run of the tracker, with its config and all logged
numbers.

No tracker needs an account or a network by default. TensorBoard and Weights & Biases write files
(WANDB_MODE=online uploads them); Trackio uses a local database.
"""

import contextlib
import contextvars
import hashlib
import io
import json
import math
import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError, import_extra
from pac4sac.base.trust import own_class
from pac4sac.training.callbacks import Callback
from pac4sac.training.run import Run

PROJECT = "pac4sac"


class Tracker(Callback):
    """Pass all logged numbers of each run of a cohort to a tracker."""

    def __init__(self) -> None:
        self._tracked: dict[str, Any] = {}

    @abstractmethod
    def begin(self, folder: Path, run: Run, step: int) -> Any:
        """Begin a run that starts or resumes at a step, and return the tracker's handle."""

    @abstractmethod
    def add(self, tracked: Any, numbers: dict[str, float], step: int) -> None: ...

    @abstractmethod
    def end(self, tracked: Any) -> None: ...

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        for run in runs:
            self._tracked[run.id] = self.begin(folder, run, step)

    def on_log(self, run: Run, kind: str, row: dict[str, Any]) -> None:
        finite = {
            name: value
            for name, value in _numbers(kind, row).items()
            if value is not None and math.isfinite(value)
        }
        if finite:
            self.add(self._tracked[run.id], finite, row["step"])

    def on_end(self, folder: Path) -> None:
        for tracked in self._tracked.values():
            self.end(tracked)
        self._tracked.clear()


class TensorBoard(Tracker):
    """Write files to DIR/tensorboard/<run>; view them with `tensorboard --logdir
    DIR/tensorboard`."""

    def __init__(self) -> None:
        super().__init__()
        self._library = import_extra(
            "tensorboard", "TensorBoard is not installed", "torch.utils.tensorboard"
        )

    def begin(self, folder: Path, run: Run, step: int) -> Any:
        # A resumed run overwrites the steps after its checkpoint that an earlier process wrote.
        purge = step + 1 if step else None
        writer = self._library.SummaryWriter(str(folder / "tensorboard" / run.id), purge_step=purge)
        writer.add_text(
            "config", f"    {json.dumps(run.describe(), indent=1)}".replace("\n", "\n    "), step
        )
        return writer

    def add(self, tracked: Any, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            tracked.add_scalar(name, value, step)

    def end(self, tracked: Any) -> None:
        tracked.close()


class WeightsAndBiases(Tracker):
    """Write files to DIR/wandb, which `wandb sync` uploads; WANDB_MODE=online uploads at once."""

    def __init__(self) -> None:
        super().__init__()
        self._library = import_extra("wandb", "Weights & Biases is not installed", "wandb")

    def begin(self, folder: Path, run: Run, step: int) -> Any:
        return self._library.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=str(folder),
            **_names(folder, run),
            # unchanged after a resume
            id=hashlib.sha256(f"{folder.resolve()}/{run.id}".encode()).hexdigest()[:16],
            resume="allow",
            reinit="create_new",  # next to the other runs of its cohort
            settings=self._library.Settings(silent=True, console="off"),
        )

    def add(self, tracked: Any, numbers: dict[str, float], step: int) -> None:
        tracked.log(numbers, step=step)

    def end(self, tracked: Any) -> None:
        tracked.finish()


class Trackio(Tracker):
    """Write to Trackio's database; view it with `trackio show --project pac4sac`."""

    def __init__(self) -> None:
        super().__init__()
        self._library = import_extra("trackio", "Trackio is not installed", "trackio")

    def begin(self, folder: Path, run: Run, step: int) -> Any:
        about = {"project": PROJECT, **_names(folder, run), "resume": "allow"}
        with contextlib.redirect_stdout(io.StringIO()):  # keeps the display of training clean
            # In a separate context, because the library would end the previous run in this one.
            return contextvars.copy_context().run(self._library.init, **about)

    def add(self, tracked: Any, numbers: dict[str, float], step: int) -> None:
        tracked.log(numbers, step=step)

    def end(self, tracked: Any) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            tracked.finish()


def _numbers(kind: str, row: dict[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a line of a log, by their names in a tracker."""
    if kind == "evaluations":
        return {f"evaluation/{row['policy']}": row["mean"]}
    prefix = "episode" if kind == "episodes" else kind
    return {f"{prefix}/{name}": row[name] for name in row if name not in ("step", "episode")}


def _names(folder: Path, run: Run) -> dict[str, Any]:
    """Return name, group and config of a run; the seeds of a variant form a group."""
    variant = f"{run.task.name} {run.label}"
    return {"name": f"{folder.name} {run.id}", "group": variant, "config": run.describe()}


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}


def callbacks_named(names: Iterable[str]) -> list[Callback]:
    """Return trackers and instances of custom classes named `module:Class`, made without
    arguments."""
    return [_callback(name) for name in names]


def _callback(name: str) -> Callback:
    if not isinstance(name, str):
        raise UserError(
            f"Unknown callback {name!r}. Cohorts train in separate processes, so give the name of "
            "the callback's class as module:Class."
        )
    if name in TRACKERS:
        return TRACKERS[name]()
    own = own_class(name, "callback", Callback)
    try:
        made: Callback = own()
        return made
    except TypeError as error:
        raise UserError(
            f"The callback {name!r} could not be created without arguments: {error}."
        ) from error
