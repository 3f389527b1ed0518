"""The mean and standard deviation of Q according to a critic, and the source of the standard
deviation."""

from typing import Any, Literal, NamedTuple

from torch import Tensor

from pac4sac.agents.base import Agent, State
from pac4sac.agents.value_uncertainty import ValueUncertainty

Source = Literal["posterior", "critics", "uncertainty"]


class Value(NamedTuple):
    """Hold the critic's estimate of Q(s, a): floats for one pair, arrays [B] for several.

    Q is the discounted sum of the environment's rewards, with entropy if the agent uses it.

    Attributes:
        mean: Mean of Q.
        std: Standard deviation of Q; None for a critic without one.
        source: Source of the standard deviation: "posterior" of a randomised critic, "critics" for
            the spread of several plain critics, "uncertainty" for a network that learns it, None
            for a single plain critic. `certify` compares this standard deviation with errors.

    Example:
        >>> agent = pac4sac.load("half-cheetah")
        >>> agent.value([0.0] * 17, [0.0] * 6).source
        'posterior'
    """

    mean: Any
    std: Any
    source: Source | None


def std_source(agent: Agent) -> Source | None:
    """Return the source of the standard deviation of an agent's critic."""
    if isinstance(agent, ValueUncertainty):
        return "uncertainty"
    if agent.critic.gaussian:
        return "posterior"
    return "critics" if agent.critic.members > 1 else None


def mean_and_std(
    agent: Agent, state: State, s: Tensor, a: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return mean, variance (None without one) and standard deviation (NaN without one) of Q.

    Each is [R, B]. Several plain critics have no variance, and their spread is the standard
    deviation. A network that learns the uncertainty takes precedence.
    """
    m, v = agent.value_estimate(state, s, a)
    if isinstance(agent, ValueUncertainty):
        return m, v, agent.value_uncertainty(state, s, a)
    return m, v, agent.members_std(state, s, a) if v is None else v.sqrt()
