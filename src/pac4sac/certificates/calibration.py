"""Does a critic know what it does not know: do m_p ± 2√v_p cover the return that follows?

In distribution, the states are those of π's own episodes. Out of it, an episode begins with random actions; judged is
the last of these, and what π makes of it afterwards.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, State
from pac4sac.certificates.policy import betting_lower, betting_upper
from pac4sac.runs.statistics import Estimate
from pac4sac.tasks import Task
from pac4sac.training.value_error import ValueErrors, measure_value_errors

Floats = NDArray[np.float64]
WIDTH = 2.0  # deviations to each side
NOMINAL = 0.954  # covered by them, were the errors Gaussian with that deviation
LONGEST_WALK = 200  # random steps
CHUNK = 4096


@dataclass(frozen=True)
class Coverage:
    where: str
    deviation: str  # what the critic offers as its uncertainty
    share: Estimate  # of returns within m_p ± 2 deviations
    ratio: float  # root mean square of error by deviation: 1 where the critic knows its error
    rms_error: float
    rms_deviation: float
    steps: int


def coverage(
    where: str, name: str, error: Floats, deviation: Floats, judged: NDArray[np.bool_], delta: float
) -> Coverage | None:
    """Of arrays [E, T]; the interval is over episodes. None where nothing is judged."""
    some = judged.any(1)
    if not some.any():
        return None
    covered = judged & (np.abs(error) <= WIDTH * deviation)
    shares = covered.sum(1)[some] / judged.sum(1)[some]
    e, d = error[judged], np.maximum(deviation[judged], 1e-12)
    return Coverage(
        where,
        name,
        Estimate(float(shares.mean()), betting_lower(shares, delta / 2), betting_upper(shares, delta / 2)),
        ratio=float(np.sqrt(np.mean((e / d) ** 2))),
        rms_error=float(np.sqrt(np.mean(e**2))),
        rms_deviation=float(np.sqrt(np.mean(d**2))),
        steps=len(e),
    )


@torch.no_grad()
def deviations(agent: Agent, state: State, errors: ValueErrors) -> tuple[str, Floats] | None:
    """√v_p, or how far several critics lie apart; None for a single plain critic, which offers nothing."""
    if errors.v is not None:
        return "√v_p", np.sqrt(errors.v[0])
    if agent.critic.members < 2:
        return None
    shape = errors.m.shape[1:]
    s, a = (torch.from_numpy(x[0]).flatten(0, 1)[None] for x in (errors.observation, errors.action))
    q = agent.params(state, "critic")
    parts = [
        agent.critic(q, s[:, k : k + CHUNK], a[:, k : k + CHUNK])[0].std(1, unbiased=False)
        for k in range(0, s.shape[1], CHUNK)
    ]
    return "the critics' deviation", torch.cat(parts, 1)[0].double().numpy().reshape(shape)


def measure_after_random_steps(
    agent: Agent, state: State, task: Task, episodes: int, seed: int, longest: int
) -> tuple[ValueErrors, NDArray[np.bool_]]:
    """Episodes that begin with up to `longest` random steps, and which step of each, [E, T], is to be judged."""
    generator = torch.Generator().manual_seed(seed)
    last = torch.randint(max(1, min(longest, LONGEST_WALK)), (1, episodes), generator=generator)
    wanderer = cast(Agent, _Wanderer(agent, last, generator))
    errors = measure_value_errors(wanderer, state, task, [seed], episodes, "after random steps")
    step = np.arange(errors.m.shape[2])
    return errors, errors.judged[0] & (step == last[0].numpy()[:, None])


class _Wanderer:
    """An agent whose first actions are random."""

    def __init__(self, agent: Agent, last: Tensor, generator: torch.Generator) -> None:
        self._agent, self._last, self._generator, self._time = agent, last, generator, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def sample_policy(self, state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        a, log_pi = self._agent.sample_policy(state, s, draw)
        random = 2 * torch.rand(a.shape, generator=self._generator) - 1
        wandering = self._time <= self._last
        self._time += 1
        return torch.where(wandering.unsqueeze(-1), random, a), torch.where(wandering, 0.0, log_pi)
