"""Training of a study's cohorts on a Ray cluster, without a shared file system.

Each cohort is a Ray task. It trains in a temporary folder of its node and sends each checkpoint to
a keeper on the driver's node. The study folder is therefore the same as after local training. If a
node is lost, its cohorts continue on other nodes.
"""

import contextlib
import importlib.util
import json
import logging
import os
import platform
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pac4sac.base.cores import SHARE
from pac4sac.base.errors import UserError, how_to_install
from pac4sac.base.stopping import StopRequest
from pac4sac.base.trust import allow, trusted
from pac4sac.base.version import __version__
from pac4sac.runs.reading import read_experiment
from pac4sac.studies.attempts import LOSSES, checkpoints, got_on
from pac4sac.studies.local import CORES_PER_COHORT
from pac4sac.studies.plan import PlannedCohort
from pac4sac.studies.ray.remote_cohort import FolderKeeper, train_remotely
from pac4sac.studies.watcher import Watcher
from pac4sac.training.experiment import alone_in

POLL = 0.5  # seconds
WRITERS = 8  # threads of the keeper


def run_on_ray(
    cohorts: Sequence[PlannedCohort], address: str, stop: StopRequest, watcher: Watcher
) -> list[str]:
    """Train all cohorts to their end, or until a stop. A failure does not stop other cohorts.

    Args:
        cohorts: Cohorts whose experiment folders exist.
        address: Address of the cluster, from `cluster_address`.
        stop: Request that makes the cohorts write a checkpoint and end.
        watcher: Object that is informed of progress and outcomes.

    Returns:
        A sentence for every cohort that failed.
    """
    with contextlib.ExitStack() as leaving:
        for cohort in cohorts:
            leaving.enter_context(alone_in(cohort.folder))
        ray = leaving.enter_context(_connected(address))
        return _Dispatch(ray, cohorts, watcher).run(stop)


class _Dispatch:
    """Submit cohorts to the cluster, and resubmit lost cohorts, until all have ended."""

    def __init__(self, ray: ModuleType, cohorts: Sequence[PlannedCohort], watcher: Watcher) -> None:
        self.ray, self.cohorts, self.watcher = ray, cohorts, watcher
        self.needs = [_needs(ray, cohort) for cohort in cohorts]
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        remote_keeper = ray.remote(num_cpus=0, max_concurrency=WRITERS, scheduling_strategy=here)(
            FolderKeeper
        )
        self.keeper = remote_keeper.remote([str(cohort.folder.resolve()) for cohort in cohorts])
        self.active: dict[Any, int] = {}  # task -> cohort that it trains
        self.started: set[int] = set()
        self.losses: list[list[str]] = [[] for _ in cohorts]  # newest checkpoint at each loss
        self.failures: list[str] = []

    def run(self, stop: StopRequest) -> list[str]:
        """Train all cohorts to their end, or until a stop, and return the failures."""
        for number in range(len(self.cohorts)):
            self._submit(number)
        try:
            while self.active:
                tasks = list(self.active)
                done, _ = self.ray.wait(tasks, num_returns=len(tasks), timeout=POLL)
                self._report_progress(stop)
                for task in done:
                    self._collect(task, stop.wanted)
                if stop.wanted:
                    self._cancel_waiting()
        except self.ray.exceptions.RayActorError as error:
            raise UserError(
                "The process that writes the cluster's results on this machine has died "
                f"({error}); run the study again to continue."
            ) from error
        return self.failures

    def _report_progress(self, stop: StopRequest) -> None:
        """Report the steps of all cohorts; the keeper forwards a stop to them."""
        news = self.ray.get(self.keeper.news.remote(stop.wanted))
        for number, (step, steps) in news.items():
            self.started.add(number)
            self.watcher.progress(self.cohorts[number], step, steps)

    def _cancel_waiting(self) -> None:
        """Cancel the tasks that have not started; the others end after a checkpoint."""
        for task, number in self.active.items():
            if number not in self.started:
                self.ray.cancel(task)

    def _submit(self, number: int) -> None:
        """Submit a new attempt at a cohort."""
        attempt = self.ray.get(self.keeper.lend.remote(number))
        # Each task gets a new process, so threads and compiled code do not carry over to the next
        # task.
        remote = self.ray.remote(max_retries=0, max_calls=1, **self.needs[number])(_train)
        self.started.discard(number)
        cpus = self.needs[number]["num_cpus"]
        task = remote.remote(self.keeper, number, attempt, __version__, cpus, trusted())
        self.active[task] = number

    def _collect(self, task: Any, stopping: bool) -> None:
        """Record the outcome of a task that has ended, or resubmit its cohort if it was lost."""
        number = self.active.pop(task)
        outcome, reason = self._outcome(task)
        if outcome != "lost":
            self._end(number, outcome, reason)
        elif stopping:
            self._end(number, "stopped")
        elif self._gets_on(number):
            self._submit(number)
        else:
            self._end(number, "failed", f"lost {LOSSES} times without progress ({reason})")

    def _gets_on(self, number: int) -> bool:
        """Record a loss of a cohort; return whether it made progress between losses."""
        newest = [path.name for path in checkpoints(self.cohorts[number].folder)[:1]]
        self.losses[number].append("".join(newest))
        return got_on(self.losses[number])

    def _end(self, number: int, outcome: str, reason: str = "") -> None:
        """Record the outcome of a cohort, with the reason if it failed."""
        cohort = self.cohorts[number]
        if outcome != "failed":
            self.watcher.ended(cohort, outcome, "")
            return
        self.watcher.ended(cohort, outcome, reason)
        self.failures.append(f"{cohort.title}: {reason}")

    def _outcome(self, task: Any) -> tuple[str, str]:
        """Return the outcome of a task (complete, stopped, failed or lost) and the reason."""
        errors = self.ray.exceptions
        try:
            outcome, reason = self.ray.get(task)
            return outcome, reason
        except errors.TaskCancelledError:
            return "stopped", ""
        except errors.RayTaskError as error:
            cause: Any = error
            while isinstance(cause, errors.RayTaskError):  # the keeper's inside the task's
                cause = cause.cause
            lost = isinstance(cause, errors.RayError)  # on its way to the keeper
            return "lost" if lost else "failed", f"{type(cause).__name__}: {cause}"
        except errors.RayError as error:  # its node or worker is lost
            return "lost", type(error).__name__


def _train(
    keeper: Any, cohort: int, attempt: int, version: str, cpus: int, modules: list[str]
) -> tuple[str, str]:
    """Train a cohort as a Ray task, with the import permissions of the driver."""
    if __version__ != version:
        here = f"{platform.node()} has pac4sac {__version__}"
        return "failed", f"{here}, but the driver has {version}; install the same version on both."

    def ask(what: str, *arguments: Any) -> Any:
        # Not ray.get, during which Ray would give the task's CPUs to another task.
        return keeper.ask.remote(cohort, attempt, what, *arguments).future().result()

    os.environ[SHARE] = str(cpus)
    allow(modules)
    with tempfile.TemporaryDirectory(prefix="pac4sac-") as folder:
        return train_remotely(Path(folder), ask)


def cluster_address(wanted: str | None) -> str:
    """Return the address of the cluster after a check that it can be used.

    Args:
        wanted: HOST:PORT, "auto" or "local"; None for RAY_ADDRESS or, if unset, "local".

    Returns:
        The address; for "local" Ray starts a cluster on this machine.

    Raises:
        UserError: If Ray is not installed, or no cluster answers.
    """
    chosen = wanted or os.environ.get("RAY_ADDRESS") or "local"
    if chosen.startswith("ray://"):
        raise UserError(
            "Results cannot be returned over ray://; add this machine to the cluster with ray "
            "start --address=HOST:PORT."
        )
    if chosen not in ("auto", "local"):
        _check_answers(chosen)
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            f"The engine ray needs Ray; {how_to_install('ray')}, or use --engine local."
        )
    return chosen


def _check_answers(address: str) -> None:
    """Raise an error if no server listens at an address, because Ray itself would retry for
    minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, ValueError, OverflowError):
        raise UserError(
            f"No Ray cluster answers at {address}; give HOST:PORT of its head node, such as "
            f"10.0.0.1:6379."
        ) from None


@contextlib.contextmanager
def _connected(address: str) -> Iterator[ModuleType]:
    """Connect to a cluster inside a `with` block; yield Ray's module."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    import ray.util.scheduling_strategies

    dashboard = False if address == "local" else None  # a running cluster has its own setting
    try:
        ray.init(
            address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"This machine is not a node of a Ray cluster at {address} ({error}); start one with "
            f"ray start."
        ) from error
    for number, handler in handlers.items():
        signal.signal(number, handler)  # Ray replaces the handlers, but a stop must reach the study
    try:
        yield ray
    finally:
        ray.shutdown()


def _needs(ray: ModuleType, cohort: PlannedCohort) -> dict[str, Any]:
    """Return the CPUs, GPUs and memory that the scheduler reserves for a cohort.

    Raises:
        UserError: If no node of the cluster has these.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = _gpus(cohort, nodes)
    cpus = _most_cpus(nodes, {"CPU": 1, "GPU": gpus, "memory": cohort.bytes})
    if cpus == 0:
        raise UserError(
            f"{cohort.title} needs a CPU, {cohort.bytes / 1e9:.1f} GB of "
            f"memory{' and a GPU' if gpus else ''}, but no node of the cluster has these "
            "resources; plan "
            "smaller cohorts with --memory, or add a node."
        )
    return {"num_cpus": min(CORES_PER_COHORT, cpus), "num_gpus": gpus, "memory": cohort.bytes}


def _most_cpus(nodes: Sequence[Mapping[str, float]], needed: Mapping[str, float]) -> int:
    """Return the largest number of CPUs among nodes with the needed resources; 0 if there are
    none."""
    return max((int(node["CPU"]) for node in nodes if _has(node, needed)), default=0)


def _gpus(cohort: PlannedCohort, nodes: Sequence[Mapping[str, float]]) -> int:
    """Return 1 if a cohort gets a GPU, otherwise 0. With device auto, it gets a GPU if the cluster
    has any."""
    device = _device(cohort)
    if device == "auto":
        return int(any(_has(node, {"GPU": 1}) for node in nodes))
    return int(device != "cpu")


def _has(node: Mapping[str, float], needed: Mapping[str, float]) -> bool:
    """Return whether a node has enough of every needed resource."""
    return all(node.get(name, 0) >= amount for name, amount in needed.items())


def _device(cohort: PlannedCohort) -> str:
    """Return the device on which a cohort was started, or the requested one for a new cohort."""
    for newest in checkpoints(cohort.folder)[:1]:
        # A damaged checkpoint is reported by the task, or another one is used.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads((newest / "progress.json").read_bytes())["placement"]["device"])
    return str(read_experiment(cohort.folder)["options"]["device"])
