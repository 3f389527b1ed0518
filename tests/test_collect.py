"""Runs of several pieces put into one archive, which gives the same report as their folders."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from report_folders import (
    curve,
    own_task,
    task,
    write_everything,
    write_run,
    write_study,
    write_table_1,
)

from pac4sac.base.errors import UserError
from pac4sac.cli.main import main
from pac4sac.report.grouping import variants_by_task
from pac4sac.report.report import write_report
from pac4sac.runs.archive import add_to_archive
from pac4sac.runs.collection import collect
from pac4sac.runs.frames import results
from pac4sac.runs.reading import read_run, read_runs, sealed

pytestmark = pytest.mark.usefixtures("undrawn")

CARTPOLE = task("cartpole-swingup")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def expecting(folder: Path, study: str, kind: str = "", label: str | None = None) -> None:
    """The study around the runs of a folder, which expects them all."""
    rows = []
    for path in sorted(folder.glob("runs/*")):
        run = read_run(path)
        about = {
            "run": run.run,
            "task": run.task["name"],
            "algo": run.algo,
            "label": label or run.label,
        }
        rows.append(about | {"seed": run.seed, "identity": run.identity})
    write_study(folder, study, kind or study, None, rows)


class TestAnArchive:
    def test_gives_the_same_tables_as_its_folders(self, tmp_path: Path) -> None:
        write_everything(tmp_path / "folders")
        add_to_archive([tmp_path / "folders"], tmp_path / "archive", unfinished=True)
        write_report([tmp_path / "folders"], tmp_path / "report-1")
        write_report([tmp_path / "archive"], tmp_path / "report-2")
        first, second = contents(tmp_path / "report-1"), contents(tmp_path / "report-2")
        # Only these tell where runs lie.
        for name in (
            "report.html",
            "report.md",
            "manifest.json",
            "tables/unfinished-runs.csv",
            "tables/unfinished-runs.tex",
        ):
            del first[name], second[name]
        assert first == second

    def test_does_not_depend_on_the_order_of_pieces(self, tmp_path: Path) -> None:
        for piece, algo in enumerate(("sac", "ddpg", "pac4sac")):
            for seed in (9, 10):
                write_run(tmp_path / f"{piece}", CARTPOLE, algo, seed)
            expecting(tmp_path / f"{piece}", "table-1")
        pieces = [tmp_path / f"{piece}" for piece in range(3)]
        add_to_archive(pieces, tmp_path / "at-once")
        for piece in reversed(pieces):
            add_to_archive([piece], tmp_path / "one-by-one")
        assert contents(tmp_path / "at-once") == contents(tmp_path / "one-by-one")
        lines = (tmp_path / "at-once" / "runs" / "cartpole-swingup.jsonl").read_text().splitlines()
        told = [json.loads(line)["run"] for line in lines]
        assert told == [
            "ddpg-seed9",
            "ddpg-seed10",
            "pac4sac-seed9",
            "pac4sac-seed10",
            "sac-seed9",
            "sac-seed10",
        ]

    def test_can_be_added_to_another(self, tmp_path: Path) -> None:
        write_table_1(tmp_path / "study", ("cartpole-swingup",), seeds=1)
        add_to_archive([tmp_path / "study"], tmp_path / "one")
        add_to_archive([tmp_path / "one"], tmp_path / "two")
        assert contents(tmp_path / "one") == contents(tmp_path / "two")

    def test_keeps_episodes_of_any_length_evaluations_and_biases(self, tmp_path: Path) -> None:
        folder = write_run(
            tmp_path / "in", own_task(), "sac", 0, [1.0, 1 / 3, -2.5e-7], lengths=[200, 150, 7]
        )
        rows = [
            {"step": 1000, "bias": 0.1, "low": -0.2, "high": 0.3},
            {"step": 2000, "bias": None, "low": 0, "high": 1},
        ]
        (folder / "bias.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        kept, original = self._round_trip(tmp_path)
        assert kept.episodes == original.episodes
        assert kept.evaluations == original.evaluations
        assert kept.bias == original.bias == tuple(rows)

    def test_keeps_gaps_in_a_log_and_counts_them(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path / "in", CARTPOLE, "sac", 0)
        lines = (folder / "episodes.jsonl").read_text().splitlines()
        lines[3] = lines[3][:20]
        (folder / "episodes.jsonl").write_text("\n".join(lines) + "\n")
        kept, original = self._round_trip(tmp_path)
        assert kept.episodes == original.episodes
        assert kept.damage == original.damage == {"episodes": "1 unreadable line"}

    def _round_trip(self, tmp_path: Path) -> tuple[Any, Any]:
        add_to_archive([tmp_path / "in"], tmp_path / "archive")
        return read_runs(tmp_path / "archive")[0], read_runs(tmp_path / "in")[0]

    def test_can_be_read_as_a_table_of_episodes(self, tmp_path: Path) -> None:
        write_run(tmp_path / "in", CARTPOLE, "sac", 0)
        add_to_archive([tmp_path / "in"], tmp_path / "archive")
        assert list(results(tmp_path / "archive")["return"]) == list(
            results(tmp_path / "in")["return"]
        )

    def test_stores_the_size_and_the_training_time_of_a_cohort(self, tmp_path: Path) -> None:
        folders = [write_run(tmp_path / "in", CARTPOLE, "sac", seed) for seed in range(2)]
        cohort = [json.loads((folder / "run.json").read_text()) for folder in folders]
        (tmp_path / "in" / "experiment.json").write_text(
            json.dumps({"version": 1, "options": {}, "cohorts": [cohort]})
        )
        times = tmp_path / "in" / "cohorts" / "000" / "times.jsonl"
        times.parent.mkdir(parents=True)
        seconds = (10.0, 20.0, 5.0, 7.0)  # resumed once, when the clock starts anew
        times.write_text("".join(json.dumps({"step": 1, "seconds": s}) + "\n" for s in seconds))
        add_to_archive([tmp_path / "in"], tmp_path / "archive")
        row = json.loads(
            (tmp_path / "archive" / "runs" / "cartpole-swingup.jsonl").read_text().splitlines()[0]
        )
        assert row["cohort"] == {"runs": 2, "seconds": 27.0}

    def test_with_a_damaged_line_is_reported_and_not_overwritten(self, tmp_path: Path) -> None:
        write_table_1(tmp_path / "study", ("cartpole-swingup",), seeds=2)
        add_to_archive([tmp_path / "study"], tmp_path / "archive")
        file = tmp_path / "archive" / "runs" / "cartpole-swingup.jsonl"
        lines = file.read_text().splitlines()
        lines[1] = lines[1][:100]
        lines[2] = json.dumps(json.loads(lines[2]) | {"episodes": {"return": 7}})
        file.write_text("\n".join(lines) + "\n")
        found = collect([tmp_path / "archive"])
        assert len(found.runs) == 6
        assert [
            told
            for told in found.unreadable
            if "1 lines that are no JSON" in told or "cannot be read" in told
        ]
        assert len(found.unreadable) == 2
        with pytest.raises(UserError, match="repair it before you add"):
            add_to_archive([tmp_path / "study"], tmp_path / "archive")


class TestRunInSeveralPieces:
    def test_a_finished_copy_replaces_an_unfinished_copy(self, tmp_path: Path) -> None:
        write_run(
            tmp_path / "a",
            CARTPOLE,
            "sac",
            0,
            curve(CARTPOLE, (1, 0.3), 0)[:7],
            status="interrupted",
        )
        write_run(tmp_path / "b", CARTPOLE, "sac", 0)
        write_run(
            tmp_path / "c", CARTPOLE, "sac", 0, curve(CARTPOLE, (1, 0.3), 0)[:9], status="running"
        )
        added = add_to_archive(
            [tmp_path / "a", tmp_path / "b", tmp_path / "c"], tmp_path / "archive", unfinished=True
        )
        assert (added.new, added.replaced, added.known) == (1, 1, 1)
        assert read_runs(tmp_path / "archive")[0].status == "finished"

    def test_unfinished_runs_are_omitted_and_reported(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", CARTPOLE, "sac", 0, [1.0], status="interrupted")
        write_run(tmp_path / "a", CARTPOLE, "sac", 1, [1.0], status="running")
        write_run(tmp_path / "b", CARTPOLE, "sac", 1)
        added = add_to_archive([tmp_path / "a", tmp_path / "b"], tmp_path / "archive")
        assert added.unfinished == [str(tmp_path / "a" / "runs" / "sac-seed0")]
        assert [run.seed for run in read_runs(tmp_path / "archive")] == [1]

    def test_a_diverged_run_is_a_result_and_a_failed_one_may_be_trained_again(
        self, tmp_path: Path
    ) -> None:
        write_run(tmp_path / "a", CARTPOLE, "sac", 0, [1.0], status="diverged")
        write_run(tmp_path / "a", CARTPOLE, "sac", 1, [1.0], status="failed")
        write_run(tmp_path / "b", CARTPOLE, "sac", 1)
        add_to_archive([tmp_path / "a", tmp_path / "b"], tmp_path / "archive")
        assert [run.status for run in read_runs(tmp_path / "archive")] == ["diverged", "finished"]

    def test_finished_copies_must_agree_unless_keep_first_is_set(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", CARTPOLE, "sac", 0, [1.0] * 40)
        write_run(tmp_path / "b", CARTPOLE, "sac", 0, [2.0] * 40)
        shutil.copytree(tmp_path / "a", tmp_path / "again")
        assert add_to_archive([tmp_path / "a", tmp_path / "again"], tmp_path / "archive").known == 1
        before = contents(tmp_path / "archive")
        with pytest.raises(UserError, match="copies of the same run with different returns"):
            add_to_archive([tmp_path / "b"], tmp_path / "archive")
        added = add_to_archive([tmp_path / "b"], tmp_path / "archive", keep_first=True)
        assert len(added.differing) == 1
        assert contents(tmp_path / "archive") == before

    def test_measurements_of_an_equal_omitted_copy_are_kept(self, tmp_path: Path) -> None:
        def measure(folder: Path, log: str) -> None:
            (folder / f"{log}.jsonl").write_text(json.dumps({"step": 1000, log: 0.5}) + "\n")

        returns = curve(CARTPOLE, (1, 0.3), 0)
        measure(write_run(tmp_path / "a", CARTPOLE, "sac", 0, returns), "coverage")
        measure(
            write_run(tmp_path / "b", CARTPOLE, "sac", 0, returns, status="interrupted"), "bias"
        )
        measure(write_run(tmp_path / "c", CARTPOLE, "sac", 1, returns), "coverage")
        measure(
            write_run(tmp_path / "d", CARTPOLE, "sac", 1, returns[:5], status="interrupted"), "bias"
        )
        folders = [tmp_path / name for name in "abcd"]
        added = add_to_archive(folders, tmp_path / "archive", unfinished=True)
        assert (added.new, added.replaced, added.known) == (2, 1, 1)
        backwards = add_to_archive(folders[::-1], tmp_path / "backwards", unfinished=True)
        assert (backwards.new, backwards.replaced, backwards.known) == (2, 2, 0)
        assert contents(tmp_path / "archive") == contents(tmp_path / "backwards")
        for runs in (
            read_runs(tmp_path / "archive"),
            [run.record for run in collect(folders).runs],
        ):
            assert [(run.status, len(run.bias), len(run.coverage)) for run in runs] == [
                ("finished", 1, 1),
                ("finished", 0, 1),
            ]

    @pytest.mark.parametrize(
        ("first", "second", "taken", "reason"),
        [
            ((9, "interrupted"), (7, "running"), 9, "more episodes"),
            ((9, "interrupted"), (7, "diverged"), 7, "only the used copy came to its end"),
            ((9, "failed"), (7, "diverged"), 7, "only the used copy came to its end"),
            ((40, "interrupted"), (40, "finished"), 40, "they are equal"),
            ((40, "finished"), (30, "diverged"), 40, "only the used copy is complete"),
        ],
    )
    def test_a_report_and_an_archive_choose_the_same_copy(
        self,
        tmp_path: Path,
        first: tuple[int, str],
        second: tuple[int, str],
        taken: int,
        reason: str,
    ) -> None:
        for name, (episodes, status) in (("a", first), ("b", second)):
            write_run(tmp_path / "in" / name, CARTPOLE, "sac", 0, [1.0] * episodes, status=status)
        add_to_archive([tmp_path / "in"], tmp_path / "archive", unfinished=True, keep_first=True)
        (archived,), collection = read_runs(tmp_path / "archive"), collect([tmp_path / "in"])
        (reported,) = collection.runs
        assert len(archived.episodes) == len(reported.record.episodes) == taken
        assert (archived.status, archived.identity) == (
            reported.record.status,
            reported.record.identity,
        )
        assert reason in collection.twice[0]


class TestStudies:
    def test_parts_of_a_study_expect_the_runs_of_all_parts(self, tmp_path: Path) -> None:
        for seed in range(2):
            write_run(tmp_path / f"{seed}", CARTPOLE, "sac", seed)
            expecting(tmp_path / f"{seed}", "table-1")
        shutil.rmtree(tmp_path / "1" / "runs")
        added = add_to_archive([tmp_path / "0", tmp_path / "1"], tmp_path / "archive")
        assert added.studies == {"table-1": (1, 2)}
        assert [(run.label, run.seed) for run in collect([tmp_path / "archive"]).missing] == [
            ("sac", 1)
        ]

    def test_find_a_shared_run_under_their_own_names(self, tmp_path: Path) -> None:
        for study, label in (
            ("table-1", "pac4sac"),
            ("table-2", "bellman+conservative+exploration"),
        ):
            write_run(tmp_path / study, CARTPOLE, "pac4sac", 0, label=label)
            expecting(tmp_path / study, study)
        shutil.rmtree(tmp_path / "table-2" / "runs")
        add_to_archive([tmp_path / "table-1", tmp_path / "table-2"], tmp_path / "archive")
        found = collect([tmp_path / "archive"])
        assert not found.missing
        assert [run.labels for run in found.runs] == [
            ("bellman+conservative+exploration", "pac4sac")
        ]
        assert [run.studies for run in found.runs] == [("table-1", "table-2")]

    def test_of_calibration_exclude_their_runs_from_the_results(self, tmp_path: Path) -> None:
        write_run(tmp_path / "calibration", CARTPOLE, "sac", 1000)
        write_run(tmp_path / "results", CARTPOLE, "sac", 0)
        expecting(tmp_path / "calibration", "updates-per-step", "calibration")
        expecting(tmp_path / "results", "table-1")
        add_to_archive([tmp_path / "calibration", tmp_path / "results"], tmp_path / "archive")
        groups = variants_by_task(collect([tmp_path / "archive"]).runs)["cartpole-swingup"]
        assert [(group.label, group.runs[0].seed) for group in groups] == [
            ("sac", 0),
            ("sac (calibration)", 1000),
        ]

    def test_find_their_runs_by_name_if_they_store_no_identities(self, tmp_path: Path) -> None:
        write_run(tmp_path / "calibration", CARTPOLE, "sac", 1000)
        expecting(tmp_path / "calibration", "updates-per-step", "calibration")
        add_to_archive([tmp_path / "calibration"], tmp_path / "archive")
        study = tmp_path / "archive" / "studies" / "updates-per-step.json"
        about = json.loads(study.read_text())
        del about["expected_runs"][0]["identity"]
        study.write_text(json.dumps(about))
        found = collect([tmp_path / "archive"])
        assert [run.chose for run in found.runs] == ["calibration"]
        assert not found.missing

    def test_costs_of_two_machines_are_both_stored(self, tmp_path: Path) -> None:
        for device, gpu in (("cpu", None), ("cuda", "NVIDIA H200")):
            machine = {"system": "Linux", "processor": "x86_64", "cores": 16, "gpu": gpu}
            rows = [{"algo": "sac", "seconds_per_1000_steps": [1.0], "backend": "eager"}]
            write_study(tmp_path / device, "cost", "cost", "sac", [])
            (tmp_path / device / "cost.json").write_text(
                json.dumps({"machine": machine, "device": device, "rows": rows})
            )
        add_to_archive([tmp_path / "cpu", tmp_path / "cuda"], tmp_path / "archive")
        told = [path.name for path in sorted((tmp_path / "archive" / "costs").iterdir())]
        assert told == ["cpu-x86_64-16-cores.json", "cuda-nvidia-h200.json"]
        assert len(collect([tmp_path / "archive"]).costs) == 2


def test_a_cost_that_was_changed_is_reported(tmp_path: Path) -> None:
    rows = [{"algo": "sac", "seconds_per_1000_steps": [1.0], "backend": "eager"}]
    write_study(tmp_path / "cpu", "cost", "cost", "sac", [])
    (tmp_path / "cpu" / "cost.json").write_text(json.dumps(sealed({"device": "cpu", "rows": rows})))
    add_to_archive([tmp_path / "cpu"], tmp_path / "archive")
    (file,) = (tmp_path / "archive" / "costs").iterdir()
    assert len(collect([tmp_path / "archive"]).costs) == 1
    file.write_text(file.read_text().replace("1.0", "2.0"))
    with pytest.raises(UserError, match=f"{file.name} has been changed since it was written"):
        add_to_archive([tmp_path / "archive"], tmp_path / "new")


def test_the_command_reports_the_added_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("a"), CARTPOLE, "sac", 0)
    write_run(Path("a"), CARTPOLE, "sac", 1, [1.0], status="running")
    expecting(Path("a"), "table-1")
    assert main(["study", "collect", "a", "--into", "archive"]) == 0
    told = capsys.readouterr().out
    assert "1 new runs in archive" in told
    assert "1 unfinished runs were left out" in told
    assert "table-1: 1 of 2 expected runs; 1 missing" in told
    assert main(["study", "collect", "b", "--into", "archive"]) == 2
    assert "b is not a folder" in capsys.readouterr().err


def test_a_run_started_from_an_agent_is_stored_separately_from_one_with_new_weights(
    tmp_path: Path,
) -> None:
    agent = "0123456789ab"
    for seed in (0, 1):
        write_run(tmp_path / "scratch", CARTPOLE, "sac", seed)
        # Even under the same name.
        write_run(
            tmp_path / "from",
            CARTPOLE,
            "sac",
            seed,
            curve(CARTPOLE, (1.2, 0.1), seed),
            started_from=agent,
        )
    added = add_to_archive([tmp_path / "scratch", tmp_path / "from"], tmp_path / "archive")
    assert (added.new, added.known) == (4, 0)
    for place in ([tmp_path / "archive"], [tmp_path / "from", tmp_path / "scratch"]):
        found = collect(place)
        assert found.twice == ()
        scratch, started = sorted(
            (group for groups in variants_by_task(found.runs).values() for group in groups),
            key=lambda group: len(group.given),
        )
        assert [len(group.runs) for group in (scratch, started)] == [2, 2]
        assert scratch.given == {}
        assert started.given == {"started_from": agent}
        assert agent in started.label
        assert f"--from AGENT-{agent}" in started.command
        assert "--from" not in scratch.command
        assert "--set" not in started.command
