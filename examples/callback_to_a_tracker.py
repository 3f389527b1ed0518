"""Send what training logs elsewhere. This one writes a CSV file; for TensorBoard, W&B and Trackio
there is --track. A callback sees training, and may end a run by returning a reason from `on_log`.
`--real` trains in earnest."""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pac4sac
from pac4sac.training.run import Run


class Tracker(pac4sac.Callback):
    """Of the five methods of a callback these are three; on_step and on_status are left out."""

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        # A cohort trains many runs at once; run.describe() has the whole config of one.
        self.file = (folder / "tracked.csv").open("a", newline="")
        self.rows = csv.writer(self.file)
        if step == 0:
            self.rows.writerow(["run", "step", "name", "value"])

    def on_log(self, run: Run, kind: str, row: dict[str, Any]) -> None:
        # kind is episodes, metrics or evaluations; docs/metrics.md says what each column means.
        for name, value in row.items():
            if name != "step" and isinstance(value, int | float):
                self.rows.writerow([run.id, row["step"], f"{kind}/{name}", value])

    def on_end(self, folder: Path) -> None:
        self.file.close()


parser = argparse.ArgumentParser()
parser.add_argument("--out", default="experiments/tracked", help="a new folder")
parser.add_argument("--real", action="store_true", help="the task's whole budget: hours on a CPU")
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
