"""Predictions of how long a study trains."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_studies import TINY

from pac4sac.cli.main import main
from pac4sac.studies import learner_speed, prediction
from pac4sac.studies.definition import load_study
from pac4sac.studies.learner_speed import LearnerKind, LearnerSeconds, Trace, operation_seconds
from pac4sac.studies.plan import PlannedCohort, plan
from pac4sac.studies.prediction import CohortPrediction, Predictions, predict
from pac4sac.tasks import get_task
from pac4sac.training.options import Options
from pac4sac.training.run import make_runs

CPU = torch.device("cpu")
SMALL = {"width": [8], "depth": [1], "batch": [4], "warmup": [5]}


def cohort(algo: str = "sac", seeds: int = 1, steps: int = 100, **settings: Any) -> PlannedCohort:
    grid = SMALL | {name: [value] for name, value in settings.items()}
    runs = make_runs(get_task("Pendulum-v1", steps), algo, "default", range(seeds), grid)
    return PlannedCohort(Path("unused"), tuple(runs), 1)


def options(backend: str = "eager", **further: Any) -> Callable[[PlannedCohort], Options]:
    return lambda cohort: Options(
        steps=cohort.steps, device="cpu", backend=backend, workers=0, **further
    )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[LearnerKind]:
    """The kinds that are measured, each with seconds that are easy to calculate with."""
    measured: list[LearnerKind] = []

    def measure(kind: LearnerKind, launch: float) -> LearnerSeconds:
        measured.append(kind)
        return LearnerSeconds(act=1.0, updates=10.0, compiling=0.0, eager_act=1.0)

    monkeypatch.setattr(LearnerKind, "measure", measure)
    monkeypatch.setattr(prediction, "simulator_seconds", lambda task: 0.0)
    monkeypatch.setattr(prediction, "launch_seconds", lambda: 0.0)
    return measured


def test_the_time_of_a_cohort_is_that_of_its_steps(counted: list[LearnerKind]) -> None:
    (one,) = predict([cohort()], options(evaluation_episodes=0)).cohorts
    assert one.seconds == prediction.STARTING + 100 * 1 + 95 * 10  # five steps of warm-up
    assert one.learning == 1050


def test_cohorts_that_differ_in_seeds_only_are_measured_once(counted: list[LearnerKind]) -> None:
    predicted = predict([cohort(), cohort(), cohort(seeds=2)], options())
    assert (len(counted), predicted.kinds, predicted.measured) == (2, 2, 2)
    assert len(predicted.cohorts) == 3


def test_without_time_the_largest_learner_is_measured_and_others_follow(
    counted: list[LearnerKind],
) -> None:
    cohorts = [cohort(steps=1000), cohort(steps=1000, batch=40)]
    predicted = predict(cohorts, options(evaluation_episodes=0), budget=0)
    assert [len(counted), predicted.kinds, predicted.measured] == [1, 2, 1]
    assert counted[0].runs[0].config.batch == 40
    small, large = predicted.cohorts
    assert (small.measured, large.measured) == (False, True)
    # 4 + 1 and 40 + 1 rows go through networks of the same size
    assert large.learning / small.learning == pytest.approx(41 / 5, rel=0.1)


def test_a_learner_of_many_runs_is_measured_with_few() -> None:
    (many, one) = (LearnerKind(cohort(seeds=n).runs, options()(cohort())) for n in (40, 1))
    assert (len(many.runs), many.larger) == (learner_speed.MEASURED_RUNS, 10.0)
    assert many.work == 40 * one.work


def test_compiled_programs_are_calculated_and_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("compiles")

    monkeypatch.setattr("pac4sac.training.backends.compiled", refuse)
    eager = predict([cohort("td3", seeds=2)], options())
    compiled = predict([cohort("td3", seeds=2)], options("compiled"))
    assert eager.compiling(1) == 0
    assert compiled.compiling(1) > 1
    assert compiled.cohorts[0].learning < eager.cohorts[0].learning


def test_matrix_products_are_not_faster_when_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def multiply() -> None:
        (x @ x).relu().sum()

    x = torch.randn(3, 3)
    with Trace() as trace:
        multiply()
    assert (trace.calls, len(trace.products)) == (3, 1)
    monkeypatch.setattr(learner_speed, "least_seconds", lambda run, device: 5.0 + (run == multiply))
    monkeypatch.setitem(learner_speed.FUSED, "cpu", 0.5)
    monkeypatch.setattr(learner_speed, "COMPILING", 100)
    of = operation_seconds(multiply, CPU, launch=0.1)
    # products 5.0 - 0.1, all of it 6.0 - 0.3
    assert of.compiled == pytest.approx(4.9 + 0.5 * (5.7 - 4.9))
    assert (of.eager, of.compiling) == (6.0, pytest.approx(30))


def some(device: str, *seconds: float, cores: float = 0, compiling: float = 0) -> Predictions:
    each = [CohortPrediction(s, compiling, s, cores, True) for s in seconds]
    return Predictions(each, torch.device(device), 1, 1)


def test_cohorts_on_a_cpu_take_turns() -> None:
    assert some("cpu", 1, 2, 3).total(1) == 6
    assert some("cpu", 1, 2, 3).total(2) == 3
    assert some("cpu", 1, 2, 3, compiling=1).compiling(1) == 3


def test_cohorts_on_a_gpu_share_it_and_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "cores", lambda: 2)
    monkeypatch.setattr(prediction, "LEARNERS_AT_A_TIME", 2)
    start = prediction.STARTING
    assert some("cuda", 10, 90).total(2) == 90  # the longest one
    assert some("cuda", 50, 50, 50).total(3) == start + 75
    assert some("cuda", 50, 50, cores=300).total(2) == start + 300
    # three cores for each compiler
    assert some("cuda", 50, 50, compiling=10).compiling(2) == 30


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a small study into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    Path("tiny.toml").write_text(TINY)
    return tmp_path


def test_a_plan_says_what_was_measured(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prediction.predict, "__defaults__", (0.0,))  # no time
    assert main(["study", "plan", "tiny.toml"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    kinds = len(plan(load_study("tiny.toml"), tiny / "none", 10**12))
    assert f"1 of {kinds} kinds" in shown
    assert "~ " in shown
    assert "time limit did not allow" in shown


def test_trained_cohorts_of_a_plan_are_done(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = plan(load_study("tiny.toml"), tiny / "none", 10**12)[0].title
    monkeypatch.setattr(PlannedCohort, "is_done", lambda cohort: cohort.title == first)
    assert main(["study", "plan", "tiny.toml"]) == 0
    assert "done" in capsys.readouterr().out
    monkeypatch.setattr(PlannedCohort, "is_done", lambda cohort: True)
    assert main(["study", "plan", "tiny.toml"]) == 0
    assert "Trained" not in capsys.readouterr().out
