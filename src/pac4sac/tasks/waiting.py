"""Waiting for a message that comes soon."""

import functools
import os
import select
import time

from pac4sac.cores import machine_cores


@functools.cache
def patience() -> float:
    """Seconds for which whoever waits stays awake, and leaves the core to others only. To wake a sleeping one can take
    longer than a simulated step, on a virtual machine a millisecond and more; but few cores are not kept busy so."""
    return 2e-3 if machine_cores() >= 4 and hasattr(os, "sched_yield") else 0.0


def stay_awake(poller: "select.poll") -> None:
    """Return when there is something to read, or when it is time to sleep in a blocking read instead."""
    if not patience():
        return
    until = time.perf_counter() + patience()
    while not poller.poll(0) and time.perf_counter() < until:
        os.sched_yield()


def watching(descriptor: int) -> "select.poll":
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return poller
