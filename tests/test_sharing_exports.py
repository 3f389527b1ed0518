"""Trained agents as folders for the Hugging Face Hub and as Minari data sets, read by the libraries
that they are for."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_experiments import train

import pac4sac
from pac4sac import Task
from pac4sac.base.errors import UserError
from pac4sac.cli.main import main
from pac4sac.export import hub
from pac4sac.export.hub import export_hub
from pac4sac.runs.reading import sealed

PENDULUM = Task("Pendulum-v1", "Pendulum-v1", 50)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds, whose replay buffer holds all but the first transitions."""
    folder = tmp_path_factory.mktemp("sharing") / "sac"
    settings = {"capacity": 180}
    return train(folder, task=PENDULUM, settings=settings, steps=200, evaluate_every=0).folder


# --- the Hub


def test_the_hub_folder_has_all_files(trained: Path, tmp_path: Path):
    run = trained / "runs" / "sac-seed1"
    (run / "certificate.json").write_text("{}")
    (run / "episode.gif").write_bytes(b"GIF89a")
    files = export_hub(run, tmp_path / "model")
    (run / "certificate.json").unlink()
    (run / "episode.gif").unlink()
    assert {file.name for file in files} == {
        "README.md",
        "agent.safetensors",
        "certificate.json",
        "config.json",
        "episode.gif",
    }
    agent = pac4sac.load(tmp_path / "model" / "agent.safetensors")
    original = pac4sac.load(run)
    observation = np.ones(3, np.float32)
    assert np.array_equal(agent.act(observation), original.act(observation))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (config["algo"], config["seed"], config["config"]["width"]) == ("sac", 1, 8)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "(2 seeds)" in card
    assert "(2 episodes)" in card
    assert "pac4sac train Pendulum-v1 --algo sac --seeds 1 --steps 200" in card
    assert "(./episode.gif)" in card
    assert "(./certificate.json)" in card


def test_the_hub_reads_the_card(trained: Path, tmp_path: Path):
    library = pytest.importorskip("huggingface_hub")
    export_hub(trained, tmp_path / "model")
    data = library.ModelCard.load(tmp_path / "model" / "README.md").data
    assert data.library_name == "pac4sac"
    assert "reinforcement-learning" in data.tags
    (result,) = data.eval_results
    best = pac4sac.load(trained).run.seed
    assert result.dataset_name == "Pendulum-v1"
    rows = (trained / "runs" / f"sac-seed{best}" / "evaluations.jsonl").read_text().splitlines()
    assert result.metric_value == json.loads(rows[-1])["mean"]


def test_nothing_is_written_for_a_run_that_is_not_finished(trained: Path, tmp_path: Path):
    copy = shutil.copytree(trained, tmp_path / "copy")
    about = copy / "runs" / "sac-seed0" / "run.json"
    stopped = json.loads(about.read_text()) | {"status": "interrupted"}
    about.write_text(json.dumps(sealed(stopped)))
    with pytest.raises(UserError, match="not finished"):
        export_hub(copy / "runs" / "sac-seed0", tmp_path / "model")
    with pytest.raises(UserError, match="run"):
        export_hub("half-cheetah", tmp_path / "model")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UserError, match="not empty"):
        export_hub(trained, tmp_path / "full")
    assert {path.name for path in tmp_path.iterdir()} == {"copy", "full"}


class FakeHub:
    """The part of huggingface_hub that an upload uses."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.sent = error, []

    def HfApi(self) -> "FakeHub":
        return self

    def create_repo(self, name: str, exist_ok: bool) -> str:
        if self.error:
            raise self.error
        return f"https://hub/{name}"

    def upload_folder(self, repo_id: str, folder_path: str, commit_message: str) -> None:
        self.sent.append((repo_id, sorted(os.listdir(folder_path))))


def test_only_yes_uploads_the_folder(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    fake = FakeHub()
    monkeypatch.setattr(hub, "client", lambda: fake)
    line = ["export", "hub", str(trained), "--push", "me/sac", "--out"]
    assert main([*line, str(tmp_path / "a")]) == 0
    said = capsys.readouterr().out
    assert "agent.safetensors (" in said
    assert "pac4sac certify" in said
    assert fake.sent == []
    assert main([*line, str(tmp_path / "b"), "--yes"]) == 0
    assert "https://hub/me/sac" in capsys.readouterr().out
    assert fake.sent == [("me/sac", ["README.md", "agent.safetensors", "config.json"])]
    assert main(["export", "hub", str(trained), "--push", "sac", "--out", str(tmp_path / "c")]) == 2
    assert not (tmp_path / "c").exists()


def test_a_refused_upload_leaves_the_folder(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fake = FakeHub(ConnectionError("no network"))
    monkeypatch.setattr(hub, "client", lambda: fake)
    files = export_hub(trained, tmp_path / "model")
    with pytest.raises(UserError, match="no network"):
        hub.push(tmp_path / "model", "me/sac")
    assert all(file.is_file() for file in files)


def test_an_upload_without_its_package_is_refused_before_anything_is_written(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    line = ["export", "hub", str(trained), "--push", "me/sac", "--yes", "--out"]
    assert main([*line, str(tmp_path / "model")]) == 2
    assert not (tmp_path / "model").exists()


# --- Minari


@pytest.fixture
def minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("h5py")
    library = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    return library


def test_fresh_episodes_are_read_back(trained: Path, tmp_path: Path, minari: Any):
    from pac4sac.export.minari import export_minari

    said = export_minari(trained, "pendulum/sac-v0", episodes=2, seed=5)
    assert "2 episodes with 100 steps" in said
    read = minari.load_dataset("pendulum/sac-v0")
    assert (read.total_episodes, read.total_steps) == (2, 100)
    assert read.storage.metadata["algorithm_name"] == "sac"
    assert read.recover_environment().spec.id == "Pendulum-v1"
    agent = pac4sac.load(trained)
    with pac4sac.make_env(agent.run.task) as env:
        seeds = [about["seed"] for about in read.storage.get_episode_metadata([0, 1])]
        for seed, episode in zip(seeds, read.iterate_episodes(), strict=True):
            assert episode.truncations.tolist() == [False] * 49 + [True]
            assert not episode.terminations.any()
            observation, _ = env.reset(seed=int(seed))
            assert np.array_equal(episode.observations[0], observation)
            for step, action in enumerate(episode.actions):
                observation, reward, *_ = env.step(action)
                assert np.allclose(episode.observations[step + 1], observation, atol=1e-5)
                assert episode.rewards[step] == pytest.approx(reward, abs=1e-5)


def test_the_replay_buffer_is_read_back(trained: Path, tmp_path: Path, minari: Any):
    from pac4sac.export.minari import export_minari

    run = trained / "runs" / "sac-seed0"
    export_minari(run, "replay-v0", from_replay=True, out=tmp_path / "sets")
    read = minari.load_dataset("replay-v0")
    # 180 of 200 steps are kept: the first of four episodes lacks its first 20 steps
    lengths = [len(episode.rewards) for episode in read.iterate_episodes()]
    assert lengths == [30, 50, 50, 50]
    logged = [json.loads(row) for row in (run / "episodes.jsonl").read_text().splitlines()]
    returns = [float(episode.rewards.sum()) for episode in read.iterate_episodes()]
    assert returns[1:] == pytest.approx([row["return"] for row in logged[1:]], rel=1e-4)
    for episode in read.iterate_episodes():
        assert np.abs(episode.actions).max() <= 2.0
        assert episode.observations.shape == (len(episode.rewards) + 1, 3)


def test_a_data_set_that_cannot_be_written_is_refused(
    trained: Path, tmp_path: Path, minari: Any, monkeypatch: pytest.MonkeyPatch
):
    line = ["export", "minari", str(trained), "--out", str(tmp_path / "other")]
    assert main([*line, "--name", "no version"]) == 2
    assert main([*line, "--name", "a-v0", "--episodes", "0"]) == 2
    assert not (tmp_path / "other").exists()
    assert main([*line, "--name", "a-v0", "--episodes", "1"]) == 0
    assert main([*line, "--name", "a-v0", "--episodes", "1"]) == 2
    shutil.copytree(trained, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "cohorts")
    gone = ["export", "minari", str(tmp_path / "copy"), "--name", "b-v0", "--replay"]
    assert main([*gone, "--out", str(tmp_path / "third")]) == 2
    assert not (tmp_path / "third").exists()
    monkeypatch.setitem(sys.modules, "minari", None)
    assert main([*line, "--name", "c-v0"]) == 2
