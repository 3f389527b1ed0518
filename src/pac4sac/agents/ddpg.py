"""Deep deterministic policy gradient (Lillicrap et al. 2015), also with the PAC-Bayes critic. The
defaults are common current settings, not the settings of 2015: the networks, Adam and replay buffer
of SAC, and Gaussian exploration noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, Hyper, Loss, State, Target, count_up
from pac4sac.agents.nets import DeterministicActor, Net, Params
from pac4sac.agents.pac4sac import PacBayesConfig, PacBayesCritic
from pac4sac.agents.replay import Batch
from pac4sac.agents.settings import NON_NEGATIVE, AgentConfig, per_run
from pac4sac.agents.tape import Stream

DECAY = 0.85  # factor of the Ornstein–Uhlenbeck noise per step
FADED = 1e5  # (index of the episode) × (step in the episode) at which σ of this noise reaches 0


@dataclass(frozen=True, kw_only=True)
class DdpgConfig(AgentConfig):
    """Hold the settings of DDPG.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import DdpgConfig
        >>> DdpgConfig(noise=0.3).noise
        0.3
    """

    noise: float = per_run(
        0.1,
        NON_NEGATIVE,
        "std of the Gaussian exploration noise; the initial std if the noise decays",
    )
    noise_kind: str = per_run(
        "white",
        ("white", "ornstein-uhlenbeck"),
        "noise that is independent at each step, or correlated over time with a decaying scale",
    )


class Ddpg(Agent):
    """Define DDPG (deep deterministic policy gradient): a deterministic actor and one critic.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import Ddpg, DdpgConfig
        >>> Ddpg([DdpgConfig()], ds=3, da=1).runs
        1
    """

    title = "Deep deterministic policy gradient"
    Config = DdpgConfig
    exploration_stream: ClassVar[str] = "noise"
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
        q = self.value(self.params(state, "critic"), batch.s, a, draw.get("actor_value"))
        return -q.mean(-1), {}

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        noise = Hyper(state).noise[:, None, None] * draw["noise"]
        if self.drifting:
            noise = torch.where(Hyper(state).noise_kind.view(-1, 1, 1) > 0, state["noise"], noise)
        return (self.deterministic_action(state, s) + noise).clamp(-1, 1)

    def deterministic_action(self, state: State, s: Tensor) -> Tensor:
        return self.actor(self.params(state, "actor"), s)

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        return {"noise": Stream((states, self.da))}

    # --- Ornstein–Uhlenbeck noise, if a run of the cohort has it: x ← 0.85 x + σ ε, from 0 in each
    # episode, with σ = noise · (1 − min(1, k/10⁵)), k = index of the episode × step in the episode.

    @property
    def drifting(self) -> bool:
        return any(self.numbers("noise_kind"))  # white is 0

    def act(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        if self.drifting:
            k = state["episode"] * (state["step"] - state["episode_began"])
            sigma = Hyper(state).noise * (1 - (k / FADED).clamp_max(1))
            state["noise"].mul_(DECAY).add_(sigma[:, None, None] * draw["noise"])
        return super().act(state, s, draw)

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        noise = torch.zeros(self.runs, 1, self.da, device=device)
        zeros = torch.zeros(self.runs, dtype=torch.int64, device=device)
        own = (
            {"noise": noise, "episode": zeros, "episode_began": zeros.clone()}
            if self.drifting
            else {}
        )
        return super().extra_state(seeds, device) | own

    def end_of_episode(self, state: State, ended: Tensor) -> None:
        super().end_of_episode(state, ended)
        if self.drifting:
            count_up(state["episode"], ended)
            state["episode_began"].copy_(torch.where(ended, state["step"], state["episode_began"]))
            state["noise"].masked_fill_(ended.view(-1, 1, 1), 0.0)


@dataclass(frozen=True, kw_only=True)
class Pac4DdpgConfig(PacBayesConfig, DdpgConfig):
    pass


class Pac4Ddpg(PacBayesCritic, Ddpg):
    title = "DDPG with the PAC-Bayes critic"
    Config = Pac4DdpgConfig
