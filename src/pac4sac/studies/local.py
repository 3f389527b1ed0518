"""Training the cohorts of a study on this machine, some of them side by side, each in a process of its own."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Protocol

from pac4sac.base.cores import SHARE, cores, share_out
from pac4sac.base.errors import UserError
from pac4sac.base.stopping import StopRequest
from pac4sac.studies import cohort_process as child
from pac4sac.studies.mps import shared_gpu
from pac4sac.studies.plan import PlannedCohort

CORES_PER_COHORT = 4  # a learner, and simulators beside it


class Watcher(Protocol):
    def progress(self, cohort: PlannedCohort, step: int, steps: int) -> None: ...

    def warning(self, cohort: PlannedCohort, sentence: str) -> None: ...

    def ended(self, cohort: PlannedCohort, outcome: str, reason: str) -> None: ...


def side_by_side(cohorts: int) -> int:
    return max(1, min(cohorts, cores() // CORES_PER_COHORT))


def run_local(
    cohorts: Sequence[PlannedCohort], parallel: int, stop: StopRequest, watcher: Watcher, on_gpu: bool = False
) -> bool:
    """Train all cohorts to their end; False where a stop was asked for. One that fails leaves the others going."""
    with shared_gpu(wanted=on_gpu and min(parallel, len(cohorts)) > 1) as variables:
        return _run(cohorts, parallel, stop, watcher, variables)


def _run(
    cohorts: Sequence[PlannedCohort], parallel: int, stop: StopRequest, watcher: Watcher, variables: Mapping[str, str]
) -> bool:
    waiting = list(cohorts)
    active: dict[int, tuple[subprocess.Popen[str], IO[str], PlannedCohort]] = {}
    messages: queue.Queue[tuple[int, str | None]] = queue.Queue()
    failures = []
    try:
        while waiting or active:
            while waiting and len(active) < parallel and not stop.wanted:
                cohort = waiting.pop(0)
                beside = [*(other for *_, other in active.values()), *waiting[: parallel - len(active) - 1]]
                share = {}
                if beside:
                    share[SHARE] = str(share_out(len(cohort.runs), sum(len(c.runs) for c in [cohort, *beside])))
                threads = {"OMP_NUM_THREADS": str(max(1, cores() // parallel))}  # of libraries that ask nobody
                process, errors = _start(cohort, stop, messages, {**variables, **threads, **share})
                active[process.pid] = (process, errors, cohort)
            if stop.wanted and not active:
                return False
            if stop.wanted:
                for process, *_ in active.values():
                    process.terminate()  # it writes a checkpoint and ends
            try:
                pid, line = messages.get(timeout=0.5)
            except queue.Empty:
                continue
            process, errors, cohort = active[pid]
            if line is not None:
                told = json.loads(line)
                if "warning" in told:
                    watcher.warning(cohort, told["warning"])
                else:
                    watcher.progress(cohort, told["step"], told["steps"])
                continue
            del active[pid]
            code = process.wait()
            errors.seek(0)
            sentence = errors.read()
            outcome = {child.COMPLETE: "complete", child.STOPPED: "stopped"}.get(code, "failed")
            if stop.wanted and code == -signal.SIGTERM:  # it had not begun yet
                outcome = "stopped"
            reason = (sentence.strip().splitlines() or [f"ended with code {code}"])[-1] if outcome == "failed" else ""
            watcher.ended(cohort, outcome, reason)
            if outcome == "failed":
                failures.append(f"{cohort.title}: {reason}")
    finally:
        for process, *_ in active.values():
            process.terminate()
        for process, *_ in active.values():
            process.wait()
    if failures:
        raise UserError(f"{len(failures)} of {len(cohorts)} cohorts failed: {'; '.join(failures)}")
    return not stop.wanted


def _start(
    cohort: PlannedCohort,
    stop: StopRequest,
    messages: "queue.Queue[tuple[int, str | None]]",
    variables: Mapping[str, str],
) -> "tuple[subprocess.Popen[str], IO[str]]":
    minutes = [] if stop.deadline is None else [str(max(0.01, (stop.deadline - time.monotonic()) / 60))]
    command = [sys.executable, "-m", "pac4sac.studies.cohort_process", str(cohort.folder), *minutes]
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    # Not a pipe: nobody reads it before the end, and a full one would stop the cohort.
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=environment,
        start_new_session=True,  # so that a Ctrl-C reaches the parent alone, which decides
    )

    def forward() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                messages.put((process.pid, line))
        messages.put((process.pid, None))

    threading.Thread(target=forward, daemon=True).start()
    return process, errors
