"""Exact resume: however often it is killed, an experiment ends with the bytes of one that never
was."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from tiny_experiments import (
    DRIFT,
    STEPS,
    KillableTrainings,
    SignalAt,
    about,
    contents,
    copy,
    logs,
    newest,
    rows,
    same,
    train,
)

import pac4sac
from pac4sac import Callback, Result, Task
from pac4sac.base.errors import UserError
from pac4sac.tasks.episodes import simulator_seed
from pac4sac.training import backends, checkpoint, experiment, interleaving, loop
from pac4sac.training.run import make_agent

RUNS = ("sac-seed0", "sac-seed1")


@pytest.fixture(scope="module")
def killable() -> Iterator[KillableTrainings]:
    server = KillableTrainings()
    yield server
    server.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment that was never interrupted."""
    return train(tmp_path_factory.mktemp("whole") / "sac").folder


# Noise that drifts is state of its own; it fades in episodes that a tiny experiment does not reach.
DRIFTING = {"noise_kind": "ornstein-uhlenbeck", "noise": 0.3}


@pytest.mark.parametrize(
    ("algo", "settings"),
    [
        ("pac4sac", {}),
        ("td3", {"policy_delay": 3}),
        ("ddpg", DRIFTING),
        ("oac", {"normalise_rewards": True}),
        ("flashsac", {"batch": 8, "bins": 5, "lr_steps": 50}),
        ("pac4sac-explore", {"shots": 3, "noise_colour": "pink", "outside": 0.5}),
    ],
)
def test_a_training_killed_at_random_steps_ends_byte_identical(
    killable: KillableTrainings, tmp_path: Path, algo: str, settings: dict[str, Any]
) -> None:
    reference = train(tmp_path / "whole", algo, settings=settings).folder
    luck = random.Random(algo)
    for workers, kills in ((0, 3), (2, 2)):
        folder = tmp_path / str(workers)
        first, *later = sorted(luck.sample(range(45, STEPS), kills))
        job = {"algo": algo, "workers": workers, "settings": settings}
        assert killable.killed_at("train", folder, first, **{"with": job})
        for step in later:
            assert killable.killed_at("resume", folder, step)
        assert about(folder, f"{algo}-seed0")["status"] == "running"
        assert killable.run("resume", folder) == 0
        assert same(folder, reference)


def test_a_training_killed_with_sigkill_ends_byte_identical(tmp_path: Path, whole: Path) -> None:
    code = """
import sys
from pathlib import Path
import tiny_experiments, pac4sac
folder = Path(sys.argv[1])
print("ready", flush=True)
pac4sac.resume(folder) if (folder / "experiment.json").exists() else tiny_experiments.train(folder)
"""
    luck = random.Random(4)
    folder = tmp_path / "killed"
    for attempt in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
        )
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            if attempt < 2:
                time.sleep(luck.uniform(0.05, 0.8))
                child.kill()
    assert child.returncode == 0
    assert same(folder, whole)


def test_a_training_killed_before_its_first_checkpoint_starts_again(
    killable: KillableTrainings, tmp_path: Path, whole: Path
) -> None:
    folder = tmp_path / "x"
    assert killable.killed_at("train", folder, 38)
    assert rows(folder, RUNS[0], "episodes")  # which are cut
    assert killable.run("resume", folder) == 0
    assert same(folder, whole)


# 1: experiment.json. 2 and 3: run.json of both runs. Then, for each checkpoint, two agents and four
# files.
@pytest.mark.parametrize("write", [3, 5, 8, 14])
def test_a_training_killed_during_a_write_ends_byte_identical(
    killable: KillableTrainings, tmp_path: Path, whole: Path, write: int
) -> None:
    folder = tmp_path / "x"
    assert killable.run("train", folder, die={"write": write}) == -signal.SIGKILL
    if write >= 6:
        assert list((folder / "cohorts" / "000").glob("*.part"))
    assert killable.run("resume", folder) == 0
    assert same(folder, whole)


@pytest.mark.parametrize("lines", [1, 4])
def test_a_training_killed_during_an_evaluation_logs_each_line_once(
    killable: KillableTrainings, tmp_path: Path, whole: Path, lines: int
) -> None:
    folder = tmp_path / "x"
    assert (
        killable.run("train", folder, die={"kind": "evaluations", "lines": lines})
        == -signal.SIGKILL
    )
    assert killable.run("resume", folder) == 0
    assert same(folder, whole)


def test_a_training_killed_in_the_final_evaluation_has_a_checkpoint_of_the_last_step(
    killable: KillableTrainings, tmp_path: Path
) -> None:
    folder = tmp_path / "x"
    options = {"evaluate_every": 0}
    assert (
        killable.run("train", folder, die={"kind": "evaluations", "lines": 1}, **{"with": options})
        == -signal.SIGKILL
    )
    assert newest(folder).name == f"step-{STEPS:09d}"


@pytest.mark.parametrize(("line", "step"), [(1, 150), (5, STEPS)])
def test_a_signal_ends_an_evaluation_and_the_resume_repeats_it(
    tmp_path: Path, line: int, step: int
) -> None:
    reference = train(tmp_path / "whole", "pac4sac").folder
    signalled = SignalAt(signal.SIGTERM, kind="evaluations", lines=line)
    result = train(tmp_path / "x", "pac4sac", callbacks=[signalled])
    assert not result.complete
    evaluations = [row for run in result.runs for row in run.evaluations if row["step"] == step]
    assert {row["policy"] for row in evaluations} == {"deterministic"}
    assert newest(result.folder).name == f"step-{step:09d}"
    assert {run.status for run in result.runs} == {"interrupted"}
    assert pac4sac.resume(result.folder).complete
    assert same(result.folder, reference)


def test_the_time_limit_does_not_interrupt_an_evaluation(tmp_path: Path, whole: Path) -> None:
    folder = train(tmp_path / "x", callbacks=[SignalAt(signal.SIGTERM, step=STEPS)]).folder
    assert pac4sac.resume(folder, max_minutes=1e-6).complete
    assert same(folder, whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_training_after_a_checkpoint(
    tmp_path: Path, whole: Path, number: int, request: pytest.FixtureRequest
) -> None:
    # the tests themselves may run under nohup
    if (inherited := signal.getsignal(number)) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
        request.addfinalizer(lambda: signal.signal(number, inherited))
    before = signal.getsignal(number)
    result = train(tmp_path / "x", callbacks=[SignalAt(number, step=67)])
    assert not result.complete
    assert signal.Signals(number).name in str(result.reason)
    assert signal.getsignal(number) is before
    assert newest(result.folder).name == "step-000000067"
    assert [(run.status, run.status_detail) for run in result.runs] == [
        ("interrupted", str(result.reason))
    ] * 2
    assert pac4sac.resume(result.folder).complete
    assert same(result.folder, whole)


def test_a_stop_at_the_last_step_leaves_the_final_evaluation_to_the_resume(
    tmp_path: Path, whole: Path
) -> None:
    result = train(tmp_path / "x", callbacks=[SignalAt(signal.SIGTERM, step=STEPS)])
    assert not result.complete
    assert pac4sac.resume(result.folder).complete
    assert same(result.folder, whole)


def test_the_time_limit_stops_training_and_resumes_finish_it(tmp_path: Path, whole: Path) -> None:
    result = train(tmp_path / "x", max_minutes=1e-6)
    assert (result.complete, str(result.reason)) == (False, "the time is up")
    assert newest(result.folder).name == "step-000000001"
    for _ in range(2):
        assert not pac4sac.resume(result.folder, max_minutes=1e-6).complete
    assert newest(result.folder).name == "step-000000003"
    assert pac4sac.resume(result.folder).complete
    assert same(result.folder, whole)


def test_a_signal_during_preparation_ends_training_before_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return make_agent(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_agent", interrupted)
        patch.setattr(backends, "prepare", lambda *_: pytest.fail("it was compiled"))
        result = train(tmp_path / "x", steps=60)
    assert (result.complete, str(result.reason)) == (False, "SIGINT was received")
    assert (
        capsys.readouterr().err
        == "SIGINT was received: stopping after a checkpoint; press Ctrl-C to stop at once.\n"
    )
    assert pac4sac.resume(result.folder).complete


def test_a_closed_terminal_does_not_stop_a_process_under_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert train(
            tmp_path / "x", steps=60, callbacks=[SignalAt(signal.SIGHUP, step=50)]
        ).complete
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("steps", [None, STEPS + 10])
def test_deleted_checkpoints_of_finished_runs_do_not_cut_logs(
    tmp_path: Path, whole: Path, steps: int | None
) -> None:
    folder = copy(whole, tmp_path / "x")
    shutil.rmtree(folder / "cohorts")
    before = contents(folder)
    with pytest.raises(
        UserError,
        match=r"are finished, but their checkpoints are missing.*train again into another",
    ):
        pac4sac.resume(folder, steps=steps)
    assert contents(folder) == before


def test_deleted_checkpoints_of_unfinished_runs_do_not_cut_logs(
    killable: KillableTrainings, tmp_path: Path
) -> None:
    interrupted = train(
        tmp_path / "interrupted", callbacks=[SignalAt(signal.SIGTERM, step=39)]
    ).folder
    assert killable.killed_at("train", tmp_path / "killed", 79)
    for folder in (interrupted, tmp_path / "killed"):
        shutil.rmtree(folder / "cohorts")
        before = contents(folder)
        with pytest.raises(UserError, match="are begun, but their checkpoints are missing"):
            pac4sac.resume(folder)
        assert contents(folder) == before


def test_a_finished_experiment_is_not_changed(tmp_path: Path, whole: Path) -> None:
    folder = copy(whole, tmp_path / "x")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*")}
    assert pac4sac.resume(folder).complete
    assert {
        path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.rglob("*")
    } == before


def test_a_run_whose_simulator_cannot_be_restored_is_not_lost(tmp_path: Path) -> None:
    first = simulator_seed(0, "train", 0)
    kwargs = {"fault": "unseeded", "victim": first, "at": 3}
    task = Task("unseeded", "pool_environments:Faulty-v0", 20, env_kwargs=kwargs)
    # amid the first episodes
    folder = train(tmp_path / "x", task=task, steps=6, settings={"warmup": 8}).folder
    with pytest.warns(UserWarning, match="Seed 0 continues from that observation"):
        assert pac4sac.resume(folder, steps=60).complete
    assert about(folder, RUNS[0])["replay_mismatch"] == [
        6
    ]  # and a further resume does not forget it
    assert pac4sac.resume(folder, steps=70).complete
    assert about(folder, RUNS[0])["replay_mismatch"] == [6]
    assert "replay_mismatch" not in about(folder, RUNS[1])
    replay = safetensors.torch.load_file(newest(folder) / "learner.safetensors")["replay"]
    led_to, acted_on = replay[:, 5, -4:-1], replay[:, 6, :3]
    assert acted_on[1].equal(led_to[1])
    assert not acted_on[0].equal(led_to[0])  # but on what its simulator shows now


def test_an_extended_experiment_equals_a_longer_experiment(tmp_path: Path) -> None:
    longer = train(tmp_path / "longer", steps=300, task=DRIFT).folder
    # its final evaluation is the longer one's scheduled one
    folder = train(tmp_path / "x", steps=150).folder
    assert newest(folder).name == "step-000000150"
    assert pac4sac.resume(folder, steps=300).complete
    for run in RUNS:
        assert logs(folder, run) == logs(longer, run)
    assert weights(newest(folder)) == weights(newest(longer))


def test_an_extension_is_stored_only_if_a_checkpoint_is_usable(tmp_path: Path, whole: Path) -> None:
    folder = copy(whole, tmp_path / "x")
    before = (folder / "experiment.json").read_bytes()
    for manifest in folder.rglob("manifest.json"):
        manifest.write_text("{")
    with pytest.raises(UserError, match="All checkpoints"):
        pac4sac.resume(folder, steps=2 * STEPS)
    assert (folder / "experiment.json").read_bytes() == before


def test_a_checkpoint_without_a_precision_can_be_resumed(tmp_path: Path, whole: Path) -> None:
    folder = copy(whole, tmp_path / "x")
    cohort = json.loads((newest(folder) / "manifest.json").read_bytes())["cohort"]
    saved = checkpoint.read_newest(folder / "cohorts/000", cohort)
    assert saved is not None
    assert saved.progress["placement"].pop("precision") == "float32"
    checkpoint.save(folder / "cohorts/000", cohort, STEPS, saved)
    assert pac4sac.resume(folder, steps=STEPS + 10).complete


def test_an_extension_continues_a_solved_run_that_was_not_stopped(tmp_path: Path) -> None:
    easy = pac4sac.Task("easy", DRIFT.env_id, 30, r_limit=-1e9)
    longer = train(tmp_path / "longer", task=easy, steps=240, evaluate_every=0).folder
    folder = train(tmp_path / "x", task=easy, steps=200, evaluate_every=0).folder
    assert pac4sac.resume(folder, steps=240).complete
    assert logs(folder, RUNS[0])["episodes.jsonl"] == logs(longer, RUNS[0])["episodes.jsonl"]
    with pytest.raises(UserError, match="must exceed the 240 steps"):
        pac4sac.resume(folder, steps=100)


def weights(folder: Path) -> dict[str, bytes]:
    return {
        name: t.numpy().tobytes()
        for name, t in safetensors.torch.load_file(folder / "learner.safetensors").items()
    }


def test_two_cohorts_interrupted_in_the_second_end_byte_identical(
    killable: KillableTrainings, tmp_path: Path
) -> None:
    settings = {"width": [8, 12]}
    reference = train(tmp_path / "whole", settings=settings, steps=120).folder
    folder = tmp_path / "x"
    # Steps are counted by cohort: the first is over, with its checkpoints, when the second begins.
    job = {"with": {"settings": settings, "steps": 120}}
    assert (
        killable.run("train", folder, die={"kind": "metrics", "lines": 6}, **job) == -signal.SIGKILL
    )
    assert about(folder, "sac-width=8-seed0")["status"] == "finished"
    first = contents(folder / "cohorts" / "000")
    assert killable.run("resume", folder) == 0
    assert contents(folder / "cohorts" / "000") == first
    assert same(folder, reference)


def test_a_run_that_had_ended_before_the_checkpoint_stays_ended(
    killable: KillableTrainings, tmp_path: Path
) -> None:
    job = {"algo": "training_agents:Fragile", "settings": {"breaks_at": [999999, 120]}}
    reference = train(tmp_path / "whole", **job).folder
    folder = tmp_path / "x"
    assert killable.killed_at("train", folder, 215, **{"with": job})
    assert killable.run("resume", folder) == 0
    assert same(folder, reference)
    states = safetensors.torch.load_file(newest(folder) / "learner.safetensors")
    assert states["alive"].tolist() == [True, True, False, False]
    assert (
        safetensors.torch.load_file(newest(folder) / "pool.safetensors")["parked"].tolist()
        == [False] * 2 + [True] * 2
    )
    assert about(folder, "training_agents.Fragile-breaks_at=120-seed1")["status"] == "diverged"


def test_two_processes_never_train_the_same_experiment(tmp_path: Path) -> None:
    refusals = []

    class Second(pac4sac.Callback):
        def on_step(self, step: int) -> None:
            if step == 45:
                with pytest.raises(UserError, match="another process") as refusal:
                    pac4sac.resume(tmp_path / "x")
                refusals.append(refusal)

    assert train(tmp_path / "x", steps=50, callbacks=[Second()]).complete
    assert refusals


def in_turns(
    folder: Path, monkeypatch: pytest.MonkeyPatch, together: int, **options: Any
) -> Result:
    """Four seeds as two cohorts, which take turns or train one after the other."""
    together_or_not = {
        1: lambda cohorts, _: [[cohort] for cohort in cohorts],
        2: lambda cohorts, _: [cohorts],
    }
    monkeypatch.setattr(interleaving, "interleaved_groups", together_or_not[together])
    monkeypatch.setattr(experiment, "plan_cohorts", lambda runs, _: [runs[:2], runs[2:]])
    return train(folder, seeds=range(4), **options)


def test_interleaved_cohorts_train_the_same_as_sequential_cohorts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = in_turns(tmp_path / "alone", monkeypatch, together=1)
    seen: list[int] = []

    class Steps(Callback):
        def on_step(self, step: int) -> None:
            seen.append(step)

    result = in_turns(tmp_path / "turns", monkeypatch, together=2, workers=2, callbacks=[Steps()])
    assert result.complete
    assert seen == list(range(1, STEPS + 1))  # told once of each
    assert same(result.folder, alone.folder)


def test_interleaved_cohorts_resume_exactly_after_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = in_turns(tmp_path / "alone", monkeypatch, together=1)
    stopped = in_turns(
        tmp_path / "x", monkeypatch, together=2, callbacks=[SignalAt(signal.SIGTERM, step=101)]
    )
    assert not stopped.complete
    # stopped in the middle of a round
    assert newest(stopped.folder, "000").name != newest(stopped.folder, "001").name
    assert pac4sac.resume(stopped.folder).complete
    assert same(stopped.folder, alone.folder)
