"""The status of a run, as run.json stores it."""

from enum import StrEnum


class Status(StrEnum):
    """List the states of a run."""

    RUNNING = "running"  # in progress, or killed
    INTERRUPTED = "interrupted"  # stopped after a checkpoint; can be resumed
    FINISHED = "finished"
    STOPPED = "stopped"  # ended by a callback
    DIVERGED = "diverged"
    FAILED = "failed"  # ended by an error of its simulator


BROKEN_OFF = (Status.DIVERGED, Status.FAILED)  # ended by a failure
CUT_SHORT = (*BROKEN_OFF, Status.STOPPED)
ENDED = (Status.FINISHED, *CUT_SHORT)
