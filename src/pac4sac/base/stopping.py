"""Stop work after a checkpoint: on Ctrl-C, on SIGTERM, when the terminal closes, when a cluster
announces the end of a job, or after a time limit."""

import contextlib
import ctypes
import math
import signal
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any

from pac4sac.base.errors import UserError


class Stopped(BaseException):
    """Signal that a stop request ended the work.

    Like KeyboardInterrupt it is not an Exception, so it does not count as a failure when it is
    raised inside an environment.
    """


@dataclass(frozen=True)
class StopReason:
    """Hold the reason why training was stopped early, as a clause that follows "because"."""

    sentence: str
    number: int | None = None  # of the signal that requested it

    @property
    def by_signal(self) -> bool:
        return self.number is not None

    def __str__(self) -> str:
        return self.sentence


TIME_IS_UP = StopReason("the time is up")
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)  # clusters send one of them before they end a job
STEP_SECONDS = 60  # default limit for a step or a reset of a simulator
GRACE = 10.0  # seconds that a stop waits for simulators that do not answer
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Ask the system to kill this process when its parent ends, even if it hangs.

    The process is also killed when the thread that started it ends.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class StopRequest:
    """Let SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 request a stop in this context.

    They do not end the process, except a second SIGINT.
    """

    def __init__(self, max_minutes: float | None = None) -> None:
        if max_minutes is not None and not 0 < max_minutes < math.inf:
            raise UserError(
                f"max_minutes must be a finite number above 0, not {max_minutes:g}; omit it to "
                "train without a time limit."
            )
        self.deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.reason: StopReason | None = None
        self.asked = 0.0  # time of the request
        self._previous: dict[int, Any] = {}
        self._warning: int | None = None  # of WARNINGS

    @property
    def wanted(self) -> bool:
        """Return whether a stop was requested, or the time is up."""
        if self.reason is None and self.deadline is not None and time.monotonic() >= self.deadline:
            self.reason, self.asked = TIME_IS_UP, self.deadline
        return self.reason is not None

    def check(self) -> None:
        """Raise Stopped if a signal requested a stop, to end work that can be repeated later.

        The time limit does not count here: work that takes longer than the limit would never end.
        """
        if self.reason is not None:
            raise Stopped

    def check_patience(self, since: float) -> None:
        """Raise Stopped if simulators, busy since time `since`, block a requested stop.

        The last checkpoint is kept.
        """
        if self.wanted and time.monotonic() - max(since, self.asked) > GRACE:
            raise Stopped

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            signals = [signal.SIGINT, signal.SIGTERM, *WARNINGS]
            # Unless nohup started the process.
            if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
                signals.append(signal.SIGHUP)
            for number in signals:
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        """Request a stop, or end the process at the second SIGINT."""
        if self.reason is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.reason is None:
            self.asked = time.monotonic()  # time of the first request; a study repeats requests
        if number in WARNINGS:
            self._warning = number
        self.reason = StopReason(f"{signal.Signals(number).name} was received", number)
        # A SIGTERM that comes with a warning does not hide the warning, after which a job is queued
        # again.
        # This comes last, because a warning may have interrupted this function.
        if (warning := self._warning) is not None:
            self.reason = StopReason(f"{signal.Signals(warning).name} was received", warning)
        # The terminal may be closed, or the signal may interrupt another print.
        with contextlib.suppress(OSError, RuntimeError):
            print(
                f"{self.reason}: stopping after a checkpoint; press Ctrl-C to stop at once.",
                file=sys.stderr,
                flush=True,
            )

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
