"""Training the cohorts of a study on this machine, some of them side by side, each in a process of its own."""

import contextlib
import json
import logging
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pac4sac.base.cores import SHARE, cores, share_out
from pac4sac.base.errors import UserError
from pac4sac.base.stopping import StopRequest
from pac4sac.studies import cohort_process
from pac4sac.studies.plan import PlannedCohort
from pac4sac.studies.watcher import Watcher

log = logging.getLogger(__name__)

CORES_PER_COHORT = 4  # a learner, and simulators beside it
MPS_CONTROL = "nvidia-cuda-mps-control"
MPS_PLACE = "CUDA_MPS_PIPE_DIRECTORY"  # who has it set uses a service of their own, which is left alone
MPS_PATIENCE = 20.0  # seconds


def side_by_side(cohorts: int) -> int:
    return max(1, min(cohorts, cores() // CORES_PER_COHORT))


def run_local(
    cohorts: Sequence[PlannedCohort], parallel: int, stop: StopRequest, watcher: Watcher, on_gpu: bool = False
) -> bool:
    """Train all cohorts to their end; False where a stop was asked for. One that fails leaves the others going."""
    waiting, active = list(cohorts), set[_Child]()
    messages: _Messages = queue.Queue()
    failures = []
    with shared_gpu(wanted=on_gpu and min(parallel, len(cohorts)) > 1) as variables:
        try:
            while waiting or active:
                while waiting and len(active) < parallel and not stop.wanted:
                    cohort = waiting.pop(0)
                    beside = [*(child.cohort for child in active), *waiting[: parallel - len(active) - 1]]
                    limits = {"OMP_NUM_THREADS": str(max(1, cores() // parallel))}  # of libraries that ask nobody
                    if beside:
                        all_runs = sum(len(each.runs) for each in [cohort, *beside])
                        limits[SHARE] = str(share_out(len(cohort.runs), all_runs))
                    active.add(_Child(cohort, {**variables, **limits}, messages))
                if stop.wanted and not active:
                    return False
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
            for child in active:
                child.process.wait()
    if failures:
        raise UserError(f"{len(failures)} of {len(cohorts)} cohorts failed: {'; '.join(failures)}")
    return not stop.wanted


class _Child:
    """A process that trains a cohort. What it says goes to a queue line by line, and None once it has ended."""

    def __init__(self, cohort: PlannedCohort, variables: Mapping[str, str], messages: "_Messages") -> None:
        self.cohort = cohort
        # Not a pipe: nobody reads it before the end, and a full one would stop the cohort.
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", cohort_process.__name__, str(cohort.folder)],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,  # so that a Ctrl-C reaches the parent alone, which decides
        )
        threading.Thread(target=self._forward, args=(messages,), daemon=True).start()

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
        if code == cohort_process.COMPLETE:
            return "complete", ""
        if code == cohort_process.STOPPED or (stopping and code == -signal.SIGTERM):  # the latter had not begun yet
            return "stopped", ""
        self.errors.seek(0)
        return "failed", (self.errors.read().strip().splitlines() or [f"ended with code {code}"])[-1]


_Messages = queue.Queue[tuple[_Child, str | None]]


@contextlib.contextmanager
def shared_gpu(wanted: bool) -> Iterator[dict[str, str]]:
    """Environment variables for the processes that share the GPU; none where sharing is not wanted or not possible.

    Without help processes take turns on a GPU. NVIDIA's multi-process service (MPS) lets their kernels run at the same
    time, which about doubles what four cohorts of five runs get done.
    """
    control = shutil.which(MPS_CONTROL)
    if not wanted or control is None or MPS_PLACE in os.environ:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="pac4sac-mps-", ignore_cleanup_errors=True) as place:
        variables = {MPS_PLACE: place, "CUDA_MPS_LOG_DIRECTORY": place}
        how: dict[str, Any] = {"env": {**os.environ, **variables}, "capture_output": True, "timeout": MPS_PATIENCE}
        try:
            subprocess.run([control, "-d"], check=True, **how)
        except (OSError, subprocess.SubprocessError) as error:
            log.warning("The GPU's multi-process service did not start (%s); cohorts take turns.", error)
            yield {}
            return
        try:
            yield variables
        finally:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run([control], input=b"quit\n", check=False, **how)
