"""PAC4SAC's equations with numbers worked out by hand, and what it reduces to with its parts taken
away."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_cohorts import (
    CPU,
    column,
    hand_computed_agent,
    make_agent,
    make_learner,
    random_batch,
    set_head,
    tape_reading,
    train,
)
from torch import Tensor

import pac4sac
from pac4sac.agents.base import Agent, State, Target
from pac4sac.agents.replay import Batch

HEAD = {"weight": [0.5, -0.25], "bias": 0.1, "variance": [0.04, 0.01]}
TARGET_HEAD = {"weight": [1.0, 2.0], "bias": 0.0, "variance": [0.25, 0.09]}
# Two transitions, the second of which ends its episode.
BATCH = Batch(
    s=column(1.0, 2.0),
    a=column(0.5, 1.0),
    r=torch.tensor([[1.0, -1.0]]),
    s2=column(2.0, 1.0),
    terminated=torch.tensor([[0.0, 1.0]]),
)
TARGET = Target(y=torch.tensor([[1.0, 0.0]]), a2=column(0.5, 0.5))
# A policy of mean 0 and deviation 1 before the tanh, at u = ½ and −1: log π = −u²/2 − ½ ln 2π −
# ln(1 − tanh² u).
NOISE = column(0.5, -1.0)
TANH_HALF = 0.46211716
LOG_PI = (-0.80370930, -0.55137687)
# The KL of HEAD to N(0, 1): ½(0.04 + 0.25 − 1 − ln 0.04) + ½(0.01 + 0.0625 − 1 − ln 0.01)
KL = 0.5 * (0.29 - 1 + 3.21887582) + 0.5 * (0.0725 - 1 + 4.60517019)


def hand_computed_pac4sac(**settings: Any) -> tuple[Agent, State]:
    agent, state = hand_computed_agent("pac4sac", **settings)
    set_head(agent, state, "critic", HEAD)
    set_head(agent, state, "critic/target", TARGET_HEAD)
    return agent, state


def critic_terms(agent: Agent, state: State, step: int) -> dict[str, float]:
    state["step"].fill_(step)
    loss, log = agent.critic_loss(state, agent.params(state, "critic"), BATCH, TARGET, {})
    return {"loss": loss.item()} | {name: value.item() for name, value in log.items()}


# --- the critic's objective, term by term


def test_each_term_of_the_critic_objective() -> None:
    # m_p = (0.5·1 − 0.25·0.5 + 0.1, 0.5·2 − 0.25·1 + 0.1), v_p = (0.04·1 + 0.01·0.25, 0.04·4 +
    # 0.01·1)
    m_p, v_p = (0.475, 0.85), (0.0425, 0.17)
    bellman = ((1 - m_p[0]) ** 2 + v_p[0] + (0 - m_p[1]) ** 2 + v_p[1]) / 2
    conservative = math.sqrt(KL / 16)
    # of v_p(s′, a′); the second episode ended, so it has no s′
    exploration = (0.04 * 4 + 0.01 * 0.25 + 0) / 2
    terms = critic_terms(*hand_computed_pac4sac(xi=0.3, conservative=0.7), step=16)
    assert terms == pytest.approx(
        {
            "bellman": bellman,
            "conservative": conservative,
            "exploration": exploration,
            "kl": KL,
            "q": sum(m_p) / 2,
            "q_deviation": (math.sqrt(v_p[0]) + math.sqrt(v_p[1])) / 2,
            "loss": bellman + 0.7 * conservative - 0.3 * exploration,
        },
        rel=1e-6,
    )


@pytest.mark.parametrize(("step", "n"), [(4, 4), (25, 25), (26, 25), (1000, 25)])
def test_n_counts_the_stored_transitions_up_to_the_capacity(step: int, n: int) -> None:
    assert critic_terms(*hand_computed_pac4sac(), step=step)["conservative"] == pytest.approx(
        math.sqrt(KL / n), rel=1e-6
    )


def gradients(agent: Agent, state: State) -> dict[str, Tensor]:
    leaves = {
        name: view.detach().requires_grad_() for name, view in agent.params(state, "critic").items()
    }
    loss, _ = agent.critic_loss(state, leaves, BATCH, TARGET, {})
    found = torch.autograd.grad(loss.sum(), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def test_all_three_terms_reach_the_variances() -> None:
    xi, n = 0.3, 16
    agent, state = hand_computed_pac4sac(xi=xi)
    state["step"].fill_(n)
    slope = 1 / (2 * math.sqrt(KL * n))  # of √(KL/N) in KL
    # In log v_i: v_i · (E φ_i² − ξ E φ_i′² (unmasked) + slope · ½(1 − 1/v_i))
    expected = [
        0.04 * ((1 + 4) / 2 - xi * 4 / 2 + slope * 0.5 * (1 - 1 / 0.04)),
        0.01 * ((0.25 + 1) / 2 - xi * 0.25 / 2 + slope * 0.5 * (1 - 1 / 0.01)),
    ]
    torch.testing.assert_close(
        gradients(agent, state)["head.log_variance"].flatten(), torch.tensor(expected)
    )


def test_the_exploration_term_reaches_the_features_of_the_next_state() -> None:
    with_term, without = (
        gradients(*hand_computed_pac4sac(xi=xi, conservative=0.0)) for xi in (0.3, 0.0)
    )
    gap = with_term["0.weight"][:, :1] - without["0.weight"][:, :1]  # of s
    # −ξ · ½ · v_i · 2 φ_i(s′, a′) · s′ with s′ = 2 and φ = (2, 0.5)
    expected = torch.tensor([[[-0.15 * 0.04 * 2 * 2 * 2, -0.15 * 0.01 * 2 * 0.5 * 2]]])
    torch.testing.assert_close(gap, expected, rtol=1e-5, atol=1e-7)


# --- the target


def soft_targets(second_terminated: float) -> Tensor:
    agent, state = hand_computed_pac4sac(gamma=0.9, alpha=0.2)
    batch = BATCH._replace(terminated=torch.tensor([[0.0, second_terminated]]))
    target: Target = agent.bellman_target(state, batch, {"target": NOISE})
    torch.testing.assert_close(target.a2, column(TANH_HALF, math.tanh(-1)))
    return target.y


# The slow critic's mean is 1·s′ + 2·max(a′, 0): 2 + 2·tanh ½, and 1.
ONGOING = 1 + 0.9 * (2 + 2 * TANH_HALF - 0.2 * LOG_PI[0])


def test_a_terminated_transition_does_not_bootstrap() -> None:
    torch.testing.assert_close(soft_targets(second_terminated=1.0), torch.tensor([[ONGOING, -1.0]]))


def test_a_truncated_transition_bootstraps() -> None:
    truncated = -1 + 0.9 * (1 - 0.2 * LOG_PI[1])
    torch.testing.assert_close(
        soft_targets(second_terminated=0.0), torch.tensor([[ONGOING, truncated]])
    )


# --- the actor and its temperature


def test_the_actor_minimises_alpha_log_pi_minus_a_sampled_q() -> None:
    agent, state = hand_computed_pac4sac(alpha=0.2)
    draw = {"actor": NOISE, "actor_value": torch.tensor([[[1.0, -2.0]]])}
    loss, log = agent.actor_loss(state, agent.params(state, "actor"), BATCH, draw)
    # Q = m_p + ε √v_p at s = 1, a = tanh ½ and at s = 2, a = tanh(−1), whose φ_2 is 0
    sampled = [
        0.5 - 0.25 * TANH_HALF + 0.1 + 1.0 * math.sqrt(0.04 + 0.01 * TANH_HALF**2),
        1.0 + 0.1 - 2.0 * math.sqrt(0.04 * 4),
    ]
    expected = (0.2 * LOG_PI[0] - sampled[0] + 0.2 * LOG_PI[1] - sampled[1]) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert log["entropy"].item() == pytest.approx(-sum(LOG_PI) / 2, rel=1e-6)


def test_a_critic_without_variance_gives_a_finite_actor_gradient() -> None:
    agent, state = hand_computed_pac4sac()
    agent.params(state, "critic")["head.log_variance"].fill_(-200.0)
    leaves = {
        name: view.detach().requires_grad_() for name, view in agent.params(state, "actor").items()
    }
    draw = {"actor": NOISE, "actor_value": torch.ones(1, 1, 2)}
    loss, _ = agent.actor_loss(state, leaves, BATCH, draw)
    assert all(
        bool(g.isfinite().all()) for g in torch.autograd.grad(loss.sum(), list(leaves.values()))
    )


def test_a_learned_alpha_moves_towards_the_target_entropy() -> None:
    learned = {"learn_alpha": True, "alpha": 0.3}
    agent = make_agent("sac", learned, learned, learned, {"alpha": 0.3})
    state = agent.initial_state(range(4), CPU)
    for _ in range(3):  # the target is −d_a = −2
        agent.learn_temperature(
            state, torch.tensor([-1.5, -2.5, -2.0, 5.0]), torch.ones(4, dtype=torch.bool)
        )
    alpha = agent.alpha(state)
    step = math.exp(0.003)  # Adam's first steps have the length of the learning rate, 0.001
    assert alpha.tolist() == pytest.approx([0.3 / step, 0.3 * step, 0.3, 0.3], rel=1e-5)


def test_a_whole_update_lowers_alpha_of_a_random_policy() -> None:
    learner = train(make_learner("sac-auto", {}, {"learn_alpha": False}), 20)
    assert learner.agent.alpha(learner.state)[0] < 0.2
    assert learner.agent.alpha(learner.state)[1] == torch.tensor(0.2)


# --- reductions


def test_without_variance_and_extra_terms_pac4sac_is_sac_with_one_critic() -> None:
    ours, state = hand_computed_agent("pac4sac", conservative=0.0, xi=0.0)
    sac, its_state = hand_computed_agent("sac", critics=1)
    plain = {"weight": [0.5, -0.25], "bias": 0.1}
    set_head(ours, state, "critic", {**plain, "variance": [1e-30, 1e-30]})
    set_head(sac, its_state, "critic", plain)
    state["step"].fill_(16)
    draw = {"actor": NOISE, "actor_value": torch.tensor([[[1.0, -1.0]]])}
    losses = [
        (
            agent.critic_loss(own, agent.params(own, "critic"), BATCH, TARGET, {})[0],
            agent.actor_loss(own, agent.params(own, "actor"), BATCH, draw)[0],
        )
        for agent, own in ((ours, state), (sac, its_state))
    ]
    torch.testing.assert_close(losses[0], losses[1])


def test_the_variances_are_trained_except_in_the_released_code() -> None:
    for algo, trains in (("pac4sac", True), ("pac4sac-repo", False)):
        learner = make_learner(algo, shots=2)
        means, variances = (part.clone() for part in posterior(learner.agent, learner.state))
        train(learner, 20)
        new_means, new_variances = posterior(learner.agent, learner.state)
        assert not torch.equal(new_means, means)
        assert torch.equal(new_variances, variances) is not trains


def test_the_released_code_has_a_prior_of_mean_1_and_maurers_complexity() -> None:
    agent, state = hand_computed_agent("pac4sac-repo", critics=1, delta=0.1)
    set_head(agent, state, "critic", HEAD)
    # ½(0.04 + 0.25 − 1 − ln 0.04) + ½(0.01 + 1.5625 − 1 − ln 0.01)
    kl = 0.5 * (0.29 - 1 + 3.21887582) + 0.5 * (1.5725 - 1 + 4.60517019)
    terms = critic_terms(agent, state, 16)
    assert terms["kl"] == pytest.approx(kl)
    assert terms["conservative"] == pytest.approx(math.sqrt((kl + math.log(2 * 4 / 0.1)) / 32))


def posterior(agent: Agent, state: State) -> tuple[Tensor, Tensor]:
    return agent.critic.posterior(agent.params(state, "critic"))


def test_the_variances_converge_to_the_optimum_of_the_loss() -> None:
    """dL/dv_i = E φ_i² − ξ E φ_i′² + g(1 − 1/v_i) = 0 with g = d√(KL/N)/dKL · ½ = 1/(4√(N·KL)), for
    fixed features."""
    xi, n = 0.2, 500
    agent = make_agent("pac4sac", xi=xi, capacity=1000, batch=64)
    state = agent.initial_state([0], CPU)
    state["step"].fill_(n)
    batch = random_batch(size=64)
    target = Target(y=torch.sin(batch.s.sum(-1)), a2=random_batch(size=64, seed=1).a)
    views = agent.params(state, "critic")
    head = {
        name: view.clone().requires_grad_()
        for name, view in views.items()
        if name.startswith("head.")
    }
    optimiser = torch.optim.LBFGS(
        list(head.values()), max_iter=400, line_search_fn="strong_wolfe", tolerance_change=0
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = agent.critic_loss(state, {**views, **head}, batch, target, {})[0].sum()
        value.backward()
        return value

    optimiser.step(loss)
    with torch.no_grad():
        kl = agent.divergence(state, {**views, **head}).item()
        phi = agent.critic.features(views, batch.s, batch.a)[0].square().mean(0)
        masked = agent.critic.features(views, batch.s2, target.a2)[0] * (
            1 - batch.terminated[0, :, None]
        )
        net = phi - xi * masked.square().mean(0)
    g = 1 / (4 * math.sqrt(n * kl))
    v = head["head.log_variance"].detach().exp().flatten()
    assert v.min() < 0.5 * v.max()  # no flat optimum that any constant would fit
    torch.testing.assert_close(v, g / (g + net), rtol=0.02, atol=0.0)


# --- the prior


def test_a_moving_prior_becomes_the_posterior_of_the_runs_whose_episode_ended() -> None:
    learner = train(make_learner("pac4sac-moving-prior", {}, {}, shots=1), 20)
    agent, state = learner.agent, learner.state
    before = {name: state[name].clone() for name in ("prior_mean", "prior_log_variance")}
    agent.end_of_episode(state, torch.tensor([False, True]))
    for name, part in zip(before, posterior(agent, state), strict=True):
        assert torch.equal(state[name][0], before[name][0])
        assert torch.equal(state[name][1], part[1])
    assert agent.divergence(state, agent.params(state, "critic"))[1].item() == pytest.approx(
        0.0, abs=1e-6
    )
    moved = state["prior_mean"].clone()
    for _ in range(3):
        learner.update()
    assert bool(state["alive"].all())  # √KL has an infinite slope at 0
    assert torch.equal(state["prior_mean"], moved)
    assert not torch.equal(posterior(agent, state)[0][1], moved[1])


def test_a_moving_prior_is_updated_in_the_training_loop(tmp_path: Path) -> None:
    tiny = {"width": 8, "depth": 1, "batch": 8, "warmup": 10, "shots": 4, "gamma": 0.8}
    folder = pac4sac.train(
        "probe_environments:probe/TwoSteps-v0",
        algo="pac4sac-moving-prior",
        settings=tiny,
        steps=60,
        out=tmp_path / "moving",
        device="cpu",
        backend="eager",
        threads=1,
        workers=0,
        evaluation_episodes=1,
    ).folder
    saved = load_file(next(folder.glob("cohorts/*/step-*/learner.safetensors")))
    agent = pac4sac.load(folder)
    m, log_v = posterior(agent.agent, agent.state)
    torch.testing.assert_close(saved["prior_mean"], m)  # the last step ended an episode
    torch.testing.assert_close(saved["prior_log_variance"], log_v)


def test_pac4ddpg_has_the_same_critic_objective() -> None:
    agent, state = hand_computed_agent("pac4ddpg", xi=0.3, conservative=0.7)
    set_head(agent, state, "critic", HEAD)
    assert critic_terms(agent, state, 16) == critic_terms(
        *hand_computed_pac4sac(xi=0.3, conservative=0.7), step=16
    )


def test_logged_returns_the_names_of_all_metrics() -> None:
    agent = make_agent("pac4sac", shots=1)
    state = agent.initial_state([0], CPU)
    state["step"].fill_(64)
    log = agent.learn(state, random_batch(), tape_reading(agent, [0]), torch.tensor([True]))
    assert set(log) == set(agent.metric_names)
    assert {
        "bellman",
        "conservative",
        "exploration",
        "kl",
        "q_deviation",
        "q",
        "entropy",
        "alpha",
    } <= set(log)
    assert {"critic_loss", "actor_loss", "critic_gradient_norm", "actor_gradient_norm"} <= set(log)
