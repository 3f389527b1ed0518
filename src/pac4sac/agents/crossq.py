"""CrossQ (Bhatt et al. 2024): SAC without target networks. Actor and critics have batch
renormalisation (Ioffe 2017). The critics evaluate (s, a) and (s′, a′) in one pass, so both share
the statistics of the batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State
from pac4sac.agents.batch_norm import (
    BatchNormalised,
    Learning,
    as_rows,
    batch_norm,
    moments,
    norm_parameters,
    of_members,
)
from pac4sac.agents.nets import Params, Trunk
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import (
    AT_LEAST_ONE,
    BELOW_ONE,
    NON_NEGATIVE,
    REPRODUCTION_AUTO,
    AgentConfig,
    new_default,
    per_run,
    structural,
)

EPSILON = 1e-3  # added to variances
R_MAX, D_MAX = 3.0, 5.0  # limits of the corrections of scale and mean
LEAST_VARIANCE = 1e-12  # floor below a square root, whose gradient is infinite at 0


@dataclass(frozen=True, kw_only=True)
class CrossQConfig(SacConfig):
    """Hold the settings of CrossQ.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import CrossQConfig
        >>> CrossQConfig(critic_width=512).critic_width
        512
    """

    norm: bool = structural(
        False, None, "also apply layer normalisation after each hidden linear layer"
    )
    policy_delay: int = per_run(
        3, AT_LEAST_ONE, "d: number of critic updates per update of the actor and α"
    )
    beta_1: float = per_run(0.5, BELOW_ONE, "Adam's β₁ for all networks")
    alpha_beta_1: float = per_run(0.9, BELOW_ONE, "Adam's β₁ for log α")
    alpha_loss: str = new_default(SacConfig, "alpha_loss", "plain")
    renorm_warmup: int = per_run(
        100_000, NON_NEGATIVE, "number of updates of a network before batch renormalisation starts"
    )
    lr: float = new_default(AgentConfig, "lr", 1e-3)
    warmup: int = new_default(AgentConfig, "warmup", 5_000)
    critic_width: int = new_default(AgentConfig, "critic_width", 2048)


# --- batch renormalisation


class Renormalised(Learning):
    """Hold the weights of a network in its own gradient step."""

    def __init__(self, weights: Params, settled: Tensor) -> None:
        super().__init__(weights)
        self.settled = settled  # [G, 1, 1], whether the warm-up is over


def renormalise(p: Params, layer: str, x: Tensor) -> Tensor:
    if not isinstance(p, Renormalised):
        return batch_norm(p, layer, x, EPSILON)
    sigma = (p[f"{layer}.variance"] + EPSILON).sqrt()  # [G, 1, width]
    mean, variance = moments(p, layer, x)
    r = ((variance + EPSILON).sqrt() / sigma).clamp(1 / R_MAX, R_MAX)
    d = ((mean - p[f"{layer}.mean"]) / sigma).clamp(-D_MAX, D_MAX)
    r = torch.where(p.settled, r, 1.0).detach()
    d = torch.where(p.settled, d, 0.0).detach()
    # ε is added after the corrections, so a unit that is 0 in the whole batch stays 0.
    shift = d * variance.clamp_min(LEAST_VARIANCE).sqrt() / r
    x = (x - (mean - shift)) / (variance / r.square() + EPSILON).sqrt()
    return torch.addcmul(p[f"{layer}.shift"], x, p[f"{layer}.scale"])


class RenormalisedTrunk(Trunk):
    """Compute BatchRenorm, then depth × (Linear, activation, BatchRenorm)."""

    def __init__(
        self, inputs: Mapping[str, int], width: int, depth: int, norm: bool, activation: str
    ) -> None:
        super().__init__(inputs, width, depth, norm, activation)
        for layer, size in enumerate([sum(self.inputs), *[width] * depth]):
            self.parameters |= norm_parameters(f"renorm{layer}", size)

    def _first(self, p: Params, inputs: tuple[Tensor, ...]) -> Tensor:
        return super()._first(p, (renormalise(p, "renorm0", as_rows(inputs)),))

    def _after(self, p: Params, i: int, x: Tensor) -> Tensor:
        return renormalise(p, f"renorm{i + 1}", super()._after(p, i, x))


class Next(NamedTuple):
    """Hold the inputs of the joint pass from the next states."""

    a2: Tensor  # [R, B, da]
    log_pi: Tensor  # [R, B]


class CrossQ(BatchNormalised, Sac):
    """Define CrossQ: SAC with batch renormalisation instead of target networks.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import CrossQ, CrossQConfig
        >>> CrossQ([CrossQConfig()], ds=3, da=1).runs
        1
    """

    title = "CrossQ: batch renormalisation instead of target networks"
    Config = CrossQConfig
    revision: ClassVar[int] = 2  # ε moved to another place in batch renormalisation
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "reproduction": {
            **{**REPRODUCTION_AUTO, "critic_width": 0, "norm": False},
            **{"alpha_loss": "log", "alpha_beta_1": 0.5},
        },
    }
    updates_of_task: ClassVar[Mapping[str, int]] = {"reproduction": 1}
    with_target: ClassVar[tuple[str, ...]] = ()
    delayed: ClassVar[Mapping[str, str]] = {"actor": "policy_delay"}
    config: CrossQConfig

    def trunk(self, kind: type[Trunk] = RenormalisedTrunk, /, **inputs: int) -> Trunk:
        return super().trunk(kind, **inputs)

    # Section 4.2: one pass of the critics over (s, a) and (s′, a′), a′ ~ π(·|s′), gives Q and Q′.
    # Q′ has no gradient, and all critics regress on y = r + γ (min_i Q′_i − α log π(a′|s′)).

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Next:
        return Next(*self.next_action(state, batch.s2, draw))

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Next, draw: Draw
    ) -> Loss:
        s, a = torch.cat([batch.s, batch.s2], 1), torch.cat([batch.a, target.a2], 1)
        q, q2 = self.critic(theta, s, a)[0].chunk(2, -1)  # [R, M, B] each
        soft_value = q2.detach().amin(1) - self.alpha(state)[:, None] * target.log_pi
        y = batch.r + Hyper(state).gamma[:, None] * (1 - batch.terminated) * soft_value
        return (y[:, None] - q).square().mean(-1).sum(-1), {"q": q.mean((1, 2))}

    # A network uses batch statistics only in its own gradient step, which also updates its running
    # statistics.

    def learning(self, state: State, name: str, weights: Params) -> Renormalised:
        settled = state[f"{name}/count"] >= Hyper(state).renorm_warmup
        return Renormalised(weights, of_members(settled, self.nets[name].members))
