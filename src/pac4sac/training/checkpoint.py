"""Save and load checkpoints of a cohort: folders of safetensors and JSON with a manifest of
checksums, renamed into place.

Nothing is unpickled, so a checkpoint can hold only data. One that does not match its checksums, or
belongs to another cohort, is refused with the reason, and the checkpoint before it is used."""

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
import safetensors.numpy
import safetensors.torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.base import files
from pac4sac.base.errors import DamagedCheckpoint, UserError
from pac4sac.runs.identity import checkpoint_facts

VERSION = 1
KEPT_APART = "kept-"  # prefix of checkpoints from before the failure of a run
KEPT = 2  # the newest, and the one before it in case the newest is damaged
FILES = ("learner.safetensors", "pool.safetensors", "progress.json")


class Checkpoint(NamedTuple):
    """Hold the content of a checkpoint."""

    learner: dict[str, Tensor]
    pool: dict[str, NDArray[Any]]
    progress: dict[str, Any]


def save(root: Path, fingerprint: str, step: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint next to the others, whole or not at all, and remove the oldest."""
    root.mkdir(parents=True, exist_ok=True)
    for leftover in root.glob("*.part"):
        shutil.rmtree(leftover)
    final = root / f"step-{step:09d}"
    part = final.with_suffix(".part")
    part.mkdir()
    try:
        for name, data in _files_of(checkpoint, fingerprint).items():
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


def _files_of(checkpoint: Checkpoint, fingerprint: str) -> dict[str, bytes]:
    """Return the content of each file of a checkpoint, the manifest last."""
    pool = {name: np.ascontiguousarray(array) for name, array in checkpoint.pool.items()}
    contents = {
        FILES[0]: safetensors.torch.save(checkpoint.learner),
        FILES[1]: safetensors.numpy.save(pool),
        FILES[2]: json.dumps(checkpoint.progress, default=np.ndarray.tolist).encode(),
    }
    manifest = {
        "format": "pac4sac checkpoint",
        "version": VERSION,
        "cohort": fingerprint,
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for name, data in contents.items()
        },
    }
    return contents | {"manifest.json": json.dumps(manifest, indent=1).encode()}


def load_newest(
    root: Path, fingerprint: str, check: Callable[[Checkpoint], None]
) -> Checkpoint | None:
    """Return the newest checkpoint that is whole, or None if there never was one.

    Those that are damaged, or that `check` refuses, are named in a warning and renamed: they must
    not count among the `KEPT` ones.

    Args:
        root: Folder of the cohort.
        fingerprint: Fingerprint of the cohort.
        check: Raises DamagedCheckpoint for a checkpoint that cannot be used.

    Raises:
        UserError: If there are checkpoints, but none can be used.
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
    """Return the newest checkpoint that is whole, or None, and change nothing in the folder.

    Training may continue meanwhile.
    """
    for folder in newest_first(root):
        with contextlib.suppress(DamagedCheckpoint):
            return _load(folder, fingerprint)
    return None


def all_readable(root: Path, fingerprint: str) -> Iterator[Checkpoint]:
    """Yield the checkpoints of a cohort that are whole, the newest first, those kept included."""
    folders = [*newest_first(root), *root.glob(f"{KEPT_APART}*")]
    for folder in sorted(folders, key=lambda path: path.name.removeprefix(KEPT_APART))[::-1]:
        with contextlib.suppress(DamagedCheckpoint):
            yield _load(folder, fingerprint)


def keep_newest(root: Path) -> None:
    """Keep the newest checkpoint after later ones were saved, as links to the same files."""
    for newest in newest_first(root)[:1]:
        kept = root / f"{KEPT_APART}{newest.name}"
        if not kept.exists():
            part = kept.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(newest, part, copy_function=_link)
            part.rename(kept)


def _link(source: str, target: str) -> None:
    """Make a hard link, or a copy where the file system has no links."""
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
        DamagedCheckpoint: If it is damaged or belongs to another cohort.
    """
    checksums = _checksums(folder, fingerprint)
    contents = [_read_file(folder / name, checksums[name]) for name in FILES]
    try:
        learner, pool, progress = contents
        return Checkpoint(
            safetensors.torch.load(learner),
            safetensors.numpy.load(pool),
            files.parse_json(progress),
        )
    except Exception as error:  # any error of a parser whose input we did not write
        raise DamagedCheckpoint(f"its content is unreadable ({type(error).__name__})") from error


def _checksums(folder: Path, fingerprint: str) -> dict[str, str]:
    """Return the checksums in a manifest, which must be of this version and of this cohort."""
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
    return checksums


def _read_file(path: Path, checksum: str) -> bytes:
    """Return the content of a file of a checkpoint, which must match its checksum."""
    try:
        content = files.read_file(path)
    except OSError as error:
        raise DamagedCheckpoint(f"{path.name} is unreadable ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != checksum:
        raise DamagedCheckpoint(f"{path.name} does not match its checksum")
    return content


def fingerprint(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the checksum that identifies a cohort, from the descriptions of its runs."""
    facts = {"runs": [checkpoint_facts(run) for run in runs]}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def newest_first(root: Path) -> list[Path]:
    """Return the checkpoints of a cohort that were written to their end."""
    return sorted((path for path in root.glob("step-*") if path.suffix != ".part"), reverse=True)
