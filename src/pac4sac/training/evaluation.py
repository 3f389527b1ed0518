"""Evaluation episodes: separate environments and random numbers, so that training never notices
them."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, State
from pac4sac.agents.tape import Stream, Tape, read
from pac4sac.base.stopping import STEP_SECONDS, StopRequest
from pac4sac.tasks import Task
from pac4sac.tasks.pool import EnvPool, Transitions
from pac4sac.tasks.registry import time_limit
from pac4sac.training.backends import on_threads, suitable_threads

EvaluatedPolicy = Literal["deterministic", "shooting"]
# a lockstep step of all episodes, see `play`
Moment = tuple[Tensor, Tensor, Transitions, NDArray[np.bool_]]


@dataclass(frozen=True)
class Episodes:
    """Episodes to be played: whose, how many of each run, and on which occasion. The occasion names
    their random numbers, so that an evaluation at step 5000 differs from one at 6000 and from none
    of its own repetitions."""

    agent: Agent
    state: State
    task: Task
    seeds: Sequence[int]  # one for each run
    count: int
    occasion: str
    workers: int = 0
    only: Sequence[int] | None = None  # the runs that play; None: all
    stop: StopRequest | None = None
    step_seconds: int = STEP_SECONDS  # that a step of an environment may take
    progress: Callable[[int, int], None] | None = (
        None  # told each step that was played, and how many it can be
    )
    # why episodes of a run failed, once they were played
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def present(self) -> NDArray[np.bool_]:
        """[R·E], False for those of runs that do not play."""
        runs = np.arange(len(self.seeds))
        return np.isin(runs, runs if self.only is None else self.only).repeat(self.count)

    def tape(self, streams: Mapping[str, Stream]) -> Tape:
        """Random numbers that neither training nor another occasion draws."""
        named = {f"evaluation {self.occasion}: {name}": stream for name, stream in streams.items()}
        return Tape(self.seeds, named, self.state["step"].device)


def policies_of(agent: Agent) -> list[EvaluatedPolicy]:
    """The deterministic policy and, where a run shoots, the shooting one."""
    return (
        ["deterministic", "shooting"]
        if max(agent.shots(evaluating=True)) > 1
        else ["deterministic"]
    )


def evaluate(episodes: Episodes, policy: EvaluatedPolicy) -> NDArray[np.float64]:
    """Returns [R, E]; runs whose simulator failed have NaN, and so have those that do not play."""
    agent, state = episodes.agent, episodes.state

    def act(s: Tensor, draw: Draw) -> Tensor:
        return (
            agent.behaviour(state, s, draw)
            if policy == "shooting"
            else agent.deterministic_action(state, s)
        )

    tape = episodes.tape(
        agent.behaviour_streams(episodes.count, True) if policy == "shooting" else {}
    )
    returns = np.where(episodes.present, 0.0, np.nan)
    shots = max(agent.shots(evaluating=True)) if policy == "shooting" else 1
    for _, _, seen, going in play(episodes, act, tape, shots):
        returns[going] += seen.reward[going]
        returns[seen.failed] = np.nan
    return returns.reshape(-1, episodes.count)


def read_draw(tape: Tape, position: int) -> Draw:
    tape.seek(position)
    numbers = read(tape.blocks, torch.tensor(position, device=tape.device))
    return {name.rsplit(": ", 1)[1]: value for name, value in numbers.items()}


@torch.no_grad()
def play(
    episodes: Episodes, act: Callable[[Tensor, Draw], Tensor], tape: Tape, shots: int = 1
) -> Iterator[Moment]:
    """Play all episodes of all runs side by side, until the last has ended. Yields s [R, E, ds],
    a [R, E, da], what R·E simulators then show, which the next step overwrites, and [R·E] whether
    an episode was under way. Where nothing limits an episode, the task's step budget does: no
    episode of training was longer."""
    going, longest = episodes.present, time_limit(episodes.task) or episodes.task.steps
    position = 0
    threads = suitable_threads(episodes.agent, episodes.count * shots)
    with on_threads(threads), _pool(episodes, longest) as pool:
        # Episode 1, not 0: an instance's first episode has quirks of its own in some tasks.
        observation = pool.reset(episode=1)
        _park(pool, ~going)
        while going.any():
            if episodes.stop is not None:
                episodes.stop.check()
            s = torch.from_numpy(observation.copy()).to(tape.device)
            s = s.view(len(episodes.seeds), episodes.count, -1)
            a = act(s, read_draw(tape, position))
            pool.send(a.flatten(0, 1).cpu().numpy())
            seen = pool.receive()
            yield s, a, seen, going.copy()
            ended = going & (seen.terminated | seen.truncated | seen.failed)
            going &= ~ended
            _park(pool, ended)
            observation = seen.observation
            position += 1
            if episodes.progress is not None:
                episodes.progress(position, longest)
    _warn_of_failures(episodes, pool.failures)
    if position == longest and time_limit(episodes.task) is None:
        warnings.warn(
            f"Episodes of {episodes.task.name} have no time limit and were cut after {position:,} "
            "steps, the task's budget; register the environment with max_episode_steps, or give "
            "the task a horizon.",
            # of this file, which a study shows, not of torch, which resumes this generator
            stacklevel=1,
        )


def _pool(episodes: Episodes, longest: int) -> EnvPool:
    seeds = [
        evaluation_seed(seed, episodes.occasion, k)
        for seed in episodes.seeds
        for k in range(episodes.count)
    ]
    return EnvPool(
        replace(episodes.task, horizon=longest),
        seeds,
        episodes.workers,
        purpose="evaluate",
        limit=episodes.step_seconds,
        stop=episodes.stop,
    )


def _park(pool: EnvPool, which: NDArray[np.bool_]) -> None:
    for episode in np.flatnonzero(which):
        pool.park(int(episode))


def _warn_of_failures(episodes: Episodes, failures: Mapping[int, str]) -> None:
    """Note why episodes of a run failed, and warn in one sentence, however many did."""
    if not failures:
        return
    for episode, cause in sorted(failures.items()):
        episodes.failures.setdefault(episode // episodes.count, cause)
    causes = "; ".join(dict.fromkeys(episodes.failures.values()))
    warnings.warn(
        f"{len(failures)} of {episodes.present.sum()} episodes played for measurement on "
        f"{episodes.task.name} failed: {causes}",
        stacklevel=1,
    )


def evaluation_seed(seed: int, occasion: str, episode: int) -> int:
    entropy = (seed, *occasion.encode(), episode)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])
