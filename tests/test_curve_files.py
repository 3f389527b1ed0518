"""Learning curves in the CSV schema of other projects: written, read back, and compared with runs."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_folders import own_task, write_run

from pac4sac.base.errors import UserError
from pac4sac.cli.main import main
from pac4sac.export.curves import export_curves
from pac4sac.report.report import read_context, write_report
from pac4sac.runs.curve_files import COLUMNS, check_curves_on, read_curves
from pac4sac.studies.compare import compare

TASK = own_task("Pendulum-v1", steps=1000, r_limit=-200.0)
HEAD = ",".join(COLUMNS)


def evaluated(run: Path, means: dict[int, float]) -> None:
    rows = [
        {"step": step, "policy": "deterministic", "mean": mean, "returns": [mean]}
        for step, mean in means.items()
    ]
    (run / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """Two seeds of an algorithm that end at returns of -300 and -200."""
    for seed, end in ((0, -300.0), (1, -200.0)):
        run = write_run(tmp_path / "ours", TASK, "sac", seed, [-900.0, -800.0, -700.0, -600.0, end])
        evaluated(run, {500: -700.0, 1000: end})
    return tmp_path / "ours"


def curves_file(folder: Path, *rows: str, head: str = HEAD, name: str = "curves.csv") -> Path:
    file = folder / name
    file.write_text("\n".join([head, *rows]) + "\n")
    return file


def rows_of(exp_name: str, ends: list[float], task: str = "Pendulum-v1", last: int = 1000) -> list:
    curves = [((last // 2, end - 400), (last, end)) for end in ends]
    return [
        f"{exp_name},{task},{seed},avg_return,{step},{value}"
        for seed, curve in enumerate(curves)
        for step, value in curve
    ]


def test_what_is_exported_is_read_back_by_pandas_and_by_this_package(ours: Path, tmp_path: Path):
    said = export_curves([ours], tmp_path / "out" / "curves.csv")
    assert "2 runs were written to" in said
    assert "in 14 rows" in said
    frame = pd.read_csv(tmp_path / "out" / "curves.csv")
    assert tuple(frame.columns) == COLUMNS
    assert set(zip(frame.exp_name, frame.env_name, strict=True)) == {("sac", "Pendulum-v1")}
    last = frame[(frame.metric == "avg_return") & (frame.env_step == 1000)]
    assert dict(zip(last.seed, last.value, strict=True)) == {0: -300.0, 1: -200.0}
    episodes = frame[(frame.metric == "episode_return") & (frame.seed == 1)]
    assert episodes.env_step.tolist() == [200, 400, 600, 800, 1000]
    assert episodes.value.tolist() == [-900.0, -800.0, -700.0, -600.0, -200.0]
    curves = read_curves([tmp_path / "out" / "curves.csv"])
    assert [curve.points for curve in curves] == [
        ((500, -700.0), (1000, -300.0)),
        ((500, -700.0), (1000, -200.0)),
    ]


def test_variants_with_equal_names_are_exported_with_different_names(ours: Path, tmp_path: Path):
    write_run(tmp_path / "more", TASK, "sac", 0, [-9.0] * 5, settings={"lr": 0.01})
    export_curves([ours, tmp_path / "more"], tmp_path / "curves.csv")
    names = set(pd.read_csv(tmp_path / "curves.csv").exp_name)
    assert names == {"sac (lr=0.001)", "sac (lr=0.01)"}


def test_foreign_curves_are_variants_of_the_report(ours: Path, tmp_path: Path):
    simba = rows_of("simba", [-150.0, -100.0, -50.0])
    file = curves_file(tmp_path, *(f"{n},{row}" for n, row in enumerate(simba)), head=f",{HEAD}")
    report = write_report([ours, file], tmp_path / "report")
    (rows,) = report.context.variants.values()
    assert [variant.label for variant in rows] == ["sac", "simba (foreign)"]
    (table,) = report.main_tables
    sac, foreign = table.records
    assert (sac["metric"], sac["mean"]) == ("final_deterministic", -250.0)
    assert (foreign["runs"], foreign["complete"], foreign["mean"]) == (3, 3, -100.0)
    assert foreign["difference"] == 150.0
    assert foreign["difference_low"] < 150 < foreign["difference_high"]
    assert foreign["command"] == ""
    assert foreign["solved_fraction"] is None
    assert (tmp_path / "report" / "figures" / "evaluations-Pendulum-v1.svg").is_file()


def test_foreign_curves_can_be_reported_alone(tmp_path: Path):
    file = curves_file(tmp_path, *rows_of("a", [1.0, 2.0]), *rows_of("b", [3.0, 5.0], last=2000))
    (variants,) = read_context([file]).variants.values()
    # b is compared where a ends
    assert [(v.label, v.values("final_deterministic")) for v in variants] == [
        ("a (foreign)", [1.0, 2.0]),
        ("b (foreign)", [-397.0, -395.0]),
    ]
    assert variants[0].task.settings["steps"] == 1000


def test_a_curve_counts_up_to_the_evaluation_nearest_to_the_end_of_our_runs(
    ours: Path, tmp_path: Path
):
    rows = [f"x,Pendulum-v1,0,avg_return,{step},{step}" for step in (500, 970, 1040, 2000)]
    (variants,) = read_context([ours, curves_file(tmp_path, *rows)]).variants.values()
    assert variants[1].values("final_deterministic") == [970.0]


def test_a_return_that_is_not_finite_is_unknown(ours: Path, tmp_path: Path):
    file = curves_file(tmp_path, "x,Pendulum-v1,0,avg_return,1000,nan", *rows_of("y", [1.0]))
    (variants,) = read_context([ours, file]).variants.values()
    assert [len(v.values("final_deterministic")) for v in variants] == [2, 0, 1]


ROW = "a,Pendulum-v1,0,avg_return,1000,1.0"


@pytest.mark.parametrize(
    ("rows", "head", "word"),
    [
        ([ROW], "exp_name,env_name,seed,metric,env_step", "lacks the column value"),
        ([ROW, "a,Pendulum-v1,0,avg_return,1000,2.0"], HEAD, "two values at step 1000"),
        (["a,Pendulum-v1,0,loss,1000,1.0"], HEAD, "avg_return"),
        (["a,Pendulum-v1,0,avg_return,1000,high"], HEAD, "Line 2 of"),
        (["a,Pendulum-v1,0.5,avg_return,1000,1.0"], HEAD, "whole number"),
        (["a,Pendulum-v1,0,avg_return,-1,1.0"], HEAD, "whole number"),
        ([",Pendulum-v1,0,avg_return,1000,1.0"], HEAD, "has no exp_name"),
        ([], HEAD, "no row"),
    ],
)
def test_an_invalid_curve_file_is_refused_before_a_report_is_written(
    rows: list[str], head: str, word: str, tmp_path: Path
):
    file = curves_file(tmp_path, *rows, head=head)
    with pytest.raises(UserError) as caught:
        write_report([file], tmp_path / "report")
    assert word in str(caught.value)
    assert not (tmp_path / "report").exists()


def test_a_run_in_two_files_is_refused(tmp_path: Path):
    files = [curves_file(tmp_path, ROW, name=name) for name in ("a.csv", "b.csv")]
    with pytest.raises(UserError, match=r"a\.csv and b\.csv"):
        read_curves(files)
    assert len(read_curves([files[0], files[0]])) == 1


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([ROW, "a,Walker2d-v4,0,avg_return,1000,1.0"], "Pendulum-v1, Walker2d-v4"),
        (["a,Pendulum-v1,0,avg_return,500,1.0"], "within 5%"),
    ],
)
def test_compare_refuses_curves_that_do_not_fit_before_it_trains(
    rows: list[str], word: str, tmp_path: Path
):
    file = curves_file(tmp_path, *rows)
    with pytest.raises(UserError) as caught:
        check_curves_on(read_curves([file]), "Pendulum-v1", "Pendulum-v1", 1000)
    assert word in str(caught.value)
    how: dict[str, Any] = {"steps": 1000, "settings": {"warmup": 10}, "out": tmp_path / "out"}
    with pytest.raises(UserError):
        compare("Pendulum-v1", "sac,ddpg", curves=[file], **how)
    assert not (tmp_path / "out").exists()


def test_curve_commands_export_and_compare(
    ours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = str(curves_file(tmp_path, *rows_of("simba", [-150.0])))
    assert main(["report", file]) == 2
    assert "--out" in capsys.readouterr().err
    assert main(["report", file, str(ours)]) == 0
    assert (ours / "report" / "report.html").is_file()
    assert main(["export", "csv", str(ours), "--out", str(tmp_path / "c.csv")]) == 0
    assert main(["export", "csv", str(ours), "--out", str(tmp_path)]) == 2
    assert main(["export", "csv", str(tmp_path / "no"), "--out", str(tmp_path / "d.csv")]) == 2
    assert not (tmp_path / "d.csv").exists()
