"""The studies that ship with the package, one TOML file each."""

from functools import cache
from pathlib import Path
from typing import Any

from pac4sac.base.files import read_toml

SHIPPED_STUDIES = Path(__file__).parents[1] / "paper" / "studies"


@cache
def shipped_study(name: str) -> dict[str, Any]:
    """Return the content of a shipped study's file."""
    _, content = read_toml(SHIPPED_STUDIES / f"{name}.toml")
    return content


def shipped_studies() -> dict[str, str]:
    """Return name and title of every shipped study."""
    names = [path.stem for path in sorted(SHIPPED_STUDIES.glob("*.toml"))]
    return {name: shipped_study(name)["title"] for name in names}
