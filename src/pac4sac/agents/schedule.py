"""Learning-rate schedules: how a learning rate falls with the steps of its network."""

import math

import torch
from torch import Tensor

SCHEDULES = ("constant", "linear", "cosine")


def scheduled(schedule: str, rate: Tensor, end: Tensor, progress: Tensor) -> Tensor:
    """Return a learning rate [R] between its first value and its last one.

    Args:
        schedule: One of `SCHEDULES`.
        rate: Learning rate at the beginning [R].
        end: Share of it that is left at the end [R].
        progress: Share of the schedule that is over [R]; from 1 on the rate stays as it is.
    """
    if schedule == "constant":
        return rate
    progress = progress.clamp(0, 1)
    if schedule == "cosine":
        progress = 0.5 * (1 - torch.cos(math.pi * progress))
    return rate * (1 - (1 - end) * progress)
