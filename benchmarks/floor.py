"""The arithmetic floor of a step: what its matrix products take at the speed of one large product.

Counted from the sizes of the networks, in multiply-adds per row, and not from the code: a step that
multiplies more than it must does not raise its own floor."""

import functools

import torch
from measuring import seconds_each

from pac4sac.agents.base import Agent
from pac4sac.agents.explore import Explore
from pac4sac.agents.flashsac import FlashSac
from pac4sac.agents.nets import DeterministicActor
from pac4sac.agents.oac import Oac
from pac4sac.agents.own_policies import OwnPolicies
from pac4sac.agents.pac4sac import PacBayesCritic
from pac4sac.agents.residual import EXPANSION
from pac4sac.agents.value_uncertainty import ValueUncertainty
from pac4sac.agents.variants.index_head import IndexHead
from pac4sac.agents.variants.mixture import Mixture
from pac4sac.agents.variants.rnd import Rnd
from pac4sac.agents.variants.sac_fpi import SacFpi
from pac4sac.agents.variants.sac_nr import SacNr
from pac4sac.agents.xqc import Xqc


class Passes:
    """Multiply-adds for one row of input through all members of a network."""

    def __init__(
        self, agent: Agent, action: int, outputs: int, members: int = 1, depth: int | None = None
    ) -> None:
        width, inner = agent.config.width, ((depth or agent.config.depth) - 1) * agent.config.width
        if isinstance(agent, FlashSac):
            inner = agent.config.depth * 2 * EXPANSION * width
        self.state = members * agent.ds * width
        first = self.state + members * action * width
        self.forward = first + members * width * (inner + outputs)
        # Backward there is as much again for the weights, and for the inputs of every layer but the
        # first.
        self.learn = 3 * self.forward - first
        # A critic that leads the actor moves no weights, and of its input only the action matters.
        self.lead = 2 * self.forward - self.state


def passes(agent: Agent) -> tuple[Passes, Passes]:
    """Of the actor and the critic."""
    deterministic = isinstance(agent.nets["actor"], DeterministicActor)
    heads = 2 if agent.critic.gaussian else 1  # mean, and variance
    if isinstance(agent, IndexHead):
        heads += agent.config.critics
    if isinstance(agent, Xqc):
        heads = agent.config.bins
    policies = agent.config.critics if isinstance(agent, OwnPolicies) else 1
    return (
        Passes(agent, 0, policies * (agent.da if deterministic else 2 * agent.da)),
        Passes(agent, agent.da, heads, agent.critic.members),
    )


def prior_functions(agent: Mixture, members: int) -> Passes:
    """Of one hidden layer, and never learned."""
    outputs = agent.config.critics if isinstance(agent, IndexHead) else 1
    return Passes(agent, agent.da, outputs, members, depth=1)


def act_flops(agent: Agent) -> int:
    actor, critic = passes(agent)
    rows = actor.forward
    shots = max(agent.shots(evaluating=False))
    networks = [Passes(agent, agent.da, 1) if isinstance(agent, Explore) else critic]
    if isinstance(agent, Mixture):
        networks.append(prior_functions(agent, agent.critic.members))
    if shots > 1:
        # one state, many actions
        rows += sum(net.state + shots * (net.forward - net.state) for net in networks)
    if isinstance(agent, Oac):
        rows += critic.lead
    return 2 * rows


def update_flops(agent: Agent) -> int:
    actor, critic = passes(agent)
    target = actor.forward + critic.forward
    rows = target + critic.learn + actor.learn + critic.lead
    if isinstance(agent, Mixture):
        prior = prior_functions(agent, agent.critic.members)
        rows += 2 * prior.forward + prior.lead
    if isinstance(agent, PacBayesCritic) and agent.critic.gaussian:
        rows += critic.learn  # the variance in the next state learns too
    if isinstance(agent, SacNr):
        # mapped states, and features of the clean ones
        rows += 2 * agent.ds**2 + critic.forward + actor.forward
    if isinstance(agent, SacFpi):
        # the target learns too, and the helper is a critic
        rows += 2 * critic.learn + critic.forward
    if isinstance(agent, Xqc):
        # The statistics of a batch couple the rows of a joint pass, which are twice as many.
        rows += critic.forward + critic.learn
        rows += actor.learn if isinstance(agent, FlashSac) else 0
    if isinstance(agent, Rnd):
        # the fixed network and the predictor for the bonus, then both for the predictor's loss
        features = Passes(agent, 0, agent.config.features)
        rows += 3 * features.forward + features.learn
    if isinstance(agent, ValueUncertainty):
        # u and g of the next state and action, then both for the loss of u
        net = Passes(agent, agent.da, agent.config.uncertainty_heads)
        rows += actor.forward + 3 * net.forward + net.learn
    return 2 * agent.config.batch * rows


def matrix_flops(
    threads: int, device: torch.device, size: int = 1024, repetitions: int = 10
) -> float:
    """Arithmetic operations per second of a product of square matrices, in the precision of
    training."""
    torch.set_num_threads(threads)
    a, b, out = (torch.ones(size, size, device=device) for _ in range(3))
    return (
        2 * size**3 / seconds_each(functools.partial(torch.mm, a, b, out=out), repetitions, device)
    )
