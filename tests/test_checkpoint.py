"""Damaged, foreign and hostile checkpoints: never a silent wrong resume, and nothing in them is
executed."""

import contextlib
import hashlib
import io
import json
import pickle
import random
import re
import shutil
import signal
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_experiments import SignalAt, contents, copy, newest, rewrite_progress, same, train

import pac4sac
from pac4sac.base import files
from pac4sac.base.errors import UserError
from pac4sac.runs.reading import read_experiment
from pac4sac.training import checkpoint
from pac4sac.training.checkpoint import Checkpoint
from pac4sac.training.experiment import create, experiment_runs
from pac4sac.training.options import Options

FILES = ("learner.safetensors", "pool.safetensors", "progress.json", "manifest.json")
LOG = Path("runs/sac-seed0/episodes.jsonl")
STOPPED_AT = 107
HOSTILE = [
    "pickle",
    "torch.save",
    "endless header",
    "endless tensor",
    "deep nesting",
    "code as text",
    "empty",
]
HOSTILE += ["wrong JSON", "JSON of other runs"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("whole") / "x", steps=160).folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, stopped between two checkpoints: it has those of steps 80 and 107."""
    folder = tmp_path_factory.mktemp("stopped") / "x"
    return train(folder, steps=160, callbacks=[SignalAt(signal.SIGTERM, step=STOPPED_AT)]).folder


@pytest.fixture
def broken(stopped: Path, tmp_path: Path) -> Path:
    return copy(stopped, tmp_path / "x")


def sign(folder: Path) -> None:
    """Give a checkpoint the checksums of what is in it now, as one who means harm would."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name in FILES[:3]:
        manifest["files"][name]["sha256"] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def load(root: Path, cohort: str) -> Checkpoint | None:
    return checkpoint.load_newest(root, cohort, lambda loaded: None)


def fingerprint(root: Path) -> str:
    return str(json.loads((max(root.glob("step-*")) / "manifest.json").read_bytes())["cohort"])


def equal(a: Checkpoint, b: Checkpoint) -> bool:
    return (
        a.progress == b.progress
        and a.learner.keys() == b.learner.keys()
        and all(torch.equal(a.learner[name], b.learner[name]) for name in a.learner)
        and {name: array.tobytes() for name, array in a.pool.items()}
        == {name: array.tobytes() for name, array in b.pool.items()}
    )


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(FILES),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(["flip", "cut", "insert"]),
    st.data(),
)
def test_random_damage_of_the_newest_checkpoint_is_always_detected(
    stopped: Path, tmp_path: Path, name: str, place: float, damage: str, data: st.DataObject
) -> None:
    root = tmp_path / "000"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(stopped / "cohorts" / "000", root)
    cohort, (older, newer) = fingerprint(root), sorted(root.glob("step-*"))
    good = {"newer": checkpoint._load(newer, cohort), "older": checkpoint._load(older, cohort)}
    content = bytearray((newer / name).read_bytes())
    at = int(place * len(content))
    if damage == "flip":
        content[at] ^= data.draw(st.integers(1, 255))
    elif damage == "cut":
        del content[at:]
    else:
        content[at:at] = data.draw(st.binary(min_size=1, max_size=9))
    (newer / name).write_bytes(content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = load(root, cohort)
    assert loaded is not None
    assert equal(loaded, good["older" if caught else "newer"])
    assert all(newer.name in str(warning.message) for warning in caught)
    if name != "manifest.json":  # in it there are bytes without meaning
        assert caught
        assert (root / f"unusable-{newer.name}").exists()


def test_after_damage_the_previous_checkpoint_gives_the_same_result(
    broken: Path, whole: Path
) -> None:
    victim = newest(broken)
    content = bytearray((victim / "learner.safetensors").read_bytes())
    content[random.Random(1).randrange(len(content))] ^= 1
    (victim / "learner.safetensors").write_bytes(content)
    with pytest.warns(
        UserWarning,
        match=f"{victim.name}: learner.safetensors does not match.*step-000000080 is used",
    ):
        assert pac4sac.resume(broken).complete
    shutil.rmtree(broken / "cohorts" / "000" / f"unusable-{victim.name}")
    assert same(broken, whole)


@pytest.mark.parametrize("wrong", [None, [None], ["x"], {}])
def test_returns_that_are_not_numbers_count_as_damage(broken: Path, wrong: object) -> None:
    for folder in (broken / "cohorts" / "000").glob("step-*"):
        rewrite_progress(folder, lambda progress: progress["returns"].__setitem__(0, wrong))
    with pytest.raises(UserError, match=r"All checkpoints .*its progress"):
        pac4sac.resume(broken)


def test_without_an_intact_checkpoint_a_resume_is_refused_and_changes_nothing(broken: Path) -> None:
    for folder in (broken / "cohorts" / "000").glob("step-*"):
        (folder / "progress.json").unlink()
    before = contents(broken)
    with pytest.raises(
        UserError,
        match=r"All checkpoints .*step-000000107: progress.json is unreadable.*step-000000080",
    ):
        pac4sac.resume(broken)
    assert contents(broken) == before


def test_a_checkpoint_of_another_cohort_is_refused_and_replaces_none(
    broken: Path, whole: Path, tmp_path: Path
) -> None:
    other = train(tmp_path / "other", seeds=(0, 2), steps=160).folder
    for step in (5000, 6000):
        copy(newest(other), broken / "cohorts" / "000" / f"step-{step:09d}")
    with pytest.warns(UserWarning, match="step-000006000: it belongs to another cohort"):
        assert pac4sac.resume(broken).complete
    for step in (5000, 6000):
        shutil.rmtree(broken / "cohorts" / "000" / f"unusable-step-{step:09d}")
    assert same(broken, whole)


def test_a_checkpoint_of_the_same_runs_from_another_experiment_does_not_fit_the_logs(
    broken: Path, whole: Path, tmp_path: Path
) -> None:
    """A longer history with the same seeds and settings, but other random events: its logs are not
    ours."""
    about = read_experiment(whole)
    options = Options(**about["options"] | {"start_from": str(whole / "runs" / "sac-seed0")})
    # by runs that do not tell what they start from
    create(tmp_path / "other", experiment_runs(about), options)
    other = pac4sac.resume(tmp_path / "other").folder
    copy(newest(other), broken / "cohorts" / "000" / newest(other).name)
    with pytest.warns(
        UserWarning, match=r"step-000000160: .*jsonl was changed or cut after this checkpoint"
    ):
        assert pac4sac.resume(broken).complete


def test_another_checkpoint_version_is_reported(broken: Path) -> None:
    for folder in (broken / "cohorts" / "000").glob("step-*"):
        manifest = json.loads((folder / "manifest.json").read_bytes()) | {"version": 99}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="version 99, but this version of pac4sac reads version 1"):
        pac4sac.resume(broken)


def test_a_log_cut_below_the_newest_checkpoint_is_rewritten_from_the_previous_one(
    broken: Path, whole: Path
) -> None:
    lines = (broken / LOG).read_bytes().splitlines(keepends=True)
    (broken / LOG).write_bytes(b"".join(lines[:-1]))
    with pytest.warns(UserWarning, match=r"step-000000107: .*episodes.jsonl was changed or cut"):
        assert pac4sac.resume(broken).complete
    shutil.rmtree(broken / "cohorts" / "000" / "unusable-step-000000107")
    assert same(broken, whole)


@pytest.mark.parametrize("damage", ["edited", "deleted"])
def test_a_log_that_was_replaced_is_refused(broken: Path, damage: str) -> None:
    if damage == "deleted":
        (broken / LOG).unlink()
    else:
        (broken / LOG).write_bytes(
            (broken / LOG).read_bytes().replace(b'"episode": 0', b'"episode": 7')
        )
    before = contents(broken)
    with pytest.raises(UserError, match=r"episodes.jsonl was changed or cut"):
        pac4sac.resume(broken)
    assert contents(broken) == before


def test_lines_written_after_the_checkpoint_by_a_killed_process_are_cut(
    broken: Path, whole: Path
) -> None:
    with (broken / LOG).open("a") as file:
        file.write('{"episode": 4, "step": 111, "ret')
    assert pac4sac.resume(broken).complete
    assert same(broken, whole)


class Payload:
    """What unpickling would execute."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (open, (str(self.mark), "w"))  # type: ignore[return-value]


def hostile(kind: str, mark: Path) -> bytes:
    header = json.dumps(
        {"step": {"dtype": "I64", "shape": [2**61], "data_offsets": [0, 2**64 - 1]}}
    ).encode()
    return {
        "pickle": pickle.dumps(Payload(mark)),
        "torch.save": torch_saved(mark),
        "endless header": struct.pack("<Q", 2**63) + b"{" * 100,
        "endless tensor": struct.pack("<Q", len(header)) + header,
        "deep nesting": b"[" * 200_000 + b"]" * 200_000,
        "code as text": f"open({str(mark)!r}, 'w')".encode(),
        "empty": b"",
        "wrong JSON": b'{"logs": 3, "status": {}, "complete": [], "placement": "cuda"}',
        "JSON of other runs": json.dumps(
            {
                name: [None, None]
                for name in ("status", "details", "returns", "best", "so_far", "length", "logs")
            }
        ).encode(),
    }[kind]


def torch_saved(mark: Path) -> bytes:
    stream = io.BytesIO()
    torch.save({"weights": Payload(mark)}, stream)
    return stream.getvalue()


def test_the_malicious_payload_works_when_unpickled(tmp_path: Path) -> None:
    pickle.loads(hostile("pickle", tmp_path / "mark")).close()
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", HOSTILE)
def test_malicious_content_with_valid_checksums_is_not_executed_and_is_reported(
    broken: Path, tmp_path: Path, kind: str, name: str
) -> None:
    mark = tmp_path / "mark"
    for folder in (broken / "cohorts" / "000").glob("step-*"):
        (folder / name).write_bytes(hostile(kind, mark))
        if name != "manifest.json":
            sign(folder)
    before = contents(broken)
    with pytest.raises(
        UserError, match=r"All checkpoints in .* are unusable \(step-000000107: its"
    ):
        pac4sac.resume(broken)
    assert not mark.exists()
    assert contents(broken) == before


def test_signed_tensors_of_wrong_shapes_are_refused_in_a_sentence(broken: Path) -> None:
    for folder in (broken / "cohorts" / "000").glob("step-*"):
        tensors = load_file(folder / "learner.safetensors")
        tensors["replay"] = tensors["replay"][:, :, :-1].contiguous()
        save_file(tensors, folder / "learner.safetensors")
        sign(folder)
    with pytest.raises(UserError, match="does not match its runs"):
        pac4sac.resume(broken)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"version": 1}',
        b"[" * 100_000,
        b'{"version": 1, "options": {}, "cohorts": 3}',
    ],
)
def test_a_damaged_experiment_json_is_reported(broken: Path, content: bytes) -> None:
    (broken / "experiment.json").write_bytes(content)
    with pytest.raises(UserError, match=r"experiment\.json is damaged"):
        pac4sac.resume(broken)


def test_an_experiment_json_of_other_runs_does_not_fit_the_checkpoints(broken: Path) -> None:
    text = (broken / "experiment.json").read_text()
    (broken / "experiment.json").write_text(re.sub(r'"lr": 0.0003', '"lr": 0.002', text))
    with pytest.raises(UserError, match="belongs to another cohort"):
        pac4sac.resume(broken)


def test_a_full_disk_keeps_the_previous_checkpoint_and_a_resume_continues(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up in one after another of the writes of the second checkpoint and of the
    last."""
    folder = tmp_path / "x"
    opened = files.durable_file
    for attempt, fails_at in enumerate([12, 5, 3, 1]):
        countdown = [fails_at]

        @contextlib.contextmanager
        def full(path: Path, countdown: list[int] = countdown) -> Iterator[BinaryIO]:
            countdown[0] -= 1
            with opened(path) as file:
                yield file
                if countdown[0] == 0:
                    file.truncate(10)
                    raise OSError(28, "No space left on device", str(path))

        monkeypatch.setattr(files, "durable_file", full)
        with pytest.raises(OSError, match="No space left"):
            pac4sac.resume(folder) if attempt else train(folder, steps=160)
        assert not list(folder.glob("cohorts/000/*.part"))
        if attempt:
            assert (
                load(folder / "cohorts" / "000", fingerprint(folder / "cohorts" / "000"))
                is not None
            )
    monkeypatch.undo()
    assert pac4sac.resume(folder).complete
    assert same(folder, whole)
