"""What a report says first: an answer to each question, with the number that decides it."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from report_folders import own_task, task, write_run, write_study, write_table_1

from pac4sac.paper import report as paper_report
from pac4sac.report import report as general_report
from pac4sac.report.curves import curves_of
from pac4sac.report.formats import markdown_files
from pac4sac.report.tables import Answer


def answers(folder: Path, report: Any = paper_report) -> list[Answer]:
    summary, *_ = report.compose(report.read_context([folder]))
    return [item for item in summary.blocks[0] if isinstance(item, Answer)]


def write_comparison(
    folder: Path, levels: dict[str, float], spread: float = 1.0, seeds: int = 5
) -> Path:
    for algo, level in levels.items():
        for seed in range(seeds):
            write_run(folder, own_task(), algo, seed, [level + spread * seed] * 20)
    write_study(folder, "compare-Pendulum-v1", "comparison", next(iter(levels)), [])
    return folder


def told(folder: Path) -> str:
    sections = general_report.compose(general_report.read_context([folder]))
    return markdown_files("A title", [], sections, in_pages=False)["report.md"]


class TestCustomComparison:
    def test_states_the_better_side_with_difference_and_interval(self, tmp_path: Path) -> None:
        levels = {"sac": -200.0, "ddpg": -150.0, "pac4sac": -300.0}
        (answer,) = answers(write_comparison(tmp_path, levels), general_report)
        assert answer.question == "Is it so?"
        first, second = answer.text.split(" By this metric, PAC4SAC is worse than SAC.")[:2]
        assert first.startswith("DDPG has a higher final evaluation")
        assert "Δ = 50.0, 95% CI [47.7, 52.3], p < 0.001, n = 5 vs 5" in first
        assert "DDPG has a higher mean return (area under the curve) than SAC" in second

    def test_shows_the_lead_of_a_better_baseline(self, tmp_path: Path) -> None:
        (answer,) = answers(
            write_comparison(tmp_path, {"sac": -100.0, "ddpg": -150.0}), general_report
        )
        assert answer.text.startswith("DDPG has a lower final evaluation")
        assert "Δ = −50.0, 95% CI [−52.3, −47.7]" in answer.text

    def test_reports_a_missing_significance(self, tmp_path: Path) -> None:
        (answer,) = answers(
            write_comparison(tmp_path, {"sac": -100.0, "ddpg": -101.0}, spread=20.0), general_report
        )
        assert answer.text.startswith("We found no significant difference in final evaluation")
        assert "between DDPG and SAC" in answer.text
        assert "between DDPG and SAC" in answer.text.partition("area under the curve")[2]

    @pytest.mark.parametrize(
        ("difference", "spread", "seeds", "why"),
        [
            (-10.0, 1.0, 1, "(Δ = −10.0, n = 1 vs 1): a test needs at least two seeds"),
            (0.0, 0.0, 3, "(Δ = 0.0, n = 3 vs 3): all seeds of each side have the same result"),
        ],
    )
    def test_states_why_a_difference_was_not_tested(
        self, tmp_path: Path, difference: float, spread: float, seeds: int, why: str
    ) -> None:
        levels = {"sac": -100.0, "ddpg": difference - 100.0}
        (answer,) = answers(write_comparison(tmp_path, levels, spread, seeds), general_report)
        assert f"between DDPG and SAC on Pendulum-v1 was not tested {why}" in answer.text

    def test_mentions_no_paper(self, tmp_path: Path) -> None:
        text = told(write_comparison(tmp_path / "in", {"sac": -200.0, "pac4sac": -300.0}))
        assert "better" in text
        assert not re.search(r"[Pp]aper|Table 1", text)

    def test_mentions_none_on_a_task_that_the_paper_has_either(self, tmp_path: Path) -> None:
        for algo, seed in product(("pac4sac", "sac"), range(2)):
            write_run(tmp_path / "in", task("cartpole-swingup"), algo, seed)
        write_study(tmp_path / "in", "compare-cartpole-swingup", "comparison", "pac4sac", [])
        assert not re.search(r"[Pp]aper|Table 1", told(tmp_path / "in"))

    def test_shows_the_mean_of_a_single_algorithm(self, tmp_path: Path) -> None:
        (answer,) = answers(write_comparison(tmp_path, {"sac": -100.0}), general_report)
        assert answer.text.count("SAC −98.0 ± 1.6") == 2  # final evaluation, mean return


class TestPaperStudy:
    def test_gives_one_answer_for_a_comparison_on_several_tasks(self, tmp_path: Path) -> None:
        write_table_1(tmp_path / "paper", ("cartpole-swingup",))
        for name, level in {"Pendulum-v1": 5.0, "Reacher-v5": 0.0}.items():
            for algo, seed in product(("sac", "pac4sac"), range(5)):
                returns = [seed + level * (algo == "pac4sac")] * 20
                write_run(tmp_path / "away" / name, own_task(name), algo, seed, returns)
        write_study(tmp_path / "away", "away", "comparison", "sac", [])
        *_, answer = answers(tmp_path)
        assert answer.text.split(". ") == [
            "On Pendulum-v1, PAC4SAC is better than SAC",
            "On Reacher-v5, we found no significant difference from SAC for PAC4SAC.",
        ]

    def test_answers_with_verdict_counts_and_the_clearest_number(self, tmp_path: Path) -> None:
        write_table_1(tmp_path, ("cartpole-swingup",))
        (answer,) = answers(tmp_path)
        assert (answer.question, answer.verdict, answer.section) == (
            "Is it so?",
            "holds",
            "table-1",
        )
        assert re.match(
            r"Of 6 comparisons, 6 support .* The clearest result .* PAC4SAC − .*\(p < 0\.001\)\. ",
            answer.text,
        )
        assert "Of the 8 cells that have a number in the paper, " in answer.text

    def test_reports_missing_results(self, tmp_path: Path) -> None:
        write_study(tmp_path, "shooting", "shooting", None, [])
        (answer,) = answers(tmp_path)
        assert answer.text == "No complete run answers this question yet."

    def test_precede_chosen_settings_which_answer_only_without_other_questions(
        self, tmp_path: Path
    ) -> None:
        for seed in (1000, 1001):
            write_run(tmp_path / "chosen", task("cartpole-swingup"), "sac", seed)
        write_study(tmp_path / "chosen", "search", "search", None, [])
        assert [answer.section for answer in answers(tmp_path)] == ["search"]
        write_table_1(tmp_path / "table", ("cartpole-swingup",))
        assert [answer.section for answer in answers(tmp_path)] == ["table-1"]


class TestControls:
    @pytest.mark.parametrize(
        ("control", "ending"),
        [
            (
                800.0,
                "The following control is better than PAC4SAC: SAC + shooting on cartpole-swingup.",
            ),
            (500.0, ""),
        ],
    )
    def test_name_variants_that_are_better_than_the_explained_one(
        self, tmp_path: Path, control: float, ending: str
    ) -> None:
        for label, algo, level in (("pac4sac", "pac4sac", 700.0), ("sac+shooting", "sac", control)):
            for seed in range(5):
                settings = {"shots": 500} if algo == "sac" else {}
                write_run(
                    tmp_path,
                    task("cartpole-swingup"),
                    algo,
                    seed,
                    [level + seed] * 40,
                    label,
                    settings,
                )
        write_study(tmp_path, "controls", "controls", "pac4sac", [])
        (answer,) = answers(tmp_path)
        assert answer.text.partition("(p < 0.001).")[2].strip() == ending


class TestCurvesOfThePage:
    def test_keep_every_return_on_its_side_of_the_threshold(self, tmp_path: Path) -> None:
        near = [-200.00001, -199.99999, -200.0, 12345.6]
        write_run(tmp_path, own_task(r_limit=-200.0), "sac", 0, near)
        (about,) = curves_of(general_report.read_context([tmp_path]), tmp_path / "out")["tasks"]
        scale, whole = about["scale"], about["variants"][0]["runs"][0]["returns"]
        assert [value / scale > -200.0 for value in whole] == [False, True, False, True]
        assert [value / scale for value in whole] == pytest.approx(near, abs=1.5 / scale)

    def test_are_small_integers_of_the_relevant_facts(self, tmp_path: Path) -> None:
        write_run(tmp_path, own_task(), "sac", 0, [0.123456, -0.5])
        (about,) = curves_of(general_report.read_context([tmp_path]), tmp_path / "out")["tasks"]
        assert about["variants"][0]["runs"][0]["returns"] == [12346, -50000]

    def test_link_to_videos_by_relative_paths_only(self, tmp_path: Path) -> None:
        run = write_run(tmp_path / "javascript:alert(1)", own_task(), "sac", 0)
        (run / "episode.gif").write_bytes(b"GIF89a")
        (about,) = curves_of(general_report.read_context([tmp_path]), tmp_path / "out")["tasks"]
        assert (
            about["variants"][0]["runs"][0]["film"]
            == "./../javascript%3Aalert%281%29/runs/sac-seed0/episode.gif"
        )
