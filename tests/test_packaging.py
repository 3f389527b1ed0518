"""What goes into a wheel, told without building one."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]


def test_all_that_lies_in_the_package_goes_into_the_wheel():
    assert BUILD["wheel"] == {"packages": ["src/pac4sac"]}
    assert "src" in BUILD["sdist"]["only-include"]
    # The builder leaves out what .gitignore names, be it in the repository or not.
    left_out = [pattern.strip("/") for pattern in (ROOT / ".gitignore").read_text().split()]
    names = {
        name
        for path in (ROOT / "src").glob("pac4sac/**/*")
        for name in path.relative_to(ROOT).parts
    }
    assert {"py.typed", "template.html", "half-cheetah.safetensors", "table-1.toml"} < names
    named = {name for name in names for pattern in left_out if fnmatch(name, pattern)}
    assert named <= {"__pycache__"}
