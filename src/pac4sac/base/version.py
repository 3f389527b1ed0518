"""The version of pac4sac, and a checksum of its source."""

import functools
import hashlib
import importlib.metadata
from pathlib import Path

try:
    __version__ = importlib.metadata.version("pac4sac")
except importlib.metadata.PackageNotFoundError:  # run from a source folder
    __version__ = "source"


@functools.cache
def package_source() -> str:
    """A checksum of the source that pac4sac runs from, whatever its version says."""
    root, content = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(
        path for path in root.rglob("*") if path.suffix in (".py", ".toml", ".html")
    ):
        content.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return content.hexdigest()[:12]
