"""FlashSAC (Kim, Lee et al. 2026): SAC with few updates of large networks. It bounds the norms of
weights, features and gradients, with residual networks, normalised weights and a categorical
critic. Rewards are divided by a scale that keeps all returns in the range of the critic."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Loss, State
from pac4sac.agents.nets import GaussianActor, Net, Params, Trunk, squashed_sample
from pac4sac.agents.replay import Batch
from pac4sac.agents.residual import ResidualTrunk
from pac4sac.agents.sac import SacConfig
from pac4sac.agents.settings import (
    REPRODUCTION_AUTO,
    AgentConfig,
    Interval,
    new_default,
    structural,
)
from pac4sac.agents.tape import Stream
from pac4sac.agents.weight_norm import normalise_scales
from pac4sac.agents.xqc import Xqc, XqcConfig
from pac4sac.base.errors import UserError

TARGET_STD = 0.15
# entropy of a Gaussian with this std, per action dimension: −0.478
TARGET_ENTROPY = 0.5 * math.log(2 * math.pi * math.e * TARGET_STD**2)
EXPONENT = 2.0  # exponent of the distribution of the number of steps for which noise is held


@dataclass(frozen=True, kw_only=True)
class FlashSacConfig(XqcConfig):
    """Hold the settings of FlashSAC.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import FlashSacConfig
        >>> FlashSacConfig(batch=64).batch
        64
    """

    held_max: int = structural(
        16, Interval(1, 1000), "largest number of steps for which exploration noise is held"
    )
    gamma: float = new_default(AgentConfig, "gamma", 0.99)
    tau: float = new_default(AgentConfig, "tau", 0.01)
    batch: int = new_default(AgentConfig, "batch", 512)
    updates_per_step: int = new_default(AgentConfig, "updates_per_step", 1)
    warmup: int = new_default(AgentConfig, "warmup", 10_000)
    policy_delay: int = new_default(XqcConfig, "policy_delay", 2)
    width: int = new_default(AgentConfig, "width", 128)
    depth: int = new_default(AgentConfig, "depth", 2)
    critic_width: int = new_default(AgentConfig, "critic_width", 256)
    lr_schedule: str = new_default(AgentConfig, "lr_schedule", "cosine")
    lr_end: float = new_default(XqcConfig, "lr_end", 0.5)
    target_entropy: float = new_default(SacConfig, "target_entropy", TARGET_ENTROPY)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm:
            raise UserError(
                "The residual networks of flashsac do not support layer normalisation; set norm "
                "to false."
            )


class BoundedStdActor(GaussianActor):
    """Compute a policy with a log standard deviation in (−10, log_std_max), limited with a tanh."""

    log_std_min = -10.0

    def std(self, x: Tensor) -> Tensor:
        share = 0.5 * (1 + torch.tanh(x))
        return (self.log_std_min + (self.log_std_max - self.log_std_min) * share).exp()


class FlashSac(Xqc):
    """Define FlashSAC: XQC with residual networks, bounded rewards and held exploration noise.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import FlashSac, FlashSacConfig
        >>> FlashSac([FlashSacConfig()], ds=3, da=1).runs
        1
    """

    title = "FlashSAC: residual networks, categorical critic, one update per step"
    Config = FlashSacConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "reproduction": {
            **{**REPRODUCTION_AUTO, "critic_width": 0, "norm": False},
            **{"lr_schedule": "constant", "width": 256, "tau": 0.005},
        },
    }
    config: FlashSacConfig

    # Architecture: inverted residual blocks with batch normalisation before each activation, and
    # RMSNorm after the last block. The weights of each unit have length 1, as in XQC. Scale and
    # shift of a normalisation of width d together have length √d.

    def trunk(self, kind: type[Trunk] = ResidualTrunk, /, **inputs: int) -> Trunk:
        return super().trunk(kind, **inputs)

    def networks(self) -> dict[str, Net]:
        self.critic = self.build_critic()
        self.actor = BoundedStdActor(self.trunk(s=self.ds), self.da, self.config.log_std_max)
        return {"critic": self.critic, "actor": self.actor}

    def normalise(self, name: str, weights: Tensor, moving: Tensor) -> None:
        super().normalise(name, weights, moving)
        normalise_scales(self.nets[name], weights, moving)

    # The critic is that of XQC. In every second update, actor and α are updated before the critic,
    # so the target uses the new actor and α. The actor's batch holds s and s′, like the critic's.

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        log = self.descend(
            state, "actor", lambda pi: self.actor_loss(state, pi, batch, draw), active
        )
        if "actor" not in self.resting:
            self.learn_temperature(state, log["entropy"], self.due(state, "actor", active))
        with torch.no_grad():
            target = self.bellman_target(state, batch, draw)
        return log | self.descend(
            state,
            "critic",
            lambda theta: self.critic_loss(state, theta, batch, target, draw),
            active,
        )

    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        mean, std = self.actor(pi, torch.cat([batch.s, batch.s2], 1))
        a, log_pi = squashed_sample(mean.chunk(2, 1)[0], std.chunk(2, 1)[0], draw["actor"])
        alpha = self.alpha(state)
        q = self.value(self.params(state, "critic"), batch.s, a, None)
        loss = (alpha[:, None] * log_pi - q).mean(-1)
        return loss, {"entropy": -log_pi.mean(-1), "alpha": alpha}

    # Rewards are divided by the larger of two numbers: the standard deviation of the discounted
    # return G, and the smallest number that keeps all G so far within the range of the bins.

    def update_reward_statistics(self, state: State, r: Tensor) -> None:
        super().update_reward_statistics(state, r)
        needed = state["rewards/needed"]
        for limit in (min(self.config.value_min, 0), max(self.config.value_max, 0)):
            if limit:
                needed.copy_(torch.maximum(needed, state["rewards/return"] / limit))

    def reward_scale(self, state: State) -> Tensor:
        std = super().reward_scale(state)
        if not self.config.normalise_rewards:
            return std
        return torch.maximum(std, state["rewards/needed"])

    # Exploration: a draw of noise ε in a = tanh(μ + σ ε) is held for k steps, with k from 1 to 16
    # and a probability proportional to k⁻². With shooting, one of the candidates uses this noise.

    def act(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        left, noise = state["held/steps"], state["held/noise"]
        ended = left <= 0
        steps = 1 + (draw["held"] >= self.held_distribution(left)).sum(1)  # [R]
        left.copy_(torch.where(ended, steps.to(left.dtype), left) - 1)
        first, others = draw["candidates"][:, :1], draw["candidates"][:, 1:]
        noise.copy_(torch.where(ended.view(-1, 1, 1, 1), first, noise))
        return super().act(state, s, {**draw, "candidates": torch.cat([noise, others], 1)})

    def held_distribution(self, like: Tensor) -> Tensor:
        """Return the probabilities that noise is held for at most 1, 2, … steps. The last one,
        which is 1, is omitted."""
        steps = torch.arange(1, self.config.held_max + 1, device=like.device, dtype=like.dtype)
        return (steps**-EXPONENT / (steps**-EXPONENT).sum()).cumsum(0)[:-1]

    def act_streams(self) -> dict[str, Stream]:
        return super().act_streams() | {"held": Stream((1,), uniform=True)}

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        state = super().extra_state(seeds, device)
        if self.config.normalise_rewards:
            state["rewards/needed"] = torch.zeros(self.runs, device=device)
        state["held/noise"] = torch.zeros(self.runs, 1, 1, self.da, device=device)
        state["held/steps"] = torch.zeros(self.runs, device=device)
        return state
