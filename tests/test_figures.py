"""Figures for a paper: what they show, their size, and that they promise nothing that cannot be
reached."""

from pathlib import Path

import numpy as np
import pytest
from report_folders import own_task, write_run, write_table_1

from pac4sac.report import figures, learning_curves, rankings
from pac4sac.report.report import read_context
from pac4sac.report.style import assign_styles
from pac4sac.report.variants import Variant
from pac4sac.runs.reading import read_runs


@pytest.fixture(scope="module")
def table_1(tmp_path_factory: pytest.TempPathFactory) -> list[Variant]:
    folder = tmp_path_factory.mktemp("table-1")
    write_table_1(folder, ["cartpole-swingup"])
    return read_context([folder]).results("cartpole-swingup")


def test_a_band_never_leaves_what_the_seeds_reached(tmp_path: Path) -> None:
    for seed, last in enumerate((1000.0, 1000.0, 1000.0, 0.0)):  # a t-interval would go up to 1545
        write_run(tmp_path, own_task(steps=400), seed=seed, returns=[0.0, last])
    curve = learning_curves.mean_curve(read_runs(tmp_path))
    assert curve is not None
    _, mean, low, high = curve
    assert mean.tolist() == [0, 750]
    assert 0 <= low[1] < 750 < high[1] <= 1000


def test_single_runs_are_drawn_up_to_five(tmp_path: Path) -> None:
    for algo, seeds in (("pac4sac", 3), ("sac", 2), ("ddpg", 1)):
        for seed in range(seeds):
            write_run(tmp_path / algo, own_task(), algo, seed=seed)
    runs = {algo: read_runs(tmp_path / algo) for algo in ("pac4sac", "sac", "ddpg")}

    def lines(*algos: str) -> int:
        _, (panel,) = figures.new_figure("Runs", 1)
        chosen = {algo: runs[algo] for algo in algos}
        learning_curves.draw_returns(panel, chosen, assign_styles(chosen), None, "")
        return len(panel.lines)

    assert lines("pac4sac", "sac") == 5 + 2
    assert lines("pac4sac", "sac", "ddpg") == 3  # their means alone


def test_figures_are_as_wide_as_a_column_and_have_titles_and_plain_names(
    table_1: list[Variant],
) -> None:
    baseline = next(variant for variant in table_1 if variant.label == "sac")
    drawn = {
        "Learning curves on": learning_curves.learning_figure(table_1),
        "Learning curves by task": learning_curves.overview_figure(
            {"one": table_1[:2], "two": table_1[:2], "three": table_1[2:]}
        ),
        "Performance profiles on": rankings.task_profile(baseline, table_1),
    }
    for title, figure in drawn.items():
        assert figure.get_figwidth() in (figures.SINGLE, figures.DOUBLE)
        svg = figures.to_svg(figure, "x")
        assert title in svg
        assert "PAC4SAC" in svg
        assert "pac4sac" not in svg


def test_one_algorithm_has_one_colour_in_every_figure(table_1: list[Variant]) -> None:
    ours = next(variant for variant in table_1 if variant.label == "pac4sac")
    for draw in (
        learning_curves.learning_figure,
        lambda variants: rankings.task_profile(table_1[1], variants),
    ):
        for panel in draw([ours, table_1[2]]).axes:
            named = [line for line in panel.lines if str(line.get_label()).startswith("PAC4SAC")]
            assert all(line.get_color() == ours.style.colour for line in named)
    legend = learning_curves.learning_figure(table_1).axes[0].get_legend_handles_labels()
    assert len(set(legend[1])) == len(table_1)


def test_a_profile_falls_from_all_runs_to_none(table_1: list[Variant]) -> None:
    left = rankings.task_profile(table_1[0], table_1).axes[0]
    for line in left.lines:
        fractions = np.asarray(line.get_ydata())
        # of regret, where the least is the best and the axis turned
        assert (fractions[0], fractions[-1]) == (0, 1)
        assert (np.diff(fractions) >= 0).all()
    assert left.get_xlim()[0] > left.get_xlim()[1]
