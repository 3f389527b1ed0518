"""The published runs in results/: what was measured stays as it was, whatever the code becomes."""

import dataclasses
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pac4sac.runs.archive import read_study_file
from pac4sac.runs.merging import OUTCOME, completion
from pac4sac.runs.reading import RunRecord, read_runs
from pac4sac.studies.definition import load_study
from pac4sac.studies.shipped import shipped_studies

ARCHIVE = Path(__file__).parents[1] / "results"
MEASURED = ("episodes", "evaluations", "bias", "coverage")
RUNS = 1163
# Of all that was measured, computed before the archive got frozen identities.
CHECKSUM = "40289e7cd4031e5e93c52d180d02e04a64815f928f528d7fcba511f1d382dfc4"
TASKS = (
    *("cartpole-swingup", "half-cheetah", "ant", "humanoid"),
    *("HalfCheetah-v4", "Ant-v4", "Humanoid-v4"),
)
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from pac4sac.runs.reading import read_runs
print(len({run.identity for run in read_runs(sys.argv[1])}))
"""


@pytest.fixture(scope="module")
def runs() -> list[RunRecord]:
    return read_runs(ARCHIVE)


def lines() -> Iterator[dict[str, Any]]:
    for file in sorted((ARCHIVE / "runs").glob("*.jsonl")):
        yield from map(json.loads, file.read_text().splitlines())


def test_the_archive_has_all_measurements() -> None:
    facts = [
        [line["task"]["name"], line["label"], line["algo"], line["seed"], line["status"]]
        + [line.get(log) for log in MEASURED]
        for line in lines()
        if line["task"]["name"] in TASKS
    ]
    text = "\n".join(sorted(map(json.dumps, facts)))
    assert len(facts) == RUNS
    assert hashlib.sha256(text.encode()).hexdigest() == CHECKSUM


def test_studies_find_their_runs_by_identity(runs: list[RunRecord]) -> None:
    present = {run.identity for run in runs}
    for path in (ARCHIVE / "studies").glob("*.json"):
        expected = {row["identity"] for row in read_study_file(path)["expected_runs"]}
        assert expected - {None} <= present, path.name


def test_runs_killed_after_their_last_evaluation_have_a_result(runs: list[RunRecord]) -> None:
    sparse = [run for run in runs if run.task["name"] == "cartpole-swingup-sparse"]
    killed = [run for run in sparse if run.status == "running"]
    assert len(killed) == 18
    for run in killed:
        assert completion(run) == OUTCOME
        assert completion(dataclasses.replace(run, evaluations=[])) == 0
        assert completion(dataclasses.replace(run, episodes=run.episodes[:-1])) == 0


def test_reading_an_archive_needs_no_torch(runs: list[RunRecord]) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(ARCHIVE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == str(len({run.identity for run in runs})), done.stderr


@pytest.mark.parametrize("name", [*shipped_studies()])
def test_a_shipped_study_matches_its_published_runs(name: str, runs: list[RunRecord]) -> None:
    if not (ARCHIVE / "studies" / f"{name}.json").exists():
        pytest.skip("not published")
    today = {(run.task.name, run.label, run.algo): run for run in load_study(name).runs()}
    stored = {run.identity: run for run in runs}
    for row in read_study_file(ARCHIVE / "studies" / f"{name}.json")["expected_runs"]:
        run, now = stored.get(row["identity"]), today.get((row["task"], row["label"], row["algo"]))
        if run is not None and now is not None:
            assert dataclasses.replace(now, seed=run.seed).matches(run.about), (
                row["task"],
                row["label"],
            )
