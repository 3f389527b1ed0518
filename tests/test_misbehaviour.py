"""Environments that hang, exit, or return what they should not; in training, in evaluation, in a
study."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from report_folders import curve, task, write_run
from test_pool import SEEDS, VICTIM, faulty, is_gone, play, wait_until
from tiny_experiments import OPTIONS, SETTINGS, about, rows, train

from pac4sac import Task
from pac4sac.base import stopping
from pac4sac.base.stopping import StopRequest
from pac4sac.cli.main import main
from pac4sac.report.report import write_report
from pac4sac.tasks.episodes import simulator_seed
from pac4sac.tasks.pool import EnvPool
from pac4sac.training.evaluation import evaluation_seed
from pac4sac.training.experiment import create, resume
from pac4sac.training.options import make_options
from pac4sac.training.run import make_runs, settings_grid

OTHERS = [run for run in range(len(SEEDS)) if run != VICTIM]


def misbehaving(fault: str, victim: int, at: int = 3, marker: object = "") -> Task:
    kwargs = {"fault": fault, "victim": victim, "at": at, "marker": str(marker)}
    return Task("faulty", "pool_environments:Faulty-v0", 20, env_kwargs=kwargs)


def first_of(seed: int) -> int:
    """The simulator's seed of the first training episode."""
    return simulator_seed(seed, "train", 0)


# --- what hangs


@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_that_never_ends_fails_only_its_run(workers: int, tmp_path: Path) -> None:
    with EnvPool(faulty(), SEEDS, 0) as pool:
        pool.reset()
        expected = play(pool, range(8))
    started = time.monotonic()
    with EnvPool(faulty("hang", marker=tmp_path / "x"), SEEDS, workers, limit=1) as pool:
        pool.reset()
        seen = play(pool, range(8))
    assert pool.failures.keys() == {VICTIM}
    assert "longer than 1 seconds" in pool.failures[VICTIM]
    assert [[step[run] for run in OTHERS] for step in seen] == [
        [step[run] for run in OTHERS] for step in expected
    ]
    assert time.monotonic() - started < 30


def test_an_alarm_set_by_the_user_is_not_changed() -> None:
    signal.setitimer(signal.ITIMER_REAL, 3600)
    try:
        with EnvPool(faulty(), SEEDS, 0, limit=1) as pool:
            pool.reset()
            play(pool, range(3))
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 3000
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("ended_by", ["SIGTERM", "the time"])
def test_training_can_be_stopped_while_a_simulator_hangs(
    workers: int, ended_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "GRACE", 0.5)
    hangs, request = tmp_path / "hangs", StopRequest()
    monkeypatch.setattr("pac4sac.training.experiment.StopRequest", lambda _: request)

    def stop() -> None:
        if wait_until(hangs.exists) and ended_by == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            request.deadline = time.monotonic()

    threading.Thread(target=stop, daemon=True).start()
    hanging, started = misbehaving("hang", first_of(1), 19, hangs), time.monotonic()
    result = train(tmp_path / "x", task=hanging, workers=workers, checkpoint_every=5)
    assert time.monotonic() - started < 50  # of the 60 seconds that a step has
    assert not result.complete
    assert ended_by in str(result.reason)
    assert about(result.folder, "sac-seed0")["status"] == "interrupted"
    assert list(result.folder.glob("cohorts/000/step-000000015"))  # nothing that was saved is lost


def test_training_stopped_before_its_first_checkpoint_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "GRACE", 0.5)
    hangs = tmp_path / "hangs"

    def stop() -> None:
        wait_until(hangs.exists)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    result = train(
        tmp_path / "x",
        task=misbehaving("hang", first_of(1), 9, hangs),
        workers=1,
        checkpoint_every=500,
    )
    assert not result.complete
    assert not list(result.folder.glob("cohorts/000/step-*"))
    assert not resume(result.folder, max_minutes=0.02).complete  # hanging again, but not refused


PROGRAM = """
import sys
from pathlib import Path
from types import SimpleNamespace
from pac4sac.base.stopping import StopRequest
from pac4sac.base.trust import allow
from pac4sac.studies import local
local.GRACE = 0.5
allow("pool_environments")
cohort = SimpleNamespace(folder=Path(sys.argv[1]), title="x", simulating=0.0, duration=0.0, runs=[0])
with StopRequest() as stop:
    local.run_local([cohort], 1, stop, local.Watcher())
"""


@pytest.mark.parametrize("signals", [[signal.SIGKILL], [signal.SIGINT, signal.SIGINT]])
def test_no_child_process_of_a_study_outlives_it(
    signals: list[signal.Signals], tmp_path: Path
) -> None:
    hangs, folder = tmp_path / "pid", tmp_path / "x"
    runs = make_runs(
        misbehaving("hang deaf", first_of(1), 9, hangs),
        "sac",
        "default",
        [1],
        settings_grid(SETTINGS),
    )
    create(folder, [runs], make_options(50, OPTIONS))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        assert wait_until(lambda: hangs.exists() and hangs.read_text(), 60)
        for number in signals:
            parent.send_signal(number)
            time.sleep(0.3)
        parent.wait(20)
        assert wait_until(lambda: is_gone(int(hangs.read_text())), 5)
    finally:
        parent.kill()
        if hangs.exists() and not is_gone(int(hangs.read_text())):
            os.kill(int(hangs.read_text()), signal.SIGKILL)


# --- what is returned or raised


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (
            "short observation",
            r"ValueError in step 4 .*: its observation has the shape \(1,\) instead of \(3,\)",
        ),
        ("text as reward", "TypeError in step 4 of episode 0: its reward is not a number: '1.5'"),
        ("nothing as reward", "its reward is not a number: None"),
        ("two rewards", r"its reward is not a number: array\(\[1\., 1\.\]\)"),
        ("system exit", "SystemExit in step 4 of episode 0: licence expired"),
    ],
)
def test_an_invalid_step_result_is_reported_and_ends_one_run(
    workers: int, fault: str, cause: str
) -> None:
    with EnvPool(faulty(fault), SEEDS, workers) as pool:
        pool.reset()
        play(pool, range(6))
    assert pool.failures.keys() == {VICTIM}
    assert re.search(cause, pool.failures[VICTIM])


def test_a_reward_may_be_any_kind_of_number() -> None:
    for reward in (1, True, np.float32(1), np.array(1.0), np.array([1.0])):
        with EnvPool(faulty(), [3], 0) as pool:
            pool.reset()
            env = pool._hosts[0]._environments[0]._env
            env.step = lambda action, reward=reward: (
                np.zeros(3, np.float32),
                reward,
                False,
                False,
                {},
            )
            pool.send(np.zeros((1, 2), np.float32))
            assert pool.receive().reward[0] == 1


def test_an_exit_inside_a_simulator_ends_one_run_of_a_cohort(tmp_path: Path) -> None:
    result = train(tmp_path / "x", task=misbehaving("system exit", first_of(1)))
    failed, other = (about(result.folder, f"sac-seed{seed}") for seed in (1, 0))
    assert (failed["status"], other["status"]) == ("failed", "finished")
    assert "SystemExit" in failed["status_detail"]
    assert "licence expired" in failed["status_detail"]


# --- what fails in an evaluation


def test_a_failed_evaluation_stores_its_cause(tmp_path: Path) -> None:
    # the second episode of seed 1 at the end
    victim = simulator_seed(evaluation_seed(1, "60", 1), "evaluate", 1)
    with pytest.warns(
        UserWarning, match=r"1 of 4 episodes .* faulty failed: .* raised ValueError in step 3"
    ) as told:
        folder = train(
            tmp_path / "x", task=misbehaving("raise", victim), steps=60, evaluate_every=0
        ).folder
    assert Path(told[0].filename).name == "evaluation.py"  # a study shows warnings of this package
    (failed,), (other,) = (rows(folder, f"sac-seed{seed}", "evaluations") for seed in (1, 0))
    assert "the robot left the world" in failed["failure"]
    assert failed["mean"] is None
    assert failed["returns"][0] is not None
    assert "failure" not in other


def test_commands_report_why_nothing_was_evaluated_and_exit_with_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name, folder = "pool_environments:Faulty-v0", tmp_path / "x"
    how = [
        "--device",
        "cpu",
        "--backend",
        "eager",
        "--workers",
        "0",
        "--set",
        "width=8",
        "depth=1",
        "batch=8",
    ]
    # It fails in a step of each episode that training does not come to.
    fault = ["--set-task", 'env_kwargs={"fault": "raise", "victim": -2, "at": 6}', "horizon=20"]
    assert (
        main(["train", name, "--algo", "sac", "--steps", "5", "--out", str(folder), *how, *fault])
        == 1
    )
    told = capfd.readouterr().err
    assert "5 of 5 episodes" in told
    assert "ValueError in step 6 of episode 1: the robot left the world" in told
    assert main(["evaluate", str(folder), "--episodes", "2", "--trust", "pool_environments"]) == 1
    shown = capfd.readouterr()
    assert "failed" in shown.out
    assert "the robot left the world" in shown.err
    assert (
        main(["evaluate", str(folder), "--step-seconds", "0", "--trust", "pool_environments"]) == 2
    )
    assert "step_seconds" in capfd.readouterr().err


# --- replays that differ


def test_a_report_lists_runs_with_a_replay_mismatch(tmp_path: Path) -> None:
    about_task = task("cartpole-swingup")
    for seed in (0, 1):
        write_run(
            tmp_path / "e",
            about_task,
            "sac",
            seed,
            curve(about_task, (1.2, 0.3), seed),
            strayed=[7][seed:],
        )
    text = write_report([tmp_path / "e"], tmp_path / "out").page.read_text()
    assert re.search("replay of their last episode[^:]*: <code>[^,]*sac-seed0</code>", text)
