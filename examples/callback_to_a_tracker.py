"""Log training to a CSV file with a callback. For TensorBoard, W&B and Trackio, use --track.

    python examples/callback_to_a_tracker.py

A callback can observe the training, and can end a run by returning a reason from `on_log`. By
default the script takes seconds and the agent does not learn; `--real` trains for hours.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pac4sac
from pac4sac.training.run import Run


class Tracker(pac4sac.Callback):
    """Write one row per logged number. Override only the methods that a callback needs."""

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        # A cohort trains many runs at once; run.describe() returns the config of a run.
        self.file = (folder / "tracked.csv").open("a", newline="")
        self.rows = csv.writer(self.file)
        if step == 0:
            self.rows.writerow(["run", "step", "name", "value"])

    def on_log(self, run: Run, kind: str, row: dict[str, Any]) -> None:
        # kind is the name of a log, such as episodes; docs/metrics.md explains the columns.
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float):
                self.rows.writerow([run.id, row["step"], f"{kind}/{name}", value])

    def on_end(self, folder: Path) -> None:
        self.file.close()


parser = argparse.ArgumentParser()
parser.add_argument("--out", default="experiments/tracked", help="new folder for the results")
parser.add_argument(
    "--real", action="store_true", help="train for the task's budget: hours on a CPU"
)
arguments = parser.parse_args()

quick = {"width": 32, "depth": 2, "warmup": 900, "updates_per_step": 1}
result = pac4sac.train(
    "cartpole-swingup",
    algo="ddpg",
    seeds=[0, 1],
    settings={} if arguments.real else quick,
    steps=None if arguments.real else 1000,
    log_every=1000 if arguments.real else 250,
    evaluation_episodes=1,
    out=arguments.out,
    callbacks=[Tracker()],
)
print((result.folder / "tracked.csv").read_text().splitlines()[:5])
