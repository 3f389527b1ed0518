"""The mean and standard deviation that a critic gives to Q, and where the standard deviation comes
from."""

from typing import Any, Literal, NamedTuple

from torch import Tensor

from pac4sac.agents.base import Agent, State

Source = Literal["posterior", "critics"]


class Value(NamedTuple):
    """The critic's estimate of Q(s, a): floats for one pair, arrays [B] for several.

    Q is the discounted sum of the environment's rewards, with entropy if the agent learns with it.

    Attributes:
        mean: Mean of Q.
        std: Standard deviation of Q; None for a critic without one.
        source: "posterior" for the posterior of a randomised critic, "critics" for the distance
            between several plain critics, None for a single plain critic. `certify` measures this
            standard deviation.

    Example:
        >>> agent = pac4sac.load("half-cheetah")
        >>> agent.value([0.0] * 17, [0.0] * 6).source
        'posterior'
    """

    mean: Any
    std: Any
    source: Source | None


def std_source(agent: Agent) -> Source | None:
    """Return where the standard deviation of an agent's critic comes from."""
    if agent.critic.gaussian:
        return "posterior"
    return "critics" if agent.critic.members > 1 else None


def mean_and_std(
    agent: Agent, state: State, s: Tensor, a: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return mean, variance (None without one) and standard deviation (NaN without one) of Q.

    Each is [R, B]. Several plain critics have no variance, and their spread as standard deviation.
    """
    m, v = agent.value_estimate(state, s, a)
    return m, v, agent.members_std(state, s, a) if v is None else v.sqrt()
