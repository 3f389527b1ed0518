"""One cohort of a study in a process of its own: `python -m pac4sac.studies.cohort_process FOLDER`.

It speaks to its parent in lines of JSON, {"step": ..., "steps": ...} and {"warning": ...}. It ends with 0 when the
cohort is complete, with 3 when it was stopped after a checkpoint, and with 2 after a sentence about what the user can
mend.
"""

import json
import math
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.runs.run import Run
from pac4sac.training.callbacks import Callback
from pac4sac.training.experiment import resume

COMPLETE, MISTAKE, STOPPED = 0, 2, 3
INTERVAL = 0.5  # seconds between two reports


class StepReporter(Callback):
    """Reports the step at the start, now and then, and at the end."""

    steps, reported = 0, -math.inf

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        self.steps, self.reported = steps, -math.inf
        self.on_step(step)

    def on_step(self, step: int) -> None:
        if step == self.steps or time.monotonic() - self.reported > INTERVAL:
            self.report(step)
            self.reported = time.monotonic()

    def report(self, step: int) -> None:
        print(json.dumps({"step": step, "steps": self.steps}), flush=True)


def pass_on(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
    """Our own warnings, such as of a backend that does not work here; those of libraries say nothing to a user."""
    if Path(filename).is_relative_to(Path(pac4sac.__file__).parent):
        print(json.dumps({"warning": str(message)}), flush=True)


def main(folder: str) -> int:
    # Outside of training, which has a handler of its own, a request to stop comes too early or too late: the parent
    # repeats it until this process has ended.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    warnings.showwarning = pass_on
    try:
        return COMPLETE if resume(folder, callbacks=[StepReporter()]).complete else STOPPED
    except UserError as error:
        print(error, file=sys.stderr)
        return MISTAKE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
