"""Replay of a cohort: one ring of packed transitions per run, on the learner's device, read by one
gather."""

from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Transitions of every run, drawn from its own replay."""

    s: Tensor  # [R, B, ds]
    a: Tensor  # [R, B, da]
    r: Tensor  # [R, B]
    s2: Tensor  # [R, B, ds], the true next state, also where the time limit cut the episode
    # [R, B], 1 where the episode really ended; a time limit is no end. Where several steps were
    # joined into one, what they discount is in it too, so that r + γ (1 − terminated) · value is
    # their target.
    terminated: Tensor


def row_width(ds: int, da: int) -> int:
    return 2 * ds + da + 2


def pack(s: Tensor, a: Tensor, r: Tensor, s2: Tensor, terminated: Tensor) -> Tensor:
    """[R, width] from [R, ds], [R, da], [R, 1], [R, ds], [R, 1]."""
    return torch.cat([s, a, r, s2, terminated], -1)


def store(data: Tensor, row: Tensor, step: Tensor) -> None:
    """Write the transitions of one lockstep step into data [R, capacity, width]; `step` counts
    those stored before."""
    data.index_copy_(1, (step % data.shape[1]).reshape(1), row.unsqueeze(1))


def sample(data: Tensor, uniforms: Tensor, n: Tensor, ds: int, da: int) -> Batch:
    """Transitions drawn with replacement from the first n, one for each uniform number [R, B]."""
    return at(data, places(uniforms, n), ds, da)


def at(data: Tensor, index: Tensor, ds: int, da: int) -> Batch:
    """The transitions at places [R, B] of the rings."""
    runs, capacity, width = data.shape
    first = torch.arange(runs, device=data.device).unsqueeze(1) * capacity
    rows = data.view(-1, width).index_select(0, (first + index).view(-1)).view(*index.shape, width)
    return unpack(rows, ds, da)


def join(
    data: Tensor, index: Tensor, n: Tensor, batch: Batch, steps: Tensor, longest: int, gamma: Tensor
) -> Batch:
    """The batch at these places with each transition joined to those that followed it, up to a
    run's own number of steps [R]: as far as its episode goes, which goes on where the next in the
    ring begins in the state where it ended. So neither an end, nor a time limit, nor the youngest
    in the ring is ever passed."""
    ds, da = batch.s.shape[-1], batch.a.shape[-1]
    r, s2, terminated = batch.r, batch.s2, batch.terminated
    discount, joined = torch.ones_like(r), torch.ones_like(r, dtype=torch.bool)
    for k in range(1, longest):
        following = at(data, (index + k) % n, ds, da)
        joined = joined & (k < steps[:, None]) & (terminated == 0) & (following.s == s2).all(-1)
        discount = torch.where(joined, discount * gamma[:, None], discount)
        r = torch.where(joined, r + discount * following.r, r)
        s2 = torch.where(joined.unsqueeze(-1), following.s2, s2)
        terminated = torch.where(joined, following.terminated, terminated)
    return batch._replace(r=r, s2=s2, terminated=1 - discount * (1 - terminated))


def places(uniforms: Tensor, n: Tensor) -> Tensor:
    """Which of the first n transitions uniform numbers draw."""
    return (uniforms * n).long().clamp_max(n - 1)  # u = 1 would read the next run's ring


def unpack(rows: Tensor, ds: int, da: int) -> Batch:
    """From [R, B, width]."""
    s, a, r, s2, terminated = torch.split(rows, [ds, da, 1, ds, 1], -1)
    return Batch(s, a, r.squeeze(-1), s2, terminated.squeeze(-1))
