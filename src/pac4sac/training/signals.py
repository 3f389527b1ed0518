"""Stopping in good order: on Ctrl-C, on SIGTERM, or when the time is up."""

import signal
import threading
import time
from types import FrameType
from typing import Any


class StopRequest:
    """While entered, SIGINT and SIGTERM ask for a stop instead of ending the process; a second one ends it."""

    def __init__(self, max_minutes: float | None = None) -> None:
        self.deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.reason: str | None = None
        self._previous: dict[int, Any] = {}

    @property
    def wanted(self) -> bool:
        if self.reason is None and self.deadline is not None and time.monotonic() >= self.deadline:
            self.reason = "the time is up"
        return self.reason is not None

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.reason is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.reason = f"{signal.Signals(number).name} was received"

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
