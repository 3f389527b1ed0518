"""Checksums of source code, with which a run stores the code that trained it.

Comments, docstrings, formatting and error messages do not count. Declarations of settings, titles
and presets do not count either, because a run stores its settings.
"""

import ast
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

from pac4sac.base.version import installed_version

# Shipped modules that every run uses, in addition to its agent and its environment.
ENGINE = (
    "pac4sac.tasks.episodes",
    "pac4sac.tasks.registry",
    "pac4sac.training.evaluation",
    "pac4sac.training.learner",
    "pac4sac.training.loop",
)
# Shipped code that affects learning; the rest of the package only launches and reports it.
SHIPPED = ("pac4sac.agents.", "pac4sac.tasks.robots", "pac4sac.tasks.wrappers", *ENGINE)
# Modules that only re-export names; an agent's base classes lead to the modules that it uses.
INDEXES = ("pac4sac.agents.api",)
SETTINGS = ("per_run", "structural", "new_default")
DECLARATIONS = (
    "title",
    "revision",
    "presets",
    "updates_of_task",
    "REPRODUCTION",
    "REPRODUCTION_SAC",
    "REPRODUCTION_AUTO",
    "PUBLISHED_CURVES",
)
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Packages whose version changes the results of a simulator, by prefix of a module's name.
SIMULATORS = {
    "pac4sac": ("pybullet",),
    "gymnasium": ("gymnasium",),
    "gymnasium.envs.mujoco": ("mujoco",),
    "shimmy": ("dm_control", "mujoco"),
}


def source_checksums(modules: Iterable[str]) -> dict[str, str]:
    """Return the checksums of modules and of all modules that belong to them.

    For a shipped agent, these are the imported modules of `agents`. For custom code, they are all
    imported modules of the same top-level package, including its `__init__`, and all other modules
    that are not installed. Libraries and modules without a file are omitted.
    """
    files = sorted(_files_of(modules).items())
    return {name: _checksum(*_state_of(file)) for name, file in files}


def _files_of(modules: Iterable[str]) -> dict[str, Path]:
    """Return the files of modules and of the modules that belong to them."""
    files: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        file = None if name in files or name in INDEXES else _file_of(name)
        if file is not None:
            files[name] = file
            waiting += [used for used in _used_by(name, file) if _belongs(used, name)]
    return files


def _used_by(module: str, file: Path) -> Set[str]:
    """Return the names of all modules that a module may import, and of the packages that contain
    it.

    The imports of the engine are omitted, because the engine imports all agents and tasks.
    """
    if module in ENGINE:
        return set()
    parts = module.split(".")
    return _imported(module, *_state_of(file)) | {".".join(parts[:n]) for n in range(1, len(parts))}


def simulator_versions(modules: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that simulate the environments of these modules."""
    packages = {
        package
        for module in modules
        for start, needed in SIMULATORS.items()
        if f"{module}.".startswith(f"{start}.")
        for package in needed
    }
    versions = {name: installed_version(name) for name in sorted(packages)}
    return {name: version for name, version in versions.items() if version is not None}


def _belongs(module: str, user: str) -> bool:
    """Return whether a module is part of the same code as the module that uses it."""
    if module.startswith("pac4sac."):
        return module.startswith(SHIPPED)
    if module.split(".")[0] == user.split(".")[0]:
        return True
    file = _file_of(module)
    return file is not None and not _is_installed(file)


def _is_installed(file: Path) -> bool:
    """Return whether a file is in a folder of installed packages."""
    return not {"site-packages", "dist-packages"}.isdisjoint(file.parts)


def _file_of(module: str) -> Path | None:
    """Return the source file of a module; None if it has none, or belongs to a library."""
    if _is_library(module):
        return None
    file = Path(_origin(module))
    return file if file.suffix == ".py" and file.exists() else None


def _is_library(module: str) -> bool:
    """Return whether a module is neither custom code nor shipped code with a checksum."""
    top = module.split(".")[0]
    is_known = top in sys.stdlib_module_names or top in SIMULATORS or top == "__main__"
    return is_known and not module.startswith(SHIPPED)


def _origin(module: str) -> str:
    """Return the path from which a module is or would be imported; "" if it has no path."""
    try:
        found = sys.modules.get(module) or importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ""
    return getattr(found, "__file__", None) or getattr(found, "origin", None) or ""


@functools.lru_cache(maxsize=256)
def _imported(module: str, file: Path, changed: int, size: int) -> frozenset[str]:
    """Return the absolute names of all modules that a file in this state may import."""
    names = set()
    for node in ast.walk(_parse(file, changed, size)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = _source_of(node, module)
            names |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def _source_of(node: ast.ImportFrom, module: str) -> str:
    """Return the absolute name after `from` in a module, which may be relative to its package."""
    if not node.level:
        return node.module or ""
    package = module.split(".")[: -node.level]
    return ".".join([*package, node.module] if node.module else package)


def _state_of(file: Path) -> tuple[Path, int, int]:
    """Return path, modification time and size of a file, which serve as a cache key."""
    about = file.stat()
    return file, about.st_mtime_ns, about.st_size


@functools.lru_cache(maxsize=256)
def _parse(file: Path, changed: int, size: int) -> ast.Module:
    """Return the syntax tree of a file in this state."""
    return ast.parse(file.read_bytes())


@functools.lru_cache(maxsize=256)
def _checksum(file: Path, changed: int, size: int) -> str:
    """Return the checksum of a file in this state, and of the data file next to it."""
    text = "".join(_words(_parse(file, changed, size)))
    data = file.with_suffix(".toml")  # data of the module, if it has a file for them
    content = text.encode() + (data.read_bytes() if data.exists() else b"")
    return hashlib.sha256(content).hexdigest()[:12]


def _words(node: object) -> Iterator[str]:
    """Yield a syntax tree as text that is the same in all supported versions of Python."""
    if isinstance(node, ast.Raise):
        yield "raise"
    elif isinstance(node, ast.AST):
        yield from _words_of_fields(node)
    elif isinstance(node, list):
        for item in node:
            if not _is_declaration(item):
                yield from _words(item)
    else:
        yield repr(node)


def _words_of_fields(node: ast.AST) -> Iterator[str]:
    """Yield the type of a node, and its fields that count and are not empty."""
    yield f"({type(node).__name__}"
    for name, value in ast.iter_fields(node):
        if value not in (None, []) and name not in ("ctx", "type_comment", "kind"):
            yield f" {name}="
            yield from _words(_without_docstring(node, name, value))
    yield ")"


def _without_docstring(node: ast.AST, field: str, value: object) -> object:
    """Return the value of a field, without the docstring if it is a body."""
    if field != "body" or not isinstance(node, WITH_DOCSTRING) or not ast.get_docstring(node):
        return value
    return node.body[1:]


def _is_declaration(statement: object) -> bool:
    """Return whether a statement declares a setting or describes an agent."""
    if not isinstance(statement, ast.AnnAssign | ast.Assign):
        return False
    called = getattr(statement.value, "func", None)
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return _is_name(called, SETTINGS) or any(_is_name(node, DECLARATIONS) for node in targets)


def _is_name(node: object, names: tuple[str, ...]) -> bool:
    """Return whether a node is one of these names."""
    return isinstance(node, ast.Name) and node.id in names
