"""Learning-rate schedules: how a learning rate decays with the gradient steps of its network."""

import math

import torch
from torch import Tensor

SCHEDULES = ("constant", "linear", "cosine")


def scheduled(schedule: str, rate: Tensor, end: Tensor, progress: Tensor) -> Tensor:
    """Return a learning rate [R] between its initial and its final value.

    Args:
        schedule: One of `SCHEDULES`.
        rate: Learning rate at the beginning [R].
        end: Final learning rate ÷ initial learning rate [R].
        progress: Fraction of the schedule that has passed [R]; the rate is constant after 1.
    """
    if schedule == "constant":
        return rate
    progress = progress.clamp(0, 1)
    if schedule == "cosine":
        progress = 0.5 * (1 - torch.cos(math.pi * progress))
    return rate * (1 - (1 - end) * progress)
