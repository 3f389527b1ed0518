"""Waiting for another process that answers soon: counters in shared memory, and a socket for whoever sleeps."""

import contextlib
import functools
import os
import platform
import select
import socket
import time
from typing import Literal

from pac4sac.base.cores import machine_cores
from pac4sac.tasks.episodes import Board

SPINS = 200  # looks at a counter before the core is offered to others, some 10 µs
LOOK_UP = 50  # milliseconds after which a sleeper looks by itself: the flag that it sleeps can cross with a ring


@functools.cache
def patience() -> float:
    """Seconds for which whoever waits stays awake. To wake a sleeping process can take longer than a simulated step, on
    a virtual machine a millisecond and more; but where cores are few, the others need them. Only an x86 promises that
    whoever sees a counter also sees what was written before it."""
    ordered = platform.machine().lower() in ("x86_64", "amd64")
    return 20e-3 if ordered and machine_cores() >= 4 and hasattr(os, "sched_yield") else 0.0


def cell(board: Board, name: str, worker: int) -> memoryview:
    """One number of the board, in a form that is read quickly."""
    data: memoryview = board[name][worker : worker + 1].data
    return data


class Bell:
    """One end of a bell between the pool and a worker. Each end counts its rings on the board, where the other sees
    them at once, without the kernel's help. The socket wakes a sleeper, and tells when the other end is gone."""

    def __init__(self, channel: socket.socket, board: Board, worker: int, end: Literal["pool", "worker"]) -> None:
        names = ["asked", "answered", "pool_sleeps", "worker_sleeps"]
        if end == "worker":
            names = ["answered", "asked", "worker_sleeps", "pool_sleeps"]
        self._rung, self._heard, self._asleep, self._other_asleep = (cell(board, name, worker) for name in names)
        self.worker, self._channel, self._poller = worker, channel, select.poll()
        self._poller.register(channel, select.POLLIN)

    @property
    def rings(self) -> int:
        return int(self._rung[0])

    def ring(self) -> None:
        self._rung[0] += 1
        if self._other_asleep[0]:
            with contextlib.suppress(BlockingIOError, ConnectionError):  # rung already, or gone, which a wait will tell
                self._channel.send(b".", socket.MSG_DONTWAIT)

    def wait(self, rings: int) -> bool:
        """Until the other end has rung so often; False when it is gone before."""
        if patience():
            until = time.perf_counter() + patience()
            while time.perf_counter() < until:
                for _ in range(SPINS):
                    if self._heard[0] >= rings:
                        return True
                os.sched_yield()
        self._asleep[0] = True
        try:
            while self._heard[0] < rings:
                if self._poller.poll(LOOK_UP) and not self._channel.recv(4096):
                    return bool(self._heard[0] >= rings)
        except ConnectionError:
            return bool(self._heard[0] >= rings)
        finally:
            self._asleep[0] = False
        return True
