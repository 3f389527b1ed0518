"""Universal value-function uncertainty (Zanger et al. 2025): one additional network estimates how
uncertain the values of a critic are, without an ensemble. It works with any agent and does not
change what the agent learns.

A network u is trained with TD learning on an artificial reward. The values of this reward are
known, because it is computed from a fixed random function g that is its value function:

    r_g = g(s, a) − γ (1 − d) g(s′, a′),   a′ ~ π,

If the data determine the value of (s, a), u equals g. Otherwise it does not, and (u − g)² is the
uncertainty. It is averaged over H outputs, because a single difference is also 0 at its sign
changes. Only the difference δ = u − g is trained. Its target has no reward: δ(s, a) → γ (1 − d)
δ̄(s′, a′)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, Hyper, Loss, State
from pac4sac.agents.nets import (
    OBSERVED,
    Net,
    Parameter,
    Params,
    Trunk,
    linear_head,
    linear_parameters,
)
from pac4sac.agents.pac4sac import Pac4Sac, Pac4SacConfig
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import POSITIVE, AgentConfig, Interval, per_run, structural
from pac4sac.agents.tape import Stream

NET = "uncertainty"  # name of the network, and prefix of the names of its streams
FIXED = "fixed."  # prefix of the names of the weights of g


@dataclass(frozen=True, kw_only=True)
class ValueUncertaintyConfig(AgentConfig):
    """Hold the settings of `ValueUncertainty`. List it after the settings of the algorithm.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from dataclasses import dataclass
        >>> from pac4sac.agents.api import SacConfig, ValueUncertaintyConfig
        >>> @dataclass(frozen=True, kw_only=True)
        ... class MyConfig(SacConfig, ValueUncertaintyConfig):
        ...     pass
        >>> MyConfig().uncertainty_scale
        1.0
    """

    uncertainty_heads: int = structural(
        10, Interval(1, 1000), "H: number of outputs of u and g, over which (u − g)² is averaged"
    )
    uncertainty_scale: float = per_run(
        1.0, POSITIVE, "factor that converts the root mean square of u − g to the std of a value"
    )


class RandomDifference(Net):
    """Compute δ = u − g: a learned network minus a fixed random network."""

    def __init__(self, learned: Trunk, fixed: Trunk, heads: int) -> None:
        super().__init__(learned, linear_parameters(learned.width, heads))
        self.fixed = fixed
        random = fixed.parameters | {"head": Parameter((fixed.width, heads), fixed.width**-0.5)}
        # Stored with the trained weights but without a gradient, so that copies and files include
        # them.
        self.lay_out(self.parameters | {FIXED + name: random[name] for name in random})

    def __call__(self, p: Params, s: Tensor, a: Tensor) -> Tensor:
        """Return δ, [R, B, H]."""
        g = {
            name.removeprefix(FIXED): weights.detach()
            for name, weights in p.items()
            if name.startswith((FIXED, OBSERVED))
        }
        return linear_head(p, self.features(p, s, a)) - torch.bmm(self.fixed(g, s, a), g["head"])


class ValueUncertainty(Agent):
    """Give an agent a network that estimates the uncertainty of its critic.

    `agent.value`, `certify` and the log of value bias take their standard deviation from it.

    List it before an algorithm in the base classes.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import Td3, ValueUncertainty, ValueUncertaintyConfig
        >>> class MyTd3(ValueUncertainty, Td3):
        ...     title = "TD3 that knows where its critic errs"
    """

    config: Any
    difference: RandomDifference

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.with_target = (*(name for name in cls.with_target if name != NET), NET)

    def networks(self) -> dict[str, Net]:
        inputs, c = {"s": self.ds, "a": self.da}, self.config
        learned = self.trunk(Trunk, **inputs)
        fixed = Trunk(inputs, learned.width, learned.depth, learned.norm, c.activation)
        self.difference = RandomDifference(learned, fixed, c.uncertainty_heads)
        networks = super().networks()  # type: ignore[safe-super]  # of the algorithm
        return networks | {NET: self.difference}

    def value_uncertainty(self, state: State, s: Tensor, a: Tensor) -> Tensor:
        """Return the standard deviation √(mean of δ²) of Q [R, B], in units of the environment's
        rewards."""
        delta = self.difference(self.params(state, NET), s, a)
        scale = Hyper(state).uncertainty_scale * self.reward_scale(state)
        return delta.square().mean(-1).sqrt() * scale[:, None]

    def difference_target(self, state: State, batch: Batch, draw: Draw) -> Tensor:
        """Return γ (1 − d) δ̄(s′, a′), [R, B, H]."""
        own = {name: draw[f"{NET}_{name}"] for name in self.policy_streams(self.config.batch)}
        a2, _ = self.sample_policy(state, batch.s2, own)
        following = self.difference(self.params(state, f"{NET}/target"), batch.s2, a2)
        discount = Hyper(state).gamma[:, None] * (1 - batch.terminated)
        return discount.unsqueeze(-1) * following

    def difference_loss(self, state: State, p: Params, batch: Batch, target: Tensor) -> Loss:
        delta = self.difference(p, batch.s, batch.a)
        uncertainty = delta.detach().square().mean(-1).sqrt().mean(-1)
        return (target - delta).square().mean(1).sum(-1), {NET: uncertainty}

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        log = super().learn(state, batch, draw, active)
        with torch.no_grad():
            target = self.difference_target(state, batch, draw)
        return log | self.descend(
            state, NET, lambda p: self.difference_loss(state, p, batch, target), active
        )

    def update_streams(self) -> dict[str, Stream]:
        own = self.policy_streams(self.config.batch)
        return super().update_streams() | {f"{NET}_{name}": own[name] for name in own}

    def logged(self) -> tuple[str, ...]:
        return (*super().logged(), NET)


# --- SAC and PAC4SAC with it


@dataclass(frozen=True, kw_only=True)
class SacUncertaintyConfig(SacConfig, ValueUncertaintyConfig):
    pass


class SacUncertainty(ValueUncertainty, Sac):
    title = "SAC with universal value-function uncertainty"
    Config = SacUncertaintyConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = Sac.presets


@dataclass(frozen=True, kw_only=True)
class Pac4SacUncertaintyConfig(Pac4SacConfig, ValueUncertaintyConfig):
    pass


class Pac4SacUncertainty(ValueUncertainty, Pac4Sac):
    title = "PAC4SAC with universal value-function uncertainty"
    Config = Pac4SacUncertaintyConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = Pac4Sac.presets
