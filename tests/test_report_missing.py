"""What a report says of runs that are missing, broken, or under way."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from report_folders import task, write_run, write_study, write_table_1
from test_report import SOLVED_AT_ONCE, rows_of, variants_of

from pac4sac.base.errors import UserError
from pac4sac.cli.main import main
from pac4sac.paper.report import write_report
from pac4sac.runs.collection import collect
from pac4sac.runs.reading import read_run

pytestmark = pytest.mark.usefixtures("undrawn")


class TestMissingRuns:
    def test_an_unfinished_study_lists_missing_runs(self, tmp_path: Path) -> None:
        study = tmp_path / "table-1"
        write_table_1(study, ("cartpole-swingup",), seeds=2)
        shutil.rmtree(study / "experiments/cartpole-swingup/runs/sac-seed1")
        text = write_report([study], tmp_path / "out").page.read_text()
        assert "1 planned run not yet started (table-1: 1)" in text
        assert rows_of(tmp_path / "out/tables/missing-runs.csv") == [
            {
                "Task": "cartpole-swingup",
                "Variant": "sac",
                "Seeds": "1",
                "Runs": "1",
                "Studies": "table-1",
                "Train with": "pac4sac study run table-1 --tasks cartpole-swingup --seeds 1",
            }
        ]

    def test_a_run_under_another_name_is_not_missing(self, tmp_path: Path) -> None:
        write_run(tmp_path, task("cartpole-swingup"), "pac4sac", 0)
        identity = collect([tmp_path]).runs[0].record.identity
        expected = {"task": "cartpole-swingup", "label": "all-terms", "seed": 0}
        write_study(tmp_path, "table-2", "table-2", None, [expected])
        assert len(collect([tmp_path]).missing) == 1
        write_study(tmp_path, "table-2", "table-2", None, [expected | {"identity": identity}])
        assert collect([tmp_path]).missing == ()

    def test_every_study_that_expects_a_missing_run_is_named(self, tmp_path: Path) -> None:
        expected = {"task": "ant", "seed": 0, "identity": "1f"}
        write_study(
            tmp_path / "in/a",
            "controls",
            "controls",
            None,
            [expected | {"label": "pac4sac-without-shooting"}],
        )
        write_study(
            tmp_path / "in/b",
            "shooting",
            "shooting",
            None,
            [expected | {"label": "pac4sac-shots=1"}],
        )
        assert [run.studies for run in collect([tmp_path / "in"]).missing] == [
            ("controls", "shooting")
        ]
        text = write_report([tmp_path / "in"], tmp_path / "out").page.read_text()
        assert "1 planned run not yet started (controls: 1, shooting: 1)" in text

    def test_a_study_without_any_run_is_reported_too(self, tmp_path: Path) -> None:
        expected = [
            {"task": "ant", "algo": "sac", "label": "sac", "seed": seed} for seed in range(5)
        ]
        write_study(tmp_path / "in", "table-1", "table-1", "sac", expected)
        text = write_report([tmp_path / "in"], tmp_path / "out").page.read_text()
        assert "5 planned runs not yet started (table-1: 5)" in text

    def test_unfinished_and_broken_runs_are_listed(self, tmp_path: Path) -> None:
        cartpole = task("cartpole-swingup")
        write_run(tmp_path / "in", cartpole, "sac", 0, SOLVED_AT_ONCE)
        write_run(
            tmp_path / "in",
            cartpole,
            "sac",
            1,
            [1.0] * 3,
            status="diverged",
            status_detail="NaN at step 3000",
        )
        write_run(
            tmp_path / "in",
            cartpole,
            "sac",
            2,
            [1.0] * 3,
            status="failed",
            status_detail="no simulator",
        )
        write_run(tmp_path / "in", cartpole, "sac", 3, [1.0] * 3, status="running")
        # solved before
        write_run(tmp_path / "in", cartpole, "sac", 4, SOLVED_AT_ONCE[:6], status="diverged")
        write_report([tmp_path / "in"], tmp_path / "out")
        listed = {
            row["Seed"]: row["Metrics"]
            for row in rows_of(tmp_path / "out/tables/unfinished-runs.csv")
        }
        assert listed == {"1": "diverged", "2": "failed", "3": "unfinished", "4": "complete"}
        group = variants_of(tmp_path / "in")["sac"]
        assert (group.solved, len(group.judged)) == (2, 3)  # the diverged one never will be
        assert group.solved_text == "2 of 5 so far"

    def test_diverged_and_unstarted_runs_are_excluded_from_means(self, tmp_path: Path) -> None:
        cartpole = task("cartpole-swingup")
        write_run(tmp_path, cartpole, "sac", 0, SOLVED_AT_ONCE)
        write_run(tmp_path, cartpole, "sac", 1, [1.0] * 3, status="diverged")
        write_run(tmp_path, cartpole, "sac", 2, [], status="failed", status_detail="no simulator")
        assert variants_of(tmp_path)["sac"].values("episodes") == [0.0]

    @pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
    def test_runs_solved_early_do_not_replace_runs_in_progress(
        self, tmp_path: Path, status: str
    ) -> None:
        cartpole = task("cartpole-swingup")
        for seed in range(4):
            write_run(
                tmp_path / "in", cartpole, "sac", seed, [850.0 - 100] * (seed + 3) + SOLVED_AT_ONCE
            )
        write_run(tmp_path / "in", cartpole, "sac", 4, [850.0 - 100] * 12, status=status)
        group = variants_of(tmp_path / "in")["sac"]
        assert (
            group.values("regret")
            == group.values("episodes")
            == group.values("final_deterministic")
            == []
        )
        assert group.shown("regret") == (
            [300.0, 400.0, 500.0, 600.0, 1200.0],
            "so far, at episode 12",
        )
        write_report([tmp_path / "in"], tmp_path / "out")
        details = rows_of(tmp_path / "out/tables/table-1-details.csv")
        assert {(r["verdict"], r["mean"]) for r in details if r["row"] == "sac"} == {
            ("unfinished", "")
        }
        row = next(row for row in rows_of(tmp_path / "out/tables/task-cartpole-swingup.csv"))
        assert (row["mean"], row["against_baseline"]) == ("", "unfinished")
        for page in ("report.md", "report.html", "tables/table-1.tex"):
            assert "so far, at episode 12" in (tmp_path / "out" / page).read_text()

    def test_unreadable_lines_are_counted(self, tmp_path: Path) -> None:
        run = write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 0)
        lines = (run / "episodes.jsonl").read_text().splitlines()
        lines[3] = "garbled"
        (run / "episodes.jsonl").write_text("\n".join([*lines, '{"episode": 40, "step"']))
        with pytest.warns(
            UserWarning, match=r"damaged logs.*`in/runs/sac-seed0`: episodes \(2 unreadable lines\)"
        ):
            page = write_report([tmp_path / "in"], tmp_path / "out").page
        assert "<code>in/runs/sac-seed0</code>: episodes (2 unreadable lines)." in page.read_text()

    def test_an_unreadable_run_is_named_and_the_rest_reported(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 0)
        (write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 1) / "run.json").write_text(
            "{"
        )
        assert main(["report", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
        told = capsys.readouterr().err
        assert told.startswith("pac4sac: warning: Not readable: in/runs/sac-seed1/run.json")
        assert told.count("\n") == 1
        text = (tmp_path / "out" / "report.html").read_text()
        assert "Not readable: in/runs/sac-seed1/run.json" in text
        assert "1 unreadable" in text

    @pytest.mark.parametrize("setting", [{"norm": ["x"]}, {"lr": {}}, {"activation": [1]}])
    def test_a_setting_of_another_type_counts_as_damage(
        self, tmp_path: Path, setting: dict[str, Any]
    ) -> None:
        run = write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 0)
        about = json.loads((run / "run.json").read_bytes())
        (run / "run.json").write_text(json.dumps(about | {"config": about["config"] | setting}))
        with pytest.raises(UserError, match=f"damaged: it has no valid {next(iter(setting))};"):
            read_run(run)

    def test_a_folder_without_runs_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="No runs or studies were found in"):
            write_report([tmp_path], tmp_path / "out")
        with pytest.raises(UserError, match="nowhere is not a folder"):
            write_report([tmp_path / "nowhere"], tmp_path / "out")

    @pytest.mark.parametrize("name", ["\ud800", "a\0b"])
    def test_a_name_that_no_folder_can_have_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(UserError, match="is not a folder"):
            write_report([Path(name)], tmp_path / "out")

    def test_a_folder_whose_runs_are_all_unreadable_is_refused_with_the_reason(
        self, tmp_path: Path
    ) -> None:
        run = write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 0)
        (run / "run.json").write_text("{")
        with pytest.raises(UserError, match=r"sac-seed0/run\.json is damaged"):
            write_report([tmp_path / "in"], tmp_path / "out")

    def test_a_report_is_not_written_into_an_unrelated_folder(self, tmp_path: Path) -> None:
        write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 0)
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "thesis.tex").write_text("years")
        with pytest.raises(UserError, match="do not belong to a report"):
            write_report([tmp_path / "in"], tmp_path / "out")
