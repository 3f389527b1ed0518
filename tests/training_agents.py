"""Agents that go wrong on demand, or tell what they see."""

from dataclasses import dataclass

import torch

from pac4sac.agents.base import Hyper
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import AT_LEAST_ONE, per_run


@dataclass(frozen=True, kw_only=True)
class FragileConfig(SacConfig):
    breaks_at: int = per_run(1_000_000, AT_LEAST_ONE, "step from which something is not a number")


class Fragile(Sac):
    title = "SAC whose critic loss is NaN from some step on"
    Config = FragileConfig

    def broken(self, state):
        return torch.where(state["step"] >= Hyper(state).breaks_at, torch.nan, 0.0)  # [R]

    def critic_loss(self, state, q, batch, target, draw):
        loss, log = super().critic_loss(state, q, batch, target, draw)
        return loss + self.broken(state), log


class Wild(Fragile):
    title = "SAC whose actions are NaN from some step on"

    def critic_loss(self, state, q, batch, target, draw):
        return Sac.critic_loss(self, state, q, batch, target, draw)

    def behaviour(self, state, s, draw):
        return super().behaviour(state, s, draw) + self.broken(state)[:, None, None]


class RecordsReplaySize(Sac):
    """Notes in each update how many transitions its replay holds; the environment's observations
    are never zero."""

    title = "SAC that watches its replay"
    seen: list[tuple[int, int]]

    def update(self, state, data, draw):
        held = data[0].abs().sum(-1) > 0
        RecordsReplaySize.seen.append((int(state["step"]), int(held.sum())))
        super().update(state, data, draw)


class NeverMoves(Sac):
    title = "SAC that never moves"

    def behaviour(self, state, s, draw):
        return torch.zeros_like(super().behaviour(state, s, draw))
