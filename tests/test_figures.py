"""Figures for a paper: what they show, their size, and that they promise nothing that cannot be
reached."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from figure_layout import layout_faults
from matplotlib.figure import Figure
from report_folders import own_task, write_run, write_table_1

from pac4sac.paper.table_sections import shooting_figure
from pac4sac.report import figures, learning_curves, rankings, sections
from pac4sac.report.report import read_context
from pac4sac.report.style import assign_styles
from pac4sac.report.variants import Variant
from pac4sac.runs.reading import read_runs
from pac4sac.runs.statistics import Estimate


@pytest.fixture(scope="module")
def table_1(tmp_path_factory: pytest.TempPathFactory) -> list[Variant]:
    folder = tmp_path_factory.mktemp("table-1")
    write_table_1(folder, ["cartpole-swingup"])
    return read_context([folder]).results("cartpole-swingup")


def test_a_band_stays_within_the_range_of_the_seeds(tmp_path: Path) -> None:
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
    assert len(set(legend[1])) == len(table_1) + 1  # and the return threshold


def test_a_profile_decreases_from_all_runs_to_none(table_1: list[Variant]) -> None:
    left = rankings.task_profile(table_1[0], table_1).axes[0]
    for line in left.lines:
        fractions = np.asarray(line.get_ydata())
        # of regret, where the least is the best and the axis turned
        assert (fractions[0], fractions[-1]) == (0, 1)
        assert (np.diff(fractions) >= 0).all()
    assert left.get_xlim()[0] > left.get_xlim()[1]


LONG = "my_lab.agents:ActorCriticWithAVeryLongNameThatNobodyWouldWantToRead, learning_rate = 0.0003"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> list[Variant]:
    """Return twelve variants of one task with a threshold, one with a long name."""
    folder = tmp_path_factory.mktemp("many")
    about = own_task("A-Task-With-A-Long-Name-v4", r_limit=80.0, horizon=1000, steps=30_000)
    labels = ["pac4sac", "sac", "ddpg", "sac+shooting", "bellman+conservative+exploration", LONG]
    for place, label in enumerate([*labels, *(f"custom:Agent{k}" for k in range(6))]):
        for seed in range(3):
            returns = [min(4.0 * k + place + seed, 100.0) for k in range(30)]
            settings = {"shots": 500} if label.endswith("shooting") else None
            write_run(folder, about, label.partition("+")[0], seed, returns, label, settings)
    (variants,) = read_context([folder]).variants.values()
    return list(variants)


def ranking(width: float) -> Callable[[list[Variant]], Figure]:
    def draw(variants: list[Variant]) -> Figure:
        styles = {variant.label: variant.style for variant in variants}
        known = {label: Estimate(1e4 * k, 9e3 * k, 2e4 * k) for k, label in enumerate(styles)}
        return rankings.ranking_figure("A ranking", known, styles, "sac", "regret", 1.0, width)

    return draw


@pytest.mark.parametrize(
    "draw",
    [
        learning_curves.learning_figure,
        lambda variants: learning_curves.overview_figure(
            {"half-cheetah": variants[:3], "humanoid": variants[3:5], "ant": variants[5:7]}
        ),
        lambda variants: rankings.task_profile(variants[0], variants),
        sections.sweep_figure,
        lambda variants: shooting_figure(dict(enumerate(variants[:6]))),
        ranking(figures.SINGLE),
        ranking(figures.DOUBLE),
    ],
    ids=["learning", "overview", "profile", "sweep", "shooting", "narrow ranking", "ranking"],
)
def test_figures_have_no_clipped_or_overlapping_text(
    draw: Callable[[list[Variant]], Figure], many: list[Variant]
) -> None:
    assert len(many) == 12
    assert layout_faults(draw(many)) == []


def test_the_check_of_the_layout_finds_faults() -> None:
    figure, (panel,) = figures.new_figure("Title", 1, figures.SINGLE, 1.0)
    panel.set_ylabel("a label that is longer than the panel is high")
    panel.text(0.9, 0.5, "much too far to the right")
    panel.plot([0, 1], [0, 1])
    panel.text(0.4, 0.5, "crossed")
    kinds = {fault.partition(":")[0] for fault in layout_faults(figure)}
    assert kinds == {"overlap", "cut off", "longer than its axis", "crossed by a line"}


def test_the_first_figure_is_legible_on_a_phone(many: list[Variant]) -> None:
    overview = learning_curves.overview_figure({"one": many[:2], "two": many[2:4]})
    pixels = 366 / (72 * overview.get_figwidth())  # of a point, on a page of 390 pixels
    assert pixels * figures.SMALL >= 9
    svg = figures.opaque(figures.to_svg(overview, "x"))
    width = re.search(r' width="([\d.]+)pt"', svg)
    assert width is not None
    assert float(width[1]) > 400  # it is large enough on a desk, too
