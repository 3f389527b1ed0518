"""Networks of a cohort: the same numbers as torch.nn gives one run at a time, and the paper's
closed forms."""

import math

import pytest
import torch
from torch import Tensor, nn

from pac4sac.agents.nets import (
    Critic,
    DeterministicActor,
    GaussianActor,
    Net,
    Trunk,
    squashed_sample,
)

CPU = torch.device("cpu")
RUNS, MEMBERS, BATCH, DS, DA, WIDTH = 3, 2, 5, 3, 2, 8


def build_trunk(depth: int = 3, norm: bool = True, activation: str = "silu") -> Trunk:
    return Trunk({"s": DS, "a": DA}, WIDTH, depth, norm, activation)


def randomised(net: Net, seed: int = 0) -> Tensor:
    """Weights [R, M, P] without zeros or ones, so that scale and shift of a LayerNorm count."""
    weights = net.initial(range(RUNS), "initial/test", CPU)
    return weights + 0.3 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(seed))


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    s = torch.randn(RUNS, BATCH, DS, generator=generator)
    return s, 2 * torch.rand(RUNS, BATCH, DA, generator=generator) - 1


def torch_network(
    views: dict[str, Tensor], group: int, depth: int, norm: bool, activation: nn.Module
) -> nn.Module:
    """The same network out of torch.nn modules, for one run and member; it takes state and action
    concatenated."""
    layers: list[nn.Module] = []
    with torch.no_grad():
        for i in range(depth):
            weight = views[f"{i}.weight"][group]
            linear = nn.Linear(*weight.shape)
            linear.weight.copy_(weight.T)
            linear.bias.copy_(views[f"{i}.bias"][group, 0])
            layers.append(linear)
            if norm:
                layer_norm = nn.LayerNorm(WIDTH)
                layer_norm.weight.copy_(views[f"{i}.scale"][group, 0])
                layer_norm.bias.copy_(views[f"{i}.shift"][group, 0])
                layers.append(layer_norm)
            layers.append(activation)
        head = nn.Linear(WIDTH, 1)
        head.weight.copy_(views["head.weight"][group].T)
        head.bias.copy_(views["head.bias"][group, 0])
    return nn.Sequential(*layers, head)


@pytest.mark.parametrize(
    ("depth", "norm", "activation"), [(3, True, "silu"), (2, False, "relu"), (1, True, "relu")]
)
def test_a_batched_critic_equals_separate_torch_networks(
    depth: int, norm: bool, activation: str
) -> None:
    critic = Critic(build_trunk(depth, norm, activation), MEMBERS)
    views = critic.views(randomised(critic))
    s, a = inputs()
    m, v = critic(views, s, a)
    assert m.shape == (RUNS, MEMBERS, BATCH)
    assert v is None
    module = nn.SiLU() if activation == "silu" else nn.ReLU()
    for run in range(RUNS):
        for member in range(MEMBERS):
            network = torch_network(views, run * MEMBERS + member, depth, norm, module)
            expected = network(torch.cat([s[run], a[run]], -1)).squeeze(-1)
            torch.testing.assert_close(m[run, member], expected, rtol=1e-5, atol=1e-5)


def test_the_gaussian_head_has_the_mean_and_variance_of_section_3_2() -> None:
    critic = Critic(Trunk({"s": 1, "a": 1}, 3, 1, False, "relu"), gaussian=True)
    weights = critic.initial([0], "initial/critic", CPU)
    views = critic.views(weights)
    views["head.weight"].copy_(torch.tensor([[2.0], [-1.0], [0.5]]))
    views["head.bias"].fill_(0.25)
    views["head.log_variance"].copy_(torch.tensor([[0.1], [0.2], [0.4]]).log())
    phi = torch.tensor([[[1.0, 2.0, 0.0], [3.0, 0.0, 4.0]]])
    m_p, v_p = critic.head(views, phi)
    assert v_p is not None
    # m_p: 2·1 − 1·2 + 0.5·0 + 0.25, 2·3 + 0.5·4 + 0.25;  v_p: 0.1·1 + 0.2·4, 0.1·9 + 0.4·16
    torch.testing.assert_close(m_p, torch.tensor([[[0.25, 8.25]]]))
    torch.testing.assert_close(v_p, torch.tensor([[[0.9, 7.3]]]))


def test_the_closed_form_matches_sampled_weights() -> None:
    critic = Critic(build_trunk(), gaussian=True, log_variance=-1.0)
    views = critic.views(critic.initial([0], "initial/critic", CPU))
    s, a = (x[:1] for x in inputs())
    m_p, v_p = critic(views, s, a)
    assert v_p is not None
    mean, log_variance = critic.posterior(views)
    noise = torch.randn(200_000, WIDTH, generator=torch.Generator().manual_seed(2))
    weights = mean[0, 0] + noise * (0.5 * log_variance[0, 0]).exp()
    q = weights @ critic.features(views, s, a)[0].T + views["head.bias"][0]  # [draws, B]
    torch.testing.assert_close(q.mean(0), m_p[0, 0], rtol=0.0, atol=0.01)
    torch.testing.assert_close(q.var(0), v_p[0, 0], rtol=0.02, atol=0.0)


def test_initial_weights_fill_the_range_of_one_over_root_fan_in() -> None:
    wide = Critic(
        Trunk({"s": 30, "a": 34}, 64, 2, True, "silu"), MEMBERS, gaussian=True, log_variance=-4.6
    )
    views = wide.views(wide.initial(range(RUNS), "initial/critic", CPU))
    for name in ("0.weight", "0.bias", "1.weight", "1.bias", "head.weight", "head.bias"):
        bound = 1 / math.sqrt(64)  # of all three layers: 30 + 34 inputs, and 64 hidden units
        assert views[name].abs().max() <= bound
        if views[name].numel() > 300:
            assert views[name].max() > 0.95 * bound
            assert views[name].min() < -0.95 * bound
    assert bool((views["0.scale"] == 1).all())
    assert bool((views["0.shift"] == 0).all())
    assert bool((views["head.log_variance"] == torch.tensor(-4.6)).all())


def test_initial_weights_differ_between_runs_and_members_and_follow_the_seed_into_any_cohort() -> (
    None
):
    critic = Critic(build_trunk(), MEMBERS)
    together = critic.initial([4, 7, 9], "initial/critic", CPU)
    alone = critic.initial([7], "initial/critic", CPU)
    assert torch.equal(together[1:2], alone)
    assert not torch.equal(together[0], together[1])
    assert not torch.equal(together[0, 0], together[0, 1])
    assert not torch.equal(alone, critic.initial([7], "initial/actor", CPU))


def test_views_share_memory_with_the_weights_and_flatten_is_their_inverse() -> None:
    critic = Critic(build_trunk(), MEMBERS, gaussian=True)
    weights = critic.initial(range(RUNS), "initial/critic", CPU)
    views = critic.views(weights)
    assert all(view.shape[0] == RUNS * MEMBERS for view in views.values())
    assert torch.equal(critic.flatten(list(views.values()), weights), weights)
    before = weights.clone()
    views["1.weight"].add_(1.0)
    assert int((weights != before).sum()) == views["1.weight"].numel()


def test_a_state_broadcast_over_its_candidates_equals_the_state_repeated() -> None:
    critic = Critic(build_trunk(), MEMBERS, gaussian=True, log_variance=-2.0)
    views = critic.views(randomised(critic))
    s, a = inputs()
    for broadcast, repeated in zip(
        critic(views, s[:, :1], a),
        critic(views, s[:, :1].expand(-1, BATCH, -1).contiguous(), a),
        strict=True,
    ):
        torch.testing.assert_close(broadcast, repeated, rtol=1e-6, atol=1e-6)


def test_actors_bound_their_outputs() -> None:
    s = 100 * inputs()[0]
    trunk = Trunk({"s": DS}, WIDTH, 2, False, "relu")
    deterministic, gaussian = DeterministicActor(trunk, DA), GaussianActor(trunk, DA)
    assert deterministic(deterministic.views(20 * randomised(deterministic)), s).abs().max() <= 1
    mean, std = gaussian(gaussian.views(20 * randomised(gaussian)), s)
    assert mean.shape == std.shape == (RUNS, BATCH, DA)
    assert std.min() == pytest.approx(math.exp(-5))  # log-variance in [−10, 2]
    assert std.max() == pytest.approx(math.exp(1))


def test_the_actor_gives_mean_and_half_the_log_variance_exponentiated() -> None:
    actor = GaussianActor(Trunk({"s": 1}, 2, 1, False, "relu"), 1)
    weights = torch.zeros_like(actor.initial([0], "initial/actor", CPU))
    actor.views(weights)["head.bias"].copy_(torch.tensor([[0.3, 2 * math.log(0.7)]]))
    mean, std = actor(actor.views(weights), torch.ones(1, 1, 1))
    assert (mean.item(), std.item()) == (pytest.approx(0.3), pytest.approx(0.7))


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.8, 0.5), (-1.5, 0.3)])
def test_the_density_of_a_squashed_action_is_right_at_each_point_and_integrates_to_one(
    mean: float, std: float
) -> None:
    a = torch.linspace(-1, 1, 400_001, dtype=torch.float64)[1:-1]
    noise = (torch.atanh(a) - mean) / std
    m, s = torch.tensor([mean], dtype=torch.float64), torch.tensor([std], dtype=torch.float64)
    action, log_density = squashed_sample(m, s, noise.unsqueeze(-1))
    torch.testing.assert_close(action.squeeze(-1), a)
    gaussian = torch.distributions.Normal(m, s).log_prob(torch.atanh(a))
    # change of variables, u = atanh(a)
    torch.testing.assert_close(log_density, gaussian - torch.log1p(-a.square()))
    assert torch.trapezoid(log_density.exp(), a).item() == pytest.approx(1.0, abs=1e-4)


def test_the_log_densities_of_the_components_add_up() -> None:
    mean, std, noise = (
        torch.tensor([0.1, -0.4]),
        torch.tensor([0.5, 2.0]),
        torch.tensor([0.3, -1.2]),
    )
    parts = [
        squashed_sample(mean[i : i + 1], std[i : i + 1], noise[i : i + 1])[1] for i in range(2)
    ]
    torch.testing.assert_close(squashed_sample(mean, std, noise)[1], parts[0] + parts[1])


def test_a_saturated_action_has_a_finite_density_and_finite_gradients() -> None:
    mean = torch.tensor([40.0, -40.0, 500.0], requires_grad=True)
    std = torch.tensor([math.exp(-5), 1.0, math.e], requires_grad=True)
    action, log_density = squashed_sample(mean, std, torch.zeros(3))
    assert action.tolist() == [1.0, -1.0, 1.0]
    # −log √(2π) − log σ − log(1 − tanh²u), and log(1 − tanh²u) → 2(log 2 − |u|)
    gaussian = 3 * 0.5 * math.log(2 * math.pi) + (-5 + 0 + 1)
    assert log_density.item() == pytest.approx(
        -gaussian + 2 * (40 + 40 + 500) - 6 * math.log(2), rel=1e-6
    )
    gradients = torch.autograd.grad(log_density, (mean, std))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
