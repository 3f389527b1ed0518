"""The section on exploration: solved seeds and regret next to those of the exploring agent."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from report_folders import task, write_run, write_study

from pac4sac.paper.exploration import carried_returns, exploration_section, explored_on
from pac4sac.paper.report import read_context
from pac4sac.report.tables import Picture, Table

EPISODES = 8
SPARSE = task("cartpole-swingup", r_limit=600.0, steps=EPISODES * 1000)
SOLVED, NEVER = [0.0, 0.0] + [800.0] * 6, [0.0] * EPISODES
# Label, algorithm and number of solved seeds, of five.
RUNS = [("pac4sac-explore", "pac4sac-explore", 5), ("sac-auto", "sac-auto", 1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a study of the agent, which solves all of five seeds, and of SAC, which solves one."""
    expected: list[dict[str, Any]] = []
    for label, algo, solved in RUNS:
        for seed in range(5):
            returns = SOLVED if seed < solved else NEVER
            write_run(tmp_path, SPARSE, algo, seed, [x + seed for x in returns], label)
            expected.append({"task": SPARSE["name"], "algo": algo, "label": label, "seed": seed})
    write_study(tmp_path, "exploration", "comparison", "pac4sac-explore", expected)
    return tmp_path


def test_solved_seeds_and_regret_are_compared_with_the_agent(folder: Path) -> None:
    section = exploration_section(read_context([folder]))
    assert section is not None
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    agent, sac = table.records
    assert (agent["variant"], agent["solved"], agent["p_solved"]) == ("pac4sac-explore", 5, None)
    assert (sac["variant"], sac["solved"], sac["seeds"]) == ("sac-auto", 1, 5)
    # Fisher: of the C(10, 6) = 210 ways to choose six solved runs, C(5, 5) C(5, 1) = 5 give 5 and 1,
    # and as many give 1 and 5.
    assert sac["p_solved"] == pytest.approx(10 / 210)
    # Regret of a solved seed: two episodes without 600 − seed.
    assert agent["regret"] == pytest.approx(2 * (600 - 2))
    assert sac["difference"] > 0
    assert 0 < sac["p"] < 0.05


def test_the_answer_names_both_sides(folder: Path) -> None:
    section = exploration_section(read_context([folder]))
    assert section is not None
    answer = section.blocks[1]
    assert isinstance(answer, str)
    assert "5 of 5" in answer
    assert "1 of 5" in answer
    assert "1 of 1 variants" in answer


def test_the_figure_has_a_bar_for_each_variant(folder: Path) -> None:
    section = exploration_section(read_context([folder]))
    assert section is not None
    (picture,) = [block for block in section.blocks if isinstance(block, Picture)]
    solved, curves = picture.draw().axes
    assert [bar.get_width() for bar in solved.patches] == [5, 1]
    assert len(curves.lines) == 3  # one for each variant that solved a seed, and the threshold


def test_the_task_is_compared_with_the_agent_that_its_study_names(folder: Path) -> None:
    context = read_context([folder])
    (baseline,) = context.baselines.values()
    assert baseline is not None
    assert baseline.label == "pac4sac-explore"


def test_runs_without_the_agent_make_no_section(tmp_path: Path) -> None:
    write_run(tmp_path, SPARSE, "sac-auto", 0, NEVER)
    context = read_context([tmp_path])
    assert exploration_section(context) is None
    assert explored_on(context, *context.variants) == []


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        # never solved: running means of five
        ([0.0, 10.0, 20.0, 30.0, 40.0, 50.0], [0.0, 5.0, 10.0, 15.0, 20.0, 30.0]),
        # solved by episodes 2 to 6; what follows does not count
        ([0.0] + [100.0] * 5 + [0.0], [0.0, 50.0, 200 / 3, 75.0, 80.0, 100.0, 100.0, 100.0]),
    ],
)
def test_a_solved_run_keeps_its_last_mean(returns: list[float], expected: list[float]) -> None:
    run: Any = SimpleNamespace(returns=returns)
    carried = carried_returns(run, 60.0, len(expected))
    assert carried.tolist() == pytest.approx(expected)
