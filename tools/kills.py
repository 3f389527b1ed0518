"""Kill trainings at random moments, resume them, and compare all bytes with an undisturbed one.

A trial is one training in a process of its own, with two simulators in that process or in two
worker processes. It is killed by SIGKILL up to three times, or loses one of its workers, and is
resumed until it is complete. Trials go over all algorithms in turn.

Example: .venv/bin/python tools/kills.py --kills 200 --seed 0"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import pac4sac
from pac4sac import Task
from pac4sac.agents import ALGORITHMS

TASK = Task("Pendulum-v1", "Pendulum-v1", 20)
STEPS = 150
SETTINGS = {"width": 8, "depth": 1, "batch": 8, "warmup": 30, "updates_per_step": 2}
SMALLER: dict[str, dict[str, Any]] = {
    **{"tqc": {"critics": 3, "quantiles": 4}, "redq": {"critics": 4}},
    **{"xqc": {"bins": 11}, "flashsac": {"bins": 11}},
}
OPTIONS: dict[str, Any] = {"device": "cpu", "backend": "eager", "threads": 1}
OPTIONS |= {"checkpoint_every": 25, "evaluate_every": 60, "evaluation_episodes": 1, "log_every": 50}
DIFFERENT = ("times.jsonl", "experiment.json")  # wall-clock times, and the number of workers
PATIENCE = 300.0  # seconds
MOST_KILLS = 3  # of one training


def train(algo: str, folder: Path, workers: int) -> None:
    """Train an algorithm, or resume it if the folder has an experiment."""
    warnings.simplefilter("ignore")
    if (folder / "experiment.json").exists():
        pac4sac.resume(folder)
        return
    settings = SETTINGS | SMALLER.get(algo, {})
    pac4sac.train(
        TASK, algo, seeds=(0, 1), settings=settings, steps=STEPS, out=folder, workers=workers,
        **OPTIONS,
    )  # fmt: skip


def process(work: Callable[[], None]) -> int:
    """Start a process for some work, with all modules imported, and return its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        work()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def end_of(child: int, seconds: float) -> int | None:
    """Wait for a process; return its exit code, minus the signal that ended it, or None."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def children_of(process: int) -> list[int]:
    """Return the ids of the child processes of a process."""
    try:
        listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in listed.split()]


def contents(folder: Path) -> dict[str, str]:
    """Return the checksums of all files that do not depend on time or on the number of workers."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name not in DIFFERENT]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


class Trials:
    """Disturbs trainings of one algorithm after another, and counts what it did."""

    def __init__(self, scratch: Path, seed: int) -> None:
        self.scratch, self.chance = scratch, random.Random(seed)
        self.whole: dict[str, tuple[dict[str, str], float]] = {}
        self.counts: Counter[str] = Counter()

    def trial(self, algo: str) -> list[str]:
        """Disturb and resume one training; return what is wrong at its end."""
        expected, seconds = self._undisturbed(algo)
        folder, workers = self.scratch / "killed", self.chance.choice((0, 0, 0, 2))
        for _ in range(self.chance.randint(1, MOST_KILLS)):
            self._disturb(algo, folder, workers, self.chance.uniform(0, seconds))
        child = process(lambda: train(algo, folder, workers))
        code = end_of(child, PATIENCE)
        if code is None:
            kill(child)
        problem = self._problem(code, contents(folder), expected)
        shutil.rmtree(folder, ignore_errors=True)
        self.counts["trials"] += 1
        return [f"{algo}, {workers} workers: {problem}"] if problem else []

    def _undisturbed(self, algo: str) -> tuple[dict[str, str], float]:
        """Return the content of an undisturbed training, and how long it takes."""
        if algo not in self.whole:
            folder, start = self.scratch / "whole", time.monotonic()
            if end_of(process(lambda: train(algo, folder, 0)), PATIENCE) != 0:
                sys.exit(f"{algo} could not be trained.")
            self.whole[algo] = contents(folder), time.monotonic() - start
            shutil.rmtree(folder)
        return self.whole[algo]

    def _disturb(self, algo: str, folder: Path, workers: int, seconds: float) -> None:
        """Train for some seconds and kill the training, or one of its workers."""
        child = process(lambda: train(algo, folder, workers))
        if end_of(child, seconds) is not None:
            return
        victims = children_of(child)
        if victims and self.chance.random() < 0.3:
            os.kill(self.chance.choice(victims), signal.SIGKILL)
            self.counts["killed workers"] += 1
            if end_of(child, seconds) is not None:
                return
        kill(child)
        self.counts["kills"] += 1

    @staticmethod
    def _problem(code: int | None, found: dict[str, str], expected: dict[str, str]) -> str:
        if code != 0:
            return f"the resume ended with {code}"
        names = sorted(found.keys() | expected.keys())
        differing = [name for name in names if found.get(name) != expected.get(name)]
        return f"{', '.join(differing)} differ" if differing else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kills of trainings to reach")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        trials = Trials(Path(scratch), arguments.seed)
        while trials.counts["kills"] < arguments.kills:
            for algo in ALGORITHMS:
                found = trials.trial(algo)
                problems += found
                print(algo, dict(trials.counts), *found, flush=True)
    print(f"{dict(trials.counts)}, {len(ALGORITHMS)} algorithms, {len(problems)} problems")
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
