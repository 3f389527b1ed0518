"""Soft actor-critic (Haarnoja et al. 2018): twin critics with their minimum in the target, and a
fixed or learned entropy weight.

Any agent with this actor can use *shooting*: it draws S actions from the policy and takes the
action that its critic values most. For SAC, shooting is a control and is off by default. For
PAC4SAC, it is part of the algorithm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, Hyper, Loss, State, Target
from pac4sac.agents.nets import Critic, GaussianActor, Net, Params, squashed_sample
from pac4sac.agents.replay import Batch
from pac4sac.agents.settings import (
    ANY,
    AT_LEAST_ONE,
    NON_NEGATIVE,
    PUBLISHED_CURVES,
    REPRODUCTION_SAC,
    AgentConfig,
    Interval,
    per_run,
    structural,
)
from pac4sac.agents.tape import Stream


@dataclass(frozen=True, kw_only=True)
class SacConfig(AgentConfig):
    """Hold the settings of SAC. The defaults are those of Haarnoja et al. (2018b), with learned α.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import SacConfig
        >>> SacConfig(alpha=0.1).alpha
        0.1
    """

    alpha: float = per_run(1.0, NON_NEGATIVE, "entropy weight; the initial value if α is learned")
    learn_alpha: bool = per_run(True, None, "learn α to keep the policy's entropy near its target")
    target_entropy: float = per_run(
        -1.0, ANY, "target entropy divided by the number of action dimensions"
    )
    alpha_lr: float = per_run(
        0.0, NON_NEGATIVE, "Adam's learning rate for log α; 0 means the same as `lr`"
    )
    alpha_loss: str = structural(
        "log",
        ("log", "plain"),
        "loss that trains α: entropy minus target, times log α (log) or times α (plain)",
    )
    log_std_max: float = structural(
        2.0, Interval(-5, 10, low_open=True), "largest log standard deviation of the policy"
    )
    shots: int = per_run(
        1,
        AT_LEAST_ONE,
        "S: number of actions sampled per step; the agent takes the action with the largest Q",
    )
    critics: int = structural(
        2, AT_LEAST_ONE, "number of critics; targets and the actor use the minimum over all critics"
    )


class Sac(Agent):
    """Define SAC (soft actor-critic): two critics, a squashed Gaussian actor, fixed or learned α.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import Sac, SacConfig
        >>> Sac([SacConfig()], ds=3, da=1).runs
        1
    """

    title = "Soft actor-critic with twin critics"
    Config = SacConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "reproduction": REPRODUCTION_SAC,
        # With this α, SAC is closest to its row in the paper; see the study `calibrate-rivals`.
        "calibrated": {**REPRODUCTION_SAC, "alpha": 0.1},
        "published-curves": PUBLISHED_CURVES,
    }
    updates_of_task: ClassVar[Mapping[str, int]] = {"reproduction": 1, "calibrated": 1}
    exploration_stream: ClassVar[str] = "candidates"
    config: SacConfig
    actor: GaussianActor

    def networks(self) -> dict[str, Net]:
        self.actor = GaussianActor(self.trunk(s=self.ds), self.da, self.config.log_std_max)
        self.critic = self.build_critic()
        return {"critic": self.critic, "actor": self.actor}

    def build_critic(self) -> Critic:
        return Critic(self.trunk(s=self.ds, a=self.da), self.config.critics)

    # --- learning

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Any:
        h = Hyper(state)
        a2, log_pi = self.next_action(state, batch.s2, draw)
        q2 = self.target_value(state, batch.s2, a2, draw)
        soft_value = q2 - self.alpha(state)[:, None] * log_pi
        return Target(batch.r + h.gamma[:, None] * (1 - batch.terminated) * soft_value, a2)

    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        a, log_pi = squashed_sample(*self.actor(pi, batch.s), draw["actor"])
        q = self.value(self.params(state, "critic"), batch.s, a, draw.get("actor_value"))
        alpha = self.alpha(state)
        loss = (alpha[:, None] * log_pi - q).mean(-1)
        return loss, {"entropy": -log_pi.mean(-1), "alpha": alpha}

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        log = super().learn(state, batch, draw, active)
        if "actor" not in self.resting:
            self.learn_temperature(state, log["entropy"], self.due(state, "actor", active))
        return log

    def next_action(self, state: State, s2: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Draw a′ ~ π(·|s′) and return it with its log-density. The shooting policy is never used
        here."""
        return squashed_sample(*self.actor(self.params(state, "actor"), s2), draw["target"])

    # --- the temperature α

    def alpha(self, state: State) -> Tensor:
        h = Hyper(state)
        return torch.where(h.learn_alpha > 0, state["log_alpha"].view(-1).exp(), h.alpha)

    def learn_temperature(self, state: State, entropy: Tensor, active: Tensor) -> None:
        """Take a gradient step in log α on log α · (entropy − target entropy), or on α · (entropy −
        target entropy), for runs that learn α."""
        h = Hyper(state)
        target = h.target_entropy * self.da
        gradient = torch.where(h.learn_alpha > 0, entropy - target, 0.0)
        if self.config.alpha_loss == "plain":
            gradient = gradient * self.alpha(state)
        self.adam(state, "log_alpha", gradient.view(-1, 1, 1), gradient, active)

    def trained(self) -> tuple[str, ...]:
        return (*super().trained(), "log_alpha")

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        first = torch.tensor(self.numbers("alpha"), device=device)
        return {"log_alpha": first.clamp_min(1e-8).log().view(-1, 1, 1)}

    # --- acting

    def proposal(self, state: State, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and std before the tanh of the distribution of candidate actions."""
        return self.actor(self.params(state, "actor"), s)

    def candidates(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        """Return S actions for each state, [R, S, B, da], from one pass of the actor."""
        mean, std = self.proposal(state, s)
        return torch.tanh(mean.unsqueeze(1) + std.unsqueeze(1) * draw["candidates"])

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        a = self.candidates(state, s, draw)
        if a.shape[1] == 1:
            return a.squeeze(1)
        q = self.value(self.params(state, "critic"), *pairs(s, a), None).view(a.shape[:-1])
        return best_candidate(a, q, Hyper(state).shots)

    def deterministic_action(self, state: State, s: Tensor) -> Tensor:
        return torch.tanh(self.actor(self.params(state, "actor"), s)[0])

    def sample_policy(self, state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        return squashed_sample(*self.actor(self.params(state, "actor"), s), draw["policy"])

    # --- declarations

    def logged(self) -> tuple[str, ...]:
        return ("q", "entropy", "alpha")

    def shots(self, evaluating: bool) -> tuple[int, ...]:
        return tuple(map(int, self.numbers("shots")))

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        shots = self.shots(evaluating)
        return {"candidates": Stream((max(shots), states, self.da), rows=shots)}

    def policy_streams(self, states: int) -> dict[str, Stream]:
        return {"policy": Stream((states, self.da))}

    def update_streams(self) -> dict[str, Stream]:
        noise = Stream((self.config.batch, self.da))
        return {"target": noise, "actor": noise}


# --- shooting


def pairs(s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return states [R, B, ds] and their candidates [R, S, B, da] as inputs of a critic, [R, S·B,
    ·]. A single state stays [R, 1, ds], so the critic multiplies it once for all candidates."""
    runs, count, states, _ = a.shape
    if states > 1:
        s = s.unsqueeze(1).expand(-1, count, -1, -1).reshape(runs, count * states, -1)
    return s, a.reshape(runs, count * states, -1)


def best_candidate(candidates: Tensor, q: Tensor, shots: Tensor) -> Tensor:
    """Return the candidate [R, B, da] with the largest q [R, S, B]. Each run uses only its own
    number of shots [R] of the candidates [R, S, B, da]."""
    unused = torch.arange(q.shape[1], device=q.device) >= shots[:, None]  # [R, S]
    index = q.masked_fill(unused.unsqueeze(-1), -torch.inf).argmax(1)  # [R, B]
    chosen = index[:, None, :, None].expand(-1, 1, -1, candidates.shape[-1])
    return candidates.gather(1, chosen).squeeze(1)
