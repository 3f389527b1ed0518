"""Posterior sampling: act with one sample of the posterior, drawn at the start of an episode and
kept until its end. The posterior of an ensemble is uniform over its members."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, State
from pac4sac.agents.nets import Params
from pac4sac.agents.tape import Stream


class HeldDraw(Agent):
    """Hold a random draw for several steps."""

    def act(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        self.draw_member(state, draw, self.due_for_draw(state))
        state["episode_begins"].fill_(False)
        return super().act(state, s, self.held_draw(state, draw))

    def due_for_draw(self, state: State) -> Tensor:
        """Return the runs [R] that need a new draw in this step."""
        return state["episode_begins"]

    @abstractmethod
    def draw_member(self, state: State, draw: Draw, due: Tensor) -> None:
        """Make a new draw for the runs that are due."""

    def held_draw(self, state: State, draw: Draw) -> Draw:
        """Return the random numbers for acting; a held draw may replace a stream."""
        return draw

    def end_of_episode(self, state: State, ended: Tensor) -> None:
        super().end_of_episode(state, ended)
        state["episode_begins"].logical_or_(ended)

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        begins = torch.ones(self.runs, dtype=torch.bool, device=device)
        return super().extra_state(seeds, device) | {"episode_begins": begins}


class PosteriorSampling(HeldDraw):
    """Use an ensemble of critics as a posterior with equally likely members."""

    takes_minimum: ClassVar[bool] = False

    @property
    def members(self) -> int:
        """Return the number of members from which one is drawn for each episode."""
        return self.critic.members

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        """Return the mean over members, [R, B]."""
        return self.critic(theta, s, a)[0].mean(1)

    def mean_and_variance(self, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        m, _ = self.critic(self.params(state, "critic"), s, a)
        return m.mean(1), m.var(1, correction=0)

    def draw_member(self, state: State, draw: Draw, due: Tensor) -> None:
        member = index_of(draw["member"].squeeze(1), self.members)
        state["member"].copy_(torch.where(due, member, state["member"]))

    def held_weights(self, state: State, name: str) -> Tensor:
        """Select the weights [R, 1, P] of the current member of each run from [R, M, P]."""
        weights = state[name].flatten(0, 1)
        member = torch.arange(self.runs, device=weights.device) * self.members + state["member"]
        return weights.index_select(0, member).unsqueeze(1)

    def drawn_values(self, state: State, s: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        """Return sampled values, each from one member, with a sample of its weights if it has a
        posterior. The noise also selects the member."""
        theta = self.params(state, "critic")
        if self.critic.gaussian:
            q = self.critic.sampled(theta, s, a, noise)  # [R, M, B, S]
        else:
            q = self.critic(theta, s, a)[0].unsqueeze(-1).expand(-1, -1, -1, noise.shape[1])
        sums = noise.flatten(2).mean(-1) * noise[0, 0].numel() ** 0.5  # standard normal
        member = index_of(torch.special.ndtr(sums), self.critic.members)[:, None, None]
        return q.gather(1, member.expand(-1, 1, q.shape[2], -1)).squeeze(1)

    def act_streams(self) -> dict[str, Stream]:
        return super().act_streams() | {"member": Stream((1,), uniform=True)}

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        member = torch.zeros(self.runs, dtype=torch.int64, device=device)
        return super().extra_state(seeds, device) | {"member": member}


def index_of(uniform: Tensor, members: int) -> Tensor:
    """Convert a uniform number to the index of a member."""
    # clamped, because u = 1 would exceed the last index
    return (uniform * members).long().clamp_max(members - 1)


def held_for(state: State, steps: Tensor) -> Tensor:
    """Return the runs [R] whose member was held for this number of steps; 0 holds it for the whole
    episode."""
    # Floats, because compiled CPU code would also divide integers by 0 in unused vector lanes.
    return (torch.remainder(state["step"].to(steps.dtype), steps.clamp_min(1)) == 0) & (steps > 0)
