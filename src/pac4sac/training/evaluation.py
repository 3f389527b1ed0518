"""Evaluation episodes, with environments and random numbers that training does not use."""

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
    """Define episodes to play: runs, number per run, and occasion.

    The occasion, such as the step, selects the random numbers. The same occasion therefore gives
    the same episodes.
    """

    agent: Agent
    state: State
    task: Task
    seeds: Sequence[int]  # one for each run
    count: int
    occasion: str
    workers: int = 0
    only: Sequence[int] | None = None  # the runs that play; None: all
    stop: StopRequest | None = None
    step_seconds: int = STEP_SECONDS  # time limit of an environment's step
    # called after each step with the number of steps and its maximum
    progress: Callable[[int, int], None] | None = None
    # set by `play`: run -> cause of failed episodes
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Return a mask of the R·E episodes that are played."""
        runs = np.arange(len(self.seeds))
        return np.isin(runs, runs if self.only is None else self.only).repeat(self.count)

    def tape(self, streams: Mapping[str, Stream]) -> Tape:
        """Return random numbers that neither training nor another occasion uses."""
        named = {f"evaluation {self.occasion}: {name}": stream for name, stream in streams.items()}
        return Tape(self.seeds, named, self.state["step"].device)


def policies_of(agent: Agent) -> list[EvaluatedPolicy]:
    """Return the policies to evaluate: the deterministic policy and, if a run uses shooting, the
    shooting policy."""
    if max(agent.shots(evaluating=True)) > 1:
        return ["deterministic", "shooting"]
    return ["deterministic"]


def evaluate(episodes: Episodes, policy: EvaluatedPolicy) -> NDArray[np.float64]:
    """Return the returns [R, E]; NaN for runs that do not play and for episodes that failed."""
    agent, state = episodes.agent, episodes.state

    def shoot(s: Tensor, draw: Draw) -> Tensor:
        return agent.behaviour(state, s, draw)

    def act_deterministically(s: Tensor, _: Draw) -> Tensor:
        return agent.deterministic_action(state, s)

    if policy == "shooting":
        tape = episodes.tape(agent.behaviour_streams(episodes.count, True))
        played = play(episodes, shoot, tape, max(agent.shots(evaluating=True)))
    else:
        played = play(episodes, act_deterministically, episodes.tape({}))
    returns = np.where(episodes.present, 0.0, np.nan)
    for _, _, seen, going in played:
        returns[going] += seen.reward[going]
        returns[seen.failed] = np.nan
    return returns.reshape(-1, episodes.count)


def read_draw(tape: Tape, position: int) -> Draw:
    """Return the random numbers at a position of an evaluation's tape, by name of their stream."""
    tape.seek(position)
    numbers = read(tape.blocks, torch.tensor(position, device=tape.device))
    return {name.rsplit(": ", 1)[1]: value for name, value in numbers.items()}


@torch.no_grad()
def play(
    episodes: Episodes, act: Callable[[Tensor, Draw], Tensor], tape: Tape, shots: int = 1
) -> Iterator[Moment]:
    """Play all episodes of all runs in lockstep, until the last has ended.

    Episodes without a time limit are cut after the step budget of the task, because training
    episodes cannot be longer.

    Yields:
        For each step s [R, E, ds], a [R, E, da], the transitions of R·E simulators (the next step
        overwrites them) and a mask [R·E] of the episodes that were being played.
    """
    going, longest = episodes.present, time_limit(episodes.task) or episodes.task.steps
    position = 0
    threads = suitable_threads(episodes.agent, episodes.count * shots)
    with on_threads(threads), _pool(episodes, longest) as pool:
        # Episode 1, not 0: in some tasks the first episode of an instance differs from later ones.
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
            # Studies only show warnings of this package, and torch calls this generator.
            stacklevel=1,
        )


def _pool(episodes: Episodes, longest: int) -> EnvPool:
    """Return the simulators of all episodes, which are cut after `longest` steps."""
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
    """Park the simulators of these episodes."""
    for episode in np.flatnonzero(which):
        pool.park(int(episode))


def _warn_of_failures(episodes: Episodes, failures: Mapping[int, str]) -> None:
    """Record the causes of failed episodes, and warn once of all failures."""
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
    """Return the seed of a simulator for an evaluation episode of a run."""
    entropy = (seed, *occasion.encode(), episode)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])
