"""The folder of a report. A manifest in it tells what a report wrote there, with checksums; nothing
else is ever removed or overwritten, and nothing is written through a link."""

import hashlib
import json
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
    """Whether a report can be written here; `mark` is a file that only a report has, also one
    without a manifest."""
    for folder in (out, *(out / name for name in FOLDERS)):
        if folder.is_symlink():
            raise UserError(
                f"{folder} is a symbolic link; name the folder that it leads to with --out, "
                "or remove it."
            )
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file; name a folder with --out.")
    if (
        out.is_dir()
        and any(out.iterdir())
        and not any((out / name).exists() for name in (mark, MANIFEST))
    ):
        raise UserError(f"{out} holds something that is no report; name another folder with --out.")


def write_files(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a report by their names, in place of those of the report before. A file of
    such a name that somebody else wrote or changed is kept under another one."""
    before, kept = _written_before(out), []
    for name, content in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        there = _checksum(path)
        if there == hashlib.sha256(content).hexdigest():
            continue
        if there not in (None, before.get(name)):
            ways = (path.with_name(f"{path.name}.kept{k or ''}") for k in range(10_000))
            kept.append(
                path.rename(next(way for way in ways if not (way.exists() or way.is_symlink())))
            )
        write_whole(path, content)
    for name in before.keys() - files.keys():
        if _checksum(out / name) == before[name]:
            (out / name).unlink()
    checksums = {
        name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())
    }
    about = {"format": FORMAT, "files": checksums}
    write_whole(out / MANIFEST, json.dumps(about, indent=1).encode() + b"\n")
    if kept:
        warnings.warn(
            f"{len(kept)} files in {out} were not, or no longer, as a report wrote them; they "
            "were kept beside the new "
            f"ones, as {kept[0].relative_to(out)}.",
            stacklevel=3,
        )


def _checksum(path: Path) -> str | None:
    """None where there is nothing, and what is no checksum where there is a link or a folder."""
    if path.is_symlink() or path.is_dir():
        return "no file"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _written_before(out: Path) -> dict[str, str]:
    try:
        about = read_json(out / MANIFEST, {"files": dict})
    except UserError:  # so that nothing is replaced
        return {}
    files = about["files"] if about.get("format") == FORMAT else {}
    return {name: value for name, value in files.items() if _is_sound(name, value)}


def _is_sound(name: str, value: Any) -> bool:
    """Nothing else is taken from a manifest, whoever wrote it: a file of a report's kind in a
    folder of a report."""
    folder, slash, file = name.rpartition("/")
    in_place = (
        is_file_name(file) and (not slash or folder in FOLDERS) and Path(file).suffix in KINDS
    )
    return in_place and isinstance(value, str) and len(value) == 2 * hashlib.sha256().digest_size
