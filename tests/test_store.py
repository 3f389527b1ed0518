"""Run folders read back: tolerant of what a killed writer leaves, clear about what is no run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pac4sac.base.errors import UserError
from pac4sac.base.files import read_json, read_jsonl, write_json
from pac4sac.report.learning_curves import (
    group_by_variant,
    learning_curve_picture,
    mean_curve,
    smooth,
)
from pac4sac.runs.archive import add_to_archive
from pac4sac.runs.frames import results, varying_settings
from pac4sac.runs.reading import RunRecord, find_runs, read_run, read_runs, sealed

TASK = {
    "name": "cartpole-swingup",
    "env_id": "pac4sac/CartpoleSwingup-v0",
    "horizon": 1000,
    "r_limit": 850.0,
}

WHOLE = {
    "version": 1,
    "run": "sac-s0",
    "task": TASK,
    "algo": "sac",
    "seed": 0,
    "config": {},
    "status": "finished",
}
OF_ANOTHER_KIND = (
    {"revision": "x"},
    {"label": 3},
    {"preset": None},
    {"versions": []},
    {"machine": "x"},
)


def write_run(experiment: Path, run: str, returns: list[float], **changes: Any) -> Path:
    folder = experiment / "runs" / run
    folder.mkdir(parents=True)
    about = {
        "version": 1,
        "run": run,
        "task": TASK,
        "algo": "pac4sac",
        "seed": 0,
        "config": {"xi": 0.01, "gamma": 0.99},
        "status": "finished",
        "status_detail": None,
        "versions": {"pac4sac": "0.1.0"},
        "machine": {"cores": 2},
    }
    (folder / "run.json").write_text(json.dumps(about | changes))
    rows = [
        {"episode": k, "step": 1000 * (k + 1), "return": r, "length": 1000}
        for k, r in enumerate(returns)
    ]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


class TestStoredSettings:
    """What a run is known by is stored with it; settings of today's code are never consulted."""

    def read(self, folder: Path, name: str, config: dict[str, Any], algo: str) -> RunRecord:
        return read_run(write_run(folder, name, [1.0], config=config, algo=algo))

    @pytest.mark.parametrize("algo", ["pac4sac", "mine:Own"])
    def test_are_taken_as_they_are(self, tmp_path: Path, algo: str) -> None:
        old = self.read(tmp_path, "old", {"gamma": 0.9, "no_longer_there": 1.0}, algo)
        new = self.read(tmp_path, "new", {"gamma": 0.9}, algo)
        assert old.config == {"gamma": 0.9, "no_longer_there": 1.0}
        assert new.config == {"gamma": 0.9}
        assert old.identity != new.identity

    def test_of_an_unreadable_kind_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="has no valid gamma"):
            self.read(tmp_path, "run", {"gamma": [0.9]}, "sac")


class TestJsonLines:
    def test_half_written_lines_are_skipped_and_counted(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_bytes(b'{"a": 1}\n{"a": 2, "b\n{"a": 3}\n\n\xff\xfe\x00\n[1, 2]\n{"a": 4')
        assert read_jsonl(path) == ([{"a": 1}, {"a": 3}], 4)

    def test_a_last_line_without_its_newline_counts_if_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_text('{"a": 1}\n{"a": 2}')
        assert read_jsonl(path) == ([{"a": 1}, {"a": 2}], 0)

    def test_a_prefix_of_a_row_is_not_a_row(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        line = json.dumps({"episode": 12, "step": 13_000, "return": -3.25, "length": 1000}).encode()
        for length in range(1, len(line)):
            path.write_bytes(line[:length])
            assert read_jsonl(path) == ([], 1)

    def test_a_run_without_a_log_yet_has_no_rows(self, tmp_path: Path) -> None:
        assert read_jsonl(tmp_path / "episodes.jsonl") == ([], 0)


class TestJson:
    def test_a_lone_surrogate_is_written_as_a_question_mark(self, tmp_path: Path) -> None:
        write_json(tmp_path / "study.json", {"definition": os.fsdecode(b"\xff.toml"), "ξ": "😀"})
        assert read_json(tmp_path / "study.json") == {"definition": "?.toml", "ξ": "😀"}

    def test_a_broken_link_is_reported_and_hides_no_run(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path, "sac-s0", [])
        write_run(tmp_path, "sac-s1", [])
        (folder / "run.json").unlink()
        (folder / "run.json").symlink_to("nowhere")
        with pytest.warns(UserWarning, match=r"sac-s0/run\.json cannot be read"):
            results(tmp_path)


class TestFindingRuns:
    def test_an_experiment_folder_gives_its_runs_in_natural_order(self, tmp_path: Path) -> None:
        for seed in (10, 9, 0):
            write_run(tmp_path, f"pac4sac-s{seed}", [])
        assert [run.name for run in find_runs(tmp_path)] == [
            "pac4sac-s0",
            "pac4sac-s9",
            "pac4sac-s10",
        ]

    def test_a_run_folder_gives_itself(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path, "pac4sac-s0", [])
        assert find_runs(str(folder)) == [folder]

    def test_a_missing_folder_is_reported(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="does not exist"):
            find_runs(tmp_path / "nowhere")

    def test_a_folder_without_run_files_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("nothing")
        with pytest.raises(UserError, match=r"neither run\.json nor runs/"):
            find_runs(tmp_path)


class TestReadingRuns:
    def test_a_record_holds_config_status_and_episodes(self, tmp_path: Path) -> None:
        folder = write_run(
            tmp_path,
            "sac-s3",
            [1.5, 2.5],
            algo="sac",
            seed=3,
            status="diverged",
            status_detail="NaN",
        )
        run = read_run(folder)
        assert (run.run, run.algo, run.seed, run.status, run.status_detail) == (
            "sac-s3",
            "sac",
            3,
            "diverged",
            "NaN",
        )
        assert run.config["xi"] == 0.01
        assert run.returns.tolist() == [1.5, 2.5]
        assert run.steps.tolist() == [1000, 2000]
        assert run.damage == {}

    def test_rows_that_are_not_episodes_are_counted_as_skipped(self, tmp_path: Path) -> None:
        folder = write_run(tmp_path, "sac-s0", [1.0])
        with (folder / "episodes.jsonl").open("a") as log:
            log.write(
                '{"episode": 1, "step": 2000, "return": "high", "length": 1000}\n{"episode": 2}\n{"epis'
            )
        run = read_run(folder)
        assert run.returns.tolist() == [1.0]
        assert run.damage == {"episodes": "3 unreadable lines"}

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ('{"version": 1, "run', "is damaged"),
            ("[]", "not a table of names"),
            ('{"version": 2}', "version 2"),
            (
                '{"version": 1, "run": "x", "task": {}, "algo": "sac", "seed": "0"}',
                "seed, config, status",
            ),
            *(
                (json.dumps(WHOLE | wrong), f"has no valid {next(iter(wrong))}")
                for wrong in OF_ANOTHER_KIND
            ),
            (json.dumps(WHOLE | {"config": {"gamma": ["x"]}}), "has no valid gamma"),
            (json.dumps(WHOLE | {"task": TASK | {"env_kwargs": "x"}}), "has no valid env_kwargs"),
            (json.dumps(WHOLE | {"versions": {"numpy": {}}}), "has no valid numpy"),
        ],
    )
    def test_a_damaged_or_foreign_run_file_is_named(
        self, tmp_path: Path, text: str, reason: str
    ) -> None:
        folder = write_run(tmp_path, "sac-s0", [])
        (folder / "run.json").write_text(text)
        with pytest.raises(UserError, match=reason) as told:
            read_runs(tmp_path)
        assert "sac-s0" in str(told.value)


class TestResults:
    @pytest.fixture
    def experiment(self, tmp_path: Path) -> Path:
        write_run(tmp_path, "a", [1.0, 2.0], seed=0, config={"xi": 0.0, "gamma": 0.99})
        write_run(tmp_path, "b", [3.0], seed=0, config={"xi": 0.1, "gamma": 0.99})
        write_run(tmp_path, "c", [4.0], seed=1, algo="sac", config={"gamma": 0.9})
        return tmp_path

    def test_is_a_data_frame_of_episodes_with_the_settings_that_differ(
        self, experiment: Path
    ) -> None:
        pytest.importorskip("pandas")
        frame = results(experiment)
        assert list(frame.columns) == [
            "run",
            "task",
            "algo",
            "seed",
            "episode",
            "step",
            "return",
            "length",
            "xi",
        ]
        assert frame["return"].tolist() == [1.0, 2.0, 3.0, 4.0]
        assert frame.groupby("run")["return"].mean().to_dict() == {"a": 1.5, "b": 3.0, "c": 4.0}
        assert frame["xi"].isna().tolist() == [False, False, False, True]

    def test_is_a_dict_of_arrays_without_pandas(
        self, experiment: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pandas", None)
        arrays = results(experiment)
        assert isinstance(arrays, dict)
        np.testing.assert_array_equal(arrays["return"], [1.0, 2.0, 3.0, 4.0])
        np.testing.assert_array_equal(arrays["run"], ["a", "a", "b", "c"])
        assert arrays["xi"].tolist() == [0.0, 0.0, 0.1, None]

    def test_gives_any_log_with_settings_in_separate_columns(
        self, experiment: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pandas", None)
        for run, rows in {
            "a": [{"step": 10, "q": 1.5, "xi": 0.2}],
            "c": [{"step": 20, "entropy": None}],
        }.items():
            (experiment / "runs" / run / "metrics.jsonl").write_text(
                "".join(json.dumps(row) + "\n" for row in rows)
            )
        metrics = results(experiment, kind="metrics")
        assert list(metrics) == [
            "run",
            "task",
            "algo",
            "seed",
            "step",
            "q",
            "xi",
            "entropy",
            "setting xi",
        ]
        assert [metrics[name].tolist() for name in ("run", "step", "q", "xi")] == [
            ["a", "c"],
            [10, 20],
            [1.5, None],
            [0.2, None],
        ]
        assert metrics["setting xi"].tolist() == [0.0, None]
        evaluations = [{"step": 9, "policy": "greedy", "mean": 1.5, "returns": [1.0, 2.0]}]
        (experiment / "runs" / "a" / "evaluations.jsonl").write_text(
            json.dumps(evaluations[0]) + "\n"
        )
        assert results(experiment, "evaluations")["returns"].tolist() == [[1.0, 2.0]]

    def test_suggests_existing_logs_and_how_to_write_one(self, experiment: Path) -> None:
        with pytest.raises(UserError, match="'metric'; did you mean metrics"):
            results(experiment, "metric")
        with pytest.raises(
            UserError, match="has logged bias, which are written with --bias-every N"
        ):
            results(experiment, "bias")

    def test_takes_a_single_run(self, experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pandas", None)
        assert results(experiment / "runs" / "b")["return"].tolist() == [3.0]

    def test_settings_that_differ_only_between_algorithms_or_tasks_do_not_vary(
        self, experiment: Path
    ) -> None:
        write_run(
            experiment, "d", [], task=TASK | {"name": "ant"}, config={"xi": 0.0, "gamma": 0.5}
        )
        assert varying_settings(read_runs(experiment)) == ("xi",)


class TestCurves:
    def test_runs_that_differ_in_their_seed_share_a_variant(self, tmp_path: Path) -> None:
        for seed in range(2):
            write_run(tmp_path, f"a{seed}", [], seed=seed, config={"xi": 0.0})
            write_run(tmp_path, f"b{seed}", [], seed=seed, config={"xi": 0.1})
        groups = group_by_variant(read_runs(tmp_path))
        assert {label: [run.run for run in runs] for label, runs in groups.items()} == {
            "pac4sac, xi=0": ["a0", "a1"],
            "pac4sac, xi=0.1": ["b0", "b1"],
        }

    def test_the_mean_covers_the_steps_that_all_runs_have(self, tmp_path: Path) -> None:
        for seed, returns in enumerate(([1.0, 2.0, 3.0], [3.0, 4.0], [5.0, 6.0, 9.0])):
            write_run(tmp_path, f"s{seed}", returns, seed=seed)
        mean = mean_curve(read_runs(tmp_path))
        assert mean is not None
        steps, returns, low, high = mean
        assert steps.tolist() == [1000, 2000]
        assert returns.tolist() == [3.0, 4.0]
        # Three times the smallest is drawn once in 27 times, which is more than 2.5 %; so is three
        # times the largest.
        assert (low.tolist(), high.tolist()) == ([1.0, 2.0], [5.0, 6.0])

    def test_two_seeds_give_no_interval(self, tmp_path: Path) -> None:
        for seed in range(2):
            write_run(tmp_path, f"s{seed}", [1.0, 2.0], seed=seed)
        mean = mean_curve(read_runs(tmp_path))
        assert mean is not None
        assert np.isnan(mean[2]).all()

    def test_smoothing_looks_back_only(self) -> None:
        assert smooth(np.array([1.0, 3.0, 5.0, 100.0]), 2).tolist() == [1.0, 2.0, 4.0, 52.5]
        assert smooth(np.array([1.0, 3.0]), 5).tolist() == [1.0, 2.0]

    def test_a_figure_is_drawn_of_running_diverged_and_empty_runs(self, tmp_path: Path) -> None:
        for seed in range(3):
            write_run(tmp_path, f"s{seed}", [100.0 * seed, 200.0, 300.0], seed=seed)
        write_run(tmp_path, "s3", [50.0], seed=3, status="diverged")
        write_run(tmp_path, "s4", [], seed=4, status="running")
        write_run(
            tmp_path,
            "t0",
            [1.0],
            algo="sac",
            status="failed",
            task=TASK | {"name": "Pendulum-v1", "r_limit": None},
        )
        picture = tmp_path / "curves.png"
        learning_curve_picture(picture, read_runs(tmp_path))
        assert picture.read_bytes().startswith(b"\x89PNG")
        again = tmp_path / "again.png"
        learning_curve_picture(again, read_runs(tmp_path))
        assert again.read_bytes() == picture.read_bytes()


def test_reporting_works_without_simulators_and_a_display() -> None:
    program = (
        "import sys\n"
        "sys.modules['pybullet'] = None\n"
        "import pac4sac.runs.metrics, pac4sac.runs.reading, "
        "pac4sac.report.figures\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_description_that_was_changed_is_reported(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "sac-s0", [1.0])
    write_run(tmp_path, "sac-s1", [1.0])
    about = sealed(json.loads((folder / "run.json").read_text()))
    (folder / "run.json").write_text(json.dumps(about))
    assert read_run(folder).config["gamma"] == 0.99
    for change in ({"gamma": "x"}, {"gamma": 0.9}, {"gamma": True}, {"extra": 1}):
        changed = about | {"config": about["config"] | change}
        (folder / "run.json").write_text(json.dumps(changed))
        with pytest.raises(UserError, match=r"run\.json has been changed since it was written"):
            read_run(folder)
        with pytest.warns(UserWarning, match="has been changed since it was written"):
            results(tmp_path)


def test_a_repeated_line_of_an_archive_is_read_once_and_reported(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "sac-s0", [1.0])
    add_to_archive([tmp_path / "runs"], tmp_path / "archive")
    (file,) = (tmp_path / "archive" / "runs").iterdir()
    before = results(tmp_path / "archive")
    file.write_text(2 * file.read_text())
    with pytest.warns(UserWarning, match="1 lines that are duplicates"):
        assert len(results(tmp_path / "archive")["episode"]) == len(before["episode"])
    with pytest.raises(UserError, match="duplicates"):
        add_to_archive([tmp_path / "runs"], tmp_path / "archive")


def test_an_emptied_archive_is_reported(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "sac-s0", [1.0])
    add_to_archive([tmp_path / "runs"], tmp_path / "archive")
    (file,) = (tmp_path / "archive" / "runs").iterdir()
    file.write_text("")
    with pytest.raises(UserError, match=f"{file.name} is empty"):
        add_to_archive([tmp_path / "archive"], tmp_path / "new")
