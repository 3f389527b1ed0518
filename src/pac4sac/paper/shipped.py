"""The studies that ship with the package, one TOML file each."""

import functools
import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "studies"


@functools.cache
def shipped_study(name: str) -> dict[str, Any]:
    """The definition of a study of the package, as it is written."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())
