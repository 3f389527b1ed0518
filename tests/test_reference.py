"""What ships with the package: reference curves that agree with the archive, and trained agents."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import pac4sac
from pac4sac.base.errors import UserError
from pac4sac.cli.main import main
from pac4sac.runs import reference as references
from pac4sac.runs.metrics import score_run
from pac4sac.tasks import get_task
from pac4sac.training.agent_file import SHIPPED, read_agent_file, save_agent, shipped_agents
from pac4sac.training.run import make_agent, make_runs
from pac4sac.training.run_folder import RunFolder
from pac4sac.training.trained_agent import load

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
spec = importlib.util.spec_from_file_location("ship", ROOT / "tools" / "ship.py")
assert spec is not None
assert spec.loader is not None
ship = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ship)


# --- curves


def test_the_shipped_curves_are_those_of_the_archive_and_rounding_changes_no_score(tmp_path: Path):
    archived = {run.identity: run for run in ship.write_curves(RESULTS, tmp_path)}
    made = {path.name: path.read_bytes() for path in (tmp_path / "runs").iterdir()}
    assert set(made) == {
        "cartpole-swingup.jsonl",
        "cartpole-swingup-sparse.jsonl",
        "half-cheetah.jsonl",
        "ant.jsonl",
        "humanoid.jsonl",
    }
    assert made == {
        path.name: path.read_bytes() for path in (references.SHIPPED / "runs").iterdir()
    }
    assert sum(map(len, made.values())) < 700_000
    runs = [run for members in references.reference_runs().values() for run in members]
    assert {run.identity for run in runs} == set(archived)
    for run in runs:
        ours, theirs = score_run(run), score_run(archived[run.identity])
        assert ours is not None
        assert theirs is not None
        assert (ours.solved, ours.episodes) == (theirs.solved, theirs.episodes)
        np.testing.assert_allclose(run.returns, archived[run.identity].returns, atol=0.051)


def test_reference_curves_are_a_data_frame_or_arrays(monkeypatch: pytest.MonkeyPatch):
    frame = pac4sac.reference("cartpole-swingup")
    assert set(frame["task"]) == {"cartpole-swingup"}
    assert list(frame.columns)[:8] == [
        "run",
        "task",
        "algo",
        "seed",
        "episode",
        "step",
        "return",
        "length",
    ]
    assert frame[frame["run"] == "pac4sac-seed0"]["episode"].tolist() == list(range(40))
    monkeypatch.setitem(sys.modules, "pandas", None)
    arrays = pac4sac.reference("cartpole-swingup")
    np.testing.assert_array_equal(arrays["return"], frame["return"].to_numpy())
    with pytest.raises(UserError, match="did you mean cartpole-swingup"):
        pac4sac.reference("cartpole")


@pytest.mark.parametrize("width", [80, 140])
def test_the_table_has_a_row_for_each_algorithm_with_its_source(width: int, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["reference", "cartpole-swingup"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    first = lines.index(["cartpole-swingup"]) + 1
    assert lines[first][1:4] == ["9", "of", "10"]
    assert lines[first][-1] == "table-1"
    assert [line[0] for line in lines[first : first + 6]] == [
        "pac4sac",
        "sac",
        "ddpg",
        "oac",
        "sac-auto",
        "sac+shooting",
    ]


# --- agents


def test_four_agents_ship_and_are_small():
    assert shipped_agents() == [
        "cartpole-swingup",
        "cartpole-swingup-sac",
        "half-cheetah",
        "half-cheetah-sac",
    ]
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 8_000_000


@pytest.mark.parametrize("name", shipped_agents())
def test_a_shipped_agent_is_loaded_by_its_name_and_acts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    agent = load(name)
    assert agent.run.task.name == name.removesuffix("-sac")
    assert agent.run.algo == ("sac" if name.endswith("-sac") else "pac4sac")
    assert not agent.run.edited()
    action = agent.act(np.zeros(agent.agent.ds, np.float32))
    assert np.isfinite(action).all()
    evaluation = read_agent_file(SHIPPED / f"{name}.safetensors")[0]["evaluation"]
    assert evaluation["mean"] > 0.5 * (agent.run.task.r_limit or 0)


def test_a_local_file_precedes_a_shipped_agent(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half-cheetah").mkdir()
    with pytest.raises(UserError, match="half-cheetah has no trained agent"):
        load("half-cheetah")


@pytest.mark.parametrize(
    "name", ["half-chetah", "../agents/half-cheetah", "./half-cheetah.safetensors"]
)
def test_only_the_exact_name_gives_a_shipped_agent(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="a shipped agent: cartpole-swingup, "):
        load(name)


def test_an_agent_is_shipped_in_half_precision_with_its_return(tmp_path: Path):
    (run,) = make_runs(
        get_task("Pendulum-v1"), "sac", "default", [0], {"width": [16], "depth": [1]}
    )
    agent = make_agent([run], 3, 1)
    state = agent.initial_state([0], torch.device("cpu"))
    folder = RunFolder(tmp_path, run)
    folder.describe("finished")
    folder.log(
        "evaluations",
        {"step": 9, "policy": "deterministic", "mean": -150.25, "returns": [-150.0, -150.5]},
    )
    save_agent(folder.path / "agent.safetensors", run, agent, state, 0)
    name, mean, content = ship.smaller_agent(folder.path / "agent.safetensors")
    assert (name, mean) == ("Pendulum-v1-sac", -150.2)
    (tmp_path / "small.safetensors").write_bytes(content)
    about, tensors = read_agent_file(tmp_path / "small.safetensors")
    assert about["evaluation"] == {"episodes": 2, "policy": "deterministic", "mean": -150.2}
    assert {tensors[net].dtype for net in agent.nets} == {torch.float16}
    observation = np.array([1.0, 0.0, 0.5])
    actions = [
        load(path).act(observation) for path in (folder.path, tmp_path / "small.safetensors")
    ]
    np.testing.assert_allclose(*actions, atol=0.01)
