"""Randomized ensembled double Q-learning (Chen et al. 2021, Algorithm 1): SAC with an ensemble of N
critics and many updates per step. The target uses the minimum of M critics, which are drawn for
each update. The actor maximises the mean of all critics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, State
from pac4sac.agents.nets import Params
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import (
    AT_LEAST_ONE,
    PUBLISHED_CURVES,
    REPRODUCTION_AUTO,
    AgentConfig,
    new_default,
    per_run,
    structural,
)
from pac4sac.agents.tape import Stream
from pac4sac.base.errors import UserError


@dataclass(frozen=True, kw_only=True)
class RedqConfig(SacConfig):
    """Hold the settings of REDQ.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import RedqConfig
        >>> RedqConfig(critics=5).critics
        5
    """

    critics: int = structural(10, AT_LEAST_ONE, "N: number of critics")
    subset: int = per_run(
        2, AT_LEAST_ONE, "M: number of critics in each target, which uses the minimum over them"
    )
    updates_per_step: int = per_run(
        20, AT_LEAST_ONE, "G: number of updates after each environment step"
    )
    warmup: int = new_default(AgentConfig, "warmup", 5_000)
    policy_delay: int = per_run(
        20, AT_LEAST_ONE, "d: number of critic updates per update of the actor and α"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset > self.critics:
            raise UserError(
                f"subset must be at most the number of critics ({self.critics}), not {self.subset}."
            )


class Redq(Sac):
    """Define REDQ: SAC with an ensemble of critics and many updates per step.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import Redq, RedqConfig
        >>> Redq([RedqConfig()], ds=3, da=1).runs
        1
    """

    title = "Randomized ensembled double Q-learning"
    Config = RedqConfig
    revision: ClassVar[int] = 2  # the actor is updated after the last of G updates, not the first
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "reproduction": REPRODUCTION_AUTO,
        "published-curves": PUBLISHED_CURVES,
    }
    updates_of_task: ClassVar[Mapping[str, int]] = {}  # G is part of the algorithm
    config: RedqConfig

    # Lines 6 to 9: each of G updates draws a batch and a subset 𝓜 of M critics. All N critics
    # regress on the same target,
    #
    #   y = r + γ (min_{i ∈ 𝓜} Q′_i(s′, a′) − α log π(a′|s′)),  a′ ~ π(·|s′)
    # which differs from the target of SAC only in the minimum.

    def target_value(self, state: State, s2: Tensor, a2: Tensor, draw: Draw) -> Tensor:
        q2, _ = self.critic(self.target_params(state, draw), s2, a2)  # [R, N, B]
        return q2.masked_fill(
            ~drawn_subset(draw["subset"], Hyper(state).subset).unsqueeze(-1), torch.inf
        ).amin(1)

    def target_params(self, state: State, draw: Draw) -> Params:
        return self.params(state, "critic/target")

    # Line 12, after the G updates: the actor ascends the mean over the ensemble, 1/N Σ_i Q_i(s, a)
    # − α log π(a|s).

    delayed: ClassVar[Mapping[str, str]] = {"actor": "policy_delay"}
    delayed_last: ClassVar[bool] = True

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        return self.critic(theta, s, a)[0].mean(1)

    def mean_and_variance(self, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, None]:
        """Return the mean of the ensemble, which the actor maximises."""
        return self.value(self.params(state, "critic"), s, a, None), None

    def update_streams(self) -> dict[str, Stream]:
        return super().update_streams() | {"subset": Stream((self.config.critics,), uniform=True)}


def drawn_subset(uniforms: Tensor, size: Tensor) -> Tensor:
    """Return a mask [R, N] of a random subset of the members. The subset has the size [R] of the
    run, and consists of the members with the smallest uniform numbers."""
    mine, others = uniforms.unsqueeze(2), uniforms.unsqueeze(1)
    place = torch.arange(uniforms.shape[1], device=uniforms.device)
    # [R, N, N]; ties are broken by index
    earlier = (others < mine) | ((others == mine) & (place < place.unsqueeze(1)))
    return earlier.sum(2) < size.unsqueeze(1)
