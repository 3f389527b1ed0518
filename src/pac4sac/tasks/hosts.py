"""Where simulators live, as the pool sees it: in its own process, or in a worker process that may die."""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pac4sac.base.errors import UserError
from pac4sac.tasks.episodes import LETTER, Board, RunEnvironment
from pac4sac.tasks.registry import Task
from pac4sac.tasks.worker import Bell

PATIENCE = 1.0  # seconds a worker gets to close its environments


class LocalHost:
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


class WorkerHost:
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
        import_path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path if isinstance(entry, str))
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
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": import_path},
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
            status = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        return f"by signal {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"


Host = LocalHost | WorkerHost


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
