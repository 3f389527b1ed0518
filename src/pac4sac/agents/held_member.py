"""Acting by one member of an ensemble at a time, which is drawn when an episode begins and held:
what it believes is tried for as long as it takes to find out."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, State
from pac4sac.agents.tape import Stream


class HeldMember(Agent):
    def act(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        self.hold(state, draw, self.renewed(state))
        state["episode_begins"].fill_(False)
        return super().act(state, s, draw)

    def renewed(self, state: State) -> Tensor:
        """The runs [R] that draw a member in this step."""
        return state["episode_begins"]

    def hold(self, state: State, draw: Draw, renewed: Tensor) -> None:
        state["member"].copy_(
            torch.where(renewed, self.member_of(draw["member"].squeeze(1)), state["member"])
        )

    def member_of(self, uniform: Tensor) -> Tensor:
        # u = 1 would be one too many
        return (uniform * self.critic.members).long().clamp_max(self.critic.members - 1)

    def drawn_values(self, state: State, s: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        """Each of one member, with one draw of its weights where it has any; which, the noise as a
        whole draws."""
        theta = self.params(state, "critic")
        if self.critic.gaussian:
            q = self.critic.sampled(theta, s, a, noise)  # [R, M, B, S]
        else:
            q = self.critic(theta, s, a)[0].unsqueeze(-1).expand(-1, -1, -1, noise.shape[1])
        sums = noise.flatten(2).mean(-1) * noise[0, 0].numel() ** 0.5  # standard normal
        member = self.member_of(torch.special.ndtr(sums))[:, None, None].expand(
            -1, 1, q.shape[2], -1
        )
        return q.gather(1, member).squeeze(1)

    def end_of_episode(self, state: State, ended: Tensor) -> None:
        super().end_of_episode(state, ended)
        state["episode_begins"].logical_or_(ended)

    def act_streams(self) -> dict[str, Stream]:
        return super().act_streams() | {"member": Stream((1,), uniform=True)}

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        begins = torch.ones(self.runs, dtype=torch.bool, device=device)
        member = torch.zeros(self.runs, dtype=torch.int64, device=device)
        return super().extra_state(seeds, device) | {"episode_begins": begins, "member": member}
