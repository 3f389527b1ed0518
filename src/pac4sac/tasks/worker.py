"""A worker process of the pool: steps the simulators of its runs over shared memory, one command at a time.

Started as ``python -m pac4sac.tasks.worker JOB``; the job is JSON, the memory and the socket are inherited descriptors.
"""

import ctypes
import json
import mmap
import os
import select
import signal
import socket
import sys
from typing import Any

import numpy as np

from pac4sac.tasks.episodes import COMMAND, EVERY_RUN, RunEnvironment, board_layout
from pac4sac.tasks.registry import Task
from pac4sac.tasks.waiting import stay_awake, watching

PR_SET_PDEATHSIG = 1


def serve(channel: socket.socket, environments: dict[int, RunEnvironment], action_size: int) -> None:
    """Obey until the pool closes its end or dies, which reads the same here."""
    poller = watching(channel.fileno())
    while header := next_command(channel, poller):
        run, episode, steps = COMMAND.unpack(header)
        if run == EVERY_RUN:
            for environment in environments.values():
                environment.step()
        else:
            data = channel.recv(4 * steps * action_size, socket.MSG_WAITALL) if steps else b""
            environments[run].begin(episode, np.frombuffer(data, np.float32).reshape(steps, action_size))
        channel.send(b".")


def next_command(channel: socket.socket, poller: "select.poll") -> bytes:
    stay_awake(poller)
    return channel.recv(COMMAND.size, socket.MSG_WAITALL)


def main(job: dict[str, Any]) -> None:
    if sys.platform == "linux":
        # The closed socket ends an idle worker; this ends one that hangs inside its simulator when the pool is killed.
        # (It fires too when only the thread that started the worker ends: the pool then restarts the worker.)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.set_inheritable(job["channel"], False)  # else a process started by an environment would keep the socket open
    os.set_inheritable(job["memory"], False)
    layout = board_layout(job["runs"], job["observation_size"], job["action_size"])
    board = np.ndarray((), layout, buffer=mmap.mmap(job["memory"], layout.itemsize))
    task = Task(**job["task"])
    environments = {run: RunEnvironment(task, run, seed, job["purpose"], board) for run, seed in job["seeds"]}
    try:
        serve(socket.socket(fileno=job["channel"]), environments, job["action_size"])
    except OSError:
        pass  # the pool went away in the middle of a command
    finally:
        for environment in environments.values():
            environment.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
