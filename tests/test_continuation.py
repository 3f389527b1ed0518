"""Some runs of a finished experiment continue to more steps, as the whole experiment would."""

import json
import shutil
from pathlib import Path

import pytest
from tiny_experiments import logs, rows, train

import pac4sac
from pac4sac.runs.reading import read_runs
from pac4sac.training.continuation import continue_apart

SHORT, LONG = 120, 230
SWEPT = {"lr": [1e-3, 3e-3]}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("rung") / "short", settings=SWEPT, steps=SHORT).folder


def test_some_runs_of_a_cohort_continue_alone(short: Path, tmp_path: Path):
    labels = {"sac-lr=0.003"}
    assert continue_apart(short, labels, tmp_path / "apart", LONG)
    assert not list(tmp_path.glob("*.part"))
    apart = pac4sac.resume(tmp_path / "apart")
    assert [run.run for run in apart.runs] == ["sac-lr=0.003-seed0", "sac-lr=0.003-seed1"]
    assert {(run.status, run.task["steps"]) for run in apart.runs} == {("finished", LONG)}
    shutil.copytree(short, tmp_path / "whole")
    whole = pac4sac.resume(tmp_path / "whole", steps=LONG)
    same = {run.run: run for run in whole.runs if run.label in labels}
    for run in apart.runs:
        assert run.identity == same[run.run].identity
        assert [row["step"] for row in run.episodes] == [r["step"] for r in same[run.run].episodes]
        assert run.returns == pytest.approx(same[run.run].returns, abs=0.01)
        assert not run.damage


def test_all_runs_of_a_cohort_continue_byte_for_byte(short: Path, tmp_path: Path):
    assert continue_apart(short, {"sac-lr=0.001", "sac-lr=0.003"}, tmp_path / "apart", LONG)
    pac4sac.resume(tmp_path / "apart")
    shutil.copytree(short, tmp_path / "whole")
    pac4sac.resume(tmp_path / "whole", steps=LONG)
    for run in ("sac-lr=0.001-seed1", "sac-lr=0.003-seed0"):
        assert logs(tmp_path / "apart", run) == logs(tmp_path / "whole", run)
        agents = [tmp_path / f / "runs" / run / "agent.safetensors" for f in ("apart", "whole")]
        assert agents[0].read_bytes() == agents[1].read_bytes()
    assert rows(tmp_path / "apart", run, "evaluations")[-1]["step"] == LONG


def test_no_experiment_is_made_for_missing_runs(short: Path, tmp_path: Path):
    assert not continue_apart(short, {"other"}, tmp_path / "apart", LONG)
    copy = shutil.copytree(short, tmp_path / "copy")
    shutil.rmtree(copy / "cohorts")
    assert not continue_apart(copy, {"sac-lr=0.001"}, tmp_path / "apart", LONG)
    assert not (tmp_path / "apart").exists()


def test_continued_runs_are_described_as_interrupted(short: Path, tmp_path: Path):
    continue_apart(short, {"sac-lr=0.001"}, tmp_path / "apart", LONG)
    about = json.loads((tmp_path / "apart/runs/sac-lr=0.001-seed0/run.json").read_text())
    assert (about["status"], about["task"]["steps"]) == ("interrupted", LONG)
    assert "logs" not in about
    (first, _) = read_runs(tmp_path / "apart")  # refuses a file that was changed
    assert first.status == "interrupted"
