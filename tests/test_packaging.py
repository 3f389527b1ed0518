"""What goes into a wheel, told without building one."""

import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]


def test_all_that_lies_in_the_package_goes_into_the_wheel():
    assert BUILD["wheel"] == {"packages": ["src/pac4sac"]}
    assert "src" in BUILD["sdist"]["only-include"]
    # The builder leaves out what .gitignore names, be it in the repository or not.
    files = [str(path) for path in (ROOT / "src/pac4sac").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert any(name.endswith(".safetensors") for name in files)
    command = ["git", "-C", str(ROOT), "check-ignore", "--no-index", "--stdin"]
    assert subprocess.run(command, input="\n".join(files), capture_output=True, text=True).stdout == ""
