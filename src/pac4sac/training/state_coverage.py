"""State coverage: the spread of the states in a run's replay buffer.

docs/metrics.md defines the numbers.

States are not rescaled, because a scale computed from the states of a run would cancel their
spread.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents.tape import Stream, Tape
from pac4sac.training.learner import Learner

# number of states; fixed, because distances to the nearest state shrink with this number
SAMPLE = 1000
GRAIN = 0.01  # std of an observation below which it counts as constant


class StateCoverage(NamedTuple):
    """Hold the coverage of one run."""

    nearest: float  # mean distance of a state to the nearest other one
    log_volume: float
    states: int  # number of states in the sample


def measure_coverage(learner: Learner) -> list[StateCoverage]:
    """Measure the coverage of every run from a sample of its visited states.

    Returns:
        One measurement per run; an empty list with fewer than two states.
    """
    replay = learner.buffers["replay"]
    filled = min(learner.step, replay.shape[1])
    if filled < 2:
        return []
    count = min(SAMPLE, filled)
    # A separate tape by seed and step, so that training is not affected and a resumed run draws the
    # same numbers.
    tape = Tape(
        learner.act_tape.seeds,
        {"coverage": Stream((count,), uniform=True)},
        learner.device,
        length=1,
    )
    tape.seek(learner.step)
    index = one_of_each_part(filled, tape.blocks["coverage"].squeeze(1))  # [R, count]
    states = replay.gather(1, index.unsqueeze(-1).expand(-1, -1, learner.agent.ds))
    # dimensions that are constant in all runs add nothing, but can be 90% of all dimensions
    states = states[..., (states.amin(1) != states.amax(1)).any(0)]
    measured = zip(nearest_distance(states).tolist(), log_volume(states).tolist(), strict=True)
    return [StateCoverage(nearest, volume, count) for nearest, volume in measured]


def one_of_each_part(length: int, uniforms: Tensor) -> Tensor:
    """Draw one index from each of n equal parts of 0, …, length − 1, given uniforms [R, n]."""
    count = uniforms.shape[1]
    ends = torch.arange(count + 1, device=uniforms.device) * length // count
    start, size = ends[:-1], ends.diff()
    return start + (uniforms * size).long().minimum(size - 1)


def nearest_distance(states: Tensor) -> Tensor:
    """Return the mean distance to the nearest other state, [R] from states [R, n, ds].

    It is computed from differences, because rounding in matrix products would hide small distances.
    """
    distance = torch.cdist(states, states, compute_mode="donot_use_mm_for_euclid_dist")
    distance.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    return distance.amin(-1).mean(-1)


def log_volume(states: Tensor) -> NDArray[np.float64]:
    """Return ½ ln det(I + Σ/grain²), [R] from states [R, n, ds].

    It is the sum of ln √(1 + variance/grain²) over the principal axes. A constant direction adds 0.
    """
    centred = states.double() - states.double().mean(1, keepdim=True)
    covariance = (centred.mT @ centred / (states.shape[1] - 1)).cpu().numpy()
    return np.asarray(0.5 * np.linalg.slogdet(np.eye(states.shape[-1]) + covariance / GRAIN**2)[1])
