"""Searches of settings: spaces, samplers, pruning, batches that survive a kill, two workers on one
storage, and the final training with fresh seeds. Training itself is a formula here; the slow tests
train."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_folders import write_study

optuna = pytest.importorskip("optuna")

import pac4sac  # noqa: E402
from pac4sac.base.errors import UserError  # noqa: E402
from pac4sac.base.stopping import TIME_IS_UP  # noqa: E402
from pac4sac.cli.main import main  # noqa: E402
from pac4sac.report.report import write_report  # noqa: E402
from pac4sac.runs.tuning import score_difference  # noqa: E402
from pac4sac.studies.definition import Study  # noqa: E402
from pac4sac.studies.tuning import search, tune  # noqa: E402
from pac4sac.studies.tuning.objective import ScoreReference, SearchObjective  # noqa: E402
from pac4sac.studies.tuning.sampling import is_worse, make_pruner, make_sampler  # noqa: E402
from pac4sac.studies.tuning.space import make_space, read_space  # noqa: E402
from pac4sac.tasks import get_task  # noqa: E402
from pac4sac.training.experiment import Result  # noqa: E402
from pac4sac.training.run import Run  # noqa: E402

HOW: dict[str, Any] = {
    "space": {"lr": "1e-4:1e-1:log", "n_step": [1, 3]},
    "trials": 8,
    "seeds": range(1000, 1003),
    "fresh_seeds": range(3000, 3004),
    "settings": {"warmup": 100},
    "steps": 2000,
    "at_once": 4,
}


def value_of(run: Run) -> float:
    """A return that is best at a learning rate of 0.01, with noise of the seed."""
    noise = np.random.default_rng([run.seed, round(1e6 * run.config.lr)]).normal()
    return float(-100 * abs(np.log10(run.config.lr) + 2) - 5 * run.config.n_step + noise)


class FormulaTrainer:
    """Stands for `run_study`: writes run folders whose returns are a formula of the settings."""

    def __init__(self, value: Callable[[Run], float] = value_of) -> None:
        self.value, self.trained, self.studies = value, [], []
        self.before: Callable[[Study], None] = lambda study: None

    def __call__(self, study: Study, root: Path, watcher: Any, **how: Any) -> Result:
        self.before(study)
        self.studies.append((root, study))
        for run in study.runs():
            folder = root / "experiments" / run.task.name / "runs" / run.id
            if not folder.exists():
                self.trained.append((root, run))
                self.write(folder, run)
        write_study(root, study.name, study.kind, study.baseline, [])
        return Result(root, complete=True)

    def write(self, folder: Path, run: Run) -> None:
        folder.mkdir(parents=True)
        value, horizon = self.value(run), run.task.horizon or 200
        about = {**run.describe(), "version": 1, "status": "finished", "status_detail": None}
        if not np.isfinite(value):
            about["status"] = "diverged"
        (folder / "run.json").write_text(json.dumps(about))
        ends = range(horizon, run.task.steps + 1, horizon)
        rows = [
            {"episode": k, "step": end, "return": value if k else -1000.0, "length": horizon}
            for k, end in enumerate(ends)
        ]
        (folder / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        last = {"step": run.task.steps, "policy": "deterministic", "mean": value, "returns": None}
        if np.isfinite(value):
            (folder / "evaluations.jsonl").write_text(json.dumps(last) + "\n")


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> FormulaTrainer:
    made = FormulaTrainer()
    monkeypatch.setattr(search, "run_study", made)
    monkeypatch.setattr(tune, "_write", lambda root, summary: write_summary_only(root, summary))
    return made


class NoReport:
    page = Path("report.html")


def write_summary_only(root: Path, summary: Any) -> NoReport:
    (root / "tune.json").write_text(json.dumps(summary))
    return NoReport()


# --- spaces


def test_all_forms_of_a_search_space_are_equivalent(tmp_path: Path):
    (tmp_path / "space.toml").write_text(
        "[space]\nlr = { low = 1e-4, high = 1e-1, log = true }\nn_step = [1, 3]\n"
    )
    typed = make_space("sac", read_space(["lr=1e-4:1e-1:log", "n_step=1,3"]))
    assert make_space("sac", read_space([str(tmp_path / "space.toml")])) == typed
    given = {
        "lr": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True),
        "n_step": optuna.distributions.CategoricalDistribution([1, 3]),
    }
    assert make_space("sac", given) == typed
    assert [str(each) for each in typed] == ["lr=0.0001:0.1:log", "n_step=1,3"]
    (lr, n_step) = (each.distribution() for each in typed)
    assert lr == given["lr"]
    assert n_step == given["n_step"]


def test_the_type_of_a_range_is_that_of_its_setting():
    batch, tau, width, norm = make_space(
        "sac",
        read_space(["batch=32:256:log", "tau=0.01:0.1", "width=64:256:64", "norm=true,false"]),
    )
    ints, floats = optuna.distributions.IntDistribution, optuna.distributions.FloatDistribution
    assert batch.distribution() == ints(32, 256, log=True)
    assert tau.distribution() == floats(0.01, 0.1)
    assert width.distribution() == ints(64, 256, step=64)
    assert norm.choices == (True, False)


@pytest.mark.parametrize(
    ("space", "word"),
    [
        ({"lrr": "0.1:1"}, "lrr"),
        ({"lr": "1e-2:1e-4"}, "empty"),
        ({"lr": "0.1:0.1"}, "empty"),
        ({"lr": "0:1:log"}, "above 0"),
        ({"lr": "-1:1"}, "lr must be"),
        ({"lr": "a:b"}, "numbers"),
        ({"lr": "1:2:3:4"}, "LOW:HIGH"),
        ({"lr": "0.1"}, "two different values"),
        ({"lr": "0.1,0.1"}, "two different values"),
        ({"batch": "1.5:8"}, "whole number"),
        ({"batch": "32:64:100"}, "step"),
        ({"activation": "relu:silu"}, "not a number"),
        ({"activation": "relu,tanh"}, "activation must be"),
        ({"lr": {"low": 1}}, "LOW:HIGH"),
        ({}, "--space"),
    ],
)
def test_an_invalid_space_is_refused_before_any_file_is_written(
    space: dict[str, Any], word: str, tmp_path: Path
):
    with pytest.raises(UserError) as caught:
        pac4sac.tune("Pendulum-v1", "sac", **{**HOW, "space": space}, out=tmp_path / "t")
    assert word in str(caught.value)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"sampler": "TPF"}, "TPESampler"),
        ({"sampler": "CmaEs"}, "n_step"),
        ({"sampler": "Grid"}, "lr has no step"),
        ({"sampler": "TPE:wrong=1"}, "wrong"),
        ({"pruner": "Mediam"}, "MedianPruner"),
        ({"pruner": "Patient"}, "PatientPruner"),
        ({"objective": "regret"}, "regret"),
        ({"rungs": [0.5, 1.5]}, "1.5"),
        ({"fresh_seeds": range(1002, 1005)}, "1002"),
        ({"trials": 0}, "trial"),
        ({"settings": {"lr": 0.1, "warmup": 100}}, "lr"),
        ({"settings": {"warmup": 3000}}, "warm-up"),
        ({"storage": "nothing://x"}, "nothing://x"),
        ({"engine": "slurm"}, "only the engines local and ray"),
        ({"engine": "moon"}, "only the engines local and ray"),
        ({"address": "10.0.0.1:6379"}, "--engine ray"),
        ({"parallel": 0}, "--parallel"),
    ],
)
def test_invalid_arguments_are_refused(
    change: dict[str, Any], word: str, tmp_path: Path, trainer: FormulaTrainer
):
    with pytest.raises(UserError) as caught:
        pac4sac.tune("Pendulum-v1", "sac", **{**HOW, **change}, out=tmp_path / "search")
    assert word in str(caught.value)
    assert trainer.trained == []
    assert not (tmp_path / "search").exists()


def test_samplers_and_pruners_are_found_by_name():
    space = make_space("sac", {"n_step": "1:3", "width": [64, 128]})
    assert isinstance(make_sampler("random", space, 0), optuna.samplers.RandomSampler)
    assert isinstance(make_sampler("TPESampler", space, 0), optuna.samplers.TPESampler)
    grid = make_sampler("Grid", space, 0)
    assert grid._search_space == {"n_step": [1, 2, 3], "width": [64, 128]}
    assert isinstance(make_pruner("Median:n_startup_trials=3"), optuna.pruners.MedianPruner)
    assert isinstance(make_pruner("none"), optuna.pruners.NopPruner)


# --- pruning


def test_seed_sets_are_compared_as_a_whole():
    best = {"a": [10.0, 11.0, 12.0]}
    assert is_worse({"a": [0.0, 1.0, 2.0]}, best, 1, 0.95)
    assert not is_worse({"a": [0.0, 1.0, 2.0]}, best, -1, 0.95)
    assert not is_worse({"a": [0.0, 9.0, 20.0]}, best, 1, 0.95)  # no interval below 0
    assert not is_worse({"a": [7.0, 8.0, 9.0]}, best, 1, 1 - 0.05 / 100)  # best of 100
    assert is_worse({"a": [7.0, 8.0, 9.0]}, best, 1, 0.95)
    assert not is_worse({"a": [0.0]}, {"a": [10.0]}, 1, 0.95)  # nothing is known of one seed


def test_poor_trials_end_at_a_rung(tmp_path: Path, trainer: FormulaTrainer):
    found = pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path)
    by_state: dict[str, list[Any]] = {"complete": [], "pruned": []}
    for trial in found.summary["trials"]:
        by_state[trial["state"]].append(trial)
    assert by_state["pruned"]
    assert all(trial["value"] is None for trial in by_state["pruned"])
    assert {trial["outcome"] for trial in by_state["pruned"]} <= {
        "pruned at step 500",
        "pruned at step 1000",
    }
    lengths = {
        (run.label, run.task.steps) for root, run in trainer.trained if root.name != "confirm"
    }
    for trial in by_state["pruned"]:
        assert (f"trial-{trial['number']:04d}", 2000) not in lengths
    every = pac4sac.tune("Pendulum-v1", "sac", **HOW, pruner="none", out=tmp_path / "all")
    assert {trial["state"] for trial in every.summary["trials"]} == {"complete"}


def test_a_trial_with_a_diverged_seed_has_no_value(tmp_path: Path, trainer: FormulaTrainer):
    trainer.value = lambda run: (
        np.nan if run.config.lr > 1e-2 and run.seed == 1001 else value_of(run)
    )
    found = pac4sac.tune("Pendulum-v1", "sac", **HOW, pruner="none", out=tmp_path)
    broken = [trial for trial in found.summary["trials"] if trial["settings"]["lr"] > 1e-2]
    assert broken
    assert {trial["state"] for trial in broken} == {"pruned"}
    assert {trial["outcome"] for trial in broken} == {"seed 1001 on Pendulum-v1: diverged"}
    assert found.settings["lr"] <= 1e-2


# --- the search


def test_the_best_settings_are_trained_again_with_fresh_seeds(
    tmp_path: Path, trainer: FormulaTrainer
):
    found = pac4sac.tune("Pendulum-v1", "sac", **{**HOW, "trials": 20}, out=tmp_path)
    assert found.complete
    complete = [t for t in found.summary["trials"] if t["state"] == "complete"]
    best = max(complete, key=lambda trial: trial["value"])
    assert found.settings == best["settings"]
    # the first trial has the defaults
    assert found.summary["trials"][0]["settings"] == {"lr": 3e-4, "n_step": 1}
    confirm = [(run.label, run.seed) for root, run in trainer.trained if root.name == "confirm"]
    assert sorted(confirm) == [(n, s) for n in ("default", "tuned") for s in range(3000, 3004)]
    winner, fresh = found.summary["winner"]["scores"], found.summary["fresh"]
    assert len(fresh["Pendulum-v1"]) == 4
    difference = score_difference(fresh, found.summary["defaults"])
    assert difference.value > 0
    assert "better than the defaults" in str(found)
    bias = score_difference(winner, fresh)
    assert ("too optimistic" in str(found)) == (bias.value > 0)
    assert f"lr={found.settings['lr']}" in found.command
    assert "--seeds 3000:3004" in found.command


def test_a_final_training_that_stopped_before_the_best_settings_is_continued(
    tmp_path: Path, trainer: FormulaTrainer
):
    def stop_after_the_defaults(study: Study) -> None:
        if study.name == "confirm":
            for run in study.runs():
                if run.label == "default":
                    place = tmp_path / "confirm" / "experiments" / run.task.name / "runs" / run.id
                    trainer.write(place, run)
            raise search.SearchStopped(TIME_IS_UP)

    trainer.before = stop_after_the_defaults
    found = pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path)
    assert not found.complete
    assert found.command == ""
    assert "fresh" not in found.summary
    trainer.before = lambda study: None
    assert "--seeds 3000:3004" in pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path).command


def test_a_search_without_a_result_is_reported(tmp_path: Path, trainer: FormulaTrainer):
    trainer.value = lambda run: float(np.random.default_rng(run.seed).normal())
    found = pac4sac.tune("Pendulum-v1", "sac", **{**HOW, "trials": 3}, out=tmp_path)
    assert "nothing better" in str(found) or "no settings" in str(found)


def test_a_finished_search_trains_nothing_again_and_more_trials_extend_it(
    tmp_path: Path, trainer: FormulaTrainer
):
    first = pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path)
    trainer.trained.clear()
    again = pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path)
    assert trainer.trained == []
    assert again.summary == first.summary
    more = pac4sac.tune("Pendulum-v1", "sac", **{**HOW, "trials": 10}, out=tmp_path)
    assert [trial["number"] for trial in more.summary["trials"]] == list(range(10))
    with pytest.raises(UserError, match="objective"):
        pac4sac.tune("Pendulum-v1", "sac", **HOW, objective="area", out=tmp_path)


def test_a_search_killed_twice_ends_with_the_same_result(tmp_path: Path, trainer: FormulaTrainer):
    whole = pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path / "whole")
    trainer.trained.clear()
    trainer.studies.clear()
    for stages in (2, 4):

        def die(study: Study, stages: int = stages) -> None:
            if len(trainer.studies) == stages:
                raise SystemExit(9)

        trainer.before = die
        with pytest.raises(SystemExit):
            pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path / "killed")
    trainer.before = lambda study: None
    found = pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path / "killed")
    assert found.summary == whole.summary
    identities = [(run.task.steps, run.label, run.seed) for _, run in trainer.trained]
    assert len({*identities}) == len(identities)


def test_two_workers_on_one_storage_share_the_trials(tmp_path: Path, trainer: FormulaTrainer):
    other: list[Any] = []

    def start_second_worker(study: Study) -> None:
        if not other:  # while the first worker trains its first batch
            other.append(None)
            other[0] = pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path)

    trainer.before = start_second_worker
    found = pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path)
    assert not other[0].complete  # the first worker's trials were not finished
    assert found.complete
    assert [trial["number"] for trial in found.summary["trials"]] == list(range(8))
    names = [(root, run.id) for root, run in trainer.trained]
    assert len({*names}) == len(names)
    folders = {root.parent.name for root, _ in trainer.trained if root.name != "confirm"}
    assert folders == {"0000-0003", "0004-0007"}


def test_a_stop_leaves_trials_that_the_next_call_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: FormulaTrainer
):
    def stop(study: Study, root: Path, watcher: Any, **how: Any) -> Result:
        assert 0 < how["max_minutes"] <= 5
        return Result(root, complete=False, reason=TIME_IS_UP)

    monkeypatch.setattr(search, "run_study", stop)
    found = pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path, max_minutes=5)
    assert not found.complete
    assert found.reason == TIME_IS_UP
    assert {trial["state"] for trial in found.summary["trials"]} == {"running"}
    monkeypatch.setattr(search, "run_study", trainer)
    assert pac4sac.tune("Pendulum-v1", "sac", **HOW, out=tmp_path).complete


def test_equal_settings_are_trained_once(tmp_path: Path, trainer: FormulaTrainer):
    how = {**HOW, "space": {"n_step": [1, 3]}, "trials": 6, "at_once": 1, "pruner": "none"}
    found = pac4sac.tune("Pendulum-v1", "sac", **how, sampler="Random", out=tmp_path)
    assert len(found.summary["trials"]) == 6
    assert len({run.label for root, run in trainer.trained if root.name == "1"}) == 2


def test_a_database_can_be_the_storage(tmp_path: Path, trainer: FormulaTrainer):
    url = f"sqlite:///{tmp_path}/search.db"
    pac4sac.tune("Pendulum-v1", "sac", **{**HOW, "trials": 2}, storage=url, out=tmp_path)
    (name,) = optuna.get_all_study_names(url)
    assert len(optuna.load_study(study_name=name, storage=url).trials) == 2


def test_several_tasks_are_searched_by_normalised_scores(tmp_path: Path, trainer: FormulaTrainer):
    tasks = [
        get_task("Pendulum-v1", 2000).changed({"name": name, "r_limit": 50.0}) for name in "ab"
    ]
    how = {**HOW, "trials": 4, "steps": None}
    found = pac4sac.tune(tasks, "sac", **how, pruner="none", out=tmp_path)
    # a default is 1 by definition, and the first trial has the defaults and the same seeds
    assert found.summary["trials"][0]["value"] == pytest.approx(1.0)
    assert set(found.summary["fresh"]) == {"a", "b"}
    assert "normalised" in str(found)
    regret = SearchObjective("regret", tuple(tasks))
    assert not regret.lower_is_better
    assert ScoreReference(zero=-100.0, one=-50.0).score(-75.0) == 0.5


def test_the_report_has_a_section_on_the_search(tmp_path: Path, trainer: FormulaTrainer):
    how = {**HOW, "trials": 5, "pruner": "none", "rungs": []}
    found = pac4sac.tune("Pendulum-v1", "sac", **how, out=tmp_path / "t")
    assert sum(found.summary["importance"].values()) == pytest.approx(1.0)
    report = write_report([tmp_path / "t"], tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text()
    assert "Search of settings" in text
    assert str(found).splitlines()[1].split(". By")[0] in text
    drawn = {path.stem for path in (tmp_path / "report" / "figures").glob("*.svg")}
    assert {"importance-t", "slices-t"} <= drawn
    rows = (tmp_path / "report" / "tables" / "trials-t.csv").read_text().splitlines()
    assert rows[0].startswith("trial,outcome,value,")
    assert len(rows) == 6
    # only the fresh runs are results
    (task,) = [t for t in report.context.variants if report.context.results(t)]
    assert [v.label for v in report.context.results(task)] == ["default", "tuned"]


def test_the_tune_command_prints_its_result(
    tmp_path: Path, trainer: FormulaTrainer, capsys: pytest.CaptureFixture[str]
):
    line = "tune Pendulum-v1 --algo sac --trials 3 --steps 2000 --set warmup=100 --out"
    assert main([*line.split(), str(tmp_path), "--space", "lr=1e-4:1e-2:log", "n_step=1:3"]) == 0
    out = capsys.readouterr().out
    assert "3 trials of 5 seeds each" in out
    assert "pac4sac train Pendulum-v1" in out
    assert main([*line.split(), str(tmp_path)]) == 2
    assert main([*line.split(), str(tmp_path), "--space", "lr"]) == 2
    assert main([*line.split(), str(tmp_path), "--space", "lr=1:2", "--rungs", "a"]) == 2


# --- with training

TRAINING = (
    "tune Pendulum-v1 --algo sac --space lr=1e-4:1e-2:log width=8,16 --trials 4 --at-once 4 "
    "--seeds 1000:1002 --fresh-seeds 3000:3002 --steps 600 --rungs 0.5 --pruner none "
    "--set depth=1 batch=8 warmup=100 --evaluation-episodes 1 --device cpu --backend eager"
)


@pytest.mark.slow
def test_a_search_killed_twice_during_training_continues(tmp_path: Path):
    command = [sys.executable, "-m", "pac4sac", *TRAINING.split(), "--out"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    for stage in ("0.5", "1"):
        child = subprocess.Popen(
            [*command, str(tmp_path / "killed")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        place = tmp_path / "killed" / "trials" / "0000-0003" / stage
        while child.poll() is None and not list(place.glob("experiments/*/runs/*/episodes.jsonl")):
            time.sleep(0.05)
        assert child.poll() is None
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        time.sleep(3)  # cohorts notice that their parent is gone
    subprocess.run([*command, str(tmp_path / "killed")], check=True, capture_output=True)
    read = [json.loads((tmp_path / n / "tune.json").read_text()) for n in ("whole", "killed")]
    assert read[0] == read[1]
    # per-run settings share a cohort, structural ones have their own
    cohorts = list((tmp_path / "whole" / "trials" / "0000-0003" / "1").glob("experiments/*"))
    widths = {trial["settings"]["width"] for trial in read[0]["trials"]}
    assert len(cohorts) == len(widths)
    shutil.rmtree(tmp_path)
