"""Checkpoints of a cohort: a folder of safetensors and JSON with a manifest of checksums, renamed
into place.

No file is ever unpickled, so a checkpoint can hold data and nothing else. What does not match its
checksum, or belongs to another cohort, is refused with the reason, and the checkpoint before it is
used."""

import contextlib
import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
import safetensors.torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.base import files
from pac4sac.base.errors import DamagedCheckpoint, UserError
from pac4sac.runs.identity import checkpoint_facts

VERSION = 1
KEPT = 2  # the newest, and the one before it in case the newest is damaged
FILES = ("learner.safetensors", "pool.safetensors", "progress.json")


class Checkpoint(NamedTuple):
    learner: dict[str, Tensor]
    pool: dict[str, NDArray[Any]]
    progress: dict[str, Any]


def save(root: Path, fingerprint: str, step: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint beside the others; it appears whole or not at all."""
    root.mkdir(parents=True, exist_ok=True)
    for leftover in root.glob("*.part"):
        shutil.rmtree(leftover)
    final = root / f"step-{step:09d}"
    part = final.with_suffix(".part")
    part.mkdir()
    contents = {
        FILES[0]: safetensors.torch.save(checkpoint.learner),
        FILES[1]: safetensors.numpy.save(
            {name: np.ascontiguousarray(a) for name, a in checkpoint.pool.items()}
        ),
        FILES[2]: json.dumps(checkpoint.progress, default=np.ndarray.tolist).encode(),
    }
    sums = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in contents.items()
    }
    manifest = {
        "format": "pac4sac checkpoint",
        "version": VERSION,
        "cohort": fingerprint,
        "files": sums,
    }
    contents["manifest.json"] = json.dumps(manifest, indent=1).encode()
    try:
        for name, data in contents.items():
            files.write_durably(part / name, data)
        files.sync_folder(part)
        if final.exists():  # the same step, saved before and found damaged, or again after a resume
            shutil.rmtree(final)
        part.rename(final)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        raise
    files.sync_folder(root)
    for old in newest_first(root)[KEPT:]:
        shutil.rmtree(old)


def load_newest(
    root: Path, fingerprint: str, check: Callable[[Checkpoint], None]
) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None when there never was one. Those that are not, or
    that `check` refuses, are named in a warning and set aside, lest they be counted among those to
    keep."""
    usable, problems = None, {}
    for folder in newest_first(root):
        try:
            checkpoint = _load(folder, fingerprint)
            check(checkpoint)
            usable = checkpoint
            break
        except DamagedCheckpoint as problem:
            problems[folder] = f"{folder.name}: {problem}"
    if not problems:
        return usable
    reasons = "; ".join(problems.values())
    if usable is None:
        raise UserError(
            f"No checkpoint in {root} can be used ({reasons}); train again into another folder."
        )
    warnings.warn(
        f"Checkpoints in {root} cannot be used ({reasons}). {folder.name} is used instead.",
        stacklevel=2,
    )
    for damaged in problems:
        aside = damaged.with_name(f"unusable-{damaged.name}")
        shutil.rmtree(aside, ignore_errors=True)
        damaged.rename(aside)
    return usable


def read_newest(root: Path, fingerprint: str) -> Checkpoint | None:
    """The newest checkpoint that is whole, for those who only look: nothing is set aside, and
    training may go on."""
    for folder in newest_first(root):
        with contextlib.suppress(DamagedCheckpoint):
            return _load(folder, fingerprint)
    return None


def _load(folder: Path, fingerprint: str) -> Checkpoint:
    try:
        manifest = files.parse_json(files.read_file(folder / "manifest.json"))
        version, cohort = manifest["version"], manifest["cohort"]
        checksums = {name: manifest["files"][name]["sha256"] for name in FILES}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpoint(f"its manifest is unreadable ({error})") from error
    if version != VERSION:
        raise DamagedCheckpoint(
            f"it has version {version}, and this pac4sac reads version {VERSION}"
        )
    if cohort != fingerprint:
        raise DamagedCheckpoint("it belongs to another cohort")
    contents = []
    for name in FILES:
        try:
            contents.append(files.read_file(folder / name))
        except OSError as error:
            raise DamagedCheckpoint(f"{name} is unreadable ({error.strerror})") from error
        if hashlib.sha256(contents[-1]).hexdigest() != checksums[name]:
            raise DamagedCheckpoint(f"{name} does not match its checksum")
    try:
        learner, pool, progress = contents
        return Checkpoint(
            safetensors.torch.load(learner),
            safetensors.numpy.load(pool),
            files.parse_json(progress),
        )
    except Exception as error:  # whatever a reader makes of content that we did not write
        raise DamagedCheckpoint(f"its content is unreadable ({type(error).__name__})") from error


def fingerprint(runs: Sequence[Mapping[str, Any]]) -> str:
    """Of a cohort, from the descriptions of its runs."""
    facts = {"runs": [checkpoint_facts(run) for run in runs]}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def newest_first(root: Path) -> list[Path]:
    """The checkpoints of a cohort that are whole."""
    return sorted((path for path in root.glob("step-*") if path.suffix != ".part"), reverse=True)
