"""PAC4SAC that shoots by Thompson sampling: one draw of the last layer's weights ranks all
candidates, where the paper draws a value for each of them."""

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, State
from pac4sac.agents.pac4sac import Pac4Sac
from pac4sac.agents.sac import best_candidate, pairs
from pac4sac.agents.tape import Stream


class Thompson(Pac4Sac):
    title = "PAC4SAC that ranks all candidates by one draw of the critic"

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        a, theta = self.candidates(state, s, draw), self.params(state, "critic")
        if a.shape[1] == 1:
            return a.squeeze(1)
        phi = self.critic.features(theta, *pairs(s, a))
        weights = self.critic.sampled_weights(theta, draw["values"])
        q = self.critic.per_member(torch.baddbmm(theta["head.bias"], phi, weights).squeeze(-1))
        return best_candidate(a, q.amin(1).view(a.shape[:-1]), Hyper(state).shots)

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        streams = super().behaviour_streams(states, evaluating)
        if "values" in streams:
            streams["values"] = Stream((self.config.critics, self.critic.trunk.width))
        return streams
