"""Show training in a tracker: each run is a run there, with its config and every number that is
logged.

No tracker needs an account or a network. TensorBoard writes files; Weights & Biases does so too,
unless WANDB_MODE asks for more; Trackio has a database on this machine."""

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
    """Pass what is logged of each run of a cohort to a tracker."""

    def __init__(self) -> None:
        self._tracked: dict[str, Any] = {}

    @abstractmethod
    def begin(self, folder: Path, run: Run, step: int) -> Any:
        """Begin a run that starts or resumes at a step, and return the tracker's handle of it."""

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
    """Files in DIR/tensorboard/<run>, to be seen by `tensorboard --logdir DIR/tensorboard`."""

    def __init__(self) -> None:
        super().__init__()
        self._library = import_extra(
            "tensorboard", "TensorBoard is not installed", "torch.utils.tensorboard"
        )

    def begin(self, folder: Path, run: Run, step: int) -> Any:
        # A resumed run writes the steps after its checkpoint again, in place of those that an
        # earlier process wrote.
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
    """Files in DIR/wandb, which `wandb sync` sends; with WANDB_MODE=online they are sent at
    once."""

    def __init__(self) -> None:
        super().__init__()
        self._library = import_extra("wandb", "Weights & Biases is not installed", "wandb")

    def begin(self, folder: Path, run: Run, step: int) -> Any:
        return self._library.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=str(folder),
            **_names(folder, run),
            # the same after a resume
            id=hashlib.sha256(f"{folder.resolve()}/{run.id}".encode()).hexdigest()[:16],
            resume="allow",
            reinit="create_new",  # beside the others of its cohort
            settings=self._library.Settings(silent=True, console="off"),
        )

    def add(self, tracked: Any, numbers: dict[str, float], step: int) -> None:
        tracked.log(numbers, step=step)

    def end(self, tracked: Any) -> None:
        tracked.finish()


class Trackio(Tracker):
    """In Trackio's database, to be seen by `trackio show --project pac4sac`."""

    def __init__(self) -> None:
        super().__init__()
        otherwise = ", or where that fails by pip install trackio: it wants an older pillow"
        self._library = import_extra(
            "trackio", "Trackio is not installed", "trackio", otherwise=otherwise
        )

    def begin(self, folder: Path, run: Run, step: int) -> Any:
        about = {"project": PROJECT, **_names(folder, run), "resume": "allow"}
        with contextlib.redirect_stdout(io.StringIO()):  # keep the display of training clean
            # In a separate context: in the current one, the library would end the previous run.
            return contextvars.copy_context().run(self._library.init, **about)

    def add(self, tracked: Any, numbers: dict[str, float], step: int) -> None:
        tracked.log(numbers, step=step)

    def end(self, tracked: Any) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            tracked.finish()


def _numbers(kind: str, row: dict[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a line of a log by the names that a tracker shows."""
    if kind == "evaluations":
        return {f"evaluation/{row['policy']}": row["mean"]}
    prefix = "episode" if kind == "episodes" else kind
    return {f"{prefix}/{name}": row[name] for name in row if name not in ("step", "episode")}


def _names(folder: Path, run: Run) -> dict[str, Any]:
    """Return name, group and config of a run. The seeds of a variant are a group."""
    variant = f"{run.task.name} {run.label}"
    return {"name": f"{folder.name} {run.id}", "group": variant, "config": run.describe()}


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}


def callbacks_named(names: Iterable[str]) -> list[Callback]:
    """Return trackers, and custom classes named `module:Class`, each made without arguments."""
    return [_callback(name) for name in names]


def _callback(name: str) -> Callback:
    if not isinstance(name, str):
        raise UserError(
            "Cohorts train in processes of their own: name the callback as module:Class, not "
            f"{name!r}."
        )
    if name in TRACKERS:
        return TRACKERS[name]()
    own = own_class(name, "callback", Callback)
    try:
        made: Callback = own()
        return made
    except TypeError as error:
        raise UserError(
            f"The callback {name!r} could not be made without arguments: {error}."
        ) from error
