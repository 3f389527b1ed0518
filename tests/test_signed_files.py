"""Agents and checkpoints with checksums that fit and content that does not: each is refused in a
sentence, before memory is taken."""

import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_checkpoint import sign
from tiny_experiments import copy, train

import pac4sac
from pac4sac import UserError
from pac4sac.cli.main import main
from pac4sac.training import tensor_file
from pac4sac.training.agent_file import FORMAT, checksum, read_agent_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import checkpoint_memory

AGENT = Path("runs/sac-seed0/agent.safetensors")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed") / "x"
    return train(folder, steps=60, seeds=(0,), evaluate_every=0).folder


@pytest.fixture
def experiment(trained: Path, tmp_path: Path) -> Path:
    return copy(trained, tmp_path / "x")


def signed(path: Path, about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Write an agent file whose checksum fits; tensors of a type without NumPy's stay unsigned."""
    known = {name: x for name, x in tensors.items() if x.dtype.is_floating_point}
    label = {"version": 1, "about": about, "sha256": ""}
    if all(x.dtype == torch.float32 for x in known.values()):
        label["sha256"] = checksum(about, tensors)
    save_file(tensors, path, {FORMAT: json.dumps(label)})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
def test_an_unsupported_tensor_type_is_reported(experiment: Path, dtype: torch.dtype) -> None:
    about, tensors = read_agent_file(experiment / AGENT)
    tensors = {name: x.clone() for name, x in tensors.items()}
    signed(experiment / AGENT, about, tensors | {"actor": tensors["actor"].to(dtype)})
    with pytest.raises(UserError, match=r"actor has the type (BF16|F8_E4M3|C64)"):
        pac4sac.load(experiment / AGENT)
    assert main(["evaluate", str(experiment), "--episodes", "1"]) == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("net", ["actor", "critic"])
def test_weights_that_are_not_finite_are_refused_with_their_network(
    experiment: Path, net: str, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    about, tensors = read_agent_file(experiment / AGENT)
    tensors = {name: x.clone() for name, x in tensors.items()}
    tensors[net].view(-1)[3] = value
    signed(experiment / AGENT, about, tensors)
    with pytest.raises(UserError, match=f"its {net} has non-finite weights"):
        pac4sac.load(experiment / AGENT)
    for command in (["evaluate", "--episodes", "1"], ["certify", "--episodes", "4"]):
        assert main([command[0], str(experiment), *command[1:]]) == 2
        assert f"its {net} has non-finite weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"observation_size": 0},
        {"observation_size": 2**40},
        {"action_size": -1},
        {"config": {"width": 2**40}},
        {"config": {"width": 0}},
        {"config": {"depth": 2}},
        {"config": {"critic_width": 2**40}},
    ],
)
def test_wrong_sizes_are_refused_before_allocation(
    experiment: Path, change: dict[str, Any]
) -> None:
    about, tensors = read_agent_file(experiment / AGENT)
    tensors = {name: x.clone() for name, x in tensors.items()}
    about["run"]["config"] |= change.pop("config", {})
    signed(experiment / AGENT, about | change, tensors)
    with pytest.raises(UserError, match=r"damaged|another structure|width must be"):
        pac4sac.load(experiment / AGENT)


def test_an_agent_that_needs_more_memory_than_there_is_is_refused(experiment: Path) -> None:
    folder = train(experiment.parent / "own", "pac4sac", steps=50, seeds=(0,)).folder
    path = folder / "runs" / "pac4sac-seed0" / "agent.safetensors"
    about, tensors = read_agent_file(path)
    about["run"]["config"]["shots"] = 10**12
    signed(path, about, {name: x.clone() for name, x in tensors.items()})
    with pytest.raises(UserError, match="GB of memory to act"):
        pac4sac.load(path)


def test_an_experiment_that_needs_more_memory_than_there_is_is_refused(experiment: Path) -> None:
    path = experiment / "experiment.json"
    about = json.loads(path.read_text())
    about["cohorts"][0][0]["config"]["width"] = 2**40
    path.write_text(json.dumps(about))
    with pytest.raises(UserError, match="GB of memory"):
        pac4sac.resume(experiment, steps=80)


Damage = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "damage",
    [
        lambda progress: progress["placement"].pop("backend"),
        lambda progress: progress.pop("placement"),
        lambda progress: progress.update(placement=[]),
        lambda progress: progress["placement"].update(threads="x"),
        lambda progress: progress.update(status=[]),
    ],
)
def test_progress_without_a_part_is_refused(experiment: Path, damage: Damage) -> None:
    for folder in (experiment / "cohorts" / "000").glob("step-*"):
        progress = json.loads((folder / "progress.json").read_bytes())
        damage(progress)
        (folder / "progress.json").write_text(json.dumps(progress))
        sign(folder)
    with pytest.raises(UserError, match=r"All checkpoints in .* are unusable"):
        pac4sac.resume(experiment, steps=80)


@pytest.mark.parametrize(
    ("name", "is_cut"),
    [
        ("replay", False),
        ("replay", True),
        ("observation", False),
        ("incoming", False),
        ("step", False),
    ],
)
def test_a_learner_without_a_part_is_refused(experiment: Path, name: str, is_cut: bool) -> None:
    for folder in (experiment / "cohorts" / "000").glob("step-*"):
        tensors = load_file(folder / "learner.safetensors")
        part = tensors.pop(name)
        changed = {name: part[:, :, 0].contiguous()} if is_cut else {}
        save_file(tensors | changed, folder / "learner.safetensors")
        sign(folder)
    agent = experiment / "runs" / "sac-seed0"
    assert main(["certify", str(agent), "--episodes", "4", "--out", str(agent.parent)]) in (0, 2)
    with pytest.raises(UserError, match=f"All checkpoints in .* are unusable .*{name}"):
        pac4sac.resume(experiment, steps=80)


def test_a_tensor_file_is_read_back_unchanged(tmp_path: Path) -> None:
    tensors = {
        "large": torch.rand(3, 40, 50_000)[:, :30],
        "flags": torch.tensor([True, False, True]),
        "step": torch.tensor(7),
        "none": torch.zeros(0, 4),
        "half": torch.rand(5).half(),
    }
    digest, size = tensor_file.write(tmp_path / "x", tensors)
    assert size == (tmp_path / "x").stat().st_size
    assert len(digest) == 64
    for read in (tensor_file.as_tensors(tensor_file.read(tmp_path / "x").arrays), load_file):
        stored = read if isinstance(read, dict) else read(tmp_path / "x")
        assert stored.keys() == tensors.keys()
        assert all(torch.equal(stored[name], tensors[name]) for name in tensors)
    arrays = {"seed": np.array([2**64 - 1], np.uint64), "text": np.frombuffer(b"{}", np.uint8)}
    tensor_file.write(tmp_path / "y", arrays)
    stored = tensor_file.read(tmp_path / "y").arrays
    assert {name: array.tobytes() for name, array in stored.items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [0, 2**61], "data_offsets": [0, 0]},
        {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [1] * 40, "data_offsets": [0, 8]},
        [],
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused(tmp_path: Path, entry: Any) -> None:
    header = json.dumps({"x": entry}).encode()
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(ValueError, match=r"x|tensors"):
        tensor_file.read(tmp_path / "x")


@pytest.mark.parametrize(
    ("name", "command", "code", "expected"),
    [
        (AGENT, "evaluate {x} --episodes 1", 2, "too short or too long for its tensors"),
        (AGENT.with_name("run.json"), "report {x} --out {out}", 2, "has more than 512 MB"),
        (AGENT.with_name("episodes.jsonl"), "report {x} --out {out}", 0, "has more than 512 MB"),
        (Path("experiment.json"), "resume {x} --steps 80", 2, "has more than 512 MB"),
    ],
)
def test_a_sparse_file_of_more_than_a_gigabyte_is_refused_unread(
    experiment: Path,
    name: Path,
    command: str,
    code: int,
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (experiment / name).open("r+b") as file:
        file.truncate(3 * 2**29)
    words = command.format(x=experiment, out=experiment.parent / "out").split()
    assert main(words) == code
    assert expected in capsys.readouterr().err


def test_saving_and_loading_a_checkpoint_take_little_memory() -> None:
    # a process of its own, since this one may use memory again that it has freed
    command = [sys.executable, checkpoint_memory.__file__, "--rows", "400000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    ratios = [float(ratio) for ratio in re.findall(r"([\d.]+) times", done.stdout)]
    assert len(ratios) == 2, done.stderr
    assert max(ratios) <= 1.3
