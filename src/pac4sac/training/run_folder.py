"""What an experiment writes: `experiment.json`, `cohorts/` with checkpoints, and `runs/<id>/` with
logs.

Logs are lines of JSON. A checkpoint remembers length and checksum of each log; a resume cuts the
logs back to that, so that they go on without a gap or a line written twice. Wall-clock times live
in a file of their own, since they never repeat."""

import contextlib
import hashlib
import importlib.metadata
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
from pac4sac.base.files import as_json, read_if_there, write_json
from pac4sac.base.version import __version__, package_source
from pac4sac.runs.logs import LOGS, seal_of
from pac4sac.runs.reading import VERSION, read_run
from pac4sac.training.run import Run

Mark = tuple[int, str]  # length of a log, and the checksum of its content
EMPTY: Mark = (0, hashlib.sha256().hexdigest())


class RunFolder:
    def __init__(self, root: Path, run: Run) -> None:
        self.path = root / "runs" / run.id
        self.run = run
        self.computed: dict[str, str] = {}  # how, once it is settled
        self.replay_mismatch: list[int] = []  # steps at which a replay led to another observation
        self.path.mkdir(parents=True, exist_ok=True)
        self._logs = {name: self.path / f"{name}.jsonl" for name in LOGS}

    def log(self, name: str, row: dict[str, Any]) -> None:
        """Append a line; numbers that JSON does not know become null."""
        with self._logs[name].open("a") as file:
            file.write(json.dumps(as_json(row, not_finite=lambda _: None)) + "\n")

    def marks(self) -> dict[str, Mark]:
        """Where each log ends; what lies before is on the disk for good, since a checkpoint will
        count on it."""
        marks = dict.fromkeys(LOGS, EMPTY)
        for name, path in self._logs.items():
            if path.exists():
                with path.open("rb") as file:
                    content = file.read()
                    os.fsync(file.fileno())
                marks[name] = len(content), hashlib.sha256(content).hexdigest()
        return marks

    def check(self, marks: Mapping[str, Mark]) -> None:
        """Refuse a checkpoint whose logs are not, or no longer, the beginning of these."""
        # of logs that earlier versions did not know
        marks = {"bias": EMPTY, "coverage": EMPTY, **marks}
        for name, path in self._logs.items():
            length, checksum = marks[name]
            content = read_if_there(path)[:length]
            if len(content) < length or hashlib.sha256(content).hexdigest() != checksum:
                raise DamagedCheckpoint(f"{path} was changed or cut after it")

    def cut_back(self, marks: Mapping[str, Mark]) -> None:
        for name, path in self._logs.items():
            if path.exists():
                os.truncate(path, marks.get(name, EMPTY)[0])

    def describe(self, status: str, detail: str | None = None, *, ended: bool = False) -> None:
        """With lines and checksums of the logs once nothing more will be written into them."""
        about = {
            "version": VERSION,
            **self.run.describe(),
            "status": status,
            "status_detail": detail,
        }
        about |= {"computed": self.computed, "versions": versions(), "machine": machine()}
        if self.replay_mismatch:
            about["replay_mismatch"] = self.replay_mismatch
        if ended:
            about["logs"] = {
                name: seal_of(read_if_there(path)) for name, path in self._logs.items()
            }
        write_json(self.path / "run.json", about)


def check_that_nothing_was_saved(folders: Sequence[RunFolder], checkpoint_every: int) -> None:
    """Runs without a checkpoint begin again and lose their logs, as is right only if they were
    killed before their first one, and not if somebody deleted it."""
    runs = [read_run(folder.path) for folder in folders if (folder.path / "run.json").exists()]
    were_stopped = runs and all(run.status != "running" for run in runs)
    got_further = any(row["step"] > checkpoint_every for run in runs for row in run.episodes[-1:])
    if were_stopped or got_further:
        how = "finished" if all(run.status == "finished" for run in runs) else "begun"
        raise UserError(
            f"The runs in {folders[0].path.parent} are {how}, but their checkpoints are gone, "
            "so that there is nothing "
            "to go on from; train again into another folder."
        )


def log_time(cohort: Path, step: int, started: float, simulating: float) -> None:
    """How long it took, and how long its simulators worked, all of them together."""
    seconds, date = (
        round(time.monotonic() - started, 3),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )
    row = {"step": step, "seconds": seconds, "simulating": round(simulating, 3), "date": date}
    with (cohort / "times.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def versions() -> dict[str, str]:
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
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "gpu": gpu,
    }
