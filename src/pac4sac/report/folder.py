"""The folder of a report, and its manifest.

The manifest lists the files that a report wrote, with checksums. Other files are never removed or
overwritten, and symbolic links are not followed.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.files import is_file_name, read_json, write_whole

MANIFEST, FORMAT = "manifest.json", "pac4sac report"
FOLDERS = ("tables", "figures")
KINDS = (".html", ".md", ".csv", ".tex", ".svg", ".pdf")


def check_folder(out: Path, mark: str) -> None:
    """Refuse a folder that a report cannot be written into.

    Args:
        out: The folder.
        mark: A file that identifies a report without a manifest.

    Raises:
        UserError: If it is a link or a file, or contains files that are not a report.
    """
    for folder in (out, *(out / name for name in FOLDERS)):
        _check_place(folder)
    if not out.is_dir():
        return
    with _alone_in(out):  # a first report that is being written has no mark yet
        is_report = (out / mark).exists() or (out / MANIFEST).exists()
        if not is_report and any(out.iterdir()):
            raise UserError(
                f"{out} has files that do not belong to a report; choose another folder with --out."
            )


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process writes a report into a folder.

    Some network file systems have no locks; there reports must not be written at the same time.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_place(folder: Path) -> None:
    """Refuse a path that exists and is not a folder."""
    if folder.is_symlink():
        raise UserError(
            f"{folder} is a symbolic link; give its target with --out, or remove the link."
        )
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder with --out.")


def write_files(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a report by name, replacing those of the earlier report.

    A file that was changed since, or that no report wrote, is kept under another name.
    """
    out.mkdir(parents=True, exist_ok=True)
    with _alone_in(out):
        kept = _write_and_remove(out, files)
    if kept:
        warnings.warn(
            f"{len(kept)} changed files in {out} were kept under another name, such as "
            f"{kept[0].relative_to(out)}.",
            stacklevel=3,
        )


def _write_and_remove(out: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files and remove those of the earlier report; return what was kept, renamed."""
    before, kept = _written_before(out), []
    checksums = {name: _sha256(content) for name, content in sorted(files.items())}
    for name, content in files.items():
        stored = _checksum(out / name)
        if stored == checksums[name]:
            continue
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        if stored not in (None, before.get(name)):
            kept.append(_keep(out / name))
        write_whole(out / name, content)
    for name in before.keys() - files.keys():
        if _checksum(out / name) == before[name]:
            (out / name).unlink()
    about = {"format": FORMAT, "files": checksums}
    write_whole(out / MANIFEST, json.dumps(about, indent=1).encode() + b"\n")
    return kept


def _keep(path: Path) -> Path:
    """Rename a file to the first free name that ends in `.kept`, and return that name."""
    names = (path.with_name(f"{path.name}.kept{k or ''}") for k in itertools.count())
    return path.rename(next(name for name in names if not os.path.lexists(name)))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _checksum(path: Path) -> str | None:
    """Return the checksum of a file, None if it is missing, or a word for a link or folder."""
    if path.is_symlink() or path.is_dir():
        return "no file"
    return _sha256(path.read_bytes()) if path.exists() else None


def _written_before(out: Path) -> dict[str, str]:
    """Return the checksums in the manifest of the earlier report; empty if there is none."""
    try:
        about = read_json(out / MANIFEST, {"files": dict})
    except UserError:  # an unreadable manifest protects all files
        return {}
    files = about["files"] if about.get("format") == FORMAT else {}
    return {name: value for name, value in files.items() if _is_sound(name, value)}


def _is_sound(name: str, value: Any) -> bool:
    """Return whether an entry of a manifest is a checksum of a file that a report can write."""
    folder, slash, file = name.rpartition("/")
    if slash and folder not in FOLDERS:
        return False
    if not is_file_name(file) or Path(file).suffix not in KINDS:
        return False
    return isinstance(value, str) and len(value) == 2 * hashlib.sha256().digest_size
