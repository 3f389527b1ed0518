"""PAC4SAC whose prior is the posterior of the previous episode, as Section 3.1 of the paper
suggests."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import State
from pac4sac.agents.bounds import gaussian_kl
from pac4sac.agents.nets import Params
from pac4sac.agents.pac4sac import Pac4Sac

# Separate from the parameters, so that neither Adam nor Polyak averaging changes them.
PRIOR = ("prior_mean", "prior_log_variance")  # [R, M, K] each


class MovingPrior(Pac4Sac):
    title = "PAC4SAC whose prior is the posterior of the previous episode"
    prior_moves: ClassVar[bool] = True

    def divergence(self, state: State, theta: Params) -> Tensor:
        m, log_v = self.critic.posterior(theta)
        m0, log_v0 = (state[name] for name in PRIOR)
        return gaussian_kl(m, log_v.exp(), m0, log_v0.exp())

    def end_of_episode(self, state: State, ended: Tensor) -> None:
        super().end_of_episode(state, ended)
        posterior = self.critic.posterior(self.params(state, "critic"))
        for name, value in zip(PRIOR, posterior, strict=True):
            state[name].copy_(torch.where(ended.view(-1, 1, 1), value, state[name]))

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        shape = (self.runs, self.critic.members, self.critic.trunk.width)
        standard_normal = {name: torch.zeros(shape, device=device) for name in PRIOR}
        return super().extra_state(seeds, device) | standard_normal
