"""A folder with the packages that a machine without a network lacks."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import offline_kit
from offline_kit import KitError, Target, Unused

TARGET = Target("3.12")


def make_wheel(folder: Path, name: str, *requires: str, files: dict[str, str] | None = None):
    """Write a wheel that pip accepts."""
    about = f"{name}-1.0.dist-info"
    metadata = "\n".join(
        ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0"]
        + [f"Requires-Dist: {text}" for text in requires]
    )
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "")
        for file, text in (files or {}).items():
            wheel.writestr(file, text)
        wheel.writestr(f"{about}/METADATA", metadata + "\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return path


class WheelIndex:
    """Wheels by name, in place of an index."""

    target = TARGET

    def __init__(self, **wheels: Path) -> None:
        self.wheels = wheels

    def wheel(self, requirement: Requirement) -> Path:
        return self.wheels[requirement.name]


def test_requirements_are_followed_except_present_and_unused_ones(tmp_path, monkeypatch):
    shelf = WheelIndex(
        one=make_wheel(tmp_path, "one", "two[fast]", "numpy", "old; python_version < '3.12'"),
        two=make_wheel(
            tmp_path, "two", "three; extra == 'fast'", "slow; extra == 'slow'", "unused"
        ),
        three=make_wheel(tmp_path, "three", "one"),
    )
    monkeypatch.setitem(offline_kit.UNUSED, "two", Unused(frozenset({"unused"})))
    wanted = [Requirement("one"), Requirement("windows; sys_platform == 'win32'")]
    wheels = offline_kit.needed_wheels(wanted, ["NumPy"], shelf)
    assert [*wheels] == ["one", "two", "three"]


def test_unused_files_and_lines_are_omitted(tmp_path):
    files = {"one/a.py": "x = 1\nslow()\ny = 2\n", "one/data/big.png": "", "one/keep.xml": ""}
    wheel = make_wheel(tmp_path / "wheels", "one", files=files)
    kit = tmp_path / "kit"
    offline_kit.unpack(wheel, kit, Unused(files=("one/data/*",), lines={"one/a.py": "slow()"}))
    assert (kit / "one" / "a.py").read_text() == "x = 1\ny = 2\n"
    assert (kit / "one" / "keep.xml").exists()
    assert not (kit / "one" / "data").exists()
    assert [path.name for path in kit.glob("*.dist-info/*") if path.name != "WHEEL"] == ["METADATA"]


def make_kit(tmp_path: Path, *arguments: str) -> int:
    """Make a kit of a wheel without requirements; the project's own are said to be present."""
    project = offline_kit.requirements_of_project(offline_kit.ROOT / "pyproject.toml", [])
    present = ",".join(requirement.name for requirement in project)
    wheels = make_wheel(tmp_path / "wheels", "one", files={"one/data": 1000 * "x"}).parent
    command = [str(tmp_path / "kit"), "--present", present, "--require", "one==1.0"]
    return offline_kit.main([*command, "--wheels", str(wheels), *arguments])


def test_a_kit_has_wheels_and_added_modules_and_replaces_an_older_one(tmp_path, capsys):
    own = tmp_path / "own"
    own.mkdir()
    (own / "simulator.py").write_text("")
    (own / "README.md").write_text("")
    assert make_kit(tmp_path, "--add", str(own), "--limit", "1") == 0
    kit = tmp_path / "kit"
    assert sorted(path.name for path in kit.iterdir()) == [
        "kit.json",
        "one",
        "one-1.0.dist-info",
        "simulator.py",
    ]
    assert json.loads((kit / "kit.json").read_text())["python"] == "3.12"
    assert "one-1.0" in capsys.readouterr().out
    assert make_kit(tmp_path) == 0
    assert not (kit / "simulator.py").exists()


def test_a_kit_that_is_too_large_or_would_overwrite_files_is_refused(tmp_path, capsys):
    assert make_kit(tmp_path, "--limit", "0.0005") == 2
    assert "--limit" in capsys.readouterr().err
    assert not (tmp_path / "kit").exists()
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "mine").write_text("")
    assert make_kit(tmp_path) == 2
    assert "not a kit" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "kit").iterdir()] == ["mine"]


def test_mistakes_are_reported_in_a_sentence(tmp_path, capsys):
    with pytest.raises(KitError, match="mujco"):
        offline_kit.requirements_of_project(offline_kit.ROOT / "pyproject.toml", ["mujco"])
    assert make_kit(tmp_path, "--require", "absent==7") == 2
    assert "absent==7" in capsys.readouterr().err
    assert make_kit(tmp_path, "--add", str(tmp_path / "nowhere")) == 2
    assert "nowhere" in capsys.readouterr().err


def test_the_extras_of_simulators_name_what_the_kit_knows():
    extras = offline_kit.requirements_of_project(
        offline_kit.ROOT / "pyproject.toml", ["mujoco", "dmc"]
    )
    names = {requirement.name.replace("_", "-") for requirement in extras}
    assert {"mujoco", "dm-control", "gymnasium"} <= names
