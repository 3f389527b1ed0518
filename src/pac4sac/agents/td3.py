"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018): DDPG with the three
changes of the paper's Sections 4.2, 5.2 and 5.3, in this order. `docs/own-agent.md` explains this
file line by line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pac4sac.agents.base import Agent, Draw, Hyper, Loss, State, Target
from pac4sac.agents.nets import Critic, DeterministicActor, Net, Params
from pac4sac.agents.replay import Batch
from pac4sac.agents.settings import (
    AT_LEAST_ONE,
    NON_NEGATIVE,
    AgentConfig,
    new_default,
    per_run,
    structural,
)
from pac4sac.agents.tape import Stream


@dataclass(frozen=True, kw_only=True)
class Td3Config(AgentConfig):
    """Hold the settings of TD3.

    Raises:
        UserError: If a value is not allowed.

    Example:
        >>> from pac4sac.agents.api import Td3Config
        >>> Td3Config(policy_delay=1).policy_delay
        1
    """

    noise: float = per_run(0.1, NON_NEGATIVE, "std of the Gaussian exploration noise")
    smoothing: float = per_run(0.2, NON_NEGATIVE, "σ̃: std of the noise on the action in the target")
    smoothing_limit: float = per_run(
        0.5, NON_NEGATIVE, "c: limit of the noise on the action in the target"
    )
    policy_delay: int = per_run(
        2,
        AT_LEAST_ONE,
        "d: number of critic updates per update of the actor and the target networks",
    )
    critics: int = structural(2, AT_LEAST_ONE, "number of critics; targets use their minimum")
    warmup: int = new_default(AgentConfig, "warmup", 25_000)


class Td3(Agent):
    """Define TD3: DDPG with two critics, smoothed targets and a delayed actor.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Example:
        >>> from pac4sac.agents.api import Td3, Td3Config
        >>> Td3([Td3Config()], ds=3, da=1).runs
        1
    """

    title = "Twin delayed deep deterministic policy gradient"
    Config = Td3Config
    with_target: ClassVar[tuple[str, ...]] = ("critic", "actor")
    exploration_stream: ClassVar[str] = "noise"
    config: Td3Config
    actor: DeterministicActor

    def networks(self) -> dict[str, Net]:
        self.actor = DeterministicActor(self.trunk(s=self.ds), self.da)
        self.critic = Critic(self.trunk(s=self.ds, a=self.da), self.config.critics)
        return {"critic": self.critic, "actor": self.actor}

    # Section 4.2, clipped double Q-learning: y = r + γ min_i Q′_i(s′, ã), on which both critics
    # regress. The base class computes the minimum in `target_value` and the sum of the squared
    # errors in `critic_loss`.

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Target:
        a2 = self.smoothed_action(state, batch.s2, draw["smoothing"])
        q2 = self.target_value(state, batch.s2, a2, draw)
        return Target(batch.r + Hyper(state).gamma[:, None] * (1 - batch.terminated) * q2, a2)

    # Section 5.2, delayed policy updates: the actor and all target networks are updated only in
    # every d-th update.

    delayed: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("actor", "critic/target", "actor/target"), "policy_delay"
    )

    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        """Return the loss of the deterministic policy gradient through the first critic: Algorithm
        1, ∇_a Q_θ₁(s, a) at a = π(s)."""
        # [R, M, B]
        q, _ = self.critic(self.params(state, "critic"), batch.s, self.actor(pi, batch.s))
        return -q[:, 0].mean(-1), {}

    # Section 5.3, target policy smoothing: ã = π′(s′) + ε with ε ~ clip(N(0, σ̃), −c, c), within
    # the range of actions.

    def smoothed_action(self, state: State, s2: Tensor, noise: Tensor) -> Tensor:
        h = Hyper(state)
        limit = h.smoothing_limit[:, None, None]
        epsilon = (h.smoothing[:, None, None] * noise).clamp(-limit, limit)
        return (self.actor(self.params(state, "actor/target"), s2) + epsilon).clamp(-1, 1)

    # Acting: a = π(s) + ε, ε ~ N(0, σ).

    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        noise = Hyper(state).noise[:, None, None] * draw["noise"]
        return (self.deterministic_action(state, s) + noise).clamp(-1, 1)

    def deterministic_action(self, state: State, s: Tensor) -> Tensor:
        return self.actor(self.params(state, "actor"), s)

    # Streams of random numbers.

    def update_streams(self) -> dict[str, Stream]:
        return {"smoothing": Stream((self.config.batch, self.da))}

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        return {"noise": Stream((states, self.da))}
