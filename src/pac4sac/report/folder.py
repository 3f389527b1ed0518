"""The folder of a report, and its manifest.

The manifest lists the files that a report wrote, with checksums. Nothing else is ever removed or
overwritten, and nothing is written through a link.
"""

import hashlib
import itertools
import json
import os
import warnings
from collections.abc import Mapping
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
        mark: A file that only a report has, also one without a manifest.

    Raises:
        UserError: If it is a link or a file, or has other files.
    """
    for folder in (out, *(out / name for name in FOLDERS)):
        _check_place(folder)
    is_report = (out / mark).exists() or (out / MANIFEST).exists()
    if not is_report and out.is_dir() and any(out.iterdir()):
        raise UserError(f"{out} has files that are not a report; choose another folder with --out.")


def _check_place(folder: Path) -> None:
    """Refuse what is neither a folder nor missing."""
    if folder.is_symlink():
        raise UserError(
            f"{folder} is a symbolic link; give its target with --out, or remove the link."
        )
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder with --out.")


def write_files(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a report by their names, in place of those of the earlier report.

    A file that somebody else wrote or changed is kept under another name.
    """
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
    if kept:
        warnings.warn(
            f"{len(kept)} files in {out} were changed since a report wrote them. The old versions "
            f"are kept, as {kept[0].relative_to(out)}.",
            stacklevel=3,
        )


def _keep(path: Path) -> Path:
    """Rename a file to the first free name that ends in `.kept`, and return that name."""
    names = (path.with_name(f"{path.name}.kept{k or ''}") for k in itertools.count())
    return path.rename(next(name for name in names if not os.path.lexists(name)))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _checksum(path: Path) -> str | None:
    """Return the checksum of a file; None if there is none, and a text for a link or a folder."""
    if path.is_symlink() or path.is_dir():
        return "no file"
    return _sha256(path.read_bytes()) if path.exists() else None


def _written_before(out: Path) -> dict[str, str]:
    """Return the checksums of the files that a report wrote."""
    try:
        about = read_json(out / MANIFEST, {"files": dict})
    except UserError:  # then nothing is replaced
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
