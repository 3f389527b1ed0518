"""CrossQ (Bhatt et al. 2024): SAC without target networks. Instead, both networks have batch
renormalisation (Ioffe 2017), and one pass of the critics over (s, a) and (s′, a′) together lets
both share the batch's statistics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State
from pac4sac.agents.nets import Parameter, Params, Trunk
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

DECAY, EPSILON = 0.99, 1e-3  # of the running statistics per step; added to a variance
R_MAX, D_MAX = 3.0, 5.0  # limits of the corrections of scale and mean
LEAST_VARIANCE = 1e-12  # under a root, whose slope is infinite at 0


@dataclass(frozen=True, kw_only=True)
class CrossQConfig(SacConfig):
    """Settings of CrossQ."""

    norm: bool = structural(False, None, "layer normalisation too, after each hidden linear layer")
    policy_delay: int = per_run(
        3, AT_LEAST_ONE, "d: the actor and α are updated in every d-th update"
    )
    beta_1: float = per_run(0.5, BELOW_ONE, "Adam's β₁, of all networks")
    alpha_beta_1: float = per_run(0.9, BELOW_ONE, "Adam's β₁, of log α")
    alpha_loss: str = new_default(SacConfig, "alpha_loss", "plain")
    renorm_warmup: int = per_run(
        100_000,
        NON_NEGATIVE,
        "steps of a network before running statistics correct those of its batches",
    )
    lr: float = new_default(AgentConfig, "lr", 1e-3)
    warmup: int = new_default(AgentConfig, "warmup", 5_000)
    critic_width: int = new_default(AgentConfig, "critic_width", 2048)


# --- batch renormalisation. Mean and variance of a layer's inputs are stored among the weights, but
# never get a gradient: whatever copies, stores or exports a network includes them.


class Learning(dict[str, Tensor]):
    """The weights of a network in its own gradient step, which normalises by the batch. Any other
    use normalises by the running statistics."""

    def __init__(self, weights: Params, settled: Tensor) -> None:
        super().__init__(weights)
        self.settled = settled  # [G, 1, 1], whether the warm-up is over
        # mean and variance of this batch, by the names of the running statistics
        self.seen: dict[str, Tensor] = {}


def renormalise(p: Params, layer: str, x: Tensor) -> Tensor:
    mean, variance = p[f"{layer}.mean"], p[f"{layer}.variance"]  # [G, 1, width]
    sigma = (variance + EPSILON).sqrt()
    if isinstance(p, Learning):
        of_batch = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
        p.seen |= {f"{layer}.mean": of_batch[0].detach(), f"{layer}.variance": of_batch[1].detach()}
        r = ((of_batch[1] + EPSILON).sqrt() / sigma).clamp(1 / R_MAX, R_MAX)
        d = ((of_batch[0] - mean) / sigma).clamp(-D_MAX, D_MAX)
        r = torch.where(p.settled, r, 1.0).detach()
        d = torch.where(p.settled, d, 0.0).detach()
        # ε is added after the corrections: a unit that is 0 in all of a batch stays 0.
        shift = d * of_batch[1].clamp_min(LEAST_VARIANCE).sqrt() / r
        x = (x - (of_batch[0] - shift)) / (of_batch[1] / r.square() + EPSILON).sqrt()
    else:
        x = (x - mean) / sigma
    return torch.addcmul(p[f"{layer}.shift"], x, p[f"{layer}.scale"])


class RenormalisedTrunk(Trunk):
    """BatchRenorm, depth × (Linear, activation, BatchRenorm)."""

    def __init__(
        self, inputs: Mapping[str, int], width: int, depth: int, norm: bool, activation: str
    ) -> None:
        super().__init__(inputs, width, depth, norm, activation)
        for layer, size in enumerate([sum(self.inputs), *[width] * depth]):
            for name, first in {"scale": 1.0, "shift": 0.0, "mean": 0.0, "variance": 1.0}.items():
                self.parameters[f"renorm{layer}.{name}"] = Parameter((1, size), centre=first)

    def _first(self, p: Params, inputs: tuple[Tensor, ...]) -> Tensor:
        rows = max(x.shape[1] for x in inputs)  # a single state may come with many actions
        x = torch.cat([x.expand(-1, rows, -1) for x in inputs], -1)
        return super()._first(p, (renormalise(p, "renorm0", x),))

    def _after(self, p: Params, i: int, x: Tensor) -> Tensor:
        return renormalise(p, f"renorm{i + 1}", super()._after(p, i, x))


class Next(NamedTuple):
    """What the joint pass needs of the next states."""

    a2: Tensor  # [R, B, da]
    log_pi: Tensor  # [R, B]


class CrossQ(Sac):
    """SAC with batch renormalisation instead of target networks."""

    title = "CrossQ: batch renormalisation instead of target networks"
    Config = CrossQConfig
    revision: ClassVar[int] = 2  # another place of ε in batch renormalisation
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

    # Section 4.2: one pass of the critics over (s, a) and (s′, a′), a′ ~ π(·|s′), gives Q and Q′;
    # with Q′ held fixed they regress y = r + γ (min_i Q′_i − α log π(a′|s′)).

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

    # Only in its own gradient step is a network normalised by the batch; then its running
    # statistics are updated.

    def descend(
        self, state: State, name: str, loss_of: Callable[[Params], Loss], active: Tensor
    ) -> dict[str, Tensor]:
        settled = state[f"{name}/count"] >= Hyper(state).renorm_warmup
        members = self.nets[name].members
        passes: list[Learning] = []

        def loss_in_learning(weights: Params) -> Loss:
            passes.append(Learning(weights, of_members(settled, members)))
            return loss_of(passes[-1])

        log = super().descend(state, name, loss_in_learning, active)
        moving = of_members(self.due(state, name, active) & state["alive"], members)
        running = self.params(state, name)
        for statistic, of_batch in [item for each in passes for item in each.seen.items()]:
            updated = running[statistic].lerp(of_batch, 1 - DECAY)
            running[statistic].copy_(torch.where(moving, updated, running[statistic]))
        return log


def of_members(runs: Tensor, members: int) -> Tensor:
    """[R] -> [G, 1, 1]"""
    return runs.repeat_interleave(members).view(-1, 1, 1)
