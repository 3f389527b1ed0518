"""How far a critic's claims are from what then happens, on fresh episodes of the policy whose value
it is to know.

The claim is m_p(s_t, a_t), with v_p where the critic has a variance; the outcome is the discounted
soft return

    G_t = r_t + Σ_{k≥1} γ^k (r_{t+k} − α log π(a_{t+k}|s_{t+k}))

of π itself (one action, no shooting), with the α of the moment. A time limit is no end: what would
have come after it is unknown, so a step is judged only where that has a small weight γ^(T−t), and
the critic's own soft value stands in for it. A critic with the same bias everywhere thus shows at
least 1 − TAIL of it. All of it is in units of the environment's rewards, also where the critic
learned them on another scale."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from pac4sac.agents import bounds
from pac4sac.agents.base import Agent, Draw, Hyper, State
from pac4sac.agents.tape import Tape
from pac4sac.base.stopping import STEP_SECONDS, StopRequest
from pac4sac.runs.statistics import CONFIDENCE, Estimate, bias_verdict, mean_interval
from pac4sac.tasks import Task
from pac4sac.tasks.registry import time_limit
from pac4sac.training.evaluation import Episodes, play, read_draw

Floats = NDArray[np.float64]
# an action [R, E, da] and its log density [R, E], of observations [R, E, ds] and random numbers
Sample = Callable[[Tensor, Draw], tuple[Tensor, Tensor]]
TAIL = 0.01  # the largest weight of an unknown tail
CHUNK = 64  # steps whose states go through the critic at once
ROUNDING = 1e-5  # of float32, relative to the values: a smaller bias is none
LEAST_DEVIATION = 1e-12
WIDTH = 2.0  # deviations to each side of a claim, within which a return is covered


@dataclass(frozen=True)
class Uncertainty:
    """What a critic offers as its deviation, beside its errors m_p − G in the judged steps."""

    deviation: float  # root mean square
    ratio: float  # root mean square of error by deviation: 1 where the critic knows how far it errs
    covered: (
        float  # share of returns within two deviations, first of an episode, then over the episodes
    )
    # Spearman's correlation of |error| and deviation: 0 where it does not know where it errs
    rank: float


@dataclass(frozen=True)
class Bias:
    """Of one run: the mean of m_p − G, first over the judged steps of an episode, then over the
    episodes, which are the independent units behind the interval."""

    bias: float
    low: float | None  # None where there are not two episodes
    high: float | None
    rms: float  # of m_p − G, the noise of a single return included
    mean_return: float  # of G, for scale
    episodes: int
    steps: int  # judged, of all episodes
    tail_weight: float  # the largest in any of them

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.bias, self.low, self.high)

    @property
    def relative(self) -> float:
        """The bias as a share of the size of the values."""
        return self.bias / abs(self.mean_return) if self.mean_return else math.nan

    @property
    def verdict(self) -> str:
        if abs(self.bias) <= ROUNDING * (1 + abs(self.mean_return)):
            return "undecided"
        return bias_verdict(self.estimate)


@dataclass(frozen=True)
class ValueErrors:
    """The claims of one run's critic in fresh episodes, and what came of them. Arrays are [E, T]
    unless said otherwise: episodes, steps. After the end of an episode, and in all of one whose
    simulator failed, `judged` is False and the rest is without meaning."""

    alpha: float  # 0 where returns are not softened
    gamma: float
    length: NDArray[np.int64]  # [E]
    terminated: NDArray[np.bool_]  # [E]; otherwise the time was up
    observation: NDArray[np.float32]  # [E, T, ds]
    action: NDArray[np.float32]  # [E, T, da]
    reward: Floats
    log_pi: Floats
    m: Floats  # m_p(s_t, a_t)
    v: Floats  # v_p(s_t, a_t); 0 for a critic without a variance
    deviation: Floats  # what the critic offers as its uncertainty; NaN for one that offers none
    g: Floats  # G_t
    tail_weight: Floats  # of what the critic itself says in G_t
    judged: NDArray[np.bool_]

    @property
    def error(self) -> Floats:
        """m_p − G, NaN where it is not judged."""
        return np.where(self.judged, self.m - self.g, np.nan)

    @property
    def squared(self) -> Floats:
        """E over Q ~ μ of (Q − G)²."""
        return self.error**2 + self.v

    def bounded(self, epsilon: float) -> Floats:
        """E over Q ~ μ of 1 − exp(−(Q − G)²/ε²), within [0, 1]."""
        return bounded_error(self.m, self.v, np.nan_to_num(self.g), epsilon)

    def limited(self, largest: float) -> "ValueErrors":
        """The same errors, but squares beyond the largest count as that."""
        v = np.minimum(self.v, largest)
        reach = np.sqrt(largest - v)
        return replace(self, m=self.g + np.clip(self.m - self.g, -reach, reach), v=v)

    def part(self, episodes: slice = slice(None), steps: Any = slice(None)) -> "ValueErrors":
        arrays = {name: x for name, x in vars(self).items() if isinstance(x, np.ndarray)}
        part: Any = {
            name: x[episodes] if x.ndim == 1 else x[episodes][:, steps]
            for name, x in arrays.items()
        }
        return replace(self, **part)

    def rewards(self) -> Floats:
        """Of all steps, judged or not."""
        return np.asarray(self.reward[np.arange(self.reward.shape[1]) < self.length[:, None]])

    def within(self, limit: int | None) -> NDArray[np.bool_]:
        """Which steps are of the task's own length; episodes may have been played on beyond it.
        None of an episode whose simulator failed, which leaves nothing to judge."""
        length = np.minimum(self.length, limit or math.inf)[:, None]
        return np.asarray(
            (np.arange(self.reward.shape[1]) < length) & self.judged.any(1, keepdims=True)
        )

    def returns(self, limit: int | None) -> Floats:
        within = self.within(limit)
        return np.asarray(np.where(within, self.reward, 0.0).sum(1)[within.any(1)])

    def episode_means(self, values: Floats) -> Floats:
        """The mean over the judged steps of every episode that has some."""
        some = self.judged.any(1)
        return np.asarray(
            np.where(self.judged, values, 0.0).sum(1)[some] / self.judged.sum(1)[some]
        )

    def bias(self, confidence: float = CONFIDENCE) -> Bias | None:
        """None where no step could be judged."""
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
        """None where the critic offers none, or no step could be judged."""
        e, d = self.error[self.judged], np.maximum(self.deviation[self.judged], LEAST_DEVIATION)
        if not len(e) or np.isnan(d).any():
            return None
        deviation, ratio = (float(np.sqrt(np.mean(x**2))) for x in (d, e / d))
        varied = len(e) > 2 and np.ptp(d) > 0 and np.ptp(np.abs(e)) > 0
        rank = float(stats.spearmanr(np.abs(e), d).statistic) if varied else math.nan
        covered = self.episode_means(
            (np.abs(self.error) <= WIDTH * self.deviation).astype(np.float64)
        )
        return Uncertainty(deviation, ratio, float(covered.mean()), rank)

    def row(self) -> dict[str, Any]:
        """Of the log: the bias and, where some is offered, the uncertainty; empty where no step
        could be judged."""
        measured = (self.bias(), self.uncertainty())
        return {name: value for part in measured if part for name, value in asdict(part).items()}


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
    """Play episodes of every run, or of `only` some, side by side; each `occasion` has random
    numbers of its own.

    With `shooting` the actions are those that the agent takes in an evaluation, and returns are
    plain, without entropy; `sample` acts instead of the policy. Episodes are as long as the task's,
    unless that leaves over half of the steps without judgement: then they are played on beyond the
    task's limit until all of its steps can be judged."""
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

    reward, length = np.stack(record.rewards, -1), record.length
    log_pi = _host(torch.stack(record.log_pi, -1)).reshape(len(length), -1)
    each_gamma, each_alpha = (_host(x).repeat(episodes) for x in (gamma, alpha))
    step = np.arange(reward.shape[1])
    tail_weight = np.where(record.terminated, 0.0, each_gamma ** (length - step[:, None]).clip(0)).T
    judged = record.ended[:, None] & (step < length[:, None]) & (tail_weight <= TAIL * (1 + 1e-9))
    if (limit := time_limit(task)) is not None:
        judged &= step < limit
    m, v, deviation = _claims(agent, state, record)
    arrays: dict[str, Any] = {  # all of them [R·E, …]
        "length": length,
        "terminated": record.terminated,
        "observation": torch.stack(record.observations, 2).flatten(0, 1).cpu().numpy(),
        "action": torch.stack(record.actions, 2).flatten(0, 1).cpu().numpy(),
        "reward": reward,
        "log_pi": log_pi,
        "m": m,
        "v": v,
        "deviation": deviation,
        "g": soft_returns(reward, log_pi, length, unknown, each_gamma, each_alpha),
        "tail_weight": tail_weight,
        "judged": judged,
    }
    own = [slice(run * episodes, (run + 1) * episodes) for run in range(len(seeds))]
    return [
        ValueErrors(
            alpha=float(alpha[run]),
            gamma=float(gamma[run]),
            **{name: array[own[run]] for name, array in arrays.items()},
        )
        for run in range(len(seeds))
    ]


def _sample_of(agent: Agent, state: State, shooting: bool) -> Sample:
    def shoot(s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        return agent.behaviour(state, s, draw), s.new_zeros(s.shape[:2])

    return shoot if shooting else partial(agent.sample_policy, state)


def _judgeable(task: Task, gamma: float) -> Task:
    """Return the task with episodes so long that at least half of the steps can be judged."""
    limit = time_limit(task)
    unjudged = math.ceil(math.log(TAIL) / math.log(gamma)) if gamma else 1
    if limit is not None and limit < 2 * unjudged:
        limit += unjudged
    return replace(task, horizon=limit)


@dataclass
class _Record:
    """Store what was seen and done in episodes played side by side: N = R·E of them."""

    length: NDArray[np.int64]  # [N]
    ended: NDArray[np.bool_]  # [N], False if the simulator failed
    terminated: NDArray[np.bool_]  # [N]
    last: NDArray[np.float32]  # [N, ds], the observation after the last step
    # lists of steps
    observations: list[Tensor] = field(default_factory=list)  # [R, E, ds]
    actions: list[Tensor] = field(default_factory=list)  # [R, E, da]
    log_pi: list[Tensor] = field(default_factory=list)  # [R, E]
    rewards: list[NDArray[Any]] = field(default_factory=list)  # [N]


def _play(played: Episodes, sample: Sample, tape: Tape) -> _Record:
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
    """G_t of episodes [N, T] of different lengths [N]; `end_value` is that of the state after the
    last step."""
    g = np.full(reward.shape, np.nan)
    following = end_value
    for t in reversed(range(reward.shape[1])):
        under_way = t < length
        g[:, t] = np.where(under_way, reward[:, t] + gamma * following, np.nan)
        following = np.where(under_way, g[:, t] - alpha * log_pi[:, t], following)
    return g


def bounded_error(m: Floats, v: Floats, y: Floats, epsilon: float) -> Floats:
    m_p, v_p, target = (torch.from_numpy(x) for x in (m, v, y))
    return np.asarray(bounds.bounded_loss(m_p, v_p, target, epsilon).numpy())


def _claims(agent: Agent, state: State, record: _Record) -> tuple[Floats, Floats, Floats]:
    """Return m_p, v_p and the deviation that is offered, each [R·E, T]."""
    chunks: tuple[list[Tensor], ...] = ([], [], [])
    for first in range(0, len(record.actions), CHUNK):
        s = torch.stack(record.observations[first : first + CHUNK], 2)  # [R, E, t, ds]
        a = torch.stack(record.actions[first : first + CHUNK], 2)
        pairs = s.flatten(1, 2), a.flatten(1, 2)
        m, v = agent.value_estimate(state, *pairs)
        deviation = agent.members_std(state, *pairs) if v is None else v.sqrt()
        each = m, torch.zeros_like(m) if v is None else v, deviation
        for chunk, x in zip(chunks, each, strict=True):
            chunk.append(x.view(a.shape[:3]).flatten(0, 1))
    m_p, v_p, offered = (_host(torch.cat(chunk, -1)) for chunk in chunks)
    return m_p, v_p, offered


def _host(x: Tensor) -> Floats:
    return np.asarray(x.double().cpu().numpy())
