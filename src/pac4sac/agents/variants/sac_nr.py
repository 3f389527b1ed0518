"""SAC-NR: SAC with network randomisation (Lee et al. 2019). Every update transforms the states with
a new random linear map. An additional loss keeps the features close to those of the original
states. The agent acts on the original states.

The PAC4SAC paper names SAC-NR in its paragraph on cost but does not define it. This is a
reconstruction from the literature that the paper cites.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.nets import Net, Params
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import NON_NEGATIVE, UNIT, per_run
from pac4sac.agents.tape import Stream


@dataclass(frozen=True, kw_only=True)
class SacNrConfig(SacConfig):
    clean: float = per_run(0.1, UNIT, "probability that an update uses the original states")
    matching: float = per_run(
        0.002,
        NON_NEGATIVE,
        "weight of the distance between features of transformed and original states",
    )


class SacNr(Sac):
    """Train SAC on states that random linear maps transform."""

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
