"""Compare the errors of a critic with the standard deviation that it offers."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, State
from pac4sac.certificates.fresh_episodes import Progress
from pac4sac.certificates.intervals import coverage
from pac4sac.runs.statistics import Estimate
from pac4sac.tasks import Task
from pac4sac.training.critic_value import std_source
from pac4sac.training.value_error import WIDTH, ValueErrors, measure_value_errors

LONGEST_WALK = 200  # random steps


@dataclass(frozen=True)
class Calibration:
    """How well the standard deviation that a critic offers matches its errors."""

    where: str
    deviation: str  # what the critic offers as its uncertainty
    share: Estimate  # of returns within m_p ± 2 deviations
    ratio: float  # root mean square of error by deviation: 1 if the critic knows its error
    rms_error: float
    rms_deviation: float
    # Spearman's, of |error| and deviation over states: 0 if the deviation says nothing of errors
    rank_correlation: float
    steps: int


def calibrate(
    agent: Agent,
    state: State,
    task: Task,
    measuring: ValueErrors,
    seed: int,
    delta: float,
    say: Progress,
) -> list[Calibration]:
    """Return how often m_p ± 2√v_p cover the return that follows.

    A single plain critic offers no uncertainty, so there is nothing to return.

    In distribution, the states are those of π's own episodes. Out of distribution, an episode
    begins with random actions, and the last of these is judged by the return that π gets after it.
    """
    if measuring.uncertainty() is None:
        return []
    episodes, longest = len(measuring.judged), int(measuring.judged.sum(1).max())
    say(f"playing {episodes} episodes that begin with random actions …")
    wandering = after_random_steps(agent, state, task, episodes, seed, longest)
    found = [
        calibration("states of the policy", offered_by(agent), measuring, delta),
        calibration("after random actions", offered_by(agent), wandering, delta),
    ]
    return [one for one in found if one is not None]


def calibration(where: str, name: str, errors: ValueErrors, delta: float) -> Calibration | None:
    """Return the calibration on the judged steps, with an interval over episodes.

    It is None if the critic offers no uncertainty.
    """
    bias, u = errors.bias(), errors.uncertainty()
    if bias is None or u is None:
        return None
    share = coverage(errors, WIDTH * errors.deviation, delta)
    return Calibration(where, name, share, u.ratio, bias.rms, u.deviation, u.rank, bias.steps)


def offered_by(agent: Agent) -> str:
    """Return the formula of the standard deviation that the critic of an agent offers."""
    if std_source(agent) != "posterior":
        return "Std_k[Q_k]"
    return "√v_p" if agent.takes_minimum else "√v"


def after_random_steps(
    agent: Agent, state: State, task: Task, episodes: int, seed: int, longest: int
) -> ValueErrors:
    """Return the errors in episodes that begin with up to `longest` random steps, of which the last
    is judged."""
    generator = torch.Generator().manual_seed(seed)
    last = torch.randint(max(1, min(longest, LONGEST_WALK)), (1, episodes), generator=generator)
    time = itertools.count()

    def sample(s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        a, log_pi = agent.sample_policy(state, s, draw)
        random = 2 * torch.rand(a.shape, generator=generator) - 1
        wandering = last >= next(time)
        return torch.where(wandering.unsqueeze(-1), random, a), torch.where(wandering, 0.0, log_pi)

    (errors,) = measure_value_errors(
        agent, state, task, [seed], episodes, "after random steps", sample=sample
    )
    step = np.arange(errors.m.shape[1])
    return replace(errors, judged=errors.judged & (step == last[0].numpy()[:, None]))
