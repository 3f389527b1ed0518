"""Training the cohorts of a study on this machine, some of them side by side, each in a process of
its own.

That is `python -m pac4sac.studies.local FOLDER CALLBACK...`, with callbacks by their names. It
speaks to its parent in lines of JSON, {"step": ..., "steps": ...} and {"warning": ...}. It ends
with 0 when the cohort is complete, with 3 when it was stopped after a checkpoint, and with 2 after
a sentence about what the user can mend."""

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
from pac4sac.runs.run import Run
from pac4sac.studies.plan import PlannedCohort
from pac4sac.studies.watcher import Watcher
from pac4sac.training.backends import free_bytes
from pac4sac.training.callbacks import Callback
from pac4sac.training.experiment import resume

log = logging.getLogger(__name__)

COMPLETE, MISTAKE, STOPPED = 0, 2, 3
INTERVAL = 0.5  # seconds between two reports
CORES_PER_COHORT = 4  # a learner, and simulators beside it
# steps of niceness by which the shortest of cohorts is behind the longest: half of its share of a
# core
GIVE_WAY = 3
# that a process takes beside its tensors, on a GPU and in the machine
GPU_BYTES, HOST_BYTES = (0.8e9, 3e9)
MPS_CONTROL = "nvidia-cuda-mps-control"
MPS_PLACE = (
    "CUDA_MPS_PIPE_DIRECTORY"  # who has it set uses a service of their own, which is left alone
)
MPS_PATIENCE = 20.0  # seconds


def side_by_side(cohorts: Sequence[PlannedCohort], device: torch.device) -> int:
    """How many to train at a time. On a CPU learners need the cores. A GPU has room for many small
    cohorts, which keep the simulators of each other's cores busy, as far as the memories go."""
    if device.type == "cpu":
        return max(1, min(len(cohorts), cores() // CORES_PER_COHORT))
    on_device = itertools.accumulate(
        sorted((GPU_BYTES + 1.5 * cohort.bytes for cohort in cohorts), reverse=True)
    )
    fitting = sum(needed <= free_bytes(device) for needed in on_device)
    return max(1, min(fitting, cores(), int(free_bytes(torch.device("cpu")) // HOST_BYTES)))


def niceness(cohort: PlannedCohort, others: Sequence[PlannedCohort]) -> int:
    """Where cores are scarce the longer cohorts come first, so that none of them is left alone at
    the end."""
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
    """Train all cohorts to their end, or until a stop; returns what failed, which leaves the others
    going. Callbacks are made in the process of each cohort, by their names."""
    waiting, active, messages = list(cohorts), set[_Child](), _Messages()
    if parallel > 1:  # the longest first, so that none of them is left for the end
        waiting.sort(key=lambda cohort: -cohort.duration)
    failures: list[str] = []
    with shared_gpu(wanted=on_gpu and min(parallel, len(cohorts)) > 1) as variables:
        try:
            while waiting or active:
                while waiting and len(active) < parallel and not stop.wanted:
                    cohort = waiting.pop(0)
                    beside = [
                        *(child.cohort for child in active),
                        *waiting[: parallel - len(active) - 1],
                    ]
                    # of libraries that ask nobody
                    limits = {"OMP_NUM_THREADS": str(max(1, cores() // parallel))}
                    if beside:
                        all_work = sum(each.simulating for each in [cohort, *beside])
                        limits[SHARE] = str(share_out(cohort.simulating, all_work))
                    child = _Child(cohort, callbacks, {**variables, **limits}, messages)
                    child.give_way(niceness(cohort, beside))
                    active.add(child)
                if stop.wanted and not active:
                    return []
                if stop.wanted:
                    for child in active:
                        child.process.terminate()  # it writes a checkpoint and ends
                try:
                    child, line = messages.get(timeout=0.5)
                except queue.Empty:
                    continue
                if line is not None:
                    child.pass_on(line, watcher)
                    continue
                active.remove(child)
                outcome, reason = child.outcome(stop.wanted)
                watcher.ended(child.cohort, outcome, reason)
                if outcome == "failed":
                    failures.append(f"{child.cohort.title}: {reason}")
        finally:
            for child in active:
                child.process.terminate()
            patience = time.monotonic() + GRACE
            for child in active:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, patience - time.monotonic()))
                child.process.kill()  # a checkpoint is whole whenever this comes
                child.process.wait()
    return failures


class _Child:
    """A process that trains a cohort. What it says goes to a queue line by line, and None once it
    has ended."""

    def __init__(
        self,
        cohort: PlannedCohort,
        callbacks: Sequence[str],
        variables: Mapping[str, str],
        messages: "_Messages",
    ) -> None:
        self.cohort = cohort
        # Not a pipe: nobody reads it before the end, and a full one would stop the cohort.
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            # -P: the working directory is importable only if it is here.
            [sys.executable, "-P", "-m", "pac4sac.studies.local", str(cohort.folder), *callbacks],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **variables, "PYTHONPATH": import_path()},
            start_new_session=True,  # so that a Ctrl-C reaches the parent alone, which decides
        )
        threading.Thread(target=self._forward, args=(messages,), daemon=True).start()

    def give_way(self, steps: int) -> None:
        """To those that started before; the workers, which start later, inherit it."""
        if hasattr(os, "setpriority"):
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                os.setpriority(
                    os.PRIO_PROCESS, self.process.pid, os.getpriority(os.PRIO_PROCESS, 0) + steps
                )

    def _forward(self, messages: "_Messages") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                messages.put((self, line))
        messages.put((self, None))

    def pass_on(self, line: str, watcher: Watcher) -> None:
        message = json.loads(line)
        if "warning" in message:
            watcher.warning(self.cohort, message["warning"])
        else:
            watcher.progress(self.cohort, message["step"], message["steps"])

    def outcome(self, stopping: bool) -> tuple[str, str]:
        """What has become of the cohort, and why where it failed."""
        code = self.process.wait()
        if code == COMPLETE:
            return "complete", ""
        # the latter had not begun yet
        if code == STOPPED or (stopping and code == -signal.SIGTERM):
            return "stopped", ""
        self.errors.seek(0)
        return "failed", (self.errors.read().strip().splitlines() or [f"ended with code {code}"])[
            -1
        ]


_Messages = queue.Queue[tuple[_Child, str | None]]


@contextlib.contextmanager
def shared_gpu(wanted: bool) -> Iterator[dict[str, str]]:
    """Environment variables for the processes that share the GPU; none where sharing is not wanted
    or not possible.

    Without help processes take turns on a GPU. NVIDIA's multi-process service (MPS) lets their
    kernels run at the same time, which about doubles what four cohorts of five runs get done."""
    control = shutil.which(MPS_CONTROL)
    if not wanted or control is None or MPS_PLACE in os.environ:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="pac4sac-mps-", ignore_cleanup_errors=True) as place:
        variables = {MPS_PLACE: place, "CUDA_MPS_LOG_DIRECTORY": place}
        how: dict[str, Any] = {
            "env": {**os.environ, **variables},
            "capture_output": True,
            "timeout": MPS_PATIENCE,
        }
        try:
            subprocess.run([control, "-d"], check=True, **how)
        except (OSError, subprocess.SubprocessError) as error:
            log.warning(
                "The GPU's multi-process service did not start (%s); cohorts take turns.", error
            )
            yield {}
            return
        try:
            yield variables
        finally:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run([control], input=b"quit\n", check=False, **how)


# --- the process of one cohort


class StepReporter(Callback):
    """Reports the step at the start, now and then, and at the end."""

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


def _tell_warning(
    message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any
) -> None:
    """Our own warnings, such as of a backend that does not work here; those of libraries say
    nothing to a user."""
    if Path(filename).is_relative_to(Path(pac4sac.__file__).parent):
        print(json.dumps({"warning": str(message)}), flush=True)


def main(folder: str, *callbacks: str) -> int:
    # Outside of training, which has a handler of its own, a request to stop comes too early or too
    # late: the parent repeats it until this process has ended.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_with_parent()
    warnings.showwarning = _tell_warning
    try:
        return (
            COMPLETE
            if resume(folder, callbacks=[StepReporter(), *callbacks_named(callbacks)]).complete
            else STOPPED
        )
    except UserError as error:
        print(error, file=sys.stderr)
        return MISTAKE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
