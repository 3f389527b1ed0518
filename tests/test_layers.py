"""Imports go downwards only, and no class name stands for two things."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pac4sac

ROOT = Path(pac4sac.__file__).parent
# From the ground up; a package may import those before it.
LAYERS = (
    # what trains and writes run folders
    *("base", "runs", "agents", "tasks", "training"),
    # what reads run folders
    *("report", "certificates", "export", "studies", "paper", "cli"),
)


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text())


def imported_packages(tree: ast.Module) -> set[str]:
    """Of pac4sac, inside of functions too."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= (
                {node.module}
                if node.module != "pac4sac"
                else {f"pac4sac.{alias.name}" for alias in node.names}
            )
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("pac4sac.")}


def test_packages_import_only_lower_layers() -> None:
    upwards = [
        f"{path} imports {package}"
        for path, tree in modules()
        if len(path.parts) > 1
        for package in imported_packages(tree)
        if package in LAYERS and LAYERS.index(package) > LAYERS.index(path.parts[0])
    ]
    assert not upwards


def test_every_package_has_its_layer() -> None:
    assert {path.parts[0] for path, _ in modules() if len(path.parts) > 1} == set(LAYERS)


def test_a_report_needs_run_folders_only() -> None:
    for path, tree in modules():
        if path.parts[0] == "report":
            assert imported_packages(tree) <= {"base", "runs", "report"}, path


def test_only_its_own_command_imports_the_paper() -> None:
    importing = [str(path) for path, tree in modules() if "paper" in imported_packages(tree)]
    own = [path for path in importing if not path.startswith("paper")]
    assert own == ["cli/report.py"]


def test_only_the_engine_ray_imports_the_code_for_ray() -> None:
    program = (
        "import sys, pac4sac.studies.compare, pac4sac.studies.run; "
        "print([name for name in sys.modules if name.startswith('pac4sac.studies.ray')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_class_names_are_unique() -> None:
    homes = defaultdict(list)
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
