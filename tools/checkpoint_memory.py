"""Measure the peak memory of saving a checkpoint, divided by the memory of the learner.

Example: .venv/bin/python tools/checkpoint_memory.py --rows 1000000"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch

from pac4sac.training import checkpoint
from pac4sac.training.checkpoint import Checkpoint

PLACEMENT = {"device": "cpu", "backend": "eager", "threads": 1}
PROGRESS = {"status": ["running"], "details": [None], "logs": [{}], "complete": False}


def resident_bytes() -> int:
    """Return the memory of this process without pages of files."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return 1024 * int(line.split()[1])


class Peak:
    """Records the largest memory of this process inside a `with` block."""

    def __enter__(self) -> "Peak":
        self.bytes, self._ended = resident_bytes(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.is_set():
            self.bytes = max(self.bytes, resident_bytes())
            time.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def learner(rows: int) -> dict[str, torch.Tensor]:
    """Return the tensors of a learner of one run with a partly filled replay buffer."""
    buffer = torch.rand(1, rows, 40)
    return {
        "replay": buffer[:, : rows * 9 // 10],
        "critic": torch.rand(1, 2, 200_000),
        "observation": torch.rand(1, 17),
        "action": torch.rand(1, 6),
        "incoming": torch.rand(1, 36),
        "step": torch.tensor(rows * 9 // 10),
    }


def simulators() -> dict[str, np.ndarray]:
    """Return the arrays of the simulators of one run."""
    arrays = {name: np.zeros(1, np.int64) for name in ("seed", "episode", "steps")}
    arrays |= {"actions": np.zeros((1, 1, 6), np.float32), "parked": np.zeros(1, bool)}
    arrays |= {"observation": np.zeros((1, 17), np.float32)}
    return arrays | {"failures": np.frombuffer(b"{}", np.uint8).copy()}


def measure(rows: int) -> tuple[float, float]:
    """Return the peaks of saving and of loading, each divided by the memory of the learner."""
    before = resident_bytes()
    saved = Checkpoint(learner(rows), simulators(), PROGRESS | {"placement": PLACEMENT})
    own = resident_bytes() - before
    with tempfile.TemporaryDirectory() as folder:
        with Peak() as saving:
            checkpoint.save(Path(folder), "cohort", 1, saved)
        with Peak() as loading:
            loaded = checkpoint.read_newest(Path(folder), "cohort")
        assert loaded is not None
        assert torch.equal(loaded.learner["replay"], saved.learner["replay"])
    return (saving.bytes - before) / own, (loading.bytes - before) / own


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="transitions of the buffer")
    saving, loading = measure(parser.parse_args().rows)
    print(f"memory while saving:  {saving:.2f} times that of the learner")
    print(f"memory while loading: {loading:.2f} times that of the learner")
    return 0 if max(saving, loading) <= 1.3 else 1


if __name__ == "__main__":
    sys.exit(main())
