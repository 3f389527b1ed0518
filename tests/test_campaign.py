"""Studies that train together on a machine that is lent for minutes."""

import json
import sys
import time
from pathlib import Path

import pytest
from test_studies import TINY

from pac4sac.base.errors import UserError
from pac4sac.runs.archive import archived
from pac4sac.studies.local import run_here

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import campaign
from campaign_progress import Course

CAMPAIGNS = Path(__file__).parents[1] / "benchmarks" / "campaigns"
LINES = """# The second study first.
pac4sac study run second.toml --variants pac
pac4sac study run first.toml --seeds 0   # one seed
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two studies and a campaign, in which cohorts train in this process."""
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        text = TINY.replace('"Tiny"', f'"{name}"').replace("steps = 300", "steps = 60")
        Path(f"{name}.toml").write_text(text)
    Path("both.txt").write_text(LINES)
    monkeypatch.setattr(campaign, "run_local", in_this_process)
    return tmp_path


def in_this_process(cohorts, parallel, stop, watcher, on_gpu):
    return run_here(cohorts, stop, watcher)


def run(*arguments: str) -> int:
    asked = ["run", "both.txt", "--seconds", "600", "--folder", "work", "--out", "out"]
    return campaign.main([*asked, *arguments])


def summary() -> dict[str, dict]:
    rows = json.loads(Path("out/campaign.json").read_text())["cohorts"]
    return {row["study"]: row for row in rows}


def test_studies_are_trained_packed_and_continued_from_returned_files(here, capsys, monkeypatch):
    assert run() == campaign.COMPLETE
    rows = summary()
    assert rows["second"]["finished"] == rows["second"]["runs"]
    assert rows["second"]["rest_seconds"] == 0
    assert "runs have ended" in capsys.readouterr().out
    parts = sorted(map(str, Path("out").glob("*part*")))
    assert campaign.main(["unpack", *parts, "--into", "home"]) == 0
    trained = {(run.label, run.seed) for run in archived(Path("home"))}
    assert ("sac", 0) in trained
    assert ("sac", 1) not in trained  # of the first study one seed, of the second one variant

    def fail_if_called(*_: object) -> list[str]:
        raise AssertionError("trained again")

    monkeypatch.setattr(campaign, "run_local", fail_if_called)
    assert run() == campaign.COMPLETE  # from the same folders
    Path("out").rename("back")
    assert run("--folder", "elsewhere", "--known", "back") == campaign.COMPLETE


def test_a_stopped_campaign_reports_its_progress_and_continues(here, monkeypatch):
    def only_the_first(cohorts, parallel, stop, watcher, on_gpu):
        return run_here(cohorts[:1], stop, watcher)

    monkeypatch.setattr(campaign, "run_local", only_the_first)
    assert run() == campaign.STOPPED
    finished = [row["finished"] for row in summary().values()]
    assert sorted(finished)[0] == 0 < sorted(finished)[-1]
    monkeypatch.setattr(campaign, "run_local", in_this_process)
    assert run() == campaign.COMPLETE


def test_training_that_ignores_a_stop_is_killed_and_packed(here, monkeypatch, capsys):
    def endless(cohorts, parallel, stop, watcher, on_gpu):
        while True:
            assert stop.wanted in (True, False)
            time.sleep(0.05)

    monkeypatch.setattr(campaign, "run_local", endless)
    assert run("--seconds", "3", "--reserve", "2.5") == campaign.STOPPED
    assert "did not stop in time" in capsys.readouterr().out
    assert list(Path("out").glob("*part*"))


def test_finished_runs_of_a_cohort_that_has_not_ended_are_left_out(here, monkeypatch):
    """Otherwise only the runs without success would be trained again, and be counted instead."""
    has_ended = campaign.RankedCohort.is_done
    monkeypatch.setattr(
        campaign.RankedCohort,
        "is_done",
        lambda cohort: "second" not in str(cohort.folder) and has_ended(cohort),
    )
    run()
    archive = Path("work/archive")
    assert {path.stem for path in (archive / "studies").iterdir()} == {"first", "second"}
    first, _ = campaign.planned_studies(campaign.commands(Path("both.txt")), Path("work"), ())[::-1]
    expected = {each.identity for cohort in first.cohorts for each in cohort.runs}
    assert {each.identity for each in archived(archive)} == expected


def test_cohorts_of_earlier_commands_come_first(here):
    asked = campaign.commands(Path("both.txt"))
    studies = campaign.planned_studies(asked, Path("work"), ())
    assert [each.study.name for each in studies] == ["second", "first"]
    shortest = min(cohort.duration for cohort in studies[0].cohorts)
    assert shortest > max(cohort.duration for cohort in studies[1].cohorts)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("rm -rf work", ("both.txt:2", "pac4sac study run")),
        ("pac4sac study run first.toml --out x", ("both.txt:2", "--out")),
        ("pac4sac study run first.toml --max-minutes 3", ("both.txt:2", "--max-minutes")),
        ("", ("no command",)),
    ],
)
def test_invalid_lines_are_refused(here, line, parts, capsys):
    Path("both.txt").write_text(f"# title\n{line}\n")
    assert run() == campaign.MISTAKE
    said = capsys.readouterr().err
    assert all(part in said for part in parts)
    assert not Path("work").exists()


def test_a_reserve_longer_than_the_call_is_refused(here, capsys):
    assert run("--reserve", "600") == campaign.MISTAKE
    assert "--reserve" in capsys.readouterr().err


def test_the_remaining_time_is_estimated_from_the_speed_of_this_call(here):
    asked = campaign.commands(Path("both.txt"))
    cohort = campaign.planned_studies(asked, Path("work"), ())[0].cohorts[0]
    course = Course((10.0, 0), (11.0, 20))  # of 60 steps
    row = campaign.row("second", cohort, course)
    assert row["rest_seconds"] == pytest.approx(2.0)
    assert row["run-steps/s"] == 20 * len(cohort.runs)
    assert campaign.row("second", cohort, None)["rest_seconds"] is None


def test_parts_are_small_and_are_unpacked_in_any_order(tmp_path: Path):
    base, out = tmp_path / "base", tmp_path / "out"
    (base / "archive").mkdir(parents=True)
    content = bytes(range(256)) * 40
    (base / "archive" / "runs").write_bytes(content)
    parts = campaign.pack([base / "archive"], base, out, 100 / 2**20)
    assert len(parts) > 2
    assert max(part.stat().st_size for part in parts) <= 100
    campaign.unpack(parts[::-1], tmp_path / "again")
    assert (tmp_path / "again" / "archive" / "runs").read_bytes() == content
    with pytest.raises(UserError, match=parts[0].name):
        campaign.unpack(parts[:-1], tmp_path / "third")
    assert len(campaign.pack([], base, out, 15)) == 1  # earlier parts are gone
    assert len([*out.iterdir()]) == 1


@pytest.mark.parametrize("file", sorted(CAMPAIGNS.glob("*.txt")), ids=lambda file: file.stem)
def test_the_campaigns_of_the_project_name_studies_that_exist(file: Path, monkeypatch):
    monkeypatch.chdir(CAMPAIGNS.parents[1])
    for command in campaign.commands(file):
        try:
            study, _ = command.study_and_folder()
        except UserError as missing:
            if "install" not in str(missing):
                raise
            pytest.skip(str(missing))  # the simulator of a task is not here
        assert study.variants
        assert study.tasks
