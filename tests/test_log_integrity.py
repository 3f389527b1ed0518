"""Logs know their length, and what is damaged is told by name: on the terminal, on the page and in
a data frame."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_folders import curve, task, write_run
from tiny_experiments import about, copy, same, train

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.certificates.certificate import about_training
from pac4sac.cli.main import main
from pac4sac.report.report import write_report
from pac4sac.report.variants import outcome_of
from pac4sac.runs.archive import add_to_archive
from pac4sac.runs.collection import collect
from pac4sac.runs.frames import results
from pac4sac.runs.logs import LOGS, fits, read_log, seal_of
from pac4sac.runs.metrics import last_evaluations
from pac4sac.runs.reading import read_experiment, read_run, read_runs
from pac4sac.training.run_folder import log_time

CARTPOLE = task("cartpole-swingup")
SEEDS = ("sac-seed0", "sac-seed1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(
        tmp_path_factory.mktemp("logs") / "x", bias_every=100, bias_episodes=2, coverage_every=100
    ).folder


@pytest.fixture
def experiment(finished: Path, tmp_path: Path) -> Path:
    return copy(finished, tmp_path / "x")


def change(path: Path, edit: Callable[[list[str]], list[str]]) -> None:
    path.write_text("".join(edit(path.read_text().splitlines(keepends=True))))


class TestFinishedRun:
    def test_stores_lines_and_checksum_of_every_log(self, experiment: Path) -> None:
        for run in SEEDS:
            seals = about(experiment, run)["logs"]
            assert set(seals) == set(LOGS)
            for name, seal in seals.items():
                content = (experiment / "runs" / run / f"{name}.jsonl").read_bytes()
                assert seal == seal_of(content)
                assert seal["lines"] == len(content.splitlines()) > 0
        assert all(run.damage == {} for run in read_runs(experiment))

    @pytest.mark.parametrize("log", LOGS)
    def test_a_log_cut_at_the_end_of_a_line_is_detected(self, experiment: Path, log: str) -> None:
        path = experiment / "runs" / SEEDS[0] / f"{log}.jsonl"
        lines = len(path.read_text().splitlines())
        change(path, lambda rows: rows[:-1])
        damaged, whole = read_runs(experiment)
        assert damaged.damage == {log: f"{lines - 1} of {lines} lines"}
        assert whole.damage == {}
        path.unlink()
        assert read_run(path.parent).damage == {log: f"0 of {lines} lines"}

    def test_a_changed_digit_and_a_repeated_line_are_detected(self, experiment: Path) -> None:
        path = experiment / "runs" / SEEDS[0] / "episodes.jsonl"
        whole = path.read_text()
        path.write_text(whole.replace('"length": ', '"length": 1', 1))
        assert read_run(path.parent).damage == {"episodes": "changed since the run ended"}
        path.write_text(whole + whole.splitlines(keepends=True)[-1])
        lines = len(whole.splitlines())
        assert read_run(path.parent).damage == {"episodes": f"{lines + 1} of {lines} lines"}

    def test_an_unfinished_run_has_no_seal_until_it_ends(
        self, finished: Path, tmp_path: Path
    ) -> None:
        measured = {"bias_every": 100, "bias_episodes": 2, "coverage_every": 100}
        folder = train(tmp_path / "y", max_minutes=1e-9, **measured).folder
        assert "logs" not in about(folder, SEEDS[0])
        assert pac4sac.resume(folder).complete
        assert same(folder, finished, "run.json")

    def test_an_extended_run_is_sealed_again(self, experiment: Path) -> None:
        pac4sac.resume(experiment, steps=260)
        assert all(
            run.damage == {} and run.episodes[-1]["step"] > 230 for run in read_runs(experiment)
        )
        assert "logs" in about(experiment, SEEDS[0])


class TestTheSchema:
    @pytest.mark.parametrize(
        ("log", "good", "bad"),
        [
            (
                "episodes",
                {"episode": 0, "step": 5, "return": -1.5, "length": 5},
                [
                    *(
                        {"return": float("nan")},
                        {"return": None},
                        {"length": 5.5},
                        {"step": -1},
                        {"episode": True},
                    ),
                    *({"return": 10**400}, {"step": 2**63}, {"return": "1"}, {"step": [5]}),
                ],
            ),
            (
                "evaluations",
                {"step": 5, "policy": "deterministic", "mean": None, "returns": [1.0, None]},
                [
                    {"step": "5"},
                    {"policy": "\ud800"},
                    {"mean": float("inf")},
                    {"returns": 7},
                    {"returns": ["x"]},
                ],
            ),
            (
                "metrics",
                {"step": 5, "critic_loss": None, "alpha": 0.2},
                [{"alpha": "high"}, {"step": None}],
            ),
            (
                "bias",
                {"step": 5, "bias": 0.1, "low": None},
                [{"bias": float("-inf")}, {"low": []}, {"step": 0.5}],
            ),
            (
                "coverage",
                {"step": 5, "nearest": 1.0, "states": 2},
                [{"states": {}}, {"nearest": True}],
            ),
        ],
    )
    def test_rows_are_of_the_right_types_in_range_and_finite(
        self, tmp_path: Path, log: str, good: dict[str, Any], bad: list[dict[str, Any]]
    ) -> None:
        assert fits(log, good)
        rows = [good | wrong for wrong in bad]
        assert not any(fits(log, row) for row in rows)
        path = tmp_path / f"{log}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, good]) + "garbled\n")
        assert read_log(path) == ([good], f"{len(bad) + 1} unreadable lines")

    def test_a_path_that_is_not_a_file_is_reported(self, tmp_path: Path) -> None:
        (tmp_path / "bias.jsonl").mkdir()
        assert read_log(tmp_path / "bias.jsonl") == ([], "it is not a regular file")
        assert read_log(tmp_path / "coverage.jsonl") == ([], "")

    def test_an_invalid_seal_is_reported_and_a_missing_one_is_not(self, tmp_path: Path) -> None:
        path = tmp_path / "coverage.jsonl"
        path.write_text('{"step": 1}\n')
        for seal, damage in (
            (None, ""),
            ([], ""),
            ({"lines": "x"}, "1 of x lines"),
            ({"lines": 1}, "changed since"),
        ):
            assert read_log(path, seal)[1].startswith(damage)


class TestTheFinalEvaluation:
    def evaluated(self, folder: Path, *lines: str, **changes: Any) -> dict[str, float]:
        run = write_run(folder, CARTPOLE, "sac", 0, curve(CARTPOLE, (1.2, 0.3), 0), **changes)
        (run / "evaluations.jsonl").write_text("".join(lines))
        return dict(outcome_of(collect([folder]).runs[0]).metrics)

    def row(self, step: int, mean: float | None) -> str:
        return (
            json.dumps({"step": step, "policy": "deterministic", "mean": mean, "returns": []})
            + "\n"
        )

    def test_is_the_last(self, tmp_path: Path) -> None:
        assert (
            self.evaluated(tmp_path, self.row(20_000, 1.0), self.row(40_000, 2.0))[
                "final_deterministic"
            ]
            == 2.0
        )

    def test_is_unknown_if_later_lines_are_damaged(self, tmp_path: Path) -> None:
        assert "final_deterministic" not in self.evaluated(
            tmp_path, self.row(40_000, 1.0), "garbled\n"
        )
        with pytest.warns(UserWarning, match=r"sac-seed0`: evaluations \(1 unreadable line\)"):
            page = write_report([tmp_path], tmp_path / "report").page.read_text()
        assert "every line of their logs was read" not in page
        assert "evaluations (1 unreadable line)" in page
        assert "1 with damaged logs" in page

    def test_is_unknown_if_the_log_is_cut(self, tmp_path: Path) -> None:
        older = self.evaluated(tmp_path / "a", self.row(20_000, 1.0))  # and unsealed
        assert "final_deterministic" not in older
        whole = self.row(40_000, 1.0) + self.row(40_500, 2.0)
        logs = {"logs": {"evaluations": seal_of(whole.encode())}}
        metrics = self.evaluated(tmp_path / "b", self.row(40_000, 1.0), **logs)
        assert "final_deterministic" not in metrics

    def test_is_unknown_if_its_simulators_failed(self, tmp_path: Path) -> None:
        assert "final_deterministic" not in self.evaluated(
            tmp_path, self.row(20_000, 1.0), self.row(40_000, None)
        )
        assert last_evaluations(read_runs(tmp_path)[0]) == {}


class TestReadersReportDamage:
    @pytest.fixture
    def damaged(self, experiment: Path) -> Path:
        change(
            experiment / "runs" / SEEDS[0] / "evaluations.jsonl", lambda rows: [*rows[:-1], "{\n"]
        )
        change(experiment / "runs" / SEEDS[1] / "episodes.jsonl", lambda rows: rows[1:])
        return experiment

    def told(self, text: str) -> bool:
        lost = (
            f"{SEEDS[0]} has damaged logs" in text
            and "evaluations (changed since the run ended, 1 unreadable" in text
        )
        return lost and f"{SEEDS[1]} has damaged logs" in text and "episodes (" in text

    def test_results(self, damaged: Path) -> None:
        pytest.importorskip("pandas")
        with pytest.warns(UserWarning, match="has damaged logs") as caught:
            frame = results(damaged)
        assert [str(warning.message) for warning in caught] == frame.attrs["left_out"]
        assert self.told("\n".join(frame.attrs["left_out"]))
        assert len(frame.attrs["left_out"]) == 2

    def test_results_of_intact_runs_give_no_warning(self, finished: Path) -> None:
        pytest.importorskip("pandas")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert results(finished).attrs["left_out"] == []

    def test_results_of_an_archive_with_a_broken_line(self, finished: Path, tmp_path: Path) -> None:
        pytest.importorskip("pandas")
        add_to_archive([finished], tmp_path / "archive")
        change(
            tmp_path / "archive" / "runs" / "drift.jsonl",
            lambda rows: [rows[0], rows[1][:50] + "\n"],
        )
        with pytest.warns(UserWarning, match="1 lines that are not JSON"):
            frame = results(tmp_path / "archive")
        assert set(frame["run"]) == {SEEDS[0]}
        assert len(frame.attrs["left_out"]) == 1

    @pytest.mark.parametrize("command", ["resume", "evaluate", "collect"])
    def test_commands(
        self, damaged: Path, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = {
            "resume": ["resume", str(damaged)],
            "evaluate": ["evaluate", str(damaged), "--episodes", "1"],
            "collect": ["study", "collect", str(damaged), "--into", str(tmp_path / "archive")],
        }
        code = main(given[command])
        error = capsys.readouterr().err
        if command == "resume":  # whose checkpoint counts on the logs
            assert code == 2
            assert "was changed or cut after this checkpoint" in error
        else:
            assert code == 0
            assert self.told(error)

    def test_a_certificate(self, damaged: Path) -> None:
        (remark,) = about_training(damaged / "runs" / SEEDS[0] / "agent.safetensors")
        assert "logs of the training are damaged: evaluations (" in remark

    def test_an_archive_keeps_the_damage(self, damaged: Path, tmp_path: Path) -> None:
        with pytest.warns(UserWarning, match="damaged logs"):
            add_to_archive([damaged], tmp_path / "archive")
        kept, original = read_runs(tmp_path / "archive"), read_runs(damaged)
        assert [run.damage for run in kept] == [run.damage for run in original]
        assert all(run.damage for run in kept)

    def test_an_undamaged_copy_is_preferred(self, damaged: Path, finished: Path) -> None:
        assert all(run.record.damage == {} for run in collect([damaged, finished]).runs)


class TestAnArchivedLine:
    def test_has_a_checksum_that_detects_a_change(self, finished: Path, tmp_path: Path) -> None:
        archive = tmp_path / "archive"
        add_to_archive([finished], archive)
        file = archive / "runs" / "drift.jsonl"
        whole = file.read_bytes()
        assert len(read_runs(archive)) == 2
        add_to_archive([finished], archive)
        assert file.read_bytes() == whole
        change(file, lambda rows: [rows[0].replace('"seed": 0', '"seed": 7', 1), rows[1]])
        with pytest.raises(
            UserError, match=f"line of {SEEDS[0]} in .* has been changed since it was written"
        ):
            read_runs(archive)
        collection = collect([archive])
        assert [run.record.run for run in collection.runs] == [SEEDS[1]]
        assert "has been changed since it was written" in collection.unreadable[0]

    def test_of_an_older_run_has_none_and_is_not_changed(self, tmp_path: Path) -> None:
        write_run(tmp_path / "in", CARTPOLE, "sac", 0)
        add_to_archive([tmp_path / "in"], tmp_path / "archive")
        assert (
            "sha256" not in (tmp_path / "archive" / "runs" / "cartpole-swingup.jsonl").read_text()
        )
        assert read_runs(tmp_path / "archive")[0].damage == {}


def test_the_published_runs_are_undamaged() -> None:
    runs = read_runs(Path(__file__).parents[1] / "results")
    assert len(runs) > 100
    assert not any(run.damage for run in runs)


def test_an_evaluation_may_lack_its_returns_and_needs_a_policy_by_name() -> None:
    row = {"step": 1, "policy": "deterministic", "mean": 1.0}
    assert fits("evaluations", row)
    assert not fits("evaluations", row | {"policy": {"name": "deterministic"}})


def test_runs_whose_evaluations_lack_returns_are_compared_with_their_copies(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        run = write_run(tmp_path / folder, CARTPOLE, "sac", 0)
        row = {"step": 1, "policy": "deterministic", "mean": 1.0}
        (run / "evaluations.jsonl").write_text(json.dumps(row) + "\n")
    assert len(collect([tmp_path / "a", tmp_path / "b"]).runs) == 1


@pytest.mark.parametrize("entry", ["simulators", "code", "given", "given_task"])
def test_an_entry_that_is_not_a_table_is_reported(experiment: Path, entry: str) -> None:
    path = experiment / "experiment.json"
    stored = json.loads(path.read_text())
    stored["cohorts"][0][0][entry] = "gymnasium"
    path.write_text(json.dumps(stored))
    with pytest.raises(UserError, match=entry):
        read_experiment(experiment)


def test_a_log_of_times_that_is_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "times.jsonl")
    with pytest.raises(OSError, match=r"times\.jsonl"):
        log_time(tmp_path, 1, 0.0, 0.0)
