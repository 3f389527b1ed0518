"""Worker processes that step simulators and may die, and how pool and worker wait for each other.

A worker steps the simulators of its runs over shared memory, one command at a time, for one pool or
for several that take turns. It is started as ``python -m pac4sac.tasks.worker JOBS``; a job is what
it does for one pool. Jobs are JSON, memory and sockets are inherited descriptors."""

import contextlib
import functools
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
from pac4sac.base.stopping import StopRequest, end_with_parent
from pac4sac.base.trust import import_path
from pac4sac.tasks.episodes import (
    EPISODE_REQUEST,
    Board,
    HostInProcess,
    RunEnvironment,
    board_layout,
)
from pac4sac.tasks.registry import Task

SPINS = 100  # looks at a counter before the core is offered to others, some 10 µs
# milliseconds after which a sleeper looks by itself: the flag that it sleeps can cross with a ring
LOOK_UP = 50
CLOSING = 1.0  # seconds a worker gets to close its environments


@functools.cache
def patience() -> float:
    """Return the seconds to spin before blocking. To wake a blocked process can take longer than a
    simulated step, on a virtual machine a millisecond and more; but where cores are few, the others
    need them. Only x86 guarantees that a process that sees a counter also sees what was written
    before it."""
    ordered = platform.machine().lower() in ("x86_64", "amd64")
    return 20e-3 if ordered and machine_cores() >= 4 and hasattr(os, "sched_yield") else 0.0


def cell(board: Board, name: str, worker: int) -> memoryview:
    """Return one number of the board, in a form that is read quickly."""
    data: memoryview = board[name][worker : worker + 1].data
    return data


class Notifier:
    """Notify the other end of a channel between the pool and a worker. Each end counts its messages
    on the board, where the other sees them at once, without the kernel's help. The socket wakes an
    end that sleeps, and tells when the other end is gone."""

    def __init__(
        self, channel: socket.socket, board: Board, worker: int, end: Literal["pool", "worker"]
    ) -> None:
        names = ["asked", "answered", "pool_sleeps", "worker_sleeps"]
        if end == "worker":
            names = ["answered", "asked", "worker_sleeps", "pool_sleeps"]
        self._sent, self._received, self._asleep, self._other_asleep = (
            cell(board, name, worker) for name in names
        )
        # a worker waits for the next question, a pool for the last answer
        self._lead = 1 if end == "worker" else 0
        self.worker, self.channel, self.gone = worker, channel, False

    def is_ready(self) -> bool:
        """Return whether what this end waits for has come."""
        return self._received[0] >= self._sent[0] + self._lead

    def notify(self) -> None:
        self._sent[0] += 1
        if self._other_asleep[0]:
            # notified already, or gone, which a wait will tell
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self.channel.send(b".", socket.MSG_DONTWAIT)

    def set_sleeping(self, asleep: bool) -> None:
        self._asleep[0] = asleep

    def drain(self) -> None:
        """Take what the socket has; at its end the other one is gone."""
        try:
            self.gone = not self.channel.recv(4096)
        except ConnectionError:
            self.gone = True


def wait(notifiers: Sequence[Notifier], look: Callable[[], None] | None = None) -> Notifier:
    """Return the first that is ready, or whose other end is gone; `look` is called now and then."""
    return _spin(notifiers) or _block(notifiers, look)


def _spin(notifiers: Sequence[Notifier]) -> Notifier | None:
    """Wait without sleeping, for as long as `patience` allows."""
    until = time.perf_counter() + patience()
    while patience() and time.perf_counter() < until:
        for _ in range(SPINS):
            for notifier in notifiers:
                if notifier.is_ready():
                    return notifier
        os.sched_yield()
    return None


def _block(notifiers: Sequence[Notifier], look: Callable[[], None] | None) -> Notifier:
    poller, sleeping = select.poll(), {each.channel.fileno(): each for each in notifiers}
    for descriptor in sleeping:
        poller.register(descriptor, select.POLLIN)
    for notifier in notifiers:
        notifier.set_sleeping(True)
    try:
        while True:
            for notifier in notifiers:
                if notifier.is_ready() or notifier.gone:
                    return notifier
            if look is not None:
                look()
            for descriptor, _ in poller.poll(LOOK_UP):
                sleeping[descriptor].drain()
    finally:
        for notifier in notifiers:
            notifier.set_sleeping(False)


class HostInWorker:
    """The environments that a worker steps for one pool: it is notified of each step, and gets
    requests to begin episodes through a socket."""

    process: "WorkerProcess | None" = None  # none before it is started

    def __init__(
        self,
        job: dict[str, Any],
        runs: list[int],
        board: Board,
        stop: StopRequest | None,
        restarted: bool = False,
    ) -> None:
        self.runs, self._stop = runs, stop
        self.restarted = restarted  # it replaces a host that died in the present step
        self._index, self._requests = runs[0], board["requests"]
        self._beats = cell(board, "beats", self._index)
        for name in ("asked", "requests", "answered", "beats", "pool_sleeps", "worker_sleeps"):
            board[name][self._index] = 0  # a worker before this one may have died there
        self._request_socket, their_requests = socket.socketpair()
        self._channel, their_channel = socket.socketpair()
        self._notifier = Notifier(self._channel, board, self._index, "pool")
        self.given = (their_requests, their_channel)
        self.job = job | {"requests": their_requests.fileno(), "channel": their_channel.fileno()}
        self.job |= {"seeds": [(run, job["seeds"][run]) for run in runs]}

    def begin(self, run: int, episode: int, actions: NDArray[np.float32]) -> None:
        self._requests[self._index] += 1
        self._notifier.notify()
        # a dead worker is noticed when its answer is missing
        with contextlib.suppress(ConnectionError):
            self._request_socket.sendall(
                EPISODE_REQUEST.pack(run, episode, actions.nbytes) + actions.tobytes()
            )

    def step(self) -> None:
        self._notifier.notify()

    def answered(self) -> bool:
        """Wait until everything asked for is on the board; False when the worker died before, or
        was ended because nothing came for too long."""
        if self._notifier.is_ready():
            return True
        asked = since = time.monotonic()
        beats = self._beats[0]

        def look() -> None:
            nonlocal beats, since
            if self._stop is not None:
                self._stop.check_patience(asked)
            if beats != self._beats[0]:
                beats, since = self._beats[0], time.monotonic()
            elif (
                beats and self.process is not None and time.monotonic() - since > self.job["limit"]
            ):
                self.process.end_hanging(
                    f"because a step or a reset took longer than {self.job['limit']} seconds"
                )

        return wait([self._notifier], look).is_ready()

    def end(self) -> None:
        self._request_socket.close()
        self._channel.close()
        if self.process is not None:
            self.process.hosts.discard(self)

    @property
    def shared(self) -> bool:
        """Whether the process still works for another pool."""
        return self.process is not None and bool(self.process.hosts - {self})

    def ending(self) -> str:
        """See the process ended and all it held freed; tells how it ended."""
        self.end()
        return "before it began" if self.process is None else self.process.ending()


class WorkerProcess:
    """Started afresh (no fork: the learner's threads and CUDA state stay out of it), for hosts of
    one or more pools."""

    def __init__(self, hosts: Sequence[HostInWorker]) -> None:
        self.hosts = set(hosts)  # in use
        self._cause = ""  # why it was ended
        given = [end for host in hosts for end in host.given]
        memories = [host.job["memory"] for host in hosts]
        # The child inherits the mask: Ctrl-C at the terminal, or its end, reaches the pool's
        # process alone, which ends the workers.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            self._process = subprocess.Popen(
                # -P: the working directory is importable only if it is here.
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "pac4sac.tasks.worker",
                    json.dumps([host.job for host in hosts]),
                ],
                pass_fds=(*(end.fileno() for end in given), *memories),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": import_path()},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for end in given:
                end.close()
        for host in hosts:
            host.process = self

    def ending(self) -> str:
        try:
            status = self._process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if self._cause:
            return self._cause
        return (
            f"by signal {signal.Signals(-status).name}"
            if status < 0
            else f"with exit status {status}"
        )

    def end_hanging(self, cause: str) -> None:
        self._cause = cause
        self._process.kill()


class Crew:
    """Worker processes of one pool, or of several that take turns."""

    def __init__(self, size: int) -> None:
        self.size, self._dealt = size, 0
        self.hosts: list[list[HostInWorker]] = [[] for _ in range(size)]  # by worker

    def deal(self, runs: int) -> Iterator[tuple[int, list[int]]]:
        """The runs of the next pool by worker, going on where the pool before ended: all get about
        as many."""
        workers = [(self._dealt + run) % self.size for run in range(runs)]
        self._dealt += runs
        for worker in dict.fromkeys(workers):
            yield worker, [run for run in range(runs) if workers[run] == worker]

    def start(self) -> None:
        for hosts in self.hosts:
            WorkerProcess(hosts)


Host = HostInProcess | HostInWorker


def close_hosts(hosts: list[Host], memory: int | None) -> None:
    for host in hosts:
        host.end()
    for host in hosts:
        if not host.shared:
            host.ending()
    hosts.clear()
    if memory is not None:
        os.close(memory)


# --- the worker process


class Service:
    """What this process does for one pool."""

    def __init__(self, job: dict[str, Any], beat: Callable[[], None]) -> None:
        # else a process started by an environment would keep sockets open
        for name in ("requests", "channel", "memory"):
            os.set_inheritable(job[name], False)
        layout = board_layout(*job["shape"])
        board = np.ndarray((), layout, buffer=mmap.mmap(job["memory"], layout.itemsize))
        task, purpose, index = Task(**job["task"]), job["purpose"], job["seeds"][0][0]
        self.environments = {
            run: RunEnvironment(task, run, seed, purpose, board, beat) for run, seed in job["seeds"]
        }
        self.beats = cell(board, "beats", index)
        self.notifier = Notifier(socket.socket(fileno=job["channel"]), board, index, "worker")
        self._request_socket = socket.socket(fileno=job["requests"])
        self._requests, self._opened = cell(board, "requests", index), 0
        self._worked = board["worked"][index : index + 1]

    def answer(self) -> None:
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
        for environment in self.environments.values():
            environment.close()


def serve(services: dict[Notifier, Service]) -> None:
    """Answer until each pool has closed its end or died, which reads the same here."""
    while services:
        notifier = wait(list(services))
        service = services.pop(notifier)
        try:
            if notifier.is_ready():
                service.answer()
                services[notifier] = service  # behind the others, which may wait meanwhile
                continue
        except OSError:  # the pool went away in the middle of a command
            pass
        service.close()


def receive(channel: socket.socket, size: int) -> bytes:
    data = channel.recv(size, socket.MSG_WAITALL) if size else b""
    if len(data) < size:
        raise ConnectionError
    return data


def main(jobs: list[dict[str, Any]]) -> None:
    # the closed socket ends an idle worker; this also one that hangs inside its simulator
    end_with_parent()

    def beat() -> None:
        for beats in all_beats:
            beats[0] += 1

    services = [Service(job, beat) for job in jobs]
    all_beats = [service.beats for service in services]
    try:
        serve({service.notifier: service for service in services})
    finally:
        for service in services:
            service.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
