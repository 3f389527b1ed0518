"""SAC-FPI: SAC with fitted policy iteration, which minimises the Bellman residual (Antos et al.
2008). The target y = r + γ(Q(s′, a′) − α log π) comes from the critic itself, and a helper network
h regresses on y. The critic minimises mean[(Q − y)² − (h − y)²], with gradient through y. The
second term removes the bias of the first term, which is due to the variance of y.

The PAC4SAC paper names SAC-FPI in its paragraph on cost but does not define it. This is a
reconstruction from the literature that the paper cites.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State
from pac4sac.agents.nets import Critic, Net, Params
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import Interval, structural


@dataclass(frozen=True, kw_only=True)
class SacFpiConfig(SacConfig):
    critics: int = structural(1, Interval(1, 1), "number of critics; only 1 is allowed")


class SacFpi(Sac):
    """Train SAC's critic on the Bellman residual, with gradient through the target."""

    title = "SAC with Bellman-residual minimisation (reconstruction)"
    Config = SacFpiConfig
    with_target = ()
    helper: Critic

    def networks(self) -> dict[str, Net]:
        nets = super().networks()
        self.helper = self.build_critic()
        return {"helper": self.helper} | nets

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Any:
        return self.next_action(state, batch.s2, draw)

    def target_of(
        self, state: State, theta: Params, batch: Batch, next_action: tuple[Tensor, Tensor]
    ) -> Tensor:
        a2, log_pi = next_action
        soft_value = (
            self.critic(theta, batch.s2, a2)[0].amin(1) - self.alpha(state)[:, None] * log_pi
        )
        return batch.r + Hyper(state).gamma[:, None] * (1 - batch.terminated) * soft_value

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            y = self.target_of(
                state, self.params(state, "critic"), batch, self.bellman_target(state, batch, draw)
            )
        log = self.descend(state, "helper", lambda h: self.helper_loss(h, batch, y), active)
        return log | super().learn(state, batch, draw, active)

    def helper_loss(self, h: Params, batch: Batch, y: Tensor) -> Loss:
        return (self.helper(h, batch.s, batch.a)[0].amin(1) - y).square().mean(-1), {}

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Any, draw: Draw
    ) -> Loss:
        y = self.target_of(state, theta, batch, target)
        m = self.critic(theta, batch.s, batch.a)[0].amin(1)
        helper = self.helper(self.params(state, "helper"), batch.s, batch.a)[0].amin(1)
        return ((m - y).square() - (helper - y).square()).mean(-1), {"q": m.mean(-1)}
