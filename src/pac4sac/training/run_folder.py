"""The folder of a run: `run.json`, and logs as JSON lines.

A checkpoint stores the length and checksum of each log. A resume cuts the logs back to this length,
so no line is missing or written twice. Wall-clock times are in a separate file of the cohort,
because they differ between repetitions.
"""

import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from pac4sac.base.errors import DamagedCheckpoint, UserError
from pac4sac.base.files import append_line, as_json, read_if_there, read_json, write_json
from pac4sac.base.version import __version__, package_source
from pac4sac.runs import critic_range
from pac4sac.runs.logs import LOGS, seal_of
from pac4sac.runs.reading import VERSION, RunRecord, read_run, sealed
from pac4sac.training.run import Run

Mark = tuple[int, str]  # length of a log, and checksum of its content
EMPTY: Mark = (0, hashlib.sha256().hexdigest())


def retry_folder(root: Path, run: str, attempt: int) -> Path:
    """Return the folder of the cohort that trains a failed run of an experiment again."""
    return root / "cohorts" / f"retry-{attempt}-{run}"


def attempts(root: Path, run: str) -> int:
    """Return the number of retries of a failed run so far."""
    folders = (retry_folder(root, run, number) for number in itertools.count(1))
    return sum(1 for _ in itertools.takewhile(Path.exists, folders))


class RunFolder:
    """Write the folder of one run."""

    def __init__(self, root: Path, run: Run) -> None:
        self.path = root / "runs" / run.id
        self.run = run
        self.computed: dict[str, str] = {}  # device, backend and precision, once chosen
        self.replay_mismatch: list[int] = []  # steps at which a replay gave another observation
        # step and cause of each retry
        self.retried = [
            read_json(retry_folder(root, run.id, number + 1) / "retry.json")
            for number in range(attempts(root, run.id))
        ]
        self.path.mkdir(parents=True, exist_ok=True)
        self._logs = {name: self.path / f"{name}.jsonl" for name in LOGS}

    def log(self, name: str, row: dict[str, Any]) -> None:
        """Append a line to a log; NaN and infinity become null."""
        with self._logs[name].open("a") as file:
            file.write(json.dumps(as_json(row, not_finite=lambda _: None)) + "\n")

    def status(self) -> str:
        """Return the status in run.json."""
        return str(read_json(self.path / "run.json")["status"])

    def marks(self) -> dict[str, Mark]:
        """Return the mark of each log after syncing its content."""
        marks = dict.fromkeys(LOGS, EMPTY)
        for name, path in self._logs.items():
            if path.exists():
                with path.open("rb") as file:
                    content = file.read()
                    os.fsync(file.fileno())
                marks[name] = len(content), hashlib.sha256(content).hexdigest()
        return marks

    def check(self, marks: Mapping[str, Mark]) -> None:
        """Refuse a checkpoint if the logs do not start with the content that it marks."""
        marks = {"bias": EMPTY, "coverage": EMPTY, **marks}  # missing in older checkpoints
        for name, path in self._logs.items():
            length, checksum = marks[name]
            content = read_if_there(path)[:length]
            if len(content) < length or hashlib.sha256(content).hexdigest() != checksum:
                raise DamagedCheckpoint(
                    f"{path} was changed or cut after this checkpoint was written"
                )

    def cut_back(self, marks: Mapping[str, Mark]) -> None:
        """Cut each log back to its length at a checkpoint."""
        for name, path in self._logs.items():
            if path.exists():
                os.truncate(path, marks.get(name, EMPTY)[0])

    def describe(self, status: str, detail: str | None = None, *, ended: bool = False) -> None:
        """Write run.json.

        Args:
            status: Status of the run.
            detail: Reason of the status.
            ended: Whether the logs are complete; their numbers of lines and checksums are then
                stored.
        """
        about = {
            "version": VERSION,
            **self.run.describe(),
            "status": status,
            "status_detail": detail,
            "computed": self.computed,
            "versions": versions(),
            "machine": machine(),
        }
        if self.replay_mismatch:
            about["replay_mismatch"] = self.replay_mismatch
        if self.retried:
            about["retried"] = self.retried
        if ended:
            logs = {name: read_if_there(path) for name, path in self._logs.items()}
            about["logs"] = {name: seal_of(content) for name, content in logs.items()}
            outside = critic_range.mean_outside(logs["metrics"])
            if outside is not None:
                about[critic_range.ENTRY] = outside
        write_json(self.path / "run.json", sealed(about))


class LeftFolder(RunFolder):
    """Leave the folder of a run unchanged, because another cohort retrains the run."""

    def check(self, marks: Mapping[str, Mark]) -> None:
        """Accept any logs."""

    def cut_back(self, marks: Mapping[str, Mark]) -> None:
        """Leave the logs unchanged."""

    def describe(self, status: str, detail: str | None = None, *, ended: bool = False) -> None:
        """Leave run.json unchanged."""


def check_that_nothing_was_saved(folders: Sequence[RunFolder], checkpoint_every: int) -> None:
    """Refuse to restart runs whose checkpoint is missing.

    Runs without a checkpoint start again and lose their logs. This is right only if they were
    killed before their first checkpoint.
    """
    runs = [read_run(folder.path) for folder in folders if (folder.path / "run.json").exists()]
    if not runs:
        return
    were_stopped = all(run.status != "running" for run in runs)
    if were_stopped or max(map(_last_logged_step, runs)) > checkpoint_every:
        how = "finished" if all(run.status == "finished" for run in runs) else "begun"
        raise UserError(
            f"The runs in {folders[0].path.parent} are {how}, but their checkpoints are missing, "
            "so they cannot be resumed; train again into another folder."
        )


def _last_logged_step(run: RunRecord) -> int:
    """Return the step of a run's last logged episode, or 0."""
    return int(run.episodes[-1]["step"]) if len(run.episodes) else 0


def log_time(cohort: Path, step: int, started: float, simulating: float) -> None:
    """Append a line to `times.jsonl`.

    Args:
        cohort: Folder of the cohort.
        step: The current step.
        started: Time of the start, by the monotonic clock.
        simulating: Total seconds of its simulators.
    """
    row = {
        "step": step,
        "seconds": round(time.monotonic() - started, 3),
        "simulating": round(simulating, 3),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    append_line(cohort / "times.jsonl", json.dumps(row))


def versions() -> dict[str, str]:
    """Return the versions of Python, this package and installed libraries."""
    installed = {
        "python": platform.python_version(),
        "pac4sac": __version__,
        "pac4sac source": package_source(),
    }
    for name in ("torch", "numpy", "gymnasium", "pybullet", "mujoco", "dm_control"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def machine() -> dict[str, Any]:
    """Return the facts about this machine that affect speed."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "gpu": gpu,
    }
