"""Samplers and pruners of Optuna by name, and a pruner that compares all seeds of trials."""

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from pac4sac.base.errors import UserError
from pac4sac.base.text import did_you_mean
from pac4sac.runs.statistics import CONFIDENCE, summarise, welch_over_strata
from pac4sac.studies.tuning.objective import Values
from pac4sac.studies.tuning.space import SearchedSetting, Space

SEEDS = "seeds"  # name of the pruner in this module
SCORES = "scores at "  # user attribute of a trial, followed by the step of a rung
NUMBERS_ONLY = ("CmaEsSampler",)
NEEDS_STEPS = ("GridSampler", "BruteForceSampler")
# A restarted sampler needs a new seed to avoid repeating draws, except this sampler, which
# continues a sequence.
FIXED_SEED = ("QMCSampler",)


class SeedSetPruner(optuna.pruners.BasePruner):
    """Prune a trial whose seeds are significantly worse than those of the best trial at a rung.

    The significance level of Welch's test is divided by the number of other trials, because the
    best of many trials benefits from chance. A trial with a single seed is never pruned.
    """

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether a trial should be pruned at its last rung."""
        step = trial.last_step
        others = [
            other
            for other in study.get_trials(deepcopy=False)
            if other.number != trial.number and step in other.intermediate_values
        ]
        if step is None or not others:
            return False
        sign = -1 if study.direction == optuna.study.StudyDirection.MINIMIZE else 1
        best = max(others, key=lambda other: sign * other.intermediate_values[step])
        ours, theirs = (each.user_attrs.get(f"{SCORES}{step}") for each in (trial, best))
        if not ours or not theirs:
            return False
        return is_worse(ours, theirs, sign, confidence=1 - (1 - CONFIDENCE) / len(others))


def is_worse(ours: Values, theirs: Values, sign: int, confidence: float) -> bool:
    """Return whether the whole interval of ours minus theirs is on the worse side of 0.

    Args:
        ours: Scores of the seeds by task.
        theirs: Scores of the best trial.
        sign: 1 if higher is better, -1 if lower is.
        confidence: Confidence of the interval.
    """
    pairs = [(summarise(ours[task]), summarise(theirs[task])) for task in ours]
    difference = welch_over_strata(pairs, confidence)
    end = difference.high if sign > 0 else difference.low
    return end is not None and sign * end < 0


def make_sampler(text: str, space: Space, seed: int) -> optuna.samplers.BaseSampler:
    """Return a sampler of Optuna.

    Args:
        text: Its name, such as TPE or TPESampler, with optional arguments after a colon.
        space: The search space.
        seed: Seed of its random numbers; it must depend on the number of trials so far, so that a
            restarted sampler does not repeat itself.

    Raises:
        UserError: If there is no such sampler, or it cannot handle the space.
    """
    made, arguments = _named(text, optuna.samplers, "Sampler")
    _check_space(made.__name__, space)
    if made.__name__ == "GridSampler":
        arguments["search_space"] = {each.name: _grid(each) for each in space}
    accepted = inspect.signature(made).parameters
    if "seed" in accepted:
        arguments.setdefault("seed", 0 if made.__name__ in FIXED_SEED else seed)
    sampler: optuna.samplers.BaseSampler = _made(made, arguments)
    return sampler


def make_pruner(text: str) -> optuna.pruners.BasePruner:
    """Return a pruner: `seeds`, `none`, or one of Optuna's by name.

    Raises:
        UserError: If there is no such pruner.
    """
    if text == SEEDS:
        return SeedSetPruner()
    if text == "none":
        return optuna.pruners.NopPruner()
    made, arguments = _named(text, optuna.pruners, "Pruner")
    pruner: optuna.pruners.BasePruner = _made(made, arguments)
    return pruner


def _named(text: str, module: Any, suffix: str) -> tuple[Any, dict[str, Any]]:
    """Parse the class and its arguments, as in `TPE:n_startup_trials=5`."""
    name, _, given = text.partition(":")
    known = {
        each.removesuffix(suffix).lower(): each
        for each in dir(module)
        if each.endswith(suffix) and not each.startswith("Base")
    }
    key = name.lower().removesuffix(suffix.lower())
    if key not in known:
        raise UserError(
            f"Optuna has no {suffix.lower()} {name!r}; {did_you_mean(name, known.values())}"
        )
    return getattr(module, known[key]), dict(map(_argument, filter(None, given.split(","))))


def _argument(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name.strip(), words[value.lower()]
    for kind in (int, float):
        try:
            return name.strip(), kind(value)
        except ValueError:
            continue
    return name.strip(), value


def _made(made: Any, arguments: dict[str, Any]) -> Any:
    """Return an instance of a sampler or a pruner."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return made(**arguments)
    except (TypeError, ValueError, ImportError) as error:
        raise UserError(f"{made.__name__} does not accept these arguments: {error}.") from error


def _check_space(sampler: str, space: Space) -> None:
    """Refuse a space that a sampler cannot handle."""
    choices = ", ".join(each.name for each in space if each.choices)
    if choices and sampler in NUMBERS_ONLY:
        raise UserError(
            f"{sampler} searches only numbers, but {choices} is a choice between values; use "
            "TPESampler."
        )
    endless = ", ".join(each.name for each in space if each.is_endless)
    if endless and sampler in NEEDS_STEPS:
        raise UserError(
            f"{sampler} tries every value, but {endless} has no step; write LOW:HIGH:STEP or A,B,C."
        )


def _grid(parameter: SearchedSetting) -> Sequence[Any]:
    """Return all values of a parameter."""
    if parameter.choices:
        return parameter.choices
    step = parameter.step or 1
    count = int((parameter.high - parameter.low) / step + 1e-9) + 1
    values = [parameter.low + number * step for number in range(count)]
    return [int(value) for value in values] if parameter.is_whole else values
