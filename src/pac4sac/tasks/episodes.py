"""Environments of runs, which read actions from a board and write results to it. The board is a
structured array that they share with the pool. The same code runs in the pool's process and in
workers."""

import atexit
import contextlib
import math
import signal
import struct
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any, ClassVar, SupportsFloat, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pac4sac.base.errors import UserError
from pac4sac.base.stopping import StopRequest
from pac4sac.tasks.catalogue import Task
from pac4sac.tasks.registry import make_env

Board = NDArray[np.void]

# Request to a worker to begin an episode of a run and replay the float32 actions that follow.
EPISODE_REQUEST = struct.Struct("<iqq")  # run, episode, bytes of the actions
TICK = 1.0  # seconds between checks of a simulator that may hang


def board_layout(runs: int, observation_size: int, action_size: int) -> np.dtype[np.void]:
    """Return the layout of the board.

    The pool writes `action` and `active`; the environments write the other fields.
    """
    return np.dtype(
        [
            ("action", np.float32, (runs, action_size)),
            ("observation", np.float32, (runs, observation_size)),
            ("final_observation", np.float32, (runs, observation_size)),
            ("reward", np.float64, (runs,)),
            *[
                (name, np.bool_, (runs,))
                for name in ("terminated", "truncated", "active", "failed")
            ],
            # the environment could not be made, for a reason that the user can fix
            ("refused", np.bool_, (runs,)),
            ("cause", "S400", (runs,)),  # cause of a failure
            # Of each worker, at the index of its first run: numbers of requests, of requests that
            # begin episodes, and of answers; seconds of its steps; and which end sleeps and must be
            # woken. Heartbeats count the steps and resets that the process has begun, also for
            # other pools; they show that it does not hang.
            *[
                (name, np.int64, (runs,))
                for name in ("asked", "requests", "answered", "heartbeats")
            ],
            ("worked", np.float64, (runs,)),
            *[(name, np.bool_, (runs,)) for name in ("pool_sleeps", "worker_sleeps")],
        ],
        align=True,
    )


def simulator_seed(run_seed: int, purpose: str, episode: int) -> int:
    """Return the seed for the reset of a run's environment before an episode."""
    key = (zlib.crc32(purpose.encode()), episode)
    word = np.random.SeedSequence(run_seed, spawn_key=key).generate_state(1, np.uint32)[0]
    return int(word) >> 1  # some simulators store seeds as signed 32-bit integers


def number(reward: Any) -> float:
    """Return a reward as a float; refuse a value that is not a single number."""
    if not isinstance(reward, SupportsFloat) or np.size(cast(Any, reward)) != 1:
        raise TypeError(f"its reward is not a number: {reward!r}")
    return float(np.asarray(reward, np.float64).item())


class Alarm:
    """Interrupt a step or reset inside a `with` block if it takes too long or delays a stop.

    It only works in the main thread of the pool's process, and if the simulator returns to Python
    from time to time. An alarm that the user has set is not changed.
    """

    _inside: ClassVar["Alarm | None"] = None
    # time of the last tick; the timer runs only inside blocks, which costs less
    _ticked: ClassVar[float] = -math.inf
    _before: ClassVar[Any] = signal.SIG_DFL

    def __init__(self, limit: int, stop: StopRequest | None) -> None:
        self._limit, self._stop, self._began = limit, stop, 0.0

    def begin(self) -> None:
        """Record the start of a step or a reset."""
        self._began = time.monotonic()

    def __enter__(self) -> None:
        self.begin()
        if threading.get_ident() == threading.main_thread().ident:
            Alarm._inside = self
            if (
                self._began - Alarm._ticked > 3 * TICK
                and not signal.getitimer(signal.ITIMER_REAL)[0]
            ):
                Alarm._before, Alarm._ticked = (
                    signal.signal(signal.SIGALRM, Alarm._tick),
                    self._began,
                )
                signal.setitimer(signal.ITIMER_REAL, TICK, TICK)

    def __exit__(self, *_: object) -> None:
        if Alarm._inside is self:
            Alarm._inside = None

    @staticmethod
    def _tick(*_: object) -> None:
        Alarm._ticked = time.monotonic()
        if Alarm._inside is not None:
            return Alarm._inside._look()
        Alarm.silence()

    @staticmethod
    def silence() -> None:
        """Stop the timer, because a signal after Python's exit would kill the process."""
        if Alarm._ticked > -math.inf:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, Alarm._before or signal.SIG_DFL)
            Alarm._ticked = -math.inf

    def _look(self) -> None:
        if self._stop is not None:
            self._stop.check_patience(self._began)
        if time.monotonic() - self._began > self._limit:
            raise TimeoutError(f"it took longer than {self._limit} seconds.")


atexit.register(Alarm.silence)


class RunEnvironment:
    """Hold the environment of one run and its current episode.

    Errors of the environment are written to the board, not raised.
    """

    def __init__(
        self,
        task: Task,
        run: int,
        seed: int,
        purpose: str,
        board: Board,
        before_step: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare the environment of a run, which is made at its first episode.

        Args:
            task: The task.
            run: Number of the run on the board.
            seed: Seed of the run.
            purpose: Name that selects the random numbers together with the seed.
            board: The board.
            before_step: Function that is called before each step or reset.
        """
        self._task, self._run, self._seed, self._purpose = task, run, seed, purpose
        self._board, self._before_step = board, before_step
        self._env: gymnasium.Env[NDArray[np.float32], NDArray[np.float32]] | None = None
        self._episode = self._steps = 0
        # Fields that each step needs are looked up once.
        rows = [board[name][run] for name in ("action", "observation", "final_observation")]
        self._action, self._observation, self._final_observation = rows
        columns = [
            board[name] for name in ("reward", "terminated", "truncated", "active", "failed")
        ]
        self._reward, self._terminated, self._truncated, self._active, self._failed = columns

    def begin(self, episode: int, actions: bytes) -> None:
        """Start an episode, replay these actions, and write the last observation."""
        self._failed[self._run] = self._board["refused"][self._run] = False
        self._steps = 0
        try:
            self._before_step()
            if self._env is None:
                self._env = make_env(self._task, unit_actions=True)
            observation = self._reset(episode)
            for action in np.frombuffer(actions, np.float32).reshape(-1, len(self._action)):
                self._steps += 1
                self._before_step()
                observation = self._env.step(action.copy())[0]
            self._observation[:] = self._checked(observation)
        except (Exception, SystemExit) as problem:
            self._fail(problem)

    def step(self) -> None:
        """Take the action on the board; begin the next episode if this one has ended."""
        run = self._run
        if not self._active[run] or self._failed[run] or self._env is None:
            return
        try:
            self._steps += 1
            self._before_step()
            # A copy, because an environment may store the action while the board changes.
            observation, reward, terminated, truncated, _ = self._env.step(self._action.copy())
            self._final_observation[:] = self._checked(observation)
            self._reward[run] = reward if type(reward) is float else number(reward)
            self._terminated[run], self._truncated[run] = terminated, truncated
            if terminated or truncated:
                observation = self._checked(self._reset(self._episode + 1))
            self._observation[:] = observation
        except (Exception, SystemExit) as problem:
            self._fail(problem)

    def close(self) -> None:
        """Close the environment, and ignore its errors so that other environments are closed
        too."""
        if self._env is not None:
            with contextlib.suppress(Exception, SystemExit):
                self._env.close()

    def _reset(self, episode: int) -> NDArray[np.float32]:
        """Start an episode, and return its first observation."""
        assert self._env is not None
        self._episode, self._steps = episode, 0
        self._before_step()
        # Environments whose first episode differs must not count resets, because a replay has fewer
        # resets.
        options = (
            {"episode": episode} if getattr(self._env.unwrapped, "episode_option", False) else None
        )
        return self._env.reset(
            seed=simulator_seed(self._seed, self._purpose, episode), options=options
        )[0]

    def _checked(self, observation: Any) -> Any:
        """Refuse an observation with another shape, which NumPy could broadcast without an
        error."""
        if (shape := np.shape(observation)) != self._observation.shape:
            raise ValueError(
                f"its observation has the shape {shape} instead of {self._observation.shape}"
            )
        return observation

    def _fail(self, problem: BaseException) -> None:
        """Write the cause of a failure to the board."""
        cause = " ".join(str(problem).split())
        if self._env is None and isinstance(problem, UserError):
            self._board["refused"][self._run] = True
        else:
            moment = f"step {self._steps}" if self._steps else "the reset"
            where = f"{moment} of episode {self._episode}"
            cause = f"{self._task.env_id} raised {type(problem).__name__} in {where}: {cause}"
        self._board["cause"][self._run] = cause.encode()
        self._failed[self._run] = True


class HostInProcess:
    """Host the environments of a pool without workers; `HostInWorker` documents the methods."""

    restarted = shared = False

    def __init__(
        self, task: Task, seeds: list[int], purpose: str, board: Board, alarm: Alarm
    ) -> None:
        self.runs, self._worked, self._alarm = list(range(len(seeds))), board["worked"], alarm
        self._environments = [
            RunEnvironment(task, run, seed, purpose, board, alarm.begin)
            for run, seed in enumerate(seeds)
        ]
        self._due = False

    def begin(self, run: int, episode: int, actions: NDArray[np.float32]) -> None:
        with self._alarm:
            self._environments[run].begin(episode, actions.tobytes())

    def step(self) -> None:
        self._due = True

    def answered(self) -> bool:
        if self._due:
            self._due, started = False, time.perf_counter()
            with self._alarm:
                for environment in self._environments:
                    environment.step()
            self._worked[0] += time.perf_counter() - started
        return True

    def end(self) -> None:
        for environment in self._environments:
            environment.close()

    def wait_for_end(self) -> str:
        return "closed"
