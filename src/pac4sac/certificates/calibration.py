"""Does a critic know what it does not know: do m_p ± 2√v_p cover the return that follows?

In distribution, the states are those of π's own episodes. Out of it, an episode begins with random actions; judged is
the last of these, and what π makes of it afterwards.
"""

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, State
from pac4sac.certificates.returns import betting_lower, betting_upper
from pac4sac.runs.statistics import Estimate
from pac4sac.tasks import Task
from pac4sac.training.value_error import Floats, ValueErrors, measure_value_errors

WIDTH = 2.0  # deviations to each side
NOMINAL = 0.954  # covered by them, were the errors Gaussian with that deviation
LONGEST_WALK = 200  # random steps
CHUNK = 4096


@dataclass(frozen=True)
class Calibration:
    where: str
    deviation: str  # what the critic offers as its uncertainty
    share: Estimate  # of returns within m_p ± 2 deviations
    ratio: float  # root mean square of error by deviation: 1 where the critic knows its error
    rms_error: float
    rms_deviation: float
    steps: int


def calibrate(
    agent: Agent, state: State, task: Task, measuring: ValueErrors, seed: int, delta: float, say: Callable[[str], None]
) -> list[Calibration]:
    """Empty for a single plain critic, which offers no uncertainty."""
    if not agent.critic.gaussian and agent.critic.members < 2:
        return []
    episodes, longest = len(measuring.judged), int(measuring.judged.sum(1).max())
    say(f"{episodes} episodes that begin with random actions …")
    strayed = measure_after_random_steps(agent, state, task, episodes, seed, longest)
    places = {"π's own states": measuring, "after random actions": strayed}
    return [
        calibration(where, *deviations(agent, state, errors), errors, delta)
        for where, errors in places.items()
        if errors.judged.any()
    ]


def calibration(where: str, name: str, deviation: Floats, errors: ValueErrors, delta: float) -> Calibration:
    """Of the judged steps, with deviations [E, T]; the interval is over episodes."""
    shares = errors.episode_means((np.abs(errors.error) <= WIDTH * deviation).astype(np.float64))
    share = Estimate(float(shares.mean()), betting_lower(shares, delta / 2), betting_upper(shares, delta / 2))
    e, d = errors.error[errors.judged], np.maximum(deviation[errors.judged], 1e-12)
    ratio, rms_error, rms_deviation = (float(np.sqrt(np.mean(x**2))) for x in (e / d, e, d))
    return Calibration(where, name, share, ratio, rms_error, rms_deviation, steps=len(e))


@torch.no_grad()
def deviations(agent: Agent, state: State, errors: ValueErrors) -> tuple[str, Floats]:
    """√v_p, or how far several critics lie apart."""
    if agent.critic.gaussian:
        return "√v_p", np.sqrt(errors.v)
    s, a = (torch.from_numpy(x).flatten(0, 1)[None] for x in (errors.observation, errors.action))
    chunks = zip(torch.split(s, CHUNK, 1), torch.split(a, CHUNK, 1), strict=True)
    q = agent.params(state, "critic")
    parts = [agent.critic(q, *chunk)[0].std(1, unbiased=False) for chunk in chunks]
    return "the critics' deviation", torch.cat(parts, 1)[0].double().numpy().reshape(errors.m.shape)


def measure_after_random_steps(
    agent: Agent, state: State, task: Task, episodes: int, seed: int, longest: int
) -> ValueErrors:
    """Episodes that begin with up to `longest` random steps, of which the last is judged."""
    generator = torch.Generator().manual_seed(seed)
    last = torch.randint(max(1, min(longest, LONGEST_WALK)), (1, episodes), generator=generator)
    time = itertools.count()

    def wander(state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        a, log_pi = agent.sample_policy(state, s, draw)
        random = 2 * torch.rand(a.shape, generator=generator) - 1
        wandering = last >= next(time)
        return torch.where(wandering.unsqueeze(-1), random, a), torch.where(wandering, 0.0, log_pi)

    wanderer = copy.copy(agent)
    vars(wanderer)["sample_policy"] = wander
    (errors,) = measure_value_errors(wanderer, state, task, [seed], episodes, "after random steps")
    step = np.arange(errors.m.shape[1])
    return replace(errors, judged=errors.judged & (step == last[0].numpy()[:, None]))
