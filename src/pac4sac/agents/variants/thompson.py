"""PAC4SAC with Thompson sampling. One sample of the last layer's weights ranks all candidates,
while the paper samples a value for each candidate."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, State
from pac4sac.agents.pac4sac import Pac4Sac, Pac4SacConfig
from pac4sac.agents.posterior_sampling import HeldDraw, held_for
from pac4sac.agents.sac import best_candidate, pairs
from pac4sac.agents.settings import NON_NEGATIVE, per_run
from pac4sac.agents.tape import Stream


@dataclass(frozen=True, kw_only=True)
class ThompsonConfig(Pac4SacConfig):
    held: int = per_run(
        1,
        NON_NEGATIVE,
        "number of steps for which a sample is held; 0 holds it until the episode ends",
    )


class Thompson(HeldDraw, Pac4Sac):
    title = "PAC4SAC that ranks all candidates with one sample of the critic"
    Config = ThompsonConfig
    config: ThompsonConfig

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        a, theta = self.candidates(state, s, draw), self.params(state, "critic")
        if a.shape[1] == 1:
            return a.squeeze(1)
        phi = self.critic.features(theta, *pairs(s, a))
        weights = self.critic.sampled_weights(theta, draw["values"])
        q = self.critic.per_member(torch.baddbmm(theta["head.bias"], phi, weights).squeeze(-1))
        return best_candidate(a, q.amin(1).view(a.shape[:-1]), Hyper(state).shots)

    def draw_member(self, state: State, draw: Draw, due: Tensor) -> None:
        noise = torch.where(due.view(-1, 1, 1), draw["values"], state["values"])
        state["values"].copy_(noise)

    def held_draw(self, state: State, draw: Draw) -> Draw:
        return {**draw, "values": state["values"]}

    def due_for_draw(self, state: State) -> Tensor:
        return super().due_for_draw(state) | held_for(state, Hyper(state).held)

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        weights = Stream((self.config.critics, self.critic.trunk.width))
        return super().behaviour_streams(states, evaluating) | {"values": weights}

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        shape = (self.runs, self.config.critics, self.critic.trunk.width)
        values = torch.zeros(shape, device=device)
        return super().extra_state(seeds, device) | {"values": values}
