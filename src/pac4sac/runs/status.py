"""The status of a run, as run.json stores it."""

from enum import StrEnum


class Status(StrEnum):
    """How far a run came."""

    RUNNING = "running"  # or killed without notice
    INTERRUPTED = "interrupted"  # after a checkpoint; it can be resumed
    FINISHED = "finished"
    STOPPED = "stopped"  # by a callback
    DIVERGED = "diverged"
    FAILED = "failed"  # by its simulator


BROKEN_OFF = (Status.DIVERGED, Status.FAILED)  # ended by a failure
CUT_SHORT = (*BROKEN_OFF, Status.STOPPED)
ENDED = (Status.FINISHED, *CUT_SHORT)
