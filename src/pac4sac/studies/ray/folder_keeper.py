"""Keeping the experiment folders of cohorts that other machines train: files arrive in chunks and are on
this disk before they are acknowledged.

The keeper lives where the study folder is. A cohort is lent to one attempt at a time; what an older attempt still
sends, say from a node that was cut off and given up, is refused.
"""

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pac4sac.base.files import sync_folder
from pac4sac.training.checkpoint import KEPT, newest_first

CHUNK = 8 * 2**20
ARRIVING = "arriving"


class FolderKeeper:
    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = [Path(folder) for folder in folders]
        self.locks = [threading.Lock() for _ in folders]
        self.attempts = [0] * len(folders)
        self.steps: dict[int, tuple[int, int]] = {}
        self.stopping = False

    # --- for the driver

    def lend(self, cohort: int) -> int:
        """The number of a new attempt, with which alone the cohort's files can be read and written from now on."""
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

    # --- for an attempt, wherever it is

    def heard(self, cohort: int, attempt: int, step: int, steps: int) -> bool:
        """Note the progress; True where the cohort shall stop."""
        if attempt == self.attempts[cohort]:
            self.steps[cohort] = (step, steps)
        return self.stopping

    def kept(self, cohort: int, attempt: int) -> list[tuple[str, int]]:
        """Path and size of all that a cohort needs to go on: what was asked for, its checkpoints and its logs."""
        with self._lent(cohort, attempt) as folder:
            whole = [path for cohort_folder in folder.glob("cohorts/*") for path in newest_first(cohort_folder)]
            saved = [file for path in whole for file in path.iterdir()]
            needed = [folder / "experiment.json", *saved, *folder.rglob("*.jsonl")]
            return [(str(path.relative_to(folder)), path.stat().st_size) for path in needed]

    def read(self, cohort: int, attempt: int, name: str, offset: int) -> bytes:
        with self._lent(cohort, attempt) as folder, (folder / name).open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK)

    def write(self, cohort: int, attempt: int, number: int, offset: int, chunk: bytes) -> None:
        """Take a part of the file that `publish` will name in this place of its list."""
        with self._lent(cohort, attempt) as folder:
            arriving = folder / ARRIVING
            arriving.mkdir(exist_ok=True)
            with (arriving / str(number)).open("r+b" if offset else "wb") as file:
                file.seek(offset)
                file.write(chunk)
                file.flush()
                os.fsync(file.fileno())

    def publish(self, cohort: int, attempt: int, names: Sequence[str]) -> None:
        """Put what arrived where it belongs, a checkpoint last and whole: it counts on the logs."""
        with self._lent(cohort, attempt) as folder:
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

    @contextmanager
    def _lent(self, cohort: int, attempt: int) -> Iterator[Path]:
        with self.locks[cohort]:
            if attempt != self.attempts[cohort]:
                raise PermissionError(f"attempt {attempt} was given up; {self.attempts[cohort]} has the cohort now")
            yield self.folders[cohort]
