"""The algorithms by name, and the settings a name, a preset and overrides give."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pac4sac.agents.base import Agent
from pac4sac.agents.beyond_the_paper import BeyondPac4Sac
from pac4sac.agents.crossq import CrossQ
from pac4sac.agents.ddpg import Ddpg, Pac4Ddpg
from pac4sac.agents.droq import DroQ
from pac4sac.agents.index_head import IndexHead
from pac4sac.agents.mixture import Mixture
from pac4sac.agents.oac import Oac, OacGauss, OacLab
from pac4sac.agents.pbac import Pbac
from pac4sac.agents.reconstructed_rivals import SacFpi, SacNr
from pac4sac.agents.redq import Redq
from pac4sac.agents.sac import Sac
from pac4sac.agents.settings import AgentConfig, check_declared, convert_value
from pac4sac.agents.td3 import Td3
from pac4sac.agents.tqc import Tqc
from pac4sac.base.errors import UserError
from pac4sac.base.text import did_you_mean
from pac4sac.base.trust import own_class

__all__ = ["ALGORITHMS", "Agent", "Algorithm", "get_algorithm", "make_config"]


@dataclass(frozen=True)
class Algorithm:
    """A class of agents, with the defaults and the title in which this name differs from it."""

    agent: type[Agent]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


LEARNED_ALPHA = {"learn_alpha": True}
ALGORITHMS: dict[str, Algorithm] = {
    "pac4sac": Algorithm(BeyondPac4Sac),
    "sac": Algorithm(Sac),
    "sac-auto": Algorithm(Sac, LEARNED_ALPHA, "Soft actor-critic with learned α"),
    "ddpg": Algorithm(Ddpg),
    "oac": Algorithm(Oac),
    "oac-gauss": Algorithm(OacGauss),
    "oac-lab": Algorithm(OacLab),
    "sac-nr": Algorithm(SacNr),
    "sac-fpi": Algorithm(SacFpi),
    "pac4ddpg": Algorithm(Pac4Ddpg),
    "pac4sac-mixture": Algorithm(Mixture),
    "pac4sac-index": Algorithm(IndexHead),
    "pbac": Algorithm(Pbac),
    "td3": Algorithm(Td3),
    "crossq": Algorithm(CrossQ, LEARNED_ALPHA),
    "redq": Algorithm(Redq, LEARNED_ALPHA),
    "droq": Algorithm(DroQ, LEARNED_ALPHA),
    "tqc": Algorithm(Tqc, LEARNED_ALPHA),
}


def get_algorithm(name: str) -> Algorithm:
    """A shipped algorithm by name, or the user's own as "module:Class"."""
    if not isinstance(name, str):
        raise UserError(
            f"An algorithm is a name, not {name!r}; name a class of your own as module:Class."
        )
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" not in name:
        raise UserError(f"There is no algorithm {name!r}; {did_you_mean(name, ALGORITHMS)}")
    agent: type[Agent] = own_class(name, "algorithm", Agent)
    if missing := sorted(agent.__abstractmethods__):
        raise UserError(f"{name!r} lacks {', '.join(missing)}, which every agent must have.")
    check_declared(agent.Config, agent.__name__)
    return Algorithm(agent)


def make_config(
    algo: str, preset: str = "paper", overrides: Mapping[str, Any] | None = None
) -> AgentConfig:
    """The settings of one run. Overrides may be values or text; what cannot be is told in one
    sentence."""
    algorithm = get_algorithm(algo)
    presets = algorithm.agent.presets
    if preset not in presets:
        raise UserError(f"{algo} has no preset {preset!r}; it has {', '.join(presets)}.")
    fields = {f.name: f for f in dataclasses.fields(algorithm.agent.Config)}
    values: dict[str, Any] = {**algorithm.defaults, **presets[preset]}
    for name, value in (overrides or {}).items():
        if name not in fields:
            raise UserError(
                f"{algo} has no setting {name!r}; {did_you_mean(name, fields, 'it has')}"
            )
        values[name] = convert_value(fields[name], value) if isinstance(value, str) else value
    return algorithm.agent.Config(**values)
