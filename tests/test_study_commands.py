"""The commands about studies, as typed."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from test_studies import TINY

from pac4sac.base.stopping import StopRequest
from pac4sac.cli.main import main
from pac4sac.studies.definition import load_study
from pac4sac.studies.plan import begin
from pac4sac.tasks.episodes import simulator_seed


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "tiny.toml").write_text(TINY)
    return "tiny.toml"


def test_a_study_is_planned_run_inspected_and_reported(
    tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "status", tiny]) == 2
    assert "has no study yet" in capsys.readouterr().err

    assert main(["study", "plan", tiny, "--no-trial"]) == 0
    planned = capsys.readouterr().out
    assert "Memory" in planned
    assert "Estimate" not in planned
    assert "4 runs" in planned  # of six, as two are the same under another name
    assert main(["study", "plan", tiny]) == 0
    assert "Trained one after another, the cohorts take about" in capsys.readouterr().out

    assert main(["study", "run", tiny, "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "2 cohorts to train; each needs up to" in shown
    assert "All variants on Pendulum-v1" in shown
    assert Path("experiments/study-tiny/report/report.html").is_file()

    assert main(["study", "status", tiny]) == 0
    assert "2 finished" in capsys.readouterr().out
    assert main(["report", "experiments/study-tiny", "--out", "elsewhere"]) == 0
    assert (
        Path("elsewhere/report.md").read_text()
        == Path("experiments/study-tiny/report/report.md").read_text()
    )


def trained_with(root: Path) -> list[tuple[str, str, str]]:
    """Device, backend and precision that the experiments of a study were begun with."""
    found = [
        json.loads(path.read_bytes())["options"]
        for path in sorted(root.glob("experiments/*/experiment.json"))
    ]
    return [(options["device"], options["backend"], options["precision"]) for options in found]


@pytest.fixture
def begins_only(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Studies are written down and not trained; the cohorts that would have been, by each call."""
    asked: list[list[str]] = []

    def not_now(cohorts: Any, parallel: int, stop: StopRequest, *_: Any) -> list[str]:
        asked.append([cohort.folder.name for cohort in cohorts])
        stop.deadline = 0
        return []

    monkeypatch.setattr("pac4sac.studies.run.run_local", not_now)
    return asked


def test_flags_override_the_options_of_a_study(tiny: str, begins_only: list[list[str]]) -> None:
    assert main(["study", "run", tiny, "--out", "as-it-says"]) == 0
    assert trained_with(Path("as-it-says")) == [("cpu", "eager", "float32")] * 2  # TINY says both
    assert (
        main(
            ["study", "run", tiny, "--out", "as-told", "--device", "auto", "--backend", "compiled"]
        )
        == 0
    )
    assert trained_with(Path("as-told")) == [("auto", "compiled", "float32")] * 2
    # A folder that was begun keeps what it was begun with.
    assert main(["study", "run", tiny, "--out", "as-told"]) == 0
    assert trained_with(Path("as-told")) == [("auto", "compiled", "float32")] * 2
    assert sorted(begins_only[1]) == sorted(begins_only[2])


@pytest.mark.parametrize("table", ["[options]", '[task."Pendulum-v1".options]'])
def test_unsupported_options_of_a_study_are_reported_before_it_starts(
    table: str, tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = TINY if table in TINY else TINY.replace("[set]", f"{table}\n\n[set]")
    Path(tiny).write_text(named.replace(table, f'{table}\nprecision = "tf32"'))
    assert main(["study", "run", tiny]) == 2
    assert "tf32 needs a GPU" in capsys.readouterr().err
    assert not Path("experiments").exists()


SHOTS = TINY.replace(
    'algo = "sac"', 'name = "many"\nalgo = "pac4sac"\nset = { shots = 50 }'
).replace('baseline = "sac"', "")


def test_cohorts_can_be_planned_for_a_missing_gpu(
    tiny: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few and many shots go into one cohort on a GPU only."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    Path(tiny).write_text(SHOTS)
    planned = {}
    for device in ("cpu", "cuda"):
        assert main(["study", "plan", tiny, "--device", device, "--memory", "500"]) == 0
        planned[device] = capsys.readouterr().out
    assert "Pendulum-v1: many, pac " in planned["cuda"]
    assert "4 runs; at most 0.5 GB per cohort, on cuda." in planned["cuda"]
    assert (
        "The device cuda is not available on this machine, so the time of the cohorts"
        in planned["cuda"]
    )
    assert "Estimate" not in planned["cuda"]
    assert "many, pac " not in planned["cpu"]
    assert "Estimate" in planned["cpu"]


def test_a_plan_is_for_the_device_of_the_study(
    tiny: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    Path(tiny).write_text(TINY.replace('device = "cpu"', 'device = "cuda"'))
    assert main(["study", "plan", tiny, "--no-trial"]) == 2
    assert "The device cuda is not available on this machine, so its free memory is unknown" in (
        capsys.readouterr().err
    )
    assert main(["study", "plan", tiny, "--no-trial", "--memory", "500"]) == 0
    shown = capsys.readouterr().out
    assert "on cuda." in shown
    assert "not measured" not in shown  # nobody asked
    assert main(["study", "run", tiny, "--memory", "500"]) == 2
    assert "No CUDA device is available here" in capsys.readouterr().err
    assert main(["study", "plan", tiny, "--device", "cudas", "--memory", "500"]) == 2
    assert "Unknown device 'cudas'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["study", "run", "table-9"], "Unknown study 'table-9'"),
        (["study", "run", "smoke", "--tasks", "ant"], "has no task ant"),
        (
            ["study", "plan", "controls", "--variants", "sac-auto,sac"],
            "has no variant sac; it has pac4sac, pac4sac-with",
        ),
        (["study", "run", "tiny.toml", "--into", "tiny.toml"], "tiny.toml is not a folder"),
        (["compare", "Pendulum-v1", "--algos", "sac,sac"], "An algorithm is listed twice"),
        (
            ["compare", "Pendulum-v1", "--set", "width=8,16"],
            "compare accepts only one value for each setting, but width has several",
        ),
        (
            ["compare", "Pendulum-v2", "--algos", "sac,ddpg"],
            "Unknown task or environment 'Pendulum-v2'",
        ),
        (
            ["compare", "Pendulum-v1", "--algos", "sac"],
            "compare needs at least two algorithms, not only sac",
        ),
        (["report", "nowhere"], "nowhere"),
        (
            ["study", "run", "tiny.toml", "--address", "10.0.0.1:6379"],
            "add --engine ray to train there",
        ),
        (["study", "run", "tiny.toml", "--memory", "0"], "--memory must be at least 1 MB, not 0"),
        (["study", "plan", "tiny.toml", "--memory=-5"], "--memory must be at least 1 MB, not -5"),
        (["study", "run", "tiny.toml", "--parallel", "0"], "--parallel must be at least 1, not 0"),
        (
            ["study", "run", "tiny.toml", "--max-minutes", "-1"],
            "max_minutes must be a finite number above 0, not -1",
        ),
        (
            ["study", "run", "tiny.toml", "--device", "cpu", "--precision", "tf32"],
            "tf32 needs a GPU",
        ),
        (["study", "run", "cost", "--device", "cpu", "--precision", "tf32"], "tf32 needs a GPU"),
        (["study", "run", "tiny.toml", "--out", "tiny.toml/x"], "Writing tiny.toml/x failed"),
        (["compare", "Pendulum-v1", "--parallel", "-1"], "--parallel must be at least 1, not -1"),
    ],
)
def test_invalid_arguments_are_reported_in_a_sentence(
    command: list[str], sentence: str, tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--engine", "ray", "--address", "ray://head:10001"],
        ["--device", "cpu", "--precision", "tf32"],
        ["--parallel", "0"],
        ["--address", "10.0.0.1:6379"],
    ],
)
def test_a_study_with_invalid_options_does_not_change_its_folder(
    flags: list[str], tiny: str
) -> None:
    begin(load_study(tiny), Path("begun"), [], {})
    before = Path("begun/study.json").read_bytes()
    Path(tiny).write_text(TINY.replace('"Tiny"', '"With another title"'))
    assert main(["study", "run", tiny, "--out", "begun", *flags]) == 2
    assert Path("begun/study.json").read_bytes() == before
    assert not Path("begun/experiments").exists()


@pytest.mark.parametrize(
    "command", [["report", "begun", "--out"], ["study", "collect", "begun", "--into"]]
)
def test_a_folder_without_write_permission_is_reported_in_a_sentence(
    command: list[str], tiny: str, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(load_study(tiny), Path("begun"), [], {})
    assert main([*command, f"{tiny}/x"]) == 2
    assert f"Writing {tiny}/x" in capsys.readouterr().err


@pytest.mark.parametrize(("reason", "code"), [("signal", 130), ("time", 0)])
@pytest.mark.parametrize(
    "command",
    [["study", "run", "tiny.toml"], ["compare", "Pendulum-v1", "--algos", "sac,sac-auto"]],
)
def test_an_interrupted_study_has_the_exit_codes_of_training(
    command: list[str],
    reason: str,
    code: int,
    tiny: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stopped(cohorts: Any, parallel: int, stop: StopRequest, *_: Any) -> list[str]:
        if reason == "signal":
            signal.raise_signal(signal.SIGINT)
        else:
            stop.deadline = 0
        return []

    monkeypatch.setattr("pac4sac.studies.run.run_local", stopped)
    assert main(command) == code
    assert (
        "1 cohort to train" if command[0] == "compare" else "2 cohorts to train"
    ) in capsys.readouterr().out


FAULTY = """
tasks = ["pool_environments:Faulty-v0"]
seeds = "0:2"
[task."pool_environments:Faulty-v0"]
horizon = 20
steps = 110
env_kwargs = {{fault = "raise some times", victim = {victim}, at = 3, marker = "{marker}"}}
[options]
device = "cpu"
backend = "eager"
workers = 0
evaluation_episodes = 0
[set]
width = 8
depth = 1
batch = 8
warmup = 40
[[variant]]
algo = "sac"
"""


@pytest.mark.parametrize(("failures", "code", "runs"), [(1, 0, "2 of 2"), (9, 3, "1 of 2")])
def test_a_study_trains_a_failed_run_again(
    tmp_path: Path, failures: int, code: int, runs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    marker, study = tmp_path / "marker", tmp_path / "mine.toml"
    study.write_text(FAULTY.format(victim=simulator_seed(1, "train", 3), marker=marker))
    marker.write_text(str(failures))
    more = ["--trust", "pool_environments", "--out", str(tmp_path / "study")]
    assert main(["study", "run", str(study), *more]) == code
    shown = capsys.readouterr()
    assert "sac-seed1 failed" in shown.err
    assert "attempt 1 of 3" in shown.err
    assert runs in shown.out
