"""The errors of a critic: on transitions of its replay and of fresh episodes, as measured beside
the bounds, and beside what the critic offers as its uncertainty."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit
from torch import Tensor

from pac4sac.agents import replay
from pac4sac.agents.base import Agent, Draw, Hyper, State
from pac4sac.base.errors import UserError
from pac4sac.certificates.intervals import coverage
from pac4sac.certificates.returns import RewardRange
from pac4sac.runs.logs import read_log
from pac4sac.runs.reading import read_experiment
from pac4sac.runs.statistics import Estimate, mean_interval
from pac4sac.tasks import Task
from pac4sac.training import checkpoint
from pac4sac.training.agent_file import TrainedAgent
from pac4sac.training.value_error import (
    WIDTH,
    Floats,
    ValueErrors,
    bounded_error,
    measure_value_errors,
)

Progress = Callable[[str], None]
ErrorQuantity = Literal[
    "squared Bellman error",
    "value error",
    "absolute value error",
    "bounded Bellman error",
    "bounded value error",
]
QUANTITIES: tuple[ErrorQuantity, ...] = get_args(ErrorQuantity)
CHUNK = 2000  # transitions that go through the networks at once
NEXT_ACTIONS = 4  # of which the target's expectation over a′ ~ π is the mean
LONGEST_WALK = 200  # random steps


@dataclass(frozen=True)
class BellmanErrors:
    """A critic's claims beside its own targets: arrays [N] of transitions, all of one run."""

    m: Floats  # m_p(s, a)
    v: Floats  # v_p(s, a); 0 for a critic without a variance
    y: Floats  # r + γ (1 − terminated) E_{a′~π}[m_p(s′, a′) − α log π(a′|s′)]
    next_variance: Floats  # v_p(s′, a′), 0 after the end
    episode: NDArray[np.int64]  # from which episode; all 0 for a replay, which does not remember

    @property
    def squared(self) -> Floats:
        """E over Q ~ μ of the squared Bellman error: the paper's loss."""
        return (self.y - self.m) ** 2 + self.v

    def bounded(self, epsilon: float) -> Floats:
        """E over Q ~ μ of 1 − exp(−(Q − y)²/ε²), within [0, 1]."""
        return bounded_error(self.m, self.v, self.y, epsilon)

    def episode_means(self, values: Floats) -> Floats:
        """Of each episode; the independent units of fresh data."""
        _, index = np.unique(self.episode, return_inverse=True)
        return np.asarray(np.bincount(index, values) / np.bincount(index))

    def one_per_episode(self, values: Floats, seed: int) -> Floats:
        """At a random time of each episode: independent samples too."""
        order = np.random.default_rng(seed).permutation(len(values))
        _, first = np.unique(self.episode[order], return_index=True)
        return np.asarray(values[order[first]])


@torch.no_grad()
def bellman_errors(agent: Agent, state: State, batch: replay.Batch, seed: int) -> BellmanErrors:
    """On a batch [1, N, ·] of any length. The target is that of the critic itself, as the paper's
    inequality between Bellman error and value error asks, not of the slow copy it was trained
    with."""
    generator = torch.Generator().manual_seed(seed)
    gamma, alpha = Hyper(state).gamma[:, None], agent.entropy_weight(state)[:, None]

    def claims(s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        m, v = agent.value_estimate(state, s, a)
        return m, torch.zeros_like(m) if v is None else v

    chunks: list[tuple[Tensor, ...]] = []
    for first in range(0, batch.r.shape[1], CHUNK):
        s, a, r, s2, terminated = (x[:, first : first + CHUNK] for x in batch)
        streams = agent.policy_streams(r.shape[1])
        following = []  # soft value and variance for each of the next actions
        for _ in range(NEXT_ACTIONS if streams else 1):
            draw = {
                name: (torch.rand if stream.uniform else torch.randn)(
                    (1, *stream.shape), generator=generator
                )
                for name, stream in streams.items()
            }
            a2, log_pi = agent.sample_policy(state, s2, draw)
            m2, v2 = claims(s2, a2)
            following.append((m2 - alpha * log_pi, v2))
        soft_value, variance = (torch.stack(x).mean(0) for x in zip(*following, strict=True))
        chunks.append(
            (*claims(s, a), r + gamma * (1 - terminated) * soft_value, variance * (1 - terminated))
        )
    m, v, y, next_variance = (
        torch.cat(x, 1)[0].double().numpy() for x in zip(*chunks, strict=True)
    )
    return BellmanErrors(m, v, y, next_variance, np.zeros(len(m), np.int64))


# --- what bounds are held against


@dataclass(frozen=True)
class Scales:
    """On which errors are judged; fixed before fresh episodes are played. The bounded losses are 1
    − exp(−error²/ε²): for Bellman errors ε is the width of the rewards' range, for value errors a
    tenth of that of possible values."""

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
        """What each quantity can be at most as long as values are possible: known without any
        data."""
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
    """Means over fresh episodes with their intervals: what the bounds are held against."""

    bellman: Estimate  # squared Bellman error
    value: Estimate  # from below without, from above with the chance in a single return
    absolute: Estimate  # E |m_p − G|
    bounded_bellman: Estimate
    bounded_value: Estimate
    # those of which some errors counted less than they were
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
    """Of both kinds, in the same fresh episodes."""

    bellman: BellmanErrors
    values: ValueErrors
    scales: Scales

    def episode_means(self) -> dict[ErrorQuantity, Floats]:
        """Squared and absolute errors beyond the largest possible count as that."""
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
        """The quantities of which some errors are larger than possible values allow."""
        judged, largest = self.values.judged, self.scales.largest
        sizes: dict[ErrorQuantity, Floats] = {  # bounded errors never are
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
    """E‖Q_π − Q‖², which a single return G per step only brackets. Above: the mean of (Q − G)²,
    which adds the chance in G. Below: the square of the mean error at each time of the episode,
    from products of different episodes, so that chance cancels; by Jensen's inequality the error
    itself is at least that."""
    above = mean_interval(values.episode_means(values.squared), 1 - delta)
    weight = np.where(values.judged, 1 / values.judged.sum(1, keepdims=True).clip(1), 0.0)
    error = np.where(values.judged, values.error, 0.0)
    everyone = np.flatnonzero(values.judged.any(1))
    n = len(everyone)
    if n < 3:
        return Estimate(above.value, None, above.high)

    def below(chosen: NDArray[np.int64]) -> float:
        w, x = weight[chosen], error[chosen]
        pairs = w.sum(0) ** 2 - (w**2).sum(0)
        product = (w * x).sum(0) ** 2 - ((w * x) ** 2).sum(0)
        at_time = np.divide(product, pairs, out=np.zeros_like(pairs), where=pairs > 1e-12)
        importance = np.where(pairs > 1e-12, w.sum(0), 0.0)
        return float((at_time * importance).sum() / importance.sum()) if importance.sum() else 0.0

    without = np.array([below(np.delete(everyone, k)) for k in range(n)])  # the jackknife
    deviation = math.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    spread = float(values.episode_means(values.v).mean())
    low = below(everyone) + spread - float(stdtrit(n - 1, 1 - delta / 2)) * deviation
    return Estimate(above.value, max(low, spread, 0.0), above.high)


def fresh_errors(
    agent: Agent, state: State, values: ValueErrors, scales: Scales, seed: int
) -> CriticErrors:
    """With Bellman errors on the judged steps; one before a time limit, whose next state nobody
    saw, is left out."""
    last = np.arange(values.judged.shape[1]) == values.length[:, None] - 1
    at = episode, step = np.nonzero(values.judged & (~last | values.terminated[:, None]))
    if not len(step):
        raise UserError(
            "No step of the fresh episodes can be judged; the task's episodes are too short "
            "for its γ."
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


# --- the replay of a finished or running training


class StoredReplay(NamedTuple):
    """What the checkpoint of a run's cohort adds to its agent file, or why there is nothing."""

    batch: replay.Batch | None
    prior: State
    missing: str


def stored_replay(agent_file: Path, trained: TrainedAgent) -> StoredReplay:
    """Read the replay and the prior of a trained agent from its experiment, if it has one."""
    root = agent_file.parent.parent.parent
    try:
        cohorts = [[dict(run) for run in cohort] for cohort in read_experiment(root)["cohorts"]]
    except (UserError, KeyError, TypeError, ValueError):
        return StoredReplay(None, {}, "the agent file lies in no experiment folder")
    found = _find_run(cohorts, trained.run.id)
    if found is None:
        return StoredReplay(None, {}, "the experiment around the agent file does not know this run")
    number, index = found
    mark = checkpoint.fingerprint(cohorts[number])  # as they were described when they were trained
    saved = checkpoint.read_newest(root / "cohorts" / f"{number:03d}", mark)
    if saved is None:
        return StoredReplay(None, {}, "its experiment has no readable checkpoint")
    rows = saved.learner["replay"][index]
    kept = rows[_own_rows(agent_file.parent, saved, index, len(rows))]
    if not len(kept):
        return StoredReplay(None, {}, "the checkpoint's replay has nothing of this run")
    prior = {k: x[index : index + 1] for k, x in saved.learner.items() if k.startswith("prior_")}
    return StoredReplay(replay.unpack(kept[None], trained.agent.ds, trained.agent.da), prior, "")


def _find_run(cohorts: list[list[dict[str, Any]]], run: str) -> tuple[int, int] | None:
    """Return the number of a run's cohort and its index there."""
    for number, cohort in enumerate(cohorts):
        for index, about in enumerate(cohort):
            if about.get("run") == run:
                return number, index
    return None


def _own_rows(
    run_folder: Path, saved: checkpoint.Checkpoint, index: int, filled: int
) -> NDArray[np.int64]:
    """Places in the ring of what the run saw itself: one that ended before its cohort has empty
    rows from then on."""
    step = int(saved.learner["step"])
    written = np.arange(step - filled, step)
    if (
        saved.progress["status"][index] != "running"
        and saved.progress["details"][index] is not None
    ):
        episodes, _ = read_log(run_folder / "episodes.jsonl")
        written = written[written < max((row["step"] for row in episodes), default=0)]
    return written % filled


# --- calibration


@dataclass(frozen=True)
class Calibration:
    where: str
    deviation: str  # what the critic offers as its uncertainty
    share: Estimate  # of returns within m_p ± 2 deviations
    ratio: float  # root mean square of error by deviation: 1 where the critic knows its error
    rms_error: float
    rms_deviation: float
    # Spearman's, of |error| and deviation over states: 0 where it does not know where it errs
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
    """Does a critic know what it does not know: do m_p ± 2√v_p cover the return that follows? Empty
    for a single plain critic, which offers no uncertainty.

    In distribution, the states are those of π's own episodes. Out of it, an episode begins with
    random actions; judged is the last of these, and what π makes of it afterwards."""
    if measuring.uncertainty() is None:
        return []
    episodes, longest = len(measuring.judged), int(measuring.judged.sum(1).max())
    say(f"{episodes} episodes that begin with random actions …")
    wandering = after_random_steps(agent, state, task, episodes, seed, longest)
    found = [
        calibration("π's own states", offered_by(agent), measuring, delta),
        calibration("after random actions", offered_by(agent), wandering, delta),
    ]
    return [one for one in found if one is not None]


def calibration(where: str, name: str, errors: ValueErrors, delta: float) -> Calibration | None:
    """Of the judged steps; the interval is over episodes."""
    bias, u = errors.bias(), errors.uncertainty()
    if bias is None or u is None:
        return None
    share = coverage(errors, WIDTH * errors.deviation, delta)
    return Calibration(where, name, share, u.ratio, bias.rms, u.deviation, u.rank, bias.steps)


def offered_by(agent: Agent) -> str:
    if not agent.critic.gaussian:
        return "Std_k[Q_k]"
    return "√v_p" if agent.takes_minimum else "√v"


def after_random_steps(
    agent: Agent, state: State, task: Task, episodes: int, seed: int, longest: int
) -> ValueErrors:
    """Episodes that begin with up to `longest` random steps, of which the last is judged."""
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
