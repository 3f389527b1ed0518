"""Choices that go beyond the paper, or that it leaves open; `pac4sac.py` names them and stays the paper."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from pac4sac.agents import bounds, replay
from pac4sac.agents.base import Draw, Hyper, State
from pac4sac.agents.full_covariance import FullCovarianceCritic
from pac4sac.agents.nets import Critic, Params
from pac4sac.agents.replay import Batch
from pac4sac.agents.tape import Stream

STD_FLOOR = 1e-6  # of √v_p, whose slope is infinite at 0
FRESH = "fresh/"  # before names of what is drawn for a second minibatch, that of the exploration term

# The conservative term from KL, N and δ. The paper's training objective has no δ; "mcallester" is the bound as the
# paper prints it, the last two are proven.
COMPLEXITY: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "paper": lambda kl, n, delta: bounds.complexity_paper(kl, n),
    "mcallester": bounds.complexity_mcallester,
    "mcallester-2003": bounds.complexity_mcallester_2003,
    "maurer": bounds.complexity_maurer,
}


def complexity(form: str, kl: Tensor, n: Tensor, h: Hyper) -> Tensor:
    """Of [R, M]; McAllester's root is for losses in [0, 1], and a wider range of the loss scales it."""
    return h.loss_range[:, None] * COMPLEXITY[form](kl, n, h.delta[:, None])


def deviation(v: Tensor) -> Tensor:
    return v.clamp_min(STD_FLOOR**2).sqrt()


def sampled_value(critic: Critic, q: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
    """m_p + ε √v_p with noise [R, M, B], one ε for each pair (s, a); the mean without noise or variance. [R, M, B]"""
    m, v = critic(q, s, a)
    return m if noise is None or v is None else m + noise * deviation(v)


def thompson_value(critic: Critic, q: Params, s: Tensor, a: Tensor, noise: Tensor) -> Tensor:
    """One draw of the last layer's weights for all candidates, noise [R, M, K]: they are ranked by a single critic."""
    phi = critic.features(q, s, a)
    return critic.per_member(torch.baddbmm(q["head.bias"], phi, critic.sampled_weights(q, noise)).squeeze(-1))


def candidate_values(critic: Critic, q: Params, s: Tensor, a: Tensor, noise: Tensor | None, shooting: str) -> Tensor:
    """Samples of Q for candidates [R, S·B, da]: each its own, noise [R, S, M, B], or all of one draw of the weights."""
    if noise is None or not critic.gaussian:
        return critic(q, s, a)[0]
    if shooting == "thompson":
        return thompson_value(critic, q, s, a, noise)
    return sampled_value(critic, q, s, a, noise.transpose(1, 2).flatten(2))  # [R, M, S·B]


def with_frozen_variance(q: Params) -> Params:
    """The released code clamps the variances where their gradient is zero; in effect they are constants."""
    return {**q, "head.log_variance": q["head.log_variance"].detach()}


def here_and_next(critic: Critic, q: Params, batch: Batch, s2: Tensor, a2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """m_p(s, a), v_p(s, a) and v_p(s′, a′), each [R, M, B], in one pass. A covariance that is measured, not trained,
    leaves the features alone: the cheapest way to be certain would be features that no longer tell pairs apart."""
    m, v = critic(q, torch.cat([batch.s, s2], 1), torch.cat([batch.a, a2], 1))
    assert v is not None
    if isinstance(critic, FullCovarianceCritic):
        v = v.detach()
    (here, _), (v_here, v_next) = m.chunk(2, -1), v.chunk(2, -1)
    return here, v_here, v_next


def fresh_streams(streams: Mapping[str, Stream], batch: int) -> dict[str, Stream]:
    """Random numbers for a second minibatch: which transitions, and a′ where it is drawn; not those of its target."""
    drawn = {"replay": Stream((batch,), uniform=True)}
    drawn |= {name: stream for name, stream in streams.items() if name == "target"}
    return {FRESH + name: stream for name, stream in drawn.items()}


def with_fresh_batch(draw: Draw, data: Tensor, step: Tensor, ds: int, da: int) -> Draw:
    batch = replay.sample(data, draw[FRESH + "replay"], step.clamp_max(data.shape[1]), ds, da)
    return {**draw, **{FRESH + name: part for name, part in batch._asdict().items()}}


def of_fresh_batch(draw: Draw) -> Draw:
    return {name.removeprefix(FRESH): part for name, part in draw.items() if name.startswith(FRESH)}


def first_prior(means: Sequence[float], variances: Sequence[float], critic: Critic, device: torch.device) -> State:
    """The prior of each weight, kept apart from the parameters: neither Adam nor Polyak averaging may touch it."""
    shape = (len(means), critic.members, critic.trunk.width)

    def fill(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device).view(-1, 1, 1).expand(shape).contiguous()

    return {"prior_mean": fill(means), "prior_log_variance": fill(variances).log()}


def move_prior(state: State, posterior: tuple[Tensor, Tensor], ended: Tensor) -> None:
    for name, value in zip(("prior_mean", "prior_log_variance"), posterior, strict=True):
        state[name].copy_(torch.where(ended.view(-1, 1, 1), value, state[name]))
