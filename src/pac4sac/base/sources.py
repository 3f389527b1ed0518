"""Checksums of source code, so that a run tells which code trained it.

Comments, docstrings, formatting and error messages do not count. Neither do declarations of
settings, titles and presets: a run stores the settings that were in force.
"""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

# Shipped code that decides what an agent computes; the rest of the package only launches it.
SHIPPED = ("pac4sac.agents.", "pac4sac.tasks.robots")
# Lists of names: what an agent uses of them is found in the classes it is derived from.
INDEXES = ("pac4sac.agents.api",)
SETTINGS = ("per_run", "structural")
DECLARATIONS = ("title", "revision", "presets", "updates_of_task")
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Packages whose version changes what a simulator computes, by the first part of a module's name.
SIMULATORS = {
    "pac4sac": ("pybullet",),
    "gymnasium": ("gymnasium", "mujoco"),
    "shimmy": ("dm_control", "mujoco"),
}


def source_checksums(modules: Iterable[str]) -> dict[str, str]:
    """Return the checksum of each module, and of the modules it imports that belong to it.

    For a shipped agent these are the agents' modules, for custom code those in the same folder.
    Libraries and modules without a file are left out.
    """
    files: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in files or name in INDEXES or (file := _file_of(name)) is None:
            continue
        files[name] = file
        waiting += [used for used in _imported(name, file) if _belongs(used, file)]
    return {name: _checksum(*_state_of(file)) for name, file in sorted(files.items())}


def simulator_versions(modules: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that simulate the environments of these modules."""
    packages = {name for module in modules for name in SIMULATORS.get(module.split(".")[0], ())}
    versions = {}
    for name in sorted(packages):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _belongs(module: str, user: Path) -> bool:
    """Tell whether a module is part of the same code as the file that imports it."""
    if module.startswith("pac4sac."):
        return module.startswith(SHIPPED)
    file = _file_of(module)
    return file is not None and file.parent == user.parent


def _file_of(module: str) -> Path | None:
    top = module.split(".")[0]
    is_library = top in sys.stdlib_module_names or top in SIMULATORS or top == "__main__"
    if is_library and not module.startswith(SHIPPED):
        return None
    try:
        found = sys.modules.get(module) or importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    file = getattr(found, "__file__", None) or getattr(found, "origin", None)
    return Path(file) if file and file.endswith(".py") and Path(file).exists() else None


def _imported(module: str, file: Path) -> set[str]:
    """Return the absolute names of all modules that a file may import."""
    names = set()
    for node in ast.walk(_parse(*_state_of(file))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parent = module.split(".")[: -node.level] if node.level else []
            home = ".".join([*parent, *([node.module] if node.module else [])])
            names |= {home, *(f"{home}.{alias.name}" for alias in node.names)}
    return names


def _state_of(file: Path) -> tuple[Path, int, int]:
    """Return what tells that a file was edited, as a key for what was read from it."""
    about = file.stat()
    return file, about.st_mtime_ns, about.st_size


@functools.lru_cache(maxsize=256)
def _parse(file: Path, changed: int, size: int) -> ast.Module:
    return ast.parse(file.read_bytes())


@functools.lru_cache(maxsize=256)
def _checksum(file: Path, changed: int, size: int) -> str:
    text = "".join(_words(_parse(file, changed, size)))
    data = file.with_suffix(".toml")  # numbers of the module, if it keeps them apart
    content = text.encode() + (data.read_bytes() if data.exists() else b"")
    return hashlib.sha256(content).hexdigest()[:12]


def _words(node: object) -> Iterator[str]:
    """Write a syntax tree in a form that all supported versions of Python share."""
    if isinstance(node, ast.Raise):
        yield "raise"
    elif isinstance(node, ast.AST):
        yield f"({type(node).__name__}"
        for name, value in ast.iter_fields(node):
            if value not in (None, []) and name not in ("ctx", "type_comment", "kind"):
                yield f" {name}="
                yield from _words(_without_docstring(node, name, value))
        yield ")"
    elif isinstance(node, list):
        for item in node:
            if not _is_declaration(item):
                yield from _words(item)
    else:
        yield repr(node)


def _without_docstring(node: ast.AST, field: str, value: object) -> object:
    if field != "body" or not isinstance(node, WITH_DOCSTRING) or not ast.get_docstring(node):
        return value
    return node.body[1:]


def _is_declaration(statement: object) -> bool:
    """Tell whether a statement declares a setting or describes an agent."""
    if not isinstance(statement, ast.AnnAssign | ast.Assign):
        return False
    called = getattr(statement.value, "func", None)
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    is_setting = isinstance(called, ast.Name) and called.id in SETTINGS
    return is_setting or any(isinstance(t, ast.Name) and t.id in DECLARATIONS for t in targets)
