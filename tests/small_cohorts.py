"""Small cohorts for the tests of agents: tiny networks, a made-up world, and networks whose numbers
fit on paper."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch._inductor
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents import get_algorithm, make_config
from pac4sac.agents.base import Agent, State
from pac4sac.agents.replay import Batch
from pac4sac.agents.tape import BLOCK, Tape, read
from pac4sac.training.backends import prepare
from pac4sac.training.learner import Learner
from pac4sac.training.value_error import ValueErrors

torch.set_num_threads(1)  # two threads on matrices this small only wait for each other
CPU = torch.device("cpu")
DS, DA = 3, 2
TINY = {"width": 8, "depth": 2, "batch": 6, "capacity": 64, "warmup": 8}
# what there is many of by default
TINIER = {"tqc": {"critics": 3, "quantiles": 4}, "redq": {"critics": 4}}
TINIER |= {"xqc": {"bins": 11}, "flashsac": {"bins": 11, "depth": 1}}


def make_agent(
    algo: str, *runs: Mapping[str, Any], ds: int = DS, da: int = DA, **common: Any
) -> Agent:
    """An agent for as many runs as settings are given, one at least."""
    agent = get_algorithm(algo).agent
    preset = "reproduction" if "reproduction" in agent.presets else "default"
    configs = [
        make_config(algo, preset, {**TINY, **TINIER.get(algo, {}), **common, **run})
        for run in (runs or ({},))
    ]
    return agent(configs, ds, da)


def value_errors(m: Any, v: Any, g: Any, judged: Any, deviation: Any = None) -> ValueErrors:
    """Claims and outcomes [E, T] alone, of episodes of which nothing else is known. The deviation
    that is offered is the root of v unless another is given."""
    unknown = np.zeros_like(m)
    seen = np.zeros((*m.shape, 1), np.float32)
    length = np.full(len(m), m.shape[1])
    offered = np.sqrt(v) if deviation is None else deviation
    return ValueErrors(
        0.0,
        0.0,
        length,
        length < 0,
        seen,
        seen,
        unknown,
        unknown,
        m,
        v,
        offered,
        g,
        unknown,
        judged,
    )


def make_learner(
    algo: str, *runs: Mapping[str, Any], seeds: Sequence[int] | None = None, **common: Any
) -> Learner:
    agent = make_agent(algo, *runs, **common)
    return Learner(agent, seeds or range(agent.runs), steps=1000, device=CPU)


def tape_reading(agent: Agent, seeds: Sequence[int], position: int = 0) -> dict[str, Tensor]:
    """All random numbers of one act and one update."""
    tape = Tape(seeds, agent.act_streams() | agent.learn_streams(), CPU)
    tape.seek(position)
    return read(tape.blocks, torch.tensor(position % BLOCK))


def random_batch(runs: int = 1, size: int = 6, ds: int = DS, da: int = DA, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    s, s2 = torch.randn(2, runs, size, ds, generator=generator)
    a = 2 * torch.rand(runs, size, da, generator=generator) - 1
    r = torch.randn(runs, size, generator=generator)
    terminated = (torch.arange(size) % 3 == 2).float().expand(runs, size)
    return Batch(s, a, r, s2, terminated)


class SyntheticEnvironment:
    """A made-up environment, stepped for all runs at once; what happens to a run depends on its
    seed and actions."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.generators = [np.random.default_rng(seed) for seed in seeds]
        self.state = self.noise()

    def noise(self) -> NDArray[np.float32]:
        return np.stack([generator.normal(size=DS) for generator in self.generators]).astype(
            np.float32
        )

    def step(self, learner: Learner) -> None:
        actions = learner.act().copy()
        s2 = 0.8 * self.state + 0.3 * actions[:, [0, 1, 0]] + 0.2 * self.noise()
        r = -np.square(s2).sum(-1).astype(np.float64)
        terminated = np.abs(s2).max(-1) > 2
        self.state = np.where(terminated[:, None], self.noise(), s2)
        learner.store(s2, self.state, r, terminated)


def train(learner: Learner, steps: int) -> Learner:
    """Act in the made-up world and learn."""
    world = SyntheticEnvironment(learner.act_tape.seeds)
    learner.begin(world.state)
    for _ in range(steps):
        learner.learn()
        world.step(learner)
    return learner


# --- backends


def trace_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled backend but for the C++ compiler, which takes minutes and may not be there: the
    traced operations are run as they are."""
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, *_, **__: traced)


def assert_compiled_learns_as_eager(learner: Learner, eager: Learner) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert prepare(learner, "compiled") == "compiled"
    for one in (learner, eager):
        train(one, 14)
    assert learner.state["critic/count"].tolist() == [6, 6]
    for name, tensor in eager.tensors.items():
        torch.testing.assert_close(
            learner.tensors[name],
            tensor,
            rtol=1e-3,
            atol=1e-4,
            msg=lambda m, name=name: f"{name}: {m}",
        )


# --- networks whose numbers fit on paper: one state, one action, two hidden ReLU units, φ = (max(s,
# 0), max(a, 0))

ON_PAPER = {
    "width": 2,
    "depth": 1,
    "norm": False,
    "activation": "relu",
    "batch": 2,
    "capacity": 25,
    "warmup": 0,
}


def hand_computed_agent(algo: str, *runs: Mapping[str, Any], **common: Any) -> tuple[Agent, State]:
    """Critics with φ = (max(s, 0), max(a, 0)) and heads of zero; an actor of mean 0 and deviation 1
    everywhere."""
    agent = make_agent(algo, *runs, ds=1, da=1, **{**ON_PAPER, **common})
    state = agent.initial_state(range(agent.runs), CPU)
    for name in agent.nets:
        for copy in (name, f"{name}/target"):
            if copy in state:
                state[copy].zero_()
                if name != "actor":
                    weights = agent.params(state, copy)
                    weights["0.weight"].copy_(torch.eye(2))
    return agent, state


def set_head(agent: Agent, state: State, name: str, *members: Mapping[str, Any]) -> None:
    """Give the head of a network its numbers, for each member: weight, bias, variance."""
    views = agent.params(state, name)
    for member, numbers in enumerate(members):
        for key, value in numbers.items():
            if key == "variance":
                views["head.log_variance"][member :: len(members), :, 0] = torch.tensor(value).log()
            elif key == "weight":
                views["head.weight"][member :: len(members), :, 0] = torch.tensor(value)
            else:
                views["head.bias"][member :: len(members)] = torch.tensor(value)


def column(*values: float) -> Tensor:
    """Numbers for one run, a batch of them with one component: [1, B, 1]."""
    return torch.tensor(values).view(1, -1, 1)
