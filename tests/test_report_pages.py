"""The report as pages of a repository: links, tables that fit, commands, costs, and the studies'
own sections."""

import json
import re
from pathlib import Path

import pytest
from report_folders import task, write_run, write_study, write_table_1
from test_report import rows_of, variants_of

from pac4sac.paper.report import read_context, write_report
from pac4sac.paper.study_sections import study_sections
from pac4sac.report.comparison import compare_headline
from pac4sac.report.sections import sweep
from pac4sac.report.tables import Table
from pac4sac.runs.metrics import score


@pytest.fixture(scope="module")
def two_tasks(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("two-tasks")
    write_table_1(folder / "in")
    write_report([folder / "in"], folder / "out")
    return (folder / "out" / "report.md").read_text()


class TestPagesForARepository:
    def test_the_readme_links_every_page_and_pages_link_every_figure(self, tmp_path: Path) -> None:
        write_table_1(tmp_path / "in", ("cartpole-swingup",), seeds=2)
        write_report([tmp_path / "in"], tmp_path / "out", in_pages=True)
        pages = {path.name: path.read_text() for path in (tmp_path / "out").glob("*.md")}
        linked = set(re.findall(r"\]\(([\w.-]+\.md)\)", pages["README.md"]))
        assert linked == set(pages) - {"README.md"}
        shown = {
            name for text in pages.values() for name in re.findall(r"\(figures/([^)]+)\)", text)
        }
        assert shown == {path.name for path in (tmp_path / "out" / "figures").iterdir()}
        assert not list((tmp_path / "out").rglob("*.pdf"))

    def test_can_be_replaced_with_a_single_file_and_back(self, tmp_path: Path) -> None:
        write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 0)
        for in_pages, expected in ((True, "README.md"), (False, "report.md"), (True, "README.md")):
            write_report([tmp_path / "in"], tmp_path / "out", in_pages=in_pages)
            names = {path.name for path in (tmp_path / "out").glob("*.md")}
            assert expected in names
            assert len(names & {"README.md", "report.md"}) == 1

    def test_a_table_of_two_tasks_names_untrained_variants(self, two_tasks: str) -> None:
        assert (
            "no runs yet: Ant, Humanoid. To train them, run `pac4sac study run table-1 "
            "--tasks ant,humanoid`." in two_tasks
        )
        assert "no data" not in two_tasks.split("## Table 2")[0].split("## Table 1")[1]

    def test_commands_are_below_a_table_with_the_names_of_their_rows(self, two_tasks: str) -> None:
        assert (
            "# Half Cheetah, SAC\npac4sac train half-cheetah --algo sac --seeds 0:5 --preset reproduction\n"
            in two_tasks
        )

    def test_a_command_is_preceded_by_names_and_not_by_its_whole_row(self, two_tasks: str) -> None:
        settings = two_tasks.split("Settings that differ from the defaults")[1]
        assert (
            "\n# half-cheetah, oac\npac4sac train half-cheetah --algo oac --seeds 0:5 --preset reproduction\n"
            in settings
        )

    def test_deterministic_and_shooting_policies_have_separate_columns(
        self, two_tasks: str
    ) -> None:
        assert "| final evaluation: deterministic | final evaluation: shooting |" in two_tasks

    def test_costs_of_two_machines_are_compared_with_the_papers(self, tmp_path: Path) -> None:
        for device, gpu, sac in (("cpu", None, 4.0), ("cuda", "NVIDIA H200", 2.0)):
            times = {"sac": [sac, sac + 0.1], "pac4sac": [1.5 * sac, 1.5 * sac + 0.1]}
            rows = [
                {"algo": algo, "seconds_per_1000_steps": found} for algo, found in times.items()
            ]
            about = {
                "machine": {"processor": "x86_64", "cores": 16, "gpu": gpu},
                "device": device,
                "rows": rows,
            }
            (tmp_path / device).mkdir()
            (tmp_path / device / "cost.json").write_text(json.dumps(about))
        write_report([tmp_path / "cpu", tmp_path / "cuda"], tmp_path / "out")
        found = {
            (row["machine"], row["algorithm"]): row
            for row in rows_of(tmp_path / "out" / "tables" / "cost.csv")
        }
        assert float(found["CPU x86_64, 16 cores", "pac4sac"]["seconds"]) == pytest.approx(6.05)
        assert float(found["NVIDIA H200", "pac4sac"]["relative_to_sac"]) == pytest.approx(
            3.05 / 2.05
        )
        assert (
            "Repeat the measurement with `pac4sac study run cost --device cuda`"
            in (tmp_path / "out" / "report.md").read_text()
        )

    def test_a_task_with_only_calibration_runs_has_no_results_section(self, tmp_path: Path) -> None:
        write_run(tmp_path / "in", task("cartpole-swingup"), "sac", 1000)
        write_study(tmp_path / "in", "updates-per-step", "calibration", None, [])
        write_report([tmp_path / "in"], tmp_path / "out")
        assert "## Task" not in (tmp_path / "out" / "report.md").read_text()


class TestStudiesWithSections:
    def variants(self, folder: Path) -> dict[str, list[str]]:
        return {
            section.name: [
                row["variant"]
                for block in section.blocks
                if isinstance(block, Table) and not block.name.startswith("gain-")
                for row in block.records
            ]
            for section in study_sections(read_context([folder]))
        }

    def test_have_a_section_with_their_variants_and_sac_next_to_the_controls(
        self, tmp_path: Path
    ) -> None:
        cartpole = task("cartpole-swingup")
        variants = {
            "pac4sac": ("pac4sac", {}),
            "pac4sac-without-shooting": ("pac4sac", {"shots": 1}),
        }
        for kind, names in (
            ("controls", list(variants)),
            ("beyond", ["pac4sac", "pac4sac-tau=0.1"]),
        ):
            known = variants | {"pac4sac-tau=0.1": ("pac4sac", {"tau": 0.1})}
            for label in names:
                for seed in range(2):
                    algo, settings = known[label]
                    write_run(tmp_path / kind, cartpole, algo, seed, None, label, settings)
            write_study(tmp_path / kind, kind, kind, "pac4sac", [])
        for seed in range(2):
            write_run(tmp_path / "table", cartpole, "sac", seed)
            for shots in (1, 200):
                write_run(
                    tmp_path / "table",
                    cartpole,
                    "pac4sac",
                    seed,
                    None,
                    f"pac4sac-shots={shots}",
                    {"shots": shots},
                )
        told = self.variants(tmp_path)
        assert told["controls"] == ["pac4sac", "pac4sac-without-shooting", "sac"]
        assert told["beyond"] == ["pac4sac", "pac4sac-tau=0.1"]

    def test_include_matching_runs_trained_outside_the_study(self, tmp_path: Path) -> None:
        variants = {"pac4sac": ("pac4sac", {}), "moving": ("pac4sac-moving-prior", {}),
                    "plain": ("sac", {"critics": 1}), "pac4ddpg": ("pac4ddpg", {})}  # fmt: skip
        for label, (algo, settings) in variants.items():
            write_run(tmp_path, task("cartpole-swingup"), algo, 0, None, label, settings)
        assert self.variants(tmp_path) == {
            "controls": ["pac4sac", "plain"],
            "beyond": ["pac4sac", "moving"],
            "others": ["pac4sac", "pac4ddpg"],
        }


class TestAgainstTheBaseline:
    def test_ranks_show_differences_that_failed_runs_hide_in_the_means(
        self, tmp_path: Path
    ) -> None:
        for seed in range(8):
            write_run(tmp_path, task("cartpole-swingup"), "sac", seed, [600.0 + seed] * 40)
            stuck = -800.0 if seed < 2 else 590.0 - seed
            write_run(tmp_path, task("cartpole-swingup"), "ddpg", seed, [stuck] * 40)
        groups = variants_of(tmp_path)
        (row,) = compare_headline([groups["ddpg"]], groups["sac"])
        assert row.p is not None
        assert row.p > 0.05
        assert row.verdict == "usually worse"

    def test_significant_means_take_precedence_over_ranks(self, tmp_path: Path) -> None:
        for seed in range(5):
            write_run(tmp_path, task("cartpole-swingup"), "sac", seed, [600.0 + seed] * 40)
            write_run(tmp_path, task("cartpole-swingup"), "ddpg", seed, [500.0 + seed] * 40)
        groups = variants_of(tmp_path)
        assert compare_headline([groups["ddpg"]], groups["sac"])[0].verdict == "worse"
        assert compare_headline([groups["sac"]], groups["ddpg"])[0].verdict == "better"


class TestTheThreshold:
    def test_counts_episodes_as_the_metrics_do(self, tmp_path: Path) -> None:
        write_run(tmp_path, task("cartpole-swingup"), "sac", 0)
        group = variants_of(tmp_path)["sac"]
        for limit, found in sweep(group, (0.5, 0.9, 1.0, 1.1, 2.0)).items():
            assert found == score(group.runs[0].returns, limit, 40).episodes

    def test_has_no_value_if_a_run_ended_too_early(self, tmp_path: Path) -> None:
        # stopped when it was solved
        write_run(tmp_path, task("cartpole-swingup"), "sac", 0, [860.0] * 5)
        write_run(tmp_path, task("cartpole-swingup"), "sac", 1, [800.0] * 40)
        write_run(tmp_path, task("cartpole-swingup"), "sac", 2, [1.0], status="diverged")
        assert sweep(variants_of(tmp_path)["sac"], (0.9, 1.0, 1.1)) == {
            765.0: 0.0,
            850.0: 20.0,
            935.0: None,
        }
