"""Studies as Slurm jobs: what they request, and training under a fake Slurm and without one."""

import contextlib
import importlib.util
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_studies import TINY

from pac4sac.base.errors import UserError
from pac4sac.base.stopping import StopRequest
from pac4sac.cli.main import main
from pac4sac.studies.definition import load_study
from pac4sac.studies.plan import PlannedCohort
from pac4sac.studies.slurm.job import CohortJob
from pac4sac.studies.slurm.launch import device_of_jobs, from_plan
from pac4sac.studies.slurm.queue import job_states
from pac4sac.studies.slurm.resources import checked, minutes, submitit_parameters

ROOT = Path("experiments/study-tiny")
LONGER = TINY.replace("steps = 300", "steps = 600").replace("workers = 0", "workers = 1")
PATIENCE = 120  # seconds
PROGRAMS = ("sbatch", "squeue", "sacct", "srun", "scontrol", "scancel")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    (tmp_path / "tiny.toml").write_text(LONGER)
    return "tiny.toml"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Put a fake Slurm on the PATH; its file `hold` keeps jobs from starting."""
    pytest.importorskip("submitit")
    home, programs = tmp_path / "slurm-home", tmp_path / "bin"
    home.mkdir()
    programs.mkdir()
    (home / "hold").touch()
    for name in PROGRAMS:
        program = programs / name
        shutil.copy(Path(__file__).with_name("fake_slurm.py"), program)
        program.write_text(f"#!{sys.executable}\n{program.read_text()}")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(home))
    monkeypatch.delitem(sys.modules, "fake_slurm", raising=False)
    import fake_slurm

    yield fake_slurm
    for job in fake_slurm.jobs():
        for process in ("runner", "step"):
            with contextlib.suppress(KeyError, ProcessLookupError):
                os.killpg(fake_slurm.read(job)[process], signal.SIGKILL)


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def results(root: Path) -> dict[str, bytes]:
    """All that training wrote, apart from times and machines."""
    files = [path for path in root.glob("experiments/*/runs/*/*") if path.name != "run.json"]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def trained_here(tiny: str) -> dict[str, bytes]:
    assert main(["study", "run", tiny, "--out", "here"]) == 0
    return results(Path("here"))


def submitted(tiny: str, *more: str) -> int:
    return main(["study", "run", tiny, "--engine", "slurm", "--slurm", "time=30", *more])


def test_a_study_under_slurm_is_byte_identical_to_a_local_one(
    tiny: str,
    slurm: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = trained_here(tiny)
    # Each file of a checkpoint takes a while, so a checkpoint can be met half-written.
    slow = (
        "import os, time\nfsync = os.fsync\nos.fsync = lambda file: (time.sleep(0.05), fsync(file))"
    )
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    capsys.readouterr()

    assert submitted(tiny, "partition=short", "gres=gpu:0") == 0
    assert "2 cohorts are in the queue, 2 of them new (job 1)" in capsys.readouterr().out
    script = (slurm.HOME / "1.sh").read_text()
    for line in (
        "time=30",
        "partition=short",
        "gres=gpu:0",
        "requeue",
        "cpus-per-task=3",
        "mem=4G",
    ):
        assert f"#SBATCH --{line}\n" in script
    assert "#SBATCH --array=0-1%2\n" in script
    assert main(["study", "status", tiny]) == 0
    shown = capsys.readouterr().out
    assert "pending 1_0" in shown
    assert "pending 1_1" in shown
    assert submitted(tiny) == 0  # again: nothing is missing
    assert "2 cohorts are in the queue, 0 of them new (job 1)" in capsys.readouterr().out
    assert slurm.jobs() == ["1_0", "1_1"]

    folders = {
        state.job.id: ROOT / "experiments" / name for name, state in job_states(ROOT).items()
    }
    (slurm.HOME / "hold").unlink()
    wait_until(lambda: slurm.read("1_0")["state"] == slurm.read("1_1")["state"] == "RUNNING")
    (slurm.HOME / "hold").touch()
    wait_until(lambda: list(folders["1_0"].glob("cohorts/000/step-*00200.part")))
    slurm.preempt("1_0", at_once=True)
    assert list(folders["1_0"].glob("cohorts/000/step-*00200.part"))  # it was half-written
    wait_until(lambda: list(folders["1_1"].glob("cohorts/000/step-*00200")))
    slurm.scancel("1_1", "--signal", "TERM")
    slurm.scancel("1_1", "--signal", "USR2")
    wait_until(lambda: all(slurm.read(job)["state"] == "PENDING" for job in slurm.jobs()))
    assert main(["study", "status", tiny]) == 0
    shown = capsys.readouterr().out
    assert "requeued 1_0" in shown
    assert "requeued 1_1" in shown
    assert "interrupted" in shown

    (slurm.HOME / "hold").unlink()
    wait_until(lambda: all(slurm.read(job)["state"] in slurm.ENDED for job in slurm.jobs()))
    assert [slurm.read(job)["starts"] for job in slurm.jobs()] == [2, 2]
    assert submitted(tiny) == 0
    shown = capsys.readouterr().out
    assert "4 kept, 0 to train" in shown
    assert "unfinished" not in shown
    assert results(ROOT) == expected
    assert main(["study", "status", tiny]) == 0
    assert "1_0" not in capsys.readouterr().out


def test_a_failed_and_a_cancelled_job_are_shown_and_submitted_again(
    tiny: str, slurm: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submitted(tiny) == 0
    capsys.readouterr()
    states = job_states(ROOT)
    failing = next(name for name, state in states.items() if state.job.id == "1_0")
    path = ROOT / "experiments" / failing / "experiment.json"
    whole = path.read_text()
    path.write_text(whole.replace('"threads": 1', '"threads": 0'))
    (slurm.HOME / "hold").unlink()
    wait_until(lambda: "step" in slurm.read("1_1"))
    slurm.scancel("1_1")
    wait_until(lambda: all(slurm.read(job)["state"] in slurm.ENDED for job in slurm.jobs()))
    path.write_text(whole)
    assert main(["study", "status", tiny]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "failed 1_0: failed, threads" in shown
    assert "failed 1_1: cancelled" in shown

    (slurm.HOME / "hold").touch()
    assert submitted(tiny, "--variants", "sac") == 0
    assert "1 cohort is in the queue, 1 of them new (job 2)" in capsys.readouterr().out
    assert "--array" not in (slurm.HOME / "2.sh").read_text()
    assert main(["study", "status", tiny]) == 0
    assert "pending 2" in capsys.readouterr().out


def test_a_refused_job_leaves_nothing_in_the_queue_folder(
    tiny: str, slurm: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    (slurm.HOME / "refuse").write_text("sbatch: error: invalid partition specified: moon")
    assert submitted(tiny, "partition=moon") == 2
    error = capsys.readouterr().err
    assert "The Slurm queue refused the jobs: invalid partition specified: moon." in error
    assert len(error.strip().splitlines()) == 1
    assert not (ROOT / "slurm").exists()
    (slurm.HOME / "refuse").unlink()
    assert submitted(tiny) == 0
    assert "2 of them new" in capsys.readouterr().out


def test_without_a_cluster_jobs_train_in_the_background(
    tiny: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("submitit")
    Path(tiny).write_text(TINY)
    one = ("--variants", "sac")
    assert main(["study", "run", tiny, "--out", "here", *one]) == 0
    assert submitted(tiny, "cluster=local", *one) == 0
    assert "1 cohort is in the queue, 1 of them new" in capfd.readouterr().out
    assert submitted(tiny, "cluster=local", *one) == 0
    assert "1 cohort is in the queue, 0 of them new" in capfd.readouterr().out
    wait_until(lambda: not any(state.is_queued for state in job_states(ROOT).values()))
    assert submitted(tiny, "cluster=local", *one) == 0
    assert results(ROOT) == results(Path("here")) != {}


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        (["time=soon"], "time must be a number of minutes"),
        (["time=0:00:00"], "time must be a number of minutes"),
        (["mem=lots"], "mem must be a size such as 16G"),
        (["cpus=0"], "cpus must be a whole number above 0"),
        (["gpus=2"], "gpus must be 0, 1, or 1 with its type"),
        (["gpus=1"], "the study trains on the CPU"),
        (["cluster=moon"], "cluster must be slurm or local"),
        (["array=0-9"], "Unknown slurm option array"),
        (["partitoin=gpu"], "did you mean partition?"),
        (["comment=a\nrm -r b"], "comment must be text on a single line"),
        (["time"], "--slurm must be NAME=VALUE, not 'time'"),
        (["--max-minutes", "5"], "--slurm time=4:00:00"),
        (["--serve"], "for Slurm jobs, use pac4sac study status"),
        (["mem=8G"], "This machine has no sbatch"),
    ],
)
def test_invalid_requests_are_refused_before_any_file_is_written(
    options: list[str],
    fragment: str,
    tiny: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["study", "run", tiny, "--engine", "slurm", "--slurm", *options]) == 2
    assert fragment in capsys.readouterr().err
    assert not Path("experiments").exists()


def test_a_missing_extra_or_engine_is_reported(
    tiny: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "run", tiny, "--slurm", "time=30"]) == 2
    assert "add --engine slurm" in capsys.readouterr().err
    present = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "submitit" else present(name)
    )
    assert main(["study", "run", tiny, "--engine", "slurm"]) == 2
    assert "[slurm]'" in capsys.readouterr().err
    assert not Path("experiments").exists()


def test_an_invalid_request_in_a_study_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(TINY.replace("[set]", '[slurm]\nmem = "lots"\n\n[set]'))
    line = path.read_text().splitlines().index('mem = "lots"') + 1
    with pytest.raises(UserError, match=rf"wrong.toml, line {line}: .*mem must be"):
        load_study(str(path))


def test_requests_follow_from_the_plan(tmp_path: Path) -> None:
    def cohort(runs: int, size: float) -> PlannedCohort:
        return PlannedCohort(tmp_path, (None,) * runs, int(size))  # type: ignore[arg-type]

    # 3 GB for a process and 1.5 times the tensors: 3 + 1.5 * 2 = 6 and 3 + 1.5 * 0.1 = 3.15
    both = [cohort(2, 2e9), cohort(1, 1e8)]
    assert from_plan(both, on_gpu=True, seconds=None) == {
        "gpus": "1",
        "cpus": "3",
        "mem": "6G",
        "time": "1440",
    }
    few = from_plan([cohort(10, 1e8)], on_gpu=False, seconds=5400.0)
    assert few == {"gpus": "0", "cpus": "4", "mem": "4G", "time": "180"}
    assert from_plan([cohort(1, 1e8)], False, seconds=60.0)["time"] == "60"


def test_the_table_of_a_study_and_options_override_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(TINY.replace("[set]", '[slurm]\ngpus = 1\ntime = "1-0"\n\n[set]'))
    study = load_study(str(path))
    assert study.slurm == {"gpus": 1, "time": "1-0"}
    with pytest.raises(UserError, match="gpus=1, but the study trains on the CPU"):
        device_of_jobs(study, {}, checked(study.slurm))
    assert device_of_jobs(study, {"device": "auto"}, checked(study.slurm)) == "cuda"
    assert device_of_jobs(study, {"device": "auto"}, {"gpus": "0"}) == "cpu"
    assert device_of_jobs(study, {"device": "auto"}, {}) == "cpu"
    assert device_of_jobs(study, {"device": "cuda:1"}, {}) == "cuda:1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("1:30", 2), ("2:00:00", 120), ("1-2", 1560), ("1-2:30", 1590), ("1-0:0:1", 1441)],
)
def test_slurm_times_are_parsed(text: str, expected: int) -> None:
    assert minutes(text) == expected


def test_types_of_gpus_and_options_of_sbatch_are_passed_on() -> None:
    request = checked(
        {
            "gpus": "a100:1",
            "cpus": 8,
            "mem": "16G",
            "time": 60,
            "mail_type": "END",
            "exclusive": True,
        }
    )
    parameters = submitit_parameters("my tiny", request, parallel=3)
    assert parameters["gpus_per_node"] == 1
    assert parameters["cpus_per_task"] == 8
    assert parameters["timeout_min"] == 60
    assert parameters["slurm_array_parallelism"] == 3
    assert "\n" not in parameters["name"]
    assert parameters["slurm_additional_parameters"] == {
        "requeue": True,
        "mem": "16G",
        "gpus_per_node": "a100:1",
        "mail_type": "END",
        "exclusive": True,
    }


def test_a_job_that_makes_no_progress_is_given_up(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    job = CohortJob(tmp_path, {}, [])
    assert all(job.checkpoint() is not None for _ in range(4))
    assert job.checkpoint() is None
    (tmp_path / "cohorts" / "000" / "step-000000100").mkdir(parents=True)
    assert job.checkpoint() is not None


def test_a_warning_that_comes_with_sigterm_is_not_lost() -> None:
    both = {signal.SIGTERM, signal.SIGUSR2}
    with StopRequest() as stop:
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for number in both:
            signal.raise_signal(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
        assert stop.reason is not None
        assert stop.reason.number == signal.SIGUSR2
        signal.raise_signal(signal.SIGTERM)
        assert stop.reason.number == signal.SIGUSR2
