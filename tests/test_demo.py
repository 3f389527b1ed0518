"""`pac4sac demo`: what it says, draws and films, with trainings that are written instead of
trained."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pac4sac.base.stopping import TIME_IS_UP
from pac4sac.cli import demo_outcome
from pac4sac.cli.demo_outcome import outcome
from pac4sac.cli.main import main
from pac4sac.tasks import get_task
from pac4sac.training import experiment
from pac4sac.training.experiment import Result
from pac4sac.training.run import make_runs
from pac4sac.training.run_folder import RunFolder

GOOD = [-900.0, 100.0, *[900.0] * 4, 700.0, 900.0, 900.0]


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The demo in an empty folder, with films that are empty files; how it trained."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(demo_outcome, "record_video", lambda agent, out, **_: out.touch() or out)
    asked = []

    def train(task: str, *, out: Path, callbacks: Any, **how: Any) -> Result:
        asked.append(how)
        settings = {name: [value] for name, value in how["settings"].items()}
        (run,) = make_runs(get_task(task), "pac4sac", "default", how["seeds"], settings)
        folder = RunFolder(out, run)
        folder.describe("interrupted")
        for episode, value in enumerate(GOOD):
            folder.log(
                "episodes",
                {"episode": episode, "step": 1000 * (episode + 1), "return": value, "length": 1000},
            )
        (folder.path / "agent.safetensors").touch()
        return Result(out, complete=False, reason=TIME_IS_UP)

    def resume(folder: Path, **how: Any) -> None:
        asked.append(how)
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "train", train)
    monkeypatch.setattr(experiment, "resume", resume)
    return asked


def test_an_interrupted_demo_still_writes_figure_video_and_result(trainings, capsys):
    assert main(["demo"]) == 0
    folder, said = Path("experiments/demo"), " ".join(capsys.readouterr().out.split())
    assert trainings[0]["settings"] == {"updates_per_step": 2}
    # more of them, as there were few episodes
    assert [training["max_minutes"] for training in trainings] == [3.0, 1.0]
    assert {path.name for path in folder.iterdir()} == {
        "half-cheetah.gif",
        "training",
        "returns.png",
        "cartpole-swingup.gif",
    }
    assert Image.open(folder / "returns.png").width > 800
    assert all(
        f"experiments/demo/{name}" in said
        for name in ("half-cheetah.gif", "returns.png", "cartpole-swingup.gif")
    )
    assert (
        "It has balanced in most episodes since episode 3: 6 of these 7 episodes were above 850"
        in said
    )
    assert "9 of 10 archived runs of PAC4SAC solved the task after" in said
    assert "PAC4SAC is a soft actor-critic" in said
    assert "pac4sac resume experiments/demo/training" in said
    assert "not solved" not in said


def test_the_full_demo_trains_with_the_papers_settings_into_a_new_folder(trainings, capsys):
    Path("experiments/demo").mkdir(parents=True)
    assert main(["demo", "--full", "--seed", "3"]) == 0
    assert (trainings[0]["settings"], trainings[0]["seeds"], trainings[0]["max_minutes"]) == (
        {},
        [3],
        10.0,
    )
    assert Path("experiments/demo-2/returns.png").is_file()


def test_a_demo_stopped_before_an_episode_ended_reports_it(trainings, monkeypatch, capsys):
    monkeypatch.setitem(globals(), "GOOD", [])
    assert main(["demo"]) == 0
    assert "stopped before the first episode ended" in capsys.readouterr().out


def test_zero_minutes_are_refused_before_any_file_is_written(trainings, capsys):
    assert main(["demo", "--max-minutes", "0"]) == 2
    assert not Path("experiments").exists()


@pytest.mark.parametrize(
    ("returns", "sentence"),
    [
        (
            [100.0, *[900.0] * 5],
            "It has solved the task: from episode 2 on, 5 consecutive episodes had returns above 850.",
        ),
        (
            GOOD,
            "It has balanced in most episodes since episode 3: 6 of these 7 episodes were above 850. "
            "The paper's criterion of 5 such episodes in a row was not met. The longest streak was 4.",
        ),
        (
            [900.0, *[0.0] * 8, 900.0],
            "It has balanced in some episodes since episode 1: 2 of these 10 episodes "
            "were above 850. The paper's criterion of 5 such episodes in a row was not met. The "
            "longest streak was 1.",
        ),
        (
            [-900.0, 612.4, 300.0],
            "It is still learning: the best of 3 episodes so far, number 2, has a return of 612. "
            "With a return above 850, the pole is up nearly all the time.",
        ),
    ],
)
def test_the_result_of_a_run_is_described_in_a_sentence(returns: list[float], sentence: str):
    assert outcome(returns, 850.0) == sentence
