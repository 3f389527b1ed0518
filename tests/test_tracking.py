"""Trackers and callbacks of the user's own: what they are told, how they end a run, how they reach
other processes."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_cli import SMALL, TINY, sentence
from tiny_experiments import about, copy, logs, rows, same, train

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.base.trust import allow
from pac4sac.cli.arguments import callback_flags, callback_names
from pac4sac.cli.main import main
from pac4sac.export.tracking import TRACKERS, callbacks_named
from pac4sac.runs.metrics import final_metrics, run_state, was_solved
from pac4sac.runs.reading import read_run
from pac4sac.studies.definition import load_study
from pac4sac.studies.run import run_study
from pac4sac.studies.watcher import Watcher
from pac4sac.training.callbacks import Callbacks
from pac4sac.training.experiment import resume

STOPPED_AT = 60  # the first end of an episode from this step on


class FakeTracker:
    """A module of a tracker: what was begun, and of each run what was sent and whether it was
    finished."""

    Settings = SimpleNamespace

    def __init__(self) -> None:
        self.runs: list[SimpleNamespace] = []

    def init(self, **given: Any) -> SimpleNamespace:
        run = SimpleNamespace(given=given, sent=[], is_finished=False)
        run.log = lambda numbers, step: run.sent.append((step, numbers))
        run.finish = lambda: setattr(run, "is_finished", True)
        self.runs.append(run)
        return run


class StopTheFirst(pac4sac.Callback):
    def on_log(self, run: Any, kind: str, row: dict[str, Any]) -> str | None:
        return (
            "it has seen enough"
            if run.seed == 0 and kind == "episodes" and row["step"] >= STOPPED_AT
            else None
        )


class StopAtTheEnd(pac4sac.Callback):
    def on_log(self, run: Any, kind: str, row: dict[str, Any]) -> str | None:
        return "too late" if row["step"] == 230 else None


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("plain") / "x").folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("stopped") / "x", callbacks=[StopTheFirst()]).folder


# --- trackers


def test_every_run_of_a_cohort_is_tracked_with_its_config_and_metrics(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trackers = {"wandb": FakeTracker(), "trackio": FakeTracker()}
    for name, fake in trackers.items():
        monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder = train(tmp_path / "x", callbacks=[*callbacks_named(trackers), StopAtTheEnd()]).folder
    # which knows nothing of it; at the last step there is nothing to stop either
    assert same(folder, plain)
    for fake in trackers.values():
        assert len(fake.runs) == 2
        for tracked, name in zip(fake.runs, ("sac-seed0", "sac-seed1"), strict=True):
            assert tracked.given["config"]["run"] == name
            assert tracked.given["config"]["config"]["width"] == 8
            assert tracked.given.get("mode", "offline") == "offline"
            returns = [
                (step, sent["episode/return"])
                for step, sent in tracked.sent
                if "episode/return" in sent
            ]
            assert returns == [
                (row["step"], row["return"]) for row in rows(folder, name, "episodes")
            ]
            last = rows(folder, name, "evaluations")[-1]
            assert tracked.sent[-1] == (last["step"], {"evaluation/deterministic": last["mean"]})
            assert any("metrics/critic_loss" in sent for _, sent in tracked.sent)
            assert tracked.is_finished
        assert len({tracked.given["name"] for tracked in fake.runs}) == 2
        assert len({tracked.given["group"] for tracked in fake.runs}) == 1


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_a_missing_tracker_is_reported_with_its_extra_and_leaves_no_files(
    tracker: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    for command in (
        ["train", "Pendulum-v1"],
        ["compare", "Pendulum-v1"],
        ["study", "run", "smoke"],
    ):
        assert main([*command, "--track", tracker, "--out", str(tmp_path / "x")]) == 2
        assert f"[{tracker}]'" in sentence(capsys)
    assert not (tmp_path / "x").exists()


def test_the_flags_name_the_trackers_and_are_repeated_for_a_resume() -> None:
    assert callback_names("wandb", "a:B, c.d:E") == ["wandb", "a:B", "c.d:E"]
    assert callback_names("none", None) == []
    assert callback_flags(["wandb", "a:B", "c.d:E"]) == " --track wandb --callback a:B,c.d:E"
    assert set(TRACKERS) == {"tensorboard", "wandb", "trackio"}


# --- a callback that ends a run


def test_a_run_stopped_by_a_callback_stores_the_reason_and_its_cohort_continues(
    stopped: Path, plain: Path
) -> None:
    ended = about(stopped, "sac-seed0")
    last = rows(stopped, "sac-seed0", "episodes")[-1]["step"]
    assert (ended["status"], ended["status_detail"]) == (
        "stopped",
        f"it has seen enough, at step {last}",
    )
    assert STOPPED_AT <= last < STOPPED_AT + 30
    assert rows(stopped, "sac-seed0", "evaluations")[-1]["step"] == 230  # with the others
    assert about(stopped, "sac-seed1")["status"] == "finished"
    assert logs(stopped, "sac-seed1") == logs(plain, "sac-seed1")


def test_a_stopped_run_stays_stopped_in_a_resume_without_the_callback(
    stopped: Path, tmp_path: Path
) -> None:
    class Crash(pac4sac.Callback):
        def on_step(self, step: int) -> None:
            if (
                tmp_path / f"x/cohorts/000/step-{step - 1:09d}"
            ).exists() and step - 1 >= STOPPED_AT:
                raise RuntimeError("a crash in the step behind the stop")

    with pytest.raises(RuntimeError, match="behind the stop"):
        train(tmp_path / "x", callbacks=[StopTheFirst(), Crash()])
    assert about(tmp_path / "x", "sac-seed0")["status"] == "stopped"
    assert resume(tmp_path / "x").complete
    assert same(tmp_path / "x", stopped)


def test_reports_list_stopped_runs_and_do_not_rank_them(stopped: Path) -> None:
    run = read_run(stopped / "runs/sac-seed0")
    assert (run_state(run), was_solved(run), final_metrics(run)) == ("stopped", None, {})
    assert run_state(read_run(stopped / "runs/sac-seed1")) == "complete"


def test_a_longer_budget_does_not_continue_a_stopped_run(stopped: Path, tmp_path: Path) -> None:
    folder = copy(stopped, tmp_path / "x")
    assert resume(folder, steps=260).complete
    assert about(folder, "sac-seed0")["status"] == "stopped"
    assert max(row["step"] for row in rows(folder, "sac-seed1", "episodes")) > 230


def test_the_first_reason_counts_and_must_be_a_string() -> None:
    class Says(pac4sac.Callback):
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def on_log(self, run: Any, kind: str, row: dict[str, Any]) -> Any:
            return self.answer

    answers = [None, True, "", "first", "second"]
    assert Callbacks(map(Says, answers)).on_log(*[Any] * 3) == "first"
    assert Callbacks(map(Says, answers[:3])).on_log(*[Any] * 3) is None


# --- on the command line, and in the processes of a study

WATCHING = """
import pac4sac

class StopAtOnce(pac4sac.Callback):
    def on_log(self, run, kind, row):
        return "one episode is enough" if kind == "episodes" else None

class Choosy(pac4sac.Callback):
    def __init__(self, wish): pass
"""
STUDY = """
title = "Watched"
tasks = ["Pendulum-v1"]
seeds = "0:2"
baseline = "sac"
options = { evaluation_episodes = 0, backend = "eager", threads = 1, workers = 0, device = "cpu" }
task."Pendulum-v1" = { horizon = 20, steps = 60 }
set = { width = 8, depth = 1, batch = 4, warmup = 10 }
variant = [{ algo = "sac" }]
"""


@pytest.fixture
def watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "watching.py").write_text(WATCHING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "watching", raising=False)
    monkeypatch.setenv("PAC4SAC_TRUST", "")
    return tmp_path


def test_a_callback_named_on_the_command_line_stops_a_run(
    watching: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--out",
        str(watching / "x"),
        *SMALL,
        *TINY,
        "--steps",
        "210",
        "--callback",
        "watching:StopAtOnce",
    ]
    assert main(["train", "Pendulum-v1", *flags]) == 0
    said = capsys.readouterr().out
    assert "pac4sac-seed0 was stopped by a callback: one episode is enough, at step 200" in said
    assert "A callback stopped 1 of 1 runs" in said
    assert len(rows(watching / "x", "pac4sac-seed0", "episodes")) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("watching", "give a custom class as module:Class"),
        ("watching:Nobody", "could not be imported"),
        ("watching:pac4sac", "must be a subclass of pac4sac.Callback"),
        ("watching:Choosy", "could not be created without arguments"),
    ],
)
def test_an_object_that_is_not_a_callback_is_reported(
    name: str, expected: str, watching: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "Pendulum-v1", "--out", str(watching / "x"), "--callback", name]) == 2
    assert expected in sentence(capsys)
    assert not (watching / "x").exists()


def test_a_file_cannot_choose_a_callback(
    watching: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (watching / "c.toml").write_text('task = "Pendulum-v1"\ncallback = "watching:StopAtOnce"\n')
    assert main(["train", "--config", str(watching / "c.toml"), "--out", str(watching / "x")]) == 2
    assert "allow it with --trust watching" in sentence(capsys)


def test_callbacks_reach_the_cohorts_of_a_study_and_stopped_runs_count_as_done(
    watching: Path,
) -> None:
    (watching / "watched.toml").write_text(STUDY)
    study, root = load_study(str(watching / "watched.toml")), watching / "study"
    allow("watching")
    assert run_study(study, root, Watcher(), callbacks=["watching:StopAtOnce"]).complete
    (folder,) = root.glob("experiments/*")
    assert {about(folder, f"sac-seed{seed}")["status"] for seed in (0, 1)} == {"stopped"}
    assert run_study(study, root, Watcher(), parallel=1).complete  # at once: nothing is left
    with pytest.raises(UserError, match="cannot track training on other machines"):
        run_study(study, root, Watcher(), engine="ray", callbacks=["watching:StopAtOnce"])
    with pytest.raises(UserError, match="give the name of the callback's class as module:Class"):
        pac4sac.compare("Pendulum-v1", callbacks=[StopTheFirst()], out=watching / "compared")  # type: ignore[list-item]
