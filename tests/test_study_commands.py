"""The commands about studies, as typed."""

import signal
from pathlib import Path
from typing import Any

import pytest
from test_studies import TINY

from pac4sac.cli import main
from pac4sac.studies.definition import load_study
from pac4sac.studies.plan import begin
from pac4sac.training.signals import StopRequest


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "tiny.toml").write_text(TINY)
    return "tiny.toml"


def test_a_study_is_planned_run_looked_at_and_reported(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "status", tiny]) == 2
    assert "holds no study yet" in capsys.readouterr().err

    assert main(["study", "plan", tiny, "--no-trial"]) == 0
    planned = capsys.readouterr().out
    assert "Memory" in planned
    assert "Estimate" not in planned
    assert "4 runs" in planned  # of six, as two are the same under another name
    assert main(["study", "plan", tiny]) == 0
    assert "One after another about" in capsys.readouterr().out

    assert main(["study", "run", tiny, "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "2 cohorts of up to" in shown
    assert "All variants on Pendulum-v1" in shown
    assert Path("experiments/study-tiny/report/report.html").is_file()

    assert main(["study", "status", tiny]) == 0
    assert "2 finished" in capsys.readouterr().out
    assert main(["report", "experiments/study-tiny", "--out", "elsewhere"]) == 0
    assert Path("elsewhere/report.md").read_text() == Path("experiments/study-tiny/report/report.md").read_text()


def test_compare_trains_and_shows_intervals(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", "Pendulum-v1", "--algos", "ddpg,sac", "--seeds", "0:2", "--steps", "400", "--device", "cpu"]
    assert main([*command, "--set", "width=8", "warmup=20"]) == 0
    shown = capsys.readouterr().out
    assert "IQM" in shown
    assert "ddpg" in shown
    assert "baseline" in shown


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["study", "run", "table-9"], "There is no study 'table-9'"),
        (["study", "run", "smoke", "--tasks", "ant"], "has no task ant"),
        (["compare", "Pendulum-v1", "--algos", "sac,sac"], "An algorithm is named twice"),
        (["compare", "Pendulum-v1", "--set", "width=8,16"], "compare takes one value for width"),
        (["compare", "Pendulum-v2", "--algos", "sac"], "There is no task or environment 'Pendulum-v2'"),
        (["report", "nowhere"], "nowhere"),
        (["study", "run", "tiny.toml", "--parallel", "0"], "At least 1 cohort must be trained at a time, not 0"),
        (["study", "run", "tiny.toml", "--max-minutes", "-1"], "max_minutes must be above 0, not -1"),
        (["study", "run", "tiny.toml", "--device", "cpu", "--precision", "tf32"], "tf32 is one of GPUs"),
        (["study", "run", "cost", "--device", "cpu", "--precision", "tf32"], "tf32 is one of GPUs"),
        (["study", "run", "tiny.toml", "--out", "tiny.toml/x"], "Writing tiny.toml/x failed"),
        (["compare", "Pendulum-v1", "--parallel", "-1"], "At least 1 cohort must be trained at a time, not -1"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(
    command: list[str], sentence: str, tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("command", [["report", "begun", "--out"], ["study", "collect", "begun", "--into"]])
def test_a_place_that_cannot_be_written_is_told_in_a_sentence(
    command: list[str], tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(load_study(tiny), Path("begun"), [], {})
    assert main([*command, f"{tiny}/x"]) == 2
    assert f"Writing {tiny}/x" in capsys.readouterr().err


@pytest.mark.parametrize(("reason", "code"), [("signal", 130), ("time", 0)])
@pytest.mark.parametrize("command", [["study", "run", "tiny.toml"], ["compare", "Pendulum-v1", "--algos", "sac"]])
def test_a_study_that_was_interrupted_ends_like_such_training(
    command: list[str],
    reason: str,
    code: int,
    tiny: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stopped(cohorts: Any, parallel: int, stop: StopRequest, *_: Any) -> bool:
        if reason == "signal":
            signal.raise_signal(signal.SIGINT)
        else:
            stop.deadline = 0
        return not stop.wanted

    monkeypatch.setattr("pac4sac.studies.run.run_local", stopped)
    assert main(command) == code
    assert ("1 cohort of" if command[0] == "compare" else "2 cohorts of") in capsys.readouterr().out
