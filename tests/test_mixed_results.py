"""Results of different code, length or options are never mixed without a word."""

import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from report_folders import task, write_run
from rich.console import Console
from tiny_experiments import OPTIONS, SETTINGS, about, train

import pac4sac
from pac4sac.agents.sac import Sac
from pac4sac.base.errors import UserError
from pac4sac.base.sources import simulator_versions, source_checksums
from pac4sac.cli.study_display import StudyDisplay
from pac4sac.report.commands import train_command
from pac4sac.report.grouping import variants_by_task
from pac4sac.runs.archive import add_to_archive
from pac4sac.runs.collection import collect
from pac4sac.runs.merging import merge, reason_for_choice
from pac4sac.runs.reading import RunRecord, read_run, read_runs
from pac4sac.studies.compare import comparison_study
from pac4sac.studies.definition import load_study
from pac4sac.studies.plan import begin, plan
from pac4sac.studies.run import run_study, train_and_report
from pac4sac.studies.watcher import Watcher
from pac4sac.tasks import get_task
from pac4sac.training.run import make_runs

PACKAGE = Path(pac4sac.__file__).parent
RUN = "sac-seed0"
BOOTSTRAP = "q2 - self.alpha(state)[:, None] * log_pi"


class TestEditOfThePackage:
    """A copy of the package is edited; it runs in processes of its own."""

    @pytest.fixture
    def package(self, tmp_path: Path) -> Path:
        copied = tmp_path / "edited" / "pac4sac"
        shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__", "agents.bak"))
        return copied

    def command(self, package: Path, *words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(package.parent)}
        command = [sys.executable, "-m", "pac4sac", *words]
        return subprocess.run(
            command, cwd=package.parent, env=environment, capture_output=True, text=True
        )

    def compare(self, package: Path, algos: str, seeds: str, *more: str) -> str:
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        words = ["compare", "Pendulum-v1", "--algos", algos, "--seeds", seeds, "--steps", "60"]
        done = self.command(package, *words, "--out", "study", "--set", *settings, *more)
        assert done.returncode == 0, done.stderr
        return " ".join((done.stdout + done.stderr).split())

    def edit(self, package: Path) -> str:
        """Change the Bellman target of SAC; return the source as it was."""
        file = package / "agents" / "sac.py"
        text = file.read_text()
        assert BOOTSTRAP in text
        file.write_text(text.replace(BOOTSTRAP, f"0.5 * ({BOOTSTRAP})"))
        return text

    def test_is_reported_and_its_runs_are_trained_again(self, package: Path) -> None:
        self.compare(package, "sac,td3", "0")
        text = self.edit(package)
        folder = package.parent / "study" / "experiments"
        before = set(folder.iterdir())
        shown = self.compare(package, "sac,td3", "0")
        assert "the source of pac4sac.agents.sac was edited" in shown
        assert len(set(folder.iterdir()) - before) == 1  # SAC alone: TD3 does not use that file
        (package / "agents" / "sac.py").write_text(text + "\n# A comment.\n")
        assert "was edited" not in self.compare(package, "sac,td3", "0")

    def test_sets_runs_of_further_seeds_apart_and_ends_extensions(self, package: Path) -> None:
        study = package.parent / "study"
        self.compare(package, "sac,td3", "0,1")
        self.edit(package)
        (experiment,) = study.glob("experiments/*-sac*")
        refused = self.command(package, "resume", str(experiment), "--steps", "120")
        assert refused.returncode == 2
        assert "the source of pac4sac.agents.sac was edited" in refused.stderr
        assert {run.task["steps"] for run in read_runs(experiment)} == {60}
        shown = self.compare(package, "sac,td3", "0:3", "--keep-stale")
        assert "sac (by older code) 2 of 2" in shown
        assert "sac 1 of 1" in shown
        shown = self.compare(package, "sac,td3", "0:3")
        assert "sac 3 of 3" in shown
        runs = [run.record for run in collect([study]).runs if run.record.algo == "sac"]
        assert len({str(run.about["code"]) for run in runs}) == 1


class TestExtension:
    def test_makes_a_run_of_that_length(self, tmp_path: Path) -> None:
        folder = train(tmp_path / "x", seeds=[0], steps=60).folder
        (before,) = read_runs(folder)
        pac4sac.resume(folder, steps=120)
        (after,) = read_runs(folder)
        assert (before.task["steps"], after.task["steps"]) == (60, 120)
        assert before.identity != after.identity
        described = json.loads((folder / "experiment.json").read_text())["cohorts"][0][0]
        assert described["task"]["steps"] == 120

    def test_ends_as_a_training_of_that_length(self, tmp_path: Path) -> None:
        folder = train(tmp_path / "x", seeds=[0], steps=60).folder
        pac4sac.resume(folder, steps=120)
        whole = train(tmp_path / "whole", seeds=[0], steps=120).folder
        extended, at_once = (read_run(f / "runs" / RUN) for f in (folder, whole))
        assert extended.identity == at_once.identity
        assert extended.returns.tolist() == at_once.returns.tolist()

    def test_is_in_the_command_of_the_report(self, tmp_path: Path) -> None:
        folder = train(tmp_path / "x", seeds=[0], steps=60).folder
        pac4sac.resume(folder, steps=120)
        assert "--steps 120" in train_command(read_runs(folder), "0")

    def test_distinguishes_runs_from_shorter_runs(self, tmp_path: Path) -> None:
        extended = train(tmp_path / "a", seeds=[0], steps=60).folder
        pac4sac.resume(extended, steps=120)
        train(tmp_path / "b", seeds=[1, 2], steps=60)
        by_task = variants_by_task(collect([tmp_path]).runs)
        sizes = {title: [len(each.outcomes) for each in by_task[title]] for title in by_task}
        assert sizes == {"drift (steps=60)": [2], "drift (steps=120)": [1]}


class TestEditedCode:
    @pytest.fixture
    def stopped(self, tmp_path: Path) -> Path:
        return train(tmp_path / "x", seeds=[0], steps=60).folder

    def test_does_not_continue_a_run(self, stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Sac, "revision", 2)
        with pytest.raises(UserError, match="revision 1 and now has 2"):
            pac4sac.resume(stopped, steps=120)
        assert about(stopped, RUN)["task"]["steps"] == 60

    def test_of_a_simulator_does_not_continue_a_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        train_for_study(tmp_path, "x", [0])
        real = importlib.metadata.version
        versions = {"gymnasium": "99.0"}
        monkeypatch.setattr(
            importlib.metadata, "version", lambda name: versions.get(name) or real(name)
        )
        with pytest.raises(UserError, match=r"gymnasium had version .* and now has 99\.0"):
            pac4sac.resume(tmp_path / "experiments" / "x", steps=120)
        with pytest.warns(UserWarning, match=r"now has 99\.0\) and will be trained again"):
            assert "0 kept, 2 to train" in shown_plan(tmp_path, [0])

    def test_continues_it_with_keep_stale_and_is_recorded(
        self, stopped: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Sac, "revision", 2)
        pac4sac.resume(stopped, steps=120, keep_stale=True)
        described = about(stopped, RUN)
        assert described["revision"] == 2
        (earlier,) = described["earlier_code"]
        assert (earlier["revision"], earlier["until_step"]) == (1, 60)


def test_options_that_are_ignored_are_named(tmp_path: Path) -> None:
    def compare(**options: int) -> pac4sac.Comparison:
        return pac4sac.compare(
            "Pendulum-v1",
            ["sac", "ddpg"],
            seeds=[0],
            settings=SETTINGS,
            steps=60,
            out=tmp_path / "study",
            parallel=1,
            **{**OPTIONS, **options},
        )

    compare()
    with pytest.warns(UserWarning, match="was trained with evaluation_episodes=2 and keeps"):
        compare(evaluation_episodes=3)


@pytest.mark.parametrize(
    ("option", "value", "was"),
    [
        ("evaluation_episodes", 7, "evaluation_episodes=2"),
        ("evaluate_every", 20, "evaluate_every=150"),
        ("bias_every", 20, "bias_every=0"),
        ("backend", "compiled", "backend=eager"),
    ],
)
def test_each_option_of_a_finished_cohort_that_is_ignored_is_named(
    tmp_path: Path, option: str, value: object, was: str
) -> None:
    train_for_study(tmp_path, "a", [0])
    study = comparison_study("Pendulum-v1", ["sac", "ddpg"], [0], SETTINGS, 60, None)
    cohorts = plan(study, tmp_path, 10**12)
    with pytest.warns(UserWarning, match=f"sac was trained with {was} and keeps"):
        begin(study, tmp_path, cohorts, OPTIONS | {option: value})


class TestRunsThatDiffer:
    """Runs of one name that differ in a fact that matters are never in one row."""

    def labels(self, folder: Path) -> list[str]:
        by_task = variants_by_task(collect([folder]).runs)
        return sorted(variant.label for variants in by_task.values() for variant in variants)

    @pytest.mark.parametrize(
        "fact",
        [
            {"simulators": {"gymnasium": "1.9"}},
            {"code": {"pac4sac.agents.sac": "1"}},
            {"revision": 2},
            {"earlier_code": [{"until_step": 100, "revision": 1}]},
        ],
    )
    @pytest.mark.parametrize("seed", [0, 1])
    def test_in_what_trained_them(self, tmp_path: Path, fact: dict[str, Any], seed: int) -> None:
        write_run(tmp_path / "a", task("cartpole-swingup"), "sac", 0, simulators={"gymnasium": "1"})
        changes: Any = {"simulators": {"gymnasium": "1"}} | fact
        write_run(tmp_path / "b", task("cartpole-swingup"), "sac", seed, **changes)
        assert len(self.labels(tmp_path)) == 2

    def test_in_the_number_of_evaluation_episodes(self, tmp_path: Path) -> None:
        for seed, episodes in ((0, 5), (1, 5), (2, 1), (3, 0)):
            run = write_run(tmp_path / "a", task("cartpole-swingup"), "sac", seed)
            row = {"step": 40_000, "policy": "deterministic", "mean": 1.0}
            evaluation = json.dumps(row | {"returns": [1.0] * episodes})
            (run / "evaluations.jsonl").write_text(evaluation + "\n")
        assert self.labels(tmp_path) == [
            "sac (evaluation_episodes=1)",
            "sac (evaluation_episodes=5)",
        ]

    def test_in_code_that_changed_while_they_were_trained_are_marked(self, tmp_path: Path) -> None:
        earlier: Any = {"earlier_code": [{"until_step": 100, "revision": 1}]}
        write_run(tmp_path / "a", task("cartpole-swingup"), "sac", 0, **earlier)
        assert self.labels(tmp_path) == ["sac (by several versions of its code)"]

    def test_in_these_facts_have_columns_in_a_data_frame(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", task("cartpole-swingup"), "sac", 0)
        versions: Any = {"simulators": {"gymnasium": "2"}}
        write_run(tmp_path / "b", task("cartpole-swingup", steps=20_000), "sac", 0, **versions)
        frame = pac4sac.results(tmp_path)
        assert set(frame["run_steps"]) == {20_000, 40_000}
        assert set(frame["simulators"]) == {"", "gymnasium 2"}
        assert frame["experiment"].nunique() == 2


class TestCopiesOfARun:
    def copies(self, folder: Path, *episodes: int) -> list[RunRecord]:
        records = []
        for name, count in zip("abc", episodes, strict=False):
            run = write_run(folder / name, task("cartpole-swingup"), "sac", 0)
            row = {"step": 40_000, "policy": "deterministic", "mean": float(count)}
            evaluation = json.dumps(row | {"returns": [1.0] * count})
            (run / "evaluations.jsonl").write_text(evaluation + "\n")
            records.append(read_run(run))
        return records

    @pytest.mark.parametrize("episodes", [(1, 5), (5, 1)])
    def test_that_were_evaluated_differently_are_not_called_equal(
        self, tmp_path: Path, episodes: tuple[int, int]
    ) -> None:
        best, others = merge(self.copies(tmp_path, *episodes))
        assert best.evaluations[0]["mean"] == 5.0
        assert "more episodes per evaluation" in reason_for_choice(best, others)

    def test_that_are_equal_are_called_so(self, tmp_path: Path) -> None:
        best, others = merge(self.copies(tmp_path, 5, 5))
        assert reason_for_choice(best, others) == "they are equal"


def small_compare(folder: Path, **more: Any) -> pac4sac.Comparison:
    arguments = {"seeds": [0], "steps": 60, "settings": SETTINGS, "parallel": 1} | OPTIONS | more
    return pac4sac.compare("Pendulum-v1", ["sac", "ddpg"], out=folder, **arguments)


def test_a_comparison_whose_runs_were_extended_trains_runs_of_its_own_length(
    tmp_path: Path,
) -> None:
    small_compare(tmp_path / "study")
    for experiment in (tmp_path / "study" / "experiments").iterdir():
        pac4sac.resume(experiment, steps=120)
    again = small_compare(tmp_path / "study")
    assert [run.task["steps"] for run in again.runs] == [60, 60]
    assert [run.evaluations[-1]["step"] for run in again.runs] == [60, 60]
    assert len(again.rows) == 2


def test_an_expected_run_of_another_length_is_missing(tmp_path: Path) -> None:
    small_compare(tmp_path / "study")
    for experiment in (tmp_path / "study" / "experiments").iterdir():
        pac4sac.resume(experiment, steps=120)
    assert len(collect([tmp_path / "study"]).missing) == 2


def test_options_of_a_study_file_that_are_ignored_are_named(tmp_path: Path) -> None:
    def run(episodes: int) -> None:
        text = 'tasks = ["Pendulum-v1"]\nseeds = "0:1"\n[options]\n'
        text += f"evaluation_episodes = {episodes}\nbackend = 'eager'\ndevice = 'cpu'\n"
        text += "[task.'Pendulum-v1']\nsteps = 60\n[set]\nwidth = 8\ndepth = 1\nbatch = 8\n"
        text += "warmup = 40\n[[variant]]\nalgo = 'sac'\n"
        (tmp_path / "s.toml").write_text(text)
        run_study(load_study(str(tmp_path / "s.toml")), tmp_path / "study", Watcher(), parallel=1)

    run(1)
    with pytest.warns(UserWarning, match="was trained with evaluation_episodes=1"):
        run(2)


class TestSourcesOfARun:
    def test_include_the_engine(self) -> None:
        (run,) = make_runs(get_task("Pendulum-v1"), "sac", "default", [0], {})
        assert {"pac4sac.tasks.registry", "pac4sac.training.loop"} <= set(run.code)

    def test_include_other_packages_that_custom_code_uses(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = {"lab/__init__.py": "", "lab/agents.py": "import lab.sub.deep\nimport away.far\n"}
        files |= {"lab/sub/__init__.py": "", "lab/sub/deep.py": "x = 1\n"}
        files |= {"away/__init__.py": "", "away/far.py": "import numpy\n"}
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        names = {name.replace("/", ".").removesuffix(".py") for name in files}
        assert set(source_checksums(["lab.agents"])) == {
            name.removesuffix(".__init__") for name in names
        }

    def test_name_the_simulators_of_the_environment_alone(self) -> None:
        def simulators(module: str) -> set[str]:
            return set(simulator_versions([module]))

        assert simulators("gymnasium.envs.classic_control.pendulum") == {"gymnasium"}
        assert simulators("gymnasium.envs.mujoco.ant_v5") <= {"gymnasium", "mujoco"}
        assert simulators("my_world") == set()


def test_stale_runs_of_an_archive_are_kept_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_compare(tmp_path / "first")
    add_to_archive([tmp_path / "first"], tmp_path / "archive")
    monkeypatch.setattr(Sac, "revision", 2)
    study = comparison_study("Pendulum-v1", ["sac", "ddpg"], [0], SETTINGS, 60, None)
    with pytest.warns(UserWarning, match="1 of 2 archived runs were trained by another version"):
        _, report = train_and_report(
            study, tmp_path / "second", Watcher(), options={}, into=tmp_path / "archive",
            keep_stale=True,
        )  # fmt: skip
    labels = [variant.label for variant in report.context.all_variants]
    assert sorted(labels) == ["ddpg", "sac (by older code)"]
    assert not report.context.collection.missing


def shown_plan(folder: Path, seeds: list[int], **how: bool) -> str:
    """What `compare` prints of a comparison of SAC and DDPG before it trains."""
    study = comparison_study("Pendulum-v1", ["sac", "ddpg"], seeds, SETTINGS, 60, None)
    cohorts = plan(study, folder, 10**12, **how)
    console = Console(record=True, width=200, file=io.StringIO())
    StudyDisplay(console).planned(study, folder, cohorts, 10**12)
    return console.export_text()


def test_the_numbers_of_kept_and_trained_runs_are_printed(tmp_path: Path) -> None:
    small_compare(tmp_path / "study")
    assert "2 kept, 2 to train" in shown_plan(tmp_path / "study", [0, 1])


def test_runs_of_additional_seeds_are_counted(tmp_path: Path) -> None:
    train_for_study(tmp_path, "a", [0, 1, 2])
    shown = shown_plan(tmp_path, [0])
    assert "2 runs in" in shown
    assert "3 kept, 1 to train" in shown
    assert "2 other runs" in shown


def train_for_study(study: Path, name: str, seeds: list[int], **more: Any) -> None:
    """Train SAC in this process, as a cohort of a study."""
    out = study / "experiments" / name
    how: dict[str, Any] = {"settings": SETTINGS, "steps": 60, "out": out, **OPTIONS, **more}
    pac4sac.train("Pendulum-v1", "sac", seeds=seeds, **how)


def test_after_an_edit_is_undone_only_missing_runs_count_as_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_for_study(tmp_path, "a", [0, 1])
    with monkeypatch.context() as edited:
        edited.setattr(Sac, "revision", 2)
        with pytest.warns(UserWarning, match="2 of 2 runs .* trained again .*--keep-stale"):
            assert "0 kept, 6 to train" in shown_plan(tmp_path, [0, 1, 2])
        train_for_study(tmp_path, "b", [0, 1, 2])
    with pytest.warns(UserWarning, match="1 of 3 runs .* trained again .*--keep-stale"):
        assert "2 kept, 4 to train" in shown_plan(tmp_path, [0, 1, 2])
    with pytest.warns(UserWarning, match="1 of 3 runs .* are kept"):
        assert "3 kept, 3 to train" in shown_plan(tmp_path, [0, 1, 2], keep_stale=True)


def test_stale_runs_that_have_not_ended_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_for_study(tmp_path, "a", [0], max_minutes=1e-9)
    monkeypatch.setattr(Sac, "revision", 2)
    with pytest.warns(UserWarning, match="trained again, because not all of them have ended"):
        assert "0 kept, 2 to train" in shown_plan(tmp_path, [0], keep_stale=True)
