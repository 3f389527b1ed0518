"""Errors of a critic's predictions on fresh episodes of the policy that it evaluates.

The prediction is m_p(s_t, a_t), with v_p if the critic has a variance. The outcome is the
discounted soft return

    G_t = r_t + Σ_{k≥1} γ^k (r_{t+k} − α log π(a_{t+k}|s_{t+k}))

of π itself (one action, no shooting), with the current α. A time limit does not end the return. The
rest of the return is unknown and is replaced with the critic's own soft value. A step is judged
only if this rest has a small weight γ^(T−t), so at least 1 − TAIL of a constant bias is measured.
All values are in units of the environment's rewards, for any scale of the critic.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import scipy  # loads its parts when they are first used: scipy.stats takes a second
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents import bounds
from pac4sac.agents.base import Agent, Draw, Hyper, State
from pac4sac.agents.tape import Tape
from pac4sac.base.stopping import STEP_SECONDS, StopRequest
from pac4sac.runs.statistics import CONFIDENCE, Estimate, bias_verdict, mean_interval
from pac4sac.tasks import Task
from pac4sac.tasks.registry import time_limit
from pac4sac.training.critic_value import mean_and_std
from pac4sac.training.evaluation import Episodes, play, read_draw

Floats = NDArray[np.float64]
# (observations [R, E, ds], random numbers) -> action [R, E, da] and its log-density [R, E]
Sample = Callable[[Tensor, Draw], tuple[Tensor, Tensor]]
TAIL = 0.01  # largest weight of the unknown rest of the return
CHUNK = 64  # steps per batch through the critic
ROUNDING = 1e-5  # relative error of float32; a smaller bias counts as 0
LEAST_DEVIATION = 1e-12
WIDTH = 2.0  # half-width in standard deviations of the interval that should cover a return


@dataclass(frozen=True)
class Uncertainty:
    """Compare a critic's standard deviation with its errors m_p − G in the judged steps."""

    deviation: float  # root mean square of the standard deviation
    ratio: float  # root mean square of error ÷ standard deviation; 1 is right
    covered: float  # share of returns within two standard deviations, averaged over episodes
    rank: float  # Spearman's correlation of |error| and standard deviation


@dataclass(frozen=True)
class Bias:
    """Hold the bias of one run's critic: the mean of m_p − G over judged steps, then over episodes.

    Episodes are the independent samples of the interval.
    """

    bias: float
    low: float | None  # None with fewer than two episodes
    high: float | None
    rms: float  # root mean square of m_p − G, including the noise of a single return
    mean_return: float  # mean of G, for scale
    episodes: int
    steps: int  # judged steps of all episodes
    tail_weight: float  # largest tail weight of these steps

    @property
    def estimate(self) -> Estimate:
        """Return the bias with its confidence interval."""
        return Estimate(self.bias, self.low, self.high)

    @property
    def relative(self) -> float:
        """Return the bias as a fraction of the mean return."""
        return self.bias / abs(self.mean_return) if self.mean_return else math.nan

    @property
    def verdict(self) -> str:
        """Return the verdict: overestimates, underestimates, or undecided."""
        if abs(self.bias) <= ROUNDING * (1 + abs(self.mean_return)):
            return "undecided"
        return bias_verdict(self.estimate)


@dataclass(frozen=True)
class ValueErrors:
    """Hold the predictions of one run's critic in fresh episodes, and the returns.

    Arrays are [E, T] (episodes, steps) unless stated otherwise. After the end of an episode, and in
    an episode whose simulator failed, `judged` is False and the other values are undefined.
    """

    alpha: float  # 0 for returns without entropy
    gamma: float
    length: NDArray[np.int64]  # [E]
    terminated: NDArray[np.bool_]  # [E]; False: cut by the time limit
    observation: NDArray[np.float32]  # [E, T, ds]
    action: NDArray[np.float32]  # [E, T, da]
    reward: Floats
    log_pi: Floats
    m: Floats  # m_p(s_t, a_t)
    v: Floats  # v_p(s_t, a_t); 0 for a critic without a variance
    deviation: Floats  # the critic's standard deviation; NaN for a critic without one
    g: Floats  # G_t
    tail_weight: Floats  # weight of the critic's own value in G_t
    judged: NDArray[np.bool_]

    @property
    def error(self) -> Floats:
        """Return m_p − G; NaN in steps that are not judged."""
        return np.where(self.judged, self.m - self.g, np.nan)

    @property
    def squared(self) -> Floats:
        """Return the mean over Q ~ μ of (Q − G)²."""
        return self.error**2 + self.v

    def bounded(self, epsilon: float) -> Floats:
        """Return the mean over Q ~ μ of 1 − exp(−(Q − G)²/ε²), within [0, 1]."""
        return bounded_error(self.m, self.v, np.nan_to_num(self.g), epsilon)

    def limited(self, largest: float) -> "ValueErrors":
        """Return the squared errors, limited to `largest`."""
        v = np.minimum(self.v, largest)
        reach = np.sqrt(largest - v)
        return replace(self, m=self.g + np.clip(self.m - self.g, -reach, reach), v=v)

    def part(self, episodes: slice = slice(None), steps: Any = slice(None)) -> "ValueErrors":
        """Return the errors of some episodes and steps."""
        arrays = {name: x for name, x in vars(self).items() if isinstance(x, np.ndarray)}
        part: Any = {
            name: x[episodes] if x.ndim == 1 else x[episodes][:, steps]
            for name, x in arrays.items()
        }
        return replace(self, **part)

    def rewards(self) -> Floats:
        """Return the rewards of all steps, judged or not."""
        return np.asarray(self.reward[np.arange(self.reward.shape[1]) < self.length[:, None]])

    def within(self, limit: int | None) -> NDArray[np.bool_]:
        """Return a mask of the steps [E, T] within the task's time limit; episodes may be longer.

        An episode whose simulator failed has no such step.
        """
        length = np.minimum(self.length, limit or math.inf)[:, None]
        return np.asarray(
            (np.arange(self.reward.shape[1]) < length) & self.judged.any(1, keepdims=True)
        )

    def returns(self, limit: int | None) -> Floats:
        """Return the returns of the episodes up to the task's time limit."""
        within = self.within(limit)
        return np.asarray(np.where(within, self.reward, 0.0).sum(1)[within.any(1)])

    def episode_means(self, values: Floats) -> Floats:
        """Return the mean over judged steps of each episode with such steps."""
        some = self.judged.any(1)
        return np.asarray(
            np.where(self.judged, values, 0.0).sum(1)[some] / self.judged.sum(1)[some]
        )

    def bias(self, confidence: float = CONFIDENCE) -> Bias | None:
        """Return the bias, or None if no step can be judged."""
        if not self.judged.any():
            return None
        mean = mean_interval(self.episode_means(self.error), confidence)
        rms = float(np.sqrt(self.episode_means(self.error**2).mean()))
        return Bias(
            bias=mean.value,
            low=mean.low,
            high=mean.high,
            rms=rms,
            mean_return=float(self.episode_means(self.g).mean()),
            episodes=int(self.judged.any(1).sum()),
            steps=int(self.judged.sum()),
            tail_weight=float(self.tail_weight[self.judged].max()),
        )

    def uncertainty(self) -> Uncertainty | None:
        """Return the uncertainty, or None if the critic has none or no step can be judged."""
        e, d = self.error[self.judged], np.maximum(self.deviation[self.judged], LEAST_DEVIATION)
        if not len(e) or np.isnan(d).any():
            return None
        deviation, ratio = (float(np.sqrt(np.mean(x**2))) for x in (d, e / d))
        varied = len(e) > 2 and np.ptp(d) > 0 and np.ptp(np.abs(e)) > 0
        rank = float(scipy.stats.spearmanr(np.abs(e), d).statistic) if varied else math.nan
        covered = self.episode_means(
            (np.abs(self.error) <= WIDTH * self.deviation).astype(np.float64)
        )
        return Uncertainty(deviation, ratio, float(covered.mean()), rank)

    def row(self) -> dict[str, Any]:
        """Return the line of the log: bias and uncertainty; empty if no step can be judged."""
        bias, uncertainty = self.bias(), self.uncertainty()
        row = asdict(bias) if bias else {}
        return row | (asdict(uncertainty) if uncertainty else {})


@torch.no_grad()
def measure_value_errors(
    agent: Agent,
    state: State,
    task: Task,
    seeds: Sequence[int],
    episodes: int,
    occasion: str,
    *,
    shooting: bool = False,
    sample: Sample | None = None,
    workers: int = 0,
    only: Sequence[int] | None = None,
    stop: StopRequest | None = None,
    step_seconds: int = STEP_SECONDS,
) -> list[ValueErrors]:
    """Play episodes of runs in lockstep, and measure the errors of their critics.

    Episodes have the task's length. If more than half of the steps could then not be judged,
    episodes are played beyond the time limit until all steps within it can be judged.

    Args:
        agent: The agent of all runs.
        state: Its tensors.
        task: The task.
        seeds: Seed of each run.
        episodes: Number of episodes of each run.
        occasion: Name that selects the random numbers.
        shooting: Whether to use the shooting policy, whose returns have no entropy.
        sample: Function that acts instead of the policy.
        workers: Worker processes for the simulators.
        only: Indices of the runs that play; None for all.
        stop: Request that interrupts the measurement.
        step_seconds: Time limit of a simulator's step.
    """
    gamma, alpha = Hyper(state).gamma, agent.entropy_weight(state) * (not shooting)
    sample = sample or _sample_of(agent, state, shooting)
    streams = (
        agent.behaviour_streams(episodes, True) if shooting else agent.policy_streams(episodes)
    )
    played = Episodes(
        agent,
        state,
        _judgeable(task, float(gamma.max())),
        seeds,
        episodes,
        f"value of the {'shooting' if shooting else 'policy'}, {occasion}",
        workers=workers,
        only=only,
        stop=stop,
        step_seconds=step_seconds,
    )
    tape = played.tape(streams)
    record = _play(played, sample, tape)

    end_state = torch.from_numpy(record.last).to(tape.device).view(len(seeds), episodes, -1)
    end_action, end_log_pi = sample(end_state, read_draw(tape, len(record.actions)))
    end_value = agent.value_estimate(state, end_state, end_action)[0] - alpha[:, None] * end_log_pi
    unknown = np.where(record.terminated, 0.0, _host(end_value).ravel())

    reward = np.stack(record.rewards, -1)
    log_pi = _host(torch.stack(record.log_pi, -1)).reshape(reward.shape)
    each_gamma, each_alpha = (_host(x).repeat(episodes) for x in (gamma, alpha))
    tail_weight = record.tail_weight(each_gamma)
    m, v, deviation = _predictions(agent, state, record)
    arrays: dict[str, Any] = {  # all of them [R·E, …]
        "length": record.length,
        "terminated": record.terminated,
        "observation": torch.stack(record.observations, 2).flatten(0, 1).cpu().numpy(),
        "action": torch.stack(record.actions, 2).flatten(0, 1).cpu().numpy(),
        "reward": reward,
        "log_pi": log_pi,
        "m": m,
        "v": v,
        "deviation": deviation,
        "g": soft_returns(reward, log_pi, record.length, unknown, each_gamma, each_alpha),
        "tail_weight": tail_weight,
        "judged": record.judged(tail_weight, time_limit(task)),
    }
    errors = []
    for run in range(len(seeds)):
        own = slice(run * episodes, (run + 1) * episodes)
        of_run = {name: array[own] for name, array in arrays.items()}
        errors.append(ValueErrors(alpha=float(alpha[run]), gamma=float(gamma[run]), **of_run))
    return errors


def _sample_of(agent: Agent, state: State, shooting: bool) -> Sample:
    """Return a function that samples from the shooting policy or the stochastic policy, with
    log-densities."""

    def shoot(s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        return agent.behaviour(state, s, draw), s.new_zeros(s.shape[:2])

    return shoot if shooting else partial(agent.sample_policy, state)


def _judgeable(task: Task, gamma: float) -> Task:
    """Return the task with episodes that are long enough to judge at least half of the steps."""
    limit = time_limit(task)
    unjudged = math.ceil(math.log(TAIL) / math.log(gamma)) if gamma else 1
    if limit is not None and limit < 2 * unjudged:
        limit += unjudged
    return replace(task, horizon=limit)


@dataclass
class _Record:
    """Record observations and actions of N = R·E parallel episodes."""

    length: NDArray[np.int64]  # [N]
    ended: NDArray[np.bool_]  # [N], False if the simulator failed
    terminated: NDArray[np.bool_]  # [N]
    last: NDArray[np.float32]  # [N, ds], the observation after the last step
    # lists of steps
    observations: list[Tensor] = field(default_factory=list)  # [R, E, ds]
    actions: list[Tensor] = field(default_factory=list)  # [R, E, da]
    log_pi: list[Tensor] = field(default_factory=list)  # [R, E]
    rewards: list[NDArray[Any]] = field(default_factory=list)  # [N]

    def tail_weight(self, gamma: Floats) -> Floats:
        """Return γ^(T−t) [N, T], the weight of the value after the last step; 0 if terminated."""
        step = np.arange(len(self.rewards))[:, None]
        weight = np.where(self.terminated, 0.0, gamma ** (self.length - step).clip(0))
        return np.asarray(weight.T)

    def judged(self, tail_weight: Floats, limit: int | None) -> NDArray[np.bool_]:
        """Return a mask of the steps [N, T] that can be judged, up to the task's time limit."""
        step = np.arange(len(self.rewards))
        judged = self.ended[:, None] & (step < self.length[:, None])
        judged &= tail_weight <= TAIL * (1 + 1e-9)
        return np.asarray(judged if limit is None else judged & (step < limit))


def _play(played: Episodes, sample: Sample, tape: Tape) -> _Record:
    """Play episodes with the actions of `sample`, and record them."""
    n = len(played.seeds) * played.count
    record = _Record(
        length=np.zeros(n, np.int64),
        ended=np.zeros(n, np.bool_),
        terminated=np.zeros(n, np.bool_),
        last=np.zeros((n, played.agent.ds), np.float32),
    )

    def act(s: Tensor, draw: Draw) -> Tensor:
        a, log_pi = sample(s, draw)
        record.log_pi.append(log_pi)
        return a

    for s, a, seen, going in play(played, act, tape):
        record.observations.append(s)
        record.actions.append(a)
        record.rewards.append(seen.reward.copy())
        record.length += going
        ending = going & (seen.terminated | seen.truncated)
        record.last[ending] = seen.final_observation[ending]
        record.ended |= ending
        record.terminated |= ending & seen.terminated
    return record


def soft_returns(
    reward: Floats,
    log_pi: Floats,
    length: NDArray[np.int64],
    end_value: Floats,
    gamma: Floats,
    alpha: Floats,
) -> Floats:
    """Return G_t [N, T] for episodes of different lengths.

    Args:
        reward: Rewards [N, T].
        log_pi: Log-densities of the actions [N, T].
        length: Number of steps [N].
        end_value: Soft value of the state after the last step [N].
        gamma: Discount factors [N].
        alpha: Entropy weights [N].
    """
    g = np.full(reward.shape, np.nan)
    following = end_value
    for t in reversed(range(reward.shape[1])):
        under_way = t < length
        g[:, t] = np.where(under_way, reward[:, t] + gamma * following, np.nan)
        following = np.where(under_way, g[:, t] - alpha * log_pi[:, t], following)
    return g


def bounded_error(m: Floats, v: Floats, y: Floats, epsilon: float) -> Floats:
    """Return the mean over Q ~ N(m, v) of 1 − exp(−(Q − y)²/ε²)."""
    m_p, v_p, target = (torch.from_numpy(x) for x in (m, v, y))
    return np.asarray(bounds.bounded_loss(m_p, v_p, target, epsilon).numpy())


def _predictions(agent: Agent, state: State, record: _Record) -> tuple[Floats, Floats, Floats]:
    """Return m_p, v_p and the critic's standard deviation, each [R·E, T]."""
    means, variances, deviations = list[Tensor](), list[Tensor](), list[Tensor]()
    for first in range(0, len(record.actions), CHUNK):
        s = torch.stack(record.observations[first : first + CHUNK], 2)  # [R, E, t, ds]
        a = torch.stack(record.actions[first : first + CHUNK], 2)
        pairs = s.flatten(1, 2), a.flatten(1, 2)
        m, v, deviation = mean_and_std(agent, state, *pairs)
        v = torch.zeros_like(m) if v is None else v
        for values, x in ((means, m), (variances, v), (deviations, deviation)):
            values.append(x.view(a.shape[:3]).flatten(0, 1))
    return _joined(means), _joined(variances), _joined(deviations)


def _joined(chunks: Sequence[Tensor]) -> Floats:
    return _host(torch.cat(list(chunks), -1))


def _host(x: Tensor) -> Floats:
    return np.asarray(x.double().cpu().numpy())
