"""How a run stands, as its run.json says."""

from enum import StrEnum


class Status(StrEnum):
    RUNNING = "running"  # or killed while it was
    INTERRUPTED = "interrupted"  # in good order; a resume goes on
    FINISHED = "finished"
    STOPPED = "stopped"  # by a callback
    DIVERGED = "diverged"
    FAILED = "failed"  # by its simulator


BROKEN_OFF = (Status.DIVERGED, Status.FAILED)  # ended, but not as it should
CUT_SHORT = (*BROKEN_OFF, Status.STOPPED)
ENDED = (Status.FINISHED, *CUT_SHORT)
