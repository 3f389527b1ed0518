"""Which pac4sac this is, as installed."""

import importlib.metadata

try:
    __version__ = importlib.metadata.version("pac4sac")
except importlib.metadata.PackageNotFoundError:  # run from a source folder
    __version__ = "source"
