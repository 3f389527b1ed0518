"""Studies on a real Ray cluster: two nodes on this machine, of which one is killed. Run by `make
test-ray`."""

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pac4sac.base.errors import UserError
from pac4sac.runs.reading import read_runs
from pac4sac.studies.definition import Study, load_study
from pac4sac.studies.plan import PlannedCohort
from pac4sac.studies.ray.cluster import _Dispatch
from pac4sac.studies.run import run_study
from pac4sac.studies.watcher import Watcher

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = pytest.mark.ray

STUDY = """
title = "Two cohorts"
tasks = ["cartpole-swingup"]
seeds = "0:2"

[options]
device = "cpu"
backend = "eager"
threads = 1
workers = 1
evaluation_episodes = 1
checkpoint_every = 200
log_every = 250

[task.cartpole-swingup]
horizon = 50
steps = 1000

[set]
width = 32
batch = 16
warmup = 100
updates_per_step = 1

[[variant]]
algo = "ddpg"

[[variant]]
algo = "pac4sac"
set = { shots = 8 }
"""


class Notes(Watcher):
    """A watcher that writes down what it sees, and does something at the first progress that calls
    for it."""

    def __init__(self, act: Callable[[PlannedCohort, int], bool] | None = None) -> None:
        self.outcomes: list[tuple[str, str]] = []
        self.act, self.acted = act, False

    def progress(self, cohort: PlannedCohort, step: int, steps: int) -> None:
        if self.act is not None and not self.acted and step < steps:
            self.acted = self.act(cohort, step)

    def ended(self, cohort: PlannedCohort, outcome: str, reason: str) -> None:
        self.outcomes.append((outcome, reason))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    path = tmp_path / "two-cohorts.toml"
    path.write_text(STUDY)
    return load_study(str(path))


def results(root: Path) -> dict[str, bytes]:
    """All that training wrote, apart from times and machines."""
    files = [path for path in root.glob("experiments/*/runs/*/*") if path.name != "run.json"]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Cluster"]:
    utilities = pytest.importorskip("ray.cluster_utils")
    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # a socket's path must be short
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a killed node leaves its folder
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    node = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    cluster = utilities.Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


def descendants(pid: int) -> list[int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for parent in found:
        found += [child for child, its_parent in parents.items() if its_parent == parent]
    return found


def trained_by(pids: list[int]) -> set[bytes]:
    """The experiments whose folders processes have open, as their lock is held there."""
    opened = set()
    for link in (link for pid in pids for link in Path(f"/proc/{pid}/fd").glob("*")):
        with contextlib.suppress(OSError):
            opened.add(link.readlink() / "experiment.json")
    return {path.read_bytes() for path in opened if path.is_file()}


def kill_a_node_during_training(cluster: "Cluster") -> Callable[[PlannedCohort, int], bool]:
    """What to do at a progress: once a cohort on the second node has a checkpoint, kill all of that
    node."""
    lost = next(node for node in cluster.list_all_nodes() if not node.is_head())
    raylet = lost.all_processes["raylet"][0].process.pid

    def kill(cohort: PlannedCohort, step: int) -> bool:
        processes = descendants(raylet)
        is_there = (cohort.folder / "experiment.json").read_bytes() in trained_by(processes)
        if not is_there or not list(cohort.folder.glob("cohorts/000/step-*")):
            return False
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
        return True

    return kill


def test_a_killed_node_loses_no_result(
    tmp_path: Path, study: Study, cluster: "Cluster", monkeypatch: pytest.MonkeyPatch
) -> None:
    local, away = tmp_path / "local", tmp_path / "away"
    submitted = []
    submit = _Dispatch._submit
    monkeypatch.setattr(
        _Dispatch, "_submit", lambda self, n: submitted.append(n) or submit(self, n)
    )
    notes = Notes(kill_a_node_during_training(cluster))
    assert run_study(study, away, notes, engine="ray", address=cluster.address).complete
    assert notes.acted
    assert notes.outcomes == [("complete", "")] * 2
    assert len(submitted) == 3  # one of the two again
    for path in away.glob("experiments/*/cohorts/000/times.jsonl"):
        steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
        # it went on from a checkpoint, not from the start
        assert steps == list(range(200, 1001, 200))

    assert run_study(study, local, Notes(), engine="local", parallel=1).complete
    assert results(away) == results(local)
    assert len(results(local)) >= 2 * 2 * 4


def test_a_stopped_study_continues_and_a_failure_does_not_stop_other_cohorts(
    tmp_path: Path, study: Study, cluster: "Cluster"
) -> None:
    root, begun = tmp_path / "study", []

    def ask_to_stop(cohort: PlannedCohort, step: int) -> bool:
        begun.append(cohort.folder)
        signal.raise_signal(signal.SIGINT)
        return True

    stopped = Notes(ask_to_stop)
    assert not run_study(study, root, stopped, engine="ray", address=cluster.address).complete
    assert {outcome for outcome, _ in stopped.outcomes} == {"stopped"}
    assert list(begun[0].glob("cohorts/000/step-*"))
    assert {record.status for record in read_runs(begun[0])} == {"interrupted"}

    other = next(
        path for path in root.glob("experiments/*/experiment.json") if path.parent != begun[0]
    )
    other.write_text(other.read_text().replace('"threads": 1', '"threads": 0'))
    notes = Notes()
    with pytest.raises(
        UserError, match=r"1 of 2 cohorts failed: .*threads must be auto or a whole number"
    ):
        run_study(study, root, notes, engine="ray", address=cluster.address)
    assert sorted(outcome for outcome, _ in notes.outcomes) == ["complete", "failed"]
    assert {record.status for record in read_runs(begun[0])} == {"finished"}


def test_smoke_runs_on_two_nodes_and_one_is_killed(tmp_path: Path, cluster: "Cluster") -> None:
    smoke, notes = load_study("smoke"), Notes(kill_a_node_during_training(cluster))
    # compiled, its 600 steps are over before a checkpoint is told of
    slowly = {"device": "cpu", "backend": "eager"}
    assert run_study(
        smoke, tmp_path / "smoke", notes, engine="ray", address=cluster.address, **slowly
    ).complete
    assert notes.acted
    assert {outcome for outcome, _ in notes.outcomes} == {"complete"}
    records = [
        run
        for folder in (tmp_path / "smoke" / "experiments").iterdir()
        for run in read_runs(folder)
    ]
    assert {(run.task["name"], run.run) for run in records} == {
        (run.task.name, run.id) for run in smoke.runs()
    }
    assert all(run.status == "finished" and len(run.episodes) == 12 for run in records)
