"""What the report says of the value bias that runs logged."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_folders import own_task, task, write_run, write_study

from pac4sac.report.bias_and_coverage import BIAS, bias_section, final_bias
from pac4sac.report.report import read_context, write_report
from pac4sac.report.style import plain_name
from pac4sac.runs.archive import add_to_archive
from pac4sac.runs.reading import read_runs

STEPS = range(2000, 40_001, 2000)


def write_bias(
    run: Path, biases: Sequence[float | None], steps: Sequence[int] = STEPS, **changes: Any
) -> None:
    usual = {
        "low": None,
        "high": None,
        "rms": 3.0,
        "mean_return": -50.0,
        "episodes": 3,
        "steps": 900,
    }
    rows = [
        {"step": step, "bias": bias, **usual, **changes}
        for step, bias in zip(steps, biases, strict=True)
    ]
    (run / "bias.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_variants(folder: Path, seeds: int = 5) -> None:
    for algo, end, spread in (("ddpg", 400.0, 20.0), ("sac", -2.0, 0.2), ("pac4sac", 0.1, 2.0)):
        for seed in range(seeds):
            luck = np.random.default_rng([seed, len(algo)])
            run = write_run(folder, task("cartpole-swingup"), algo, seed)
            write_bias(
                run,
                (end * np.linspace(0, 1, len(STEPS)) + luck.normal(0, spread, len(STEPS))).tolist(),
            )


def section_of(folder: Path) -> Any:
    return bias_section(read_context([folder]))


def test_each_variant_has_a_verdict_on_its_bias(tmp_path: Path) -> None:
    write_variants(tmp_path / "in")
    write_report([tmp_path / "in"], tmp_path / "out")
    found = {
        row["variant"]: row
        for row in csv.DictReader((tmp_path / "out/tables/bias-cartpole-swingup.csv").open())
    }
    verdicts = {"ddpg": "overestimates", "sac": "underestimates", "pac4sac": "undecided"}
    assert {label: row["verdict"] for label, row in found.items()} == verdicts
    assert float(found["ddpg"]["bias"]) == pytest.approx(400, abs=30)
    assert float(found["sac"]["relative_bias"]) == pytest.approx(float(found["sac"]["bias"]) / 50)
    text = (tmp_path / "out" / "report.md").read_text()
    assert (
        "without shooting, the critics of `ddpg` overestimate their returns. The critics of `sac` under"
        in text
    )
    assert "with shooting, the sign of the bias is undecided for `pac4sac`." in text
    drawing = (tmp_path / "out" / "figures" / "bias-cartpole-swingup.svg").read_text()
    assert {label for label in verdicts if f"{plain_name(label)} (5 seeds)" in drawing} == set(
        verdicts
    )


def test_a_report_on_runs_without_measurements_has_no_such_section(tmp_path: Path) -> None:
    write_run(tmp_path, task("cartpole-swingup"))
    assert section_of(tmp_path) is None


def test_one_seed_has_the_interval_over_its_episodes(tmp_path: Path) -> None:
    write_bias(write_run(tmp_path, task("cartpole-swingup")), [5.0] * len(STEPS), low=4.0, high=6.0)
    (variant,) = read_context([tmp_path]).all_variants
    estimate = final_bias(variant)
    assert (estimate.value, estimate.low, estimate.high) == (5.0, 4.0, 6.0)


def test_runs_that_diverged_are_drawn_but_not_judged(tmp_path: Path) -> None:
    for seed in range(3):
        write_bias(
            write_run(tmp_path, task("cartpole-swingup"), "sac", seed), [1.0 + seed] * len(STEPS)
        )
    broken = write_run(tmp_path, task("cartpole-swingup"), "sac", 4, [10.0] * 8, status="diverged")
    write_bias(broken, [7.0, None, None, None], range(2000, 8001, 2000))
    (variant,) = read_context([tmp_path]).all_variants
    assert len(BIAS.of(variant.runs[3])) == 1
    assert final_bias(variant).value == pytest.approx(2.0)
    _, sentence, picture, table = section_of(tmp_path).blocks
    assert "overestimate" not in sentence
    assert "undecided for `sac`" in sentence
    assert table.cells[0][-1].text == "3 of 4"
    assert picture.draw().axes[0].lines


def test_early_solved_runs_are_not_averaged_while_runs_are_in_progress(tmp_path: Path) -> None:
    for seed in range(3):
        write_bias(
            write_run(tmp_path, task("cartpole-swingup"), "sac", seed), [9.0 + seed] * len(STEPS)
        )
    assert "`sac` overestimate" in section_of(tmp_path).blocks[1]
    early = write_run(tmp_path, task("cartpole-swingup"), "sac", 3, [10.0] * 8, status="running")
    write_bias(early, [1000.0] * 4, range(2000, 8001, 2000))
    assert "`sac` are unfinished" in section_of(tmp_path).blocks[1]


def test_a_damaged_log_only_loses_its_last_measurement(tmp_path: Path) -> None:
    run = write_run(tmp_path, own_task(), "sac", 0)
    write_bias(run, [1.0, 2.0], [100, 4000])
    with (run / "bias.jsonl").open("a") as log:
        log.write('{"step": 5000, "bias": "much"}\n{"step": true, "bias": 1}\n{"st')
    (variant,) = read_context([tmp_path]).all_variants
    assert [row["bias"] for row in BIAS.of(variant.runs[0])] == [1.0, 2.0]
    sentence = section_of(tmp_path).blocks[1]
    assert (
        "on Pendulum-v1 without shooting, the bias of `sac` was not measured at the end" in sentence
    )


def test_the_copy_of_a_run_with_measurements_is_used(tmp_path: Path) -> None:
    write_run(tmp_path / "a", task("cartpole-swingup"))
    write_bias(write_run(tmp_path / "b", task("cartpole-swingup")), [5.0] * len(STEPS))
    assert section_of(tmp_path) is not None


def test_an_archive_adds_measurements_to_a_stored_run(tmp_path: Path) -> None:
    write_run(tmp_path / "a", task("cartpole-swingup"))
    measurements = [5.0] * len(STEPS)
    write_bias(write_run(tmp_path / "b", task("cartpole-swingup")), measurements)
    for folder, replaced in (("a", 0), ("b", 1), ("a", 0)):
        assert add_to_archive([tmp_path / folder], tmp_path / "archive").replaced == replaced
    (run,) = read_runs(tmp_path / "archive")
    assert [row["bias"] for row in BIAS.of(run)] == measurements


def test_variants_of_a_study_are_drawn_together(tmp_path: Path) -> None:
    labels = [f"variant-{k}" for k in range(9)]
    for k, label in enumerate(labels):
        where = tmp_path / ("asking" if k in (1, 7, 8) else "others")
        run = write_run(
            where, task("cartpole-swingup"), "sac", 0, None, label, {"lr": 1e-3 + 1e-5 * k}
        )
        write_bias(run, [5.0] * len(STEPS))
    write_study(tmp_path / "asking", "overestimation", "overestimation", None, [])
    write_report([tmp_path], tmp_path / "out")
    first = (tmp_path / "out" / "figures" / "bias-cartpole-swingup.svg").read_text()
    assert all(f"{labels[k]} (1 seed)" in first for k in (1, 7, 8))
    assert f"{labels[6]} (1 seed)" not in first
