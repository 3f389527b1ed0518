"""Submission of the cohorts of a study as Slurm jobs, and the states of these jobs.

A study folder on a file system that all nodes share has in `slurm/` the files of submitit, in one
folder for each submission, and `jobs.json` with the newest job of each cohort."""

import contextlib
import importlib.util
import io
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pac4sac.base.cores import SHARE
from pac4sac.base.errors import UserError, how_to_install
from pac4sac.base.files import read_json, write_json
from pac4sac.base.trust import FOLDER, TRUSTED, import_path
from pac4sac.studies.plan import PlannedCohort
from pac4sac.studies.slurm.job import CohortJob
from pac4sac.studies.slurm.resources import Request, submitit_parameters

PROGRAMS = ("sbatch", "squeue", "srun", "scontrol")
# States of squeue and sacct of a job that does not run again.
ENDED = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
}  # fmt: skip
REQUEUES = 1000  # after time-outs; a job that makes no progress gives up earlier


@dataclass(frozen=True)
class Job:
    """Hold the newest job of a cohort."""

    id: str
    cluster: str
    folder: Path  # of its logs

    @property
    def log(self) -> Path:
        """Return the file with its warnings and errors."""
        return self.folder / f"{self.id}_0_log.err"

    def last_line(self) -> str:
        """Return the last line of its log, which has the reason of a failure."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""


@dataclass(frozen=True)
class JobState:
    """Hold the state of a job: pending, running or requeued if it is queued, or failed."""

    word: str
    job: Job
    reason: str = ""

    @property
    def is_queued(self) -> bool:
        """Return whether the job will train its cohort."""
        return self.word != "failed"

    def __str__(self) -> str:
        return f"{self.word} {self.job.id}" + (f": {self.reason}" if self.reason else "")


def job_states(root: Path) -> dict[str, JobState]:
    """Return the states of the newest jobs of a study by the folder name of their cohort.

    A job that has trained its cohort to the end is "failed" too; the statuses of the runs show the
    difference.

    Raises:
        UserError: If Slurm does not answer.
    """
    jobs = _read_jobs(root)
    on_slurm = [job for job in jobs.values() if job.cluster == "slurm"]
    states = _slurm_states([job.id for job in on_slurm]) if on_slurm else {}
    for job in jobs.values():
        if job.cluster == "local" and _is_alive(int(job.id)):
            states[job.id] = "RUNNING"
    return {cohort: _state(job, states.get(job.id, "")) for cohort, job in jobs.items()}


def _state(job: Job, name: str) -> JobState:
    """Return the state of a job from its name at Slurm, which is empty if Slurm has forgotten it.

    A pending job with a log was running before.
    """
    if not name or name in ENDED:
        reasons = [name.lower().replace("_", " "), job.last_line()]
        return JobState("failed", job, ", ".join(filter(None, reasons)))
    if name in ("RUNNING", "COMPLETING"):
        return JobState("running", job)
    return JobState("requeued" if job.log.exists() else "pending", job)


def _slurm_states(ids: Sequence[str]) -> dict[str, str]:
    """Return the states of jobs by id: of the queue, or of those that have ended from the
    accounting, if the cluster has it."""
    arrays = ",".join(dict.fromkeys(number.partition("_")[0] for number in ids))
    queue = ["squeue", "--noheader", "--array", "--format=%i|%T", f"--jobs={arrays}"]
    answer = _ask_slurm(queue)
    # Slurm forgets jobs some minutes after their end.
    if answer.returncode and "Invalid job id" not in answer.stderr:
        raise UserError(f"The Slurm queue does not answer: {_sentence(answer.stderr)}")
    states = _parsed(answer.stdout)
    if not set(ids) <= states.keys():
        with contextlib.suppress(UserError):
            past = ["sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID,State"]
            states = _parsed(_ask_slurm([*past, f"--jobs={arrays}"]).stdout) | states
    return states


def _parsed(answer: str) -> dict[str, str]:
    """Return the state of each job from lines such as "17_0|CANCELLED by 1000"."""
    rows = [line.partition("|") for line in answer.splitlines()]
    return {number.strip(): state.split()[0] for number, _, state in rows if state.strip()}


def _ask_slurm(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(
            f"The Slurm queue could not be queried with {command[0]} ({error}); try again on a "
            "machine from which you can submit jobs."
        ) from None


def _is_alive(pid: int) -> bool:
    """Return whether a process of this machine is alive."""
    with contextlib.suppress(ChildProcessError):  # another process has started it
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def check_can_submit(cluster: str) -> None:
    """Refuse a machine from which no job can be submitted."""
    if importlib.util.find_spec("submitit") is None:
        raise UserError(
            f"The engine slurm needs submitit; {how_to_install('slurm')}, or use --engine local."
        )
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if cluster == "slurm" and missing:
        raise UserError(
            f"This machine has no {missing[0]}, so it cannot submit Slurm jobs; run the command "
            "on a login node of the cluster. To try Slurm jobs without a cluster, add --slurm "
            "cluster=local."
        )


def submit(
    root: Path, name: str, cohorts: Sequence[PlannedCohort], request: Request, parallel: int | None
) -> list[JobState]:
    """Submit cohorts as one array job, and store the jobs in jobs.json.

    Args:
        root: Study folder.
        name: Name of the study.
        cohorts: Cohorts whose experiment folders exist.
        request: Complete table of the resources that each job requests.
        parallel: Number of jobs that may run at the same time; None for all.

    Raises:
        UserError: If the queue refuses the jobs. No files of the submission are left then.
    """
    cluster = request.get("cluster", "slurm")
    jobs, folder = _read_jobs(root), _new_folder(root / "slurm")
    variables = {SHARE: request["cpus"], "OMP_NUM_THREADS": request["cpus"]}
    variables |= {key: os.environ[key] for key in (TRUSTED, FOLDER) if key in os.environ}
    path = import_path().split(os.pathsep)
    try:
        ids = _submit(
            folder,
            cluster,
            [CohortJob(cohort.folder, variables, path) for cohort in cohorts],
            submitit_parameters(name, request, parallel),
        )
    except BaseException:
        shutil.rmtree(folder)
        with contextlib.suppress(OSError):  # unless it has earlier submissions
            folder.parent.rmdir()
        raise
    new = {
        cohort.folder.name: Job(number, cluster, folder)
        for cohort, number in zip(cohorts, ids, strict=True)
    }
    _write_jobs(root, jobs | new)
    return [JobState("pending", job) for job in new.values()]


def _submit(
    folder: Path, cluster: str, jobs: Sequence[CohortJob], parameters: Mapping[str, Any]
) -> list[str]:
    """Submit jobs with submitit; return their ids."""
    import submitit

    executor = submitit.AutoExecutor(
        folder, cluster, slurm_max_num_timeout=REQUEUES, local_max_num_timeout=REQUEUES
    )
    output = io.StringIO()  # submitit prints what sbatch says
    try:
        executor.update_parameters(**parameters)
        with contextlib.redirect_stderr(output):
            submitted = executor.submit_array(jobs)
    except (RuntimeError, OSError) as error:
        raise UserError(f"The Slurm queue refused the jobs: {_sentence(str(error))}") from error
    for link in filter(Path.is_symlink, folder.glob(".submission_file_*")):
        link.unlink()  # this link would lead out of the study after the study is moved
    return [str(job.job_id) for job in submitted]


def _sentence(text: str) -> str:
    """Return the lines of a program's message in one line that ends with a full stop."""
    lines = [line.strip().removeprefix("sbatch: error: ") for line in text.splitlines()]
    return f"{'; '.join(filter(None, lines)) or 'no reason was given'}".rstrip(".") + "."


def _new_folder(parent: Path) -> Path:
    """Make and return the folder of the next submission."""
    numbers = [int(path.name) for path in parent.glob("[0-9]*")]
    folder = parent / str(max(numbers, default=0) + 1)
    folder.mkdir(parents=True)
    return folder


def _read_jobs(root: Path) -> dict[str, Job]:
    """Return the newest job of each cohort by the name of its folder."""
    path = root / "slurm" / "jobs.json"
    if not path.exists():
        return {}
    try:
        return {
            cohort: Job(about["id"], about["cluster"], path.parent / Path(about["folder"]).name)
            for cohort, about in read_json(path).items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged ({error}); delete it to submit the jobs again."
        ) from error


def _write_jobs(root: Path, jobs: Mapping[str, Job]) -> None:
    about = {
        cohort: {"id": job.id, "cluster": job.cluster, "folder": job.folder.name}
        for cohort, job in jobs.items()
    }
    write_json(root / "slurm" / "jobs.json", about)


def ids_of(states: Iterable[JobState]) -> str:
    """Return the ids of jobs in words; all jobs of an array have one id."""
    ids = list(dict.fromkeys(state.job.id.partition("_")[0] for state in states))
    return f"job{'s' if len(ids) > 1 else ''} {', '.join(ids)}"
