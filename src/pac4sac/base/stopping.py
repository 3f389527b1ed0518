"""Stopping in good order: on Ctrl-C, on SIGTERM, when the terminal is closed, or when the time is
up."""

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
    """Something was broken off because a stop was asked for. Like KeyboardInterrupt it is no error,
    lest one that is raised inside an environment be taken for its failure."""


@dataclass(frozen=True)
class StopReason:
    """Why training was stopped before its end, to be read behind "because"."""

    sentence: str
    by_signal: bool

    def __str__(self) -> str:
        return self.sentence


TIME_IS_UP = StopReason("the time is up", by_signal=False)
STEP_SECONDS = 60  # that a step or a reset of a simulator may take, unless told otherwise
GRACE = 10.0  # seconds for which a stop waits for simulators that do not answer
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have this process killed when the one that started it ends, however that ends and whatever
    hangs here. (It is killed too when only the thread ends that started it.)"""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class StopRequest:
    """While entered, SIGINT, SIGTERM and SIGHUP ask for a stop instead of ending the process; a
    second SIGINT does."""

    def __init__(self, max_minutes: float | None = None) -> None:
        if max_minutes is not None and not 0 < max_minutes < math.inf:
            raise UserError(
                f"max_minutes must be above 0, not {max_minutes:g}; leave it out for no limit."
            )
        self.deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.reason: StopReason | None = None
        self.asked = 0.0  # when the reason came up
        self._previous: dict[int, Any] = {}

    @property
    def wanted(self) -> bool:
        if self.reason is None and self.deadline is not None and time.monotonic() >= self.deadline:
            self.reason, self.asked = TIME_IS_UP, self.deadline
        return self.reason is not None

    def check(self) -> None:
        """Break off what can be done again. The end of the time is no reason to: what takes longer
        than the time that is given would never be done."""
        if self.reason is not None:
            raise Stopped

    def check_patience(self, since: float) -> None:
        """Break off waiting for simulators that began to work then and may never answer: the last
        checkpoint stays."""
        if self.wanted and time.monotonic() - max(since, self.asked) > GRACE:
            raise Stopped

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            for number in (signal.SIGINT, signal.SIGTERM, *(() if nohup else (signal.SIGHUP,))):
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.reason is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.reason is None:
            self.asked = time.monotonic()  # once: a study repeats its request
        self.reason = StopReason(f"{signal.Signals(number).name} was received", by_signal=True)
        # a closed terminal, or in the middle of another line
        with contextlib.suppress(OSError, RuntimeError):
            print(
                f"{self.reason}: stopping in good order; Ctrl-C stops at once.",
                file=sys.stderr,
                flush=True,
            )

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
