"""`pac4sac.compare` and the command of that name: one comparison, called and typed."""

import csv
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.base.stopping import StopRequest
from pac4sac.cli.main import main
from pac4sac.report.formats import tables_as_text
from pac4sac.report.tables import Cell, Column, Table
from pac4sac.runs.statistics import MOST_SEEDS, Summary, seeds_needed
from pac4sac.studies.compare import comparison_study

TASK = "training_environments:SolvableDrift-v0"
SETTINGS = {"width": 8, "depth": 1, "batch": 8, "warmup": 40}
ASKED: dict[str, Any] = {
    "algos": ["sac", "sac-auto"],
    "seeds": range(3),
    "settings": SETTINGS,
    "steps": 300,
}
HOW: dict[str, Any] = {"device": "cpu", "backend": "eager"}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAC4SAC_CORES", "1")  # other numbers of threads differ in the last bits
        patch.setenv("COLUMNS", "120")
        yield


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> pac4sac.Comparison:
    return pac4sac.compare(TASK, **ASKED, **HOW, out=tmp_path_factory.mktemp("compare") / "called")


@pytest.fixture
def cohorts_trained(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Nothing is trained; what would have been."""
    asked: list[Any] = []

    def not_now(cohorts: Any, parallel: int, stop: StopRequest, *_: Any) -> list[str]:
        asked.extend(cohorts)
        stop.deadline = 0
        return []

    monkeypatch.setattr("pac4sac.studies.run.run_local", not_now)
    return asked


def test_a_curve_of_another_project_is_a_further_variant(
    compared: pac4sac.Comparison, tmp_path: Path
) -> None:
    file = tmp_path / "curves.csv"
    rows = [f"simba,{TASK},{seed},avg_return,300,{seed}" for seed in range(4)]
    file.write_text("\n".join(["exp_name,env_name,seed,metric,env_step,value", *rows]))
    joined = pac4sac.compare(
        TASK, **ASKED, **HOW, out=shutil.copytree(compared.folder, tmp_path / "c"), curves=[file]
    )
    own, foreign = joined.rows[:2], joined.rows[2]
    assert (foreign["variant"], foreign["runs"], foreign["mean"]) == ("simba (foreign)", 4, 1.5)
    assert {row["metric"] for row in joined.rows} == {"final_deterministic"}
    assert foreign["difference"] == pytest.approx(1.5 - own[0]["mean"])
    assert len(joined.runs) == 6


def test_a_row_has_the_result_of_an_algorithm(compared: pac4sac.Comparison) -> None:
    assert compared.complete
    sac, auto = compared.rows
    scores, regrets = compared.scores(), {}
    for row in (sac, auto):
        own = [scores[run.run] for run in compared.runs if run.algo == row["algo"]]
        episodes = [score.episodes for score in own]
        regrets[row["algo"]] = [score.regret for score in own]
        assert (row["metric"], row["runs"], row["solved"]) == (
            "regret",
            3,
            sum(score.solved for score in own),
        )
        assert row["mean"] == pytest.approx(np.mean(regrets[row["algo"]]))
        assert row["sd"] == pytest.approx(np.std(regrets[row["algo"]], ddof=1))
        assert row["episodes"] == pytest.approx(np.mean(episodes))
        assert row["episodes_sd"] == pytest.approx(np.std(episodes, ddof=1))
        assert (
            row["solved_low"] <= row["solved_fraction"] == row["solved"] / 3 <= row["solved_high"]
        )
    welch = stats.ttest_ind(regrets["sac-auto"], regrets["sac"], equal_var=False)
    assert sac["against_baseline"] == "baseline"
    assert sac["difference"] is None
    assert auto["difference"] == pytest.approx(auto["mean"] - sac["mean"])
    interval = welch.confidence_interval()
    assert (auto["difference_low"], auto["difference_high"]) == pytest.approx(
        (interval.low, interval.high)
    )
    assert auto["p_holm"] == pytest.approx(welch.pvalue)  # of the only comparison


def test_runs_page_and_figures_of_a_comparison_exist(compared: pac4sac.Comparison) -> None:
    assert [run.run for run in compared.runs] == [
        f"{algo}-seed{k}" for algo in ("sac", "sac-auto") for k in range(3)
    ]
    assert pac4sac.load(compared.runs[0].folder).act(np.zeros(3)).shape == (1,)
    assert compared.page.is_file()
    assert compared.figures[0].name.startswith("learning-")
    assert len(pac4sac.results(compared.folder)["return"]) == 6 * 10


def test_the_command_gives_the_same_numbers_and_prints_the_same_table(
    compared: pac4sac.Comparison, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    flags = [
        "--algos",
        "sac,sac-auto",
        "--seeds",
        "0:3",
        "--steps",
        "300",
        "--device",
        "cpu",
        "--backend",
        "eager",
    ]
    assert (
        main(["compare", TASK, *flags, "--out", str(tmp_path / "typed"), "--set", *settings]) == 0
    )
    (table,) = (tmp_path / "typed" / "report" / "tables").glob("task-*.csv")
    assert table.read_bytes() == (compared.page.parent / "tables" / table.name).read_bytes()
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    shown = str(compared).splitlines()
    assert printed[printed.index(shown[0]) :][: len(shown)] == shown
    assert "IQM [95%]" in str(compared)
    assert [row["algo"] for row in csv.DictReader(table.open())] == ["sac", "sac-auto"]


def test_a_repeated_comparison_trains_nothing_and_gives_the_same_result(
    compared: pac4sac.Comparison, cohorts_trained: list[Any]
) -> None:
    again = pac4sac.compare(TASK, **ASKED, out=compared.folder)
    assert again.complete
    assert (again.rows, str(again)) == (compared.rows, str(compared))
    fewer = pac4sac.compare(
        TASK, **ASKED | {"seeds": [0, 2]}, baseline="sac-auto", out=compared.folder
    )
    assert {run.seed for run in fewer.runs} == {0, 2}  # whatever else the folder holds
    assert [(row["runs"], row["against_baseline"] == "baseline") for row in fewer.rows] == [
        (2, False),
        (2, True),
    ]
    assert not cohorts_trained


def test_an_unfinished_comparison_is_reported(tmp_path: Path, cohorts_trained: list[Any]) -> None:
    found = pac4sac.compare(TASK, **ASKED, **HOW, out=tmp_path / "stopped")
    assert len(cohorts_trained) == 1
    assert (found.complete, found.runs, found.rows) == (False, [], [])
    assert "Training is unfinished, because the time is up" in str(found)


def test_a_custom_algorithm_can_be_the_baseline(tmp_path: Path, cohorts_trained: list[Any]) -> None:
    own = "training_agents:NeverMoves"
    pac4sac.compare(TASK, f"{own}, sac", seeds=0, steps=20_000, out=tmp_path / "own")
    about = json.loads((tmp_path / "own" / "study.json").read_bytes())
    assert about["baseline"] == next(
        row["label"] for row in about["expected_runs"] if row["algo"] == own
    )


def test_a_comparison_accepts_a_task_object_and_settings_of_some_algorithms() -> None:
    task = pac4sac.Task("mine", "Pendulum-v1", horizon=50)
    study = comparison_study(
        task, ["pac4sac", "ddpg"], [0, 1], {"shots": "7", "width": [16]}, 20_000, None
    )
    configs = {run.algo: run.config for run in study.runs()}
    assert configs["pac4sac"].shots == 7
    assert {config.width for config in configs.values()} == {16}
    assert study.tasks == (replace(task, steps=20_000),)


def test_the_name_of_a_variant_includes_its_preset(
    tmp_path: Path, cohorts_trained: list[Any]
) -> None:
    asked = ["--algos", "sac,pac4sac", "--baseline", "pac4sac", "--preset", "pac4sac:best"]
    out = ["--seeds", "0", "--device", "cpu", "--out", str(tmp_path / "best")]
    assert main(["compare", TASK, *asked, *out, "--steps", "20000"]) == 0
    presets = {
        run.algo: (run.preset, run.label) for cohort in cohorts_trained for run in cohort.runs
    }
    assert presets == {"sac": ("default", "sac"), "pac4sac": ("best", "pac4sac-best")}
    assert json.loads((tmp_path / "best" / "study.json").read_bytes())["baseline"] == "pac4sac-best"


def test_a_setting_of_one_algorithm_overrides_the_common_one() -> None:
    settings = {"lr": 1e-4, "sac:lr": "0.01", "warmup": 10}
    study = comparison_study("Pendulum-v1", "sac,ddpg", 0, settings, 500, None)
    assert {run.algo: run.config.lr for run in study.runs()} == {"sac": 0.01, "ddpg": 1e-4}
    assert study.differing_settings() == {"lr": {"sac": 0.01, "ddpg": 1e-4}}


def test_the_settings_that_differ_are_printed_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [f"{name}={value}" for name, value in SETTINGS.items()]
    asked = ["--algos", "sac,ddpg", "--seeds", "0", "--steps", "60", "--set", *small, "ddpg:lr=0.5"]
    how = ["--set-task", "r_limit=null", "--evaluation-episodes", "1", "--device", "cpu"]
    assert main(["compare", TASK, *asked, *how, "--out", str(tmp_path / "c")]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["lr", "0.0003", "0.5"] in printed
    (table,) = (tmp_path / "c" / "report" / "tables").glob("differing-settings-*.csv")
    rows = list(csv.DictReader(table.open()))
    assert rows == [{"setting": "lr", "sac": "0.0003", "ddpg": "0.5"}]


def test_the_number_of_seeds_needed_for_a_decision_is_reported() -> None:
    # n = 2 (z₀.₉₇₅ + z₀.₈)² σ²/δ² = 15.7 for δ = σ, by the normal approximation; 17 by the t-test
    assert seeds_needed(Summary(5, 1.0, 1.0), Summary(5, 0.0, 1.0)) == 17
    assert seeds_needed(Summary(5, 0.0, 1.0), Summary(5, 0.0, 1.0)) == MOST_SEEDS
    assert seeds_needed(Summary(1, 1.0, None), Summary(5, 0.0, 1.0)) is None
    assert seeds_needed(Summary(5, 1.0, 0.0), Summary(5, 0.0, 0.0)) is None


def test_advice_names_each_undecided_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [f"{name}={value}" for name, value in SETTINGS.items()]
    asked = ["--algos", "sac,ddpg", "--seeds", "0:2", "--steps", "60", "--set", *small]
    how = ["--set-task", "r_limit=null", "--evaluation-episodes", "1", "--device", "cpu"]
    assert main(["compare", TASK, *asked, *how, "--out", str(tmp_path / "c")]) == 0
    printed = capsys.readouterr().out.splitlines()
    advice = [line for line in printed if line.startswith("Number of seeds")]
    (answer,) = (line for line in printed if "between DDPG and SAC" in line)
    assert re.search(r"final evaluation .* 95% CI .* n = 2 vs 2\)\. .* mean return", answer)
    assert ["final evaluation" in advice[0], "mean return" in advice[1]] == [True, True]
    assert all(re.search(r"(about|more than) \d+ seeds for DDPG", line) for line in advice)
    assert advice[0] in (tmp_path / "c" / "report" / "report.md").read_text()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"algos": []}, "algos must be names such as"),
        ({"algos": ["sac", object]}, r"a name or a subclass of pac4sac\.Agent"),
        ({"algos": ["sac", pac4sac.Agent]}, "which every agent must define"),
        (
            {"algos": "sac"},
            "compare needs at least two algorithms, not only sac; add another one, or use train",
        ),
        ({"algos": "sac,sacc"}, "Unknown algorithm 'sacc'"),
        (
            {"baseline": "ddpg"},
            "The baseline 'ddpg' is not among the compared algorithms; it must be one of sac, sac-auto",
        ),
        (
            {"settings": {"width": [8, 16]}},
            "compare accepts only one value for each setting, but width has several",
        ),
        ({"settings": {"xii": 1}}, "None of sac, sac-auto has a setting 'xii'"),
        ({"seeds": 0.5}, r"^seeds must be .*, not 0\.5"),
        ({"seeds": [0, 0]}, "Seeds must be different"),
        ({"steps": 0}, "steps must be a whole number at least 1"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"max_minutes": 0}, "max_minutes must be a finite number above 0"),
        ({"parallel": 0}, "--parallel must be at least 1"),
        (
            {"preset": "best"},
            "sac has no preset 'best'; it has .* sac-auto has no preset 'best'; .* "
            "sac:default,sac-auto:default",
        ),
        (
            {"preset": "published-curves", "algos": "sac,td3"},
            "^td3 has no preset 'published-curves'; .* sac:published-curves,td3:default",
        ),
        ({"preset": "td3:default"}, "is for td3, which is not among the compared algorithms"),
        ({"settings": {"td3:lr": 1}}, "is for td3, which is not among the compared algorithms"),
        ({"settings": {"sac:shotz": 1}}, "sac has no setting 'shotz'; did you mean shots"),
        ({"settings": SETTINGS | {"warmup": 300}}, r"sac \(300 steps\), sac-auto \(300 steps\)"),
        ({"prest": "best"}, "Unknown option prest"),
        ({"start_from": "agent"}, "omit start_from"),
        ({"log_every": 0}, "log_every must be a whole number at least 1"),
    ],
)
def test_invalid_arguments_are_reported_before_a_folder_is_created(
    wrong: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        pac4sac.compare(TASK, **ASKED | wrong, out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_config_file_sets_the_compared_algorithms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cohorts_trained: list[Any]
) -> None:
    file, out = tmp_path / "compare.toml", tmp_path / "out"
    file.write_text(
        'task = "Pendulum-v1"\nalgos = ["sac", "td3"]\nseeds = "0:2"\ntotal_timesteps = 900\n'
        'keep-stale = true\n[set]\nwarmup = 100\n"sac:alpha" = 0.1\n'
    )
    main(["compare", "--config", str(file), "--out", str(out), "--steps", "800"])
    study = json.loads((out / "study.json").read_text())
    assert study["baseline"] == "sac"
    runs = [run for cohort in cohorts_trained for run in cohort.runs]
    assert {(run.label, run.task.steps, run.config.warmup) for run in runs} == {
        ("sac", 800, 100),
        ("td3", 800, 100),
    }
    assert {run.config.alpha for run in runs if run.label == "sac"} == {0.1}
    file.write_text('task = "Pendulum-v1"\nalgos = "sac,nowhere:Agent"\n')
    assert main(["compare", "--config", str(file)]) == 2
    assert "--trust nowhere" in capsys.readouterr().err
    assert main(["compare"]) == 2
    assert "needs a task" in capsys.readouterr().err


@pytest.mark.parametrize("call", [pac4sac.compare, pac4sac.train])
def test_an_invalid_task_is_reported(call: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^task must be .*Task.*, not 3"):
        call(3, out=tmp_path / "none")


def test_a_warning_from_a_cohort_reaches_the_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def warned(cohorts: Any, parallel: int, stop: StopRequest, watcher: Any, *_: Any) -> list[str]:
        watcher.warning(cohorts[0], "compiling failed here")
        return []

    monkeypatch.setattr("pac4sac.studies.run.run_local", warned)
    monkeypatch.setattr("pac4sac.studies.run.name_the_same", lambda *_: None)
    with pytest.warns(UserWarning, match="sac, sac-auto: compiling failed here"):
        pac4sac.compare(TASK, **ASKED, out=tmp_path / "warned")


def test_a_number_next_to_the_papers_number_has_its_verdict() -> None:
    regret = Cell("1.8 ± 0.1", published="paper 6.5 ± 0.3", verdict="not comparable")
    columns = [Column("Algorithm", lambda algo: algo), Column("regret", lambda algo: regret)]
    printed = tables_as_text([Table("table-1", "Table 1", columns, ["sac"])])
    assert [line.split("  ")[-1].strip() for line in printed.splitlines()[-3:]] == [
        "1.8 ± 0.1",
        "paper 6.5 ± 0.3",
        "not comparable",
    ]
