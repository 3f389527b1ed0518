"""Choices that go beyond the paper, or that it leaves open; `pac4sac.py` names them and stays the paper."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pac4sac import bounds
from pac4sac.agents.base import State
from pac4sac.nets import Critic, Params

STD_FLOOR = 1e-6  # of √v_p, whose slope is infinite at 0

# The conservative term from KL, N and δ. The paper's has no δ; the others are the complexity terms of proven bounds.
COMPLEXITY: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "paper": lambda kl, n, delta: bounds.complexity_paper(kl, n),
    "mcallester": bounds.complexity_mcallester,
    "mcallester-2003": bounds.complexity_mcallester_2003,
    "maurer": bounds.complexity_maurer,
}


def deviation(v: Tensor) -> Tensor:
    return v.clamp_min(STD_FLOOR**2).sqrt()


def sampled_value(critic: Critic, q: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
    """m_p + ε √v_p with noise [R, M, B], one ε for each pair (s, a); the mean without noise or variance. [R, M, B]"""
    m, v = critic(q, s, a)
    return m if noise is None or v is None else m + noise * deviation(v)


def thompson_value(critic: Critic, q: Params, s: Tensor, a: Tensor, noise: Tensor) -> Tensor:
    """One draw of the last layer's weights for all candidates, noise [R, M, K]: they are ranked by a single critic."""
    m, log_v = critic.posterior(q)
    weights = (m + noise * (0.5 * log_v).exp()).view(-1, noise.shape[-1], 1)  # [G, K, 1]
    phi = critic.features(q, s, a)
    return critic.per_member(torch.baddbmm(q["head.bias"], phi, weights).squeeze(-1))


def with_frozen_variance(q: Params) -> Params:
    """The released code clamps the variances where their gradient is zero; in effect they are constants."""
    return {**q, "head.log_variance": q["head.log_variance"].detach()}


def first_prior(means: Sequence[float], variances: Sequence[float], critic: Critic, device: torch.device) -> State:
    """The prior of each weight, kept apart from the parameters: neither Adam nor Polyak averaging may touch it."""
    shape = (len(means), critic.members, critic.trunk.width)

    def fill(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device).view(-1, 1, 1).expand(shape).contiguous()

    return {"prior_mean": fill(means), "prior_log_variance": fill(variances).log()}


def move_prior(state: State, posterior: tuple[Tensor, Tensor], ended: Tensor) -> None:
    for name, value in zip(("prior_mean", "prior_log_variance"), posterior, strict=True):
        state[name].copy_(torch.where(ended.view(-1, 1, 1), value, state[name]))
