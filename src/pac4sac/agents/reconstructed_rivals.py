"""SAC-NR and SAC-FPI. The paper names them in its paragraph on cost and defines neither: these are
reconstructions from the literature it cites, and every table says so."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.nets import Critic, Net, Params
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import NON_NEGATIVE, UNIT, Interval, per_run, structural
from pac4sac.agents.tape import Stream


@dataclass(frozen=True, kw_only=True)
class SacNrConfig(SacConfig):
    clean: float = per_run(0.1, UNIT, "probability of leaving the states of an update as they are")
    matching: float = per_run(
        0.002, NON_NEGATIVE, "weight of the distance between mapped and clean features"
    )


class SacNr(Sac):
    """Network randomisation (Lee et al. 2019): every update sees the states through a fresh random
    linear map, and the features are drawn back to those of the clean states. Acting sees the clean
    state."""

    title = "SAC with network randomisation (reconstruction)"
    Config = SacNrConfig

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        identity = torch.eye(self.ds, device=batch.s.device)
        xavier = draw["map"] * (2 / (self.ds + self.ds)) ** 0.5
        clean = draw["clean"].view(-1, 1, 1) < Hyper(state).clean.view(-1, 1, 1)
        matrix = torch.where(clean, identity, xavier)  # [R, ds, ds], the same for s and s′
        mapped = batch._replace(s=batch.s @ matrix, s2=batch.s2 @ matrix)
        return super().learn(state, mapped, {**draw, "clean_states": batch.s}, active)

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        loss, log = super().critic_loss(state, theta, batch, target, draw)
        return loss + self.distance(
            state, self.critic, theta, batch.s, draw["clean_states"], batch.a
        ), log

    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        loss, log = super().actor_loss(state, pi, batch, draw)
        return loss + self.distance(state, self.actor, pi, batch.s, draw["clean_states"]), log

    def distance(
        self, state: State, net: Net, p: Params, mapped: Tensor, clean: Tensor, *a: Tensor
    ) -> Tensor:
        with torch.no_grad():
            wanted = net.features(p, clean, *a)
        gap = net.per_member((net.features(p, mapped, *a) - wanted).square().mean((1, 2))).sum(1)
        return Hyper(state).matching * gap

    def update_streams(self) -> dict[str, Stream]:
        return super().update_streams() | {
            "map": Stream((self.ds, self.ds)),
            "clean": Stream((1,), uniform=True),
        }


@dataclass(frozen=True, kw_only=True)
class SacFpiConfig(SacConfig):
    critics: int = structural(1, Interval(1, 1), "this method has one critic and its helper")


class SacFpi(Sac):
    """Fitted policy iteration by Bellman-residual minimisation (Antos et al. 2008). With y = r +
    γ(Q(s′, a′) − α log π) from the critic itself and a helper h that regresses y, the critic
    minimises mean[(Q − y)² − (h − y)²], gradient through y included: the second term takes away the
    variance of y that makes the first one biased."""

    title = "SAC by Bellman-residual minimisation (reconstruction)"
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
