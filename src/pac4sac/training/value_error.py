"""How far a critic's claims are from what then happens, on fresh episodes of the policy whose value it is to know.

The claim is m_p(s_t, a_t), with v_p where the critic has a variance; the outcome is the discounted soft return

    G_t = r_t + Σ_{k≥1} γ^k (r_{t+k} − α log π(a_{t+k}|s_{t+k}))

of π itself (one action, no shooting), with the α of the moment. A time limit is no end: what would have come after it
is unknown, so a step is judged only where that has a small weight γ^(T−t), and the critic's own soft value stands in
for it. A critic with the same bias everywhere thus shows at least 1 − `tail` of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, Hyper, State
from pac4sac.base.errors import UserError
from pac4sac.base.stopping import StopRequest
from pac4sac.runs.statistics import CONFIDENCE, mean_interval
from pac4sac.tasks import Task
from pac4sac.tasks.registry import time_limit
from pac4sac.training.evaluation import Episodes, play, read_draw

Floats = NDArray[np.float64]
Policy = Literal["policy", "shooting"]
TAIL = 0.01  # the largest weight of an unknown tail
CHUNK = 64  # steps whose states go through the critic at once
ROUNDING = 1e-5  # of float32, relative to the values: a smaller bias is none


def policy_name(policy: str, alpha: float) -> str:
    """With the kind of returns that it is judged by."""
    return "shooting, plain returns" if policy == "shooting" else f"π, {'soft' if alpha else 'plain'} returns"


@dataclass(frozen=True)
class Bias:
    """Of one run: the mean of m_p − G, first over the judged steps of an episode, then over the episodes, which are the
    independent units behind the interval."""

    bias: float
    low: float | None  # None where there are not two episodes
    high: float | None
    rms: float  # of m_p − G, the noise of a single return included
    mean_return: float  # of G, for scale
    episodes: int
    steps: int  # judged, of all episodes
    tail_weight: float  # the largest in any of them

    @property
    def relative(self) -> float:
        """The bias as a share of the size of the values."""
        return self.bias / abs(self.mean_return) if self.mean_return else math.nan

    @property
    def verdict(self) -> Literal["overestimates", "underestimates", "undecided"]:
        if self.low is None or self.high is None or abs(self.bias) <= ROUNDING * (1 + abs(self.mean_return)):
            return "undecided"
        return "overestimates" if self.low > 0 else "underestimates" if self.high < 0 else "undecided"


@dataclass(frozen=True)
class ValueErrors:
    """Arrays are [R, E, T] unless said otherwise: runs, episodes, steps. After the end of an episode, and in all of one
    whose simulator failed, `judged` is False and the rest is without meaning."""

    policy: Policy
    tail: float
    alpha: Floats  # [R], 0 where returns are not softened
    gamma: Floats  # [R]
    length: NDArray[np.int64]  # [R, E]
    terminated: NDArray[np.bool_]  # [R, E]; otherwise the time was up
    observation: NDArray[np.float32]  # [R, E, T, ds]
    action: NDArray[np.float32]  # [R, E, T, da]
    reward: Floats
    log_pi: Floats
    m: Floats  # m_p(s_t, a_t)
    v: Floats | None  # v_p(s_t, a_t), where the critic has one
    g: Floats  # G_t
    tail_weight: Floats  # of what the critic itself says in G_t
    judged: NDArray[np.bool_]

    @property
    def error(self) -> Floats:
        """m_p − G, NaN where it is not judged."""
        return np.where(self.judged, self.m - self.g, np.nan)

    def rewards(self, run: int) -> Floats:
        """Of all steps, judged or not."""
        steps = np.arange(self.reward.shape[2])
        return np.asarray(self.reward[run][steps < self.length[run][:, None]])

    def episode_means(self, run: int, values: Floats) -> Floats:
        """The mean over the judged steps of every episode that has some."""
        judged = self.judged[run]
        some = judged.any(1)
        return np.asarray(np.where(judged, values[run], 0.0).sum(1)[some] / judged.sum(1)[some])

    def bias(self, run: int, confidence: float = CONFIDENCE) -> Bias | None:
        """None where no step could be judged."""
        judged = self.judged[run]
        if not judged.any():
            return None
        error = self.m - self.g
        mean = mean_interval(self.episode_means(run, error), confidence)
        return Bias(
            bias=mean.value,
            low=mean.low,
            high=mean.high,
            rms=float(np.sqrt(self.episode_means(run, error**2).mean())),
            mean_return=float(self.episode_means(run, self.g).mean()),
            episodes=int(judged.any(1).sum()),
            steps=int(judged.sum()),
            tail_weight=float(self.tail_weight[run][judged].max()),
        )


@torch.no_grad()
def measure_value_errors(
    agent: Agent,
    state: State,
    task: Task,
    seeds: Sequence[int],
    episodes: int,
    occasion: str,
    *,
    policy: Policy = "policy",
    tail: float = TAIL,
    horizon: int | None = None,
    workers: int = 0,
    only: Sequence[int] | None = None,
    stop: StopRequest | None = None,
) -> ValueErrors:
    """Play episodes of every run, or of `only` some, side by side; each `occasion` has random numbers of its own.

    With "shooting" the actions are those that the agent takes in an evaluation, and returns are plain, without entropy.
    Episodes last `horizon` steps at most; by default as long as the task's, unless that leaves over half of the steps
    without judgement: then they are played on beyond the task's limit until all of its steps can be judged."""
    if not 0 < tail < 1:
        raise UserError(f"The weight of the unknown tail must be between 0 and 1, not {tail:g}.")
    runs, device = len(seeds), state["step"].device
    gamma, alpha = Hyper(state).gamma, agent.alpha(state)
    if policy == "shooting":
        alpha = torch.zeros_like(alpha)
    limit, duration = _duration(task, float(gamma.max()), tail) if horizon is None else (horizon, horizon)

    def draw_action(s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        if policy == "policy":
            return agent.sample_policy(state, s, draw)
        return agent.behaviour(state, s, draw), s.new_zeros(s.shape[:2])

    def act(s: Tensor, draw: Draw) -> Tensor:
        a, log_density = draw_action(s, draw)
        log_pi.append(log_density)
        return a

    occasion = f"value of the {policy}, {occasion}"
    streams = agent.policy_streams(episodes) if policy == "policy" else agent.behaviour_streams(episodes, True)
    played = Episodes(agent, state, replace(task, horizon=duration), seeds, episodes, occasion, workers, only, stop)
    tape = played.tape(streams)
    observations: list[Tensor] = []
    actions: list[Tensor] = []
    log_pi: list[Tensor] = []
    rewards: list[Floats] = []
    length = np.zeros(runs * episodes, np.int64)
    ended, terminated = (np.zeros(runs * episodes, np.bool_) for _ in range(2))  # neither, where the simulator failed
    last = np.zeros((runs * episodes, agent.ds), np.float32)
    for s, a, seen, going in play(played, act, tape):
        observations.append(s)
        actions.append(a)
        rewards.append(seen.reward.copy())
        length += going
        ending = going & (seen.terminated | seen.truncated)
        last[ending] = seen.final_observation[ending]
        ended |= ending
        terminated |= ending & seen.terminated

    end_state = torch.from_numpy(last).to(device).view(runs, episodes, -1)
    end_action, end_log_pi = draw_action(end_state, read_draw(tape, len(rewards)))
    end_value = agent.mean_and_variance(state, end_state, end_action)[0] - alpha[:, None] * end_log_pi
    unknown = np.where(terminated, 0.0, _host(end_value).ravel())

    m, v = _claims(agent, state, observations, actions)
    reward = np.stack(rewards, -1)
    log_density = _host(torch.stack(log_pi, -1)).reshape(runs * episodes, -1)
    each_gamma, each_alpha = (_host(x).repeat(episodes) for x in (gamma, alpha))
    g = soft_returns(reward, log_density, length, unknown, each_gamma, each_alpha)
    step = np.arange(reward.shape[1])
    tail_weight = np.where(terminated, 0.0, each_gamma ** (length - step[:, None]).clip(0)).T
    judged = ended[:, None] & (step < length[:, None]) & (tail_weight <= tail * (1 + 1e-9))
    if limit is not None:
        judged &= step < limit
    shape = (runs, episodes, -1)
    return ValueErrors(
        policy=policy,
        tail=tail,
        alpha=_host(alpha),
        gamma=_host(gamma),
        length=length.reshape(runs, episodes),
        terminated=terminated.reshape(runs, episodes),
        observation=torch.stack(observations, 2).cpu().numpy(),
        action=torch.stack(actions, 2).cpu().numpy(),
        reward=reward.reshape(shape),
        log_pi=log_density.reshape(shape),
        m=m,
        v=v,
        g=g.reshape(shape),
        tail_weight=tail_weight.reshape(shape),
        judged=judged.reshape(shape),
    )


def soft_returns(
    reward: Floats, log_pi: Floats, length: NDArray[np.int64], end_value: Floats, gamma: Floats, alpha: Floats
) -> Floats:
    """G_t of episodes [N, T] of different lengths [N]; `end_value` is that of the state after the last step."""
    g = np.full(reward.shape, np.nan)
    following = end_value
    for t in reversed(range(reward.shape[1])):
        under_way = t < length
        g[:, t] = np.where(under_way, reward[:, t] + gamma * following, np.nan)
        following = np.where(under_way, g[:, t] - alpha * log_pi[:, t], following)
    return g


def _duration(task: Task, gamma: float, tail: float) -> tuple[int | None, int | None]:
    """The task's own limit, and the steps to play."""
    limit = time_limit(task)
    unjudged = math.ceil(math.log(tail) / math.log(gamma)) if gamma > 0 else 1
    return limit, limit if limit is None or limit >= 2 * unjudged else limit + unjudged


def _claims(
    agent: Agent, state: State, observations: Sequence[Tensor], actions: Sequence[Tensor]
) -> tuple[Floats, Floats | None]:
    """m_p and v_p, each [R, E, T]."""
    found: list[tuple[Tensor, Tensor | None]] = []
    for first in range(0, len(actions), CHUNK):
        s, a = (torch.stack(list(x[first : first + CHUNK]), 2) for x in (observations, actions))  # [R, E, t, ·]
        m, v = agent.mean_and_variance(state, s.flatten(1, 2), a.flatten(1, 2))
        found.append((m.view(a.shape[:3]), None if v is None else v.view(a.shape[:3])))
    means, variances = zip(*found, strict=True)
    return _host(torch.cat(means, -1)), _host(torch.cat(variances, -1)) if variances[0] is not None else None


def _host(x: Tensor) -> Floats:
    return np.asarray(x.double().cpu().numpy())
