"""A worker process of the pool: steps the simulators of its runs over shared memory, one command at a time.

Started as ``python -m pac4sac.tasks.worker JOB``; the job is JSON, memory and sockets are inherited descriptors.
"""

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import time
from typing import Any

import numpy as np

from pac4sac.tasks.episodes import LETTER, Board, RunEnvironment, board_layout
from pac4sac.tasks.registry import Task
from pac4sac.tasks.waiting import Bell, cell

PR_SET_PDEATHSIG = 1


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
    try:
        serve(bell, socket.socket(fileno=job["post"]), board, environments)
    except OSError:
        pass  # the pool went away in the middle of a command
    finally:
        for environment in environments.values():
            environment.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
