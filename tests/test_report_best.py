"""The preset `best` in reports: beside the paper's PAC4SAC, against its controls, and never in a
row of the paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from report_folders import task, write_run, write_study
from test_report import Page, rows_of, variants_of
from test_report_answers import answers

from pac4sac.paper import groups as groups_module
from pac4sac.paper.numbers import TASKS
from pac4sac.paper.report import read_context, write_report
from pac4sac.paper.study_sections import study_sections
from pac4sac.report.tables import Section, Table

pytestmark = pytest.mark.usefixtures("undrawn")

# Whatever is shipped: these would pass for the paper's row where nothing is nearer to it.
PRESET = {"learn_alpha": True, "updates_per_step": 8}
CONTROLS: dict[str, tuple[str, dict[str, Any]]] = {
    "sac-auto": ("sac-auto", {}),
    "sac+shooting": ("sac", {"shots": 500}),
    "sac-auto+shooting-u4": ("sac-auto", {"shots": 500, "updates_per_step": 4}),
}


@pytest.fixture(autouse=True)
def preset(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [{"algo": algo, "set": settings} for algo, settings in CONTROLS.values()]
    study = {
        "tasks": [*TASKS],
        "preset": "reproduction",
        "variant": [{"algo": "pac4sac", "preset": "best"}, {"algo": "pac4sac"}, *blocks],
    }
    shipped = groups_module.shipped_study
    monkeypatch.setattr(
        groups_module, "shipped_study", lambda name: study if name == "best" else shipped(name)
    )


def write_preset(
    folder: Path,
    name: str = "cartpole-swingup",
    level: float = 700.0,
    label: str = "pac4sac-best",
    **changes: Any,
) -> None:
    """Five runs whose episodes are all alike: never solved, or at once."""
    for seed in range(5):
        about = (task(name), "pac4sac", seed, flat(name, level, seed), label, PRESET | changes)
        write_run(folder, *about, preset="best", given=changes)


def write_others(folder: Path, levels: dict[str, float], name: str = "cartpole-swingup") -> None:
    for label, level in levels.items():
        algo, settings = CONTROLS.get(label, (label, {}))
        for seed in range(5):
            write_run(folder, task(name), algo, seed, flat(name, level, seed), label, settings)


def flat(name: str, level: float, seed: int) -> list[float]:
    about = task(name)
    return [level + seed] * (about["steps"] // about["horizon"])


def section_of(folder: Path, name: str = "best") -> Section | None:
    return {section.name: section for section in study_sections(read_context([folder]))}.get(name)


def tables_of(section: Section | None) -> dict[str, Table]:
    return (
        {block.name: block for block in section.blocks if isinstance(block, Table)}
        if section
        else {}
    )


def sentences_of(section: Section | None) -> Sequence[str]:
    return [block for block in section.blocks if isinstance(block, str)] if section else []


def verdicts(section: Section | None) -> dict[str, str]:
    return {
        row["variant"]: row["against_baseline"]
        for row in tables_of(section)["best-cartpole-swingup"].records
    }


class TestComparisonWithThePaper:
    def test_every_cell_has_a_verdict_and_a_sentence_counts_the_better_ones(
        self, tmp_path: Path
    ) -> None:
        write_preset(tmp_path, level=900.0)  # solved at once
        # less regret than the paper's, never solved
        write_preset(tmp_path / "cheetah", "half-cheetah", level=1700.0)
        section = section_of(tmp_path)
        found = {
            (row["task"], row["metric"]): row for row in tables_of(section)["best-details"].records
        }
        assert {place: row["verdict"] for place, row in found.items()} == {
            ("cartpole-swingup", "regret"): "better",
            ("cartpole-swingup", "episodes"): "better",
            ("half-cheetah", "regret"): "better",
            ("half-cheetah", "episodes"): "worse",
        }
        assert found["half-cheetah", "regret"]["paper_mean"] == 132_800
        assert found["half-cheetah", "regret"]["command"].endswith("--seeds 0:5 --preset best")
        told = sentences_of(section)
        assert told[1] == (
            "The preset is better than the paper's PAC4SAC in 3 of 4 cells. "
            "In the other cells, the verdict is *worse* for episodes until solved on Half Cheetah."
        )
        assert "`pac4sac study run best --tasks ant,humanoid`" in told[2]

    def test_claims_nothing_while_runs_are_in_progress(self, tmp_path: Path) -> None:
        write_preset(tmp_path, level=900.0)
        about = (task("cartpole-swingup"), "pac4sac", 5, [1.0] * 30, "pac4sac-best", PRESET)
        write_run(tmp_path, *about, preset="best", given={}, status="interrupted")
        write_others(tmp_path, {"sac-auto": 500.0})
        section = section_of(tmp_path)
        assert {row["verdict"] for row in tables_of(section)["best-details"].records} == {
            "unfinished"
        }
        assert (
            "in 0 of 2 cells. In the other cells, the verdict is *unfinished* for "
            in sentences_of(section)[1]
        )
        assert set(tables_of(section)) == {"best", "best-details"}

    def test_another_length_of_training_is_not_the_papers_task(self, tmp_path: Path) -> None:
        about = task("cartpole-swingup", steps=20_000), "pac4sac", 0, [1.0] * 20, "pac4sac-best"
        write_run(tmp_path, *about, PRESET, preset="best", given={})
        assert section_of(tmp_path) is None


class TestAgainstItsControls:
    def test_they_are_judged_as_better_or_worse_than_the_preset(self, tmp_path: Path) -> None:
        write_preset(tmp_path)
        write_others(
            tmp_path,
            {
                "pac4sac": 600.0,
                "sac-auto": 650.0,
                "sac+shooting": 701.0,
                "sac-auto+shooting-u4": 750.0,
            },
        )
        write_study(tmp_path, "best", "best", "pac4sac-best", [])
        section = section_of(tmp_path)
        assert verdicts(section) == {
            "pac4sac-best": "baseline",
            "pac4sac": "worse",
            "sac-auto": "worse",
            "sac+shooting": "no significant difference",
            "sac-auto+shooting-u4": "better",
        }
        verdicts_in_words = (
            "On cartpole-swingup, `sac-auto+shooting-u4` is better than `pac4sac-best`. `pac4sac` and "
            "`sac-auto` are worse than `pac4sac-best`. We found no significant difference from "
            "`pac4sac-best` for `sac+shooting`."
        )
        assert verdicts_in_words in sentences_of(section)

    def test_the_answer_counts_each_baseline(self, tmp_path: Path) -> None:
        for name, rival in {"cartpole-swingup": 600.0, "half-cheetah": 800.0}.items():
            write_preset(tmp_path / name, name)
            write_others(tmp_path / name, {"pac4sac": rival, "sac+shooting": 701.0}, name)
        write_study(tmp_path, "best", "best", "pac4sac-best", [])
        (answer,) = (answer for answer in answers(tmp_path) if answer.section == "best")
        beats = "is better than PAC4SAC on 1 of 2 tasks and worse on 1"
        assert answer.verdict == "in part"
        assert f"{beats}. It is better than SAC + shooting on 0 of 2 tasks. " in answer.text
        assert "The clearest result: PAC4SAC has higher" in answer.text

    def test_equal_runs_outside_the_study_are_included_and_others_are_not(
        self, tmp_path: Path
    ) -> None:
        write_preset(tmp_path)
        write_others(tmp_path, dict.fromkeys(("pac4sac", "sac", "pac4ddpg", *CONTROLS), 600.0))
        assert set(verdicts(section_of(tmp_path))) == {"pac4sac-best", "pac4sac", *CONTROLS}
        (others,) = tables_of(section_of(tmp_path, "others")).values()
        assert {row["variant"] for row in others.records} == {"pac4sac", "pac4ddpg"}

    def test_variants_of_the_study_on_other_tasks_are_excluded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        study = groups_module.shipped_study("best")
        block = next(
            block for block in study["variant"] if block == {"algo": "sac-auto", "set": {}}
        )
        monkeypatch.setitem(block, "tasks", ["half-cheetah"])
        write_preset(tmp_path)
        write_others(tmp_path, {"pac4sac": 600.0, "sac-auto": 600.0})
        assert set(verdicts(section_of(tmp_path))) == {"pac4sac-best", "pac4sac"}

    def test_the_section_needs_runs_of_the_preset(self, tmp_path: Path) -> None:
        write_others(tmp_path, dict.fromkeys(("pac4sac", *CONTROLS), 600.0))
        assert section_of(tmp_path) is None

    def test_a_preset_with_a_setting_changed_is_another_variant(self, tmp_path: Path) -> None:
        write_preset(tmp_path / "changed", level=100.0, tau=0.1)
        write_others(tmp_path, {"sac-auto": 600.0})
        assert section_of(tmp_path) is None
        write_preset(tmp_path)
        assert set(verdicts(section_of(tmp_path))) == {"pac4sac-best (tau=0.005)", "sac-auto"}

    def test_runs_inside_and_outside_the_study_are_one_variant(self, tmp_path: Path) -> None:
        about = (task("cartpole-swingup"), "pac4sac", 7, None, "pac4sac-best", PRESET)
        write_run(tmp_path / "hand", *about, preset="best", given={})
        write_others(tmp_path / "hand", {"sac": 600.0, "sac-auto": 600.0})
        assert self.seeds_in_the_family(tmp_path) == [[7]]
        write_preset(tmp_path / "study")
        write_study(tmp_path / "study", "best", "best", "pac4sac-best", [])
        assert self.seeds_in_the_family(tmp_path) == [[0, 1, 2, 3, 4, 7]]

    def seeds_in_the_family(self, folder: Path) -> list[list[int]]:
        groups = read_context([folder]).groups["cartpole-swingup"]
        best = next(group for group in groups if group.title == "The preset `best`")
        return [[run.seed for run in variant.runs] for variant in best.members]


class TestNotARowOfThePaper:
    # a study may leave its variant without a name
    @pytest.mark.parametrize("label", ["pac4sac-best", "pac4sac"])
    def test_if_no_other_algorithm_was_trained(self, tmp_path: Path, label: str) -> None:
        write_preset(tmp_path / "in", label=label)
        write_others(tmp_path / "in", {"sac": 600.0})
        rows = read_context([tmp_path / "in"]).rows
        assert [*rows.table_1] == [("cartpole-swingup", "sac")]
        assert not rows.table_2
        assert not rows.shooting
        page = Page(write_report([tmp_path / "in"], tmp_path / "out").page.read_text())
        assert "best" in page.sections
        assert "claims" not in page.sections
        row = next(
            r for r in rows_of(tmp_path / "out/tables/table-1-details.csv") if r["row"] == "pac4sac"
        )
        assert row["verdict"] == "no data"

    def test_nor_next_to_pac4sac(self, tmp_path: Path) -> None:
        folder = tmp_path / "in"
        write_others(folder, {"pac4sac": 600.0, "sac": 550.0})
        for label, settings in {
            "pac4sac-shots=1": {"shots": 1},
            "bellman+conservative": {"xi": 0.0},
        }.items():
            write_run(folder, task("cartpole-swingup"), "pac4sac", 0, None, label, settings)
        write_report([folder], tmp_path / "without")
        write_preset(folder, level=900.0)
        write_report([folder], tmp_path / "with")
        for name in (
            "table-1",
            "table-1-details",
            "table-2",
            "table-2-details",
            "shooting",
            "claims",
        ):
            before, after = (
                (tmp_path / out / "tables" / f"{name}.csv").read_text()
                for out in ("without", "with")
            )
            assert before == after
        assert variants_of(folder)["pac4sac-best"].command.endswith("--preset best")
        limits = {
            row["Variant"]: row
            for row in rows_of(tmp_path / "with/tables/threshold-cartpole-swingup.csv")
        }
        assert (limits["pac4sac"]["850"], limits["pac4sac-best"]["850"]) == ("40.0", "0.0")
