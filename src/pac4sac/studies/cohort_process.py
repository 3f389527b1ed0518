"""One cohort of a study in a process of its own: `python -m pac4sac.studies.cohort_process FOLDER [MINUTES]`.

It speaks to its parent in lines of JSON, {"step": ..., "steps": ...} and {"warning": ...}. It ends with 0 when the
cohort is complete, with 3 when it was stopped after a checkpoint, and with 2 after a sentence about what the user can
mend.
"""

import json
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


class Reporter(Callback):
    """Tells the step twice a second."""

    def __init__(self) -> None:
        self.steps, self.told = 0, 0.0

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        self.steps = steps
        self._tell(step)

    def on_step(self, step: int) -> None:
        if step == self.steps or time.monotonic() - self.told > 0.5:
            self._tell(step)

    def _tell(self, step: int) -> None:
        self.told = time.monotonic()
        print(json.dumps({"step": step, "steps": self.steps}), flush=True)


def pass_on(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
    """Our own warnings, such as of a backend that does not work here; those of libraries say nothing to a user."""
    if Path(filename).is_relative_to(Path(pac4sac.__file__).parent):
        print(json.dumps({"warning": str(message)}), flush=True)


def main(arguments: Sequence[str]) -> int:
    # Outside of training, which has a handler of its own, a request to stop comes too early or too late: the parent
    # repeats it until this process has ended.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    warnings.showwarning = pass_on
    try:
        minutes = float(arguments[1]) if len(arguments) > 1 else None
        result = resume(arguments[0], max_minutes=minutes, callbacks=[Reporter()])
    except UserError as error:
        print(error, file=sys.stderr)
        return MISTAKE
    return COMPLETE if result.complete else STOPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
