"""Coloured noise: its spectrum, its marginal distribution, and what an agent does with it."""

import math

import numpy as np
import pytest
import torch
from small_cohorts import make_agent, make_learner, tape_reading, train

from pac4sac.agents.coloured_noise import TIME_CONSTANTS, advance, correlations
from pac4sac.base.errors import UserError

STEPS = 8192


def sample(colour: str) -> np.ndarray:
    """Return noise of 64 independent runs, [64, STEPS], after a warm-up."""
    generator = torch.Generator().manual_seed(0)
    phi = torch.tensor(correlations(colour)).repeat(64, 1)
    processes = torch.randn(64, 1, phi.shape[1], generator=generator)
    rows = [
        advance(processes, torch.randn(processes.shape, generator=generator), phi)
        for _ in range(STEPS)
    ]
    return torch.cat(rows, 1).numpy()


def test_a_step_matches_values_computed_by_hand() -> None:
    processes, phi = torch.tensor([[[1.0, -2.0]]]), torch.tensor([[0.6, 0.8]])
    noise = advance(processes, torch.tensor([[[0.5, 1.0]]]), phi)
    first, second = 0.6 * 1.0 + 0.8 * 0.5, 0.8 * -2.0 + 0.6 * 1.0
    assert processes.flatten().tolist() == pytest.approx([first, second])
    assert noise.item() == pytest.approx((first + second) / math.sqrt(2))


@pytest.mark.parametrize("colour", ["pink", "ornstein-uhlenbeck"])
def test_its_variance_stays_one(colour: str) -> None:
    assert sample(colour).var() == pytest.approx(1.0, abs=0.1)


def test_ornstein_uhlenbeck_noise_has_the_correlation_of_ddpg() -> None:
    noise = sample("ornstein-uhlenbeck")
    lags = [(noise[:, lag:] * noise[:, : STEPS - lag]).mean() for lag in (1, 2)]
    assert lags == pytest.approx([0.85, 0.85**2], abs=0.03)


def test_the_power_of_pink_noise_decreases_as_1_over_f() -> None:
    power = (np.abs(np.fft.rfft(sample("pink"))) ** 2).mean(0)
    frequency = np.fft.rfftfreq(STEPS)
    inside = (frequency > 0.004) & (frequency < 0.1)
    slope = np.polyfit(np.log(frequency[inside]), np.log(power[inside]), 1)[0]
    assert slope == pytest.approx(-1.0, abs=0.15)


@pytest.mark.parametrize("algo", ["sac", "td3", "ddpg", "pac4sac-explore"])
def test_every_agent_can_explore_with_coloured_noise(algo: str) -> None:
    settings = {"noise_colour": "pink"} | ({"shots": 3} if "explore" in algo else {})
    learner = train(make_learner(algo, **settings), 14)
    processes = learner.state["noise_processes"]
    assert processes.shape[2] == len(TIME_CONSTANTS["pink"])
    assert bool((processes != 0).all())


@pytest.mark.parametrize("colour", ["pink", "ornstein-uhlenbeck"])
def test_its_variance_is_one_from_the_first_step(colour: str) -> None:
    agent = make_agent("sac", *[{}] * 400, noise_colour=colour)
    state, found = agent.initial_state(range(400), torch.device("cpu")), []
    for step in range(3):
        state["step"].fill_(step)
        draw = tape_reading(agent, range(400), step)
        noise = agent.coloured(state, draw)["candidates"]
        found.append(noise.var().item())
    assert found == pytest.approx([1.0] * 3, abs=0.15)


def test_white_noise_needs_no_state() -> None:
    agent = make_agent("sac")
    assert agent.innovations is None
    assert "noise_processes" not in agent.initial_state([0], torch.device("cpu"))


def test_a_run_draws_the_same_in_a_cohort_with_more_shots() -> None:
    alone = make_agent("sac", {"shots": 2}, noise_colour="pink")
    beside = make_agent("sac", {"shots": 2}, {"shots": 5}, noise_colour="pink")
    one, both = (tape_reading(agent, range(agent.runs))["innovations"] for agent in (alone, beside))
    assert torch.equal(one[0], both[0, :2])


def test_an_agent_without_exploration_noise_refuses_a_noise_colour() -> None:
    class Silent(type(make_agent("sac"))):  # type: ignore[misc]
        exploration_stream = ""

    config = make_agent("sac", noise_colour="pink").config
    with pytest.raises(UserError, match="exploration_stream"):
        Silent([config], 3, 2)
