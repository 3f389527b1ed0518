"""Check what goes into a wheel, without building one, and what developers install and run."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from pac4sac.base import errors

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILD = PROJECT["tool"]["hatch"]["build"]["targets"]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def distribution(requirement: str) -> str:
    """Return the normalised name in a requirement or a line of constraints.txt."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


def test_all_files_of_the_package_are_in_the_wheel():
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


def test_versions_in_all_files_agree():
    version = PROJECT["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    releases = re.findall(r"^## (\d\S+) \(\d{4}-\d\d-\d\d\)$", changelog(), re.MULTILINE)
    assert f"\nversion: {version}\n" in citation
    assert releases[0] == version


def test_the_changelog_has_sections_for_unreleased_changes():
    unreleased = changelog().split("\n## ")[1]
    assert unreleased.startswith("Unreleased\n")
    assert re.findall(r"^### (.+)$", unreleased, re.MULTILINE) == [
        "Added",
        "Changed",
        "Fixed",
        "Removed",
    ]


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text()


def test_the_tools_of_developers_are_groups_and_not_extras():
    groups, extras = PROJECT["dependency-groups"], PROJECT["project"]["optional-dependencies"]
    assert set(groups) == {"dev", "docs", "browser"}
    assert not set(groups) & set(extras)


def test_every_extra_is_in_the_readme():
    install = (ROOT / "README.md").read_text().split("## Install")[1].split("\n## ")[0]
    extras = PROJECT["project"]["optional-dependencies"]
    assert [extra for extra in extras if f"`{extra}`" not in install] == []


def test_make_setup_installs_pinned_versions():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {distribution(line) for line in lines if "==" in line}
    groups = PROJECT["dependency-groups"]
    wanted = [*PROJECT["project"]["dependencies"], *groups["dev"], *groups["docs"], "pip"]
    assert [name for name in wanted if distribution(name) not in pinned] == []


@pytest.mark.parametrize(
    ("is_clone", "has_pip", "command"),
    [
        (True, True, r"pip install -c constraints.txt -e '\.\[mujoco\]' in {clone}"),
        (True, False, r"uv pip install -c constraints.txt -e '\.\[mujoco\]' in {clone}"),
        (False, True, r"pip install 'pac4sac\[mujoco\]'"),
        (False, False, r"uv pip install 'pac4sac\[mujoco\]'"),
    ],
)
def test_an_error_says_how_to_install_an_extra_here(
    is_clone: bool, has_pip: bool, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    monkeypatch.setattr(
        importlib.metadata, "distributions", lambda name: [object()] if has_pip else []
    )
    clone = tmp_path / "clone"
    monkeypatch.setattr(errors, "__file__", str(clone / "src" / "pac4sac" / "base" / "errors.py"))
    if is_clone:
        clone.mkdir()
        (clone / "constraints.txt").touch()
    expected = command.format(clone=re.escape(str(clone)))
    assert re.fullmatch(f"install it with {expected}", errors.how_to_install("mujoco"))


def test_looking_for_pip_does_not_break_the_compiler_of_torch():
    code = (
        "from pac4sac.base.errors import how_to_install; how_to_install('onnx'); import setuptools"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_an_inactive_environment_is_named_by_its_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "pip").touch()
    (programs / "pip").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    assert "install it with .venv/bin/pip install" in errors.how_to_install("onnx")
    monkeypatch.setenv("PATH", str(programs))
    assert "install it with pip install" in errors.how_to_install("onnx")


def test_the_workflow_tests_every_python_that_the_package_names():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    classifiers = PROJECT["project"]["classifiers"]
    named = [name.rsplit(" ", 1)[1] for name in classifiers if ":: 3." in name]
    assert jobs["test"]["strategy"]["matrix"]["python"] == named


def test_the_hooks_run_the_tools_of_the_environment():
    yaml = pytest.importorskip("yaml")
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"
    for hook in repo["hooks"]:
        program = hook["entry"].split()[0]
        assert hook["language"] == "system"
        assert program.startswith(".venv/bin/")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", ".github/workflows/ci.yml"])
def test_every_make_target_that_is_named_exists(page: str):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    command = re.compile(r"(?:^|`|run: )make ([a-z-]+)", re.MULTILINE)
    named = set(command.findall((ROOT / page).read_text()))
    assert named
    assert named <= targets
