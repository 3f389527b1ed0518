"""Posterior sampling with a policy for each member. In each episode, one member is drawn: its
policy proposes the candidates, and its critic ranks them."""

from pac4sac.agents.base import Draw, Hyper, State, Target
from pac4sac.agents.explore import Explore
from pac4sac.agents.nets import squashed_sample
from pac4sac.agents.own_policies import OwnPolicies
from pac4sac.agents.replay import Batch
from pac4sac.agents.tape import Stream


class ExploreActors(OwnPolicies, Explore):
    title = "PAC4SAC for exploration, with a policy for each member"

    # y_k = r + γ(1 − d)(Q̄_k(s′, a′_k) − α log π_k(a′_k|s′)), a′_k ~ π_k: members share nothing.

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Target:
        policies = self.actor(self.params(state, "actor"), batch.s2)
        a2, log_pi = squashed_sample(*policies, draw["target"])  # [R, M, B, da]
        q2 = self.of_own_policies(self.params(state, "critic/target"), batch.s2, a2)
        soft_value = self.bootstrapped(q2) - self.alpha(state).view(-1, 1, 1) * log_pi
        discount = Hyper(state).gamma[:, None] * (1 - batch.terminated)
        return Target(batch.r[:, None] + discount[:, None] * soft_value, a2)

    def update_streams(self) -> dict[str, Stream]:
        own = Stream((self.config.critics, self.config.batch, self.da))
        return super().update_streams() | {"target": own}
