"""Look up algorithms by name, and build settings from a name, a preset and overrides."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pac4sac.agents.base import Agent
from pac4sac.agents.crossq import CrossQ
from pac4sac.agents.ddpg import Ddpg, Pac4Ddpg
from pac4sac.agents.droq import DroQ
from pac4sac.agents.explore import Explore
from pac4sac.agents.flashsac import FlashSac
from pac4sac.agents.oac import Oac, OacGauss
from pac4sac.agents.pac4sac import Pac4Sac
from pac4sac.agents.pbac import Pbac
from pac4sac.agents.redq import Redq
from pac4sac.agents.sac import Sac
from pac4sac.agents.settings import AgentConfig, check_declared, convert_value
from pac4sac.agents.td3 import Td3
from pac4sac.agents.tqc import Tqc
from pac4sac.agents.value_uncertainty import Pac4SacUncertainty, SacUncertainty
from pac4sac.agents.variants.bounded import Bounded
from pac4sac.agents.variants.explore_actors import ExploreActors
from pac4sac.agents.variants.full_covariance import FullCovariance
from pac4sac.agents.variants.index_head import IndexHead
from pac4sac.agents.variants.mixture import Mixture
from pac4sac.agents.variants.moving_prior import MovingPrior
from pac4sac.agents.variants.oac_lab import OacLab
from pac4sac.agents.variants.random_critic import RandomCritic
from pac4sac.agents.variants.released_code import ReleasedCode
from pac4sac.agents.variants.rnd import Rnd
from pac4sac.agents.variants.sac_fpi import SacFpi
from pac4sac.agents.variants.sac_nr import SacNr
from pac4sac.agents.variants.thompson import Thompson
from pac4sac.agents.xqc import Xqc
from pac4sac.base.errors import UserError, WrongType
from pac4sac.base.known_names import no_such_setting, our_settings
from pac4sac.base.objects import is_in_process, name_of, object_of, short_name
from pac4sac.base.text import did_you_mean
from pac4sac.base.trust import own_class

__all__ = [
    "ALGORITHMS",
    "Agent",
    "Algorithm",
    "algorithm_name",
    "completed",
    "get_algorithm",
    "make_config",
    "removed_settings",
    "setting_names",
    "stored_config",
]


@dataclass(frozen=True)
class Algorithm:
    """Hold a class of agents, with the default settings and title of this name."""

    agent: type[Agent]
    # defaults that differ from those of the class, in every preset
    defaults: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


ALGORITHMS: dict[str, Algorithm] = {
    "pac4sac": Algorithm(Pac4Sac),
    "sac": Algorithm(Sac),
    "sac-auto": Algorithm(Sac, {"learn_alpha": True}, "Soft actor-critic with learned α"),
    "ddpg": Algorithm(Ddpg),
    "oac": Algorithm(Oac),
    "oac-gauss": Algorithm(OacGauss),
    "oac-lab": Algorithm(OacLab),
    "sac-uncertainty": Algorithm(SacUncertainty),
    "sac-rnd": Algorithm(Rnd),
    "sac-random-critic": Algorithm(RandomCritic),
    "sac-nr": Algorithm(SacNr),
    "sac-fpi": Algorithm(SacFpi),
    "pac4ddpg": Algorithm(Pac4Ddpg),
    "pac4sac-explore": Algorithm(Explore),
    "pac4sac-explore-actors": Algorithm(ExploreActors),
    "pac4sac-bounded": Algorithm(Bounded),
    "pac4sac-full-covariance": Algorithm(FullCovariance),
    "pac4sac-moving-prior": Algorithm(MovingPrior),
    "pac4sac-thompson": Algorithm(Thompson),
    "pac4sac-uncertainty": Algorithm(Pac4SacUncertainty),
    "pac4sac-repo": Algorithm(ReleasedCode),
    "pac4sac-mixture": Algorithm(Mixture),
    "pac4sac-index": Algorithm(IndexHead),
    "pbac": Algorithm(Pbac),
    "td3": Algorithm(Td3),
    "crossq": Algorithm(CrossQ),
    "redq": Algorithm(Redq),
    "droq": Algorithm(DroQ),
    "tqc": Algorithm(Tqc),
    "xqc": Algorithm(Xqc),
    "flashsac": Algorithm(FlashSac),
}


# Removed settings, with the value at which they had no effect. None marks settings that had an
# effect only together with another setting.
RETIRED: Mapping[str, Any] = {
    **{"entropy_rule": "joints", "least_alpha": 0.0, "shoot": "always", "target_shots": 1},
    **{"prior_mean": 0.0, "prior_variance": 1.0, "prior": "fixed", "freeze_variance": False},
    **{"head": "gaussian", "objective": "paper", "complexity": "paper", "loss_range": 1.0},
    **{"target": "mean", "exploration_batch": "same", "shooting": "independent"},
    **dict.fromkeys(("delta", "loss_scale", "bound_lambda", "observation_variance", "forgetting")),
    "lr_end": None,  # some agents still have this setting
}


# Settings that do not exist in older runs, with the value that was in effect then.
ADDED: Mapping[str, Any] = {
    **{"log_std_max": 1.0, "alpha_beta_1": 0.5},
    **{"lr_schedule": "constant", "lr_steps": 1_000_000},
}


def algorithm_name(algo: str | type[Agent]) -> str:
    """Return the name of an algorithm, given as a name or a class.

    Raises:
        UserError: If `algo` is neither a name nor a class of agents.
    """
    if isinstance(algo, str):
        return algo
    if not (isinstance(algo, type) and issubclass(algo, Agent)):
        raise WrongType(
            f"algo must be a name or a subclass of pac4sac.Agent, not {algo!r}. "
            "List names: pac4sac list algos."
        )
    shipped = [name for name, known in ALGORITHMS.items() if known == Algorithm(algo)]
    return shipped[0] if shipped else name_of(algo)


def get_algorithm(name: str) -> Algorithm:
    """Return a shipped algorithm by name, or a custom one by "module:Class"."""
    if not isinstance(name, str):
        raise UserError(f"The name of an algorithm must be a string, not {name!r}.")
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" not in name:
        raise UserError(f"Unknown algorithm {name!r}; {did_you_mean(name, ALGORITHMS)}")
    agent: type[Agent] = (
        object_of(name, "algorithm") if is_in_process(name) else own_class(name, "algorithm", Agent)
    )
    if missing := sorted(agent.__abstractmethods__):
        raise UserError(
            f"{short_name(name)!r} lacks {', '.join(missing)}, which every agent must define."
        )
    check_declared(agent.Config, agent.__name__)
    return Algorithm(agent)


def setting_names(algo: str) -> list[str]:
    """Return the names of the settings of an algorithm."""
    return [f.name for f in dataclasses.fields(get_algorithm(algo).agent.Config)]


def make_config(
    algo: str, preset: str = "default", overrides: Mapping[str, Any] | None = None
) -> AgentConfig:
    """Return the settings of one run; overrides may be values or text.

    Raises:
        UserError: If there is no such algorithm, preset or setting, or a value is not allowed.
    """
    algorithm = get_algorithm(algo)
    presets = algorithm.agent.presets
    if preset not in presets:
        raise UserError(
            f"{algo} has no preset {preset!r}; {did_you_mean(preset, presets, 'it has')}"
        )
    fields = {f.name: f for f in dataclasses.fields(algorithm.agent.Config)}
    values: dict[str, Any] = {**presets[preset], **algorithm.defaults}
    for name, value in our_settings(overrides or {}, fields).items():
        if name not in fields:
            raise no_such_setting(f"{short_name(algo)} has no", name, fields)
        values[name] = convert_value(fields[name], value) if isinstance(value, str) else value
    return algorithm.agent.Config(**values)


def stored_config(algo: str, stored: Mapping[str, Any]) -> AgentConfig:
    """Return the settings of a stored run, without removed ones that had no effect.

    Raises:
        UserError: If the algorithm no longer has a setting that had an effect.
    """
    config = get_algorithm(algo).agent.Config
    if removed := removed_settings(algo, stored):
        raise UserError(
            f"{algo} no longer has the settings {', '.join(removed)} of this run; use the version "
            "of pac4sac that trained the run."
        )
    complete = completed(stored)
    known = {f.name for f in dataclasses.fields(config)}
    return config(**{name: value for name, value in complete.items() if name in known})


def completed(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings, with newer settings added at the values that were in effect then."""
    return {**ADDED, **stored}


def removed_settings(algo: str, stored: Mapping[str, Any]) -> list[str]:
    """Return the settings of a stored run that had an effect and no longer exist."""
    known = {f.name for f in dataclasses.fields(get_algorithm(algo).agent.Config)}
    unknown = {name: value for name, value in stored.items() if name not in known}
    return sorted(
        f"{name}={value}"
        for name, value in unknown.items()
        if name not in RETIRED or (RETIRED[name] is not None and value != RETIRED[name])
    )
