"""Bringing a cohort's files to the keeper and back, without a cluster between them."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pac4sac.base.errors import UserError
from pac4sac.studies import local
from pac4sac.studies.attempts import got_on
from pac4sac.studies.plan import PlannedCohort
from pac4sac.studies.ray import remote_cohort
from pac4sac.studies.ray.cluster import _needs, cluster_address
from pac4sac.studies.ray.remote_cohort import FolderKeeper, RemoteCohort, train_remotely
from pac4sac.tasks import get_task
from pac4sac.training.experiment import create, resume
from pac4sac.training.options import Options
from pac4sac.training.run import make_runs

SMALL = {"width": [8], "batch": [4], "warmup": [20], "updates_per_step": [1]}


Pair = tuple[Path, Path, FolderKeeper]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """The keeper's folder, a node's folder, and the keeper."""
    kept, node = tmp_path / "kept", tmp_path / "node"
    kept.mkdir()
    node.mkdir()
    (kept / "experiment.json").write_text("{}")
    return kept, node, FolderKeeper([str(kept)])


def asking(keeper: FolderKeeper, lose_at: str = "") -> Callable[..., Any]:
    """A new attempt's line to the keeper; it can break at the first publishing of a file whose path
    has `lose_at`."""
    attempt = keeper.lend(0)

    def ask(method: str, *arguments: Any) -> Any:
        if lose_at and method == "publish" and any(lose_at in path for path in arguments[0]):
            raise ConnectionError("the node is lost")
        return keeper.ask(0, attempt, method, *arguments)

    return ask


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_pushed_in_chunks_are_fetched_unchanged(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_cohort, "CHUNK", 4)
    _, node, keeper = pair
    sent = {
        "cohorts/000/step-000000005/manifest.json": b"abc",
        "cohorts/000/step-000000005/pool.safetensors": b"",
        "cohorts/000/step-000000005/learner.safetensors": b"2 chunks",
        "runs/a/episodes.jsonl": b"longer than a chunk\n",
    }
    for name, content in sent.items():
        write(node / name, content)
    RemoteCohort(node, asking(keeper)).push()
    other = tmp_path / "other"
    RemoteCohort(other, asking(keeper)).fetch()
    assert contents(other) == {**sent, "experiment.json": b"{}"}


def test_only_changed_files_are_sent(pair: Pair) -> None:
    kept, node, keeper = pair
    ask, sent = asking(keeper), []

    def listening(method: str, *arguments: Any) -> Any:
        if method == "write":
            sent.append(arguments[-1])
        return ask(method, *arguments)

    cohort = RemoteCohort(node, listening)
    write(node / "runs/a/episodes.jsonl", b"one\n")
    write(node / "runs/a/run.json", b"{}")
    cohort.push()
    write(node / "runs/a/episodes.jsonl", b"one\ntwo\n")
    cohort.push()
    cohort.push()
    assert sent == [b"one\n", b"{}", b"one\ntwo\n"]
    assert (kept / "runs/a/episodes.jsonl").read_bytes() == b"one\ntwo\n"


def test_the_keeper_cuts_lines_after_the_checkpoint_of_a_lost_attempt(pair: Pair) -> None:
    kept, node, keeper = pair
    write(kept / "runs/a/episodes.jsonl", b"kept\nlost with its node\n")
    cohort = RemoteCohort(node, asking(keeper))
    cohort.fetch()
    (node / "runs/a/episodes.jsonl").write_bytes(b"kept\n")  # as a resume cuts it back
    cohort.on_start(node, [], 10, 5)
    assert (kept / "runs/a/episodes.jsonl").read_bytes() == b"kept\n"


def test_the_keeper_keeps_two_complete_checkpoints(pair: Pair) -> None:
    kept, node, keeper = pair
    attempt = keeper.lend(0)
    keeper.ask(0, attempt, "write", 0, 0, b"half of a checkpoint")
    assert not (kept / "cohorts").exists()
    cohort = RemoteCohort(node, asking(keeper))
    for step in (1, 2, 3):
        write(node / f"cohorts/000/step-{step:09d}/manifest.json", b"%d" % step)
        cohort.push()
    assert {
        name: content for name, content in contents(kept).items() if name != "experiment.json"
    } == {
        "cohorts/000/step-000000002/manifest.json": b"2",
        "cohorts/000/step-000000003/manifest.json": b"3",
    }


def test_an_abandoned_attempt_can_neither_write_nor_report(pair: Pair) -> None:
    kept, node, keeper = pair
    write(node / "runs/a/run.json", b"{}")
    old, _new = asking(keeper), asking(keeper)
    with pytest.raises(PermissionError, match="abandoned"):
        RemoteCohort(node, old).push()
    with pytest.raises(PermissionError, match="abandoned"):
        old("heard", 5, 10)
    assert keeper.news(stopping=False) == {}
    assert not (kept / "runs").exists()


def test_a_lost_cohort_continues_from_its_checkpoint_to_the_same_result(tmp_path: Path) -> None:
    task = dataclasses.replace(get_task("cartpole-swingup"), horizon=20, steps=120)
    runs = make_runs(task, "sac", "default", [0, 1], SMALL)
    how = Options(
        steps=120,
        device="cpu",
        backend="eager",
        threads=1,
        workers=0,
        checkpoint_every=30,
        log_every=50,
    )
    alone, kept = tmp_path / "alone", tmp_path / "kept"
    for folder in (alone, kept):
        create(folder, [runs], how)
    resume(alone)
    keeper = FolderKeeper([str(kept)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "INTERVAL", 0.0)
        with pytest.raises(ConnectionError):
            train_remotely(tmp_path / "first node", asking(keeper, lose_at="step-000000090"))
        assert [path.name for path in sorted(kept.glob("cohorts/000/*"))][-2:] == [
            "step-000000060",
            "times.jsonl",
        ]
        assert train_remotely(tmp_path / "second node", asking(keeper)) == ("complete", "")

    def results(folder: Path) -> dict[str, bytes]:
        return {name: content for name, content in contents(folder).items() if "times" not in name}

    assert results(kept) == results(alone)


def test_a_user_error_in_a_task_is_reported_with_its_message(pair: Pair) -> None:
    _, node, keeper = pair
    outcome, sentence = train_remotely(node, asking(keeper))
    assert outcome == "failed"
    assert "experiment.json" in sentence


def one_run(folder: Path, **options: Any) -> PlannedCohort:
    runs = make_runs(get_task("cartpole-swingup"), "sac", "default", [0], SMALL)
    create(folder, [runs], Options(steps=10, **options))
    return PlannedCohort(folder, tuple(runs), bytes=10**9)


def ray_with_nodes(*nodes: dict[str, float]) -> Any:
    return SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": node} for node in nodes])


SMALL_NODE, GPU_NODE = {"CPU": 2, "memory": 4e9}, {"CPU": 16, "memory": 64e9, "GPU": 1}


def test_a_cohort_requests_resources_that_a_node_has(tmp_path: Path) -> None:
    anywhere, on_cpu = one_run(tmp_path / "anywhere"), one_run(tmp_path / "on-cpu", device="cpu")
    mixed = ray_with_nodes(SMALL_NODE, GPU_NODE)
    assert _needs(mixed, anywhere) == {"num_cpus": 4, "num_gpus": 1, "memory": 10**9}
    assert _needs(mixed, on_cpu) == {"num_cpus": 4, "num_gpus": 0, "memory": 10**9}
    assert _needs(ray_with_nodes(SMALL_NODE), anywhere) == {
        "num_cpus": 2,
        "num_gpus": 0,
        "memory": 10**9,
    }
    write(
        anywhere.folder / "cohorts/000/step-000000005/progress.json",
        b'{"placement": {"device": "cpu"}}',
    )
    assert _needs(mixed, anywhere)["num_gpus"] == 0  # begun on a CPU, it goes on so


def test_a_cohort_that_fits_no_node_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"needs a CPU, 1\.0 GB of memory and a GPU, but no node"):
        _needs(ray_with_nodes(SMALL_NODE), one_run(tmp_path / "gpu", device="cuda"))
    with pytest.raises(UserError, match="no node"):
        _needs(ray_with_nodes({"CPU": 64, "memory": 5e8}), one_run(tmp_path / "big"))


def test_a_cohort_lost_five_times_at_the_same_checkpoint_is_given_up() -> None:
    assert got_on(["a"] * 4)
    assert not got_on(["a"] * 5)
    assert got_on(["a"] * 4 + ["b"] * 4)
    assert not got_on(["a"] * 4 + ["b"] * 5)


def test_a_missing_extra_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install .*\[ray\]"):
        cluster_address(None)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ray://head:10001", "add this machine to the cluster"),
        ("127.0.0.1:1", "No Ray cluster answers at 127.0.0.1:1"),
        ("nonsense", "give HOST:PORT"),
    ],
)
def test_an_unusable_address_is_reported_at_once(address: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        cluster_address(address)
