"""Checkpoints of a cohort: folders of safetensors and JSON files with a manifest of checksums,
renamed into place.

Nothing is unpickled, so a checkpoint contains only data. If it does not match its checksums or
belongs to another cohort, it is refused with the reason, and the previous checkpoint is used.
"""

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.base import files
from pac4sac.base.errors import DamagedCheckpoint, UserError
from pac4sac.runs.identity import checkpoint_facts
from pac4sac.training import tensor_file

VERSION = 1
KEPT_APART = "kept-"  # prefix of checkpoints from before a run's failure
KEPT = 2  # the newest checkpoint, and the previous one in case the newest is damaged
FILES = ("learner.safetensors", "pool.safetensors", "progress.json")
# Required tensors, with their type and number of dimensions; the first dimension is the run.
LEARNER = {"replay": 3, "observation": 2, "action": 2, "incoming": 2}
POOL = {"seed": 1, "episode": 1, "steps": 1, "actions": 3, "observation": 2, "parked": 1}
PROGRESS = {"status": list, "details": list, "logs": list, "placement": dict, "complete": bool}
PLACEMENT = {"device": str, "backend": str, "threads": int}


class Checkpoint(NamedTuple):
    """Hold the content of a checkpoint."""

    learner: dict[str, Tensor]
    pool: dict[str, NDArray[Any]]
    progress: dict[str, Any]


def save(root: Path, fingerprint: str, step: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically, and remove the oldest one."""
    root.mkdir(parents=True, exist_ok=True)
    for leftover in root.glob("*.part"):
        shutil.rmtree(leftover)
    final = root / f"step-{step:09d}"
    part = final.with_suffix(".part")
    part.mkdir()
    try:
        _write_files(part, fingerprint, checkpoint)
        files.sync_folder(part)
        if final.exists():  # a damaged checkpoint of this step, or one from before a resume
            shutil.rmtree(final)
        part.rename(final)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        raise
    files.sync_folder(root)
    for old in newest_first(root)[KEPT:]:
        shutil.rmtree(old)


def _write_files(folder: Path, fingerprint: str, checkpoint: Checkpoint) -> None:
    """Write the files of a checkpoint, the manifest last."""
    progress = json.dumps(checkpoint.progress, default=np.ndarray.tolist).encode()
    files.write_durably(folder / FILES[2], progress)
    written = {
        FILES[0]: tensor_file.write(folder / FILES[0], checkpoint.learner),
        FILES[1]: tensor_file.write(folder / FILES[1], checkpoint.pool),
        FILES[2]: (hashlib.sha256(progress).hexdigest(), len(progress)),
    }
    manifest = {
        "format": "pac4sac checkpoint",
        "version": VERSION,
        "cohort": fingerprint,
        "files": {
            name: {"sha256": checksum, "bytes": size} for name, (checksum, size) in written.items()
        },
    }
    files.write_durably(folder / "manifest.json", json.dumps(manifest, indent=1).encode())


def load_newest(
    root: Path, fingerprint: str, check: Callable[[Checkpoint], None]
) -> Checkpoint | None:
    """Return the newest intact checkpoint, or None if there never was one.

    Damaged checkpoints, and those that `check` refuses, are reported in a warning. They are
    renamed, so they do not count among the `KEPT` checkpoints.

    Args:
        root: Folder of the cohort.
        fingerprint: Fingerprint of the cohort.
        check: Function that raises DamagedCheckpoint for an unusable checkpoint.

    Raises:
        UserError: If there are checkpoints, but all are unusable.
    """
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
            f"All checkpoints in {root} are unusable ({reasons}); train again into another folder."
        )
    warnings.warn(
        f"Unusable checkpoints in {root} ({reasons}); {folder.name} is used instead.", stacklevel=2
    )
    for damaged in problems:
        aside = damaged.with_name(f"unusable-{damaged.name}")
        shutil.rmtree(aside, ignore_errors=True)
        damaged.rename(aside)
    return usable


def read_newest(root: Path, fingerprint: str) -> Checkpoint | None:
    """Return the newest intact checkpoint, or None, without changing the folder.

    A training may be in progress in this folder.
    """
    for folder in newest_first(root):
        with contextlib.suppress(DamagedCheckpoint):
            return _load(folder, fingerprint)
    return None


def all_readable(root: Path, fingerprint: str) -> Iterator[Checkpoint]:
    """Yield the intact checkpoints of a cohort, newest first, including kept ones."""
    folders = [*newest_first(root), *root.glob(f"{KEPT_APART}*")]
    for folder in sorted(folders, key=lambda path: path.name.removeprefix(KEPT_APART))[::-1]:
        with contextlib.suppress(DamagedCheckpoint):
            yield _load(folder, fingerprint)


def keep_newest(root: Path) -> None:
    """Keep the newest checkpoint permanently, as hard links to its files."""
    for newest in newest_first(root)[:1]:
        kept = root / f"{KEPT_APART}{newest.name}"
        if not kept.exists():
            part = kept.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(newest, part, copy_function=_link)
            part.rename(kept)


def _link(source: str, target: str) -> None:
    """Make a hard link, or a copy if the file system does not support links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def drop_kept(root: Path) -> None:
    """Remove the checkpoints that `keep_newest` has kept."""
    for kept in root.glob(f"{KEPT_APART}*"):
        shutil.rmtree(kept)


def _load(folder: Path, fingerprint: str) -> Checkpoint:
    """Return the content of a checkpoint.

    Raises:
        DamagedCheckpoint: If the checkpoint is damaged or belongs to another cohort.
    """
    checksums = _checksums(folder, fingerprint)
    for name in FILES:
        _check_file(folder / name, checksums[name])
    try:
        learner, pool = (tensor_file.read(folder / name).arrays for name in FILES[:2])
        progress = files.parse_json(files.read_file(folder / FILES[2]))
        checkpoint = Checkpoint(tensor_file.as_tensors(learner), pool, progress)
        check_schema(checkpoint)
        return checkpoint
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DamagedCheckpoint(f"its content is unreadable ({error})") from error


def check_schema(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint in which a part is missing or has another shape.

    Raises:
        KeyError: If a tensor or an entry is missing.
        ValueError: If a tensor or an entry is invalid.
    """
    learner, pool, progress = checkpoint
    _check_entries(progress, PROGRESS)
    _check_entries(progress["placement"], PLACEMENT)
    runs = len(progress["status"])
    if runs == 0 or learner["step"].shape or learner["step"].dtype != torch.int64:
        raise ValueError("it has no step")
    for name, dimensions in LEARNER.items():
        _check_shape(name, learner[name], dimensions, runs)
        if learner[name].dtype != torch.float32:
            raise ValueError(f"its {name} has the type {learner[name].dtype}")
    for name, dimensions in POOL.items():
        _check_shape(name, pool[name], dimensions, runs)
    if pool["failures"].ndim != 1:
        raise ValueError("its failures are not a string")


def _check_entries(table: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    """Refuse a table of the progress that has an entry of the wrong type."""
    if wrong := [name for name, kind in kinds.items() if not isinstance(table[name], kind)]:
        raise ValueError(f"its progress record has no valid {', '.join(wrong)}")


def _check_shape(name: str, array: Tensor | NDArray[Any], dimensions: int, runs: int) -> None:
    """Refuse an array with another number of dimensions or of runs."""
    if array.ndim != dimensions or len(array) != runs:
        raise ValueError(
            f"its {name} does not have {dimensions} dimensions with one entry for each of {runs} "
            "runs"
        )


def _checksums(folder: Path, fingerprint: str) -> dict[str, str]:
    """Return the checksums in a manifest, after a check of its version and cohort."""
    try:
        manifest = files.parse_json(files.read_file(folder / "manifest.json"))
        version, cohort = manifest["version"], manifest["cohort"]
        checksums = {name: manifest["files"][name]["sha256"] for name in FILES}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpoint(f"its manifest is unreadable ({error})") from error
    if version != VERSION:
        raise DamagedCheckpoint(
            f"it has version {version}, but this version of pac4sac reads version {VERSION}"
        )
    if cohort != fingerprint:
        raise DamagedCheckpoint("it belongs to another cohort")
    return checksums


def _check_file(path: Path, checksum: str) -> None:
    """Refuse a file that does not match its checksum."""
    try:
        with files.open_regular(path) as file:
            is_whole = hashlib.file_digest(file, "sha256").hexdigest() == checksum
    except OSError as error:
        raise DamagedCheckpoint(f"{path.name} is unreadable ({error.strerror})") from error
    if not is_whole:
        raise DamagedCheckpoint(f"{path.name} does not match its checksum")


def fingerprint(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the checksum that identifies a cohort, from the descriptions of its runs."""
    facts = {"runs": [checkpoint_facts(run) for run in runs]}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def newest_first(root: Path) -> list[Path]:
    """Return the completely written checkpoints of a cohort, newest first."""
    return sorted((path for path in root.glob("step-*") if path.suffix != ".part"), reverse=True)
