"""Pack files into a compressed tar file in parts of limited size, and unpack them again."""

import io
import lzma
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pac4sac.base.errors import UserError

PART = "part"


def pack(paths: Iterable[Path], base: Path, out: Path, largest: float) -> list[Path]:
    """Write files and folders to a compressed tar file in numbered parts.

    Args:
        paths: What to pack, below `base`.
        base: Names in the tar file are relative to it.
        out: Folder of the parts; earlier ones there are removed.
        largest: Size of a part in MiB.
    """
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for path in paths:
            tar.add(path, path.relative_to(base))
    content = lzma.compress(stream.getvalue(), preset=4)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"runs.tar.xz.{PART}*"):
        old.unlink()
    size = max(1, round(largest * 2**20))
    parts = [out / f"runs.tar.xz.{PART}{k}" for k in range(-(-len(content) // size))]
    for number, part in enumerate(parts):
        part.write_bytes(content[number * size : (number + 1) * size])
    return parts


def unpack(parts: Sequence[Path], folder: Path) -> None:
    """Unpack the parts that `pack` wrote into a folder, in any order of the arguments.

    Raises:
        UserError: Parts are missing or damaged.
    """
    ordered = sorted(parts, key=lambda part: int(part.name.rpartition(PART)[2] or 0))
    try:
        content = lzma.decompress(b"".join(part.read_bytes() for part in ordered))
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            tar.extractall(folder, filter="data")
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        shown = ", ".join(part.name for part in ordered)
        raise UserError(f"{shown}: the parts are damaged, or one is missing ({error}).") from error
