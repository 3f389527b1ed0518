"""EnvPool: one environment per run, stepped in lockstep, in this process or in workers over shared
memory."""

import contextlib
import json
import logging
import mmap
import os
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pac4sac.base.cores import cores
from pac4sac.base.errors import UserError
from pac4sac.base.stopping import STEP_SECONDS, StopRequest
from pac4sac.tasks.episodes import Alarm, Board, HostInProcess, board_layout
from pac4sac.tasks.registry import Task, portable, simulator_seconds, task_sizes
from pac4sac.tasks.worker import Crew, Host, HostInWorker, WorkerProcess, close_hosts

log = logging.getLogger(__name__)

# Seconds that workers cost, as seen on a virtual machine whose cores are busy with a learner too;
# idle cores do better.
ROUND_TRIP = 100e-6
ROUND_TRIP_PER_WORKER = 10e-6

Snapshot = dict[str, NDArray[Any]]


class Transitions(NamedTuple):
    """One lockstep step of all runs; the arrays are overwritten by the next receive()."""

    # [R, ds] what to act on next; after the end of an episode the reset observation
    observation: NDArray[np.float32]
    final_observation: NDArray[np.float32]  # [R, ds] s' of the transition just taken
    reward: NDArray[np.float64]  # [R]
    terminated: NDArray[np.bool_]  # [R]
    truncated: NDArray[np.bool_]  # [R]
    # [R] runs whose simulator failed; rows of failed and of parked runs are zeros
    failed: NDArray[np.bool_]


class EnvPool(contextlib.AbstractContextManager["EnvPool"]):
    """Steps R environments; the number of workers changes the speed and nothing else. Pools that
    take turns can share their workers (`interleaved_pools`).

    ``failures`` maps each run whose simulator failed to the cause; such a run is out, the others go
    on. A step or reset that takes longer than ``limit`` seconds is a failure.
    ``replay_mismatches`` holds runs whose replay led to another observation. After an exception out
    of send() or receive() (Ctrl-C, say, or Stopped while simulators hang) only close() is
    meaningful."""

    def __init__(
        self,
        task: Task,
        seeds: Sequence[int],
        workers: int | Literal["auto"] | Crew = 0,
        purpose: str = "train",
        limit: int = STEP_SECONDS,
        stop: StopRequest | None = None,
    ) -> None:
        if not len(seeds) or min(seeds) < 0:
            raise UserError("A pool needs one seed per run, none of them negative.")
        self.task, self.seeds, self.runs = task, [int(seed) for seed in seeds], len(seeds)
        self.failures: dict[int, str] = {}
        self.replay_mismatches: set[int] = set()
        self._stop = stop
        # tells the user at once what cannot work
        self.observation_size, self.action_size = task_sizes(task)
        crew = workers
        if not isinstance(crew, Crew):
            crew = Crew(settle_workers(task, [self.runs], crew))
        self.workers = crew.size

        # steps taken in the present episode
        self._episode, self._steps = np.zeros((2, self.runs), np.int64)
        # the actions of those steps
        self._history = np.zeros((self.runs, 1024, self.action_size), np.float32)
        self._each_run = np.arange(self.runs)
        self._state: Literal["new", "idle", "stepping", "closed"] = "new"

        shape = (self.runs, self.observation_size, self.action_size)
        layout = board_layout(*shape)
        self._hosts: list[Host] = []
        if self.workers:
            memory = _anonymous_memory(layout.itemsize)
            self._closing = weakref.finalize(self, close_hosts, self._hosts, memory)
            self._board: Board = np.ndarray((), layout, buffer=mmap.mmap(memory, layout.itemsize))
            self._job: dict[str, Any] = {
                "task": portable(task),
                "purpose": purpose,
                "seeds": self.seeds,
                "shape": shape,
                "memory": memory,
                "limit": limit,
            }
            self._join(crew)
            if crew is not workers:
                crew.start()
        else:
            self._closing = weakref.finalize(self, close_hosts, self._hosts, None)
            self._board = np.zeros((), layout)
            alarm = Alarm(limit, stop)
            self._hosts.append(HostInProcess(task, self.seeds, purpose, self._board, alarm))

        # The caller sees a copy, because simulators write the board while the learner reads.
        seen = np.zeros((), layout)
        self._seen_bytes, self._board_bytes = (
            array.reshape(1).view(np.uint8) for array in (seen, self._board)
        )
        self._seen = Transitions(*(seen[name] for name in Transitions._fields))
        self._active, self._failed, self._action = (
            self._board[name] for name in ("active", "failed", "action")
        )
        self._rows = [self._board[name] for name in Transitions._fields if name != "failed"]
        self._numbers = [rows for rows in self._rows if rows.dtype != np.bool_]
        self._active[:] = True

    def _join(self, crew: Crew) -> None:
        """Give the runs of this pool to the workers of a crew."""
        for worker, runs in crew.deal(self.runs):
            host = HostInWorker(self._job, runs, self._board, self._stop)
            self._hosts.append(host)
            crew.hosts[worker].append(host)

    def reset(self, episode: int = 0) -> NDArray[np.float32]:
        """Start this episode of every run that has not failed, parked ones included."""
        self._require("new", "idle")
        self._active[:] = ~self._failed
        self._episode[:], self._steps[:] = episode, 0
        return self._start()

    def send(self, actions: NDArray[np.float32]) -> None:
        self._require("idle")
        if actions.shape != (self.runs, self.action_size):
            raise ValueError(
                f"actions have shape {actions.shape} instead of {(self.runs, self.action_size)}"
            )
        self._action[:] = actions
        self._state = "stepping"
        for host in self._hosts:
            host.step()
        # While they step: an episode is replayed from here when a worker dies.
        if self._steps.max() == self._history.shape[1]:
            self._history = np.concatenate([self._history, np.zeros_like(self._history)], axis=1)
        self._history[self._each_run, self._steps] = self._action

    def receive(self) -> Transitions:
        self._require("stepping")
        self._collect()
        self._settle()
        self._state = "idle"
        ended = self._seen.terminated | self._seen.truncated
        self._episode += ended
        self._steps += 1
        self._steps[ended | ~self._active] = 0
        return self._seen

    def worked(self) -> NDArray[np.float64]:
        """Seconds for which each worker, or this process in place of workers, has stepped since its
        start."""
        return np.array([self._board["worked"][host.runs[0]] for host in self._hosts])

    def park(self, run: int) -> None:
        """Step this run no more: it diverged, was solved or was stopped elsewhere."""
        self._active[run] = False
        self._steps[run] = 0

    def snapshot(self) -> Snapshot:
        """Where every run stands, in arrays of fixed types; ``failures`` is JSON, as bytes."""
        self._require("idle")
        actions = self._history[:, : max(1, self._steps.max())].copy()
        actions[np.arange(actions.shape[1]) >= self._steps[:, None]] = (
            0  # nothing of earlier episodes
        )
        return {
            "seed": np.array(self.seeds, np.uint64),
            "episode": self._episode.copy(),
            "steps": self._steps.copy(),
            "actions": actions,
            "observation": np.where(self._active[:, None], self._seen.observation, np.float32(0)),
            "parked": ~self._active & ~self._failed,
            "failures": np.frombuffer(json.dumps(self.failures).encode(), np.uint8).copy(),
        }

    def restore(self, snapshot: Snapshot) -> NDArray[np.float32]:
        """Replay every episode up to the snapshot; a run whose environment then shows something
        else is told of, and goes on from there."""
        self._require("new", "idle")
        if (
            snapshot["seed"].tolist() != self.seeds
            or snapshot["actions"].shape[2] != self.action_size
        ):
            raise UserError(
                f"The stored simulators are of other runs than these of task {self.task.name!r}; "
                "resume with the task and seeds that the training was started with."
            )
        failures = {
            int(run): str(cause)
            for run, cause in json.loads(snapshot["failures"].tobytes()).items()
        }
        self.failures = dict(failures)
        self._failed[:] = np.isin(self._each_run, list(failures))
        self._active[:] = ~(self._failed | snapshot["parked"])
        self._episode[:], self._steps[:] = snapshot["episode"], snapshot["steps"]
        self._history = snapshot["actions"].copy()
        observation = self._start()
        self._warn_of_mismatch(range(self.runs), snapshot["observation"])
        for run in sorted(self.failures.keys() - failures.keys()):
            seed, cause = self.seeds[run], self.failures[run]
            raise UserError(
                f"Run {run} (seed {seed}) of task {self.task.name!r} cannot be resumed: {cause}"
            )
        return observation

    def close(self) -> None:
        self._state = "closed"
        self._closing()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require(self, *states: str) -> None:
        if self._state not in states:
            raise RuntimeError(
                f"the pool is {self._state}; this call needs it {' or '.join(states)}"
            )

    def _start(self) -> NDArray[np.float32]:
        """Bring every run to the episode and step that the pool has down for it; what is observed
        there."""
        hosted = {run for host in self._hosts for run in host.runs}
        if orphans := [int(run) for run in np.flatnonzero(self._active) if run not in hosted]:
            host = HostInWorker(self._job, orphans, self._board, self._stop)
            WorkerProcess([host])
            self._hosts.append(host)
        self._replay(self._hosts)
        self._collect()
        for run in map(int, np.flatnonzero(self._board["refused"] & self._active)):
            raise UserError(
                f"{self._cause(run)} (This is what a worker process found: it sees only "
                "environments that "
                "it can import, so name the task 'module:Environment-v0', or use no workers.)"
            )
        self._settle()
        self._state = "idle"
        return self._seen.observation

    def _replay(self, hosts: Iterable[Host]) -> None:
        # In the order of runs, which goes round the hosts, so that all of them have work at once.
        host_of = {run: host for host in hosts for run in host.runs}
        for run in sorted(host_of):
            if self._active[run]:
                host_of[run].begin(
                    run, int(self._episode[run]), self._history[run, : self._steps[run]]
                )

    def _collect(self) -> None:
        """Wait until all hosts have answered, the successors of those that die meanwhile too."""
        waiting = list(self._hosts)
        while waiting:
            host = waiting.pop()
            if not host.answered():
                waiting += self._revive(host)
        for host in self._hosts:
            host.restarted = False

    def _revive(self, dead: Host) -> list[HostInWorker]:
        """Successors of a dead worker, brought to where it was; the step in flight is still on the
        board."""
        ending = dead.ending()
        self._hosts.remove(dead)
        runs = [run for run in dead.runs if self._active[run]]
        if dead.restarted and len(runs) == 1:
            self._fail(
                runs[0], f"Its worker process died twice in the same step, the last time {ending}."
            )
            return []
        log.warning(
            "The worker process of runs %s died %s; restarting it and replaying their episodes.",
            runs,
            ending,
        )
        # After a second death each run gets a process of its own: the one that kills it is out, the
        # others go on.
        groups = [[run] for run in runs] if dead.restarted or not runs else [runs]
        successors = [
            HostInWorker(self._job, group, self._board, self._stop, restarted=True)
            for group in groups
        ]
        for successor in successors:
            WorkerProcess([successor])
        self._hosts += successors
        self._replay(successors)
        if self._state == "stepping":
            self._repeat_step(successors)
        return successors

    def _repeat_step(self, hosts: Iterable[HostInWorker]) -> None:
        """Take the step in flight again, after the replay of what came before."""
        for host in hosts:
            if host.answered():
                self._warn_of_mismatch(host.runs, self._seen.observation)
                host.step()

    def _warn_of_mismatch(self, runs: Iterable[int], expected: NDArray[np.float32]) -> None:
        differs = (
            (self._board["observation"] != expected).any(axis=1) & self._active & ~self._failed
        )
        if mismatches := {run for run in runs if differs[run]}:
            self.replay_mismatches |= mismatches
            seeds = " and ".join(map(str, sorted({self.seeds[run] for run in mismatches})))
            warnings.warn(  # not logged: a study shows it
                f"{self.task.env_id} is not deterministic given its seed, or this is another "
                "machine: the same actions "
                f"led to another observation. Seed {seeds} goes on from there, not exactly as "
                "if it had never stopped.",
                stacklevel=2,
            )

    def _settle(self) -> None:
        """Take runs out whose simulator raised or left the finite numbers, then show the board to
        the caller."""
        out = ~self._active
        if out.any():
            for rows in self._rows:
                rows[out] = 0
        bad = self._failed & self._active
        for numbers in self._numbers:
            finite = np.isfinite(numbers)
            if not finite.all():
                bad |= ~finite.reshape(self.runs, -1).all(axis=1)
        if bad.any():
            for run in map(int, np.flatnonzero(bad)):
                where = (
                    f"step {self._steps[run] + (self._state == 'stepping')} of episode "
                    f"{self._episode[run]}"
                )
                nan = (
                    f"{self.task.env_id} returned an observation or reward that is not finite in "
                    f"{where}."
                )
                self._fail(run, self._cause(run) if self._failed[run] else nan)
            return self._settle()
        self._seen_bytes[:] = self._board_bytes

    def _cause(self, run: int) -> str:
        return bytes(self._board["cause"][run]).decode(errors="ignore")

    def _fail(self, run: int, cause: str) -> None:
        self.failures[run] = cause
        self._active[run], self._failed[run] = False, True


def interleaved_pools(
    task: Task,
    seeds: Sequence[Sequence[int]],
    workers: int | Literal["auto"],
    limit: int = STEP_SECONDS,
    stop: StopRequest | None = None,
) -> list[EnvPool]:
    """A pool for each list of seeds. They share workers, so that the simulators of one can work
    while another waits for its actions."""
    crew = Crew(settle_workers(task, [len(of_pool) for of_pool in seeds], workers))
    pools = [EnvPool(task, of_pool, crew, limit=limit, stop=stop) for of_pool in seeds]
    crew.start()
    return pools


def settle_workers(task: Task, runs: Sequence[int], workers: int | Literal["auto"]) -> int:
    """The number of workers of pools that take turns, each with so many runs."""
    if workers == "auto":
        workers = choose_workers(sum(runs), simulator_seconds(task), cores(), len(runs))
    if workers < 0:
        raise UserError(
            f"A pool cannot have {workers} workers; use 0 (no processes), a positive number "
            "or 'auto'."
        )
    return min(workers, sum(runs))


def choose_workers(runs: int, step_seconds: float, cores: int, pools: int = 1) -> int:
    """The number of workers with the shortest lockstep step by this account of it.

    Without workers a step takes all runs one after another. With W of them it takes the runs of the
    fullest worker, plus waking the workers and hearing from them. The fewest workers win a draw: 20
    runs on 16 cores get 10 workers of two runs each, and the learner keeps six cores. Pools that
    take turns keep all their workers busy; then the learner needs one core, and the workers have
    the others."""

    def seconds(workers: int) -> float:
        if not workers:
            return runs * step_seconds
        return -(-runs // workers) * step_seconds + ROUND_TRIP + workers * ROUND_TRIP_PER_WORKER

    best = min(range(min(runs, cores) + 1), key=seconds)
    return max(1, min(runs, cores - 1)) if best and pools > 1 else best


def _anonymous_memory(size: int) -> int:
    """A descriptor of memory that cannot leak: the kernel frees it with the last process that holds
    it."""
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("pac4sac")
    else:
        with tempfile.TemporaryFile() as file:
            memory = os.dup(file.fileno())
    os.ftruncate(memory, size)
    return memory
