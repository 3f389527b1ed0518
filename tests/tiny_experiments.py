"""Experiments small enough to be trained dozens of times, and processes that train them and can be
killed."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import load_file

import pac4sac
from pac4sac import Callback, Result, Task
from pac4sac.base import files
from pac4sac.runs.reading import LINE_SUM
from pac4sac.training import experiment

DRIFT = Task("drift", "training_environments:Drift-v0", 30, env_kwargs={"cliff": 1.0})
SETTINGS = {"width": 8, "depth": 1, "batch": 8, "warmup": 40}
OPTIONS = {"device": "cpu", "backend": "eager", "workers": 0, "threads": 1}
OPTIONS |= {
    "log_every": 50,
    "checkpoint_every": 40,
    "evaluate_every": 150,
    "evaluation_episodes": 2,
}
STEPS = 230


def train(
    out: Path,
    algo: str = "sac",
    task: Task = DRIFT,
    seeds=(0, 1),
    settings=None,
    steps=STEPS,
    **more,
) -> Result:
    chosen = SETTINGS | ({"shots": 4} if algo == "pac4sac" else {}) | (settings or {})
    return pac4sac.train(
        task, algo, seeds=seeds, settings=chosen, steps=steps, out=out, **OPTIONS | more
    )


def contents(folder: Path, *names: str) -> dict[str, bytes]:
    """The bytes of an experiment by file: all but times, and experiment.json, which has the number
    of workers."""
    left_out = ("times.jsonl", "experiment.json")
    paths = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in left_out
    ]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if not names or path.name in names
    }


def same(folder: Path, reference: Path, *names: str) -> bool:
    """Compare file by file, to name the first that differs instead of printing all."""
    actual, expected = contents(folder, *names), contents(reference, *names)
    assert expected
    assert actual.keys() == expected.keys()
    differing = [name for name, content in expected.items() if actual[name] != content]
    assert not differing
    return True


def logs(folder: Path, run: str) -> dict[str, bytes]:
    by_name = {
        path.name: path.read_bytes() for path in sorted((folder / "runs" / run).glob("*.jsonl"))
    }
    assert by_name
    return by_name


def rows(folder: Path, run: str, log: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (folder / "runs" / run / f"{log}.jsonl").read_text().splitlines()
    ]


def about(folder: Path, run: str) -> dict[str, Any]:
    return json.loads((folder / "runs" / run / "run.json").read_bytes())


def newest(folder: Path, cohort: str = "000") -> Path:
    return max((folder / "cohorts" / cohort).glob("step-*"))


def assert_trained_alike(measured: Path, plain: Path) -> None:
    """What both have logged and learned is the same, whatever else the first has measured."""
    for run in ("sac-seed0", "sac-seed1"):
        expected = logs(plain, run)
        assert set(expected) == {"episodes.jsonl", "metrics.jsonl", "evaluations.jsonl"}
        assert {name: logs(measured, run)[name] for name in expected} == expected
        sums = {"logs": None, LINE_SUM: None}  # of logs, and of the file with them
        descriptions = [about(folder, run) | sums for folder in (measured, plain)]
        assert descriptions[0] == descriptions[1]
    ours, theirs = (load_file(newest(place) / "learner.safetensors") for place in (measured, plain))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def copy(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target


class SignalAt(Callback):
    """Sends its own process a signal after a step, a number of log lines of a kind, or so many."""

    def __init__(self, number: int, step: int = -1, kind: str = "", lines: int = -1) -> None:
        self.number, self.step, self.kind, self.lines = number, step, kind, lines

    def on_step(self, step: int) -> None:
        if step == self.step:
            os.kill(os.getpid(), self.number)

    def on_log(self, run: Any, kind: str, row: dict[str, Any]) -> None:
        self.lines -= kind == self.kind
        if kind == self.kind and self.lines == 0:
            os.kill(os.getpid(), self.number)


class KillableTrainings:
    """Processes that train and die. They are forked from one that has imported everything, to start
    at once."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )

    def run(self, call: str, folder: Path, **job: Any) -> int:
        """The end of a process that trained or resumed: 0, or minus the signal that ended it."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps({"call": call, "folder": str(folder), **job}) + "\n")
        self._server.stdin.flush()
        return os.waitstatus_to_exitcode(int(self._server.stdout.readline()))

    def killed_at(self, call: str, folder: Path, step: int, **job: Any) -> bool:
        return self.run(call, folder, die={"step": step}, **job) == -signal.SIGKILL

    def close(self) -> None:
        self._server.communicate()


def _run_job(job: dict[str, Any]) -> None:
    die = job.get("die", {})
    if "write" in die:
        _die_in_write(die.pop("write"))
    callbacks = [SignalAt(signal.SIGKILL, **die)] if die else []
    if job["call"] == "train":
        train(Path(job["folder"]), callbacks=callbacks, **job.get("with", {}))
    else:
        experiment.resume(job["folder"], callbacks=callbacks, **job.get("with", {}))


def _die_in_write(countdown: int) -> None:
    """Be killed in the middle of the n-th durable write, with half of it on the disk."""
    written = [0]

    @contextlib.contextmanager
    def half(path: Path) -> Iterator[BinaryIO]:
        written[0] += 1
        with opened(path) as file:
            yield file
            if written[0] == countdown:
                file.flush()
                os.truncate(path, path.stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)

    opened, files.durable_file = files.durable_file, half


if __name__ == "__main__":
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 1
            try:
                _run_job(json.loads(line))
                code = 0
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(os.waitpid(child, 0)[1], flush=True)


def rewrite_progress(checkpoint: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Another content of a checkpoint, with the checksum that belongs to it."""
    progress = json.loads((checkpoint / "progress.json").read_bytes())
    change(progress)
    data = json.dumps(progress).encode()
    (checkpoint / "progress.json").write_bytes(data)
    manifest = json.loads((checkpoint / "manifest.json").read_bytes())
    manifest["files"]["progress.json"] = {
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
    }
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
