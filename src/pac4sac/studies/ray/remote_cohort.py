"""Training a cohort away from its experiment folder: the keeper of the folder, and whoever trains
elsewhere.

The keeper lives where the study folder is. Files come to it in chunks with each checkpoint, and are
on its disk before they are acknowledged. A cohort is lent to one attempt at a time; what an older
attempt still asks for, say from a node that was cut off and given up, is refused."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import sync_folder
from pac4sac.runs.run import Run
from pac4sac.studies.local import StepReporter
from pac4sac.training.checkpoint import KEPT, newest_first
from pac4sac.training.experiment import resume

CHUNK = 8 * 2**20
ARRIVING = "arriving"

Ask = Callable[..., Any]  # what the keeper is asked for by name, with its arguments


class FolderKeeper:
    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = [Path(folder) for folder in folders]
        self.locks = [threading.Lock() for _ in folders]
        self.attempts = [0] * len(folders)
        self.steps: dict[int, tuple[int, int]] = {}
        self.stopping = False

    def lend(self, cohort: int) -> int:
        """The number of a new attempt, which alone is listened to from now on."""
        with self.locks[cohort]:
            self.attempts[cohort] += 1
            self.steps.pop(cohort, None)
            shutil.rmtree(self.folders[cohort] / ARRIVING, ignore_errors=True)
            return self.attempts[cohort]

    def news(self, stopping: bool) -> dict[int, tuple[int, int]]:
        """Step and steps of the cohorts that were heard of since the last call."""
        self.stopping = stopping
        news, self.steps = self.steps, {}
        return news

    def ask(self, cohort: int, attempt: int, what: str, *arguments: Any) -> Any:
        """What an attempt asks for, wherever it is: one of the functions below, or "heard" with
        step and steps, which notes the progress and answers whether the cohort shall stop."""
        with self.locks[cohort]:
            if attempt != self.attempts[cohort]:
                raise PermissionError(
                    f"attempt {attempt} was given up; {self.attempts[cohort]} has the cohort now"
                )
            if what == "heard":
                self.steps[cohort] = arguments[0], arguments[1]
                return self.stopping
            answers: dict[str, Ask] = {
                "kept": kept,
                "read": read,
                "write": write,
                "publish": publish,
            }
            return answers[what](self.folders[cohort], *arguments)


def checkpoints(folder: Path) -> list[Path]:
    """The newest first. Each experiment of a study has one cohort."""
    return [
        path for cohort_folder in folder.glob("cohorts/*") for path in newest_first(cohort_folder)
    ]


def kept(folder: Path) -> list[tuple[str, int]]:
    """Path and size of all that a cohort needs to go on: what was asked for, its checkpoints and
    its logs."""
    saved = [file for path in checkpoints(folder) for file in path.iterdir()]
    needed = [folder / "experiment.json", *saved, *folder.rglob("*.jsonl")]
    return [(str(path.relative_to(folder)), path.stat().st_size) for path in needed]


def read(folder: Path, name: str, offset: int) -> bytes:
    with (folder / name).open("rb") as file:
        file.seek(offset)
        return file.read(CHUNK)


def write(folder: Path, number: int, offset: int, chunk: bytes) -> None:
    """Take a part of the file that `publish` will name in this place of its list."""
    arriving = folder / ARRIVING
    arriving.mkdir(exist_ok=True)
    with (arriving / str(number)).open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def publish(folder: Path, names: Sequence[str]) -> None:
    """Put what arrived where it belongs, a checkpoint last and whole: it counts on the logs."""
    parts: set[Path] = set()  # folders in which checkpoints are put together
    touched: set[Path] = set()
    for number, name in enumerate(names):
        final = folder / name
        if final.match("cohorts/*/step-*/*"):
            final = final.parent.with_suffix(".part") / final.name
            parts.add(final.parent)
        final.parent.mkdir(parents=True, exist_ok=True)
        (folder / ARRIVING / str(number)).replace(final)
        touched |= {parent for parent in final.parents if parent.is_relative_to(folder)}
    for path in touched:
        sync_folder(path)
    for part in parts:
        whole = part.with_suffix("")
        shutil.rmtree(whole, ignore_errors=True)
        part.rename(whole)
        sync_folder(part.parent)
        for old in newest_first(part.parent)[KEPT:]:
            shutil.rmtree(old)
    shutil.rmtree(folder / ARRIVING, ignore_errors=True)


class RemoteCohort(StepReporter):
    """Brings the files of one cohort between the keeper and a folder here, and tells its
    progress."""

    def __init__(self, folder: Path, ask: Ask) -> None:
        self.folder, self.ask = folder, ask
        # of the files that the keeper has: size and time of change
        self.versions: dict[Path, tuple[int, int]] = {}
        self.newest: list[Path] | None = None  # the checkpoint that it has

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
        if checkpoints(self.folder)[:1] != self.newest:
            self.push()
        if self.ask("heard", step, self.steps):
            # as the local engine asks: a checkpoint, and then the end
            signal.raise_signal(signal.SIGTERM)

    def push(self) -> None:
        """Send what the keeper does not have, and return when it is on its disk."""
        newest = checkpoints(self.folder)[:1]
        files = [path for folder in newest for path in folder.iterdir()]
        files += [*self.folder.glob("cohorts/*/*.jsonl"), *self.folder.glob("runs/*/*")]
        versions = {path: _version(path) for path in files if path.suffix != ".part"}
        changed = sorted(
            path for path, version in versions.items() if version != self.versions.get(path)
        )
        for number, path in enumerate(changed):
            with path.open("rb") as file:
                # once for an empty file too
                for offset in range(0, max(1, path.stat().st_size), CHUNK):
                    self.ask("write", number, offset, file.read(CHUNK))
        if changed:
            self.ask("publish", [str(path.relative_to(self.folder)) for path in changed])
        self.versions, self.newest = versions, newest


def _version(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def train_remotely(folder: Path, ask: Ask) -> tuple[str, str]:
    """Train in a folder from what the keeper has to the end; outcome and reason as the local engine
    tells them."""
    cohort = RemoteCohort(folder, ask)
    cohort.fetch()
    try:
        outcome = ("complete" if resume(folder, callbacks=[cohort]).complete else "stopped", "")
    except UserError as error:
        outcome = ("failed", str(error))
    cohort.push()
    return outcome
