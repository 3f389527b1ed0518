"""Soft actor-critic (Haarnoja et al. 2018): twin critics whose minimum is the target; entropy
weight fixed or learned.

Any agent with this actor can also *shoot*: draw S actions from the policy and take the one its
critic values most. For SAC that is a control, off by default; for PAC4SAC it is part of the
algorithm."""

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
    MUJOCO_SAC,
    NON_NEGATIVE,
    AgentConfig,
    per_run,
    structural,
)
from pac4sac.agents.tape import Stream


@dataclass(frozen=True, kw_only=True)
class SacConfig(AgentConfig):
    """Settings of SAC."""

    alpha: float = per_run(
        0.2, NON_NEGATIVE, "weight of the policy's entropy; its first value where it is learned"
    )
    learn_alpha: bool = per_run(
        False, None, "learn α towards a target entropy, of −d_a unless told otherwise"
    )
    target_entropy: float = per_run(
        -1.0, ANY, "that entropy, for each of d_a joints or as entropy_rule counts them"
    )
    entropy_rule: str = per_run(
        "joints", ("joints", "root"), "times d_a, or √d_a: more noise where joints are many"
    )
    least_alpha: float = per_run(
        0.0, NON_NEGATIVE, "for each joint, what a learned α never falls below"
    )
    alpha_lr: float = per_run(0.0, NON_NEGATIVE, "Adam's learning rate for log α; 0 for that of lr")
    alpha_loss: str = structural(
        "log", ("log", "plain"), "loss of a learned α: log α or α, times entropy − target"
    )
    shots: int = per_run(
        1, AT_LEAST_ONE, "S: actions drawn per step, of which the critic's favourite is taken"
    )
    shoot: str = structural(
        "always", ("always", "evaluation"), "when to shoot: in training too, or in evaluation only"
    )
    target_shots: int = structural(
        1, AT_LEAST_ONE, "actions drawn for the next state of a target; 1 evaluates π itself"
    )
    critics: int = structural(2, AT_LEAST_ONE, "number of critics; their minimum is used")


class Sac(Agent):
    """Soft actor-critic: twin critics whose minimum is the target, a squashed Gaussian actor, fixed
    or learned α."""

    title = "Soft actor-critic with twin critics"
    Config = SacConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {},
        # The paper states α for PAC4SAC only; with this one SAC is nearest to its own row, as far
        # as runs tell. The study `calibrate-rivals` asks which it is.
        "calibrated": {"alpha": 0.1},
        "mujoco": {**MUJOCO_SAC, "warmup": 10_000},
    }
    updates_of_task: ClassVar[Mapping[str, int]] = {"paper": 1, "calibrated": 1}
    config: SacConfig
    actor: GaussianActor

    def networks(self) -> dict[str, Net]:
        self.actor = GaussianActor(self.trunk(s=self.ds), self.da)
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
        """a′ ~ π(·|s′) and its log-density; where the setting asks for it, the best of several by
        the mean of Q."""
        mean, std = self.actor(self.params(state, "actor"), s2)
        # [R, S, B, da]
        a2, log_pi = squashed_sample(mean.unsqueeze(1), std.unsqueeze(1), draw["target"])
        if a2.shape[1] == 1:
            return a2.squeeze(1), log_pi.squeeze(1)
        q = self.value(self.params(state, "critic"), *pairs(s2, a2), None).view_as(log_pi)
        best = q.argmax(1)
        return take(a2, best), log_pi.gather(1, best.unsqueeze(1)).squeeze(1)

    # --- the temperature α

    def alpha(self, state: State) -> Tensor:
        h = Hyper(state)
        return torch.where(h.learn_alpha > 0, state["log_alpha"].view(-1).exp(), h.alpha)

    def learn_temperature(self, state: State, entropy: Tensor, active: Tensor) -> None:
        """Gradient in log α of log α · (entropy − target entropy), or of α times it, and no further
        than the least α; only for runs that learn it."""
        h = Hyper(state)
        # d_a or √d_a
        target = h.target_entropy * (self.da + h.entropy_rule * (self.da**0.5 - self.da))
        gradient = torch.where(h.learn_alpha > 0, entropy - target, 0.0)
        if self.config.alpha_loss == "plain":
            gradient = gradient * self.alpha(state)
        self.adam(state, "log_alpha", gradient.view(-1, 1, 1), gradient, active)
        least = torch.where(
            active & (h.learn_alpha > 0), (self.da * h.least_alpha).log(), -torch.inf
        )
        state["log_alpha"].copy_(state["log_alpha"].maximum(least.view(-1, 1, 1)))

    def trained(self) -> tuple[str, ...]:
        return (*super().trained(), "log_alpha")

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        first = torch.tensor(self.numbers("alpha"), device=device)
        return {"log_alpha": first.clamp_min(1e-8).log().view(-1, 1, 1)}

    # --- acting

    def proposal(self, state: State, s: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation, before the tanh, of the distribution from which actions are drawn."""
        return self.actor(self.params(state, "actor"), s)

    def candidates(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        """S actions for each state, [R, S, B, da], from one pass of the actor."""
        mean, std = self.proposal(state, s)
        return torch.tanh(mean.unsqueeze(1) + std.unsqueeze(1) * draw["candidates"])

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        a = self.candidates(state, s, draw)
        if a.shape[1] == 1:
            return a.squeeze(1)
        q = self.value(self.params(state, "critic"), *pairs(s, a), None).view(a.shape[:-1])
        return take(a, of_own_shots(q, Hyper(state).shots).argmax(1))

    def deterministic_action(self, state: State, s: Tensor) -> Tensor:
        return torch.tanh(self.actor(self.params(state, "actor"), s)[0])

    def sample_policy(self, state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        return squashed_sample(*self.actor(self.params(state, "actor"), s), draw["policy"])

    # --- what the above needs

    def logged(self) -> tuple[str, ...]:
        return ("q", "entropy", "alpha")

    def shots(self, evaluating: bool) -> tuple[int, ...]:
        shooting = evaluating or self.config.shoot == "always"
        return tuple(int(shots) if shooting else 1 for shots in self.numbers("shots"))

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        shots = self.shots(evaluating)
        return {"candidates": Stream((max(shots), states, self.da), rows=shots)}

    def policy_streams(self, states: int) -> dict[str, Stream]:
        return {"policy": Stream((states, self.da))}

    def update_streams(self) -> dict[str, Stream]:
        batch, shots = self.config.batch, self.config.target_shots
        return {"target": Stream((shots, batch, self.da)), "actor": Stream((batch, self.da))}


# --- shooting: of several candidate actions the one with the largest Q


def pairs(s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """States [R, B, ds] with their candidates [R, S, B, da], as a critic takes them: [R, S·B, ·]. A
    single state is left as it is, since a critic multiplies it once for all its candidates."""
    runs, count, states, _ = a.shape
    if states > 1:
        s = s.unsqueeze(1).expand(-1, count, -1, -1).reshape(runs, count * states, -1)
    return s, a.reshape(runs, count * states, -1)


def of_own_shots(q: Tensor, shots: Tensor) -> Tensor:
    """q [R, S, B] without the candidates beyond the run's own number of shots."""
    absent = torch.arange(q.shape[1], device=q.device) >= shots[:, None]  # [R, S]
    return q.masked_fill(absent.unsqueeze(-1), -torch.inf)


def take(candidates: Tensor, index: Tensor) -> Tensor:
    """The chosen action [R, B, da] of candidates [R, S, B, da], by its index [R, B]."""
    chosen = index[:, None, :, None].expand(-1, 1, -1, candidates.shape[-1])
    return candidates.gather(1, chosen).squeeze(1)
