"""Waiting for a message that comes soon."""

import os
import select
import time

from pac4sac.cores import cores, machine_cores

# To wake a sleeping core can take longer than to simulate a step, on a virtual machine a millisecond and more. So
# whoever waits keeps the core for a while, unless cores are few or have other cohorts to serve.
ALONE = machine_cores() >= 4 and cores() == machine_cores()
PATIENCE = 2e-3 if ALONE and hasattr(os, "sched_yield") else 0.0  # seconds


def stay_awake(poller: "select.poll") -> None:
    """Return when there is something to read, or when it is time to sleep in a blocking read instead."""
    if not PATIENCE:
        return
    until = time.perf_counter() + PATIENCE
    while not poller.poll(0) and time.perf_counter() < until:
        os.sched_yield()


def watching(descriptor: int) -> "select.poll":
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return poller
