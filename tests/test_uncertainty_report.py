"""What the report says of the deviations that critics offer."""

import csv
import math
from pathlib import Path

import pytest
from report_folders import task, write_run, write_study
from test_bias_report import STEPS, write_bias

from pac4sac.report.bias_and_coverage import bias_section
from pac4sac.report.report import read_context, write_report
from pac4sac.report.search import chosen_section
from pac4sac.report.tables import Table
from pac4sac.report.uncertainty import error_over_std, uncertainty_answer, uncertainty_section

pytestmark = pytest.mark.usefixtures("undrawn")
RATIOS = {
    "pac4sac": (100.0, 400.0, 200.0),
    "sac": (0.9, 1.1, 1.3),
    "oac": (0.1, 0.12, 0.15),
    "td3": (1.0, 8.0, 9.0),
}


def write_uncertainties(folder: Path) -> None:
    for algo, ratios in RATIOS.items():
        for seed, ratio in enumerate(ratios):
            offered = {
                "deviation": 3.0 / ratio,
                "ratio": ratio,
                "covered": 0.5,
                "rank": None if seed else 0.25,
            }
            write_bias(
                write_run(folder, task("cartpole-swingup"), algo, seed),
                [1.0] * len(STEPS),
                **offered,
            )


def test_a_std_is_judged_by_a_factor_of_three(tmp_path: Path) -> None:
    write_uncertainties(tmp_path / "in")
    write_report([tmp_path / "in"], tmp_path / "out")
    table = (tmp_path / "out/tables/uncertainty-cartpole-swingup.csv").open()
    found = {row["variant"]: row for row in csv.DictReader(table)}
    verdicts = {
        "pac4sac": "too small",
        "sac": "about right",
        "oac": "too large",
        "td3": "undecided",
    }
    assert {label: row["verdict"] for label, row in found.items()} == verdicts
    assert float(found["pac4sac"]["ratio"]) == pytest.approx(200)  # (100 · 400 · 200)^(1/3)
    # ln 2 is the deviation of the logarithms, 4.3027 the quantile of Student's distribution with
    # two degrees of freedom
    assert float(found["pac4sac"]["ratio_high"]) == pytest.approx(
        200 * math.exp(4.3027 * math.log(2) / math.sqrt(3)), rel=1e-3
    )
    assert float(found["sac"]["covered"]) == 0.5
    assert float(found["sac"]["rank"]) == 0.25  # of the one seed in which deviations varied


def test_the_answer_names_the_best_and_the_worst_std(tmp_path: Path) -> None:
    write_uncertainties(tmp_path)
    write_study(tmp_path, "uncertainty", "uncertainty", None, [])
    told = uncertainty_answer(read_context([tmp_path]))
    assert told.startswith(
        "On cartpole-swingup, error ÷ std (ideal: 1) is 1.1 [0.7, 1.7] for SAC and 200.0 ["
    )
    assert told.endswith("] for PAC4SAC.")


def test_logs_without_a_std_have_no_section(tmp_path: Path) -> None:
    write_bias(write_run(tmp_path, task("cartpole-swingup")), [1.0] * len(STEPS))
    context = read_context([tmp_path])
    assert uncertainty_section(context) is None
    assert uncertainty_answer(context) == "No complete run answers this question yet."
    assert error_over_std(context.all_variants[0]) is None


def test_extremely_different_seeds_give_an_unbounded_interval(tmp_path: Path) -> None:
    for seed, ratio in enumerate((1e-200, 1e200)):
        offered = {"deviation": 1.0, "ratio": ratio, "covered": 0.5, "rank": 0.0}
        write_bias(
            write_run(tmp_path, task("cartpole-swingup"), "sac", seed),
            [1.0] * len(STEPS),
            **offered,
        )
    found = error_over_std(read_context([tmp_path]).all_variants[0])
    assert found is not None
    assert (found.value, found.low, found.high) == (pytest.approx(1.0), 0.0, math.inf)


def test_a_search_shows_its_std_in_a_table_over_tasks(tmp_path: Path) -> None:
    # Errors by deviation: a's are 8 and 2, of which the geometric mean is 4, b's 0.5 and 2, c's
    # known on one task.
    ratios = {
        "cartpole-swingup": {"a": 8.0, "b": 0.5},
        "half-cheetah": {"a": 2.0, "b": 2.0, "c": 1.0},
    }
    alphas = {"a": 0.1, "b": 0.3, "c": 0.4}
    for name, of_task in ratios.items():
        for label, ratio in of_task.items():
            about = task(name, steps=STEPS[-1] // 2)
            run = write_run(
                tmp_path / name, about, "sac", 1000, None, label, {"alpha": alphas[label]}
            )
            offered = {"deviation": 3.0 / ratio, "ratio": ratio, "covered": 1 / ratio, "rank": 0.5}
            write_bias(run, [1.0], [STEPS[-1] // 2], **offered)
        write_study(tmp_path / name, "search", "search", None, [])
    write_bias(write_run(tmp_path / "results", task("cartpole-swingup")), [1.0] * len(STEPS))
    context = read_context([tmp_path])
    assert list(context.variants) == [
        "cartpole-swingup",
        "cartpole-swingup (steps=20000)",
        "half-cheetah",
    ]
    bias = bias_section(context)
    assert bias is not None
    assert [block.name for block in bias.blocks if isinstance(block, Table)] == [
        "bias-cartpole-swingup"
    ]
    search = chosen_section(context, "search")
    assert search is not None
    (table,) = [
        block for block in search.blocks if getattr(block, "name", "") == "search-deviations"
    ]
    names = ("error_by_deviation", "off_by", "of_root_mean_squares", "covered")
    found = [(row["variant"], *(row[name] for name in names)) for row in table.records]
    # Twice and half are each off by a factor of 2; errors are 3.
    expected = [("b (search)", 1.0, 2.0, 1.0, 1.25), ("a (search)", 4.0, 4.0, 4.0, 0.3125)]
    assert found == [(label, *map(pytest.approx, numbers)) for label, *numbers in expected]
