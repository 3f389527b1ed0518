"""What the report says of how widely runs visited states."""

import csv
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_folders import own_task, task, write_run
from test_bias_report import write_bias

from pac4sac.paper.groups import coverage_baseline
from pac4sac.paper.report import read_context, write_report
from pac4sac.report.bias_and_coverage import (
    COVERAGE,
    compare_coverage,
    coverage_section,
    over_training,
)
from pac4sac.report.style import plain_name
from pac4sac.runs.archive import add_to_archive
from pac4sac.runs.collection import collect
from pac4sac.runs.reading import read_runs
from pac4sac.runs.statistics import mean_interval

CARTPOLE = task("cartpole-swingup")
STEPS = range(5000, 40_001, 5000)
WITHOUT_TERM, WITHOUT_SHOOTING = "bellman+conservative", "pac4sac-without-shooting"
SETTINGS: dict[str, dict[str, Any]] = {
    "pac4sac": {},
    WITHOUT_TERM: {"xi": 0.0},
    WITHOUT_SHOOTING: {"shots": 1},
}


def write_coverage(
    run: Path, ends: Sequence[float | None], steps: Sequence[int] = STEPS, volume: float = 20.0
) -> None:
    rows = [
        {"step": step, "nearest": end, "log_volume": volume, "states": 1000}
        for step, end in zip(steps, ends, strict=True)
    ]
    (run / "coverage.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_variant(
    folder: Path, label: str, ends: Sequence[float], volumes: Sequence[float] | None = None
) -> None:
    for seed, end in enumerate(ends):
        run = write_run(folder, CARTPOLE, "pac4sac", seed, label=label, settings=SETTINGS[label])
        rising = np.linspace(0, end, len(STEPS)).tolist()
        write_coverage(run, rising, volume=volumes[seed] if volumes else 20.0 + seed)


def section_of(folder: Path) -> Any:
    context = read_context([folder])
    return coverage_section(context, partial(coverage_baseline, context.collection.studies))


def write_three(folder: Path) -> None:
    write_variant(
        folder, "pac4sac", [1.0, 1.1, 1.2, 1.3, 1.4], volumes=[20.0, 21.0, 22.0, 23.0, 24.0]
    )
    write_variant(
        folder, WITHOUT_TERM, [0.5, 0.6, 0.7, 0.8, 0.9], volumes=[20.5, 21.5, 22.5, 23.5, 24.5]
    )
    write_variant(
        folder, WITHOUT_SHOOTING, [2.0, 2.1, 2.2, 2.3, 2.4], volumes=[2.0, 3.0, 4.0, 5.0, 6.0]
    )


def test_each_variant_has_a_verdict_on_its_coverage(tmp_path: Path) -> None:
    write_three(tmp_path / "in")
    write_report([tmp_path / "in"], tmp_path / "out")
    table = (tmp_path / "out/tables/coverage-cartpole-swingup.csv").open()
    found = {row["variant"]: row for row in csv.DictReader(table)}
    told = {
        name: [row[f"{what}_against_baseline"] for what in ("nearest", "log_volume")]
        for name, row in found.items()
    }
    assert told == {
        "pac4sac": ["baseline", "baseline"],
        WITHOUT_TERM: ["narrower", "no significant difference"],
        WITHOUT_SHOOTING: ["wider", "narrower"],
    }
    text = (tmp_path / "out" / "report.md").read_text()
    assert (
        f"In terms of the distance to the nearest state, the states of `{WITHOUT_SHOOTING}` are spread more "
        f"widely than those of `pac4sac`. The states of `{WITHOUT_TERM}` are spread less widely than "
        f"those of `pac4sac`. In terms of the log-volume, the states of `{WITHOUT_SHOOTING}` are spread less "
        "widely than those of `pac4sac`. We found no significant difference from `pac4sac` for "
        f"`{WITHOUT_TERM}`."
    ) in text
    drawing = (tmp_path / "out" / "figures" / "coverage-cartpole-swingup.svg").read_text()
    assert {label for label in SETTINGS if f"{plain_name(label)} (5 seeds)" in drawing} == set(
        SETTINGS
    )


def test_the_numbers_of_a_row(tmp_path: Path) -> None:
    write_three(tmp_path)
    variants = read_context([tmp_path]).all_variants
    ours = next(variant for variant in variants if variant.label == "pac4sac")
    compared = {row.variant.label: row for row in compare_coverage("nearest", variants, ours)}
    # Of 1, 1.1, … 1.4 the mean is 1.2 and the deviation √0.025; Student's t for four degrees of
    # freedom is 2.776445.
    half_width = 2.776445 * (0.025 / 5) ** 0.5
    end = mean_interval(compared["pac4sac"].values)
    assert (end.value, end.low, end.high) == pytest.approx(
        (1.2, 1.2 - half_width, 1.2 + half_width), rel=1e-6
    )
    # each rose from 0 in a straight line
    assert over_training(ours, "nearest") == pytest.approx(0.6)
    # Both have that deviation, so there are eight degrees of freedom, for which t is 2.306004.
    difference = compared[WITHOUT_TERM].difference
    assert (difference.value, difference.high) == pytest.approx(
        (-0.5, -0.5 + 2.306004 * (2 * 0.025 / 5) ** 0.5)
    )
    # −0.5 is five standard errors, +1 ten; the smaller of two p-values counts twice, the larger
    # once.
    raw = {label: row.difference.p for label, row in compared.items() if row.difference}
    assert compared[WITHOUT_TERM].p == pytest.approx(raw[WITHOUT_TERM])
    assert compared[WITHOUT_SHOOTING].p == pytest.approx(2 * raw[WITHOUT_SHOOTING])


def test_a_report_on_runs_without_measurements_has_no_such_section(tmp_path: Path) -> None:
    write_run(tmp_path, CARTPOLE)
    assert section_of(tmp_path) is None


def test_the_end_is_not_shown_while_runs_are_in_progress(tmp_path: Path) -> None:
    write_three(tmp_path)
    early = write_run(
        tmp_path, CARTPOLE, "pac4sac", 7, [10.0] * 8, WITHOUT_TERM, {"xi": 0.0}, status="running"
    )
    write_coverage(early, [9.0], [5000])
    sentence = section_of(tmp_path).blocks[1]
    assert f"`{WITHOUT_TERM}` are unfinished" in sentence
    assert "the states of `pac4sac-without-shooting` are spread less widely" in sentence


def test_a_damaged_log_only_loses_its_last_measurement(tmp_path: Path) -> None:
    run = write_run(tmp_path, own_task(), "sac", 0)
    write_coverage(run, [1.0, 2.0], [100, 4000])
    with (run / "coverage.jsonl").open("a") as log:
        log.write(
            '{"step": 5000, "nearest": "far", "log_volume": 1}\n{"step": 6000, "nearest": null}\n{"st'
        )
    (variant,) = read_context([tmp_path]).all_variants
    assert [row["nearest"] for row in COVERAGE.of(variant.runs[0])] == [1.0, 2.0]
    _, sentence, _, table = section_of(tmp_path).blocks
    assert "compared with `sac`. There is no other variant." in sentence
    assert table.cells[0][3].text == "—"  # what came last is not known


# --- in archives


def test_an_archive_keeps_measured_coverage(tmp_path: Path) -> None:
    write_variant(tmp_path / "in", "pac4sac", [1.0])
    write_run(tmp_path / "in", CARTPOLE, "sac", 0)
    add_to_archive([tmp_path / "in"], tmp_path / "archive")
    kept, original = read_runs(tmp_path / "archive"), read_runs(tmp_path / "in")
    assert [run.coverage for run in kept] == [run.coverage for run in original]
    lines = [
        json.loads(line)
        for line in (tmp_path / "archive/runs/cartpole-swingup.jsonl").read_text().splitlines()
    ]
    assert ["coverage" in line for line in lines] == [True, False]


def test_measurements_of_copies_of_a_run_are_combined(tmp_path: Path) -> None:
    """Trained for one study with its bias, for another with its coverage, to the same end."""
    write_bias(write_run(tmp_path / "a", CARTPOLE), [5.0] * 20)
    write_coverage(write_run(tmp_path / "b", CARTPOLE), [1.0] * len(STEPS))
    for folder, replaced in (("a", 0), ("b", 1), ("a", 0), ("b", 0)):
        assert add_to_archive([tmp_path / folder], tmp_path / "archive").replaced == replaced
    (archived,) = read_runs(tmp_path / "archive")
    (reported,) = (run.record for run in collect([tmp_path / "a", tmp_path / "b"]).runs)
    for run in (archived, reported):
        assert (len(run.bias), len(run.coverage)) == (20, len(STEPS))


def test_measurements_of_different_copies_of_a_run_are_not_combined(tmp_path: Path) -> None:
    write_bias(write_run(tmp_path / "a", CARTPOLE, returns=[100.0] * 40), [5.0] * 20)
    write_coverage(write_run(tmp_path / "b", CARTPOLE, returns=[101.0] * 40), [1.0] * len(STEPS))
    add_to_archive([tmp_path / "a", tmp_path / "b"], tmp_path / "archive", keep_first=True)
    (archived,) = read_runs(tmp_path / "archive")
    (reported,) = (run.record for run in collect([tmp_path / "a", tmp_path / "b"]).runs)
    for run in (archived, reported):
        assert (len(run.bias), len(run.coverage)) == (20, 0)
