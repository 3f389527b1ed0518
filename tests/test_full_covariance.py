"""`pac4sac-full-covariance`: Bayesian linear regression on the features of the last layer, and how it
is used."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from small_cohorts import (
    CPU,
    assert_compiled_learns_as_eager,
    column,
    hand_computed_agent,
    make_agent,
    make_learner,
    random_batch,
    set_head,
    trace_only,
    train,
)
from torch.distributions import MultivariateNormal, kl_divergence

import pac4sac
from pac4sac.agents.base import Agent, State, Target
from pac4sac.agents.replay import Batch
from pac4sac.agents.variants.full_covariance import (
    INFORMATION,
    LOG_DETERMINANT,
    PRIOR,
    ROOT,
    add_batch,
    regress,
    with_covariance,
)

ALGO = "pac4sac-full-covariance"
WIDTH = 8
EVERYONE = torch.tensor([True])


def covariance(state: State, run: int = 0, member: int = 0) -> NDArray[np.float64]:
    root = state[ROOT][run, member].double().numpy()
    return np.asarray(root @ root.T)


def observe(agent: Agent, state: State, count: int = 4) -> None:
    """Add some batches, and compute the covariance."""
    for k in range(count):
        batch, theta = random_batch(agent.runs, seed=k), agent.params(state, "critic")
        state["critic/count"] += 1
        everyone = torch.ones(agent.runs, dtype=torch.bool)
        add_batch(agent.critic, theta, state, batch, 5 * batch.r, torch.tensor(50), everyone)
    regress(state, torch.ones(agent.runs, dtype=torch.bool))


# --- against the textbook


def test_regression_after_an_episode_matches_bayesian_linear_regression() -> None:
    agent = make_agent(ALGO, {"gamma": 0.9}, {"gamma": 0.9}, capacity=50)
    state = agent.initial_state([0, 1], CPU)
    active, n = torch.tensor([True, True]), torch.tensor(50)
    features, errors, targets = [], [], []
    for k in range(4):
        batch = random_batch(2, seed=k)
        theta, y = agent.params(state, "critic"), 5 * batch.r
        state["critic/count"] += 1
        add_batch(agent.critic, theta, state, batch, y, n, active)
        features.append(agent.critic.features(theta, batch.s, batch.a)[0].double().numpy())
        errors.append(
            float((agent.critic(theta, batch.s, batch.a)[0][:, 0] - y).square()[0].mean())
        )
        targets.append(float(y[0].square().mean()))
    before = covariance(state, run=1)
    regress(state, torch.tensor([True, False]))
    decay = [(1 - 1 / 50) ** (3 - k) for k in range(4)]
    information = sum(w * phi.T @ phi / len(phi) for w, phi in zip(decay, features, strict=True))
    noise = np.mean(errors) / (1 - 0.9) ** 2
    prior = np.mean(targets) / (np.trace(information) / sum(decay))
    expected = np.linalg.inv(np.eye(WIDTH) / prior + information / noise)
    np.testing.assert_allclose(covariance(state), expected, rtol=1e-4, atol=1e-5)
    assert float(state[LOG_DETERMINANT][0]) == pytest.approx(
        np.linalg.slogdet(expected)[1], rel=1e-4
    )
    np.testing.assert_array_equal(covariance(state, run=1), before)  # whose episode goes on


def test_a_run_with_regression_learns_and_its_covariance_shrinks_from_the_prior() -> None:
    learner = make_learner(ALGO, {"shots": 3, "gamma": 0.5}, depth=1)
    train(learner, 20)
    learner.agent.end_of_episode(learner.state, EVERYONE)
    prior = float(learner.state[PRIOR][0, 0, 0].exp())
    eigenvalues = np.linalg.eigvalsh(covariance(learner.state))
    assert 0 < eigenvalues[0] < 0.9 * prior
    assert eigenvalues[-1] <= prior * (1 + 1e-5)


def test_the_divergence_is_that_of_two_multivariate_gaussians() -> None:
    agent = make_agent(ALGO)
    state = agent.initial_state([0], CPU)
    observe(agent, state)
    q = agent.params(state, "critic")
    posterior = MultivariateNormal(
        q["head.weight"][0, :, 0].double(),
        scale_tril=torch.linalg.cholesky(torch.tensor(covariance(state))),
    )
    variance = state[PRIOR][0, 0].double().exp()
    prior = MultivariateNormal(torch.zeros(WIDTH).double(), torch.diag(variance))
    assert agent.divergence(state, q).item() == pytest.approx(
        kl_divergence(posterior, prior).item(), rel=1e-4
    )


# --- what it is for


def on_paper(**settings: Any) -> tuple[Agent, State]:
    """φ = (max(s, 0), max(a, 0)), m = (0.5, −0.25), Σ = I."""
    agent, state = hand_computed_agent(ALGO, **settings)
    set_head(agent, state, "critic", {"weight": [0.5, -0.25], "bias": 0.1})
    return agent, state


def transition(s: float, a: float) -> Batch:
    return Batch(column(s), column(a), torch.zeros(1, 1), column(s), torch.zeros(1, 1))


def variance(agent: Agent, state: State, s: float, a: float) -> float:
    v = agent.critic(agent.params(state, "critic"), column(s), column(a))[1]
    assert v is not None
    return v.item()


def test_the_variance_shrinks_only_along_visited_features() -> None:
    agent, state = on_paper(gamma=0.0)
    theta, y = agent.params(state, "critic"), torch.full((1, 1), 4.6)
    state["critic/count"] += 1
    # m_p = 1.6 at (3, 0): σ̂² = 9 and, with y² = 21.16 and ‖φ‖² = 9, Σ₀ = 2.351 I
    add_batch(agent.critic, theta, state, transition(3.0, 0.0), y, torch.tensor(50), EVERYONE)
    regress(state, EVERYONE)
    prior = 4.6**2 / 9
    visited = 1 / (1 / prior + 9 / 9)
    assert variance(agent, state, 3.0, 0.0) == pytest.approx(9 * visited, rel=1e-5)
    assert variance(agent, state, 0.0, 1.0) == pytest.approx(prior, rel=1e-5)
    assert variance(agent, state, 3.0, 1.0) == pytest.approx(9 * visited + prior, rel=1e-5)


def test_sampled_weights_have_the_stored_covariance() -> None:
    agent = make_agent(ALGO)
    state = agent.initial_state([0], CPU)
    observe(agent, state)
    q = agent.params(state, "critic")
    offsets = torch.cat(
        [
            agent.critic.sampled_weights(q, unit.view(1, 1, -1)) - q["head.weight"]
            for unit in torch.eye(WIDTH)
        ],
        -1,
    )[0].double()
    np.testing.assert_allclose(offsets @ offsets.T, covariance(state), rtol=1e-4, atol=1e-5)


def test_the_actor_samples_q_from_its_variance_and_shooting_takes_the_mean() -> None:
    agent, state = on_paper(shots=2)
    state[ROOT].copy_(torch.diag(torch.tensor([0.1, 1.0]).sqrt()))
    q, noise = agent.params(state, "critic"), torch.tensor([[[2.0, -1.0]]])
    # Σ = diag(0.1, 1): at (1, 0) v = 0.1, at (1, 2) v = 0.1 + 4
    expected = torch.tensor([[0.6 + 2 * math.sqrt(0.1), 0.5 - 0.5 + 0.1 - math.sqrt(4.1)]])
    s, a = column(1.0, 1.0), column(0.0, 2.0)
    torch.testing.assert_close(agent.value(q, s, a, noise), expected)
    # the weight of the action is negative: the smaller of two has the larger mean
    draw = {"candidates": torch.tensor([0.5, 0.1]).view(1, 2, 1, 1)}
    assert agent.behaviour(state, column(1.0), draw).item() == pytest.approx(math.tanh(0.1))


def test_the_critic_loss_includes_the_variance_but_its_gradient_does_not() -> None:
    target = Target(y=torch.tensor([[1.0, 0.0]]), a2=column(0.5, 0.5))
    batch = Batch(
        column(1.0, 2.0), column(0.5, 1.0), torch.zeros(1, 2), column(2.0, 1.0), torch.zeros(1, 2)
    )
    agent, state = on_paper(xi=0.3)
    state["step"].fill_(16)
    q = {
        name: view.detach().requires_grad_()
        for name, view in agent.nets["critic"].views(state["critic"]).items()
    }
    loss, log = agent.critic_loss(state, q, batch, target, {})
    # v_p = s² + a² and KL = ½ ‖m‖², for the posterior is still as wide as the prior
    bellman = ((1 - 0.475) ** 2 + 0.85**2) / 2 + (1.25 + 5) / 2
    exploration, kl = (4.25 + 1.25) / 2, 0.5 * (0.25 + 0.0625)
    assert log["kl"].item() == pytest.approx(kl)
    assert loss.item() == pytest.approx(bellman + math.sqrt(kl / 16) - 0.3 * exploration)
    weight = next(name for name in q if name.startswith("0.weight"))
    (gradient,) = torch.autograd.grad(loss.sum(), q[weight], retain_graph=True)
    m_p, _ = agent.critic(with_covariance(state, q), batch.s, batch.a)
    (of_the_mean,) = torch.autograd.grad(
        (target.y[:, None] - m_p).square().mean(-1).sum(), q[weight]
    )
    torch.testing.assert_close(gradient, of_the_mean)


# --- in use


def test_a_run_learns_the_same_alone_and_in_a_cohort() -> None:
    per_run = [{"gamma": 0.5, "warmup": 8}, {"gamma": 0.9, "warmup": 8}, {"warmup": 12}]
    common = {"shots": 3, "critics": 2}
    together = train(make_learner(ALGO, *per_run, seeds=[3, 1, 2], **common), 24)
    alone = train(make_learner(ALGO, per_run[1], seeds=[1], **common), 24)
    assert together.state["alive"].all()
    for learner in (together, alone):
        everyone = torch.ones(learner.agent.runs, dtype=torch.bool)
        learner.agent.end_of_episode(learner.state, everyone)
    for name in ("critic", "actor", INFORMATION, ROOT, LOG_DETERMINANT):
        torch.testing.assert_close(
            alone.state[name][0], together.state[name][1], rtol=2e-3, atol=1e-4
        )
        assert not torch.equal(together.state[name][0], together.state[name][1])


def test_resting_runs_collect_no_statistics_and_diverged_runs_keep_theirs() -> None:
    learner = train(make_learner(ALGO, {"warmup": 50}, {}, {}, shots=2), 20)
    state = learner.state
    assert not state[INFORMATION][0].any()
    before = state[INFORMATION].clone()
    learner.buffers["replay"][1, :, 0] = torch.nan
    learner.update()
    assert state["alive"].tolist() == [True, False, True]
    assert torch.equal(state[INFORMATION][1], before[1])
    assert not torch.equal(state[INFORMATION][2], before[2])


def test_traced_operations_learn_the_same_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_only(monkeypatch)
    learner, eager = (make_learner(ALGO, {}, {"gamma": 0.9}, shots=3, depth=1) for _ in range(2))
    assert_compiled_learns_as_eager(learner, eager)


def test_a_trained_agent_is_read_back_with_its_covariance(tmp_path: Path) -> None:
    tiny = {"width": WIDTH, "depth": 1, "batch": 8, "warmup": 10, "shots": 4, "gamma": 0.8}
    folder = pac4sac.train(
        "probe_environments:probe/TwoSteps-v0",
        algo=ALGO,
        settings=tiny,
        steps=60,
        out=tmp_path / "full",
        device="cpu",
        backend="eager",
        threads=1,
        workers=0,
        evaluation_episodes=1,
    ).folder
    agent = pac4sac.load(folder)
    saved = load_file(next(folder.glob("cohorts/*/step-*/learner.safetensors")))
    assert torch.equal(agent.state[ROOT], saved[ROOT])
    assert not torch.equal(agent.state[ROOT][0, 0], torch.eye(WIDTH))
    assert agent.act([0.0]).shape == (1,)
