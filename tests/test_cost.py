"""The cost study: algorithms timed in turns, and what the report makes of their times."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from report_folders import task, write_run, write_study

from pac4sac.agents.pac4sac import Pac4Sac
from pac4sac.base.errors import UserError
from pac4sac.paper.claims import claims_section
from pac4sac.paper.cost import COMPARABLE
from pac4sac.paper.judging import judge_claims
from pac4sac.paper.report import read_context, write_report
from pac4sac.report.cost import Machine
from pac4sac.report.tables import Table
from pac4sac.runs.archive import add_to_archive, read_cost
from pac4sac.runs.collection import FoundCost
from pac4sac.studies import cost
from pac4sac.studies.definition import Study, load_study
from pac4sac.training import backends
from pac4sac.training.learner import Learner
from pac4sac.training.options import Options

SMALL = {"width": 8, "depth": 1, "batch": 4, "warmup": 5, "updates_per_step": 1}
ROUNDS = 3


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Study:
    """SAC, which shall have one thread, and PAC4SAC, which shall have two."""
    monkeypatch.setattr(cost, "MEASURED_STEPS", 10)
    monkeypatch.setattr(backends, "learning_threads", lambda learner: 1 + is_pac4sac(learner))
    shipped = load_study("cost")
    settings: dict[str, dict[str, Any]] = {"sac": SMALL, "pac4sac": SMALL | {"shots": 2}}
    chosen = [replace(v, settings=settings[v.algo]) for v in shipped.variants if v.algo in settings]
    tasks = tuple(replace(task, steps=10) for task in shipped.tasks)  # too few to be compiled
    return replace(shipped, tasks=tasks, variants=tuple(chosen), repetitions=ROUNDS)


@pytest.fixture
def threads_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Another number than either algorithm gets. It is noted and not set, since on busy cores
    threads wait long for each other."""
    own, noted = torch.get_num_threads(), [3]
    torch.set_num_threads(1)
    with monkeypatch.context() as noting:
        noting.setattr(torch, "set_num_threads", lambda threads: noted.__setitem__(0, threads))
        noting.setattr(torch, "get_num_threads", lambda: noted[0])
        yield 3
    torch.set_num_threads(own)


def is_pac4sac(learner: Learner) -> bool:
    return isinstance(learner.agent, Pac4Sac)


def watched(
    monkeypatch: pytest.MonkeyPatch, target: Any, name: str, learner_of: Callable[..., Learner]
) -> list[tuple[bool, int]]:
    """Whether it was PAC4SAC, and the number of threads, at each call."""
    seen, original = [], getattr(target, name)

    def call(*arguments: Any) -> Any:
        seen.append((is_pac4sac(learner_of(*arguments)), torch.get_num_threads()))
        return original(*arguments)

    monkeypatch.setattr(target, name, call)
    return seen


@dataclass
class Stopwatch:
    """Stands in for a run that is timed."""

    name: str
    log: list[tuple[str, int]]
    warmup: int
    seconds: list[float] = field(default_factory=list)

    def take(self, steps: int) -> float:
        self.log.append((self.name, steps))
        return float(len(self.log))


def test_all_algorithms_are_warmed_up_before_rounds_in_rotating_order() -> None:
    log: list[tuple[str, int]] = []
    timed = [Stopwatch(name, log, warmup) for name, warmup in (("a", 5), ("b", 6), ("c", 7))]
    cost.take_turns(timed, 4)  # type: ignore[arg-type]
    assert log[:3] == [("a", 5), ("b", 6), ("c", 7)]
    assert "".join(name for name, _ in log[3:]) == "abcbcacababc"
    assert {steps for _, steps in log[3:]} == {1000}
    assert [one.seconds for one in timed] == [
        [4.0, 9.0, 11.0, 13.0],
        [5.0, 7.0, 12.0, 14.0],
        [6.0, 8.0, 10.0, 15.0],
    ]


def test_each_turn_has_the_threads_of_its_algorithm(
    study: Study, tmp_path: Path, threads_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    acting = watched(monkeypatch, Learner, "act", lambda learner: learner)
    preparing = watched(monkeypatch, backends, "prepare", lambda learner, backend: learner)
    cost.measure_cost(study, tmp_path, Options(steps=1, device="cpu"))
    about = json.loads((tmp_path / "cost.json").read_text())
    assert set(acting) == {(False, 1), (True, 2)}
    assert set(preparing) == {(False, 1), (True, 2)}  # compiled code keeps them
    assert torch.get_num_threads() == threads_before
    assert about["version"] == 2
    assert [(row["label"], row["threads"], row["backend"]) for row in about["rows"]] == [
        ("sac", 1, "eager"),
        ("pac4sac", 2, "eager"),
    ]
    assert [len(row["seconds_per_1000_steps"]) for row in about["rows"]] == [ROUNDS, ROUNDS]


def test_the_timed_backend_is_the_one_that_training_chooses(
    study: Study, tmp_path: Path, threads_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, prepare = [], backends.prepare
    monkeypatch.setattr(
        backends, "prepare", lambda learner, name: chosen.append(name) or prepare(learner, "eager")
    )
    monkeypatch.setattr(backends.shutil, "which", lambda _: "a compiler")
    for steps in (10, 250_000):
        tasks = tuple(replace(task, steps=steps) for task in study.tasks)
        long = replace(study, tasks=tasks, variants=study.variants[:1], repetitions=1)
        cost.measure_cost(long, tmp_path, Options(steps=1, device="cpu"))
    assert chosen == ["eager", "compiled"]


def test_requested_threads_are_used_for_every_algorithm(
    study: Study, tmp_path: Path, threads_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    acting = watched(monkeypatch, Learner, "act", lambda learner: learner)
    preparing = watched(monkeypatch, backends, "prepare", lambda learner, backend: learner)
    cost.measure_cost(study, tmp_path, Options(steps=1, device="cpu", threads=2))
    assert set(acting) == set(preparing) == {(False, 2), (True, 2)}
    assert torch.get_num_threads() == threads_before


def test_every_pool_is_closed_when_a_turn_fails(
    study: Study, tmp_path: Path, threads_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = []

    class WatchedPool(cost.EnvPool):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            pools.append(self)

    def fail(*_: object) -> None:
        raise RuntimeError("a simulator broke")

    monkeypatch.setattr(cost, "EnvPool", WatchedPool)
    monkeypatch.setattr(cost.TimedRun, "take", fail)
    with pytest.raises(RuntimeError, match="a simulator broke"):
        cost.measure_cost(study, tmp_path, Options(steps=1, device="cpu"))
    assert [pool._state for pool in pools] == ["closed", "closed"]
    assert torch.get_num_threads() == threads_before
    assert not (tmp_path / "cost.json").exists()


def test_a_pure_cost_study_times_every_task_with_its_updates_per_step(
    study: Study, tmp_path: Path, threads_before: int
) -> None:
    tasks = (study.tasks[0], replace(load_study("table-1").tasks[1], steps=10))
    few = tuple(
        replace(v, settings={k: s for k, s in SMALL.items() if k != "updates_per_step"})
        for v in study.variants
    )
    both = replace(study, tasks=tasks, variants=few[:1], repetitions=1)
    cost.measure_cost(both, tmp_path, Options(steps=1, device="cpu"))
    rows = json.loads((tmp_path / "cost.json").read_text())["rows"]
    assert [(row["task"], row["updates_per_step"]) for row in rows] == [
        ("cartpole-swingup", 4),
        ("half-cheetah", 1),
    ]
    cost.measure_cost(replace(both, kind="smoke"), tmp_path, Options(steps=1, device="cpu"))
    assert len(json.loads((tmp_path / "cost.json").read_text())["rows"]) == 1


# --- the report


def content(
    version: int, times: dict[str, list[float]], threads: dict[str, int] | None = None
) -> dict[str, Any]:
    rows = [
        {"algo": algo, "label": algo, "backend": "compiled", "seconds_per_1000_steps": found}
        | ({"threads": threads[algo]} if threads else {})
        for algo, found in times.items()
    ]
    machine = {"processor": "x86_64", "cores": 2}
    return {"version": version, "machine": machine, "device": "cpu", "rows": rows}


def machine_that_slows_down(version: int) -> dict[str, Any]:
    """To half its pace, after the turn of SAC in the middle round of twenty-one."""
    noise = np.random.default_rng(0).normal(0, 0.02, 21)
    sac = [2.0 * (1 if turn <= 10 else 2) for turn in range(21)]
    ours = [2.4 * (1 + noise[turn]) * (1 if turn < 10 else 2) for turn in range(21)]
    return content(version, {"sac": sac, "pac4sac": ours})


def write_cost(folder: Path, about: dict[str, Any]) -> Path:
    write_study(folder, "cost", "cost", "sac", [])
    (folder / "cost.json").write_text(json.dumps(about))
    return folder


def verdict(folder: Path) -> str:
    context = read_context([folder])
    section = claims_section(context, judge_claims(context))
    assert section is not None
    table = next(block for block in section.blocks if isinstance(block, Table))
    return str(
        next(row["verdict"] for row in table.records if row["claim"].startswith("PAC4SAC costs"))
    )


def test_ratios_within_rounds_do_not_depend_on_a_slowdown_of_the_machine(tmp_path: Path) -> None:
    turns = Machine(FoundCost("here", "cost", machine_that_slows_down(2))).relative("pac4sac")
    assert turns is not None
    assert turns.value == pytest.approx(1.2, abs=0.02)
    assert 1.17 < turns.low < turns.value < turns.high < 1.23
    assert verdict(write_cost(tmp_path / "turns", machine_that_slows_down(2))) == "holds"
    # The means of the same times cannot say.
    assert (
        verdict(write_cost(tmp_path / "one-after-another", machine_that_slows_down(1)))
        == "not shown"
    )


def test_rounds_are_shown_by_their_median_and_extremes_with_the_rule_of_the_verdict(
    tmp_path: Path,
) -> None:
    times = {"sac": [2.0, 4.0, 2.0, 2.0], "pac4sac": [3.0, 6.0, 3.0, 3.0]}
    write_report(
        [write_cost(tmp_path, content(2, times, {"sac": 1, "pac4sac": 2}))], tmp_path / "out"
    )
    page = (tmp_path / "out" / "report.md").read_text()
    assert "| 3.00 (3.00–6.00) | 1.50 [1.50, 1.50] |" in page
    assert "4 rounds" in page
    assert "threads 1 (sac) and 2 (pac4sac)" in page
    assert f"comparable if the whole CI of the ratio to SAC is below {COMPARABLE}" in page
    assert "timed one after another" not in page


def test_an_older_measurement_shows_its_mean_and_is_marked_as_not_in_turns(tmp_path: Path) -> None:
    times = {"sac": [2.0, 2.2], "pac4sac": [3.0, 3.2]}
    write_report([write_cost(tmp_path, content(1, times))], tmp_path / "out")
    page = (tmp_path / "out" / "report.md").read_text()
    assert "| 3.10 ± 0.14 | 1.48 |" in page
    assert "2 repetitions" in page
    assert "timed one after another" in page
    assert "in each round" not in page


@pytest.mark.parametrize("value", ["2.0", None, True, -1.0, 0, float("nan"), [1.0]])
def test_a_time_that_is_not_positive_counts_as_damage(tmp_path: Path, value: Any) -> None:
    about = content(2, {"sac": [2.0, value], "pac4sac": [3.0, 3.1]})
    with pytest.raises(UserError, match=r"cost\.json is damaged: .* is not a time"):
        read_cost(write_cost(tmp_path, about) / "cost.json")


def test_rounds_of_unequal_number_have_no_ratio() -> None:
    about = content(2, {"sac": [2.0, 2.2], "pac4sac": [3.0]})
    assert Machine(FoundCost("here", "cost", about)).relative("pac4sac") is None


def test_in_an_archive_a_new_measurement_replaces_an_older_one(tmp_path: Path) -> None:
    for version in (1, 2):
        folder = write_cost(tmp_path / f"version-{version}", machine_that_slows_down(version))
        add_to_archive([folder], tmp_path / "archive")
    (kept,) = (tmp_path / "archive" / "costs").iterdir()
    assert json.loads(kept.read_text())["version"] == 2


def test_steps_per_solved_run_are_all_steps_divided_by_solved_runs(tmp_path: Path) -> None:
    """SAC: 40 + 10 + 10 thousand steps for two that were solved, at 2 and 0.5 seconds per
    thousand."""
    for seed, fails in enumerate((40, 10, 10)):
        returns = [0.0] * fails + [900.0] * (40 - fails)
        write_run(tmp_path / "runs", task("cartpole-swingup"), "sac", seed, returns)
    write_run(tmp_path / "runs", task("cartpole-swingup"), "ddpg", 0, [0.0] * 40)
    for device, seconds in (("cpu", 2.0), ("cuda", 0.5)):
        about = content(2, {"sac": [seconds, 9 * seconds, seconds], "ddpg": [seconds]})
        about["machine"]["gpu"] = "A GPU"
        rows = [row | {"task": "cartpole-swingup"} for row in about["rows"]]
        write_study(tmp_path / device, "cost-to-solve", "cost", "sac", [])
        about |= {"device": device, "precision": "tf32", "rows": rows}
        (tmp_path / device / "cost.json").write_text(json.dumps(about))
    write_report([tmp_path], tmp_path / "out")
    page = (tmp_path / "out" / "report.md").read_text()
    assert "| Cartpole Swingup | SAC | 2 of 3 | 30.0 | 2.00 | 1 min 00 s | 0.50 | 15 s |" in page
    assert "| Cartpole Swingup | DDPG | 0 of 1 | — | 2.00 | — | 0.50 | — |" in page
    assert (
        "`pac4sac study run cost-to-solve --tasks cartpole-swingup --device cuda --precision tf32`"
        in page
    )
    (answer,) = (line for line in page.splitlines() if "least time per solved run" in line)
    assert answer.endswith(
        "SAC on Cartpole Swingup (1 min 00 s). On the machine “A GPU”, the algorithm with the least "
        "time per solved run is SAC on Cartpole Swingup (15 s)."
    )
    assert "with one update per step" not in page  # that is the other study


def test_a_cost_study_is_planned_without_cohorts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pac4sac.cli.main import main

    assert main(["study", "plan", "cost", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "1000 steps of ddpg, sac, " in said
    assert "cost.json" in said
    assert "GB" not in said
