"""Public names have the docstring sections of the reference, and their examples run."""

import dataclasses
import doctest
import functools
import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pac4sac
from pac4sac.agents import api

REFERENCE = Path(__file__).parents[1] / "docs" / "api.md"


def object_named(name: str) -> Any:
    """Return the object of a name in the reference, such as pac4sac.runs.metrics.Score."""
    parts = name.split(".")
    modules = [".".join(parts[:k]) for k in range(1, len(parts))]
    home = [module for module in modules if importlib.util.find_spec(module)][-1]
    return functools.reduce(getattr, parts[home.count(".") + 1 :], importlib.import_module(home))


def is_documented(thing: Any) -> bool:
    return (inspect.isclass(thing) or inspect.isroutine(thing)) and (
        thing.__module__.startswith("pac4sac")
    )


NAMES = re.findall(r"(?m)^::: (\S+)", REFERENCE.read_text())
PUBLIC = {name: thing for name in NAMES if is_documented(thing := object_named(name))}
WITHOUT_EXAMPLE = {"pac4sac.UserError", "pac4sac.training.options.Options"}  # nothing to call
# Methods of these classes are overridden, not called, so their shapes are in the summary.
OVERRIDDEN = ("pac4sac.agents.", "pac4sac.Agent")


def listed(doc: str, section: str) -> list[str]:
    """Return the names in a section of a docstring, in their order."""
    found = re.search(rf"(?m)^{section}:\n((?:    .*\n?|\n)*)", doc)
    return re.findall(r"(?m)^    \*{0,2}(\w+):", found[1]) if found else []


def parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def methods(thing: type) -> dict[str, Callable[..., Any]]:
    """Return the public methods and properties that a class defines itself."""
    own = {name: member for name, member in vars(thing).items() if not name.startswith("_")}
    plain = {name: getattr(member, "__func__", member) for name, member in own.items()}
    return {
        name: member.fget if isinstance(member, property) else member
        for name, member in plain.items()
        if isinstance(member, property) or inspect.isfunction(member)
    }


def small(function: Callable[..., Any], **smaller: Any) -> Callable[..., Any]:
    """Return a function that replaces the arguments of an example by smaller ones."""

    def call(*arguments: Any, **named: Any) -> Any:
        inspect.signature(function).bind(*arguments, **named)  # an example has valid arguments
        return function(*arguments, **named | smaller)

    return call


class SmallPackage:
    """Stand for pac4sac in examples, which train shorter than they say."""

    TINY: ClassVar = {"width": 8, "batch": 8, "warmup": 20}
    PLACE: ClassVar = {"backend": "eager", "workers": 0, "threads": 1, "evaluation_episodes": 1}
    train = staticmethod(small(pac4sac.train, steps=220, settings=TINY, **PLACE))
    certify = staticmethod(small(pac4sac.certify, episodes=4))

    @staticmethod
    @functools.cache
    def compare(*arguments: Any, **named: Any) -> Any:
        tiny, place = SmallPackage.TINY, SmallPackage.PLACE
        shorter = small(pac4sac.compare, steps=220, seeds=[0, 1], settings=tiny, **place)
        return shorter(*arguments, **named)

    @classmethod
    def tune(cls, task: str, algo: str, **named: Any) -> Any:
        return cls._tune(task, algo, tuple(named["space"].items()), named["trials"])

    @staticmethod
    @functools.cache
    def _tune(task: str, algo: str, space: tuple[tuple[str, str], ...], trials: int) -> Any:
        tiny = {"width": 8, "batch": 8, "warmup": 20}
        sizes = {"steps": 220, "trials": min(trials, 2), "seeds": [1000], "fresh_seeds": [3000]}
        options = {"rungs": (), "settings": tiny, "at_once": 2, "backend": "eager", "workers": 0}
        return pac4sac.tune(task, algo, space=dict(space), **sizes | options)

    def __getattr__(self, name: str) -> Any:
        return getattr(pac4sac, name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a working directory with the experiment that the examples name."""
    before, folder = Path.cwd(), tmp_path_factory.mktemp("examples")
    os.chdir(folder)
    pac4sac.train(
        "Pendulum-v1",
        "sac",
        seeds=range(2),
        steps=400,
        settings={"width": 8, "batch": 8, "warmup": 390},
        out=folder / "experiments" / "pendulum-v1-sac",
        backend="eager",
        workers=0,
        threads=1,
        evaluation_episodes=1,
    )
    yield folder
    os.chdir(before)


def test_the_reference_has_every_public_name() -> None:
    things = {id(thing) for thing in PUBLIC.values()}
    missing = [
        f"{module.__name__}.{name}"
        for module in (pac4sac, api)
        for name in module.__all__
        if is_documented(thing := getattr(module, name)) and id(thing) not in things
    ]
    assert missing == []


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_documents_its_arguments_its_result_and_an_example(name: str) -> None:
    thing, doc = PUBLIC[name], inspect.getdoc(PUBLIC[name]) or ""
    assert doc.split("\n")[0].endswith((".", ":"))
    if name not in WITHOUT_EXAMPLE:
        assert "Example:\n    >>> " in doc
    if inspect.isroutine(thing):
        assert listed(doc, "Args") == parameters(thing)
        assert "Returns:\n    " in doc
        assert listed(doc, "Raises") or "raise " not in inspect.getsource(thing)
        assert inspect.signature(thing).return_annotation not in ("Any", inspect.Signature.empty)


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(PUBLIC[name])])
def test_the_fields_and_methods_of_a_public_class_are_documented(name: str) -> None:
    thing, doc = PUBLIC[name], inspect.getdoc(PUBLIC[name]) or ""
    if dataclasses.is_dataclass(thing):
        shown = [f for f in dataclasses.fields(thing) if "help" not in f.metadata]
        fields = [f.name for f in shown if not f.name.startswith("_")]
    else:
        fields = list(getattr(thing, "_fields", ()))
    assert [field for field in fields if field not in listed(doc, "Attributes")] == []
    if name.startswith(OVERRIDDEN):
        return
    for method, function in methods(thing).items():
        words = inspect.getdoc(getattr(thing, method)) or ""
        assert words, method
        assert listed(words, "Args") == parameters(function), method
        gives = inspect.signature(function).return_annotation not in (None, "None")
        assert not gives or words.startswith("Return") or "Returns:\n" in words, method


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - WITHOUT_EXAMPLE))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_example_of_a_public_name_runs(name: str, trained: Path) -> None:
    if name.endswith((".tune", ".Tuning")):
        pytest.importorskip("optuna")
    finder = doctest.DocTestFinder(recurse=False)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    (example,) = finder.find(PUBLIC[name], name, globs={"pac4sac": SmallPackage()})
    assert not any(doctest.SKIP in line.options for line in example.examples)
    found = runner.run(example)
    assert found.failed == 0
    assert found.attempted > 0


def test_the_sections_of_a_docstring_are_read_in_their_order() -> None:
    doc = "Do it.\n\nArgs:\n    b: One.\n        more: text\n    **a: Two.\n\nReturns:\n    c: It."
    assert listed(doc, "Args") == ["b", "a"]
    assert listed(doc, "Raises") == []
