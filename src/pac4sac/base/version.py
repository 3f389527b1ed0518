"""Which pac4sac this is, and which source of the user's own takes part in a training."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

try:
    __version__ = importlib.metadata.version("pac4sac")
except importlib.metadata.PackageNotFoundError:  # run from a source folder
    __version__ = "source"

# Known by their versions; and a script that is edited to call something else is still the same
# training.
NOT_OWN = {"pac4sac", "gymnasium", "shimmy", "__main__", *sys.stdlib_module_names}


@functools.cache
def package_source() -> str:
    """A checksum of the source that pac4sac runs from, whatever its version says."""
    root, content = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(
        path for path in root.rglob("*") if path.suffix in (".py", ".toml", ".html")
    ):
        content.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return content.hexdigest()[:12]


def own_sources(modules: Iterable[str]) -> dict[str, str]:
    """Checksums of the files of those modules that are the user's own; none of what has no file."""
    sources = {}
    for name in sorted(name for name in modules if name.split(".")[0] not in NOT_OWN):
        try:
            home = sys.modules.get(name) or importlib.util.find_spec(name)
            file = getattr(home, "__file__", None) or getattr(home, "origin", None)
            sources[name] = hashlib.sha256(Path(file or "").read_bytes()).hexdigest()[:12]
        except (ImportError, ValueError, OSError):
            continue
    return sources
