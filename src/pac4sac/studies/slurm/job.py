"""The job that trains a cohort, in a process that submitit starts on a node of the cluster."""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError


class CohortJob:
    """Train a cohort from its newest checkpoint; submitit stores it and calls it in the job."""

    def __init__(self, folder: Path, variables: Mapping[str, str], path: Sequence[str]) -> None:
        """Describe a job.

        Args:
            folder: Experiment folder of the cohort.
            variables: Environment variables for the job.
            path: Import path of the program that submits it.
        """
        self.folder, self.variables, self.path = folder.resolve(), dict(variables), list(path)
        self.interruptions: list[str] = []  # the newest checkpoint at each interruption

    def __call__(self) -> None:
        """Train to the end. After a signal, write a checkpoint; submitit does the rest.

        Before a time-out or a preemption, submitit's signal handler queues the job again. After
        SIGTERM, Slurm kills the job, and queues it again if it was preempted.
        """
        os.environ.update(self.variables)
        sys.path += [entry for entry in self.path if entry not in sys.path]
        # imports torch, which reads the variables
        from pac4sac.training.experiment import resume

        try:
            result = resume(self.folder)
        except UserError as error:
            sys.exit(str(error))  # the last line of the job's log, which `study status` shows
        if result.complete:
            return
        assert result.reason is not None
        assert result.reason.number is not None
        signal.raise_signal(result.reason.number)
        if os.environ.get("SUBMITIT_EXECUTOR") == "slurm":
            while True:  # Slurm does not queue a job again if the job ends by itself
                time.sleep(1)
        sys.exit(f"{result.reason}.")

    def checkpoint(self) -> Any:
        """Return the object that submitit calls when the job runs again, or None to give up the
        job.

        The job is given up if it made no progress between its last interruptions.
        """
        from submitit.helpers import DelayedSubmission

        from pac4sac.studies.attempts import checkpoints, got_on

        newest = [path.name for path in checkpoints(self.folder)[:1]]
        self.interruptions.append("".join(newest))
        return DelayedSubmission(self) if got_on(self.interruptions) else None
