"""Public names have the docstring sections of the reference, and their examples run."""

import doctest
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import pac4sac
from pac4sac.agents import api
from pac4sac.certificates.certificate import Certificate
from pac4sac.runs.metrics import Score
from pac4sac.runs.reading import RunRecord
from pac4sac.training.critic_value import Value

PUBLIC = {
    name: thing
    for module in (api, pac4sac)
    for name in module.__all__
    if inspect.isclass(thing := getattr(module, name)) or inspect.isroutine(thing)
    if thing.__module__.startswith("pac4sac")
} | {each.__name__: each for each in (Certificate, RunRecord, Score, Value)}
WITHOUT_EXAMPLE = {"UserError"}  # an exception


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


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_documents_its_arguments_its_result_and_an_example(name: str) -> None:
    thing, doc = PUBLIC[name], inspect.getdoc(PUBLIC[name]) or ""
    assert doc.split("\n")[0].endswith((".", ":"))
    if name not in WITHOUT_EXAMPLE:
        assert "Example:\n    >>> " in doc
    if inspect.isroutine(thing):
        signature = inspect.signature(thing)
        arguments = doc.split("Args:\n")[1].split("\n\n")[0]
        missing = [name for name in signature.parameters if f"    {name}: " not in arguments]
        assert [name for name in missing if f"    **{name}: " not in arguments] == []
        assert "Returns:\n    " in doc


@pytest.mark.parametrize("name", sorted(PUBLIC))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_example_of_a_public_name_runs(name: str, trained: Path) -> None:
    finder = doctest.DocTestFinder(recurse=False)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags)
    for example in finder.find(PUBLIC[name], name, globs={"pac4sac": pac4sac}):
        assert runner.run(example).failed == 0
