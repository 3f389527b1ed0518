"""Where simulators live: in the process of the pool, or in worker processes that may die; and the bell by which pool
and worker wait for each other.

A worker steps the simulators of its runs over shared memory, one command at a time. It is started as
``python -m pac4sac.tasks.worker JOB``; the job is JSON, memory and sockets are inherited descriptors.
"""

import contextlib
import ctypes
import dataclasses
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
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pac4sac.base.cores import machine_cores
from pac4sac.base.errors import UserError
from pac4sac.base.trust import import_path
from pac4sac.tasks.episodes import LETTER, Board, RunEnvironment, board_layout
from pac4sac.tasks.registry import Task

SPINS = 200  # looks at a counter before the core is offered to others, some 10 µs
LOOK_UP = 50  # milliseconds after which a sleeper looks by itself: the flag that it sleeps can cross with a ring
PR_SET_PDEATHSIG = 1
CLOSING = 1.0  # seconds a worker gets to close its environments


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
                    break
        except ConnectionError:
            pass
        finally:
            self._asleep[0] = False
        return bool(self._heard[0] >= rings)


class HostInProcess:
    second_life = False

    def __init__(self, task: Task, seeds: list[int], purpose: str, board: Board) -> None:
        self.runs = list(range(len(seeds)))
        self._environments = [RunEnvironment(task, run, seed, purpose, board) for run, seed in enumerate(seeds)]
        self._due = False

    def begin(self, run: int, episode: int, actions: NDArray[np.float32]) -> None:
        self._environments[run].begin(episode, actions.tobytes())

    def step(self) -> None:
        self._due = True

    def answered(self) -> bool:
        if self._due:
            self._due = False
            for environment in self._environments:
                environment.step()
        return True

    def end(self) -> None:
        for environment in self._environments:
            environment.close()

    def ending(self) -> str:
        return "closed"


class HostInWorker:
    """A process started afresh (no fork: the learner's threads and CUDA state stay out of it). It steps when a bell
    rings, and gets episodes to begin by letter."""

    def __init__(self, job: dict[str, Any], runs: list[int], board: Board, second_life: bool = False) -> None:
        self.runs = runs
        self.second_life = second_life  # it replaces a host that died in the present step
        self._place, self._letters = runs[0], board["letters"]
        for name in ("asked", "letters", "answered", "pool_sleeps", "worker_sleeps"):
            board[name][self._place] = 0  # a worker before this one may have died there
        self._post, their_post = socket.socketpair()
        self._channel, their_channel = socket.socketpair()
        self._bell = Bell(self._channel, board, self._place, "pool")
        job = job | {"post": their_post.fileno(), "channel": their_channel.fileno()}
        job |= {"seeds": [(run, job["seeds"][run]) for run in runs]}
        # The child inherits the mask: Ctrl-C at the terminal, or its end, reaches the pool's process alone, which ends
        # the workers.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            self._process = subprocess.Popen(
                # -P: the working directory is importable only if it is here.
                [sys.executable, "-P", "-m", "pac4sac.tasks.worker", json.dumps(job)],
                pass_fds=(job["post"], job["channel"], job["memory"]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": import_path()},
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            their_post.close()
            their_channel.close()

    def begin(self, run: int, episode: int, actions: NDArray[np.float32]) -> None:
        self._letters[self._place] += 1
        self._bell.ring()
        with contextlib.suppress(ConnectionError):  # a dead worker is noticed when its answer is missing
            self._post.sendall(LETTER.pack(run, episode, actions.nbytes) + actions.tobytes())

    def step(self) -> None:
        self._bell.ring()

    def answered(self) -> bool:
        """Wait until everything asked for is on the board; False when the worker died before."""
        return self._bell.wait(self._bell.rings)

    def end(self) -> None:
        self._post.close()
        self._channel.close()

    def ending(self) -> str:
        """See the process ended and all it held freed; tells how it ended."""
        self.end()
        try:
            status = self._process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        return f"by signal {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"


Host = HostInProcess | HostInWorker


def close_hosts(hosts: list[Host], memory: int | None) -> None:
    for host in hosts:
        host.end()
    for host in hosts:
        host.ending()
    hosts.clear()
    if memory is not None:
        os.close(memory)


def portable(task: Task) -> dict[str, Any]:
    """The task as a worker gets it."""
    description = dataclasses.asdict(task)
    try:
        json.dumps(description)
    except TypeError as problem:
        raise UserError(
            f"Task {task.name!r} has env_kwargs that cannot be sent to worker processes ({problem}); "
            "use plain numbers, strings and lists, or workers=0."
        ) from problem
    return description


# --- the worker process


def serve(bell: Bell, post: socket.socket, board: Board, environments: dict[int, RunEnvironment]) -> None:
    """Obey until the pool closes its end or dies, which reads the same here."""
    letters, worked, opened = cell(board, "letters", bell.worker), board["worked"], 0
    while bell.wait(bell.rings + 1):
        if letters[0] > opened:
            opened += 1
            run, episode, size = LETTER.unpack(receive(post, LETTER.size))
            environments[run].begin(episode, receive(post, size))
        else:
            started = time.perf_counter()
            for environment in environments.values():
                environment.step()
            worked[bell.worker] = time.perf_counter() - started
        bell.ring()


def receive(post: socket.socket, size: int) -> bytes:
    data = post.recv(size, socket.MSG_WAITALL) if size else b""
    if len(data) < size:
        raise ConnectionError
    return data


def main(job: dict[str, Any]) -> None:
    if sys.platform == "linux":
        # The closed socket ends an idle worker; this ends one that hangs inside its simulator when the pool is killed.
        # (It fires too when only the thread that started the worker ends: the pool then restarts the worker.)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for name in ("post", "channel", "memory"):  # else a process started by an environment would keep sockets open
        os.set_inheritable(job[name], False)
    layout = board_layout(*job["shape"])
    board = np.ndarray((), layout, buffer=mmap.mmap(job["memory"], layout.itemsize))
    task = Task(**job["task"])
    environments = {run: RunEnvironment(task, run, seed, job["purpose"], board) for run, seed in job["seeds"]}
    bell = Bell(socket.socket(fileno=job["channel"]), board, job["seeds"][0][0], "worker")
    with contextlib.ExitStack() as closing:
        for environment in environments.values():
            closing.callback(environment.close)
        with contextlib.suppress(OSError):  # the pool went away in the middle of a command
            serve(bell, socket.socket(fileno=job["post"]), board, environments)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
