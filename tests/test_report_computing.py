"""How runs were computed, and what the report says of it; and which baseline a family meets."""

from pathlib import Path
from typing import Any

import pytest
from report_folders import task, write_run, write_study
from test_report import rows_of, variants_of

from pac4sac.paper.report import read_context, write_report

pytestmark = pytest.mark.usefixtures("undrawn")

GPU = {"device": "cuda", "backend": "graph", "precision": "tf32"}
CPU = {"device": "cpu", "backend": "compiled", "precision": "float32"}


def five(folder: Path, level: float, label: str = "pac4sac", **settings: Any) -> None:
    algo = label if label in ("sac", "ddpg", "oac") else "pac4sac"
    for seed in range(5):
        write_run(
            folder, task("cartpole-swingup"), algo, seed, [level + seed] * 40, label, settings
        )


class TestDeviceAndPrecision:
    def test_is_shown_in_provenance_and_below_mixed_tables(self, tmp_path: Path) -> None:
        for algo, computed in (("pac4sac", GPU), ("sac", GPU), ("oac", CPU)):
            write_run(tmp_path / "in", task("cartpole-swingup"), algo, 0, computed=computed)
        write_run(tmp_path / "in", task("cartpole-swingup"), "ddpg", 0)
        text = write_report([tmp_path / "in"], tmp_path / "out").page.with_suffix(".md").read_text()
        assert "The runs of `ddpg` have no such record." in text
        assert "The runs of `oac` used float32 on cpu. All other runs used tf32 on cuda." in text
        rows = rows_of(tmp_path / "out/tables/computing.csv")
        assert [
            (row["variant"], row["device"], row["backend"], row["precision"]) for row in rows
        ] == [
            ("pac4sac", *GPU.values()),
            ("sac", *GPU.values()),
            ("ddpg", *["not recorded"] * 3),
            ("oac", *CPU.values()),
        ]

    def test_has_no_note_if_it_is_the_same_for_all_runs(self, tmp_path: Path) -> None:
        for algo in ("pac4sac", "sac"):
            write_run(tmp_path / "in", task("cartpole-swingup"), algo, 0, computed=GPU)
        text = write_report([tmp_path / "in"], tmp_path / "out").page.with_suffix(".md").read_text()
        assert "Precision and device" not in text

    def test_is_part_of_the_command_that_repeats_them(self, tmp_path: Path) -> None:
        write_run(tmp_path, task("cartpole-swingup"), "sac", 0, computed=GPU)
        assert variants_of(tmp_path)["sac"].command.endswith(
            "--seeds 0 --preset reproduction --precision tf32 --device cuda"
        )
        write_run(tmp_path, task("cartpole-swingup"), "sac", 1, computed=CPU)
        assert variants_of(tmp_path)["sac"].command.endswith("--seeds 0:2 --preset reproduction")


class TestFamilies:
    def write(self, folder: Path) -> None:
        five(folder, 500.0)
        five(folder, 400.0, "sac")
        five(folder, 450.0, "bellman", xi=0.0, conservative=0.0)
        five(folder, 410.0, "pac4sac-shots=1", shots=1)
        five(folder, 480.0, "pac4sac-shots=200", shots=200)

    def test_have_a_control_on_all_pages_under_the_same_title(self, tmp_path: Path) -> None:
        self.write(tmp_path / "runs-of-all")
        control = {"task": "cartpole-swingup", "label": "pac4sac-shots=1"}
        expected = [control | {"seed": seed} for seed in range(5)]
        write_study(tmp_path / "study", "controls", "controls", "pac4sac", expected)
        groups = read_context([tmp_path]).groups["cartpole-swingup"]
        labels = {group.title: [variant.label for variant in group.members] for group in groups}
        assert labels["Controls"] == ["pac4sac-shots=1"]
        assert labels["Numbers of shots"] == ["pac4sac-shots=200"]
