"""Train a cohort on a machine other than the one with its experiment folder.

A keeper runs on the machine of the study folder. With each checkpoint, it receives files in chunks,
and syncs them to disk before it acknowledges them. A cohort belongs to one attempt at a time.
Requests from older attempts, for example from a disconnected node, are refused.
"""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import sync_folder
from pac4sac.studies.attempts import checkpoints
from pac4sac.studies.local import StepReporter
from pac4sac.training.checkpoint import KEPT, newest_first
from pac4sac.training.experiment import resume
from pac4sac.training.run import Run

CHUNK = 8 * 2**20
ARRIVING = "arriving"

Ask = Callable[..., Any]  # sends a request to the keeper: name and arguments


class FolderKeeper:
    """Read and write the experiment folders of cohorts on behalf of remote tasks."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = [Path(folder) for folder in folders]
        self.locks = [threading.Lock() for _ in folders]
        self.attempts = [0] * len(folders)
        self.steps: dict[int, tuple[int, int]] = {}
        self.stopping = False

    def lend(self, cohort: int) -> int:
        """Return the number of a new attempt. Requests from older attempts are refused
        afterwards."""
        with self.locks[cohort]:
            self.attempts[cohort] += 1
            self.steps.pop(cohort, None)
            shutil.rmtree(self.folders[cohort] / ARRIVING, ignore_errors=True)
            return self.attempts[cohort]

    def news(self, stopping: bool) -> dict[int, tuple[int, int]]:
        """Return (step, number of steps) of the cohorts that reported since the last call."""
        self.stopping = stopping
        news, self.steps = self.steps, {}
        return news

    def ask(self, cohort: int, attempt: int, what: str, *arguments: Any) -> Any:
        """Answer a request of an attempt.

        Args:
            cohort: Number of the cohort.
            attempt: Number of the attempt.
            what: Name of one of the functions below; or "heard" with step and steps, which notes
                the progress and answers whether the cohort is to stop.
            *arguments: Arguments of that function, after the folder.

        Raises:
            PermissionError: If the cohort belongs to a newer attempt.
        """
        with self.locks[cohort]:
            if attempt != self.attempts[cohort]:
                raise PermissionError(
                    f"attempt {attempt} was abandoned; attempt {self.attempts[cohort]} now trains "
                    "the cohort"
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


def kept(folder: Path) -> list[tuple[str, int]]:
    """Return paths and sizes of the files that a cohort needs to continue: options, checkpoints,
    logs."""
    saved = [file for path in checkpoints(folder) for file in path.iterdir()]
    attempts = folder.glob("cohorts/*/retry.json")
    needed = [folder / "experiment.json", *saved, *attempts, *folder.rglob("*.jsonl")]
    needed += folder.glob("runs/*/run.json")  # records which runs failed
    return [(str(path.relative_to(folder)), path.stat().st_size) for path in needed]


def read(folder: Path, name: str, offset: int) -> bytes:
    """Return the chunk of a file that begins at an offset."""
    with (folder / name).open("rb") as file:
        file.seek(offset)
        return file.read(CHUNK)


def write(folder: Path, number: int, offset: int, chunk: bytes) -> None:
    """Write a chunk of the file with this number in the list of `publish`."""
    arriving = folder / ARRIVING
    arriving.mkdir(exist_ok=True)
    with (arriving / str(number)).open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def publish(folder: Path, names: Sequence[str]) -> None:
    """Move the received files to their places; the complete checkpoint comes last, after the logs.

    Args:
        folder: Experiment folder.
        names: Paths of the files in it, in the order of their numbers.
    """
    placed = [_place(folder, number, name) for number, name in enumerate(names)]
    _sync_parents(folder, placed)
    for part in {path.parent for path in placed if path.match("cohorts/*/step-*.part/*")}:
        _complete_checkpoint(part)
    shutil.rmtree(folder / ARRIVING, ignore_errors=True)


def _sync_parents(folder: Path, paths: Sequence[Path]) -> None:
    """Sync all folders between an experiment folder and some files."""
    for parent in {parent for path in paths for parent in path.parents}:
        if parent.is_relative_to(folder):
            sync_folder(parent)


def _place(folder: Path, number: int, name: str) -> Path:
    """Move a received file to its path, and return the path.

    The files of a checkpoint are collected in a folder that ends in `.part`.
    """
    path = folder / name
    if path.match("cohorts/*/step-*/*"):
        path = path.parent.with_suffix(".part") / path.name
    path.parent.mkdir(parents=True, exist_ok=True)
    return (folder / ARRIVING / str(number)).replace(path)


def _complete_checkpoint(part: Path) -> None:
    """Rename a checkpoint whose files have all arrived, and remove the oldest one."""
    whole = part.with_suffix("")
    shutil.rmtree(whole, ignore_errors=True)
    part.rename(whole)
    sync_folder(part.parent)
    for old in newest_first(part.parent)[KEPT:]:
        shutil.rmtree(old)


class RemoteCohort(StepReporter):
    """Copy the files of a cohort between the keeper and a local folder, and report its progress."""

    def __init__(self, folder: Path, ask: Ask) -> None:
        self.folder, self.ask = folder, ask
        # file -> size and modification time at the keeper
        self.versions: dict[Path, tuple[int, int]] = {}
        self.newest: list[Path] | None = None  # checkpoints at the keeper

    def fetch(self) -> None:
        """Copy the keeper's files to the local folder."""
        for name, size in self.ask("kept"):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                while file.tell() < size:
                    file.write(self.ask("read", name, file.tell()))
            self.versions[path] = _version(path)

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        # The logs were cut back to the checkpoint; `push` cuts the keeper's logs too.
        self.newest = None
        super().on_start(folder, runs, steps, step)

    def report(self, step: int) -> None:
        if checkpoints(self.folder, 1) != self.newest:
            self.push()
        if self.ask("heard", step, self.steps):
            # requests a checkpoint and the end, as in the local engine
            signal.raise_signal(signal.SIGTERM)

    def push(self) -> None:
        """Send the files that the keeper does not have, and return when they are on its disk."""
        newest = checkpoints(self.folder, 1)
        versions = {path: _version(path) for path in self._files(newest)}
        changed = sorted(path for path in versions if versions[path] != self.versions.get(path))
        for number, path in enumerate(changed):
            self._send(number, path)
        if changed:
            self.ask("publish", [str(path.relative_to(self.folder)) for path in changed])
        self.versions, self.newest = versions, newest

    def _files(self, newest: Sequence[Path]) -> list[Path]:
        """Return all files that the keeper needs: the newest checkpoints, and logs."""
        files = [path for checkpoint in newest for path in checkpoint.iterdir()]
        files += [*self.folder.glob("cohorts/*/*.json*"), *self.folder.glob("runs/*/*")]
        return [path for path in files if path.suffix != ".part"]

    def _send(self, number: int, path: Path) -> None:
        """Send a file in chunks; an empty file is one empty chunk."""
        with path.open("rb") as file:
            for offset in range(0, max(1, path.stat().st_size), CHUNK):
                self.ask("write", number, offset, file.read(CHUNK))


def _version(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def train_remotely(folder: Path, ask: Ask) -> tuple[str, str]:
    """Train in a folder from the keeper's state to the end.

    Returns:
        Outcome and reason, in the form of the local engine.
    """
    cohort = RemoteCohort(folder, ask)
    cohort.fetch()
    try:
        outcome = ("complete" if resume(folder, callbacks=[cohort]).complete else "stopped", "")
    except UserError as error:
        outcome = ("failed", str(error))
    cohort.push()
    return outcome
