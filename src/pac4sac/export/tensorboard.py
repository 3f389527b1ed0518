"""What training logs, for TensorBoard: `tensorboard --logdir DIR/tensorboard`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import import_extra
from pac4sac.runs.run import Run
from pac4sac.training.callbacks import Callback


class TensorBoard(Callback):
    """Writes each run's episodes, metrics, evaluations, value bias and coverage under DIR/tensorboard/<run>."""

    def __init__(self) -> None:
        tensorboard = import_extra("tensorboard", "TensorBoard is not installed", "torch.utils.tensorboard")
        self._writer = tensorboard.SummaryWriter
        self._writers: dict[str, Any] = {}

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        # A resumed run writes the steps behind its checkpoint once more: what an earlier process wrote of them is void.
        purge = step + 1 if step else None
        for run in runs:
            self._writers[run.id] = self._writer(str(folder / "tensorboard" / run.id), purge_step=purge)

    def on_log(self, run: Run, kind: str, row: dict[str, Any]) -> None:
        if kind == "evaluations":
            scalars = {f"evaluation/{row['policy']}": row["mean"]}
        else:
            prefix = "episode" if kind == "episodes" else kind
            scalars = {f"{prefix}/{name}": value for name, value in row.items() if name not in ("step", "episode")}
        for name, value in scalars.items():
            if value is not None and math.isfinite(value):
                self._writers[run.id].add_scalar(name, value, row["step"])

    def on_end(self, folder: Path) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
