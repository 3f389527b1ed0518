"""A pool that steps one environment per run in lockstep, in this process or in workers that share
memory."""

import contextlib
import itertools
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
from pac4sac.base.objects import needs_this_process
from pac4sac.base.stopping import STEP_SECONDS, StopRequest
from pac4sac.tasks.catalogue import Task, portable
from pac4sac.tasks.episodes import Alarm, Board, HostInProcess, board_layout
from pac4sac.tasks.registry import simulator_seconds, task_sizes
from pac4sac.tasks.worker import Host, HostInWorker, WorkerGroup, WorkerProcess, close_hosts

log = logging.getLogger(__name__)

# Seconds of overhead of workers, measured on a virtual machine whose cores also run a learner.
ROUND_TRIP = 100e-6
ROUND_TRIP_PER_WORKER = 10e-6

Snapshot = dict[str, NDArray[Any]]


class Transitions(NamedTuple):
    """Hold one lockstep step of all runs; the next receive() overwrites the arrays."""

    # [R, ds] for the next actions; after the end of an episode, the observation of the reset
    observation: NDArray[np.float32]
    final_observation: NDArray[np.float32]  # [R, ds] s' of the transition just taken
    reward: NDArray[np.float64]  # [R]
    terminated: NDArray[np.bool_]  # [R]
    truncated: NDArray[np.bool_]  # [R]
    # [R] runs whose simulator failed; rows of failed and parked runs are zeros
    failed: NDArray[np.bool_]


class EnvPool(contextlib.AbstractContextManager["EnvPool"]):
    """Step R environments; the number of workers affects only the speed.

    Interleaved pools can share workers (`interleaved_pools`). After an exception from
    send() or receive(), such as Ctrl-C or `Stopped`, only close() may be called.

    Args:
        task: The task of all runs.
        seeds: Seed of each run.
        workers: Number of worker processes, "auto", or a group that several pools share.
        purpose: Selects the random numbers of the simulators, with the seed.
        limit: Seconds after which a step or reset counts as a failure.
        stop: Request that interrupts waiting for simulators.

    Attributes:
        failures: Cause of failure by run. Failed runs are no longer stepped; the others continue.
        replay_mismatches: Runs whose replay gave another observation.
    """

    def __init__(
        self,
        task: Task,
        seeds: Sequence[int],
        workers: int | Literal["auto"] | WorkerGroup = 0,
        purpose: str = "train",
        limit: int = STEP_SECONDS,
        stop: StopRequest | None = None,
    ) -> None:
        if not len(seeds) or min(seeds) < 0:
            raise UserError("A pool needs one seed per run, and no seed may be negative.")
        self.task, self.seeds, self.runs = task, [int(seed) for seed in seeds], len(seeds)
        self.failures: dict[int, str] = {}
        self.replay_mismatches: set[int] = set()
        self._stop = stop
        # first, because it refuses unsuitable tasks
        self.observation_size, self.action_size = task_sizes(task)

        # index of the current episode, and its number of steps
        self._episode, self._steps = np.zeros((2, self.runs), np.int64)
        # actions of the current episode
        self._history = np.zeros((self.runs, 1024, self.action_size), np.float32)
        self._each_run = np.arange(self.runs)
        self._state: Literal["new", "idle", "stepping", "closed"] = "new"

        self._hosts: list[Host] = []
        if isinstance(workers, WorkerGroup):
            group = workers
        else:
            group = WorkerGroup(number_of_workers(task, [self.runs], workers))
        self.workers = group.size
        if self.workers:
            self._host_in_workers(group, purpose, limit)
            if group is not workers:  # a shared group starts when all its pools have joined
                group.start()
        else:
            self._host_in_process(purpose, limit)
        self._name_board_parts()
        self._active[:] = True

    def _host_in_process(self, purpose: str, limit: int) -> None:
        """Make the environments of all runs in this process."""
        self._closing = weakref.finalize(self, close_hosts, self._hosts, None)
        self._board: Board = np.zeros((), board_layout(*self._shape))
        alarm = Alarm(limit, self._stop)
        self._hosts.append(HostInProcess(self.task, self.seeds, purpose, self._board, alarm))

    def _host_in_workers(self, group: WorkerGroup, purpose: str, limit: int) -> None:
        """Assign the runs of this pool to the workers of a group."""
        layout = board_layout(*self._shape)
        memory = _anonymous_memory(layout.itemsize)
        self._closing = weakref.finalize(self, close_hosts, self._hosts, memory)
        self._board = np.ndarray((), layout, buffer=mmap.mmap(memory, layout.itemsize))
        self._job: dict[str, Any] = {
            "task": portable(self.task),
            "purpose": purpose,
            "seeds": self.seeds,
            "shape": self._shape,
            "memory": memory,
            "limit": limit,
        }
        for worker, runs in group.assign(self.runs):
            host = HostInWorker(self._job, runs, self._board, self._stop)
            self._hosts.append(host)
            group.hosts[worker].append(host)

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.runs, self.observation_size, self.action_size

    def _name_board_parts(self) -> None:
        """Look up the fields of the board, and of the copy that callers see, once for all steps.

        Callers see a copy, because simulators write to the board while the learner reads.
        """
        seen = np.zeros((), self._board.dtype)
        self._seen_bytes, self._board_bytes = (
            array.reshape(1).view(np.uint8) for array in (seen, self._board)
        )
        self._seen = Transitions(*(seen[name] for name in Transitions._fields))
        self._active, self._failed, self._action = (
            self._board[name] for name in ("active", "failed", "action")
        )
        self._rows = [self._board[name] for name in Transitions._fields if name != "failed"]
        self._numbers = [rows for rows in self._rows if rows.dtype != np.bool_]

    def reset(self, episode: int = 0) -> NDArray[np.float32]:
        """Start an episode of every run that has not failed, including parked ones; return [R,
        ds]."""
        self._require("new", "idle")
        self._active[:] = ~self._failed
        self._episode[:], self._steps[:] = episode, 0
        return self._start()

    def send(self, actions: NDArray[np.float32]) -> None:
        """Start a step of all runs with actions [R, da]."""
        self._require("idle")
        if actions.shape != (self.runs, self.action_size):
            raise ValueError(
                f"actions have shape {actions.shape} instead of {(self.runs, self.action_size)}"
            )
        self._action[:] = actions
        self._state = "stepping"
        for host in self._hosts:
            host.step()
        # Recorded while simulators step: if a worker dies, its episodes are replayed from these
        # actions.
        if self._steps.max() == self._history.shape[1]:
            self._history = np.concatenate([self._history, np.zeros_like(self._history)], axis=1)
        self._history[self._each_run, self._steps] = self._action

    def receive(self) -> Transitions:
        """Wait for the end of the step, and return its transitions."""
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
        """Return the seconds that each worker, or this process, has spent in steps."""
        return np.array([self._board["worked"][host.runs[0]] for host in self._hosts])

    def park(self, run: int) -> None:
        """Stop stepping a run that has ended."""
        self._active[run] = False
        self._steps[run] = 0

    def snapshot(self) -> Snapshot:
        """Return the state of every run as arrays of fixed types; `failures` is JSON in bytes."""
        self._require("idle")
        actions = self._history[:, : max(1, self._steps.max())].copy()
        is_older = np.arange(actions.shape[1]) >= self._steps[:, None]
        actions[is_older] = 0  # actions of earlier episodes
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
        """Replay every episode up to a snapshot.

        If an environment then returns another observation, its run continues from there, with a
        warning.

        Returns:
            The observations [R, ds].

        Raises:
            UserError: If the snapshot belongs to other runs, or a simulator fails during its
                replay.
        """
        self._require("new", "idle")
        if (
            snapshot["seed"].tolist() != self.seeds
            or snapshot["actions"].shape[2] != self.action_size
        ):
            raise UserError(
                "The stored simulators do not belong to these runs of task "
                f"{self.task.name!r}; resume with the task and seeds of the original training."
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
        """Close all environments, and end workers that no other pool uses."""
        self._state = "closed"
        self._closing()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require(self, *states: str) -> None:
        if self._state not in states:
            raise RuntimeError(
                f"the pool is {self._state}, but for this call it must be {' or '.join(states)}"
            )

    def _start(self) -> NDArray[np.float32]:
        """Replay every run up to its current episode and step, and return the observations."""
        if orphans := self._runs_without_host():
            self._start_workers([orphans])
        self._replay(self._hosts)
        self._collect()
        for run in map(int, np.flatnonzero(self._board["refused"] & self._active)):
            raise UserError(
                f"{self._cause(run)} (A worker process raised this error. Workers can only "
                "import environments by name: use 'module:Environment-v0' as the task, or set "
                "workers=0.)"
            )
        self._settle()
        self._state = "idle"
        return self._seen.observation

    def _runs_without_host(self) -> list[int]:
        """Return the active runs whose worker has died."""
        hosted = itertools.chain(*(host.runs for host in self._hosts))
        return sorted(set(np.flatnonzero(self._active).tolist()).difference(hosted))

    def _start_workers(
        self, groups: Sequence[list[int]], *, restarted: bool = False
    ) -> list[HostInWorker]:
        """Start and return a worker for each group of runs."""
        hosts = [
            HostInWorker(self._job, runs, self._board, self._stop, restarted) for runs in groups
        ]
        for host in hosts:
            WorkerProcess([host])
        self._hosts += hosts
        return hosts

    def _replay(self, hosts: Iterable[Host]) -> None:
        """Make hosts replay the current episodes of their runs."""
        # In the order of runs. Runs are assigned to hosts in turn, so all hosts work at the same
        # time.
        host_of = {run: host for host in hosts for run in host.runs}
        for run in sorted(host_of):
            if self._active[run]:
                host_of[run].begin(
                    run, int(self._episode[run]), self._history[run, : self._steps[run]]
                )

    def _collect(self) -> None:
        """Wait until all hosts have answered, and restart hosts that die meanwhile."""
        waiting = list(self._hosts)
        while waiting:
            host = waiting.pop()
            if not host.answered():
                waiting += self._revive(host)
        for host in self._hosts:
            host.restarted = False

    def _revive(self, dead: Host) -> list[HostInWorker]:
        """Replace a dead worker with new workers, which replay its episodes up to this step.

        After a second death in the same step, each run gets its own process. Only the run that
        kills its process again fails; the others continue.

        Returns:
            The new workers; empty if the only run of the dead worker fails.
        """
        ending = dead.wait_for_end()
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
        groups = [[run] for run in runs] if dead.restarted or not runs else [runs]
        successors = self._start_workers(groups, restarted=True)
        self._replay(successors)
        if self._state == "stepping":
            self._repeat_step(successors)
        return successors

    def _repeat_step(self, hosts: Iterable[HostInWorker]) -> None:
        """Repeat the current step after a replay; its actions are still on the board."""
        for host in hosts:
            if host.answered():
                self._warn_of_mismatch(host.runs, self._seen.observation)
                host.step()

    def _warn_of_mismatch(self, runs: Iterable[int], expected: NDArray[np.float32]) -> None:
        """Warn of runs whose replay gave another observation than expected."""
        differs = (
            (self._board["observation"] != expected).any(axis=1) & self._active & ~self._failed
        )
        if mismatches := {run for run in runs if differs[run]}:
            self.replay_mismatches |= mismatches
            seeds = " and ".join(map(str, sorted({self.seeds[run] for run in mismatches})))
            warnings.warn(  # a warning, not a log message, because studies show warnings
                f"{self.task.env_id} is not deterministic given its seed, or this machine "
                f"differs: the same actions gave another observation. Seed {seeds} continues "
                "from that observation, so its results can differ from those of an uninterrupted "
                "run.",
                stacklevel=2,
            )

    def _settle(self) -> None:
        """Remove runs that failed or have a non-finite number, then copy the board."""
        bad = self._failed & self._active
        self._clear_inactive_rows()
        for numbers in self._numbers:
            finite = np.isfinite(numbers)
            if not finite.all():
                bad |= ~finite.reshape(self.runs, -1).all(axis=1)
        if bad.any():
            for run in np.flatnonzero(bad).tolist():
                self._fail(run, self._cause(run) if self._failed[run] else self._not_finite(run))
            self._clear_inactive_rows()
        self._seen_bytes[:] = self._board_bytes

    def _clear_inactive_rows(self) -> None:
        """Set the rows of failed and parked runs to zero."""
        inactive = ~self._active
        if inactive.any():
            for rows in self._rows:
                rows[inactive] = 0

    def _not_finite(self, run: int) -> str:
        """Describe the failure of a run with a non-finite number."""
        step = self._steps[run] + (self._state == "stepping")
        return (
            f"{self.task.env_id} returned an observation or reward that is not finite in "
            f"step {step} of episode {self._episode[run]}."
        )

    def _cause(self, run: int) -> str:
        """Return the cause of a failure that a simulator wrote on the board."""
        return bytes(self._board["cause"][run]).decode(errors="ignore")

    def _fail(self, run: int, cause: str) -> None:
        self.failures[run] = cause
        self._active[run], self._failed[run] = False, True


def snapshot_of_run(snapshot: Snapshot, run: int) -> Snapshot:
    """Return the part of a snapshot that belongs to one run, without its failure."""
    own = {name: array[run : run + 1] for name, array in snapshot.items() if name != "failures"}
    return own | {"failures": np.frombuffer(b"{}", np.uint8).copy()}


def interleaved_pools(
    task: Task,
    seeds: Sequence[Sequence[int]],
    workers: int | Literal["auto"],
    limit: int = STEP_SECONDS,
    stop: StopRequest | None = None,
) -> list[EnvPool]:
    """Return a pool for each list of seeds.

    The pools share workers, so the simulators of one pool work while another waits for actions.
    """
    group = WorkerGroup(number_of_workers(task, [len(of_pool) for of_pool in seeds], workers))
    pools = [EnvPool(task, of_pool, group, limit=limit, stop=stop) for of_pool in seeds]
    group.start()
    return pools


def number_of_workers(task: Task, runs: Sequence[int], workers: int | Literal["auto"]) -> int:
    """Return the number of workers for interleaved pools.

    Args:
        task: Task of the pools.
        runs: Number of runs of each pool.
        workers: Requested number, or "auto".
    """
    check_workers(task, workers)
    if needs_this_process(task.code_names):
        return 0
    if workers == "auto":
        workers = choose_workers(sum(runs), simulator_seconds(task), cores(), len(runs))
    if workers < 0:
        raise UserError(
            f"workers must be 0 (no processes), a positive whole number or 'auto', not {workers}."
        )
    return min(workers, sum(runs))


def check_workers(task: Task, workers: int | Literal["auto"]) -> None:
    """Refuse worker processes for an environment that they cannot import."""
    if workers not in (0, "auto") and needs_this_process(task.code_names):
        raise UserError(
            f"Worker processes cannot import the environment of {task.name}, which is defined in "
            "a script, notebook or function. Move it to a module, or omit workers."
        )


def lockstep_seconds(runs: int, step_seconds: float, workers: int) -> float:
    """Return the estimated time in which the simulators of all runs take a step.

    Args:
        runs: Number of runs.
        step_seconds: Time of one simulator's step.
        workers: Number of workers; 0 for this process.
    """
    if not workers:
        return runs * step_seconds
    return -(-runs // workers) * step_seconds + ROUND_TRIP + workers * ROUND_TRIP_PER_WORKER


def choose_workers(runs: int, step_seconds: float, cores: int, pools: int = 1) -> int:
    """Return the number of workers with the shortest estimated lockstep step.

    Without workers, a step takes the time of all runs. With W of them it takes the time of the
    worker with the most runs, plus the communication. If estimates are equal, the smallest number
        is chosen: 20 runs on 16 cores get 10 workers with two runs each, and the learner gets six
            cores.
    Interleaved pools keep all their workers busy, so the learner gets one core.

    Args:
        runs: Number of runs of all pools.
        step_seconds: Time of one simulator's step.
        cores: Number of cores.
        pools: Number of interleaved pools.
    """

    def seconds(workers: int) -> float:
        return lockstep_seconds(runs, step_seconds, workers)

    best = min(range(min(runs, cores) + 1), key=seconds)
    return max(1, min(runs, cores - 1)) if best and pools > 1 else best


def _anonymous_memory(size: int) -> int:
    """Return a descriptor of memory that the kernel frees with the last process that uses it."""
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("pac4sac")
    else:
        with tempfile.TemporaryFile() as file:
            memory = os.dup(file.fileno())
    os.ftruncate(memory, size)
    return memory
