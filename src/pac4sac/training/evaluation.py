"""Evaluation episodes: separate environments and random numbers, so that training never notices them."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents.base import Agent, Draw, State
from pac4sac.agents.tape import Stream, Tape, read
from pac4sac.base.stopping import StopRequest
from pac4sac.tasks import Task
from pac4sac.tasks.pool import EnvPool, Transitions
from pac4sac.tasks.registry import time_limit

Policy = Literal["greedy", "shooting"]


class Moment(NamedTuple):
    """One lockstep step of all episodes; the arrays in `seen` are overwritten by the next one."""

    s: Tensor  # [R, E, ds]
    a: Tensor  # [R, E, da]
    seen: Transitions  # of R·E simulators, a run's episodes side by side
    going: NDArray[np.bool_]  # [R·E] the episodes that were under way


def evaluate(
    agent: Agent,
    state: State,
    task: Task,
    seeds: Sequence[int],
    policy: Policy,
    episodes: int,
    occasion: str,
    workers: int = 0,
    only: Sequence[int] | None = None,
    stop: StopRequest | None = None,
) -> NDArray[np.float64]:
    """Returns [R, episodes]; runs whose simulator failed have NaN, and so have those left out of `only`."""

    def act(s: Tensor, draw: Draw) -> Tensor:
        return agent.behaviour(state, s, draw) if policy == "shooting" else agent.greedy(state, s)

    streams = agent.behaviour_streams(episodes, True) if policy == "shooting" else {}
    tape = evaluation_tape(seeds, streams, occasion, state["step"].device)
    present = range(len(seeds)) if only is None else only
    returns = np.where(np.isin(np.arange(len(seeds)), present).repeat(episodes), 0.0, np.nan)
    for moment in play(act, tape, task, seeds, episodes, occasion, workers, only, stop):
        returns[moment.going] += moment.seen.reward[moment.going]
        returns[moment.seen.failed] = np.nan
    return returns.reshape(len(seeds), episodes)


def evaluation_tape(seeds: Sequence[int], streams: Mapping[str, Stream], occasion: str, device: torch.device) -> Tape:
    """Random numbers that neither training nor another occasion draws."""
    return Tape(seeds, {f"evaluation {occasion}: {name}": stream for name, stream in streams.items()}, device)


def read_draw(tape: Tape, position: int) -> Draw:
    tape.seek(position)
    numbers = read(tape.blocks, torch.tensor(position, device=tape.device))
    return {name.rsplit(": ", 1)[1]: value for name, value in numbers.items()}


@torch.no_grad()
def play(
    act: Callable[[Tensor, Draw], Tensor],
    tape: Tape,
    task: Task,
    seeds: Sequence[int],
    episodes: int,
    occasion: str,
    workers: int = 0,
    only: Sequence[int] | None = None,
    stop: StopRequest | None = None,
) -> Iterator[Moment]:
    """All episodes of all runs side by side, until the last one has ended. `occasion` names their random numbers, so
    that an evaluation at step 5000 differs from one at 6000 and from none of its own repetitions. Where nothing limits
    an episode, the task's step budget does: no episode of training was longer."""
    runs, limit = len(seeds), time_limit(task)
    starts = [episode_seed(seed, occasion, k) for seed in seeds for k in range(episodes)]
    going = np.isin(np.arange(runs), range(runs) if only is None else only).repeat(episodes)
    with EnvPool(replace(task, horizon=limit or task.steps), starts, workers, purpose="evaluate") as pool:
        # Episode 1, not 0: an instance's first episode has quirks of its own in some tasks.
        observation = pool.reset(episode=1)
        for absent in np.flatnonzero(~going):
            pool.park(int(absent))
        position = 0
        while going.any():
            if stop is not None:
                stop.check()
            s = torch.from_numpy(observation.copy()).to(tape.device).view(runs, episodes, -1)
            a = act(s, read_draw(tape, position))
            pool.send(a.reshape(runs * episodes, -1).cpu().numpy())
            seen = pool.receive()
            yield Moment(s, a, seen, going.copy())
            for ended in np.flatnonzero(going & (seen.terminated | seen.truncated | seen.failed)):
                going[ended] = False
                pool.park(int(ended))
            observation = seen.observation
            position += 1
    if limit is None and position == task.steps:
        warnings.warn(
            f"Episodes of {task.name} have no time limit and were cut after {position:,} steps, the task's budget; "
            "register the environment with max_episode_steps, or give the task a horizon.",
            stacklevel=2,
        )


def episode_seed(seed: int, occasion: str, episode: int) -> int:
    entropy = (seed, *occasion.encode(), episode)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])
