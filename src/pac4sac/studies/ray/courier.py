"""Training a cohort away from its study folder: all that is new goes to the keeper with each checkpoint."""

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.runs.run import Run
from pac4sac.studies.ray.keeper import CHUNK, Arrival, checkpoints
from pac4sac.training.callbacks import Callback
from pac4sac.training.experiment import resume

BEAT = 0.5  # seconds between two looks at the checkpoints and two words with the keeper

Version = tuple[int, int]  # size and time of change
Ask = Callable[..., Any]  # a method of the keeper by its name, with its arguments after cohort and attempt


class Courier(Callback):
    """Brings the files of one cohort between the keeper and a folder here, and tells its progress."""

    def __init__(self, folder: Path, ask: Ask) -> None:
        self.folder, self.ask = folder, ask
        self.steps, self.told = 0, 0.0
        self.lengths: dict[Path, int] = {}  # of the logs, as the keeper has them
        self.versions: dict[Path, Version] = {}  # of the other files that the keeper has
        self.newest = self._newest()

    def fetch(self) -> None:
        for name, size in self.ask("kept"):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                while file.tell() < size:
                    file.write(self.ask("read", name, file.tell()))
            self.versions[path] = _version(path)
        self.lengths = {path: path.stat().st_size for path in self._logs()}
        self.newest = self._newest()

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        self.steps = steps
        self.push()  # the logs were cut back to the checkpoint; the keeper's are then too
        self._talk(step)

    def on_step(self, step: int) -> None:
        if step == self.steps or time.monotonic() - self.told > BEAT:
            if self._newest() != self.newest:
                self.push()
            self._talk(step)

    def push(self) -> None:
        """Send what the keeper does not have, and return when it is on its disk."""
        arrivals: list[Arrival] = []
        lengths = {path: path.stat().st_size for path in self._logs()}
        for path, length in lengths.items():
            known = self.lengths.get(path, 0)
            if length != known:
                self._send(path, min(length, known), arrivals)
        newest = self._newest()
        versions = {path: _version(path) for path in self._other_files(newest)}
        for path, version in versions.items():
            if version != self.versions.get(path):
                self._send(path, None, arrivals)
        if arrivals:
            self.ask("publish", arrivals)
        self.lengths, self.versions, self.newest = lengths, versions, newest

    def _send(self, path: Path, goes_on_at: int | None, arrivals: list[Arrival]) -> None:
        with path.open("rb") as file:
            start = file.seek(goes_on_at or 0)
            whole = False
            while not whole:  # at least once: an empty file is a file too
                place, chunk = file.tell() - start, file.read(CHUNK)
                self.ask("write", len(arrivals), place, chunk)
                whole = len(chunk) < CHUNK
        arrivals.append((str(path.relative_to(self.folder)), goes_on_at))

    def _talk(self, step: int) -> None:
        if self.ask("heard", step, self.steps):
            signal.raise_signal(signal.SIGTERM)  # as the local engine asks: a checkpoint, and then the end
        self.told = time.monotonic()

    def _newest(self) -> list[Path]:
        """The newest checkpoint of each cohort of the experiment."""
        return [path for cohort in self.folder.glob("cohorts/*") for path in checkpoints(cohort)[:1]]

    def _logs(self) -> list[Path]:
        return sorted(self.folder.rglob("*.jsonl"))

    def _other_files(self, newest: Sequence[Path]) -> list[Path]:
        found = [path for folder in newest for path in folder.iterdir()]
        found += [path for path in self.folder.glob("runs/*/*") if path.suffix not in (".jsonl", ".part")]
        return sorted(found)


def _version(path: Path) -> Version:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def train_away(folder: Path, ask: Ask) -> tuple[str, str]:
    """Train in a folder from what the keeper has to the end; outcome and reason as the local engine tells them."""
    courier = Courier(folder, ask)
    courier.fetch()
    try:
        complete = resume(folder, callbacks=[courier]).complete
        outcome = ("complete" if complete else "stopped", "")
    except UserError as error:
        outcome = ("failed", str(error))
    courier.push()
    return outcome
