"""A control for posterior sampling: one of many untrained random functions ranks the candidates of
an episode. Exploration is as consistent within an episode, but learned values do not guide it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pac4sac.agents.base import State
from pac4sac.agents.explore import Explore, ExploreConfig
from pac4sac.agents.nets import Critic, Net
from pac4sac.agents.settings import Interval, new_default, structural


@dataclass(frozen=True, kw_only=True)
class RandomCriticConfig(ExploreConfig):
    functions: int = structural(
        50,
        Interval(1),
        "number of random functions, one of which ranks the candidates in each episode",
    )
    critics: int = new_default(ExploreConfig, "critics", 2)
    target: str = new_default(ExploreConfig, "target", "minimum")


class RandomCritic(Explore):
    title = "SAC + shooting, with candidates ranked by a random function per episode"
    Config = RandomCriticConfig
    config: RandomCriticConfig

    def networks(self) -> dict[str, Net]:
        trunk = self.trunk(s=self.ds, a=self.da)
        self.random, self.one_random = Critic(trunk, self.config.functions), Critic(trunk)
        return super().networks()

    @property
    def members(self) -> int:
        return self.config.functions

    def member_value(self, state: State, s: Tensor, a: Tensor) -> Tensor:
        weights = self.one_random.views(self.held_weights(state, "random"))
        return self.one_random(weights, s, a)[0][:, 0]

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        random = self.random.initial(seeds, "initial/random", device)
        return super().extra_state(seeds, device) | {"random": random}
