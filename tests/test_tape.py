"""Tapes: the random numbers of a run are a function of its seed, the stream and the position, and
of nothing else."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from pac4sac.agents.tape import BLOCK, Stream, Tape, initial_uniforms, read, size

CPU = torch.device("cpu")
STREAMS = {"noise": Stream((2, 3)), "index": Stream((4,), uniform=True)}


def reading(tape: Tape, position: int) -> dict[str, Tensor]:
    tape.seek(position)
    return read(tape.blocks, torch.tensor(position))


def test_a_tape_read_twice_gives_the_same_numbers_in_any_order() -> None:
    positions = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 7]
    forwards = Tape([3, 5], STREAMS, CPU)
    first = [reading(forwards, position) for position in positions]
    backwards = Tape([3, 5], STREAMS, CPU)
    second = [reading(backwards, position) for position in reversed(positions)][::-1]
    for one, other in zip(first, second, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in STREAMS)


def test_numbers_never_repeat_between_positions_runs_or_streams() -> None:
    tape = Tape([0, 1], {"a": Stream((2,)), "b": Stream((2,))}, CPU)
    seen = [
        tuple(numbers[run].tolist())
        for position in range(2 * BLOCK + 5)
        for numbers in reading(tape, position).values()
        for run in range(2)
    ]
    assert len(set(seen)) == len(seen)


def test_the_numbers_of_a_run_do_not_depend_on_its_cohort() -> None:
    alone, crowd = Tape([11], STREAMS, CPU), Tape([5, 11, 2], STREAMS, CPU)
    for position in (0, BLOCK + 3):
        one, many = reading(alone, position), reading(crowd, position)
        assert all(torch.equal(one[name][0], many[name][1]) for name in STREAMS)


def test_a_stream_does_not_depend_on_other_streams() -> None:
    alone, beside = Tape([11], {"noise": STREAMS["noise"]}, CPU), Tape([11], STREAMS, CPU)
    assert torch.equal(reading(alone, 70)["noise"], reading(beside, 70)["noise"])


def test_a_run_with_fewer_rows_has_zeros_in_the_rest() -> None:
    crowd = Tape([4, 8], {"candidates": Stream((5, 2), rows=(5, 3))}, CPU)
    alone = Tape([8], {"candidates": Stream((3, 2), rows=(3,))}, CPU)
    for position in (0, 2 * BLOCK + 1, 1):
        many, one = reading(crowd, position)["candidates"], reading(alone, position)["candidates"]
        assert torch.equal(many[1, :3], one[0])
        assert not many[1, 3:].any()
        assert bool((many[0] != 0).all())


def test_streams_are_standard_normal_or_uniform_on_zero_to_one() -> None:
    tape = Tape([1], {"normal": Stream((400,)), "uniform": Stream((400,), uniform=True)}, CPU)
    tape.seek(0)
    normal, uniform = (tape.blocks[name].numpy().ravel() for name in ("normal", "uniform"))
    assert stats.kstest(normal, "norm").pvalue > 1e-3
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    assert 0 <= uniform.min() <= uniform.max() < 1


def test_a_block_is_drawn_by_seed_stream_and_number() -> None:
    def block(seed: int, name: str, number: int, runs_before: int = 0) -> Tensor:
        tape = Tape([*range(100, 100 + runs_before), seed], {name: Stream((50,))}, CPU, length=2)
        tape.seek(2 * number)
        return tape.blocks[name][-1]

    blocks = [block(0, "a", 0), block(1, "a", 0), block(0, "b", 0), block(0, "a", 1)]
    assert np.abs(np.corrcoef(torch.stack(blocks).flatten(1).numpy()) - np.eye(4)).max() < 0.4
    assert torch.equal(blocks[0], block(0, "a", 0, runs_before=7))


def test_initial_uniforms_are_one_row_per_run_from_its_seed() -> None:
    numbers = initial_uniforms([3, 9], "initial/critic", 40, CPU)
    assert numbers.shape == (2, 40)
    assert torch.equal(numbers[1:], initial_uniforms([9], "initial/critic", 40, CPU))


def test_seeking_within_a_block_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = Tape([3], STREAMS, CPU)
    tape.seek(0)
    monkeypatch.setattr(
        "pac4sac.agents.tape.Part.draw", lambda *_: pytest.fail("the block was there already")
    )
    tape.seek(BLOCK - 1)


def test_the_size_of_a_tape_counts_one_block_of_all_streams() -> None:
    assert size(STREAMS) == BLOCK * (6 + 4)
