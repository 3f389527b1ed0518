"""The rivals' equations: SAC, DDPG, OAC and its variants, and the two reconstructions."""

import math
from typing import Any

import pytest
import torch
from small_cohorts import (
    CPU,
    column,
    hand_computed_agent,
    make_agent,
    make_learner,
    random_batch,
    set_head,
    tape_reading,
)
from torch import Tensor

from pac4sac.agents.base import Agent, State, Target
from pac4sac.agents.oac import Oac
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac
from pac4sac.agents.variants.sac_fpi import SacFpi

BATCH = Batch(
    s=column(1.0, 2.0),
    a=column(0.5, 1.0),
    r=torch.tensor([[1.0, -1.0]]),
    s2=column(2.0, 1.0),
    terminated=torch.tensor([[0.0, 0.0]]),
)
# u of a policy of mean 0 and deviation 1; log π worked out in test_agents_equations
NOISE = column(0.5, -1.0)
TANH_HALF = math.tanh(0.5)
LOG_PI = (-0.80370930, -0.55137687)
TWINS = ({"weight": [1.0, 2.0], "bias": 0.0}, {"weight": [2.0, -1.0], "bias": 0.0})


def trained_state(agent: Agent, seeds: list[int] | None = None) -> State:
    """A state in which no network is like another, none of its numbers special."""
    state = agent.initial_state(seeds or list(range(agent.runs)), CPU)
    generator = torch.Generator().manual_seed(5)
    for name in list(agent.nets) + [f"{name}/target" for name in agent.with_target]:
        state[name] += 0.2 * torch.randn(state[name].shape, generator=generator)
    state["step"].fill_(64)
    return state


def in_float64(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}


# --- SAC


def test_sac_bootstraps_from_the_smaller_target_critic() -> None:
    agent, state = hand_computed_agent("sac", gamma=0.9, alpha=0.2)
    set_head(agent, state, "critic/target", *TWINS)
    y = agent.bellman_target(state, BATCH, {"target": NOISE}).y
    # (s′, a′) = (2, tanh ½): min(2 + 2 tanh ½, 4 − tanh ½) is the first; (1, tanh −1), φ_2 = 0:
    # min(1, 2)
    expected = [1 + 0.9 * (2 + 2 * TANH_HALF - 0.2 * LOG_PI[0]), -1 + 0.9 * (1 - 0.2 * LOG_PI[1])]
    torch.testing.assert_close(y, torch.tensor([expected]))


def test_both_critics_regress_on_the_target_and_the_actor_uses_the_minimum() -> None:
    agent, state = hand_computed_agent("sac", alpha=0.2)
    set_head(agent, state, "critic", *TWINS)
    critic_loss, log = agent.critic_loss(
        state, agent.params(state, "critic"), BATCH, Target(torch.tensor([[1.0, 0.0]]), BATCH.a), {}
    )
    # Q_1 = (1 + 2·0.5, 2 + 2·1), Q_2 = (2 − 0.5, 4 − 1)
    assert critic_loss.item() == pytest.approx(
        ((1 - 2) ** 2 + 4**2) / 2 + ((1 - 1.5) ** 2 + 3**2) / 2
    )
    assert log["q"].item() == pytest.approx((2 + 4 + 1.5 + 3) / 4)
    actor_loss, _ = agent.actor_loss(state, agent.params(state, "actor"), BATCH, {"actor": NOISE})
    smaller = (min(1 + 2 * TANH_HALF, 2 - TANH_HALF), min(2, 4))
    expected = sum(0.2 * log_pi - q for log_pi, q in zip(LOG_PI, smaller, strict=True)) / 2
    assert actor_loss.item() == pytest.approx(expected, rel=1e-6)


def test_alpha_differs_between_the_runs_of_a_cohort() -> None:
    agent, state = hand_computed_agent(
        "sac", {"alpha": 0.0}, {"alpha": 0.5}, {"alpha": 0.9, "learn_alpha": True}
    )
    batch = Batch(*(part.expand(3, *part.shape[1:]) for part in BATCH))
    loss, log = agent.actor_loss(
        state, agent.params(state, "actor"), batch, {"actor": NOISE.expand(3, -1, -1)}
    )
    mean_log_pi = sum(LOG_PI) / 2  # Q is 0 everywhere
    assert loss.tolist() == pytest.approx([0.0, 0.5 * mean_log_pi, 0.9 * mean_log_pi], rel=1e-6)
    assert log["alpha"].tolist() == pytest.approx([0.0, 0.5, 0.9])


# --- DDPG


def test_ddpg_bootstraps_from_its_target_networks() -> None:
    agent, state = hand_computed_agent("ddpg", gamma=0.9)
    set_head(agent, state, "critic/target", {"weight": [1.0, 2.0], "bias": 0.5})
    # the online actor still says tanh 0
    agent.params(state, "actor/target")["head.bias"].fill_(0.5)
    target = agent.bellman_target(state, BATCH._replace(terminated=torch.tensor([[0.0, 1.0]])), {})
    torch.testing.assert_close(target.a2, column(TANH_HALF, TANH_HALF))
    torch.testing.assert_close(
        target.y, torch.tensor([[1 + 0.9 * (2 + 2 * TANH_HALF + 0.5), -1.0]])
    )


def test_ddpg_maximises_its_critic_and_explores_with_clipped_noise() -> None:
    agent, state = hand_computed_agent("ddpg", {"noise": 0.1}, {"noise": 2.0})
    set_head(agent, state, "critic", {"weight": [1.0, 2.0], "bias": 0.5})
    agent.params(state, "actor")["head.bias"].fill_(0.5)
    batch = Batch(*(part.expand(2, *part.shape[1:]) for part in BATCH))
    loss, _ = agent.actor_loss(state, agent.params(state, "actor"), batch, {})
    assert loss.tolist() == pytest.approx([-(1.5 + 2 * TANH_HALF + 0.5)] * 2)
    noise = torch.tensor([3.0, -1.0]).view(1, 2, 1).expand(2, -1, -1)
    actions = agent.behaviour(state, batch.s, {"noise": noise}).squeeze(-1)
    torch.testing.assert_close(
        actions, torch.tensor([[TANH_HALF + 0.3, TANH_HALF - 0.1], [1.0, -1.0]])
    )


DRIFTING = {"noise_kind": "ornstein-uhlenbeck", "noise": 0.3}


def test_ornstein_uhlenbeck_noise_is_correlated_decays_and_restarts_in_each_episode() -> None:
    """Beside a run with white noise, which knows nothing of it. The actor says 0, so that actions
    are noise."""
    agent, state = hand_computed_agent("ddpg", DRIFTING, {"noise": 0.3})
    s = torch.ones(2, 1)

    def actions(epsilon: float) -> list[float]:
        draw = {"noise": torch.full((2, 1, 1), epsilon), "warmup": torch.zeros(2, 1)}
        a = agent.act(state, s, draw).flatten().tolist()
        state["step"] += 1
        return a

    # Episode 0 has k = 0 and σ = 0.3: x = 0.3, then 0.85 · 0.3 − 0.6, then 0.85 · (−0.345) + 1.5,
    # of which 1 is left.
    assert actions(1.0) == pytest.approx([0.3, 0.3])
    assert actions(-2.0) == pytest.approx([-0.345, -0.6])
    assert actions(5.0) == pytest.approx([1.0, 1.0])
    # the action is clipped, the noise is not
    assert state["noise"][0].item() == pytest.approx(1.20675)
    agent.end_of_episode(state, torch.tensor([False, True]))
    assert actions(0.0) == pytest.approx([1.0, 0.0])  # 0.85 · 1.20675 = 1.0257
    agent.end_of_episode(state, torch.tensor([True, True]))
    assert actions(0.0) == [0.0, 0.0]
    # 25 episodes later, in step 1000 of episode 26: k = 26,000 and σ = 0.3 · 0.74.
    state["episode"] += 25
    state["step"] += 999
    assert actions(1.0) == pytest.approx([0.222, 0.3])
    # In step 4000, k = 104,000: nothing new comes, and what there was goes.
    state["step"] += 2999
    assert actions(1.0) == pytest.approx([0.85 * 0.222, 0.3])


@pytest.mark.parametrize("algo", ["ddpg", "pac4ddpg"])
def test_white_exploration_noise_is_unchanged_and_needs_no_state(algo: str) -> None:
    alone, beside = (
        make_learner(algo, {}, seeds=[3]),
        make_learner(algo, {}, DRIFTING, seeds=[3, 4]),
    )
    # so that older checkpoints stay whole
    assert not {"noise", "episode", "episode_began"} & alone.state.keys()
    s, draw = torch.randn(1, 4, 3), {"noise": torch.randn(1, 4, 2)}
    for learner in (alone, beside):
        state = {name: t[:1] if t.dim() else t for name, t in learner.state.items()}
        white = learner.agent.deterministic_action(state, s) + 0.1 * draw["noise"]
        assert torch.equal(learner.agent.behaviour(state, s, draw), white.clamp(-1, 1))


def test_with_a_pac_bayes_critic_the_noise_still_starts_at_0_in_each_episode() -> None:
    agent = make_agent("pac4ddpg", DRIFTING)
    state = agent.initial_state([0], CPU)
    state["noise"].fill_(0.5)
    agent.end_of_episode(state, torch.tensor([True]))
    assert not state["noise"].any()
    assert state["episode"].tolist() == [1]


# --- OAC


def shifted_mean_of_one_state(
    agent: Oac, state: State, run: int, s: Tensor, deviation: str
) -> Tensor:
    """OAC's formula for a single state of a single run: gradient by central differences, in double
    precision."""
    alone = OneRunInFloat64(agent, state, run)
    mean, std = (x[0, 0] for x in alone.actor(alone.weights("actor"), s.double().view(1, 1, -1)))

    def upper_bound(mu: Tensor) -> Tensor:
        m, v = alone.critic(
            alone.weights("critic"), s.double().view(1, 1, -1), torch.tanh(mu).view(1, 1, -1)
        )
        q = m.flatten()
        sigma = (q[0] - q[1]).abs() / 2 if deviation == "twins" else v.flatten()[0].sqrt()
        return q.mean() + float(state["hyper/beta"][run]) * sigma

    h = 1e-6 * torch.eye(len(mean), dtype=torch.float64)
    g = torch.stack([(upper_bound(mean + e) - upper_bound(mean - e)) / 2e-6 for e in h])
    covariance = torch.diag(std.square())
    delta = float(state["hyper/shift"][run])
    return mean + math.sqrt(2 * delta) * covariance @ g / (torch.sqrt(g @ covariance @ g) + 1e-5)


class OneRunInFloat64:
    def __init__(self, agent: Agent, state: State, run: int) -> None:
        self.agent = agent
        self.state = {name: state[name][run : run + 1].double() for name in agent.nets}
        self.actor, self.critic = agent.nets["actor"], agent.critic

    def weights(self, name: str) -> dict[str, Tensor]:
        return dict(self.agent.params(self.state, name))


@pytest.mark.parametrize(
    ("algo", "deviation"), [("oac", "twins"), ("oac-lab", "twins"), ("oac-gauss", "variance")]
)
def test_oac_shifts_the_mean_of_each_state_by_its_formula(algo: str, deviation: str) -> None:
    agent = make_agent(algo, {}, {"beta": -1.0, "shift": 0.5})
    state = trained_state(agent)
    s = torch.randn(2, 4, agent.ds, generator=torch.Generator().manual_seed(1))
    mean, std = agent.proposal(state, s)
    plain_mean, plain_std = agent.actor(agent.params(state, "actor"), s)
    assert torch.equal(std, plain_std)
    assert (mean - plain_mean).abs().min() > 1e-3
    for run in range(2):
        for i in range(4):
            expected = shifted_mean_of_one_state(agent, state, run, s[run, i], deviation)
            torch.testing.assert_close(mean[run, i].double(), expected, rtol=1e-3, atol=1e-4)


def test_the_shift_stays_within_its_kl_budget() -> None:
    """KL of two Gaussians with the same covariance: ½ Δᵀ Σ⁻¹ Δ, which the formula makes δ."""
    agent = make_agent("oac", {"shift": 0.3}, {"shift": 23.53})
    state = trained_state(agent)
    s = torch.randn(2, 4, agent.ds)
    mean, std = agent.proposal(state, s)
    plain_mean, _ = agent.actor(agent.params(state, "actor"), s)
    kl = 0.5 * ((mean - plain_mean) / std).square().sum(-1)
    torch.testing.assert_close(kl, torch.tensor([[0.3], [23.53]]).expand(2, 4), rtol=1e-2, atol=0.0)


def test_equal_critics_or_a_constant_critic_give_no_shift() -> None:
    agent, state = hand_computed_agent("oac")  # Q = 0
    mean, _ = agent.proposal(state, BATCH.s)
    assert not mean.any()


def test_only_the_behaviour_policy_is_optimistic() -> None:
    agent = make_agent("oac")
    state = trained_state(agent)
    s = torch.randn(1, 3, agent.ds)
    mean, _ = agent.actor(agent.params(state, "actor"), s)
    torch.testing.assert_close(agent.deterministic_action(state, s), torch.tanh(mean))
    sac = make_agent("sac")
    batch, draw = random_batch(), tape_reading(agent, [0])
    assert torch.equal(
        agent.bellman_target(state, batch, draw).y, sac.bellman_target(state, batch, draw).y
    )


@pytest.mark.parametrize("algo", ["oac", "oac-gauss", "oac-lab"])
def test_oac_acts_when_gradients_are_disabled(algo: str) -> None:
    agent = make_agent(algo, shots=3)
    state = trained_state(agent)
    s, draw = torch.randn(1, 1, agent.ds), tape_reading(agent, [0])
    with torch.no_grad():
        silent = agent.behaviour(state, s, draw)
    assert torch.equal(silent, agent.behaviour(state, s, draw))


def test_oac_gauss_trains_its_actor_on_the_mean() -> None:
    agent = make_agent("oac-gauss", log_variance=0.0)
    state, batch = trained_state(agent), random_batch()
    draw = tape_reading(agent, [0])
    noisy = {**draw, "actor_value": torch.full_like(draw["actor_value"], 5.0)}
    weights = agent.params(state, "actor")
    assert torch.equal(
        agent.actor_loss(state, weights, batch, draw)[0],
        agent.actor_loss(state, weights, batch, noisy)[0],
    )


def test_oac_lab_smooths_the_target_action_and_has_no_entropy() -> None:
    agent, state = hand_computed_agent("oac-lab", gamma=0.9)
    set_head(agent, state, "critic/target", *TWINS)
    agent.params(state, "actor/target")["head.bias"][..., 0] = (
        2.0  # mean 2; the online actor's is 0
    )
    target = agent.bellman_target(state, BATCH, {"target": torch.tensor([0.1, 9.0]).view(1, 2, 1)})
    # the noise is clipped at ½, the action is not
    a2 = (math.tanh(2) + 0.447 * 0.1, math.tanh(2) + 0.5)
    torch.testing.assert_close(target.a2, column(*a2))
    y = [1 + 0.9 * min(2 + 2 * a2[0], 4 - a2[0]), -1 + 0.9 * min(1 + 2 * a2[1], 2 - a2[1])]
    torch.testing.assert_close(target.y, torch.tensor([y]))
    set_head(agent, state, "critic", *TWINS)
    loss, _ = agent.actor_loss(state, agent.params(state, "actor"), BATCH, {"actor": NOISE})
    smaller = (min(1 + 2 * TANH_HALF, 2 - TANH_HALF), min(2, 4))
    assert loss.item() == pytest.approx(-sum(smaller) / 2, rel=1e-6)


# --- SAC-FPI


def fpi_in_float64() -> tuple[SacFpi, State, Batch, dict[str, Tensor]]:
    agent = make_agent("sac-fpi")
    assert isinstance(agent, SacFpi)
    state = in_float64(trained_state(agent))
    return (
        agent,
        state,
        Batch(*(part.double() for part in random_batch())),
        in_float64(tape_reading(agent, [0])),
    )


def test_fpi_minimises_the_residual_minus_that_of_the_helper() -> None:
    agent, state, batch, draw = fpi_in_float64()
    target = agent.bellman_target(state, batch, draw)
    loss, _ = agent.critic_loss(state, agent.params(state, "critic"), batch, target, draw)
    a2, log_pi = target
    q, q2 = (
        agent.critic(agent.params(state, "critic"), *pair)[0][0, 0]
        for pair in ((batch.s, batch.a), (batch.s2, a2))
    )
    h = agent.helper(agent.params(state, "helper"), batch.s, batch.a)[0][0, 0]
    y = batch.r[0] + 0.99 * (1 - batch.terminated[0]) * (q2 - 0.2 * log_pi[0])
    torch.testing.assert_close(loss[0], ((q - y) ** 2 - (h - y) ** 2).mean(), rtol=1e-6, atol=1e-9)
    helper_loss, _ = agent.helper_loss(agent.params(state, "helper"), batch, y[None])
    torch.testing.assert_close(helper_loss[0], ((h - y) ** 2).mean())


def test_fpi_has_a_gradient_through_the_target() -> None:
    agent, state, batch, draw = fpi_in_float64()
    target = agent.bellman_target(state, batch, draw)
    generator = torch.Generator().manual_seed(3)
    direction = torch.randn(state["critic"].shape, generator=generator, dtype=torch.float64)

    def loss_at(weights: Tensor) -> Tensor:
        return agent.critic_loss(state, agent.critic.views(weights), batch, target, draw)[0].sum()

    weights = state["critic"].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_at(weights), weights)
    difference = (loss_at(weights + 1e-6 * direction) - loss_at(weights - 1e-6 * direction)) / 2e-6
    assert (gradient * direction).sum().item() == pytest.approx(difference.item(), rel=1e-5)


def test_fpi_has_no_target_networks_and_trains_its_helper_first() -> None:
    agent = make_agent("sac-fpi")
    state = agent.initial_state([0], CPU)
    assert not [name for name in state if name.endswith("/target")]
    order: list[str] = []
    descend = agent.descend
    agent.descend = lambda state, name, *rest: order.append(name) or descend(state, name, *rest)  # type: ignore
    state["step"].fill_(64)
    agent.learn(state, random_batch(), tape_reading(agent, [0]), torch.tensor([True]))
    assert order == ["helper", "critic", "actor"]


# --- SAC-NR


def test_nr_transforms_s_and_s2_with_the_same_map_or_keeps_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = make_agent("sac-nr", {"clean": 0.0}, {"clean": 1.0}, {"clean": 0.4}, {"clean": 0.4})
    state, batch, draw = trained_state(agent), random_batch(4), tape_reading(agent, range(4))
    draw["clean"] = torch.tensor([[0.0], [0.99], [0.39], [0.41]])
    seen: dict[str, Any] = {}

    def spy(
        self: Sac, state: State, batch: Batch, draw: dict[str, Tensor], active: Tensor
    ) -> dict[str, Tensor]:
        seen.update(batch=batch, clean=draw["clean_states"])
        return {}

    monkeypatch.setattr(Sac, "learn", spy)
    agent.learn(state, batch, draw, torch.ones(4, dtype=torch.bool))
    mapped: Batch = seen["batch"]
    for run, is_clean in enumerate([False, True, True, False]):
        # Xavier: 2/(d + d) = 1/d
        matrix = torch.eye(agent.ds) if is_clean else draw["map"][run] / math.sqrt(agent.ds)
        torch.testing.assert_close(mapped.s[run], batch.s[run] @ matrix)
        torch.testing.assert_close(mapped.s2[run], batch.s2[run] @ matrix)
    assert all(
        torch.equal(getattr(mapped, part), getattr(batch, part))
        for part in ("a", "r", "terminated")
    )
    assert torch.equal(seen["clean"], batch.s)


def test_nr_is_sac_on_clean_states_and_otherwise_adds_the_feature_distance() -> None:
    agent, sac = make_agent("sac-nr", {"matching": 0.5}), make_agent("sac")
    state, batch, draw = trained_state(agent), random_batch(), tape_reading(agent, [0])
    target = sac.bellman_target(state, batch, draw)
    q = agent.params(state, "critic")
    plain, _ = sac.critic_loss(state, q, batch, target, draw)
    same, _ = agent.critic_loss(state, q, batch, target, {**draw, "clean_states": batch.s})
    assert torch.equal(same, plain)
    elsewhere = batch.s + 1
    paid, _ = agent.critic_loss(state, q, batch, target, {**draw, "clean_states": elsewhere})
    # [2, B, width]
    gap = agent.critic.features(q, batch.s, batch.a) - agent.critic.features(q, elsewhere, batch.a)
    torch.testing.assert_close(paid - plain, 0.5 * gap.square().mean((1, 2)).sum().view(1))


def test_nr_trains_only_the_features_of_mapped_states() -> None:
    agent = make_agent("sac-nr")
    state, batch = trained_state(agent), random_batch()
    leaves = {
        name: view.detach().requires_grad_() for name, view in agent.params(state, "actor").items()
    }
    clean = batch.s.clone().requires_grad_()
    mapped = (2 * batch.s).requires_grad_()
    distance = agent.distance(state, agent.actor, leaves, mapped, clean).sum()
    assert (
        torch.autograd.grad(distance, (clean, mapped), allow_unused=True, retain_graph=True)[0]
        is None
    )
    assert torch.autograd.grad(distance, mapped)[0].any()


def test_nr_acts_on_the_original_state() -> None:
    agent, sac = make_agent("sac-nr"), make_agent("sac")
    state, s, draw = trained_state(agent), torch.randn(1, 1, agent.ds), tape_reading(agent, [0])
    assert torch.equal(agent.behaviour(state, s, draw), sac.behaviour(state, s, draw))
