"""Successive halving: which variants go on, and a search in rungs from its definition to its last
rung."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pac4sac.base.errors import UserError
from pac4sac.base.stopping import TIME_IS_UP
from pac4sac.studies import halving, run
from pac4sac.studies.definition import Study, load_study
from pac4sac.studies.halving import Halving, mean_ranks, survivors
from pac4sac.studies.watcher import Watcher
from pac4sac.training.experiment import Result

SEARCH = """
tasks = ["Pendulum-v1"]
seeds = "1000:1002"
[halving]
keep = 0.5
controls = ["sac"]
[halving.steps]
Pendulum-v1 = [1000, 3000]
[[variant]]
algo = "sac"
[[variant]]
algo = "pac4sac"
sweep = { xi = [0.0, 0.1, 0.2, 0.3] }
"""


def records(losses: dict[str, dict[str, list[float]]]) -> list[Any]:
    """Runs of a limit of 0 whose one episode has minus the loss as its return; None of one that
    broke off."""
    return [
        SimpleNamespace(task={"name": task}, label=label, loss=loss)
        for task, by_label in losses.items()
        for label, each in by_label.items()
        for loss in each
    ]


@pytest.fixture(autouse=True)
def told_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    def final_metrics(record: Any) -> dict[str, float]:
        return {} if record.loss is None else {"mean_return": -record.loss}

    monkeypatch.setattr(halving, "final_metrics", final_metrics)


def test_variants_rank_by_their_mean_loss_on_each_task_and_then_in_the_mean_over_tasks() -> None:
    ant = {"a": [3.0, 5.0], "b": [1.0, 9.0], "c": [100.0, 100.0]}
    humanoid = {"a": [7.0], "b": [1.0], "c": [None]}  # which broke off
    assert mean_ranks(records({"ant": ant, "humanoid": humanoid})) == {"a": 1.5, "b": 1.5, "c": 3.0}


def test_the_better_part_goes_on_and_with_it_every_control(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {"ant": {"a": [1.0], "b": [2.0], "c": [3.0], "d": [4.0], "worst": [9.0]}}
    monkeypatch.setattr(halving, "find_runs", lambda folder: range(5))
    monkeypatch.setattr(halving, "read_run", lambda place: records(losses)[place])
    assert survivors(Path(), Halving({}, 0.5, ("worst",))) == {"a": 1.0, "b": 2.0, "worst": 5.0}


def test_each_rung_is_longer_and_has_what_the_one_before_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "search.toml").write_text(SEARCH)
    trained: list[tuple[str, int, list[str]]] = []

    def run_study(study: Study, folder: Path, watcher: Watcher, **how: Any) -> Result:
        folder.mkdir(parents=True)
        trained.append(
            (folder.name, study.tasks[0].steps, [variant.name for variant in study.variants])
        )
        return Result(folder, complete=how["max_minutes"] > 0.5, reason=TIME_IS_UP)

    monkeypatch.setattr(run, "run_study", run_study)
    monkeypatch.setattr(
        run, "survivors", lambda folder, halving: {"pac4sac-xi=0.2": 1.0, "sac": 3.0}
    )
    study = load_study(str(tmp_path / "search.toml"))
    result = run.run_rungs(study, tmp_path / "root", Watcher(), max_minutes=9)
    assert result.complete
    everyone = ["sac", *(f"pac4sac-xi={xi}" for xi in (0.0, 0.1, 0.2, 0.3))]
    assert trained == [("rung-1", 1000, everyone), ("rung-2", 3000, ["sac", "pac4sac-xi=0.2"])]
    assert json.loads((tmp_path / "root" / "rung-1" / "survivors.json").read_text())["sac"] == 3.0
    present, folder = run.present_rung(study, tmp_path / "root")
    assert (folder.name, [variant.name for variant in present.variants]) == (
        "rung-2",
        ["sac", "pac4sac-xi=0.2"],
    )
    assert run.present_rung(study, tmp_path / "nothing")[1].name == "rung-1"
    trained.clear()
    assert not run.run_rungs(study, tmp_path / "short", Watcher(), max_minutes=0.1).complete
    assert [name for name, *_ in trained] == ["rung-1"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("Pendulum-v1 = [1000, 0]", "must be numbers of steps from 1 on, not [1000, 0]"),
        ("ant = [1000, 2000]", "[halving.steps] needs a list for every task"),
    ],
)
def test_a_mistake_in_the_rungs_is_told(wrong: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(SEARCH.replace("Pendulum-v1 = [1000, 3000]", wrong))
    with pytest.raises(UserError) as caught:
        load_study(str(tmp_path / "wrong.toml"))
    assert told in str(caught.value)


@pytest.mark.parametrize(("name", "most"), [("search-mixture", 16e6)])
def test_a_search_on_four_tasks_is_affordable_and_keeps_to_seeds_of_its_own(
    name: str, most: float
) -> None:
    study = load_study(name)
    assert min(study.seeds) >= 1000
    assert len(study.tasks) == 4
    # 15,000 run-steps a second are done on an H200
    assert sum(run.task.steps for run in study.runs()) < most
