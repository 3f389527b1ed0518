"""XQC (Palenicek et al. 2025): SAC whose critic is well conditioned. Batch normalisation, weights
of length 1 and a cross-entropy loss keep the gradients of its critic bounded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State
from pac4sac.agents.batch_norm import BatchNormalised, BatchNormTrunk, Learning
from pac4sac.agents.categorical import (
    CategoricalConfig,
    CategoricalCritic,
    CategoricalTarget,
    cross_entropy,
)
from pac4sac.agents.nets import GaussianActor, Net, Params, Trunk
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import (
    AT_LEAST_ONE,
    REPRODUCTION_AUTO,
    UNIT,
    AgentConfig,
    new_default,
    per_run,
)
from pac4sac.agents.weight_norm import WeightNormalised


@dataclass(frozen=True, kw_only=True)
class XqcConfig(CategoricalConfig):
    """Hold the settings of XQC.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import XqcConfig
        >>> XqcConfig(batch=64).batch
        64
    """

    policy_delay: int = per_run(
        3, AT_LEAST_ONE, "d: number of critic updates per update of the actor and α"
    )
    gamma: float = new_default(AgentConfig, "gamma", 0.995)
    updates_per_step: int = new_default(AgentConfig, "updates_per_step", 2)
    warmup: int = new_default(AgentConfig, "warmup", 5_000)
    depth: int = new_default(AgentConfig, "depth", 4)
    critic_width: int = new_default(AgentConfig, "critic_width", 512)
    lr_schedule: str = new_default(AgentConfig, "lr_schedule", "linear")
    lr_end: float = per_run(0.1, UNIT, "final learning rate of a schedule ÷ its initial rate")
    alpha: float = new_default(SacConfig, "alpha", 0.01)
    alpha_loss: str = new_default(SacConfig, "alpha_loss", "plain")
    target_entropy: float = new_default(SacConfig, "target_entropy", -0.5)


class LogStdActor(GaussianActor):
    """Compute a policy whose network outputs the log standard deviation instead of the
    log-variance."""

    log_std_min = -10.0

    def std(self, log_std: Tensor) -> Tensor:
        return log_std.clamp(self.log_std_min, self.log_std_max).exp()


class Xqc(BatchNormalised, WeightNormalised, Sac):
    """Define XQC: SAC with batch normalisation, weight normalisation and a categorical critic.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import Xqc, XqcConfig
        >>> Xqc([XqcConfig()], ds=3, da=1).runs
        1
    """

    title = "XQC: batch and weight normalisation, categorical critic"
    Config = XqcConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "reproduction": {
            **{**REPRODUCTION_AUTO, "critic_width": 0, "norm": False},
            **{"lr_schedule": "constant", "gamma": 0.99},
        },
    }
    updates_of_task: ClassVar[Mapping[str, int]] = {"reproduction": 1}
    delayed: ClassVar[Mapping[str, str]] = {"actor": "policy_delay"}
    config: XqcConfig
    critic: CategoricalCritic

    # Section 4, the architecture of both networks: BatchNorm of the inputs, then depth × (Linear,
    # BatchNorm, ReLU). After each gradient step, the weights of each unit have length 1, including
    # those of the last layer.

    def trunk(self, kind: type[Trunk] = BatchNormTrunk, /, **inputs: int) -> Trunk:
        return super().trunk(kind, **inputs)

    def networks(self) -> dict[str, Net]:
        self.critic = self.build_critic()
        self.actor = LogStdActor(self.trunk(s=self.ds), self.da, self.config.log_std_max)
        return {"critic": self.critic, "actor": self.actor}

    def build_critic(self) -> CategoricalCritic:
        c = self.config
        return CategoricalCritic(
            self.trunk(s=self.ds, a=self.da), c.critics, c.bins, c.value_min, c.value_max
        )

    # The target is a distribution too. It has the values y_i = r + γ (z_i − α log π(a′|s′)), a′ ~
    # π, and the probabilities p_i(s′, a′) of the target critic with the smaller mean, and is
    # projected onto the bins. Online and target critics each process (s, a) and (s′, a′) in one
    # pass, with the statistics of that joint batch, as in CrossQ.

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> CategoricalTarget:
        a2, log_pi = self.next_action(state, batch.s2, draw)
        target_critic = Learning(self.params(state, "critic/target"))
        _, log_p = self.joint_pass(target_critic, batch, a2)
        least = self.critic.mean(log_p).argmin(1)[:, None, :, None]  # [R, 1, B, 1]
        log_p = log_p.gather(1, least.expand(-1, 1, -1, log_p.shape[-1])).squeeze(1)  # [R, B, bins]
        soft_value = self.critic.values(log_p) - (self.alpha(state)[:, None] * log_pi).unsqueeze(-1)
        discount = Hyper(state).gamma[:, None] * (1 - batch.terminated)
        y = batch.r.unsqueeze(-1) + discount.unsqueeze(-1) * soft_value
        projected, outside = self.critic.project(y, log_p.exp())
        return CategoricalTarget(projected, outside.mean(-1), a2)

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: CategoricalTarget, draw: Draw
    ) -> Loss:
        log_p, _ = self.joint_pass(theta, batch, target.a2)
        loss = cross_entropy(target.probabilities[:, None], log_p).mean(-1).sum(-1)
        return loss, {"q": self.critic.mean(log_p).mean((1, 2)), "outside": target.outside}

    def joint_pass(self, theta: Params, batch: Batch, a2: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p(s, a) and log p(s′, a′), each [R, M, B, bins]."""
        s, a = torch.cat([batch.s, batch.s2], 1), torch.cat([batch.a, a2], 1)
        log_p, log_p2 = self.critic.log_probabilities(theta, s, a).chunk(2, 2)
        return log_p, log_p2

    # The actor is that of SAC, L(π) = α log π(a|s) − min_i Q_i(s, a), and is updated in every d-th
    # update. The critic in this loss uses its running statistics.

    def logged(self) -> tuple[str, ...]:
        return (*super().logged(), "outside")
