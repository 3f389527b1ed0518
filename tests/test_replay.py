"""Replay: a ring per run, drawn from with replacement, in which a time limit is no end."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_cohorts import make_learner
from torch import Tensor

from pac4sac.agents import replay

DS, DA = 2, 1


def numbered_row(runs: int, step: int) -> Tensor:
    """A transition in which every component says its run and step."""
    label = 100.0 * torch.arange(runs).view(-1, 1) + step
    s, a, r, s2 = label.repeat(1, DS), label + 0.1, label + 0.2, (label + 0.3).repeat(1, DS)
    return replay.pack(s, a, r, s2, torch.full((runs, 1), float(step % 2)))


def filled(runs: int, capacity: int, steps: int) -> Tensor:
    data = torch.zeros(runs, capacity, replay.row_width(DS, DA))
    for step in range(steps):
        replay.store(data, numbered_row(runs, step), torch.tensor(step))
    return data


def test_a_full_ring_overwrites_the_oldest_transitions() -> None:
    data = filled(runs=2, capacity=4, steps=6)
    assert data[0, :, 0].tolist() == [4, 5, 2, 3]
    assert data[1, :, 0].tolist() == [104, 105, 102, 103]


def test_a_batch_holds_whole_transitions_of_the_right_run() -> None:
    batch = replay.sample(filled(3, 8, 5), torch.rand(3, 50), torch.tensor(5), DS, DA)
    step = batch.s[..., 0] % 100
    assert torch.equal(batch.s[..., 0] // 100, torch.arange(3.0).view(-1, 1).expand(3, 50))
    torch.testing.assert_close(batch.a[..., 0], batch.s[..., 0] + 0.1)
    torch.testing.assert_close(batch.r, batch.s[..., 0] + 0.2)
    torch.testing.assert_close(batch.s2, batch.s + 0.3)
    assert torch.equal(batch.terminated, step % 2)


def test_all_stored_transitions_are_drawn_equally_often() -> None:
    uniforms = (torch.arange(1000) / 1000).view(1, -1)
    batch = replay.sample(filled(1, 10, 5), uniforms, torch.tensor(5), DS, DA)
    assert torch.bincount(batch.s[0, :, 0].long()).tolist() == [200] * 5


@given(
    n=st.integers(1, 1_000_000),
    uniforms=st.lists(st.floats(0, 1, exclude_max=True, width=32), min_size=1, max_size=20),
)
def test_only_stored_transitions_are_drawn(n: int, uniforms: list[float]) -> None:
    largest = float(np.nextafter(np.float32(1), np.float32(0)))
    numbers = torch.tensor([[*uniforms, 0.0, largest]])
    ring = torch.arange(float(n)).view(1, -1, 1).expand(1, n, replay.row_width(1, 1))
    index = replay.sample(ring, numbers, torch.tensor(n), 1, 1).r
    assert index.min() >= 0
    assert index.max() <= n - 1
    assert index[0, -1] >= n - 2  # the largest uniform number reaches the newest


def test_a_uniform_number_of_one_stays_in_the_ring_of_its_run() -> None:
    batch = replay.sample(filled(2, 4, 4), torch.ones(2, 1), torch.tensor(4), DS, DA)
    assert batch.s[:, 0, 0].tolist() == [3, 103]


def test_a_time_limit_stores_the_true_final_observation() -> None:
    learner = make_learner("sac", {}, {})
    first, final, reset = (np.full((2, 3), value, np.float32) for value in (1.0, 2.0, 9.0))
    learner.begin(first)
    action = learner.act().copy()
    truncated_only = np.array([False, False])
    learner.store(final, reset, np.array([0.5, -0.5]), truncated_only)
    stored = learner.buffers["replay"][:, 0]
    expected = torch.cat(
        [
            torch.ones(2, 3),
            torch.from_numpy(action),
            torch.tensor([[0.5], [-0.5]]),
            torch.full((2, 3), 2.0),
        ],
        -1,
    )
    assert torch.equal(stored[:, :-1], expected)
    assert stored[:, -1].tolist() == [0, 0]  # bootstraps through the limit
    assert bool((learner.buffers["observation"] == 9).all())
    assert (learner.step, int(learner.state["step"])) == (1, 1)


def test_a_terminated_transition_is_marked() -> None:
    learner = make_learner("sac", {}, {})
    nothing = np.zeros((2, 3), np.float32)
    learner.begin(nothing)
    learner.act()
    learner.store(nothing, nothing, np.zeros(2), np.array([True, False]))
    assert learner.buffers["replay"][:, 0, -1].tolist() == [1, 0]


def test_an_update_draws_only_transitions_that_are_stored() -> None:
    """The rest of the ring is set to NaN: were it drawn, the run would be dead."""
    learner = make_learner("sac", {}, warmup=0, batch=4, capacity=30)
    data = learner.buffers["replay"]
    data.fill_(torch.nan)
    for step in range(8):
        learner.state["step"].fill_(step)
        replay.store(data, torch.full((1, data.shape[-1]), 0.1), learner.state["step"])
    learner.state["step"].fill_(8)
    for _ in range(20):
        learner.update()
    assert bool(learner.state["alive"].all())
    assert learner.state["critic/count"].item() == 20


def test_steps_are_joined_up_to_the_end_of_their_episode() -> None:
    """Three steps cut by a time limit, two that end, and the youngest; r = 1, 2, 4 … and γ = ½."""
    chain = [
        (0.0, 1.0, 0.0),
        (1.0, 2.0, 0.0),
        (2.0, 3.0, 0.0),
        (10.0, 11.0, 0.0),
        (11.0, 12.0, 1.0),
        (20.0, 21.0, 0.0),
    ]
    rows = [[s, 0.0, 2.0**k, s2, ended] for k, (s, s2, ended) in enumerate(chain)]
    data = torch.tensor([rows, rows])
    index, n, gamma = torch.arange(6).expand(2, 6), torch.tensor(6), torch.tensor([0.5, 0.5])
    single = replay.at(data, index, 1, 1)
    batch = replay.join(data, index, n, single, torch.tensor([3.0, 1.0]), 3, gamma)
    assert batch.r[0].tolist() == [1 + 2 / 2 + 4 / 4, 2 + 4 / 2, 4, 8 + 16 / 2, 16, 32]
    assert batch.s2[0, :, 0].tolist() == [3, 3, 3, 12, 12, 21]
    # of what follows
    assert (0.5 * (1 - batch.terminated[0])).tolist() == [0.5**3, 0.5**2, 0.5, 0, 0, 0.5]
    assert torch.equal(batch.s, single.s)
    assert torch.equal(batch.a, single.a)
    # the run that takes one step keeps its bits
    for joined, alone in zip(batch, single, strict=True):
        assert torch.equal(joined[1], alone[1])


def test_transitions_are_not_joined_across_the_newest_one_or_to_empty_rows() -> None:
    """A state of zeros looks like the start of an empty place; a ring that is full begins again
    behind its youngest."""
    half_full = torch.tensor([[[5.0, 0.0, 1.0, 0.0, 0.0], [0.0] * 5]])
    # in the order 5, 6, 7
    full = torch.tensor([[[7.0, 0.0, 1.0, 8.0, 0.0], [5.0, 0.0, 1.0, 6.0, 0.0]]])
    for data, n in ((half_full, 1), (full, 2)):
        index = torch.tensor([[0]])
        batch = replay.join(
            data,
            index,
            torch.tensor(n),
            replay.at(data, index, 1, 1),
            torch.tensor([9.0]),
            9,
            torch.ones(1),
        )
        assert batch.r.item() == 1.0
        assert batch.terminated.item() == 0.0
