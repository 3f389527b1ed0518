"""Our evaluations beside the returns that others published."""

import json
from pathlib import Path
from typing import Any

import pytest
from report_folders import own_task, usual_settings, write_run, write_study, write_table_1

from pac4sac.paper.numbers import PUBLISHED
from pac4sac.paper.published import published_returns
from pac4sac.paper.report import compose, read_context
from pac4sac.paper.verdicts import NO_DATA, REPRODUCED, compare_returns
from pac4sac.report.comparison import BETTER, UNFINISHED, WORSE
from pac4sac.report.tables import Section
from pac4sac.runs.statistics import UNDECIDED, Summary
from pac4sac.studies.definition import load_study

CHEETAH = "HalfCheetah-v4"


def write_evaluated(
    folder: Path, seed: int, mean: float, name: str = CHEETAH, **changes: Any
) -> None:
    """A run of SAC as published, of which the middle alone matters: at 250,000 steps its evaluation
    had this mean."""
    about = own_task(name, horizon=1000, steps=250_000, r_limit=4800.0)
    given = changes.pop("settings", {})
    changes |= {"settings": usual_settings("sac", "default") | given, "given": given}
    changes = {"preset": "default"} | changes
    run = write_run(folder, about, "sac", seed, [100.0] * 250, **changes)
    rows = [
        {"step": 50_000 * k, "policy": "deterministic", "mean": mean * k / 5, "returns": []}
        for k in range(1, 6)
    ]
    rows.append({"step": 250_000, "policy": "shooting", "mean": 0.0, "returns": []})
    (run / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def verdicts(*folders: Path) -> dict[tuple[str, str, int], str]:
    rows = published_returns(read_context(folders))
    return {(row.task, row.algo, row.steps): row.judged.verdict for row in rows}


def sections(*folders: Path) -> dict[str, Section]:
    return {section.name: section for section in compose(read_context(folders))}


@pytest.mark.parametrize(
    ("ours", "sd", "verdict"),
    [
        ([990.0, 1000.0, 1020.0], 30.0, REPRODUCED),
        ([1290.0, 1300.0, 1320.0], 30.0, BETTER),
        ([690.0, 700.0, 720.0], 30.0, WORSE),
        ([990.0, 1000.0, 1020.0], 900.0, UNDECIDED),  # theirs is not known well enough
        ([1000.0], 30.0, UNDECIDED),
    ],
)
def test_higher_returns_are_better_and_15_percent_is_equivalent(
    ours: list[float], sd: float, verdict: str
) -> None:
    judged = compare_returns(ours, Summary(10, 1000.0, sd))
    assert judged.verdict == verdict


def test_every_published_mean_has_a_standard_deviation() -> None:
    spreads = [
        sd
        for rows in PUBLISHED["returns"].values()
        for steps in rows.values()
        for _, sd in steps.values()
    ]
    assert len(spreads) == 18
    assert min(spreads) > 0


def test_crossq_on_half_cheetah_is_undecided_with_the_published_spread() -> None:
    archived = [10773.0 + 602.0 * z for z in (-1.0, -1.0, 0.0, 1.0, 1.0)]
    mean, sd = PUBLISHED["returns"][CHEETAH]["crossq"]["250_000"]
    judged = compare_returns(archived, Summary(10, mean, sd))
    assert judged.verdict == UNDECIDED
    assert judged.low is not None
    assert judged.low < 0


def test_the_settings_of_the_published_curves_are_compared_before_the_default(
    tmp_path: Path,
) -> None:
    for seed in range(3):
        write_evaluated(tmp_path / "default", seed, 5000.0 + seed)
        write_evaluated(tmp_path / "curves", seed, 8150.0 + seed, preset="published-curves")
    assert verdicts(tmp_path)[CHEETAH, "sac", 250_000] != WORSE


def test_evaluations_at_the_same_step_are_compared(tmp_path: Path) -> None:
    for seed, mean in enumerate([8000.0, 8200.0, 8300.0]):
        write_evaluated(tmp_path / "sac", seed, mean)
    found = verdicts(tmp_path)
    assert found.pop((CHEETAH, "sac", 250_000)) == REPRODUCED
    assert set(found.values()) == {NO_DATA}
    told = sections(tmp_path)["published"]
    numbers = "8,167 for SAC on HalfCheetah-v4 (published: 8,159; reproduced)"
    assert "1 of the 18 published returns. Of our returns, 1 is reproduced." in told.blocks[0]
    assert told.blocks[0].endswith(f" {numbers}.")
    table = told.blocks[2]
    assert [cell.text for cell in table.cells[0]][2:4] == ["8,167 ± 153", "8,159 ± 893"]


def test_runs_of_another_version_or_setting_are_not_compared(tmp_path: Path) -> None:
    write_evaluated(tmp_path / "v5", 0, 8000.0, "HalfCheetah-v5")
    write_evaluated(tmp_path / "other", 0, 8000.0, settings={"lr": 1e-3})
    assert verdicts(tmp_path) == {}
    assert "published" not in sections(tmp_path)


def test_unfinished_and_diverged_runs_are_not_called_reproduced(tmp_path: Path) -> None:
    for seed, mean in enumerate([8000.0, 8200.0, 8300.0]):
        write_evaluated(tmp_path / "sac", seed, mean)
    write_evaluated(tmp_path / "sac", 3, 8000.0, status="diverged")
    (tmp_path / "sac" / "runs" / "sac-seed3" / "evaluations.jsonl").write_text("")
    assert verdicts(tmp_path)[CHEETAH, "sac", 250_000] == UNDECIDED
    write_evaluated(tmp_path / "sac", 4, 8000.0, status="running")
    path = tmp_path / "sac" / "runs" / "sac-seed4" / "evaluations.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    assert verdicts(tmp_path)[CHEETAH, "sac", 250_000] == UNFINISHED


def test_a_study_without_runs_lists_missing_runs(tmp_path: Path) -> None:
    expected = [
        {"task": CHEETAH, "algo": "sac", "label": "sac", "seed": seed} for seed in range(10)
    ]
    write_study(tmp_path, "mujoco", load_study("mujoco").kind, "sac", expected)
    told = sections(tmp_path)
    answer = told["summary"].blocks[0][0]
    assert answer.text.endswith(" 0 of the 18 published returns.")
    assert answer.section == "published"
    assert [row[0].text for row in told["runs"].blocks[0].cells] == [CHEETAH]


def test_they_do_not_change_the_section_across_the_papers_tasks(tmp_path: Path) -> None:
    write_table_1(tmp_path / "table-1", seeds=2)
    before = sections(tmp_path)["across-tasks"].blocks[0]
    for seed in (0, 1):
        write_evaluated(tmp_path / "mujoco", seed, 8000.0)
        about = own_task(CHEETAH, horizon=1000, steps=250_000, r_limit=4800.0)
        write_run(tmp_path / "pac4sac", about, "pac4sac", seed)
    told = sections(tmp_path)
    assert told["across-tasks"].blocks[0] == before
    assert {"published", f"task-{CHEETAH}"} <= told.keys()
