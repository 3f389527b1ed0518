"""What an experiment writes: `experiment.json`, `cohorts/` with checkpoints, and `runs/<id>/` with logs.

Logs are lines of JSON. A checkpoint remembers how long each log was; a resume cuts the logs back to that, so that they
go on without a gap or a line written twice. Wall-clock times live in a file of their own, since they never repeat.
"""

import importlib.metadata
import json
import math
import os
import platform
from pathlib import Path
from typing import Any

from pac4sac.errors import UserError
from pac4sac.reporting.store import VERSION
from pac4sac.training.checkpoint import write_whole
from pac4sac.training.runs import Run

LOGS = ("episodes", "metrics", "evaluations")


class RunFolder:
    def __init__(self, root: Path, run: Run) -> None:
        self.path = root / "runs" / run.id
        self.run = run
        self.path.mkdir(parents=True, exist_ok=True)

    def log(self, name: str, row: dict[str, Any]) -> None:
        """Append a line; numbers that JSON does not know become null."""
        clean = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
        with (self.path / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(clean) + "\n")

    def lengths(self) -> dict[str, int]:
        paths = {name: self.path / f"{name}.jsonl" for name in LOGS}
        return {name: path.stat().st_size if path.exists() else 0 for name, path in paths.items()}

    def cut_back(self, lengths: dict[str, int]) -> None:
        for name in LOGS:
            path, length = self.path / f"{name}.jsonl", lengths.get(name, 0)
            size = path.stat().st_size if path.exists() else 0
            if size < length:
                raise UserError(f"{path} is shorter than when its checkpoint was written; it was changed or lost.")
            if size > length:
                os.truncate(path, length)

    def describe(self, status: str, detail: str | None = None) -> None:
        about = {"version": VERSION, **self.run.describe(), "status": status, "status_detail": detail}
        about |= {"versions": versions(), "machine": machine()}
        write_whole(self.path / "run.json", json.dumps(about, indent=1).encode())


def versions() -> dict[str, str]:
    names = ("torch", "numpy", "gymnasium", "pybullet", "mujoco", "dm_control")
    found = {"python": platform.python_version(), "pac4sac": package_version()}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def package_version() -> str:
    try:
        return importlib.metadata.version("pac4sac")
    except importlib.metadata.PackageNotFoundError:  # run from a source folder
        return "source"


def machine() -> dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count(), "gpu": gpu}
