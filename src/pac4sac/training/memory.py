"""How much memory a cohort takes, and how much there is."""

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from pac4sac.agents.replay import row_width
from pac4sac.agents.tape import size as tape_size
from pac4sac.runs.run import Run, make_agent
from pac4sac.tasks import task_sizes
from pac4sac.training.learner import LEARN_BLOCK

FLOAT = 4  # bytes


def cohort_bytes(runs: Sequence[Run]) -> int:
    """Of the learner's tensors: replay, weights with targets, moments and gradients, tapes, activations of shooting."""
    ds, da = task_sizes(runs[0].task)
    agent = make_agent(runs, ds, da)
    config = agent.config
    replay = min(config.capacity, runs[0].task.steps) * row_width(ds, da)
    weights = sum(net.members * sum(net.sizes) for net in agent.nets.values()) * 6
    tapes = tape_size(agent.act_streams()) + tape_size(agent.learn_streams(), agent.updates_per_step * LEARN_BLOCK)
    shots = max(getattr(run.config, "shots", 1) for run in runs)
    activations = (4 * shots + 16 * config.batch) * config.width * config.depth
    return FLOAT * len(runs) * (replay + weights + tapes + activations)


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # where nobody tells what is free, all there is
