"""Names of the classes and functions that a user passes as objects.

Importable objects are named `module:Name`. Lambdas and objects defined inside functions are named
`in-process:Name-TOKEN`; only the program that made this name can find the object.
"""

import contextlib
import functools
import hashlib
import json
import re
import secrets
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pac4sac.base.errors import UserError
from pac4sac.base.trust import allow, own_object, trusted, trusted_module

IN_PROCESS = "in-process"
SCRIPT = "__main__"  # the module of a script or a notebook
# Attributes that Python adds to a class, and settings, which a run stores separately.
NOT_CODE = re.compile(r"_abc_impl|__(?!init__|call__|post_init__|new__)\w+__")

_objects: dict[str, Any] = {}  # name -> object of this process


def name_of(thing: Any) -> str:
    """Return the name with which `object_of` finds a class or function, and trust its module."""
    module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    if name and getattr(sys.modules.get(module), name, None) is thing:
        allow(module)
        return f"{module}:{name}"
    for known, other in _objects.items():
        if other is thing:
            return known
    called = getattr(thing, "func", thing)  # unwraps a functools.partial
    own = re.sub(r"\W", "", getattr(called, "__name__", type(called).__name__))
    known = f"{IN_PROCESS}:{own}-{secrets.token_hex(4)}"
    _objects[known] = thing
    return known


def name_and_arguments(thing: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of a class or function, and the keyword arguments of a functools.partial.

    A partial whose arguments cannot be stored as JSON is named as an object of this process.
    """
    if isinstance(thing, functools.partial) and not thing.args and _is_json(thing.keywords):
        return name_of(thing.func), dict(thing.keywords)
    return name_of(thing), {}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def object_of(name: str, what: str) -> Any:
    """Return the object that a name refers to.

    Args:
        name: Name from `name_of`, or `module:Name`.
        what: What the object is, for error messages.

    Raises:
        UserError: If the object is not found, or its module is not trusted.
    """
    check_script(name)
    if not is_in_process(name):
        return own_object(name, what)
    if name not in _objects:
        raise UserError(
            f"The {what} {short_name(name)!r} was a lambda, or was defined inside a function, in "
            "a program that has ended, so it cannot be imported. Define it at the top level of a "
            "module before training. To use a trained agent in another environment, pass task to "
            "pac4sac.load or pac4sac.evaluate, or use pac4sac evaluate --task."
        )
    return _objects[name]


def is_in_process(name: str) -> bool:
    """Return whether a name belongs to an object that only one process can find."""
    return name.startswith(f"{IN_PROCESS}:")


def needs_this_process(names: Iterable[str]) -> bool:
    """Return whether other processes cannot import one of these names."""
    return any(is_in_process(name) or name.startswith(f"{SCRIPT}:") for name in names)


def short_name(name: str) -> str:
    """Return a name for display, without module and token if commands could not use them."""
    if is_in_process(name):
        return name.partition(":")[2].rpartition("-")[0]
    return name.removeprefix(f"{SCRIPT}:")


def check_script(name: str) -> None:
    """Refuse a name from another script or notebook, whose object does not exist in this
    program."""
    module, _, own = name.rpartition(":")
    if module == SCRIPT and not (SCRIPT in trusted() and hasattr(sys.modules[SCRIPT], own)):
        raise UserError(
            f"{own} was defined in a script or notebook, which commands cannot import. Use "
            f"pac4sac.resume or pac4sac.load in that script or notebook with trust={SCRIPT!r}, or "
            f"move {own} to a module before training."
        )


def check_trusted(algo: str, environment: Iterable[str]) -> None:
    """Refuse names in a file whose modules the user did not allow.

    Args:
        algo: Name of an algorithm.
        environment: Names of an environment and its wrappers. Names from a script or another
            program are refused only when the environment is made, because an agent can act in
            another one.
    """
    check_script(algo)
    for name in [algo, *environment]:
        if ":" in name and not needs_this_process([name]):
            trusted_module(name)


def script_checksums(names: Iterable[str]) -> dict[str, str]:
    """Return a checksum of each object that is defined in a script or notebook.

    The checksum covers compiled code: a class with its bases, and the functions and numbers that it
    uses, if the script defines them. It differs between versions of Python.
    """
    checksums = {}
    for name in sorted(set(names)):
        if name.startswith(f"{SCRIPT}:"):
            text = "\n".join(_code_of(object_of(name, "object"), set()))
            checksums[name] = hashlib.sha256(text.encode()).hexdigest()[:12]
    return checksums


def _code_of(thing: Any, seen: set[int]) -> Iterator[str]:
    """Yield the facts that determine the behaviour of an object of a script, as text."""
    if isinstance(thing, staticmethod | classmethod):
        thing = thing.__func__
    elif isinstance(thing, property):
        thing = thing.fget
    elif isinstance(thing, dict):
        thing = list(thing.items())
    if isinstance(thing, bool | int | float | str | bytes | None):
        yield repr(thing)
    elif isinstance(thing, tuple | list | set | frozenset):
        items = ["\n".join(_code_of(item, seen)) for item in thing]
        yield repr(items if isinstance(thing, tuple | list) else sorted(items))
    elif getattr(thing, "__module__", "") == SCRIPT and id(thing) not in seen:
        seen.add(id(thing))
        yield from _code_in_script(thing, seen)


def _code_in_script(thing: Any, seen: set[int]) -> Iterator[str]:
    """Yield the code of a class or function in a script; yield nothing for other objects."""
    if isinstance(thing, type):
        yield from _code_of_class(thing, seen)
    elif isinstance(thing, types.FunctionType):
        yield from _code_of_function(thing, seen)


def _code_of_class(thing: type, seen: set[int]) -> Iterator[str]:
    for name, value in sorted(vars(thing).items()):
        if not NOT_CODE.fullmatch(name):
            yield name
            yield from _code_of(value, seen)
    for base in thing.__bases__:
        yield from _code_of(base, seen)


def _code_of_function(thing: types.FunctionType, seen: set[int]) -> Iterator[str]:
    yield from _code_of(thing.__defaults__ or (), seen)
    yield from _code_of(tuple((thing.__kwdefaults__ or {}).values()), seen)
    for cell in thing.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is still empty
            yield from _code_of(cell.cell_contents, seen)
    for code in _nested(thing.__code__):
        yield code.co_code.hex()
        yield repr(code.co_names)
        yield from _code_of(tuple(_plain_constants(code)), seen)
        yield from _code_of_globals(code, thing.__globals__, seen)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and all code objects nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _plain_constants(code: types.CodeType) -> list[Any]:
    return [constant for constant in code.co_consts if not isinstance(constant, types.CodeType)]


def _code_of_globals(
    code: types.CodeType, variables: Mapping[str, Any], seen: set[int]
) -> Iterator[str]:
    for name in code.co_names:
        if name in variables:
            yield name
            yield from _code_of(variables[name], seen)
