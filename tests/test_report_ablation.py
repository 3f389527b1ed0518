"""What shooting gives to each kind of critic, and what the PAC-Bayes critic gives beside plain
ones."""

from pathlib import Path
from typing import Any

import pytest
from report_folders import task, write_run

from pac4sac.paper.ablation import ablation_tables
from pac4sac.paper.report import read_context
from pac4sac.runs.statistics import Estimate

CARTPOLE = task("cartpole-swingup")
# Mean return of each episode, never solved: regret is 40 episodes times what it lacks to 850.
LEVELS: dict[str, tuple[str, float, dict[str, Any]]] = {
    "sac": ("sac", 650.0, {}),
    "sac+shooting": ("sac", 700.0, {"shots": 500}),
    "one-plain-critic": ("sac", 600.0, {"critics": 1}),
    "one-plain-critic+shooting": ("sac", 720.0, {"critics": 1, "shots": 500}),
    "pac4sac-without-shooting": ("pac4sac", 550.0, {"shots": 1}),
    "pac4sac": ("pac4sac", 710.0, {}),
}


def write(
    folder: Path,
    *labels: str,
    about: dict[str, Any] = CARTPOLE,
    episodes: int = 40,
    status: str = "finished",
) -> None:
    for label in labels:
        algo, level, settings = LEVELS[label]
        for seed in (0, 1):  # a unit of return apart, so that regrets have a deviation of 40 / √2
            write_run(
                folder,
                about,
                algo,
                seed,
                [level - 0.5 + seed] * episodes,
                label,
                settings,
                status=status,
            )


def records(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    tables = {table.name: table for table in ablation_tables(read_context([folder]))}
    return (
        {row.get("critic", row.get("minus")): row for row in tables[name].records}
        if name in tables
        else {}
    )


class TestEffectOfShooting:
    def test_is_the_regret_with_many_candidates_minus_that_with_one(self, tmp_path: Path) -> None:
        write(tmp_path, *LEVELS)
        found = records(tmp_path, "gain-of-shooting")
        two = found["two plain critics (SAC)"]
        assert (two["once"], two["shooting"]) == pytest.approx((40 * 200.0, 40 * 150.0))
        assert two["once_sd"] == pytest.approx(40 / 2**0.5)
        # A variance of 800 over two seeds on either side: ± t(0.975; 2) · √(400 + 400).
        ends = [two["difference"], two["difference_low"], two["difference_high"]]
        assert ends == pytest.approx(
            [-2000, -2000 - 4.302653 * 800**0.5, -2000 + 4.302653 * 800**0.5]
        )
        assert found["one plain critic"]["difference"] == pytest.approx(-40 * 120)

    def test_shows_the_mean_over_critics_with_equal_settings(self, tmp_path: Path) -> None:
        write(tmp_path, *LEVELS)
        mean = records(tmp_path, "gain-of-shooting")["mean of the three rows above"]
        assert mean["difference"] == pytest.approx(-40 * (50 + 120 + 160) / 3)
        # Six sides of 400 each, by 3²: 266.67, with as many degrees of freedom as sides.
        assert mean["difference_high"] - mean["difference"] == pytest.approx(
            2.446912 * (2400 / 9) ** 0.5
        )

    def test_shows_half_of_a_pair_without_a_difference_and_no_mean_of_two(
        self, tmp_path: Path
    ) -> None:
        write(tmp_path, *(label for label in LEVELS if label != "one-plain-critic"))
        found = records(tmp_path, "gain-of-shooting")
        assert found["one plain critic"]["once"] is None
        assert found["one plain critic"]["shooting"] == pytest.approx(40 * 130)
        assert found["one plain critic"]["difference"] is None
        assert "mean of the three rows above" not in found


class TestEffectOfTheCritic:
    def test_is_the_regret_of_pac4sac_minus_that_of_plain_critics_with_as_many_candidates(
        self, tmp_path: Path
    ) -> None:
        write(tmp_path, *LEVELS)
        found = records(tmp_path, "gain-of-critic")
        one, two = found["one plain critic"], found["two plain critics (SAC)"]
        assert [one["once"], one["shooting"], one["both"]] == pytest.approx(
            [40 * 50, 40 * 10, 40 * 30]
        )
        assert [two["once"], two["shooting"], two["both"]] == pytest.approx(
            [40 * 100, -40 * 10, 40 * 45]
        )

    def test_excludes_runs_in_progress(self, tmp_path: Path) -> None:
        write(tmp_path, "sac", "pac4sac-without-shooting", "sac+shooting")
        write(tmp_path, "pac4sac", episodes=20, status="running")
        two = records(tmp_path, "gain-of-critic")["two plain critics (SAC)"]
        assert (two["once"], two["shooting"], two["both"]) == (pytest.approx(40 * 100), None, None)

    def test_has_no_table_where_nothing_can_be_compared(self, tmp_path: Path) -> None:
        write(tmp_path, "sac", "pac4sac")
        assert ablation_tables(read_context([tmp_path])) == []


@pytest.mark.parametrize("changes", [{"steps": 10_000}, {"r_limit": 700.0}])
def test_runs_on_a_task_that_is_not_the_papers_are_left_out(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    write(tmp_path, *LEVELS, about=task("cartpole-swingup", **changes))
    assert ablation_tables(read_context([tmp_path])) == []


def test_tables_show_intervals_and_p_values(tmp_path: Path) -> None:
    write(tmp_path, *LEVELS)
    table = ablation_tables(read_context([tmp_path]))[1]
    assert all(
        isinstance(row.overall, Estimate) and row.overall.low is not None for row in table.rows
    )
    assert table.cells[0][1].text == "one plain critic"
    assert table.cells[0][4].text.startswith("1.2 [")
