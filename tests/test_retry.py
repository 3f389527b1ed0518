"""Runs that fail are trained again, alone, from their last checkpoint before the failure."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from test_misbehaviour import misbehaving
from tiny_experiments import about, contents, rows, train

from pac4sac import Result, Task
from pac4sac.base.errors import UserError
from pac4sac.cli.main import main
from pac4sac.cli.result_table import result_table
from pac4sac.runs.reading import read_experiment, read_runs
from pac4sac.studies.plan import PlannedCohort
from pac4sac.tasks.episodes import simulator_seed
from pac4sac.training.experiment import experiment_runs, resume

VICTIM, OTHER = "sac-seed1", "sac-seed0"
STEPS = 110
AGAIN = "ignore:.*trained again from step:UserWarning"
pytestmark = pytest.mark.filterwarnings(AGAIN)


def faulty(marker: Path, failures: int, episode: int = 3) -> Task:
    """A task whose run of seed 1 fails this many times in an episode."""
    marker.write_text(str(failures))
    task = misbehaving("raise some times", simulator_seed(1, "train", episode), 3, marker)
    return dataclasses.replace(task, steps=STEPS)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An experiment in which one of two runs has failed once, and the file that counts down."""
    folder = tmp_path_factory.mktemp("retry")
    marker = folder / "marker"
    train(folder / "x", task=faulty(marker, 1), checkpoint_every=10, evaluate_every=0, steps=STEPS)
    return folder / "x", marker


@pytest.fixture
def fresh(failed: tuple[Path, Path], tmp_path: Path) -> Callable[[int], Path]:
    """Copies that experiment, and sets how many more times its run fails."""

    def copy(failures: int) -> Path:
        failed[1].write_text(str(failures))
        return Path(shutil.copytree(failed[0], tmp_path / "x"))

    return copy


def statuses(result: Result) -> dict[str, str]:
    return {run.run: run.status for run in result.runs}


def test_a_resume_retrains_only_the_failed_run(
    fresh: Callable[[int], Path], tmp_path: Path
) -> None:
    folder = fresh(0)
    other = contents(folder / "runs" / OTHER)
    before = rows(folder, VICTIM, "episodes")
    with pytest.warns(UserWarning, match=f"{VICTIM} failed: .*no memory is left.*attempt 1 of 3"):
        result = resume(folder)
    assert statuses(result) == {OTHER: "finished", VICTIM: "finished"}
    assert contents(folder / "runs" / OTHER) == other
    assert rows(folder, VICTIM, "episodes")[: len(before)] == before
    (retried,) = about(folder, VICTIM)["retried"]
    assert 0 < retried["from_step"] < rows(folder, VICTIM, "episodes")[3]["step"]
    assert "no memory is left" in retried["cause"]
    assert not list(folder.glob("cohorts/*/kept-*"))
    whole = train(
        tmp_path / "whole", task=faulty(tmp_path / "none", 0), checkpoint_every=10,
        evaluate_every=0, steps=STEPS,
    )  # fmt: skip
    for mine, expected in zip(result.runs, whole.runs, strict=True):
        np.testing.assert_allclose(mine.returns, expected.returns, rtol=1e-4)


def test_a_run_whose_worker_keeps_dying_is_retrained(tmp_path: Path) -> None:
    (tmp_path / "marker").write_text("2")  # the second death in one step fails the run
    task = misbehaving("exit some times", simulator_seed(1, "train", 3), 3, tmp_path / "marker")
    options = {"checkpoint_every": 10, "evaluate_every": 0, "steps": STEPS, "workers": 2}
    task = dataclasses.replace(task, steps=STEPS)
    assert statuses(train(tmp_path / "x", task=task, **options))[VICTIM] == "failed"
    with pytest.warns(UserWarning, match=f"{VICTIM} failed: .*died twice.*attempt 1 of 3"):
        assert statuses(resume(tmp_path / "x")) == {OTHER: "finished", VICTIM: "finished"}


def test_attempts_are_limited_and_counted_over_all_calls(fresh: Callable[[int], Path]) -> None:
    folder = fresh(9)
    assert statuses(resume(folder, retries=1)) == {OTHER: "finished", VICTIM: "failed"}
    assert statuses(resume(folder, retries=1)) == {OTHER: "finished", VICTIM: "failed"}
    assert len(about(folder, VICTIM)["retried"]) == 1
    resume(folder)
    assert len(about(folder, VICTIM)["retried"]) == 3
    with pytest.raises(UserError, match="retries"):
        resume(folder, retries=-1)


def test_a_run_that_failed_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    task = faulty(tmp_path / "marker", 2, episode=0)
    options = {"checkpoint_every": 50, "evaluate_every": 0, "steps": STEPS}
    result = train(tmp_path / "x", task=task, **options)
    assert statuses(result)[VICTIM] == "failed"
    result = resume(tmp_path / "x")
    assert statuses(result)[VICTIM] == "finished"
    assert [each["from_step"] for each in about(result.folder, VICTIM)["retried"]] == [0, 0]


def test_an_interrupted_attempt_and_an_extension_continue_the_retried_run(
    fresh: Callable[[int], Path],
) -> None:
    folder = fresh(0)
    assert not resume(folder, max_minutes=1e-9).complete  # stopped before or at its first step
    result = resume(folder)
    assert statuses(result) == {OTHER: "finished", VICTIM: "finished"}
    done = contents(folder)
    assert resume(folder).complete
    assert contents(folder) == done
    result = resume(folder, steps=STEPS + 40)
    assert statuses(result) == {OTHER: "finished", VICTIM: "finished"}
    assert {int(run.steps[-1]) > STEPS for run in result.runs} == {True}
    assert {run.task["steps"] for run in result.runs} == {STEPS + 40}
    assert len(about(folder, VICTIM)["retried"]) == 1
    assert resume(folder).complete


def test_exit_codes_and_means_count_failed_runs(
    fresh: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fresh(9)
    assert main(["resume", str(folder), "--retries", "0"]) == 3
    shown = capsys.readouterr().out
    assert "1 of 2 runs" in shown
    assert "pac4sac resume" in shown
    table = result_table(read_runs(folder), Console(width=200))
    assert "mean ± std of 1 of 2" in list(table.columns[0].cells)


def test_means_leave_out_a_run_that_failed_in_its_first_episode(tmp_path: Path) -> None:
    fault = {"victim": simulator_seed(1, "train", 0), "at": 3}
    task = Task("drift", "training_environments:Drift-v0", 30, 20.0, env_kwargs=fault)
    runs = train(tmp_path / "x", task=task, evaluate_every=0).runs
    assert [run.status for run in runs] == ["finished", "failed"]
    columns = [column.cells for column in result_table(runs, Console(width=200)).columns]
    finished, _, mean = ([*map(str, row)] for row in zip(*columns, strict=True))
    assert mean[2:4] == finished[2:4]  # episodes until solved, and regret


def test_a_training_in_which_one_of_two_runs_failed_exits_with_3(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    marker.write_text("1")
    kwargs = {"fault": "raise some times", "victim": simulator_seed(1, "train", 3), "at": 3}
    task = ["horizon=20", f"env_kwargs={json.dumps(kwargs | {'marker': str(marker)})}"]
    line = f"train pool_environments:Faulty-v0 --algo sac --seeds 0:2 --steps {STEPS} --workers 0"
    line += f" --evaluation-episodes 0 --out {tmp_path / 'x'} --set width=8 depth=1 batch=8"
    assert main([*line.split(), "--set-task", *task]) == 3


def test_a_study_counts_failed_runs_as_to_be_trained_until_the_last_attempt(
    fresh: Callable[[int], Path],
) -> None:
    folder = fresh(9)
    runs = experiment_runs(read_experiment(folder))[0]
    cohort = PlannedCohort(folder, tuple(runs), 0)
    assert (len(cohort.done()), cohort.is_done()) == (1, False)
    resume(folder)
    assert (len(cohort.done()), cohort.is_done()) == (2, True)
