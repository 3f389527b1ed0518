"""Training the cohorts of a study on a Ray cluster, without a shared file system.

Each cohort is a Ray task. It trains in a temporary folder of its node and sends each checkpoint to
a keeper on the driver's node, so that the study folder is as after local training, and a cohort
whose node is lost goes on elsewhere."""

import contextlib
import importlib.util
import json
import logging
import os
import platform
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pac4sac.base.cores import SHARE
from pac4sac.base.errors import UserError, how_to_install
from pac4sac.base.stopping import StopRequest
from pac4sac.base.trust import allow, trusted
from pac4sac.base.version import __version__
from pac4sac.runs.reading import read_experiment
from pac4sac.studies.local import CORES_PER_COHORT
from pac4sac.studies.plan import PlannedCohort
from pac4sac.studies.ray.remote_cohort import FolderKeeper, checkpoints, train_remotely
from pac4sac.studies.watcher import Watcher
from pac4sac.training.experiment import alone_in

POLL = 0.5  # seconds
LOSSES = (
    5  # of a cohort without a new checkpoint between them; then its worker does not die by chance
)
WRITERS = 8  # threads of the keeper


def run_on_ray(
    cohorts: Sequence[PlannedCohort], address: str, stop: StopRequest, watcher: Watcher
) -> list[str]:
    """Train all cohorts to their end, or until a stop; returns what failed, which leaves the others
    going. `address` is one that `cluster_address` gave."""
    with contextlib.ExitStack() as leaving:
        for cohort in cohorts:
            leaving.enter_context(alone_in(cohort.folder))
        ray = leaving.enter_context(_connected(address))
        return _Dispatch(ray, cohorts, watcher).run(stop)


class _Dispatch:
    """Hands cohorts out to the cluster, again where one is lost, until all have ended."""

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
        self.active: dict[Any, int] = {}  # cohorts by the task that trains them
        self.started: set[int] = set()
        self.losses: list[list[str]] = [[] for _ in cohorts]  # the newest checkpoint at each loss
        self.failures: list[str] = []

    def run(self, stop: StopRequest) -> list[str]:
        """What failed."""
        for number in range(len(self.cohorts)):
            self._hand_out(number)
        try:
            while self.active:
                done, _ = self.ray.wait(
                    list(self.active), num_returns=len(self.active), timeout=POLL
                )
                for number, (step, steps) in self.ray.get(
                    self.keeper.news.remote(stop.wanted)
                ).items():
                    self.started.add(number)
                    self.watcher.progress(self.cohorts[number], step, steps)
                for task in done:
                    self._take_back(task, stop.wanted)
                if stop.wanted:
                    for task, number in self.active.items():
                        if number not in self.started:
                            self.ray.cancel(task)
        except self.ray.exceptions.RayActorError as error:
            raise UserError(
                f"The process that writes the cluster's results here has ended ({error}); run "
                "the study again to go on."
            ) from error
        return self.failures

    def _hand_out(self, number: int) -> None:
        attempt = self.ray.get(self.keeper.lend.remote(number))
        # A fresh process for each: threads and compiled code of one cohort stay out of the next.
        remote = self.ray.remote(max_retries=0, max_calls=1, **self.needs[number])(_train)
        self.started.discard(number)
        cpus = self.needs[number]["num_cpus"]
        self.active[remote.remote(self.keeper, number, attempt, __version__, cpus, trusted())] = (
            number
        )

    def _take_back(self, task: Any, stopping: bool) -> None:
        number = self.active.pop(task)
        cohort = self.cohorts[number]
        outcome, reason = self._outcome(task)
        if outcome == "lost" and stopping:
            outcome = "stopped"
        if outcome == "lost":
            self.losses[number].append(
                "".join(newest.name for newest in checkpoints(cohort.folder)[:1])
            )
            if got_on(self.losses[number]):
                self._hand_out(number)
                return
            outcome, reason = "failed", f"lost {LOSSES} times without getting on ({reason})"
        self.watcher.ended(cohort, outcome, reason if outcome == "failed" else "")
        if outcome == "failed":
            self.failures.append(f"{cohort.title}: {reason}")

    def _outcome(self, task: Any) -> tuple[str, str]:
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
        except errors.RayError as error:  # its node, its worker or its place in the cluster is gone
            return "lost", type(error).__name__


def got_on(losses: Sequence[str]) -> bool:
    """Whether a cohort with these checkpoints at its losses is still lost by chance."""
    return len(losses) < LOSSES or len(set(losses[-LOSSES:])) > 1


def _train(
    keeper: Any, cohort: int, attempt: int, version: str, cpus: int, modules: list[str]
) -> tuple[str, str]:
    """The Ray task, which may import what the driver may."""
    if __version__ != version:
        here = f"{platform.node()} has pac4sac {__version__}"
        return "failed", f"{here}, and the driver has {version}; install the same on both."

    def ask(what: str, *arguments: Any) -> Any:
        # Not ray.get: while a task waits in it, Ray lends the task's CPUs to another.
        return keeper.ask.remote(cohort, attempt, what, *arguments).future().result()

    os.environ[SHARE] = str(cpus)
    allow(modules)
    with tempfile.TemporaryDirectory(prefix="pac4sac-") as folder:
        return train_remotely(Path(folder), ask)


def cluster_address(wanted: str | None) -> str:
    """The address that is meant, where this machine has Ray and somebody answers there; "local" is
    a Ray that is to be started on this machine."""
    chosen = wanted or os.environ.get("RAY_ADDRESS") or "local"
    if chosen.startswith("ray://"):
        raise UserError(
            "Results cannot come back over ray://; make this machine a node (ray start "
            "--address=HOST:PORT)."
        )
    if chosen not in ("auto", "local"):
        host, _, port = chosen.rpartition(":")
        try:  # Ray itself tries for minutes, in silence
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except (OSError, ValueError, OverflowError):
            raise UserError(
                f"No Ray cluster answers at {chosen}; give HOST:PORT of its head node, as "
                "10.0.0.1:6379."
            ) from None
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            f"The engine ray needs Ray; {how_to_install('ray')}, or use --engine local."
        )
    return chosen


@contextlib.contextmanager
def _connected(address: str) -> Iterator[ModuleType]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    import ray.util.scheduling_strategies

    dashboard = False if address == "local" else None  # a running cluster has decided
    try:
        ray.init(
            address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"At {address} is no Ray cluster that this machine is a node of ({error})."
        ) from error
    for number, handler in handlers.items():
        signal.signal(number, handler)  # Ray has set its own; a stop must reach the study
    try:
        yield ray
    finally:
        ray.shutdown()


def _needs(ray: ModuleType, cohort: PlannedCohort) -> dict[str, Any]:
    """CPUs, GPUs and memory for the scheduler. A cohort that may use a GPU gets a whole one where
    there are any."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    device = _device(cohort)
    has_gpus = any(node.get("GPU", 0) >= 1 for node in nodes)
    gpus = 0 if device == "cpu" or (device == "auto" and not has_gpus) else 1
    smallest = {"CPU": 1, "GPU": gpus, "memory": cohort.bytes}
    fitting = [
        node
        for node in nodes
        if all(node.get(name, 0) >= value for name, value in smallest.items())
    ]
    if not fitting:
        raise UserError(
            f"{cohort.title} needs a CPU, {cohort.bytes / 1e9:.1f} GB of "
            f"memory{' and a GPU' if gpus else ''}, and no "
            "node of the cluster has that; plan smaller cohorts with --memory, or add a node."
        )
    cpus = min(CORES_PER_COHORT, max(int(node["CPU"]) for node in fitting))
    return {"num_cpus": cpus, "num_gpus": gpus, "memory": cohort.bytes}


def _device(cohort: PlannedCohort) -> str:
    """Where the cohort was begun, since it goes on in the same way; or what was asked for."""
    for newest in checkpoints(cohort.folder)[:1]:
        # Where it is damaged, the task says so, or uses another.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads((newest / "progress.json").read_bytes())["placement"]["device"])
    return str(read_experiment(cohort.folder)["options"]["device"])
