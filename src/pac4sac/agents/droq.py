"""Dropout Q-functions (Hiraoka et al. 2022, Algorithm 2): REDQ with two critics instead of a large
ensemble. The critics have dropout and layer normalisation; a critic with dropout is itself an
ensemble."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.nets import Critic, Params, Trunk
from pac4sac.agents.redq import Redq, RedqConfig
from pac4sac.agents.replay import Batch
from pac4sac.agents.settings import AT_LEAST_ONE, BELOW_ONE, per_run, structural
from pac4sac.agents.tape import Stream, hashed_uniforms


@dataclass(frozen=True, kw_only=True)
class DroQConfig(RedqConfig):
    """Hold the settings of DroQ.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import DroQConfig
        >>> DroQConfig(dropout=0.1).dropout
        0.1
    """

    critics: int = structural(2, AT_LEAST_ONE, "number of critics")
    dropout: float = per_run(
        0.01, BELOW_ONE, "probability of dropping a hidden unit of a critic during learning"
    )


class DropoutTrunk(Trunk):
    """Compute depth × (Linear, Dropout, LayerNorm, activation), Section 3. Units are dropped if the
    weights include "dropout" [R, depth + 1], which holds a random key for each layer and the
    rate."""

    def __init__(
        self, inputs: Mapping[str, int], width: int, depth: int, norm: bool, activation: str
    ) -> None:
        # the setting `norm` applies to the actor only
        super().__init__(inputs, width, depth, True, activation)

    def _biased(self, p: Params, i: int, x: Tensor) -> Tensor:
        x = super()._biased(p, i, x)
        if "dropout" not in p:
            return x
        keys, rate = p["dropout"][:, i], p["dropout"][:, -1]
        u = hashed_uniforms(keys, x.numel() // len(keys)).view_as(x)
        rate = rate.repeat_interleave(len(x) // len(rate)).view(-1, 1, 1)
        return torch.where(u < rate, 0.0, x / (1 - rate))


class DroQ(Redq):
    """Define DroQ: REDQ with two dropout critics instead of a large ensemble.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import DroQ, DroQConfig
        >>> DroQ([DroQConfig()], ds=3, da=1).runs
        1
    """

    title = "Dropout Q-functions: two critics with dropout, many updates per step"
    Config = DroQConfig
    config: DroQConfig

    def build_critic(self) -> Critic:
        return Critic(self.trunk(DropoutTrunk, s=self.ds, a=self.da), self.config.critics)

    # Every Q of Algorithm 2 drops units, Q_Dr: in the target (line 6), the critics' loss (line 8)
    # and the actor's loss (line 12), with different units in each. No unit is dropped when the
    # agent acts or estimates a value.

    def target_params(self, state: State, draw: Draw) -> Params:
        return {
            **super().target_params(state, draw),
            "dropout": self.dropout(state, draw["target_dropout"]),
        }

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        theta = {**theta, "dropout": self.dropout(state, draw["critic_dropout"])}
        return super().critic_loss(state, theta, batch, target, draw)

    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        noise = self.dropout(state, draw["actor_dropout"])
        return super().actor_loss(state, pi, batch, {**draw, "actor_value": noise})

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        return super().value(theta if noise is None else {**theta, "dropout": noise}, s, a, None)

    def dropout(self, state: State, keys: Tensor) -> Tensor:
        return torch.cat([keys, Hyper(state).dropout[:, None]], 1)

    def update_streams(self) -> dict[str, Stream]:
        keys = Stream((self.critic.trunk.depth,), uniform=True)
        own = {f"{who}_dropout": keys for who in ("target", "critic", "actor")}
        return super().update_streams() | own
