"""A Slurm of one machine: the commands that the engine calls, as links to this file.

The folder $FAKE_SLURM has a file for each job. Jobs wait while it has a file `hold`, and sbatch
refuses with the text of the file `refuse`. As in Slurm, a signal reaches all processes of the step
and not the script around it, and a job that is killed while it is marked runs again."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(os.environ["FAKE_SLURM"])
ENDED = ("COMPLETED", "FAILED", "CANCELLED")


def read(job: str) -> dict:
    return json.loads((HOME / f"{job}.json").read_text())


def change(job: str, **facts: object) -> None:
    path = HOME / f"{job}.json"
    about = json.loads(path.read_text()) if path.exists() else {"starts": 0}
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(about | facts))
    part.replace(path)


def jobs() -> list[str]:
    return sorted(path.stem for path in HOME.glob("*.json"))


def sbatch(script: str) -> int:
    if (HOME / "refuse").exists():
        print((HOME / "refuse").read_text(), file=sys.stderr)
        return 1
    number = 1 + len(list(HOME.glob("*.sh")))
    text = Path(script).read_text()
    (HOME / f"{number}.sh").write_text(text)
    array = re.search(r"--array=0-(\d+)", text)
    for job in (
        [f"{number}_{task}" for task in range(int(array[1]) + 1)] if array else [f"{number}"]
    ):
        change(job, state="PENDING", again=False)
        runner = subprocess.Popen(
            [sys.executable, __file__, "--run", job],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        change(job, runner=runner.pid)
    print(f"Submitted batch job {number}")
    return 0


def run(job: str) -> None:
    number, _, task = job.partition("_")
    about = {"SLURM_JOB_ID": str(1000 + int(task or 0))}
    if task:
        about |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": task}
    else:
        about |= {"SLURM_JOB_ID": number}
    code = 0
    while True:
        while (HOME / "hold").exists():
            time.sleep(0.02)
        change(job, state="RUNNING", again=False, starts=read(job)["starts"] + 1)
        code = subprocess.call(["bash", HOME / f"{number}.sh"], env=os.environ | about)
        if not read(job)["again"]:
            break
        change(job, state="PENDING")
    if read(job)["state"] != "CANCELLED":
        change(job, state="FAILED" if code else "COMPLETED")


def srun(*arguments: str) -> None:
    options, command = list(arguments), []
    files = {}
    while options[0].startswith("--"):
        name = options.pop(0)
        if name != "--unbuffered":
            files[name] = options.pop(0)
    command = options
    number, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{number}_{task}" if number else os.environ["SLURM_JOB_ID"]
    os.setpgrp()
    change(job, step=os.getpid())
    for descriptor, option in ((1, "--output"), (2, "--error")):
        place = files[option].replace("%A_%a", job).replace("%j", job).replace("%t", "0")
        os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.execvp(command[0], command)


def queue(arguments: tuple[str, ...], *, past: bool) -> int:
    asked = arguments[-1].removeprefix("--jobs=").split(",")
    found = [job for job in jobs() if job.partition("_")[0] in asked]
    if not past:
        found = [job for job in found if read(job)["state"] not in ENDED]
        if not found:
            print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
            return 1
    for job in found:
        print(f"{job}|{read(job)['state']}")
    return 0


def scontrol(what: str, job: str) -> int:
    assert what == "requeue"
    change(job, again=True)
    return 0


def scancel(job: str, *arguments: str) -> int:
    if arguments:
        os.killpg(read(job)["step"], signal.Signals[f"SIG{arguments[1]}"])
        return 0
    change(job, state="CANCELLED", again=False)
    end(job)
    return 0


def end(job: str) -> None:
    """End a job as Slurm does: with SIGTERM, and after a while by force."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(read(job)["step"], signal.SIGTERM)
        time.sleep(1)
        os.killpg(read(job)["step"], signal.SIGKILL)


def preempt(job: str, at_once: bool) -> None:
    """Take the node from a job, which Slurm then queues again."""
    change(job, again=True)
    if at_once:
        os.killpg(read(job)["step"], signal.SIGKILL)
    else:
        end(job)


def main() -> object:
    program, arguments = Path(sys.argv[0]).name, tuple(sys.argv[1:])
    if arguments[0] == "--run":
        return run(arguments[1])
    if program in ("squeue", "sacct"):
        return queue(arguments, past=program == "sacct")
    commands = {"sbatch": sbatch, "srun": srun, "scontrol": scontrol, "scancel": scancel}
    return commands[program](*arguments)


if __name__ == "__main__":
    sys.exit(main())
