"""Versions of installed packages, and a checksum of the source code of this package."""

import functools
import hashlib
import importlib.metadata
from pathlib import Path


def installed_version(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


__version__ = installed_version("pac4sac") or "source"  # for a source folder that is not installed


@functools.cache
def package_source() -> str:
    """Return a checksum of the source files of this package."""
    root, content = Path(__file__).parents[1], hashlib.sha256()
    files = [path for path in root.rglob("*") if path.suffix in (".py", ".toml", ".html")]
    for path in sorted(files):
        content.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return content.hexdigest()[:12]
