"""The tool that kills trainings finds what differs, and finds nothing in a training that resumes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
import kills

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[kills.Trials]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    trials = kills.Trials(tmp_path, seed=0)
    monkeypatch.setattr(trials.chance, "choice", lambda numbers: numbers[0])  # no workers
    yield trials
    torch.set_num_threads(threads)


def test_a_resumed_training_is_byte_identical_to_an_uninterrupted_one(trials: kills.Trials) -> None:
    assert trials.trial("ddpg") == []
    assert trials.counts["trials"] == 1
    expected, _ = trials.whole["ddpg"]
    assert {"runs/ddpg-seed0/agent.safetensors", "runs/ddpg-seed1/episodes.jsonl"} <= set(expected)
    expected["runs/ddpg-seed1/metrics.jsonl"] = "another checksum"
    (problem,) = trials.trial("ddpg")
    assert problem == "ddpg, 0 workers: runs/ddpg-seed1/metrics.jsonl differ"
