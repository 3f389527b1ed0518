"""Verdicts on the paper's claims, and the calibration that comes before them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from report_folders import task, write_run, write_study

from pac4sac.paper.calibration import calibration_section
from pac4sac.paper.claims import claims_section
from pac4sac.paper.judging import judge_claims
from pac4sac.paper.numbers import TABLE_1
from pac4sac.paper.report import read_context
from pac4sac.report.across_tasks import AcrossTasks, across_tasks_section
from pac4sac.report.search import chosen_section
from pac4sac.report.sections import task_section
from pac4sac.report.tables import Table


class TestClaims:
    def tables(self, folder: Path) -> list[Table]:
        context = read_context([folder])
        section = claims_section(context, judge_claims(context))
        return [block for block in section.blocks if isinstance(block, Table)] if section else []

    def records(self, folder: Path) -> list[dict[str, Any]]:
        return [dict(row) for table in self.tables(folder) for row in table.records]

    def judged(self, folder: Path) -> dict[tuple[str, str, str], str]:
        rows = self.records(folder)
        return {
            (row["claim"].split(":")[0], row["on"], row["compared"]): row["verdict"] for row in rows
        }

    def evidence(self, folder: Path, claim: str) -> str:
        return next(
            row[3].text
            for table in self.tables(folder)
            for row in table.cells
            if row[0].text == claim
        )

    def write(
        self, folder: Path, algo: str, level: float, label: str | None = None, **settings: Any
    ) -> None:
        """Five runs that are never solved, with a regret that the level decides."""
        cartpole = task("cartpole-swingup")
        for seed in range(5):
            write_run(folder, cartpole, algo, seed, [level + seed] * 40, label, settings)

    def test_hold_fully_partly_or_not_according_to_the_tests(self, tmp_path: Path) -> None:
        for name, sac, ddpg, verdict in (
            ("a", 400.0, 300.0, "holds"),
            ("b", 501.0, 300.0, "in part"),
            ("c", 600.0, 300.0, "contradicted"),
            ("d", 501.0, 499.0, "not shown"),
        ):
            for algo, level in (("pac4sac", 500.0), ("sac", sac), ("ddpg", ddpg), ("oac", ddpg)):
                self.write(tmp_path / name, algo, level)
            assert self.judged(tmp_path / name)["PAC4SAC", "Cartpole Swingup", "SAC"] == verdict

    def test_a_diverged_run_prevents_a_claim_from_holding(self, tmp_path: Path) -> None:
        for algo, level in (("pac4sac", 500.0), ("sac", 100.0), ("ddpg", 100.0), ("oac", 100.0)):
            self.write(tmp_path, algo, level)
        claim = ("PAC4SAC", "Cartpole Swingup", "SAC")
        assert self.judged(tmp_path)[claim] == "holds"
        write_run(tmp_path, task("cartpole-swingup"), "pac4sac", 9, [1.0], status="diverged")
        assert self.judged(tmp_path)[claim] == "not shown"

    def test_do_not_hold_fully_while_a_baseline_has_no_data(self, tmp_path: Path) -> None:
        for algo, level in (("pac4sac", 500.0), ("sac", 100.0), ("ddpg", 100.0)):
            self.write(tmp_path, algo, level)
        claim = ("PAC4SAC", "Cartpole Swingup", "OAC")
        assert self.judged(tmp_path)[claim] == "in part"
        assert "OAC no data" in self.evidence(tmp_path, "PAC4SAC: less regret than the baselines")
        self.write(tmp_path, "oac", 100.0, tau=0.5)  # of another setting than the paper's
        assert self.judged(tmp_path)[claim] == "in part"

    def test_are_shown_in_thousands_and_written_in_units_of_return(self, tmp_path: Path) -> None:
        for algo, level in (("pac4sac", 500.0), ("sac", 400.0)):
            self.write(tmp_path, algo, level)
        assert "thousands: " in self.evidence(tmp_path, "PAC4SAC: less regret than the baselines")
        row = next(
            r
            for r in self.records(tmp_path)
            if "less regret" in r["claim"] and r["compared"] == "SAC"
        )
        assert row["estimate"] == pytest.approx(-100 * 40)
        assert row["measure"] == "Δ cumulative regret"

    def test_show_the_corrected_p_value(self, tmp_path: Path) -> None:
        for algo, level in (("pac4sac", 500.0), ("sac", 497.0), ("ddpg", 497.0), ("oac", 497.0)):
            self.write(tmp_path, algo, level)
        told = self.evidence(tmp_path, "PAC4SAC: less regret than the baselines")
        assert told.count("(p = 0.051)") == 3  # three times that of one difference
        assert self.judged(tmp_path)["PAC4SAC", "Cartpole Swingup", "SAC"] == "not shown"

    @pytest.mark.parametrize(("solved", "verdict"), [(3, "not shown"), (4, "holds")])
    def test_compare_solved_runs_if_a_side_solved_none(
        self, tmp_path: Path, solved: int, verdict: str
    ) -> None:
        cartpole = task("cartpole-swingup")
        for seed in range(5):
            write_run(
                tmp_path,
                cartpole,
                "pac4sac",
                seed,
                [0.0] * 3 + [900.0 if seed < solved else 0.0] * 37,
            )
            for algo in ("sac", "ddpg", "oac"):
                for k in (0, 5):  # ten seeds, so that four of five are enough for three comparisons
                    write_run(tmp_path, cartpole, algo, seed + k, [0.0] * 40)
        claim = "PAC4SAC: fewer episodes until solved than the baselines"
        context = read_context([tmp_path])
        section = claims_section(context, judge_claims(context))
        assert section is not None
        rows = [
            row for block in section.blocks if isinstance(block, Table) for row in block.records
        ]
        sac = next(row for row in rows if row["claim"] == claim and row["compared"] == "SAC")
        assert (sac["verdict"], sac["low"]) == (verdict, None)
        assert f"solved {solved} of 5 vs 0 of 10 (p = " in self.evidence(tmp_path, claim)

    @pytest.mark.parametrize(
        ("ours", "theirs", "verdict"),
        [(30.0, 0.0, "contradicted"), (30.0, 29.0, "not shown"), (0.0, 30.0, "holds")],
    )
    def test_of_overestimation_are_judged_by_zero_and_by_sac(
        self, tmp_path: Path, ours: float, theirs: float, verdict: str
    ) -> None:
        for algo, bias in (("pac4sac", ours), ("sac", theirs)):
            self.write(tmp_path, algo, 500.0)
            for seed in range(5):
                row = {"step": 40_000, "bias": bias + seed - 2, "rms": 1.0, "mean_return": 50.0}
                (tmp_path / f"runs/{algo}-seed{seed}/bias.jsonl").write_text(json.dumps(row) + "\n")
        judged = self.judged(tmp_path)
        assert (
            judged["Overestimation is cured with one critic", "Cartpole Swingup", "SAC"] == verdict
        )

    def test_of_the_critic_are_judged_by_plain_critics_with_shooting(self, tmp_path: Path) -> None:
        self.write(tmp_path, "pac4sac", 500.0)
        self.write(tmp_path, "sac", 600.0, "sac+shooting", shots=500)
        judged = self.judged(tmp_path)
        assert judged == {
            (
                "The gain comes from the critic",
                "Cartpole Swingup",
                "SAC + shooting",
            ): "contradicted",
            (
                "The gain comes from the critic",
                "Cartpole Swingup",
                "one plain critic + shooting",
            ): "contradicted",
        }

    def test_of_more_shots_are_judged_by_their_trend_with_and_without_one_shot(
        self, tmp_path: Path
    ) -> None:
        for shots, level in ((1, 100.0), (200, 500.0), (400, 500.0), (1000, 500.0)):
            self.write(tmp_path, "pac4sac", level, f"pac4sac-shots={shots}", shots=shots)
        assert (
            self.judged(tmp_path)["More shots are better", "Cartpole Swingup", "S > 1"] == "in part"
        )

    def test_of_cost_are_judged_on_every_machine(self, tmp_path: Path) -> None:
        for device, factor in (("cpu", 1.1), ("cuda", 1.5)):
            times = {"sac": [4.0, 4.01], "pac4sac": [4 * factor, 4 * factor + 0.01]}
            rows = [
                {"algo": algo, "seconds_per_1000_steps": found} for algo, found in times.items()
            ]
            (tmp_path / device).mkdir()
            (tmp_path / device / "cost.json").write_text(
                json.dumps({"device": device, "rows": rows})
            )
        assert {on: verdict for (_, on, _), verdict in self.judged(tmp_path).items()} == {
            "CPU": "holds",
            "cuda": "contradicted",
        }

    def test_wait_for_runs_in_progress(self, tmp_path: Path) -> None:
        self.write(tmp_path, "pac4sac", 500.0)
        self.write(tmp_path, "sac", 400.0)
        claim = ("PAC4SAC", "Cartpole Swingup", "SAC")
        write_run(tmp_path, task("cartpole-swingup"), "sac", 9, [1.0], status="running")
        assert self.judged(tmp_path)[claim] == "unfinished"
        self.write(tmp_path, "ddpg", 300.0)
        assert self.judged(tmp_path)[claim] == "in part"

    def test_and_the_page_of_the_task_correct_for_the_same_rivals(self, tmp_path: Path) -> None:
        for algo, level in (("pac4sac", 500.0), ("sac", 496.0), ("ddpg", 300.0), ("oac", 200.0)):
            self.write(tmp_path / "in", algo, level)
        for k in range(20):  # which would hide the difference if all were one family
            self.write(tmp_path / "in", "sac", 496.0, f"sac-tau={k}", tau=0.1 + k / 100)
        assert self.judged(tmp_path / "in")["PAC4SAC", "Cartpole Swingup", "SAC"] == "holds"
        section = task_section(read_context([tmp_path / "in"]), "cartpole-swingup")
        table = next(block for block in section.blocks if isinstance(block, Table))
        row = next(row for row in table.records if row["variant"] == "pac4sac")
        assert (row["against_baseline"], row["family"]) == ("better", "Algorithms of Table 1")
        assert "*Algorithms of Table 1* (3) and *Other runs* (20)" in section.blocks[0]

    def test_report_differences_that_are_shown_to_be_small(self, tmp_path: Path) -> None:
        self.write(tmp_path, "pac4sac", 600.0)
        for algo, level in (("sac", 600.0), ("ddpg", 200.0)):
            self.write(tmp_path, algo, level)
        evidence = self.evidence(tmp_path, "PAC4SAC: less regret than the baselines")
        assert re.search(r"SAC 0\.0 \[[^]]*\] \(p = 1\.000\), equivalent within 15%", evidence)
        assert evidence.count("equivalent within") == 1

    def test_are_not_judged_by_runs_in_miniature(self, tmp_path: Path) -> None:
        for algo in ("pac4sac", "sac"):
            for seed in range(3):
                write_run(tmp_path, task("cartpole-swingup", steps=20_000), algo, seed)
        assert self.judged(tmp_path) == {}


class TestCalibration:
    def test_ranks_settings_by_the_baselines_alone(self, tmp_path: Path) -> None:
        paper = {"ddpg": 7200.0, "sac": 6500.0, "pac4sac": 5700.0}
        for algo, regret in paper.items():
            for updates, factor in ((1, 2.0), (4, 1.1)):
                factor = 1 / factor if algo == "pac4sac" else factor
                returns = [850.0 - factor * regret / 40] * 40
                label = f"{algo}-updates_per_step={updates}"
                for seed in (1000, 1001):
                    about = (
                        task("cartpole-swingup"),
                        algo,
                        seed,
                        [r + seed % 2 for r in returns],
                        label,
                    )
                    write_run(tmp_path, *about, {"updates_per_step": updates})
        write_study(tmp_path, "updates-per-step", "calibration", None, [])
        section = calibration_section(read_context([tmp_path]))
        assert section is not None
        told = next(block for block in section.blocks if "closest to the paper's is" in str(block))
        nearest, farthest = re.findall(r"`(updates_per_step=\d)` \(factor ([\d.]+)\)", told)
        assert (nearest[0], farthest[0]) == ("updates_per_step=4", "updates_per_step=1")
        assert float(farthest[1]) == pytest.approx(2.0, abs=0.01)

    def test_does_not_rank_while_runs_of_a_baseline_are_unfinished(self, tmp_path: Path) -> None:
        for algo in ("ddpg", "sac"):
            for updates in (1, 4):
                for seed in (1000, 1001):
                    about = (
                        task("cartpole-swingup"),
                        algo,
                        seed,
                        None,
                        f"{algo}-updates_per_step={updates}",
                    )
                    write_run(tmp_path, *about, {"updates_per_step": updates})
        write_run(tmp_path, task("cartpole-swingup"), "sac", 1002, [1.0] * 30, "sac-updates_per_step=1",
                  {"updates_per_step": 1}, status="interrupted")  # fmt: skip
        write_study(tmp_path, "updates-per-step", "calibration", None, [])
        section = calibration_section(read_context([tmp_path]))
        assert section is not None
        _, _, told, table = section.blocks
        assert (
            told
            == "The settings on cartpole-swingup are not ranked, because runs of `sac-updates_per_step=1` are unfinished."
        )
        verdicts = {row["variant"]: row["regret_verdict"] for row in table.records}
        assert verdicts["sac-updates_per_step=1"] == "unfinished"
        assert "unfinished" not in {
            verdicts[label] for label in verdicts if label != "sac-updates_per_step=1"
        }

    def write_sac(self, folder: Path, name: str, alpha: float, updates: int, factor: float) -> None:
        """Two runs whose regret is so many times the paper's."""
        e_max, r_limit = {"cartpole-swingup": (40, 850.0), "ant": (500, 2500.0)}[name]
        regret = factor * TABLE_1[name]["sac"].regret.mean
        label = f"sac-alpha={alpha}-updates_per_step={updates}"
        settings = {"alpha": alpha, "updates_per_step": updates}
        for seed in (1000, 1001):
            write_run(
                folder / name,
                task(name),
                "sac",
                seed,
                [r_limit - regret / e_max] * e_max,
                label,
                settings,
            )

    def test_makes_one_choice_for_all_tasks_with_updates_per_step_by_task(
        self, tmp_path: Path
    ) -> None:
        # on both tasks, on one the other way
        factors = {(0.1, 1): 1.5, (0.1, 2): 1.21, (0.2, 1): 0.5, (0.2, 2): 3.0}
        for (alpha, updates), factor in factors.items():
            self.write_sac(tmp_path / "new", "cartpole-swingup", alpha, updates, factor)
            self.write_sac(tmp_path / "new", "ant", alpha, 3 - updates, 1 / factor)
        write_study(tmp_path / "new", "calibrate-rivals", "calibration", None, [])
        # What another study began with these settings and other seeds takes no part.
        settings = {"alpha": 0.2, "updates_per_step": 1}
        write_run(
            tmp_path / "old",
            task("ant"),
            "sac",
            1004,
            [1.0] * 30,
            "old",
            settings,
            status="interrupted",
        )
        write_study(tmp_path / "old", "older", "calibration", None, [])
        section = calibration_section(read_context([tmp_path]))
        assert section is not None
        told = [block for block in section.blocks[1:] if isinstance(block, str)]
        (ranked,) = (text for text in told if "the regret of SAC is closest" in text)
        assert ranked.startswith("On cartpole-swingup and ant, ")
        assert "`sac-alpha=0.1` (factor 1.21; 2 and 1 updates per step, respectively)" in ranked
        assert "`sac-alpha=0.2` (factor 2.00; 1 and 2 updates per step, respectively)" in ranked
        assert ranked.index("alpha=0.1") < ranked.index("alpha=0.2")
        assert "The settings on ant are not ranked, because runs of `sac` are unfinished." in told
        tables = {block.name: block for block in section.blocks if isinstance(block, Table)}
        assert list(tables) == [
            "calibrate-rivals-cartpole-swingup",
            "calibrate-rivals-ant",
            "older-ant",
        ]
        labels = [row["variant"] for row in tables["calibrate-rivals-ant"].records]
        assert labels[0] == "sac-alpha=0.1-updates_per_step=1"
        assert {row["runs"] for row in tables["calibrate-rivals-ant"].records} == {2}

    def test_all_versions_of_oac_are_compared_with_its_row(self, tmp_path: Path) -> None:
        for algo, factor in (("oac", 1.5), ("oac-lab", 1.1)):
            returns = [850.0 - factor * 22_700 / 40] * 40
            write_run(tmp_path, task("cartpole-swingup"), algo, 1000, returns)
        write_study(tmp_path, "calibrate-oac", "calibration", None, [])
        section = calibration_section(read_context([tmp_path]))
        assert section is not None
        (told,) = [
            block for block in section.blocks if "the regret of OAC is closest" in str(block)
        ]
        assert told.endswith(
            "`oac-lab` (factor 1.10; 4 updates per step), followed by `oac` (factor 1.50; 4 updates per step)."
        )

    def test_runs_of_a_search_have_a_section_and_are_not_results(self, tmp_path: Path) -> None:
        for seed in (1000, 1001):
            write_run(
                tmp_path / "search",
                task("cartpole-swingup"),
                "pac4sac",
                seed,
                None,
                "auto",
                {"learn_alpha": True},
            )
        write_run(tmp_path / "search", task("cartpole-swingup"), "pac4sac", 1000, [1.0] * 30, "slow", {"lr": 1e-4},
                  status="interrupted")  # fmt: skip
        write_study(tmp_path / "search", "search", "search", None, [])
        write_run(
            tmp_path / "table",
            task("cartpole-swingup"),
            "pac4sac",
            0,
            None,
            "auto",
            {"learn_alpha": True},
        )
        context = read_context([tmp_path])
        assert calibration_section(context) is None
        section = chosen_section(context, "search")
        assert section is not None
        _, table = section.blocks[1:]
        assert {(row["variant"], row["runs"]) for row in table.records} == {
            ("auto (search)", 2),
            ("slow (search)", 1),
        }
        counted = context.results("cartpole-swingup")
        assert [(variant.label, len(variant.runs)) for variant in counted] == [("auto", 1)]

    def test_a_search_over_tasks_ranks_variants_by_relative_regret(self, tmp_path: Path) -> None:
        # By how much the return of every episode falls short of the limit:
        shorts = {"cartpole-swingup": (100, 200, 400), "humanoid": (90, 30, 30)}
        for name, (a, b, c) in shorts.items():
            about = task(name)
            for label, short, alpha in (("a", a, 0.1), ("b", b, 0.3), ("c", c, 0.4)):
                for seed, luck in ((1000, 0.8), (1001, 1.2)):
                    returns = [about["r_limit"] - luck * short] * (
                        about["steps"] // about["horizon"]
                    )
                    write_run(tmp_path / name, about, "sac", seed, returns, label, {"alpha": alpha})
        write_run(
            tmp_path / "more", task("humanoid"), "sac", 1000, None, "elsewhere", {"alpha": 0.9}
        )
        for folder in (*shorts, "more"):
            write_study(tmp_path / folder, "search", "search", "b", [])
        section = chosen_section(read_context([tmp_path]), "search")
        assert section is not None
        (table,) = [
            block for block in section.blocks if getattr(block, "name", "") == "search-over-tasks"
        ]
        found = [(row["variant"], row["times"], row["humanoid"]) for row in table.records]
        expected = [
            ("b (search)", 1.0, 1.0),
            ("a (search)", 1.5**0.5, 3.0),
            ("c (search)", 2**0.5, 1.0),
        ]
        assert found == [
            (label, pytest.approx(mean), pytest.approx(here)) for label, mean, here in expected
        ]
        # On the first task c has twice the regret of b, on the second as much. Each of four
        # logarithms has the deviation ln 1.5/√2 over two seeds, so that their mean over tasks has
        # ln 1.5/2, with four degrees of freedom.
        ends = {row["variant"]: (row["times"], row["times_low"]) for row in table.records}
        low = 2**0.5 / 1.5 ** (2.7764 / 2)
        assert ends["c (search)"] == (pytest.approx(2**0.5), pytest.approx(low, rel=1e-4))
        assert ends["b (search)"] == (1.0, None)

    def test_a_search_without_a_baseline_is_ranked_by_the_lowest_regret(
        self, tmp_path: Path
    ) -> None:
        for name in ("cartpole-swingup", "humanoid"):
            about = task(name)
            for label, short, alpha in (
                ("a", 100, 0.1),
                ("b", 25, 0.3),
                ("solved at once", -1, 0.4),
            ):
                returns = [about["r_limit"] - short] * (about["steps"] // about["horizon"])
                write_run(tmp_path / name, about, "sac", 1000, returns, label, {"alpha": alpha})
            write_study(tmp_path / name, "search", "search", None, [])
        section = chosen_section(read_context([tmp_path]), "search")
        assert section is not None
        (table,) = [
            block for block in section.blocks if getattr(block, "name", "") == "search-over-tasks"
        ]
        found = {row["variant"]: row["times"] for row in table.records}
        assert found == {"b (search)": pytest.approx(1.0), "a (search)": pytest.approx(4.0)}

    def test_a_task_with_one_variant_does_not_prevent_comparisons_across_tasks(
        self, tmp_path: Path
    ) -> None:
        for name, algos in {
            "cartpole-swingup": ("pac4sac", "sac"),
            "humanoid": ("pac4sac", "sac"),
            "ant": ("sac",),
        }.items():
            for algo in algos:
                for seed in (0, 1):
                    write_run(tmp_path / name, task(name), algo, seed)
        context = read_context([tmp_path])
        found = across_tasks_section(AcrossTasks(context, context.variants))
        assert found is not None
        section, _ = found
        intro, table = section.blocks[:2]
        assert intro.startswith("The tasks are cartpole-swingup and humanoid.")
        assert {row[0].text for row in table.cells} == {"pac4sac", "sac"}
