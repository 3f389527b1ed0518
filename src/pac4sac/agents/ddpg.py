"""Deep deterministic policy gradient (Lillicrap et al. 2015), and the same with the PAC-Bayes critic."""

from dataclasses import dataclass

from torch import Tensor

from pac4sac.agents.base import Agent, Draw, Hyper, Loss, State, Target
from pac4sac.agents.beyond_the_paper import BeyondConfig, BeyondCritic
from pac4sac.agents.nets import DeterministicActor, Net, Params
from pac4sac.agents.replay import Batch
from pac4sac.agents.settings import NON_NEGATIVE, AgentConfig, per_run
from pac4sac.agents.tape import Stream


@dataclass(frozen=True, kw_only=True)
class DdpgConfig(AgentConfig):
    noise: float = per_run(0.1, NON_NEGATIVE, "deviation of the Gaussian exploration noise")


class Ddpg(Agent):
    title = "Deep deterministic policy gradient"
    Config = DdpgConfig
    with_target = ("critic", "actor")
    actor: DeterministicActor

    def networks(self) -> dict[str, Net]:
        self.actor = DeterministicActor(self.trunk(s=self.ds), self.da)
        self.critic = self.build_critic()
        return {"critic": self.critic, "actor": self.actor}

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Target:
        a2 = self.actor(self.params(state, "actor/target"), batch.s2)
        q2 = self.target_value(state, batch.s2, a2, draw)
        return Target(batch.r + Hyper(state).gamma[:, None] * (1 - batch.terminated) * q2, a2)

    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        a = self.actor(pi, batch.s)
        return -self.value(self.params(state, "critic"), batch.s, a, draw.get("actor_value")).mean(-1), {}

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        noise = Hyper(state).noise[:, None, None] * draw["noise"]
        return (self.greedy(state, s) + noise).clamp(-1, 1)

    def greedy(self, state: State, s: Tensor) -> Tensor:
        return self.actor(self.params(state, "actor"), s)

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        return {"noise": Stream((states, self.da))}


@dataclass(frozen=True, kw_only=True)
class Pac4DdpgConfig(BeyondConfig, DdpgConfig):
    pass


class Pac4Ddpg(BeyondCritic, Ddpg):
    title = "DDPG with the PAC-Bayes critic"
    Config = Pac4DdpgConfig
