"""Results of different code, length or options are never mixed without a word."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_experiments import OPTIONS, SETTINGS, about, train

import pac4sac
from pac4sac.agents.sac import Sac
from pac4sac.base.errors import UserError
from pac4sac.runs.reading import read_run, read_runs

PACKAGE = Path(pac4sac.__file__).parent
RUN = "sac-seed0"
BOOTSTRAP = "q2 - self.alpha(state)[:, None] * log_pi"


class TestAnEditInsideThePackage:
    """A copy of the package is edited; it runs in processes of its own."""

    @pytest.fixture
    def package(self, tmp_path: Path) -> Path:
        copied = tmp_path / "edited" / "pac4sac"
        shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__", "agents.bak"))
        return copied

    def compare(self, package: Path, *more: str) -> str:
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        command = [sys.executable, "-m", "pac4sac", "compare", "Pendulum-v1", "--algos", "sac,td3"]
        command += ["--seeds", "0", "--steps", "60", "--out", "study", "--set", *settings, *more]
        environment = os.environ | {"PYTHONPATH": str(package.parent)}
        done = subprocess.run(
            command, cwd=package.parent, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def test_is_reported_and_its_runs_are_trained_again(self, package: Path) -> None:
        self.compare(package)
        file = package / "agents" / "sac.py"
        text = file.read_text()
        assert BOOTSTRAP in text
        file.write_text(text.replace(BOOTSTRAP, f"0.5 * ({BOOTSTRAP})"))
        folder = package.parent / "study" / "experiments"
        before = set(folder.iterdir())
        shown = " ".join(self.compare(package).split())
        assert "the source of pac4sac.agents.sac was edited" in shown
        assert len(set(folder.iterdir()) - before) == 1  # SAC alone: TD3 does not use that file
        file.write_text(text + "\n# A comment.\n")
        assert "was edited" not in self.compare(package)


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


class TestOtherCode:
    @pytest.fixture
    def stopped(self, tmp_path: Path) -> Path:
        return train(tmp_path / "x", seeds=[0], steps=60).folder

    def test_does_not_continue_a_run(self, stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Sac, "revision", 2)
        with pytest.raises(UserError, match="revision 1 and now has 2"):
            pac4sac.resume(stopped, steps=120)
        assert about(stopped, RUN)["task"]["steps"] == 60

    def test_continues_it_if_wanted_and_is_recorded(
        self, stopped: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Sac, "revision", 2)
        pac4sac.resume(stopped, steps=120, keep_stale=True)
        run = about(stopped, RUN)
        assert run["revision"] == 2
        (earlier,) = run["earlier_code"]
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
    with pytest.warns(UserWarning, match="was trained with evaluation_episodes=.*ignored"):
        compare(evaluation_episodes=3)
