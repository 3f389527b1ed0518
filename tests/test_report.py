"""The report as a function of the run folders: what it says, what it leaves out, and that its bytes
repeat."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_folders import (
    curve,
    own_task,
    task,
    write_everything,
    write_run,
    write_study,
    write_table_1,
)

from pac4sac.paper.report import read_context, write_report
from pac4sac.report.tables import in_digits
from pac4sac.report.variants import Variant
from pac4sac.runs.collection import collect
from pac4sac.runs.seeds import seeds_text
from pac4sac.runs.statistics import Summary

SOLVED_AT_ONCE = [900.0] * 40


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


def variants_of(folder: Path) -> dict[str, Variant]:
    return {variant.label: variant for variant in read_context([folder]).all_variants}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Page(HTMLParser):
    """Sections, tables and everything that a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.tables: list[str] = []
        self.drawings = 0
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        about = dict(attributes)
        if tag == "section":
            self.sections.append(about["id"] or "")
        if tag == "table":
            self.tables.append(about["id"] or "")
        self.drawings += tag == "svg"
        self.fetched += [
            v
            for k, v in attributes
            if k in ("src", "href", "xlink:href") and v and not v.startswith("#")
        ]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("everything")
    write_everything(folder / "runs-of-all-kinds")
    write_report([folder / "runs-of-all-kinds"], folder / "report")
    return folder


class TestThePage:
    def test_has_every_part(self, everything: Path) -> None:
        page = Page((everything / "report" / "report.html").read_text())
        expected = ("summary curves claims table-1 table-2 shooting controls across-tasks task-cartpole-swingup "
                    "task-half-cheetah threshold cost runs method provenance")  # fmt: skip
        assert page.sections == expected.split()
        assert page.drawings == len(list((everything / "report" / "figures").glob("*.svg")))

    def test_loads_no_external_files(self, everything: Path) -> None:
        text = (everything / "report" / "report.html").read_text()
        assert Page(text).fetched == []
        assert "@import" not in text
        assert "url(http" not in text

    def test_every_table_and_figure_has_its_files(self, everything: Path) -> None:
        report = everything / "report"
        page = Page((report / "report.html").read_text())
        names = sorted(table.removeprefix("table-") for table in page.tables)
        assert sorted(path.stem for path in (report / "tables").glob("*.tex")) == names
        assert sorted(path.stem for path in (report / "tables").glob("*.csv")) == names
        svg = {path.stem for path in (report / "figures").glob("*.svg")}
        assert svg == {path.stem for path in (report / "figures").glob("*.pdf")}
        told = (report / "report.md").read_text()
        assert {Path(name).stem for name in re.findall(r"\(figures/([^)]+)\)", told)} == svg

    def test_drawings_share_no_ids_and_follow_the_theme(self, everything: Path) -> None:
        text = (everything / "report" / "report.html").read_text()
        ids = re.findall(r'\bid="([^"]+)"', text)
        assert len(ids) == len(set(ids))
        assert "var(--series-0)" in text

    def test_contains_no_path_of_this_machine(self, everything: Path) -> None:
        for name, content in contents(everything / "report").items():
            assert str(everything).encode() not in content, name

    def test_names_of_runs_cannot_inject_anything(self, tmp_path: Path) -> None:
        hostile = '<script>alert("1")</script>|`$x'
        folder = write_run(tmp_path / "in", own_task(), "sac", 0)
        about = json.loads((folder / "run.json").read_text()) | {
            "label": hostile,
            "status_detail": hostile,
        }
        (folder / "run.json").write_text(json.dumps(about | {"status": "failed"}))
        text = write_report([tmp_path / "in"], tmp_path / "out").page.read_text()
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text
        (returns,) = re.findall(
            r'<script type="application/json" id="returns">(.*?)</script>', text
        )
        assert json.loads(returns)["tasks"][0]["variants"][0]["label"] == hostile

    def test_a_latex_table_escapes_what_latex_reads(self, tmp_path: Path) -> None:
        write_run(tmp_path / "in", own_task(), "sac", 0, label="50%_of_#1")
        write_report([tmp_path / "in"], tmp_path / "out")
        told = (tmp_path / "out" / "tables" / "task-Pendulum-v1.tex").read_text()
        assert r"50\%\_of\_\#1" in told


class TestSameFoldersSameBytes:
    def test_does_not_depend_on_order_time_or_location(self, tmp_path: Path) -> None:
        first, second = tmp_path / "here" / "a", tmp_path / "here" / "b"
        write_table_1(first, ("cartpole-swingup",), seeds=2)
        for seed in range(2):
            write_run(
                second,
                task("cartpole-swingup"),
                "sac",
                seed,
                label="sac+shooting",
                settings={"shots": 500},
            )
        write_report([first, second], tmp_path / "out-1")
        shutil.copytree(tmp_path / "here", tmp_path / "there" / "deeper")
        for path in (tmp_path / "there").rglob("*"):
            os.utime(path, (1e9, 1e9))
        moved = tmp_path / "there" / "deeper"
        write_report([moved / "b", moved / "a", moved / "a"], tmp_path / "out-2")
        assert contents(tmp_path / "out-1") == contents(tmp_path / "out-2")
        write_report([first, second], tmp_path / "out-1")  # over itself
        assert contents(tmp_path / "out-1") == contents(tmp_path / "out-2")

    def test_without_simulators(self, tmp_path: Path) -> None:
        write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 0)
        write_report([tmp_path / "in"], tmp_path / "out-1")
        program = (
            "import sys\n"
            "class Missing:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name.split('.')[0] in ('pybullet', 'pandas'): raise ImportError(name)\n"
            "sys.meta_path.insert(0, Missing())\n"
            "from pathlib import Path\n"
            "from pac4sac.paper.report import write_report\n"
            "write_report([Path(sys.argv[1])], Path(sys.argv[2]))\n"
        )
        arguments = [str(tmp_path / "in"), str(tmp_path / "out-2")]
        subprocess.run([sys.executable, "-c", program, *arguments], check=True)
        assert contents(tmp_path / "out-1") == contents(tmp_path / "out-2")


class TestThePapersRows:
    def test_are_found_by_the_labels_of_the_shipped_studies(self, tmp_path: Path) -> None:
        cartpole = task("cartpole-swingup")
        runs: list[tuple[str, str, dict[str, Any]]] = [
            ("pac4sac", "pac4sac", {}),
            ("pac4sac", "bellman", {"xi": 0.0, "conservative": 0.0}),
            ("pac4sac", "pac4sac-shots=200", {"shots": 200}),
            ("pac4sac", "other", {"xi": 0.5}),
            ("sac", "sac", {}),
        ]
        for algo, label, settings in runs:
            write_run(tmp_path, cartpole, algo, 0, label=label, settings=settings)
        write_run(tmp_path / "changed", cartpole, "sac", 0, label="sac", settings={"lr": 0.1})
        rows = read_context([tmp_path]).rows
        labels = {row: variant.label for (_, row), variant in rows.table_1.items()}
        assert labels.keys() == {"pac4sac", "sac"}
        assert rows.table_1["cartpole-swingup", "sac"].given == {}
        assert {row: variant.label for (_, row), variant in rows.table_2.items()} == {
            "bellman": "bellman",
            "bellman+conservative+exploration": "pac4sac",
        }
        assert {shots: variant.label for shots, variant in rows.shooting.items()} == {
            200: "pac4sac-shots=200",
            500: "pac4sac",
        }

    def test_runs_in_miniature_fill_the_tables_without_a_verdict(self, tmp_path: Path) -> None:
        small = task("cartpole-swingup", horizon=50, steps=600, r_limit=-48.0)
        for seed in range(3):
            write_run(tmp_path / "in", small, "sac", seed, [-50.0] * 12, settings={"width": 32})
        write_study(tmp_path / "in", "smoke", "smoke", "sac", [])
        write_report([tmp_path / "in"], tmp_path / "out")
        row = next(
            r for r in rows_of(tmp_path / "out/tables/table-1-details.csv") if r["row"] == "sac"
        )
        assert row["verdict"] == "not comparable"
        assert "horizon=50" in row["reason"]
        assert "width=32" in row["reason"]
        assert float(row["mean"]) == 24.0
        changed = "--set-task horizon=50 r_limit=-48.0 --set width=32"
        assert (
            row["command"] == f"pac4sac train cartpole-swingup --algo sac --seeds 0:3 --steps 600 "
            f"--preset reproduction {changed}"
        )

    def test_a_calibrated_baseline_has_its_own_row_with_the_same_paper_numbers(
        self, tmp_path: Path
    ) -> None:
        for seed in range(5):
            write_run(tmp_path / "in", task("cartpole-swingup"), "sac", seed)
            calibrated = {
                "label": "sac-calibrated",
                "preset": "calibrated",
                "settings": {"alpha": 0.1},
                "given": {},
            }
            write_run(
                tmp_path / "in",
                task("cartpole-swingup"),
                "sac",
                seed,
                SOLVED_AT_ONCE[seed % 2 :],
                **calibrated,
            )
        write_report([tmp_path / "in"], tmp_path / "out")
        rows = rows_of(tmp_path / "out/tables/table-1-details.csv")
        verdicts = {
            r["row"]: (r["verdict"], r["paper_mean"])
            for r in rows
            if r["metric"] == "regret" and r["mean"]
        }
        assert verdicts.keys() == {"sac", "sac-calibrated"}
        assert verdicts["sac-calibrated"] == ("better", verdicts["sac"][1])

    def test_runs_of_a_calibration_are_not_results(self, tmp_path: Path) -> None:
        cartpole = task("cartpole-swingup")
        write_run(tmp_path / "in" / "table-1", cartpole, "sac", 0)
        write_run(
            tmp_path / "in" / "updates", cartpole, "sac", 1000, label="sac-updates_per_step=4"
        )
        write_study(tmp_path / "in" / "updates", "updates-per-step", "calibration", None, [])
        rows = read_context([tmp_path / "in"]).rows
        assert [run.seed for run in rows.table_1["cartpole-swingup", "sac"].runs] == [0]
        page = Page(write_report([tmp_path / "in"], tmp_path / "out").page.read_text())
        assert "calibration" in page.sections

    def test_unsolved_cells_are_compared_by_the_number_of_solved_runs(self, tmp_path: Path) -> None:
        for seed in range(5):
            write_run(tmp_path / "in", task("cartpole-swingup"), "oac", seed, SOLVED_AT_ONCE)
        write_report([tmp_path / "in"], tmp_path / "out")
        rows = rows_of(tmp_path / "out/tables/table-1-details.csv")
        row = next(
            r
            for r in rows
            if (r["task"], r["row"], r["metric"]) == ("cartpole-swingup", "oac", "episodes")
        )
        assert row["verdict"] == "better"
        assert "5 of our 5 runs solved the task, and none of the paper's 5" in row["reason"]

    def test_a_diverged_run_prevents_a_positive_verdict(self, tmp_path: Path) -> None:
        for seed in range(5):
            write_run(
                tmp_path / "in", task("cartpole-swingup"), "sac", seed, SOLVED_AT_ONCE[seed % 2 :]
            )
        report = write_report([tmp_path / "in"], tmp_path / "out")
        table = report.page.parent / "tables/table-1-details.csv"
        assert next(r for r in rows_of(table) if r["row"] == "sac")["verdict"] == "better"
        write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 5, [1.0], status="diverged")
        write_report([tmp_path / "in"], tmp_path / "out")
        row = next(r for r in rows_of(table) if r["row"] == "sac")
        assert (row["verdict"], row["complete_runs"], row["runs"]) == ("undecided", "5", "6")
        assert "leaves out 1 diverged run" in row["reason"]


class TestCommands:
    @pytest.mark.parametrize(
        ("changes", "command"),
        [
            ({}, "pac4sac train half-cheetah --algo sac --seeds 0 --preset reproduction"),
            (
                {"settings": {"shots": 500, "learn_alpha": True}},
                "pac4sac train half-cheetah --algo sac --seeds 0 --preset reproduction "
                "--set learn_alpha=true shots=500",
            ),
            (
                {"about_task": task("half-cheetah", steps=5000)},
                "pac4sac train half-cheetah --algo sac --seeds 0 --steps 5000 --preset reproduction",
            ),
            (
                {"about_task": own_task()},
                "pac4sac train Pendulum-v1 --algo sac --seeds 0 --steps 4000 --preset reproduction",
            ),
            (
                {"algo": "my:Agent"},
                "pac4sac train half-cheetah --algo my:Agent --seeds 0 --preset reproduction",
            ),
        ],
    )
    def test_repeat_a_row(self, tmp_path: Path, changes: dict[str, Any], command: str) -> None:
        write_run(
            tmp_path, **{"about_task": task("half-cheetah"), "algo": "sac", "label": "x", **changes}
        )
        assert variants_of(tmp_path)["x"].command == command

    def test_have_the_given_settings_of_the_run(self, tmp_path: Path) -> None:
        settings, given = {"shots": 500, "alpha": 0.1}, {"shots": 500}
        changes: Any = {"preset": "gone", "given": given}
        write_run(tmp_path, task("half-cheetah"), "sac", 0, settings=settings, **changes)
        command = variants_of(tmp_path)["sac"].command
        assert command.endswith("--algo sac --seeds 0 --preset gone --set shots=500")

    def test_seeds_are_shown_in_the_form_of_the_command_line(self) -> None:
        assert seeds_text([4, 0, 1, 2, 7]) == "0:3,4,7"


class TestDuplicateRuns:
    def test_the_complete_copy_is_used_and_the_report_notes_it(self, tmp_path: Path) -> None:
        cartpole = task("cartpole-swingup")
        write_run(tmp_path / "in" / "a", cartpole, "sac", 0, [1.0] * 7, status="running")
        write_run(tmp_path / "in" / "b", cartpole, "sac", 0, SOLVED_AT_ONCE)
        text = write_report([tmp_path / "in"], tmp_path / "out").page.read_text()
        told = "<code>in/b/runs/sac-seed0</code> was used and in/a/runs/sac-seed0 left out"
        assert f"{told}: only the used copy is complete." in text
        assert variants_of(tmp_path / "in")["sac"].values("episodes") == [0.0]

    def test_a_study_may_keep_a_run_under_two_names(self, tmp_path: Path) -> None:
        for label in ("pac4sac", "bellman+conservative+exploration"):
            write_run(tmp_path, task("cartpole-swingup"), "pac4sac", 0, label=label)
        collection = collect([tmp_path])
        assert [run.labels for run in collection.runs] == [
            ("bellman+conservative+exploration", "pac4sac")
        ]
        assert collection.twice == ()

    def test_other_settings_make_another_run(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", task("cartpole-swingup"), "sac", 0)
        write_run(tmp_path / "b", task("cartpole-swingup"), "sac", 0, settings={"lr": 0.5})
        assert set(variants_of(tmp_path)) == {"sac (lr=0.001)", "sac (lr=0.5)"}
        assert collect([tmp_path]).twice == ()


class TestOwnTasks:
    def test_without_a_limit_are_ranked_by_mean_return(self, tmp_path: Path) -> None:
        for algo, level in (("pac4sac", 2.0), ("sac", 1.0)):
            for seed in range(4):
                write_run(
                    tmp_path / "in", own_task(), algo, seed, curve(own_task(), (level, 0.3), seed)
                )
        write_report([tmp_path / "in"], tmp_path / "out")
        rows = {
            row["variant"]: row for row in rows_of(tmp_path / "out/tables/task-Pendulum-v1.csv")
        }
        assert rows["pac4sac"]["metric"] == "mean_return"
        assert rows["pac4sac"]["against_baseline"] == "better"
        assert rows["sac"]["against_baseline"] == "baseline"
        page = Page((tmp_path / "out/report.html").read_text())
        assert "table-1" not in page.sections
        assert "threshold" not in page.sections
        ends = {
            row["variant"]: row for row in rows_of(tmp_path / "out/tables/ends-Pendulum-v1.csv")
        }
        for metric in ("end_return", "final_deterministic"):  # levels of 200 and 100
            assert ends["pac4sac"][f"{metric}_against_baseline"] == "better"
            assert float(ends["sac"][f"{metric}_low"]) < float(ends["sac"][metric]) < 105
            assert 90 < float(ends["pac4sac"][f"{metric}_difference"]) < 110

    def test_of_episodes_of_any_length_are_measured_in_steps(self, tmp_path: Path) -> None:
        hopper = own_task("Hopper-v5", horizon=1000, r_limit=100.0, steps=3000)
        lengths = [500, 500, 400, 400, 400, 400, 400]
        write_run(tmp_path, hopper, "sac", 0, [10.0, 50.0, *[150.0] * 5], lengths=lengths)
        metrics = variants_of(tmp_path)["sac"].outcomes[0].metrics
        assert metrics["steps_until_solved"] == 1000.0
        assert metrics["mean_return"] == pytest.approx((500 * 60 + 2000 * 150) / 3000)
        assert metrics["end_return"] == 150.0
        assert "regret" not in metrics

    def test_returns_at_the_end_are_shown_without_a_threshold(self, tmp_path: Path) -> None:
        """The last tenth of 4000 steps has the last two of twenty episodes."""
        returns = [float(k) for k in range(20)]
        runs = [
            write_run(tmp_path, own_task(r_limit=100.0), "sac", seed, returns) for seed in (0, 1)
        ]
        early = {"step": 2000, "policy": "deterministic", "mean": 1.0, "returns": []}
        log = runs[1] / "evaluations.jsonl"
        log.write_text(json.dumps(early) + "\n" + log.read_text())
        once, on_schedule = (outcome.metrics for outcome in variants_of(tmp_path)["sac"].outcomes)
        assert "end_return" not in once
        assert on_schedule["end_return"] == 18.5

    def test_a_run_stopped_when_solved_has_no_area_under_its_curve(self, tmp_path: Path) -> None:
        write_run(
            tmp_path,
            task("cartpole-swingup"),
            "sac",
            0,
            SOLVED_AT_ONCE[:5],
            status_detail="solved at step 5000",
        )
        metrics = variants_of(tmp_path)["sac"].outcomes[0].metrics
        assert metrics["episodes"] == 0.0
        assert "mean_return" not in metrics
        assert "fixed_horizon_regret" not in metrics


@pytest.mark.parametrize(
    ("mean", "sd", "scale", "text"),
    [
        (6049.0, 1600.0, 1000.0, "6.0 ± 1.6"),
        (-0.04, 0.01, 1.0, "−0.040 ± 0.010"),
        (12345.6, 78.9, 1.0, "12,346 ± 79"),
        (-0.0, 0.0, 1.0, "0.0 ± 0.0"),
    ],
)
def test_numbers_have_the_papers_decimals_and_are_never_rounded_to_zero(
    mean: float, sd: float, scale: float, text: str
) -> None:
    assert in_digits(Summary(5, mean, sd), scale) == text
