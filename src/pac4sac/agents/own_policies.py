"""An ensemble with a policy for each member; the policy of the sampled member acts."""

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Loss, State
from pac4sac.agents.nets import GaussianActor, Net, Params, Trunk, linear_head
from pac4sac.agents.nets import squashed_sample as squashed
from pac4sac.agents.posterior_sampling import PosteriorSampling, index_of
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac
from pac4sac.agents.tape import Stream


class ManyActors(GaussianActor):
    """Compute several policies with one shared trunk and one head per policy."""

    def __init__(self, trunk: Trunk, da: int, policies: int, log_std_max: float) -> None:
        super().__init__(trunk, policies * da, log_std_max)
        self.policies = policies

    def __call__(self, p: Params, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation, each [R, M, B, da]."""
        heads = (
            linear_head(p, self.trunk(p, s)).view(*s.shape[:2], self.policies, -1).transpose(1, 2)
        )
        mean, log_variance = heads.chunk(2, -1)
        return mean, self.std(log_variance)


class OwnPolicies(PosteriorSampling, Sac):
    """Train member k with the critic Q_k and the policy π_k, which maximises Q_k."""

    def networks(self) -> dict[str, Net]:
        c = self.config
        self.actor = ManyActors(self.trunk(s=self.ds), self.da, c.critics, c.log_std_max)
        self.critic = self.build_critic()
        return {"critic": self.critic, "actor": self.actor}

    def of_own_policies(self, theta: Params, s: Tensor, a: Tensor) -> Tensor:
        """Return Q_k(s, a_k), [R, M, B]: the value of each critic for the action [R, M, B, da] of
        its own policy."""
        (states,) = self.critic.of_members(s)
        return self.critic.of_own_pairs(theta, states, a.flatten(0, 1))[0]

    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        alpha = self.alpha(state)
        a, log_pi = squashed(*self.actor(pi, batch.s), draw["actor"])
        q = self.of_own_policies(self.params(state, "critic"), batch.s, a)
        loss = (alpha.view(-1, 1, 1) * log_pi - q).mean((1, 2))
        return loss, {"entropy": -log_pi.mean((1, 2)), "alpha": alpha}

    # --- acting: training uses the policy of the drawn member, and evaluation uses all policies

    def proposal(self, state: State, s: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = super().proposal(state, s)
        chosen = state["member"].view(-1, 1, 1, 1).expand(-1, 1, *mean.shape[2:])
        return mean.gather(1, chosen).squeeze(1), std.gather(1, chosen).squeeze(1)

    def candidates(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        if "member" in draw:  # in training
            return super().candidates(state, s, draw)
        mean, std = self.actor(self.params(state, "actor"), s)  # [R, M, B, da]
        policy = torch.arange(draw["candidates"].shape[1], device=s.device) % self.config.critics
        return torch.tanh(mean[:, policy] + std[:, policy] * draw["candidates"])

    def deterministic_action(self, state: State, s: Tensor) -> Tensor:
        return torch.tanh(self.actor(self.params(state, "actor"), s)[0]).mean(1)

    def sample_policy(self, state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Draw a policy for each state, and an action from that policy."""
        # [R, M, B, da]
        a, log_pi = squashed(*self.actor(self.params(state, "actor"), s), draw["policies"])
        chosen = index_of(draw["which"], self.members).unsqueeze(1)
        each = chosen.unsqueeze(-1).expand(-1, -1, -1, self.da)
        return a.gather(1, each).squeeze(1), log_pi.gather(1, chosen).squeeze(1)

    def policy_streams(self, states: int) -> dict[str, Stream]:
        return {
            "policies": Stream((self.config.critics, states, self.da)),
            "which": Stream((states,), uniform=True),
        }

    def update_streams(self) -> dict[str, Stream]:
        own = Stream((self.config.critics, self.config.batch, self.da))
        return super().update_streams() | {"actor": own}
