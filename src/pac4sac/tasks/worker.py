"""Worker processes that step simulators, and the synchronisation between pool and worker.

A worker steps the simulators of its runs over shared memory, one command at a time, for one pool or
for several interleaved pools. It is started as ``python -m pac4sac.tasks.worker JOBS``. A job is
JSON that describes the work for one pool; memory and sockets are inherited descriptors.
"""

import contextlib
import functools
import itertools
import json
import mmap
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pac4sac.base.cores import machine_cores
from pac4sac.base.stopping import WARNINGS, StopRequest, end_with_parent
from pac4sac.base.trust import import_path
from pac4sac.tasks.catalogue import Task
from pac4sac.tasks.episodes import (
    EPISODE_REQUEST,
    Board,
    HostInProcess,
    RunEnvironment,
    board_layout,
)

SPINS = 100  # number of checks of a counter before yielding the core, about 10 µs
# Milliseconds between checks of a sleeping end, because a notification can miss that it fell
# asleep.
POLL_MS = 50
CLOSING = 1.0  # seconds for a worker to close its environments


@functools.cache
def spin_seconds() -> float:
    """Return the seconds to spin before blocking.

    Waking a blocked process can take longer than a simulated step, on a virtual machine more than
    a millisecond. With few cores, other processes need the core. Only x86 guarantees that a process
    that sees a counter also sees all earlier writes.
    """
    ordered = platform.machine().lower() in ("x86_64", "amd64")
    return 20e-3 if ordered and machine_cores() >= 4 and hasattr(os, "sched_yield") else 0.0


def cell(board: Board, name: str, worker: int) -> memoryview:
    """Return one number of the board as a memoryview, which is fast to read and write."""
    data: memoryview = board[name][worker : worker + 1].data
    return data


class Notifier:
    """Notify the other end of a channel between the pool and a worker.

    Each end counts its messages on the board, where the other end reads them without a system call.
    The socket wakes a sleeping end, and shows when the other end has died.
    """

    def __init__(
        self, channel: socket.socket, board: Board, worker: int, end: Literal["pool", "worker"]
    ) -> None:
        names = ["asked", "answered", "pool_sleeps", "worker_sleeps"]
        if end == "worker":
            names = ["answered", "asked", "worker_sleeps", "pool_sleeps"]
        self._sent, self._received, self._asleep, self._other_asleep = (
            cell(board, name, worker) for name in names
        )
        # a worker waits for the next request, a pool for the last answer
        self._lead = 1 if end == "worker" else 0
        self.worker, self.channel, self.gone = worker, channel, False

    def is_ready(self) -> bool:
        """Return whether the message that this end waits for has arrived."""
        return self._received[0] >= self._sent[0] + self._lead

    def notify(self) -> None:
        """Send a message: count it, and wake the other end if it sleeps."""
        self._sent[0] += 1
        if self._other_asleep[0]:
            # already notified, or dead; the next wait detects that
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self.channel.send(b".", socket.MSG_DONTWAIT)

    def set_sleeping(self, asleep: bool) -> None:
        """Tell the other end whether this end needs to be woken."""
        self._asleep[0] = asleep

    def drain(self) -> None:
        """Empty the socket, and record whether the other end has died."""
        try:
            self.gone = not self.channel.recv(4096)
        except ConnectionError:
            self.gone = True


def wait(notifiers: Sequence[Notifier], check: Callable[[], None] | None = None) -> Notifier:
    """Return the first notifier that is ready, or whose other end has died.

    Args:
        notifiers: Notifiers to wait for.
        check: Function that is called regularly and may raise an exception.
    """
    return _spin(notifiers) or _block(notifiers, check)


def _spin(notifiers: Sequence[Notifier]) -> Notifier | None:
    """Spin for `spin_seconds`; return a notifier that is ready, or None."""
    until = time.perf_counter() + spin_seconds()
    while spin_seconds() and time.perf_counter() < until:
        for _ in range(SPINS):
            for notifier in notifiers:
                if notifier.is_ready():
                    return notifier
        os.sched_yield()
    return None


def _block(notifiers: Sequence[Notifier], check: Callable[[], None] | None) -> Notifier:
    """Sleep until a notifier is ready, or its other end has died."""
    poller, by_descriptor = select.poll(), {each.channel.fileno(): each for each in notifiers}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
    with _asleep(notifiers):
        while (found := _ready_or_gone(notifiers)) is None:
            if check is not None:
                check()
            for descriptor, _ in poller.poll(POLL_MS):
                by_descriptor[descriptor].drain()
    return found


@contextlib.contextmanager
def _asleep(notifiers: Sequence[Notifier]) -> Iterator[None]:
    """Mark notifiers as sleeping inside a `with` block."""
    for notifier in notifiers:
        notifier.set_sleeping(True)
    try:
        yield
    finally:
        for notifier in notifiers:
            notifier.set_sleeping(False)


def _ready_or_gone(notifiers: Sequence[Notifier]) -> Notifier | None:
    """Return the first notifier that is ready or whose other end has died, or None."""
    for notifier in notifiers:
        if notifier.is_ready() or notifier.gone:
            return notifier
    return None


class HostInWorker:
    """Host the environments that a worker steps for one pool.

    The worker is notified of each step, and receives requests to begin episodes through a socket.
    """

    process: "WorkerProcess | None" = None  # None before the start

    def __init__(
        self,
        job: dict[str, Any],
        runs: list[int],
        board: Board,
        stop: StopRequest | None,
        restarted: bool = False,
    ) -> None:
        self.runs, self._stop = runs, stop
        self.restarted = restarted  # replaces a host that died in the current step
        self._index, self._requests = runs[0], board["requests"]
        self._heartbeats = cell(board, "heartbeats", self._index)
        self._last_heartbeat = 0, 0.0  # number of heartbeats, and time of the last change
        counters = ("asked", "requests", "answered", "heartbeats", "pool_sleeps", "worker_sleeps")
        for name in counters:
            board[name][self._index] = 0  # clears the numbers of an earlier worker
        self._request_socket, their_requests = socket.socketpair()
        self._channel, their_channel = socket.socketpair()
        self._notifier = Notifier(self._channel, board, self._index, "pool")
        self.inherited = (their_requests, their_channel)  # the worker's ends
        self.job = job | {"requests": their_requests.fileno(), "channel": their_channel.fileno()}
        self.job |= {"seeds": [(run, job["seeds"][run]) for run in runs]}

    def begin(self, run: int, episode: int, actions: NDArray[np.float32]) -> None:
        """Request that the worker starts an episode of a run and replays these actions."""
        self._requests[self._index] += 1
        self._notifier.notify()
        # a dead worker is detected when it does not answer
        with contextlib.suppress(ConnectionError):
            self._request_socket.sendall(
                EPISODE_REQUEST.pack(run, episode, actions.nbytes) + actions.tobytes()
            )

    def step(self) -> None:
        """Request a step of all runs of the worker."""
        self._notifier.notify()

    def answered(self) -> bool:
        """Wait until the answers to all requests are on the board.

        Returns:
            False if the worker died, or was killed because it hung.
        """
        if self._notifier.is_ready():
            return True
        asked = time.monotonic()
        self._last_heartbeat = self._heartbeats[0], asked

        def check() -> None:
            if self._stop is not None:
                self._stop.check_patience(asked)
            self._end_if_hanging()

        return wait([self._notifier], check).is_ready()

    def _end_if_hanging(self) -> None:
        """Kill the process if it has not begun a step or reset for longer than the limit."""
        count, since = self._last_heartbeat
        if count != self._heartbeats[0]:
            self._last_heartbeat = self._heartbeats[0], time.monotonic()
            return
        limit, has_begun = self.job["limit"], count > 0
        if has_begun and self.process is not None and time.monotonic() - since > limit:
            self.process.kill(f"because a step or a reset took longer than {limit} seconds")

    def end(self) -> None:
        """Ask the worker to close the environments of this pool."""
        self._request_socket.close()
        self._channel.close()
        if self.process is not None:
            self.process.hosts.discard(self)

    @property
    def shared(self) -> bool:
        """Return whether the process still works for another pool."""
        return self.process is not None and bool(self.process.hosts - {self})

    def wait_for_end(self) -> str:
        """Wait until the process has ended, and return how it ended."""
        self.end()
        return "before it began" if self.process is None else self.process.wait_for_end()


class WorkerProcess:
    """Run a process for the hosts of one or more pools.

    The process is not forked, so it does not inherit the learner's threads and CUDA state.
    """

    def __init__(self, hosts: Sequence[HostInWorker]) -> None:
        self.hosts = set(hosts)  # in use
        self._cause = ""  # reason if it was killed
        sockets = list(itertools.chain(*(host.inherited for host in hosts)))
        descriptors = [each.fileno() for each in sockets]
        descriptors += [host.job["memory"] for host in hosts]
        with contextlib.ExitStack() as closing, _blocked_signals():
            for each in sockets:
                closing.enter_context(each)
            self._process = subprocess.Popen(
                # -P: the working directory is not added to the import path.
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "pac4sac.tasks.worker",
                    json.dumps([host.job for host in hosts]),
                ],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": import_path()},
            )
        for host in hosts:
            host.process = self

    def wait_for_end(self) -> str:
        """Wait until the process has ended, kill it after a while, and return how it ended."""
        try:
            status = self._process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if self._cause:
            return self._cause
        if status < 0:
            return f"by signal {signal.Signals(-status).name}"
        return f"with exit status {status}"

    def kill(self, cause: str) -> None:
        """Kill the process for a reason."""
        self._cause = cause
        self._process.kill()


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block signals inside a `with` block; processes started there keep them blocked.

    Ctrl-C, a closed terminal or the warning of a cluster then reaches only the pool's process,
    which ends the workers.
    """
    blocked = {signal.SIGINT, signal.SIGHUP, *WARNINGS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class WorkerGroup:
    """Manage the worker processes of one pool or of several interleaved pools."""

    def __init__(self, size: int) -> None:
        self.size, self._assigned = size, 0
        self.hosts: list[list[HostInWorker]] = [[] for _ in range(size)]  # by worker

    def assign(self, runs: int) -> Iterator[tuple[int, list[int]]]:
        """Yield the workers of the next pool, each with its runs.

        Runs are assigned in turn, starting after those of the previous pool, so all workers get
        about the same number.
        """
        workers = [(self._assigned + run) % self.size for run in range(runs)]
        self._assigned += runs
        for worker in dict.fromkeys(workers):
            yield worker, [run for run in range(runs) if workers[run] == worker]

    def start(self) -> None:
        """Start the processes, once all pools have their workers."""
        for hosts in self.hosts:
            WorkerProcess(hosts)


Host = HostInProcess | HostInWorker


def close_hosts(hosts: list[Host], memory: int | None) -> None:
    """Close the environments of a pool, and end the processes that no other pool uses."""
    for host in hosts:
        host.end()
    for host in hosts:
        if not host.shared:
            host.wait_for_end()
    hosts.clear()
    if memory is not None:
        os.close(memory)


# --- the worker process


class Service:
    """Do the work of this process for one pool."""

    def __init__(self, job: dict[str, Any], heartbeat: Callable[[], None]) -> None:
        # Child processes of an environment must not keep the sockets open.
        for name in ("requests", "channel", "memory"):
            os.set_inheritable(job[name], False)
        layout = board_layout(*job["shape"])
        board = np.ndarray((), layout, buffer=mmap.mmap(job["memory"], layout.itemsize))
        task, purpose, index = Task(**job["task"]), job["purpose"], job["seeds"][0][0]
        self.environments = {
            run: RunEnvironment(task, run, seed, purpose, board, heartbeat)
            for run, seed in job["seeds"]
        }
        self.heartbeats = cell(board, "heartbeats", index)
        self.notifier = Notifier(socket.socket(fileno=job["channel"]), board, index, "worker")
        self._request_socket = socket.socket(fileno=job["requests"])
        self._requests, self._opened = cell(board, "requests", index), 0
        self._worked = board["worked"][index : index + 1]

    def answer(self) -> None:
        """Begin an episode if the pool requested it; otherwise step all runs."""
        if self._requests[0] > self._opened:
            self._opened += 1
            run, episode, size = EPISODE_REQUEST.unpack(
                receive(self._request_socket, EPISODE_REQUEST.size)
            )
            self.environments[run].begin(episode, receive(self._request_socket, size))
        else:
            started = time.perf_counter()
            for environment in self.environments.values():
                environment.step()
            self._worked[0] += time.perf_counter() - started
        self.notifier.notify()

    def close(self) -> None:
        """Close all environments."""
        for environment in self.environments.values():
            environment.close()


def serve(services: dict[Notifier, Service]) -> None:
    """Answer all pools until each of them has closed its end or died."""
    while services:
        notifier = wait(list(services))
        service = services.pop(notifier)
        try:
            if notifier.is_ready():
                service.answer()
                services[notifier] = service  # moved to the end, because the others may be waiting
                continue
        except OSError:  # the pool ended during a command
            pass
        service.close()


def receive(channel: socket.socket, size: int) -> bytes:
    """Return exactly this number of bytes from a socket."""
    data = channel.recv(size, socket.MSG_WAITALL) if size else b""
    if len(data) < size:
        raise ConnectionError
    return data


def main(jobs: list[dict[str, Any]]) -> None:
    """Work for one or several pools until they end."""
    # A closed socket ends an idle worker; this also ends a worker that hangs in its simulator.
    end_with_parent()
    # Slurm sends this signal to all processes of a job. It is ignored and not blocked, because
    # child processes of simulators would inherit a blocked signal.
    signal.signal(signal.SIGTERM, lambda *_: None)

    def heartbeat() -> None:
        for counter in counters:
            counter[0] += 1

    services = [Service(job, heartbeat) for job in jobs]
    counters = [service.heartbeats for service in services]
    try:
        serve({service.notifier: service for service in services})
    finally:
        for service in services:
            service.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
