"""Imports go downwards only, and no class name stands for two things."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pac4sac

ROOT = Path(pac4sac.__file__).parent
# From the ground up; a package may import those before it.
LAYERS = (
    # the core, which trains and writes run folders
    *("base", "agents", "tasks", "runs", "training"),
    *("report", "paper", "certificates", "export", "studies", "cli"),  # the lab, which reads them
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


def test_imports_go_downwards_only() -> None:
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


def test_a_report_needs_nothing_of_training() -> None:
    allowed = {"base", "agents", "tasks", "runs", "report", "paper"}
    for path, tree in modules():
        if path.parts[0] in ("report", "paper"):
            assert imported_packages(tree) <= allowed, path


def test_no_class_name_stands_for_two_things() -> None:
    homes = defaultdict(list)
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
