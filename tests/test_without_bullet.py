"""Where PyBullet is not installed, as on Pythons for which it has no wheel: its tasks are refused
in a sentence, and nothing else asks for it."""

import shutil
import sys
from pathlib import Path

import pytest
import report_folders
import tiny_experiments

from pac4sac.cli.main import main
from pac4sac.tasks import registry
from pac4sac.training.agent_file import SHIPPED

SENTENCE = (
    "needs a package that is not installed: pybullet; install it with",
    "[bullet]'",
    "(there are wheels for Python 3.11; later versions build it with a C++ compiler).",
)


@pytest.fixture(autouse=True)
def no_pybullet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pybullet", None)
    monkeypatch.delitem(sys.modules, "pac4sac.tasks.robots", raising=False)
    monkeypatch.setattr(registry, "_sizes", {})
    monkeypatch.setattr(registry, "_seconds", {})
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "train cartpole-swingup",
        "evaluate trained",
        "watch half-cheetah",
        "certify cartpole-swingup-sac",
        "compare ant --algos pac4sac,sac",
        "study run smoke",
        "demo",
    ],
)
def test_a_pybullet_task_is_refused_before_any_file_is_written(line: str, capsys):
    run = report_folders.write_run(Path("trained"), report_folders.task("half-cheetah"))
    shutil.copy(SHIPPED / "half-cheetah.safetensors", run / "agent.safetensors")
    assert main(line.split()) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert [part for part in SENTENCE if part not in error] == []
    assert [path.name for path in Path().iterdir()] == ["trained"]


def test_other_tasks_are_trained_and_all_are_listed(capsys):
    assert main(["list", "tasks"]) == 0
    assert "half-cheetah" in capsys.readouterr().out
    tiny_experiments.train(Path("pendulum"), task="Pendulum-v1", seeds=[0], steps=60)
    assert Path("pendulum/runs/sac-seed0/agent.safetensors").is_file()
