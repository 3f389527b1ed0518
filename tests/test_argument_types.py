"""Arguments of public functions are checked before anything else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pac4sac
from pac4sac.base.argument_types import check_types

SAC = {"task": "Pendulum-v1", "algo": "sac"}
SEARCH = SAC | {"space": {"lr": [0.1, 0.2]}}
SHIPPED = "cartpole-swingup"


@pytest.mark.parametrize(
    ("function", "given", "name", "expected"),
    [
        (pac4sac.results, {"path": "x", "kind": 0}, "kind", ["a string", "0"]),
        (pac4sac.train, SAC | {"max_minutes": "x"}, "max_minutes", ["a number or None", "'x'"]),
        (pac4sac.train, SAC | {"settings": 3}, "settings", ["a dictionary or None", "3"]),
        (pac4sac.train, SAC | {"steps": True}, "steps", ["a whole number", "True"]),
        (pac4sac.train, SAC | {"steps": 1.5}, "steps", ["a whole number", "1.5"]),
        (pac4sac.train, SAC | {"algo": 3}, "algo", ["a subclass of pac4sac.Agent", "3"]),
        (pac4sac.train, {"task": 3}, "task", ["a name", "a pac4sac.Task", "3"]),
        (pac4sac.certify, {"path": SHIPPED, "episodes": "x"}, "episodes", ["'x'"]),
        (pac4sac.certify, {"path": SHIPPED, "delta": None}, "delta", ["a number", "None"]),
        (pac4sac.certify, {"path": "x", "reward_range": (0,)}, "reward_range", ["a pair", "(0,)"]),
        (pac4sac.load, {"path": SHIPPED, "trust": None}, "trust", ["a string or a list", "None"]),
        (pac4sac.load, {"path": 3}, "path", ["a string or a path", "3"]),
        (pac4sac.resume, {"folder": "x", "keep_stale": 1}, "keep_stale", ["true or false", "1"]),
        (pac4sac.evaluate, {"agent": 1.5}, "agent", ["a pac4sac.TrainedAgent", "1.5"]),
        (pac4sac.tune, SEARCH | {"task": 3}, "task", ["pac4sac.Task", "3"]),
        (pac4sac.tune, SEARCH | {"trials": "x"}, "trials", ["a whole number", "'x'"]),
        (pac4sac.tune, SEARCH | {"space": 3}, "space", ["a dictionary", "3"]),
        (
            pac4sac.compare,
            {"task": "Pendulum-v1", "algos": "sac,td3", "watcher": 1.5},
            "watcher",
            ["1.5"],
        ),
    ],
)
def test_a_wrong_type_is_refused_with_the_name_of_the_parameter(
    function: Callable[..., Any], given: dict[str, Any], name: str, expected: list[str]
) -> None:
    with pytest.raises(TypeError) as refused:
        function(**given)
    message = str(refused.value)
    assert isinstance(refused.value, pac4sac.UserError)
    assert message.startswith(f"{name} must be ")
    assert all(word in message for word in expected), message


@pytest.mark.parametrize("path", ["a\0b", Path("a\0b"), "\ud800"])
def test_a_path_that_is_not_text_is_refused(path: str | Path) -> None:
    with pytest.raises(ValueError, match="path contains characters that cannot be stored"):
        pac4sac.load(path)


@pytest.mark.parametrize("path", ["é" * 300, Path("a") / ("x" * 256) / "b"])
def test_a_path_with_too_long_a_name_is_refused(path: str | Path) -> None:
    for call in (pac4sac.load, pac4sac.results, pac4sac.certify, pac4sac.resume, pac4sac.evaluate):
        with pytest.raises(ValueError, match=r"^(path|folder|agent) is too long for a file name"):
            call(path)
    with pytest.raises(pac4sac.UserError, match="x/y"):
        pac4sac.load("x/y/" + "z/" * 200)


@pytest.mark.parametrize(
    "number", [10**400, -(10**400), 10**5000], ids=["large", "negative", "long"]
)
def test_a_number_that_is_too_large_for_a_float_is_refused(number: int) -> None:
    with pytest.raises(TypeError, match=r"^max_minutes must be a number or None, not "):
        pac4sac.resume("x", max_minutes=number)
    with pytest.raises(TypeError, match=r"^reward_range must be a pair of numbers or None, not "):
        pac4sac.certify("x", reward_range=(0, number))


def test_the_rungs_of_a_search_are_numbers() -> None:
    with pytest.raises(pac4sac.UserError, match=r"rung .* not 'x'"):
        pac4sac.tune(**SEARCH, rungs=["x"], steps=100_000)


def test_annotated_types_are_accepted() -> None:
    def function(
        a: int | None, b: float, c: str | Path, d: tuple[float, float], e: Any, f: type[int]
    ) -> None:
        check_types(function, locals())

    function(None, 1, "x", (1, 2.5), object(), bool)
    function(2, 0.5, Path("x"), [1, 2], None, int)  # type: ignore[arg-type]
