"""The replay buffer of a cohort. It has one ring of packed transitions per run on the learner's
device, and one gather reads a batch."""

from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Hold transitions of every run, drawn from its own replay buffer.

    Attributes:
        s: States [R, B, ds].
        a: Actions [R, B, da].
        r: Rewards [R, B].
        s2: Next states [R, B, ds]; at a time limit the true next state.
        terminated: 1 if the episode terminated, 0 at a time limit [R, B]. With n-step targets, it
            includes their discount, so the target is r + γ (1 − terminated) · value.

    Example:
        >>> import torch
        >>> from pac4sac.agents.api import Batch
        >>> s, a, r = torch.zeros(2, 32, 3), torch.zeros(2, 32, 1), torch.zeros(2, 32)
        >>> Batch(s, a, r, s, r).s.shape
        torch.Size([2, 32, 3])
    """

    s: Tensor  # [R, B, ds]
    a: Tensor  # [R, B, da]
    r: Tensor  # [R, B]
    s2: Tensor  # [R, B, ds], the true next state, also if a time limit truncated the episode
    # [R, B], 1 if the episode terminated; a time limit does not terminate it. With n-step targets,
    # it includes their discount, so the target is r + γ (1 − terminated) · value.
    terminated: Tensor


def row_width(ds: int, da: int) -> int:
    return 2 * ds + da + 2


def pack(s: Tensor, a: Tensor, r: Tensor, s2: Tensor, terminated: Tensor) -> Tensor:
    """Pack [R, ds], [R, da], [R, 1], [R, ds] and [R, 1] into rows [R, width]."""
    return torch.cat([s, a, r, s2, terminated], -1)


def store(data: Tensor, row: Tensor, step: Tensor) -> None:
    """Write the transitions of one lockstep step into data [R, capacity, width]; `step` is the
    number of transitions stored before."""
    data.index_copy_(1, (step % data.shape[1]).reshape(1), row.unsqueeze(1))


def sample(data: Tensor, uniforms: Tensor, n: Tensor, ds: int, da: int) -> Batch:
    """Draw transitions with replacement from the first n: one for each uniform number [R, B]."""
    return at(data, indices(uniforms, n), ds, da)


def at(data: Tensor, index: Tensor, ds: int, da: int) -> Batch:
    """Return the transitions at indices [R, B] of the rings."""
    runs, capacity, width = data.shape
    first = torch.arange(runs, device=data.device).unsqueeze(1) * capacity
    rows = data.view(-1, width).index_select(0, (first + index).view(-1)).view(*index.shape, width)
    return unpack(rows, ds, da)


def join(
    data: Tensor, index: Tensor, n: Tensor, batch: Batch, steps: Tensor, longest: int, gamma: Tensor
) -> Batch:
    """Return n-step transitions. Each transition of the batch is joined with those after it, up to
    the number of steps [R] of the run. Joining stops at the end of an episode: the next transition
    in the ring then starts in another state than the one in which this transition ended."""
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


def indices(uniforms: Tensor, n: Tensor) -> Tensor:
    """Convert uniform numbers to indices among the first n transitions."""
    # clamped, because u = 1 would read the ring of the next run
    return (uniforms * n).long().clamp_max(n - 1)


def unpack(rows: Tensor, ds: int, da: int) -> Batch:
    """Unpack rows [R, B, width]."""
    s, a, r, s2, terminated = torch.split(rows, [ds, da, 1, ds, 1], -1)
    return Batch(s, a, r.squeeze(-1), s2, terminated.squeeze(-1))
