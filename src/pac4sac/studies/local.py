"""Training of a study's cohorts on this machine, several at a time, each in its own process.

The process is `python -m pac4sac.studies.local FOLDER CALLBACK...`, with names of callbacks. It
writes JSON lines for its parent: {"step": ..., "steps": ...} and {"warning": ...}. Its exit code is
0 for a complete cohort, 3 for one that was stopped after a checkpoint, and 2 for an error that the
user can fix, with the message on standard error.
"""

import contextlib
import itertools
import json
import logging
import math
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import pac4sac
from pac4sac.base.cores import SHARE, cores, share_out
from pac4sac.base.errors import UserError
from pac4sac.base.stopping import GRACE, StopRequest, end_with_parent
from pac4sac.base.trust import import_path
from pac4sac.export.tracking import callbacks_named
from pac4sac.studies.plan import PlannedCohort
from pac4sac.studies.watcher import Watcher
from pac4sac.training.backends import free_bytes
from pac4sac.training.callbacks import Callback, Callbacks
from pac4sac.training.experiment import continue_until, resume
from pac4sac.training.run import Run

log = logging.getLogger(__name__)

COMPLETE, MISTAKE, STOPPED = 0, 2, 3
INTERVAL = 0.5  # seconds between reports
CORES_PER_COHORT = 4  # cores of a cohort: for a learner and its simulators
# Difference in niceness between the longest and the shortest cohort; 3 levels halve the share of a
# core.
GIVE_WAY = 3
# memory of a process without its tensors, on a GPU and in the machine
GPU_BYTES, HOST_BYTES = (0.8e9, 3e9)
MPS_CONTROL = "nvidia-cuda-mps-control"
MPS_PLACE = "CUDA_MPS_PIPE_DIRECTORY"  # set by the user if a service is running already
MPS_PATIENCE = 20.0  # seconds


def side_by_side(cohorts: Sequence[PlannedCohort], device: torch.device) -> int:
    """Return the number of cohorts to train at the same time.

    On a CPU, learners need the cores. On a GPU, memory limits the number, because the simulators of
    some cohorts use the cores while others learn.
    """
    if device.type == "cpu":
        return max(1, min(len(cohorts), cores() // CORES_PER_COHORT))
    on_device = itertools.accumulate(
        sorted((GPU_BYTES + 1.5 * cohort.bytes for cohort in cohorts), reverse=True)
    )
    fitting = sum(needed <= free_bytes(device) for needed in on_device)
    return max(1, min(fitting, cores(), int(free_bytes(torch.device("cpu")) // HOST_BYTES)))


def niceness(cohort: PlannedCohort, others: Sequence[PlannedCohort]) -> int:
    """Return the niceness of a cohort's process relative to others.

    Longer cohorts have priority, so that no long cohort is left alone at the end.
    """
    longest = max(each.duration for each in [cohort, *others])
    return round(GIVE_WAY * (1 - cohort.duration / longest)) if longest else 0


def run_local(
    cohorts: Sequence[PlannedCohort],
    parallel: int,
    stop: StopRequest,
    watcher: Watcher,
    on_gpu: bool = False,
    callbacks: Sequence[str] = (),
) -> list[str]:
    """Train all cohorts to their end or until a stop. A failure does not stop other cohorts.

    Args:
        cohorts: Cohorts whose experiment folders exist.
        parallel: Number of cohorts to train at a time.
        stop: Request that makes the cohorts write a checkpoint and end.
        watcher: Object that is informed of progress, warnings and outcomes.
        on_gpu: Whether the cohorts share a GPU.
        callbacks: Names of callbacks, which each cohort's process instantiates.

    Returns:
        A sentence for every failed cohort.
    """
    wants_sharing = on_gpu and min(parallel, len(cohorts)) > 1
    with shared_gpu(wants_sharing) as variables:
        return _Schedule(cohorts, parallel, watcher, callbacks, variables).run(stop)


def run_here(
    cohorts: Sequence[PlannedCohort],
    stop: StopRequest,
    watcher: Watcher,
    callbacks: Sequence[str] = (),
) -> list[str]:
    """Train cohorts in this process, because only this process can find their environment or agent.

    Arguments and result are those of `run_local`; one cohort is trained at a time.
    """
    failures = []
    for cohort in cohorts:
        if stop.wanted:
            break
        reporters = [_WatchedSteps(cohort, watcher), *callbacks_named(callbacks)]
        try:
            result = continue_until(cohort.folder, Callbacks(reporters), stop)
        except UserError as error:
            failures.append(f"{cohort.title}: {error}")
            watcher.ended(cohort, "failed", str(error))
        else:
            watcher.ended(cohort, "complete" if result.complete else "stopped", "")
    return failures


class _Schedule:
    """Run up to `parallel` processes, each with a cohort, until all cohorts have ended."""

    def __init__(
        self,
        cohorts: Sequence[PlannedCohort],
        parallel: int,
        watcher: Watcher,
        callbacks: Sequence[str],
        variables: Mapping[str, str],
    ) -> None:
        self.parallel, self.watcher = parallel, watcher
        self.callbacks, self.variables = callbacks, variables
        self.waiting = list(cohorts)
        if parallel > 1:  # longest first, so that no long cohort is left for the end
            self.waiting.sort(key=lambda cohort: -cohort.duration)
        self.active: set[_Child] = set()
        self.messages = _Messages()
        self.failures: list[str] = []

    def run(self, stop: StopRequest) -> list[str]:
        """Train all cohorts or until a stop; return a sentence for each failure."""
        try:
            while self.waiting or self.active:
                self._start_waiting(stop)
                if stop.wanted and not self.active:
                    return []
                if stop.wanted:
                    self._ask_to_stop()
                self._handle_message(stop)
        finally:
            self._end_all()
        return self.failures

    def _start_waiting(self, stop: StopRequest) -> None:
        while self.waiting and len(self.active) < self.parallel and not stop.wanted:
            self._start(self.waiting.pop(0))

    def _start(self, cohort: PlannedCohort) -> None:
        """Start the process of a cohort with its share of the cores."""
        free = self.parallel - len(self.active) - 1
        others = [*(child.cohort for child in self.active), *self.waiting[:free]]
        # for libraries that choose their number of threads
        limits = {"OMP_NUM_THREADS": str(max(1, cores() // self.parallel))}
        if others:
            all_work = sum(each.simulating for each in [cohort, *others])
            limits[SHARE] = str(share_out(cohort.simulating, all_work))
        child = _Child(cohort, self.callbacks, {**self.variables, **limits}, self.messages)
        child.give_way(niceness(cohort, others))
        self.active.add(child)

    def _handle_message(self, stop: StopRequest) -> None:
        """Forward the next line of a process, or the outcome of one that has ended."""
        try:
            child, line = self.messages.get(timeout=0.5)
        except queue.Empty:
            return
        if line is not None:
            child.pass_on(line, self.watcher)
            return
        self.active.remove(child)
        outcome, reason = child.outcome(stop.wanted)
        self.watcher.ended(child.cohort, outcome, reason)
        if outcome == "failed":
            self.failures.append(f"{child.cohort.title}: {reason}")

    def _ask_to_stop(self) -> None:
        """Ask every process to write a checkpoint and end."""
        for child in self.active:
            child.process.terminate()

    def _end_all(self) -> None:
        """End every process; kill it if it does not stop within the grace period."""
        self._ask_to_stop()
        patience = time.monotonic() + GRACE
        for child in self.active:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, patience - time.monotonic()))
            child.process.kill()  # checkpoints are complete at any time
            child.process.wait()


class _Child:
    """Run a process that trains a cohort; its messages go to a queue line by line, followed by None
    at its end."""

    def __init__(
        self,
        cohort: PlannedCohort,
        callbacks: Sequence[str],
        variables: Mapping[str, str],
        messages: "_Messages",
    ) -> None:
        self.cohort = cohort
        # Not a pipe, because it is read only at the end and a full pipe would block the cohort.
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            # -P: the working directory is not added to the import path.
            [sys.executable, "-P", "-m", "pac4sac.studies.local", str(cohort.folder), *callbacks],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **variables, "PYTHONPATH": import_path()},
            start_new_session=True,  # Ctrl-C reaches only the parent
        )
        threading.Thread(target=self._forward, args=(messages,), daemon=True).start()

    def give_way(self, steps: int) -> None:
        """Lower the priority of the process; its workers start later and inherit it."""
        if hasattr(os, "setpriority"):
            with contextlib.suppress(ProcessLookupError):  # the process has ended already
                own = os.getpriority(os.PRIO_PROCESS, 0)
                os.setpriority(os.PRIO_PROCESS, self.process.pid, own + steps)

    def _forward(self, messages: "_Messages") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                messages.put((self, line))
        messages.put((self, None))

    def pass_on(self, line: str, watcher: Watcher) -> None:
        """Inform the watcher of the content of a line."""
        message = json.loads(line)
        if "warning" in message:
            watcher.warning(self.cohort, message["warning"])
        else:
            watcher.progress(self.cohort, message["step"], message["steps"])

    def outcome(self, stopping: bool) -> tuple[str, str]:
        """Return the outcome of a process that has ended, and the reason if it failed."""
        code = self.process.wait()
        if code == COMPLETE:
            return "complete", ""
        stopped_before_training = stopping and code == -signal.SIGTERM
        if code == STOPPED or stopped_before_training:
            return "stopped", ""
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        return "failed", lines[-1] if lines else f"ended with code {code}"


_Messages = queue.Queue[tuple[_Child, str | None]]


@contextlib.contextmanager
def shared_gpu(wanted: bool) -> Iterator[dict[str, str]]:
    """Run the service with which processes share a GPU, if `wanted` and possible.

    By default processes take turns on a GPU. NVIDIA's multi-process service (MPS) runs their
    kernels concurrently, which about doubles the speed of four cohorts of five runs.

    Yields:
        Environment variables for the processes; empty without the service.
    """
    control = shutil.which(MPS_CONTROL)
    if not wanted or control is None or MPS_PLACE in os.environ:
        yield {}
        return
    with _multi_process_service(control) as variables:
        yield variables


@contextlib.contextmanager
def _multi_process_service(control: str) -> Iterator[dict[str, str]]:
    """Run NVIDIA's multi-process service inside a `with` block, if it starts.

    Args:
        control: Path of its control program.

    Yields:
        Environment variables for the processes that use it; empty if it does not start.
    """
    folder = tempfile.TemporaryDirectory(prefix="pac4sac-mps-", ignore_cleanup_errors=True)
    with folder as place:
        variables = {MPS_PLACE: place, "CUDA_MPS_LOG_DIRECTORY": place}
        if not _start_service(control, variables):
            yield {}
            return
        try:
            yield variables
        finally:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                _run_control([control], variables, input=b"quit\n")


def _start_service(control: str, variables: Mapping[str, str]) -> bool:
    """Start the multi-process service, and return whether it started."""
    try:
        _run_control([control, "-d"], variables, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        log.warning(
            "The GPU's multi-process service did not start (%s); cohorts take turns.", error
        )
        return False
    return True


def _run_control(command: Sequence[str], variables: Mapping[str, str], **how: Any) -> None:
    env = {**os.environ, **variables}
    subprocess.run(command, env=env, capture_output=True, timeout=MPS_PATIENCE, **how)


# --- the process of one cohort


class StepReporter(Callback):
    """Report the step at the start, at intervals and at the end."""

    steps, reported = 0, -math.inf

    def on_start(self, folder: Path, runs: Sequence[Run], steps: int, step: int) -> None:
        self.steps, self.reported = steps, -math.inf
        self.on_step(step)

    def on_step(self, step: int) -> None:
        if step == self.steps or time.monotonic() - self.reported > INTERVAL:
            self.report(step)
            self.reported = time.monotonic()

    def report(self, step: int) -> None:
        print(json.dumps({"step": step, "steps": self.steps}), flush=True)


class _WatchedSteps(StepReporter):
    """Report the steps of a cohort that this process trains."""

    def __init__(self, cohort: PlannedCohort, watcher: Watcher) -> None:
        self.cohort, self.watcher = cohort, watcher

    def report(self, step: int) -> None:
        self.watcher.progress(self.cohort, step, self.steps)


def _report_warning(
    message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any
) -> None:
    """Report a warning of this package, for example on a backend that does not work.

    Warnings of other libraries are not reported.
    """
    if Path(filename).is_relative_to(Path(pac4sac.__file__).parent):
        print(json.dumps({"warning": str(message)}), flush=True)


def main(folder: str, *callbacks: str) -> int:
    """Train the cohort of an experiment folder to its end; return the exit code."""
    # Training has its own handler. Before and after it, stop requests are ignored; the parent
    # repeats them until this process has ended.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_with_parent()
    warnings.showwarning = _report_warning
    try:
        result = resume(folder, callbacks=[StepReporter(), *callbacks_named(callbacks)])
    except UserError as error:
        print(error, file=sys.stderr)
        return MISTAKE
    return COMPLETE if result.complete else STOPPED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
