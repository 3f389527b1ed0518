"""What bounds are computed from: transitions of the replay or of fresh episodes, with the critic's claims on them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents import bounds, replay
from pac4sac.agents.base import Agent, Hyper, State
from pac4sac.agents.replay import Batch
from pac4sac.agents.tape import Stream
from pac4sac.base.errors import UserError
from pac4sac.base.files import read_jsonl
from pac4sac.training import checkpoint
from pac4sac.training.agent_file import TrainedAgent
from pac4sac.training.experiment import read_experiment
from pac4sac.training.value_error import ValueErrors

Floats = NDArray[np.float64]
CHUNK = 2000  # transitions that go through the networks at once
NEXT_ACTIONS = 4  # of which the target's expectation over a′ ~ π is the mean


@dataclass(frozen=True)
class Evidence:
    """Arrays [N] of transitions, all of one run."""

    m: Floats  # m_p(s, a)
    v: Floats  # v_p(s, a); 0 for a critic without a variance
    y: Floats  # r + γ (1 − terminated) E_{a′~π}[m_p(s′, a′) − α log π(a′|s′)]
    next_variance: Floats  # v_p(s′, a′), 0 after the end
    reward: Floats
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
        _, place = np.unique(self.episode, return_inverse=True)
        return np.asarray(np.bincount(place, values) / np.bincount(place))

    def one_per_episode(self, values: Floats, seed: int) -> Floats:
        """At a random time of each episode: independent samples too."""
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(values))
        _, first = np.unique(self.episode[order], return_index=True)
        return np.asarray(values[order[first]])


def bounded_error(m: Floats, v: Floats, y: Floats, epsilon: float) -> Floats:
    m_p, v_p, target = (torch.from_numpy(x) for x in (m, v, y))
    return np.asarray(bounds.bounded_loss(m_p, v_p, target, epsilon).numpy())


@torch.no_grad()
def look(agent: Agent, state: State, batch: Batch, seed: int, episode: NDArray[np.int64] | None = None) -> Evidence:
    """The claims of a run's critic on a batch [1, N, ·] of any length. The target is that of the critic itself, as the
    paper's inequality between Bellman error and value error asks, not of the slow copy it was trained with."""
    generator = torch.Generator().manual_seed(seed)
    gamma, alpha = Hyper(state).gamma[:, None], agent.alpha(state)[:, None]
    found: list[tuple[Tensor, ...]] = []
    for first in range(0, batch.r.shape[1], CHUNK):
        s, a, r, s2, terminated = (x[:, first : first + CHUNK] for x in batch)
        m_p, v_p = agent.mean_and_variance(state, s, a)
        soft_values, variances = [], []
        streams = agent.policy_streams(r.shape[1])
        for _ in range(NEXT_ACTIONS if streams else 1):
            a2, log_pi = agent.sample_policy(state, s2, _draw(streams, generator))
            m2, v2 = agent.mean_and_variance(state, s2, a2)
            soft_values.append(m2 - alpha * log_pi)
            variances.append(torch.zeros_like(m2) if v2 is None else v2)
        target = r + gamma * (1 - terminated) * torch.stack(soft_values).mean(0)
        following = torch.stack(variances).mean(0) * (1 - terminated)
        found.append((m_p, torch.zeros_like(m_p) if v_p is None else v_p, target, following, r))
    m, v, y, next_variance, reward = (torch.cat(parts, 1)[0].double().numpy() for parts in zip(*found, strict=True))
    unknown = np.zeros(len(m), np.int64)
    return Evidence(m, v, y, next_variance, reward, unknown if episode is None else episode)


def _draw(streams: dict[str, Stream], generator: torch.Generator) -> dict[str, Tensor]:
    def numbers(stream: Stream) -> Tensor:
        sample = torch.rand if stream.uniform else torch.randn
        return sample((1, *stream.shape), generator=generator)

    return {name: numbers(stream) for name, stream in streams.items()}


def fresh_evidence(agent: Agent, state: State, errors: ValueErrors, seed: int) -> Evidence:
    """Of the judged steps of fresh episodes; a step before a time limit, whose next state nobody saw, is left out."""
    judged, length, terminated = errors.judged[0].copy(), errors.length[0], errors.terminated[0]
    last = np.arange(judged.shape[1]) == length[:, None] - 1
    judged &= ~last | terminated[:, None]
    episode, step = np.nonzero(judged)
    if not len(step):
        raise UserError("No step of the fresh episodes can be judged; the task's episodes are too short for its γ.")
    ending = torch.from_numpy(last[episode, step]).float()[None]
    following = np.minimum(step + 1, judged.shape[1] - 1)
    s, s2 = (torch.from_numpy(errors.observation[0][episode, at])[None] for at in (step, following))
    a = torch.from_numpy(errors.action[0][episode, step])[None]
    r = torch.from_numpy(errors.reward[0][episode, step]).float()[None]
    return look(agent, state, Batch(s, a, r, s2, ending), seed, episode)


# --- the replay of a finished or running training


@dataclass(frozen=True)
class Stored:
    """What the checkpoint of a run's cohort adds to its agent file, or why there is nothing."""

    batch: Batch | None
    prior: State
    missing: str = ""


def stored_replay(agent_file: Path, trained: TrainedAgent) -> Stored:
    root = agent_file.parent.parent.parent
    try:
        cohorts = [[dict(run) for run in cohort] for cohort in read_experiment(root)["cohorts"]]
    except (UserError, KeyError, TypeError, ValueError):
        return Stored(None, {}, "the agent file lies in no experiment folder")
    for number, runs in enumerate(cohorts):
        place = next((k for k, run in enumerate(runs) if run.get("run") == trained.run.id), None)
        if place is None:
            continue
        mark = checkpoint.fingerprint(runs)  # as they were described when they were trained
        saved = checkpoint.read_newest(root / "cohorts" / f"{number:03d}", mark)
        if saved is None:
            return Stored(None, {}, "its experiment has no readable checkpoint")
        rows = saved.learner["replay"][place]
        kept = rows[_own_rows(agent_file.parent, saved, place, len(rows))]
        if not len(kept):
            return Stored(None, {}, "the checkpoint's replay has nothing of this run")
        batch = replay.Batch(*_columns(kept[None], trained.agent.ds, trained.agent.da))
        prior = {k: x[place : place + 1] for k, x in saved.learner.items() if k.startswith("prior_")}
        return Stored(batch, prior)
    return Stored(None, {}, "the experiment around the agent file does not know this run")


def _columns(rows: Tensor, ds: int, da: int) -> tuple[Tensor, ...]:
    s, a, r, s2, terminated = torch.split(rows, [ds, da, 1, ds, 1], -1)
    return s, a, r.squeeze(-1), s2, terminated.squeeze(-1)


def _own_rows(run_folder: Path, saved: checkpoint.Checkpoint, place: int, filled: int) -> NDArray[np.int64]:
    """Places in the ring of what the run saw itself: one that ended before its cohort has empty rows from then on."""
    step = int(saved.learner["step"])
    written = np.arange(step - filled, step)
    if saved.progress["status"][place] != "running" and saved.progress["details"][place] is not None:
        episodes, _ = read_jsonl(run_folder / "episodes.jsonl")
        written = written[written < max((row.get("step", 0) for row in episodes), default=0)]
    return written % filled
