"""Training a cohort away from its study folder: all that is new goes to the folder's keeper with each checkpoint."""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.runs.run import Run
from pac4sac.studies.cohort_process import StepReporter
from pac4sac.studies.ray.folder_keeper import CHUNK
from pac4sac.training.checkpoint import newest_first
from pac4sac.training.experiment import resume

Ask = Callable[..., Any]  # a method of the keeper by its name, with its arguments after cohort and attempt


class RemoteCohort(StepReporter):
    """Brings the files of one cohort between the keeper and a folder here, and tells its progress."""

    def __init__(self, folder: Path, ask: Ask) -> None:
        self.folder, self.ask = folder, ask
        self.versions: dict[Path, tuple[int, int]] = {}  # of the files that the keeper has: size and time of change
        self.newest: list[Path] | None = None  # the checkpoints that it has

    def fetch(self) -> None:
        for name, size in self.ask("kept"):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                while file.tell() < size:
                    file.write(self.ask("read", name, file.tell()))
            self.versions[path] = _version(path)

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        self.newest = None  # the logs were cut back to the checkpoint: the keeper's shall be too
        super().on_start(folder, runs, steps, step)

    def report(self, step: int) -> None:
        if self._newest() != self.newest:
            self.push()
        if self.ask("heard", step, self.steps):
            signal.raise_signal(signal.SIGTERM)  # as the local engine asks: a checkpoint, and then the end

    def push(self) -> None:
        """Send what the keeper does not have, and return when it is on its disk."""
        newest = self._newest()
        files = [path for folder in newest for path in folder.iterdir()]
        files += [*self.folder.glob("cohorts/*/*.jsonl"), *self.folder.glob("runs/*/*")]
        versions = {path: _version(path) for path in files if path.suffix != ".part"}
        changed = sorted(path for path, version in versions.items() if version != self.versions.get(path))
        for number, path in enumerate(changed):
            with path.open("rb") as file:
                for offset in range(0, max(1, path.stat().st_size), CHUNK):  # once for an empty file too
                    self.ask("write", number, offset, file.read(CHUNK))
        if changed:
            self.ask("publish", [str(path.relative_to(self.folder)) for path in changed])
        self.versions, self.newest = versions, newest

    def _newest(self) -> list[Path]:
        """The newest checkpoint of each cohort of the experiment."""
        return [path for cohort in self.folder.glob("cohorts/*") for path in newest_first(cohort)[:1]]


def _version(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def train_remotely(folder: Path, ask: Ask) -> tuple[str, str]:
    """Train in a folder from what the keeper has to the end; outcome and reason as the local engine tells them."""
    cohort = RemoteCohort(folder, ask)
    cohort.fetch()
    try:
        complete = resume(folder, callbacks=[cohort]).complete
        outcome = ("complete" if complete else "stopped", "")
    except UserError as error:
        outcome = ("failed", str(error))
    cohort.push()
    return outcome
