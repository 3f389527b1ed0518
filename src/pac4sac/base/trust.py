"""Permission to run custom code.

Files refer to algorithms and environments as `module:Name`. A module is imported only if the user
named it: with --trust, or as the algorithm or task of the command or call. A command in a terminal
asks the user about other modules, and remembers the answer for that file.

Environment variables store the modules and the folder in which commands look for them. Worker
processes and the cohorts of a study therefore trust the same modules as their parent.
"""

import contextlib
import hashlib
import importlib
import importlib.abc
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from pac4sac.base.errors import UserError, WrongType

TRUSTED = "PAC4SAC_TRUST"
FOLDER = "PAC4SAC_TRUST_FOLDER"  # folder in which a command looks for named modules
Ask = Callable[[str], bool]


def trusted() -> list[str]:
    """Return the modules that may be imported."""
    return [module for module in os.environ.get(TRUSTED, "").split(",") if module]


def trust_flags() -> str:
    """Return the flags that allow the same modules, each preceded by a space."""
    return "".join(f" --trust {module}" for module in trusted())


def allow(modules: str | Iterable[str]) -> None:
    """Allow modules that the user named, each as `module` or as `module:Name`.

    Raises:
        WrongType: If the modules are neither a string nor a list of strings.
    """
    given: Any = modules  # callers may pass a wrong type
    named = [given] if isinstance(given, str) or not isinstance(given, Iterable) else [*given]
    if not all(isinstance(name, str) for name in named):
        raise WrongType(f"trust must be the name of a module or a list of names, not {modules!r}.")
    allowed = [name.rpartition(":")[0] or name for name in named]
    os.environ[TRUSTED] = ",".join(dict.fromkeys([*trusted(), *allowed]))


def allow_named(*names: Any) -> None:
    """Allow the modules of algorithms and tasks that the user named as `module:Name`."""
    allow([name.strip() for name in names if isinstance(name, str) and ":" in name])


@contextlib.contextmanager
def consent_of_one_command(ask: Ask | None = None) -> Iterator[None]:
    """Also look for named modules in the working directory, and reset the permissions on exit.

    Args:
        ask: Function that asks the user a question in a terminal; None without a terminal.
    """
    before = {name: os.environ.get(name, "") for name in (TRUSTED, FOLDER)}
    os.environ[FOLDER] = os.getcwd()
    _Consent.ask = ask
    try:
        yield
    finally:
        os.environ.update(before)
        _Consent.ask = None


def trusted_module(name: str) -> str:
    """Return the module of `module:Name`; "" for a name without a module.

    Raises:
        UserError: If the user did not allow the module, or the name is not a module name.
    """
    module = name.rpartition(":")[0]
    if not module:
        return ""
    if not all(part.isidentifier() for part in module.split(".")):
        raise UserError(
            f"{name!r} could not be imported: {module!r} is not a valid module name. Write "
            "module:Name."
        )
    if module not in trusted() and not _Consent.given(module):
        raise UserError(
            f"{name!r} comes from a file and needs the module {module!r}, which is not trusted. "
            "Importing the module runs its code. If you trust the module, allow it with --trust "
            f"{module}, or in Python with trust={module!r}."
        )
    _FINDER.install()
    return module


def own_class(name: str, what: str, base: type[Any]) -> type[Any]:
    """Return the custom class `module:Class`.

    Args:
        name: Module and class.
        what: What the class is, for error messages.
        base: Class from which it must be derived.

    Raises:
        UserError: If the name is not such a class, cannot be imported, or its module is not
            trusted.
    """
    module, _, class_name = name.rpartition(":")
    if not (module and class_name):
        raise UserError(f"{name!r} is not a known {what}; give a custom class as module:Class.")
    own = own_object(name, what)
    if not (isinstance(own, type) and issubclass(own, base)):
        raise UserError(
            f"{name!r} must be a subclass of pac4sac.{base.__name__}; derive the class from it."
        )
    return own


def own_object(name: str, what: str) -> Any:
    """Return the object `module:Name` of a trusted module."""
    module = trusted_module(name)
    try:
        return getattr(importlib.import_module(module), name.rpartition(":")[2])
    except Exception as error:  # user code can raise any exception
        is_missing = isinstance(error, ImportError | AttributeError)
        kind = "" if is_missing else f"{type(error).__name__}: "
        reason = f"{kind}{error}".rstrip(".")
        raise UserError(f"The {what} {name!r} could not be imported: {reason}.") from error


def allow_registered(module: str, home: str) -> None:
    """Allow environments that a trusted module registers but another module defines."""
    if module.partition(".")[0] in _FINDER.found:
        _FINDER.registered.add(home.partition(".")[0])


def import_path() -> str:
    """Return the import path for a process that must import the same modules as this one."""
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path if isinstance(entry, str))


class _NamedModules(importlib.abc.MetaPathFinder):
    """Find trusted modules in the working directory of a command, and modules that they import from
    it.

    Other imports do not look there. A library that tries to import an optional module therefore
    does not get a file of the same name.
    """

    def __init__(self) -> None:
        self.found: set[str] = set()  # modules found in the working directory
        self.registered: set[str] = set()  # modules of environments that they register

    def install(self) -> None:
        """Add the finder after all others, once."""
        if self not in sys.meta_path:
            sys.meta_path.append(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        folder = os.environ.get(FOLDER)
        if not folder or path is not None:  # packages find their own modules
            return None
        named = {module.partition(".")[0] for module in trusted()}
        if name not in named | self.registered and _importer(sys._getframe()) not in self.found:
            return None
        spec = PathFinder.find_spec(name, [folder])
        if spec is not None:
            self.found.add(name)
        return spec


_FINDER = _NamedModules()


def _importer(frame: FrameType | None) -> str:
    """Return the module or package whose code executes an import."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name != __name__ and name.partition(".")[0] != "importlib":
            return name.partition(".")[0]
        frame = frame.f_back
    return ""


class _Consent:
    """Ask in a terminal whether a module may run, and remember the allowed files."""

    ask: Ask | None = None

    @classmethod
    def given(cls, module: str) -> bool:
        """Return whether the user allows a module, and trust the module if so."""
        source = _source_of(module) if cls.ask else None
        if cls.ask is None or source is None:
            return False
        entry = f"{hashlib.sha256(source.read_bytes()).hexdigest()}  {source.resolve()}"
        if entry not in cls._remembered():
            if not cls.ask(f"Run code from {os.path.relpath(source)}? [y/N] "):
                return False
            cls._remember(entry)
        allow(module)
        return True

    @classmethod
    def _remembered(cls) -> list[str]:
        try:
            return _memory().read_text().splitlines()
        except (OSError, ValueError):
            return []

    @classmethod
    def _remember(cls, entry: str) -> None:
        """Store an allowed file; if that fails, the user is asked again next time."""
        with contextlib.suppress(OSError):
            _memory().parent.mkdir(parents=True, exist_ok=True)
            with _memory().open("a", errors="replace") as memory:
                memory.write(f"{entry}\n")


def _memory() -> Path:
    """Return the path of the list of allowed files, which has a SHA-256 and a path per line."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "pac4sac" / "trusted-files"


def _source_of(module: str) -> Path | None:
    """Return the file of a module without importing it; None if it is not found."""
    places: Sequence[str] | None = [*sys.path, os.environ.get(FOLDER) or os.getcwd()]
    spec = None
    for number in range(module.count(".") + 1):
        if places is None:
            return None
        spec = PathFinder.find_spec(".".join(module.split(".")[: number + 1]), places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    source = Path(spec.origin) if spec and spec.origin else None
    return source if source is not None and source.is_file() else None
