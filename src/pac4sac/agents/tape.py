"""The random numbers of a cohort. Each run has a tape that consists of blocks. A generator seeded
with (run seed, stream, block number) draws each block. A run therefore draws the same numbers in
any cohort. A checkpoint stores counters instead of generator states, and a captured CUDA graph only
reads a position."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pac4sac.base.errors import UserError

BLOCK = 64  # positions per block: enough for efficient drawing, and few enough to fit in memory


@dataclass(frozen=True)
class Stream:
    """Declare the random numbers of a stream at one position.

    Attributes:
        shape: Shape for one run.
        uniform: Whether they are uniform on [0, 1) instead of standard normal.
        rows: Length of the first axis for each run, if runs differ; the rest is zero.

    Example:
        >>> from pac4sac.agents.api import Stream
        >>> Stream((32, 1)).uniform
        False
    """

    shape: tuple[int, ...]
    uniform: bool = False  # uniform on [0, 1) instead of standard normal
    rows: tuple[int, ...] | None = None  # length of the first axis of each run; the rest is zero


@dataclass(frozen=True)
class Part:
    """Hold a view of one run's numbers in a block, and their seed."""

    place: Tensor
    uniform: bool
    source: str

    def draw(self, number: int, generator: torch.Generator) -> None:
        digest = hashlib.blake2b(f"{self.source} {number}".encode(), digest_size=8).digest()
        generator.manual_seed(int.from_bytes(digest, "little"))
        # A strided view is drawn separately, so that a run gets the same numbers as when it trains
        # alone.
        out = self.place if self.place.is_contiguous() else self.place.new_empty(self.place.shape)
        (out.uniform_ if self.uniform else out.normal_)(generator=generator)
        if out is not self.place:
            self.place.copy_(out)


class Tape:
    """Hold the current block of every stream for all runs. `blocks[name]` is [R, lanes · length,
    *shape]. With several lanes, each position has independent numbers in each lane."""

    def __init__(
        self,
        seeds: Sequence[int],
        streams: Mapping[str, Stream],
        device: torch.device,
        length: int = BLOCK,
        lanes: int = 1,
    ) -> None:
        self.seeds = tuple(seeds)
        self.streams = dict(streams)
        self.device, self.length, self.lanes = device, length, lanes
        self.blocks = {
            name: torch.zeros(len(self.seeds), lanes * length, *stream.shape, device=device)
            for name, stream in self.streams.items()
        }
        self._generator = torch.Generator(device)
        self._parts = [
            Part(
                self._place(name, run, lane),
                stream.uniform,
                f"{seed} {name}" + (f" {lane}" if lane else ""),
            )
            for name, stream in self.streams.items()
            for run, seed in enumerate(self.seeds)
            for lane in range(lanes)
        ]
        self._loaded = -1

    def _place(self, name: str, run: int, lane: int) -> Tensor:
        rows = self.streams[name].rows
        block = self.blocks[name][run, lane * self.length : (lane + 1) * self.length]
        return block if rows is None else block[:, : rows[run]]

    def seek(self, position: int) -> None:
        """Load the block that holds a position."""
        number = position // self.length
        if number != self._loaded:
            for part in self._parts:
                part.draw(number, self._generator)
            self._loaded = number


class Reading(dict[str, Tensor]):
    """Hold the numbers of all streams at one position, {name: [R, *shape]}."""

    def __missing__(self, name: str) -> Tensor:
        raise UserError(
            f"Unknown random stream {name!r}; declared streams: {', '.join(self) or 'none'}. "
            "Declare streams for learning in the agent's update_streams(), and streams for "
            "acting in its behaviour_streams()."
        )


def read(blocks: Mapping[str, Tensor], position: Tensor) -> Reading:
    """Read the numbers at a position that a device tensor holds; lane k is at position + k ·
    length."""
    at = {name: (position % block.shape[1]).reshape(1) for name, block in blocks.items()}
    return Reading(
        {name: block.index_select(1, at[name]).squeeze(1) for name, block in blocks.items()}
    )


def initial_uniforms(seeds: Sequence[int], name: str, count: int, device: torch.device) -> Tensor:
    """Return uniform numbers [R, count] for initial weights; each run draws them from its own
    tape."""
    tape = Tape(seeds, {name: Stream((count,), uniform=True)}, device, length=1)
    tape.seek(0)
    return tape.blocks[name].squeeze(1)


def scrambled(x: Tensor) -> Tensor:
    """Hash integers below 2³² one to one."""
    for _ in range(2):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def hashed_uniforms(keys: Tensor, count: int) -> Tensor:
    """Return numbers in [0, 1), [K, count], as hashes of keys [K] in [0, 1). Use this when more
    numbers are needed than a tape can store."""
    key = scrambled((keys * 2**24).long()).unsqueeze(-1)
    return (scrambled(scrambled(torch.arange(count, device=keys.device)) ^ key) >> 8) / 2**24


def size(streams: Mapping[str, Stream], length: int = BLOCK) -> int:
    """Return the number of values per run that a tape of these streams keeps in memory."""
    return length * sum(math.prod(stream.shape) for stream in streams.values())
