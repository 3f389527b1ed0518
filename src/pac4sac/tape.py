"""The random numbers of a cohort: one tape per run, in blocks, each block from a generator seeded by
(run seed, stream, block number). A run therefore draws the same numbers in any cohort, a checkpoint stores counters
and no generator state, and a captured CUDA graph only reads a position.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLOCK = 64  # readings per block: long enough to make drawing cheap, short enough to fit any memory


@dataclass(frozen=True)
class Stream:
    """What one reading of a stream is: its shape, and for a run with fewer rows than the widest, how many it has."""

    shape: tuple[int, ...]
    uniform: bool = False  # uniform on [0, 1); otherwise standard normal
    rows: tuple[int, ...] | None = None  # per run, the length of the first axis; the rest of it stays zero


def seeded_generator(seed: int, stream: str, block: int, device: torch.device) -> torch.Generator:
    entropy = np.random.SeedSequence((seed, zlib.crc32(stream.encode()), block)).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(entropy))


def draw(stream: Stream, name: str, seed: int, run: int, block: int, length: int, device: torch.device) -> Tensor:
    """One block of one run, [length, ...], with the run's own number of rows."""
    shape = stream.shape if stream.rows is None else (stream.rows[run], *stream.shape[1:])
    generator = seeded_generator(seed, name, block, device)
    sample = torch.rand if stream.uniform else torch.randn
    return sample((length, *shape), generator=generator, device=device)


class Tape:
    """The current block of every stream, for all runs: `blocks[name]` is [BLOCK, R, *shape]."""

    def __init__(self, seeds: Sequence[int], streams: Mapping[str, Stream], device: torch.device) -> None:
        self.seeds = tuple(seeds)
        self.streams = dict(streams)
        self.device = device
        self.blocks = {
            name: torch.zeros(BLOCK, len(self.seeds), *stream.shape, device=device)
            for name, stream in self.streams.items()
        }
        self._loaded = -1

    def seek(self, position: int) -> None:
        """Make sure that the block which holds a position is the current one."""
        block = position // BLOCK
        if block == self._loaded:
            return
        for name, stream in self.streams.items():
            for run, seed in enumerate(self.seeds):
                numbers = draw(stream, name, seed, run, block, BLOCK, self.device)
                rows = numbers.shape[1] if stream.rows is not None else None
                self.blocks[name][:, run, :rows] = numbers
        self._loaded = block


def read(blocks: Mapping[str, Tensor], position: Tensor) -> dict[str, Tensor]:
    """The numbers at a position that lives on the device, {name: [R, *shape]}."""
    row = (position % BLOCK).reshape(1)
    return {name: block.index_select(0, row)[0] for name, block in blocks.items()}


def initial_uniforms(seeds: Sequence[int], name: str, count: int, device: torch.device) -> Tensor:
    """[R, count] uniform numbers for initial weights, each run from its own tape."""
    stream = Stream((count,), uniform=True)
    return torch.stack([draw(stream, name, seed, run, 0, 1, device)[0] for run, seed in enumerate(seeds)])


def size(streams: Mapping[str, Stream]) -> int:
    """Numbers per run that a tape of these streams keeps in memory."""
    return BLOCK * sum(math.prod(stream.shape) for stream in streams.values())
