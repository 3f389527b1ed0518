"""Evaluation episodes: separate environments and random numbers, so that training never notices them."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from pac4sac.agents.base import Agent, State
from pac4sac.tape import Tape, read
from pac4sac.tasks import Task
from pac4sac.tasks.pool import EnvPool

Policy = Literal["greedy", "shooting"]


@torch.no_grad()
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
) -> NDArray[np.float64]:
    """Returns [R, episodes]. All episodes of all runs go side by side; `occasion` names their random numbers, so that
    an evaluation at step 5000 differs from one at 6000 and from none of its own repetitions. Runs whose simulator
    failed have NaN, and so have those left out of `only`."""
    device = state["step"].device
    runs = len(seeds)
    # Episode 1, not 0: an instance's first episode has quirks of its own in some tasks.
    starts = [episode_seed(seed, occasion, k) for seed in seeds for k in range(episodes)]
    streams = {f"evaluation {occasion}: {name}": s for name, s in agent.behaviour_streams(episodes, True).items()}
    tape = Tape(seeds, streams if policy == "shooting" else {}, device)
    going = np.isin(np.arange(runs), range(runs) if only is None else only).repeat(episodes)
    returns = np.where(going, 0.0, np.nan)
    with EnvPool(task, starts, workers, purpose="evaluate") as pool:
        observation = pool.reset(episode=1)
        for absent in np.flatnonzero(~going):
            pool.park(int(absent))
        position = 0
        while going.any():
            s = torch.from_numpy(observation.copy()).to(device).view(runs, episodes, -1)
            if policy == "shooting":
                tape.seek(position)
                numbers = read(tape.blocks, torch.tensor(position, device=device))
                a = agent.behaviour(state, s, {name.split(": ")[1]: value for name, value in numbers.items()})
            else:
                a = agent.greedy(state, s)
            pool.send(a.reshape(runs * episodes, -1).cpu().numpy())
            seen = pool.receive()
            returns[going] += seen.reward[going]
            returns[seen.failed] = np.nan
            for ended in np.flatnonzero(going & (seen.terminated | seen.truncated | seen.failed)):
                going[ended] = False
                pool.park(int(ended))
            observation = seen.observation
            position += 1
    return returns.reshape(runs, episodes)


def episode_seed(seed: int, occasion: str, episode: int) -> int:
    entropy = (seed, *occasion.encode(), episode)
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0])
