"""Compare the errors of a critic with its standard deviation."""

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
    """Hold measures of how well a critic's standard deviation matches its errors."""

    where: str
    deviation: str  # formula of the critic's standard deviation
    share: Estimate  # of returns within m_p ± 2 std
    ratio: float  # root mean square of error ÷ std; 1 is right
    rms_error: float
    rms_deviation: float
    # Spearman's, of |error| and std over states: 0 if the std does not indicate where errors are
    # large
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
    """Return how often m_p ± 2√v_p contains the return that follows.

    A single plain critic has no standard deviation, so the list is empty.

    In-distribution states come from episodes of π. Out-of-distribution episodes begin with random
    actions. The last random action is judged with the return that π obtains after it.
    """
    if measuring.uncertainty() is None:
        return []
    episodes, longest = len(measuring.judged), int(measuring.judged.sum(1).max())
    say(f"playing {episodes} episodes that begin with random actions …")
    wandering = after_random_steps(agent, state, task, episodes, seed, longest)
    found = [
        calibration("states of the policy", formula_of_std(agent), measuring, delta),
        calibration("after random actions", formula_of_std(agent), wandering, delta),
    ]
    return [one for one in found if one is not None]


def calibration(where: str, name: str, errors: ValueErrors, delta: float) -> Calibration | None:
    """Return the calibration on the judged steps, with an interval over episodes.

    The result is None if the critic has no standard deviation.
    """
    bias, u = errors.bias(), errors.uncertainty()
    if bias is None or u is None:
        return None
    share = coverage(errors, WIDTH * errors.deviation, delta)
    return Calibration(where, name, share, u.ratio, bias.rms, u.deviation, u.rank, bias.steps)


def formula_of_std(agent: Agent) -> str:
    """Return the formula of the standard deviation of an agent's critic."""
    source = std_source(agent)
    if source != "posterior":
        return "|u − g|" if source == "uncertainty" else "Std_k[Q_k]"
    return "√v_p" if agent.takes_minimum else "√v"


def after_random_steps(
    agent: Agent, state: State, task: Task, episodes: int, seed: int, longest: int
) -> ValueErrors:
    """Return the errors in episodes that begin with up to `longest` random steps; the last random
    step is judged."""
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
