"""Search spaces: the searched settings of an algorithm, and their values.

A space is written as text (`lr=1e-5:1e-2:log`), as a table in TOML, or as a dictionary.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pac4sac.agents import get_algorithm
from pac4sac.agents.settings import convert_value
from pac4sac.base.errors import UserError
from pac4sac.base.files import read_toml
from pac4sac.base.ranges import check_value
from pac4sac.base.text import did_you_mean, setting_text

Setting = dataclasses.Field[Any]  # field of the algorithm's Config
FORMS = "LOW:HIGH, LOW:HIGH:log, LOW:HIGH:STEP or A,B,C"
KEYS = {"low", "high", "log", "step", "choices"}


@dataclass(frozen=True)
class SearchedSetting:
    """Hold a searched setting, with a range of numbers or a choice of values."""

    name: str
    choices: tuple[Any, ...] = ()  # empty for a range
    low: float = 0
    high: float = 0
    log: bool = False
    step: float | None = None
    is_whole: bool = False

    def __str__(self) -> str:
        if self.choices:
            return f"{self.name}={','.join(map(setting_text, self.choices))}"
        ending = ":log" if self.log else f":{self.step:g}" if self.step else ""
        return f"{self.name}={self.low:g}:{self.high:g}{ending}"

    def __contains__(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        return bool(self.low <= value <= self.high)

    @property
    def is_endless(self) -> bool:
        """Return whether it has infinitely many values."""
        return not (self.choices or self.is_whole or self.step)

    def distribution(self) -> Any:
        """Return the distribution of the parameter for Optuna."""
        from optuna import distributions

        if self.choices:
            return distributions.CategoricalDistribution(self.choices)
        if self.is_whole:
            step = int(self.step or 1)
            return distributions.IntDistribution(int(self.low), int(self.high), self.log, step)
        return distributions.FloatDistribution(self.low, self.high, self.log, self.step)


Space = tuple[SearchedSetting, ...]


def read_space(words: Iterable[str]) -> dict[str, Any]:
    """Parse the words of --space for `make_space`.

    Args:
        words: Each `NAME=VALUES`, or the name of a TOML file with a table [space].
    """
    given: dict[str, Any] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if equals:
            given[name.strip()] = values
        elif Path(word).suffix == ".toml":
            given |= _space_of_file(Path(word))
        else:
            raise UserError(f"--space must be NAME={FORMS}, or a .toml file, not {word!r}.")
    return given


def _space_of_file(file: Path) -> dict[str, Any]:
    _, content = read_toml(file)
    space = content.get("space")
    if not isinstance(space, dict):
        raise UserError(f"{file} has no table [space]; add one.")
    return space


def make_space(algo: str, given: Mapping[str, Any]) -> Space:
    """Return a search space after a check that the algorithm has these settings.

    Args:
        algo: Name of the algorithm.
        given: For each setting a string as on the command line, a list of values, a dictionary with
            `low` and `high` and optionally `log` or `step`, or a distribution of Optuna.

    Raises:
        UserError: If a setting is unknown, or a range is empty, inverted or not allowed.
    """
    if not given:
        raise UserError(
            f"The search space is empty; give at least one setting, as in --space lr={FORMS}."
        )
    fields = {field.name: field for field in dataclasses.fields(get_algorithm(algo).agent.Config)}
    for name in given:
        if name not in fields:
            raise UserError(f"{algo} has no setting {name!r}; {did_you_mean(name, fields)}")
    return tuple(_parameter(fields[name], values) for name, values in given.items())


def _parameter(field: Setting, values: Any) -> SearchedSetting:
    """Return the parameter of a setting, given in any of the accepted forms."""
    if isinstance(values, str):
        values = _parsed(field, values)
    elif hasattr(values, "_asdict"):  # a distribution of Optuna
        values = {name: value for name, value in values._asdict().items() if value is not None}
        values = values.get("choices", values)
    if isinstance(values, list | tuple):
        return _of_choices(field, values)
    if isinstance(values, Mapping) and {"low", "high"} <= values.keys() <= KEYS:
        return _of_range(field, values)
    if isinstance(values, Mapping) and values.keys() == {"choices"}:
        return _of_choices(field, values["choices"])
    raise UserError(f"The space of {field.name} must be {FORMS}, not {values!r}.")


def _parsed(field: Setting, text: str) -> Any:
    """Parse a string as a list of values, or as a dictionary with the ends of a range."""
    words = [word.strip() for word in text.split(":")]
    if len(words) == 1:
        return [convert_value(field, word.strip()) for word in text.split(",")]
    if len(words) > 3:
        raise UserError(f"The space of {field.name} must be {FORMS}, not {text!r}.")
    table: dict[str, Any] = {"low": words[0], "high": words[1]}
    if words[2:] == ["log"]:
        table["log"] = True
    elif words[2:]:
        table["step"] = words[2]
    return table


def _of_choices(field: Setting, values: Any) -> SearchedSetting:
    if len(values) < 2 or len({*map(str, values)}) < len(values):
        shown = ",".join(map(str, values))
        raise UserError(
            f"The space of {field.name} needs at least two different values, not {shown!r}."
        )
    for value in values:
        check_value(field.name, value, type(field.default), field.metadata["allowed"])
    return SearchedSetting(field.name, choices=tuple(values))


def _of_range(field: Setting, table: Mapping[str, Any]) -> SearchedSetting:
    """Return the parameter of a range, given as a dictionary."""
    kind = type(field.default)
    if kind not in (int, float):
        raise UserError(
            f"{field.name} is not a number, so it has no range; list its values, as in A,B."
        )
    low, high = (_number(field, table[end]) for end in ("low", "high"))
    if not low < high:
        raise UserError(f"The range of {field.name} is empty: {low:g} is not below {high:g}.")
    for end in (low, high):
        check_value(field.name, kind(end), kind, field.metadata["allowed"])
    log, step = bool(table.get("log")), _step(field, table.get("step"), high - low)
    if log and (low <= 0 or step is not None):
        raise UserError(
            f"The logarithmic range of {field.name} must begin above 0 and have no step, not "
            f"{low:g}:{high:g}."
        )
    return SearchedSetting(field.name, (), low, high, log, step, kind is int)


def _step(field: Setting, given: Any, width: float) -> float | None:
    """Return the step of a range; None for a range of all whole numbers and for a continuous
    range."""
    if given is None or (given == 1 and type(field.default) is int):
        return None
    step = _number(field, given)
    if not 0 < step <= width:
        raise UserError(
            f"The step of {field.name} must be above 0 and at most the width of its range "
            f"({width:g}), not {step:g}."
        )
    return step


def _number(field: Setting, value: Any) -> float:
    """Return an end or a step of a range; it must be whole for a setting of whole numbers."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UserError(
            f"The range of {field.name} must consist of numbers, not {value!r}."
        ) from None
    if type(field.default) is int and not number.is_integer():
        raise UserError(
            f"{field.name} must be a whole number, so its range cannot contain {value}."
        )
    return number
