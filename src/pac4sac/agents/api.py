"""Collect the names that custom agents import.

An agent is a class with two networks and a few functions on tensors. All runs of a cohort are
computed at once, so the first axis of every tensor has one entry per run. Shapes use R for the
number of runs, M for ensemble members and B for the size of a batch.

1. Subclass `Agent`, or a similar algorithm: `Sac`, `Ddpg`, `Td3`, `Oac`, `CrossQ`, `Redq`, `DroQ`,
   `Tqc`, `Xqc`, `FlashSac`, or the paper's `Pac4Sac`. To extend an algorithm, list one of these
   classes before it: `PacBayesCritic` gives it the paper's critic, `BatchNormalised` and
   `WeightNormalised` normalise its networks, and `ValueUncertainty` estimates how uncertain its
   values are.
2. Settings are fields of a frozen dataclass that inherits from the parent's `Config`. Each field
   has a range and a meaning. Use `per_run` if the runs of a cohort may differ, and read the setting
   as `Hyper(state).name`, a tensor [R]. Use `structural` if the setting decides shapes or code, and
   read it as `self.config.name`. `new_default` changes the default of a parent's setting.
3. `networks` builds the networks. `bellman_target`, `critic_loss` and `actor_loss` define how they
   learn. `behaviour` and `deterministic_action` define how the agent acts. A loss function returns
   one number per run, [R], and a dictionary of metrics, [R] each. `logged` lists their names.
4. `update_streams` and `behaviour_streams` declare streams of random numbers. Read them as
   `draw["name"]`. With `torch.randn`, a run would depend on its cohort, and a resumed run would
   differ from an uninterrupted run.
5. `with_target` lists the networks that have a target network. `delayed` lists the parts that are
   updated only in every d-th update.
6. An update is compiled, so it must not branch on values or call `.item()`. Use `torch.where`
   instead of `if`.
7. `presets` are named sets of settings. The preset "default" changes nothing.
8. Raise `revision` when an edit outside the module of the class changes results.

`pac4sac check module:Class` tests these rules on random data. `pac4sac train TASK --algo
module:Class` trains the agent. `docs/own-agent.md` explains an example line by line, and the files
in `agents/variants/` are further examples.
"""

from pac4sac.agents.base import Agent, Draw, Hyper, Loss, State, Target
from pac4sac.agents.batch_norm import BatchNormalised, BatchNormTrunk
from pac4sac.agents.bounds import gaussian_kl
from pac4sac.agents.categorical import CategoricalConfig, CategoricalCritic
from pac4sac.agents.crossq import CrossQ, CrossQConfig
from pac4sac.agents.ddpg import Ddpg, DdpgConfig
from pac4sac.agents.droq import DroQ, DroQConfig
from pac4sac.agents.flashsac import FlashSac, FlashSacConfig
from pac4sac.agents.nets import (
    Critic,
    DeterministicActor,
    GaussianActor,
    Net,
    Parameter,
    Params,
    Trunk,
    linear_head,
    linear_parameters,
    squashed_sample,
    standard_deviation,
)
from pac4sac.agents.oac import Oac, OacConfig
from pac4sac.agents.pac4sac import Objective, Pac4Sac, Pac4SacConfig, PacBayesConfig, PacBayesCritic
from pac4sac.agents.redq import Redq, RedqConfig
from pac4sac.agents.replay import Batch
from pac4sac.agents.residual import ResidualTrunk
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import (
    ANY,
    AT_LEAST_ONE,
    BELOW_ONE,
    NON_NEGATIVE,
    OPEN_UNIT,
    POSITIVE,
    UNIT,
    AgentConfig,
    Interval,
    new_default,
    per_run,
    structural,
)
from pac4sac.agents.tape import Stream
from pac4sac.agents.td3 import Td3, Td3Config
from pac4sac.agents.tqc import Tqc, TqcConfig
from pac4sac.agents.value_uncertainty import ValueUncertainty, ValueUncertaintyConfig
from pac4sac.agents.weight_norm import WeightNormalised
from pac4sac.agents.xqc import Xqc, XqcConfig

__all__ = [
    "ANY",
    "AT_LEAST_ONE",
    "BELOW_ONE",
    "NON_NEGATIVE",
    "OPEN_UNIT",
    "POSITIVE",
    "UNIT",
    "Agent",
    "AgentConfig",
    "Batch",
    "BatchNormTrunk",
    "BatchNormalised",
    "CategoricalConfig",
    "CategoricalCritic",
    "Critic",
    "CrossQ",
    "CrossQConfig",
    "Ddpg",
    "DdpgConfig",
    "DeterministicActor",
    "Draw",
    "DroQ",
    "DroQConfig",
    "FlashSac",
    "FlashSacConfig",
    "GaussianActor",
    "Hyper",
    "Interval",
    "Loss",
    "Net",
    "Oac",
    "OacConfig",
    "Objective",
    "Pac4Sac",
    "Pac4SacConfig",
    "PacBayesConfig",
    "PacBayesCritic",
    "Parameter",
    "Params",
    "Redq",
    "RedqConfig",
    "ResidualTrunk",
    "Sac",
    "SacConfig",
    "State",
    "Stream",
    "Target",
    "Td3",
    "Td3Config",
    "Tqc",
    "TqcConfig",
    "Trunk",
    "ValueUncertainty",
    "ValueUncertaintyConfig",
    "WeightNormalised",
    "Xqc",
    "XqcConfig",
    "gaussian_kl",
    "linear_head",
    "linear_parameters",
    "new_default",
    "per_run",
    "squashed_sample",
    "standard_deviation",
    "structural",
]
