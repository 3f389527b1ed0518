"""Errors of a critic on transitions of its replay buffer and of fresh episodes."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import scipy  # loads its parts when they are first used
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents import replay
from pac4sac.agents.base import Agent, Hyper, State
from pac4sac.agents.tape import Stream
from pac4sac.base.errors import UserError
from pac4sac.certificates.returns import RewardRange
from pac4sac.runs.statistics import Estimate, mean_interval
from pac4sac.training.value_error import Floats, ValueErrors, bounded_error

ErrorQuantity = Literal[
    "squared Bellman error",
    "value error",
    "absolute value error",
    "bounded Bellman error",
    "bounded value error",
]
QUANTITIES: tuple[ErrorQuantity, ...] = get_args(ErrorQuantity)
CHUNK = 2000  # transitions per batch through the networks
NEXT_ACTIONS = 4  # samples of a′ ~ π in the target's expectation


@dataclass(frozen=True)
class BellmanErrors:
    """Hold a critic's estimates and its own targets, arrays [N] over transitions of one run."""

    m: Floats  # m_p(s, a)
    v: Floats  # v_p(s, a); 0 for a critic without a variance
    y: Floats  # r + γ (1 − terminated) E_{a′~π}[m_p(s′, a′) − α log π(a′|s′)]
    next_variance: Floats  # v_p(s′, a′), 0 after the end
    episode: NDArray[
        np.int64
    ]  # index of the episode; all 0 for a replay buffer, which does not store it

    @property
    def squared(self) -> Floats:
        """Return E_{Q~μ} of the squared Bellman error, the paper's loss."""
        return (self.y - self.m) ** 2 + self.v

    def bounded(self, epsilon: float) -> Floats:
        """Return E_{Q~μ} of 1 − exp(−(Q − y)²/ε²), within [0, 1]."""
        return bounded_error(self.m, self.v, self.y, epsilon)

    def episode_means(self, values: Floats) -> Floats:
        """Return the mean of each episode; episodes are the independent samples of fresh data."""
        _, index = np.unique(self.episode, return_inverse=True)
        return np.asarray(np.bincount(index, values) / np.bincount(index))

    def one_per_episode(self, values: Floats, seed: int) -> Floats:
        """Return the value at a random step of each episode; these values are independent samples
        too."""
        order = np.random.default_rng(seed).permutation(len(values))
        _, first = np.unique(self.episode[order], return_index=True)
        return np.asarray(values[order[first]])


@torch.no_grad()
def bellman_errors(agent: Agent, state: State, batch: replay.Batch, seed: int) -> BellmanErrors:
    """Return the errors on a batch [1, N, ·] of any length.

    The target uses the critic itself, as the paper's inequality between Bellman error and value
    error requires, not the target network.
    """
    generator = torch.Generator().manual_seed(seed)
    gamma = Hyper(state).gamma[:, None]
    chunks: list[tuple[Tensor, ...]] = []
    for first in range(0, batch.r.shape[1], CHUNK):
        s, a, r, s2, terminated = (x[:, first : first + CHUNK] for x in batch)
        next_value, next_variance = _next_values(agent, state, s2, generator)
        y = r + gamma * (1 - terminated) * next_value
        chunks.append((*_estimate(agent, state, s, a), y, next_variance * (1 - terminated)))
    m, v, y_all, next_variances = (
        torch.cat(x, 1)[0].double().numpy() for x in zip(*chunks, strict=True)
    )
    return BellmanErrors(m, v, y_all, next_variances, np.zeros(len(m), np.int64))


def _next_values(
    agent: Agent, state: State, s2: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return soft value and variance of the critic in next states, averaged over actions of the
    policy."""
    alpha = agent.entropy_weight(state)[:, None]
    streams = agent.policy_streams(s2.shape[1])
    values, variances = [], []
    for _ in range(NEXT_ACTIONS if streams else 1):
        draw = {name: _random_numbers(stream, generator) for name, stream in streams.items()}
        a2, log_pi = agent.sample_policy(state, s2, draw)
        m, v = _estimate(agent, state, s2, a2)
        values.append(m - alpha * log_pi)
        variances.append(v)
    return torch.stack(values).mean(0), torch.stack(variances).mean(0)


def _random_numbers(stream: Stream, generator: torch.Generator) -> Tensor:
    shape = (1, *stream.shape)
    if stream.uniform:
        return torch.rand(shape, generator=generator)
    return torch.randn(shape, generator=generator)


def _estimate(agent: Agent, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance of the critic; the variance is 0 if it has none."""
    m, v = agent.value_estimate(state, s, a)
    return m, torch.zeros_like(m) if v is None else v


# --- measured errors, with which bounds are compared


@dataclass(frozen=True)
class Scales:
    """Hold the scales of errors, which are fixed before fresh episodes are played.

    The bounded losses are 1 − exp(−error²/ε²). For Bellman errors, ε is the width of the range of
    rewards; for value errors, a tenth of the width of the range of values.
    """

    rewards: RewardRange
    gamma: float
    delta: float

    @property
    def epsilon(self) -> float:
        return self.rewards.width

    @property
    def epsilon_value(self) -> float:
        return self.largest["absolute value error"] / 10

    @property
    def largest(self) -> dict[ErrorQuantity, float]:
        """Return the largest possible value of each quantity."""
        low, high = self.rewards.of_values(self.gamma)
        width = high - low
        return {
            "squared Bellman error": width**2,
            "value error": width**2,
            "absolute value error": width,
            "bounded Bellman error": 1.0,
            "bounded value error": 1.0,
        }


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Hold the means over fresh episodes with their intervals, with which bounds are compared."""

    bellman: Estimate  # squared Bellman error
    value: Estimate  # lower end without, upper end with the variance of a single return
    absolute: Estimate  # E |m_p − G|
    bounded_bellman: Estimate
    bounded_value: Estimate
    # quantities with clipped errors
    beyond: tuple[ErrorQuantity, ...]

    @property
    def by_quantity(self) -> dict[ErrorQuantity, Estimate]:
        return {
            "squared Bellman error": self.bellman,
            "value error": self.value,
            "absolute value error": self.absolute,
            "bounded Bellman error": self.bounded_bellman,
            "bounded value error": self.bounded_value,
        }


@dataclass(frozen=True)
class CriticErrors:
    """Hold Bellman errors and value errors of a critic in the same fresh episodes."""

    bellman: BellmanErrors
    values: ValueErrors
    scales: Scales

    def episode_means(self) -> dict[ErrorQuantity, Floats]:
        """Return the mean of each quantity in each episode; squared and absolute errors are clipped
        to the largest possible value."""
        bellman, values, largest = self.bellman, self.values, self.scales.largest
        square, width = largest["value error"], largest["absolute value error"]
        return {
            "squared Bellman error": bellman.episode_means(np.minimum(bellman.squared, square)),
            "value error": values.episode_means(values.limited(square).squared),
            "absolute value error": values.episode_means(np.minimum(np.abs(values.error), width)),
            "bounded Bellman error": bellman.episode_means(bellman.bounded(self.scales.epsilon)),
            "bounded value error": values.episode_means(values.bounded(self.scales.epsilon_value)),
        }

    def beyond(self) -> tuple[ErrorQuantity, ...]:
        """Return the quantities with errors above the largest possible value."""
        judged, largest = self.values.judged, self.scales.largest
        sizes: dict[ErrorQuantity, Floats] = {  # bounded errors cannot exceed it
            "squared Bellman error": self.bellman.squared,
            "value error": self.values.squared[judged],
            "absolute value error": np.abs(self.values.error[judged]),
        }
        return tuple(
            quantity
            for quantity, size in sizes.items()
            if size.max(initial=0.0) > largest[quantity]
        )

    def measured(self) -> Measured:
        """Return the mean of each quantity with its interval."""
        means, confidence = self.episode_means(), 1 - self.scales.delta
        limited = self.values.limited(self.scales.largest["value error"])
        return Measured(
            bellman=mean_interval(means["squared Bellman error"], confidence),
            value=value_error(limited, self.scales.delta),
            absolute=mean_interval(means["absolute value error"], confidence),
            bounded_bellman=mean_interval(means["bounded Bellman error"], confidence),
            bounded_value=mean_interval(means["bounded value error"], confidence),
            beyond=self.beyond(),
        )


def value_error(values: ValueErrors, delta: float) -> Estimate:
    """Estimate E‖Q_π − Q‖². A single return G per step only gives an interval.

    Upper end: the mean of (Q − G)², which includes the variance of G. Lower end: the squared mean
    error at each time of the episode, a lower bound by Jensen's inequality. Its interval uses the
    jackknife over episodes.
    """
    above = mean_interval(values.episode_means(values.squared), 1 - delta)
    has_judged = values.judged.any(1)
    judged, n = values.judged[has_judged], int(has_judged.sum())
    if n < 3:
        return Estimate(above.value, None, above.high)
    weight = np.where(judged, 1 / judged.sum(1, keepdims=True), 0.0)
    error = np.where(judged, values.error[has_judged], 0.0)
    without = [
        _squared_mean_error(np.delete(weight, k, axis=0), np.delete(error, k, axis=0))
        for k in range(n)
    ]
    deviation = math.sqrt((n - 1) / n * ((np.array(without) - np.mean(without)) ** 2).sum())
    spread = float(values.episode_means(values.v).mean())
    below = _squared_mean_error(weight, error) + spread
    low = below - float(scipy.special.stdtrit(n - 1, 1 - delta / 2)) * deviation
    return Estimate(above.value, max(low, spread, 0.0), above.high)


def _squared_mean_error(weight: Floats, error: Floats) -> float:
    """Return the squared mean error at each time, averaged over times, for arrays [E, T].

    It averages products of different episodes, so it is unbiased.
    """
    pairs = weight.sum(0) ** 2 - (weight**2).sum(0)
    product = (weight * error).sum(0) ** 2 - ((weight * error) ** 2).sum(0)
    has_pairs = pairs > 1e-12
    at_time = np.divide(product, pairs, out=np.zeros_like(pairs), where=has_pairs)
    importance = np.where(has_pairs, weight.sum(0), 0.0)
    total = importance.sum()
    return float((at_time * importance).sum() / total) if total else 0.0


def fresh_errors(
    agent: Agent, state: State, values: ValueErrors, scales: Scales, seed: int
) -> CriticErrors:
    """Return the errors of both kinds in fresh episodes.

    Bellman errors cover the judged steps, except steps before a time limit, because their next
    state is not known.
    """
    last = np.arange(values.judged.shape[1]) == values.length[:, None] - 1
    at = episode, step = np.nonzero(values.judged & (~last | values.terminated[:, None]))
    if not len(step):
        raise UserError(
            "No step of the fresh episodes can be judged, because the episodes are too short for "
            "the agent's γ. Use an agent with a smaller γ, or a task with longer episodes."
        )
    following = values.observation[episode, np.minimum(step + 1, last.shape[1] - 1)]

    def tensor(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).float()[None]

    batch = replay.Batch(
        s=tensor(values.observation[at]),
        a=tensor(values.action[at]),
        r=tensor(values.reward[at]),
        s2=tensor(following),
        terminated=tensor(last[at]),
    )
    errors = replace(bellman_errors(agent, state, batch, seed), episode=episode)
    return CriticErrors(errors, values, scales)
