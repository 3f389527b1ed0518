"""The last layer with a full covariance: batch Bayesian linear regression found recursively, and
how it is used."""

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
    agent_on_paper,
    assert_compiled_learns_as_eager,
    column,
    make_agent,
    make_learner,
    random_batch,
    set_head,
    trace_only,
    train,
)
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

import pac4sac
from pac4sac.agents import full_covariance
from pac4sac.agents.base import Agent, State, Target
from pac4sac.agents.full_covariance import LOG_DETERMINANT, ROOT
from pac4sac.agents.replay import Batch

WIDTH = 8
EVERYONE = torch.tensor([True])


def covariance(state: State, run: int = 0, member: int = 0) -> NDArray[np.float64]:
    root = state[ROOT][run, member].double().numpy()
    return np.asarray(root @ root.T)


def take_in(agent: Agent, state: State, batch: Batch, observing: Tensor) -> None:
    full_covariance.observe(agent.critic, agent.params(state, "critic"), state, batch, observing)


def observe(agent: Agent, state: State, count: int) -> list[Tensor]:
    """Features [R, M, K] of the transitions taken in, one of a batch in each update."""
    seen = []
    for k in range(count):
        batch = random_batch(agent.runs, seed=k)
        phi = agent.critic.features(
            agent.params(state, "critic"), batch.s[:, :1], batch.a[:, :1]
        ).squeeze(1)
        seen.append(agent.critic.per_member(phi))
        take_in(agent, state, batch, torch.ones(agent.runs, dtype=torch.bool))
        state["critic/count"] += 1
    return seen


# --- against the textbook


def test_without_forgetting_it_is_batch_bayesian_linear_regression() -> None:
    settings = [
        {"prior_variance": 1.0, "observation_variance": 1.0},
        {"prior_variance": 0.25, "observation_variance": 4.0},
    ]
    agent = make_agent("pac4sac", *settings, head="full", forgetting=1.0, critics=2)
    state = agent.initial_state([0, 1], CPU)
    seen = observe(agent, state, 40)
    probe = random_batch(2, seed=99)
    with torch.no_grad():
        _, v_p = agent.critic(agent.params(state, "critic"), probe.s, probe.a)
        phi = agent.critic.features(agent.params(state, "critic"), probe.s, probe.a).view(
            2, 2, -1, WIDTH
        )
    assert v_p is not None
    for run, own in enumerate(settings):
        for member in range(2):
            visited = np.stack([x[run, member].detach().double().numpy() for x in seen])
            precision = (
                np.eye(WIDTH) / own["prior_variance"]
                + visited.T @ visited / own["observation_variance"]
            )
            expected = np.linalg.inv(precision)
            np.testing.assert_allclose(
                covariance(state, run, member), expected, rtol=1e-3, atol=1e-6
            )
            assert state[LOG_DETERMINANT][run, member].item() == pytest.approx(
                np.linalg.slogdet(expected)[1], abs=1e-4
            )
            asked = phi[run, member].double().numpy()
            np.testing.assert_allclose(
                v_p[run, member], ((asked @ expected) * asked).sum(-1), rtol=1e-3, atol=1e-6
            )


def test_with_forgetting_it_follows_the_precision_in_which_the_prior_comes_back_weight_by_weight() -> (
    None
):
    forgetting, noise, prior = 0.99, 0.5, 2.0
    agent = make_agent(
        "pac4sac",
        head="full",
        forgetting=forgetting,
        observation_variance=noise,
        prior_variance=prior,
    )
    state = agent.initial_state([0], CPU)
    precision = np.eye(WIDTH) / prior
    for k, phi in enumerate(observe(agent, state, 300)):
        x = phi[0, 0].detach().double().numpy()
        precision = forgetting * precision + np.outer(x, x) / noise
        precision[k % WIDTH, k % WIDTH] += (1 - forgetting) * WIDTH / prior
    np.testing.assert_allclose(covariance(state), np.linalg.inv(precision), rtol=2e-3, atol=1e-5)
    assert state[LOG_DETERMINANT].item() == pytest.approx(
        -np.linalg.slogdet(precision)[1], abs=1e-3
    )


def test_the_divergence_is_that_of_two_multivariate_gaussians() -> None:
    agent = make_agent("pac4sac", head="full", prior_mean=0.3, prior_variance=0.5)
    state = agent.initial_state([0], CPU)
    observe(agent, state, 30)
    q = agent.params(state, "critic")
    posterior = MultivariateNormal(
        q["head.weight"][0, :, 0].double(),
        scale_tril=torch.linalg.cholesky(torch.tensor(covariance(state))),
    )
    prior = MultivariateNormal(torch.full((WIDTH,), 0.3).double(), 0.5 * torch.eye(WIDTH).double())
    assert agent.divergence(state, q).item() == pytest.approx(
        kl_divergence(posterior, prior).item(), rel=1e-4
    )


# --- what it is for


def on_paper(**settings: Any) -> tuple[Agent, State]:
    """φ = (max(s, 0), max(a, 0)), m = (0.5, −0.25), Σ = I."""
    agent, state = agent_on_paper("pac4sac", head="full", **settings)
    set_head(agent, state, "critic", {"weight": [0.5, -0.25], "bias": 0.1})
    return agent, state


def transition(s: float, a: float) -> Batch:
    return Batch(column(s), column(a), torch.zeros(1, 1), column(s), torch.zeros(1, 1))


def variance(agent: Agent, state: State, s: float, a: float) -> float:
    v = agent.critic(agent.params(state, "critic"), column(s), column(a))[1]
    assert v is not None
    return v.item()


def test_the_variance_shrinks_along_visited_features_and_stays_along_others() -> None:
    agent, state = on_paper(forgetting=1.0, observation_variance=1.0)
    assert variance(agent, state, 3.0, 0.0) == pytest.approx(9.0)
    take_in(agent, state, transition(3.0, 0.0), EVERYONE)
    assert variance(agent, state, 3.0, 0.0) == pytest.approx(9 / (1 + 9))  # φᵀφ / (1 + φᵀφ)
    assert variance(agent, state, 0.0, 1.0) == 1.0
    assert variance(agent, state, 3.0, 1.0) == pytest.approx(0.9 + 1)


def test_forgetting_leaves_visited_features_uncertain_and_winds_nothing_up() -> None:
    agent, state = on_paper(forgetting=0.995)
    for _ in range(4000):
        take_in(agent, state, transition(1.0, 0.0), EVERYONE)
        state["critic/count"] += 1
    ripple = 2 * 0.005  # of the prior, which each of two weights gets back in every second update
    assert variance(agent, state, 1.0, 0.0) == pytest.approx(1 / (1 + 1 / 0.005), rel=ripple)
    assert variance(agent, state, 0.0, 1.0) == pytest.approx(1.0, rel=ripple)
    assert state[LOG_DETERMINANT].item() == pytest.approx(
        np.linalg.slogdet(covariance(state))[1], abs=1e-3
    )


def test_a_draw_of_the_weights_has_the_covariance() -> None:
    agent = make_agent("pac4sac", head="full", shooting="thompson")
    state = agent.initial_state([0], CPU)
    observe(agent, state, 20)
    q = agent.params(state, "critic")
    offsets = torch.cat(
        [
            agent.critic.sampled_weights(q, unit.view(1, 1, -1)) - q["head.weight"]
            for unit in torch.eye(WIDTH)
        ],
        -1,
    )[0].double()
    np.testing.assert_allclose(offsets @ offsets.T, covariance(state), rtol=1e-4, atol=1e-6)
    s, draw = (
        torch.randn(1, 1, 3),
        {"candidates": torch.randn(1, 4, 1, 2), "values": torch.randn(1, 1, WIDTH)},
    )
    a = agent.candidates(state, s, draw)[:, :, 0]
    # all by the same draw
    ranked = agent.critic.features(q, s, a) @ agent.critic.sampled_weights(q, draw["values"])
    assert torch.equal(agent.behaviour(state, s, draw)[0, 0], a[0, int(ranked.argmax())])


def test_the_actor_and_independent_shooting_sample_q_from_its_variance() -> None:
    agent, state = on_paper(forgetting=1.0)
    take_in(agent, state, transition(3.0, 0.0), EVERYONE)
    q, noise = agent.params(state, "critic"), torch.tensor([[[2.0, -1.0]]])
    # Σ = diag(0.1, 1): at (1, 0) v = 0.1, at (1, 2) v = 0.1 + 4
    expected = torch.tensor([[0.6 + 2 * math.sqrt(0.1), 0.5 - 0.5 + 0.1 - math.sqrt(4.1)]])
    s, a = column(1.0, 1.0), column(0.0, 2.0)
    torch.testing.assert_close(agent.value(q, s, a, noise), expected)
    torch.testing.assert_close(agent.sample(q, s, a, noise).amin(1), expected)


def test_the_critics_loss_has_the_variance_in_it_and_its_gradient_has_not() -> None:
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
    m_p, _ = agent.critic(agent.with_covariance(state, q), batch.s, batch.a)
    (of_the_mean,) = torch.autograd.grad(
        (target.y[:, None] - m_p).square().mean(-1).sum(), q[weight]
    )
    torch.testing.assert_close(gradient, of_the_mean)


# --- in use


@pytest.mark.parametrize("shooting", ["independent", "thompson"])
def test_a_run_learns_the_same_alone_and_in_a_cohort(shooting: str) -> None:
    per_run = [
        {"forgetting": 1.0, "observation_variance": 1.0, "warmup": 8},
        {"forgetting": 0.995, "observation_variance": 0.1, "warmup": 8},
        {"forgetting": 0.999, "observation_variance": 5.0, "warmup": 12},
    ]
    common = {"head": "full", "shooting": shooting, "shots": 3, "critics": 2}
    together = train(make_learner("pac4sac", *per_run, seeds=[3, 1, 2], **common), 24)
    alone = train(make_learner("pac4sac", per_run[1], seeds=[1], **common), 24)
    assert together.state["alive"].all()
    for name in ("critic", "actor", ROOT, LOG_DETERMINANT):
        torch.testing.assert_close(
            alone.state[name][0], together.state[name][1], rtol=2e-4, atol=2e-5
        )
        assert not torch.equal(together.state[name][0], together.state[name][1])


def test_runs_that_do_not_learn_observe_nothing_and_those_that_diverge_keep_what_they_have() -> (
    None
):
    learner = train(make_learner("pac4sac", {"warmup": 50}, {}, {}, head="full", shots=2), 20)
    state = learner.state
    assert torch.equal(state[ROOT][0, 0], torch.eye(WIDTH))
    before = state[ROOT].clone()
    learner.buffers["replay"][1, :, 0] = torch.nan
    learner.update()
    assert state["alive"].tolist() == [True, False, True]
    assert torch.equal(state[ROOT][1], before[1])
    assert not torch.equal(state[ROOT][2], before[2])


def test_traced_operations_learn_what_eager_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_only(monkeypatch)
    settings = {"head": "full", "shooting": "thompson", "shots": 3, "depth": 1}
    learner, eager = (
        make_learner("pac4sac", {}, {"forgetting": 0.99}, **settings) for _ in range(2)
    )
    assert_compiled_learns_as_eager(learner, eager)


def trained_on_a_probe(folder: Path, **settings: Any) -> Path:
    tiny = {"width": WIDTH, "depth": 1, "batch": 8, "warmup": 10, "shots": 4, "gamma": 0.8}
    result = pac4sac.train(
        "probe_environments:probe/TwoSteps-v0",
        settings=tiny | settings,
        steps=60,
        out=folder,
        device="cpu",
        backend="eager",
        threads=1,
        workers=0,
        evaluation_episodes=1,
    )
    return result.folder


def test_a_trained_agent_is_read_back_with_its_covariance(tmp_path: Path) -> None:
    folder = trained_on_a_probe(tmp_path / "full", head="full", shooting="thompson")
    agent = pac4sac.load(folder)
    saved = load_file(next(folder.glob("cohorts/*/step-*/learner.safetensors")))
    assert torch.equal(agent.state[ROOT], saved[ROOT])
    assert variance(agent.agent, agent.state, 1.0, 0.0) < 0.5 * variance(
        agent.agent,
        agent.agent.initial_state([0], CPU) | {"critic": agent.state["critic"]},
        1.0,
        0.0,
    )
    assert agent.act([0.0]).shape == (1,)


def test_a_moving_prior_of_another_variance_moves_in_the_loop_itself(tmp_path: Path) -> None:
    folder = trained_on_a_probe(tmp_path / "moving", prior="moving", prior_variance=0.5)
    saved = load_file(next(folder.glob("cohorts/*/step-*/learner.safetensors")))
    agent = pac4sac.load(folder)
    m, log_v = agent.agent.critic.posterior(agent.agent.params(agent.state, "critic"))
    torch.testing.assert_close(saved["prior_mean"], m)  # the last step ended an episode
    torch.testing.assert_close(saved["prior_log_variance"], log_v)
    fixed = trained_on_a_probe(tmp_path / "fixed", prior_variance=0.5)
    kept = load_file(next(fixed.glob("cohorts/*/step-*/learner.safetensors")))
    assert kept["prior_log_variance"].unique().item() == pytest.approx(math.log(0.5))


# --- regression on whole batches, done anew after each episode


def test_regression_after_an_episode_is_the_textbooks_with_noise_and_prior_from_the_scale_of_errors_and_targets() -> (
    None
):
    agent = make_agent("pac4sac", {"gamma": 0.9}, {"gamma": 0.9}, head="regression", capacity=50)
    state = agent.initial_state([0, 1], CPU)
    active, n = torch.tensor([True, True]), torch.tensor(50)
    features, errors, targets = [], [], []
    for k in range(4):
        batch = random_batch(2, seed=k)
        theta, y = agent.params(state, "critic"), 5 * batch.r
        state["critic/count"] += 1
        full_covariance.gather(agent.critic, theta, state, batch, y, n, active)
        features.append(agent.critic.features(theta, batch.s, batch.a)[0].double().numpy())
        errors.append(
            float((agent.critic(theta, batch.s, batch.a)[0][:, 0] - y).square()[0].mean())
        )
        targets.append(float(y[0].square().mean()))
    before = covariance(state, run=1)
    full_covariance.regress(state, torch.tensor([True, False]))
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
    learner = make_learner("pac4sac", {"shots": 3, "gamma": 0.5}, head="regression", depth=1)
    train(learner, 20)
    learner.agent.end_of_episode(learner.state, EVERYONE)
    prior = float(learner.state["prior_log_variance"][0, 0, 0].exp())
    eigenvalues = np.linalg.eigvalsh(covariance(learner.state))
    assert 0 < eigenvalues[0] < 0.9 * prior
    assert eigenvalues[-1] <= prior * (1 + 1e-5)


# --- a moving prior of the mean alone


def test_a_moving_mean_leaves_the_variance_of_the_prior_where_it_was_and_its_complexity_may_be_linear() -> (
    None
):
    agent, state = agent_on_paper(
        "pac4sac", {"prior": "moving-mean"}, {"prior": "moving"}, complexity="linear"
    )
    set_head(agent, state, "critic", {"weight": [1.0, 2.0], "variance": [0.01, 0.04]})
    agent.end_of_episode(state, torch.tensor([True, True]))
    torch.testing.assert_close(state["prior_mean"], torch.tensor([[[1.0, 2.0]]] * 2))
    torch.testing.assert_close(
        state["prior_log_variance"].exp(), torch.tensor([[[1.0, 1.0]], [[0.01, 0.04]]])
    )
    kl = agent.divergence(state, agent.params(state, "critic"))
    expected = 0.5 * sum(v - 1 - math.log(v) for v in (0.01, 0.04))
    torch.testing.assert_close(kl, torch.tensor([[expected], [0.0]]))
    torch.testing.assert_close(agent.complexity(state, kl, torch.tensor(20)), kl / 20)
