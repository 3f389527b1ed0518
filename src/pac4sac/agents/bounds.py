"""PAC-Bayes bounds in the paper's letters: m, v the posterior's mean and variance, kl = D_KL(μ‖μ₀), n = N tuples.

Pure, differentiable and batched: an argument is a tensor of any shape (they broadcast) or a plain number. Numbers are
checked; tensors are not, since they come from the hot path. The bounds assume i.i.d. tuples, which a replay buffer only
approximates, and losses in [0, 1] unless `loss_range` says otherwise.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pac4sac.base.errors import UserError

Real = Tensor | float


def gaussian_kl(m: Real, v: Real, m0: Real = 0.0, v0: Real = 1.0) -> Tensor:
    """D_KL(N(m, v) ‖ N(m₀, v₀)), paper section 3.2: the sum over the weights of a layer, which are the last axis."""
    _check("v", v, _is_positive, "greater than 0")
    _check("v0", v0, _is_positive, "greater than 0")
    m, v, m0, v0 = _tensors(m, v, m0, v0)
    each = 0.5 * (v / v0 + (m - m0).square() / v0 - 1 - torch.log(v / v0))
    return each.sum(-1)


# --- Complexity terms: a bound of this family is risk + complexity ----------------------------------------------------


def complexity_paper(kl: Real, n: Real, floor: float = 1e-12) -> Tensor:
    """√(KL/N), the conservative term of the paper's section 3.1; floored, since the slope of √ at 0 is infinite."""
    _check_kl_and_n(kl, n)
    kl, n = _tensors(kl, n)
    return torch.sqrt(torch.clamp(kl / n, min=floor))


def complexity_mcallester(kl: Real, n: Real, delta: Real) -> Tensor:
    """√((KL + ln(1/δ)) / 2N): McAllester as the paper prints it (section 3.1); smaller than what is proven."""
    _check_kl_and_n(kl, n)
    check_delta(delta)
    kl, n, delta = _tensors(kl, n, delta)
    return torch.sqrt((kl - torch.log(delta)) / (2 * n))


def complexity_mcallester_2003(kl: Real, n: Real, delta: Real) -> Tensor:
    """√((KL + ln(N/δ)) / 2(N − 1)): as proven by McAllester (2003), PAC-Bayesian Stochastic Model Selection; N ≥ 2."""
    _check_kl_and_n(kl, n, least_n=2)
    check_delta(delta)
    kl, n, delta = _tensors(kl, n, delta)
    return torch.sqrt((kl + torch.log(n / delta)) / (2 * (n - 1)))


def complexity_maurer(kl: Real, n: Real, delta: Real) -> Tensor:
    """√κ = √((KL + ln(2√N/δ)) / 2N): Maurer (2004), A Note on the PAC Bayesian Theorem, for losses in [0, 1]."""
    return torch.sqrt(kappa(kl, n, delta))


def mcallester(risk: Real, kl: Real, n: Real, delta: Real, loss_range: Real = 1.0) -> Tensor:
    """McAllester's bound as the paper prints it, section 3.1; shown as the paper's, not fit for a certificate."""
    return risk + _scaled(loss_range, complexity_mcallester(kl, n, delta))


def mcallester_2003(risk: Real, kl: Real, n: Real, delta: Real, loss_range: Real = 1.0) -> Tensor:
    """McAllester's bound as proven in 2003."""
    return risk + _scaled(loss_range, complexity_mcallester_2003(kl, n, delta))


def maurer(risk: Real, kl: Real, n: Real, delta: Real, loss_range: Real = 1.0) -> Tensor:
    """R̂ + √κ, the classic bound (Maurer 2004): the least that a certificate should use."""
    return risk + _scaled(loss_range, complexity_maurer(kl, n, delta))


# --- Bounds on the error of the value function ------------------------------------------------------------------------


def theorem_1_is_valid(n: Real, r_max: Real, correlation: Real) -> Tensor:
    """N > 2 R_max² ‖Γ‖², the condition under which Theorem 1 says anything; `correlation` is ‖Γ‖."""
    n, r_max, correlation = _tensors(n, r_max, correlation)
    return n > 2 * r_max.square() * correlation.square()


def theorem_1_verdict(n: float, r_max: float, correlation: float) -> str:
    """The validity of Theorem 1 in words."""
    least = 2 * r_max**2 * correlation**2
    if bool(theorem_1_is_valid(n, r_max, correlation)):
        return f"valid: N = {n:g} exceeds 2 R_max² ‖Γ‖² = {least:g}"
    return f"vacuous: Theorem 1 needs N > 2 R_max² ‖Γ‖² = {least:g}, and N is {n:g}"


def theorem_1(
    risk: Real,
    kl: Real,
    n: Real,
    delta: Real,
    *,
    gamma: Real,
    next_value_variance: Real,
    r_max: Real,
    correlation: Real,
) -> Tensor:
    """Theorem 1 of the paper (Fard et al. 2012), a bound on E‖Q_π − Q‖²; infinite where it is vacuous."""
    _check_kl_and_n(kl, n)
    check_delta(delta)
    _check_gamma(gamma)
    valid = theorem_1_is_valid(n, r_max, correlation)
    risk, kl, n, delta, gamma, next_value_variance, r_max, correlation = _tensors(
        risk, kl, n, delta, gamma, next_value_variance, r_max, correlation
    )
    # 2 stands in where the theorem is silent: a NaN inside the root would reach the gradient through torch.where.
    effective_n = torch.where(valid, n / (2 * r_max.square() * correlation.square()), 2.0)
    root = torch.sqrt((torch.log(effective_n / delta) + kl) / (effective_n - 1))
    return torch.where(valid, (risk + root - next_value_variance) / (1 - gamma).square(), math.inf)


def final_bound(risk: Real, kl: Real, n: Real, delta: Real, *, gamma: Real, next_value_variance: Real) -> Tensor:
    """The final bound of the paper's section 3.1; its left side, printed E R(μ), means E‖Q_π − Q‖².

    As printed: the variance, which the value-error inequality adds, is subtracted and lacks a γ².
    """
    _check_gamma(gamma)
    complexity = complexity_mcallester(kl, n, delta)
    risk, gamma, next_value_variance = _tensors(risk, gamma, next_value_variance)
    return (risk + complexity - next_value_variance) / (1 - gamma).square()


# --- Losses in [0, 1] and the bounds made for them --------------------------------------------------------------------


def bounded_loss(m: Real, v: Real, y: Real, epsilon: Real) -> Tensor:
    """E over Q ~ N(m, v) of 1 − exp(−(Q − y)²/ε²), the bounded stand-in for the squared error (Gaussian integral)."""
    _check("epsilon", epsilon, _is_positive, "greater than 0")
    m, v, y, epsilon = _tensors(m, v, y, epsilon)
    width = epsilon.square()
    return -torch.expm1(-(m - y).square() / (width + 2 * v) - 0.5 * torch.log1p(2 * v / width))


def kappa(kl: Real, n: Real, delta: Real) -> Tensor:
    """κ = (KL + ln(2√N/δ)) / 2N, shared by the bounds below (Maurer 2004).

    Maurer asks N ≥ 8, and a plain number below is refused; the inequality behind ln(2√N) holds for N = 1…7 as well, so
    the tensor N of a nearly empty buffer does no harm.
    """
    _check_kl_and_n(kl, n, least_n=8)
    check_delta(delta)
    kl, n, delta = _tensors(kl, n, delta)
    return (kl + torch.log(2 * torch.sqrt(n) / delta)) / (2 * n)


def quadratic(risk: Real, kl: Real, n: Real, delta: Real) -> Tensor:
    """(√(R̂ + κ) + √κ)²: Rivasplata et al. (2019), PAC-Bayes with Backprop; under the classic one where below ¼."""
    k = kappa(kl, n, delta)
    (risk,) = _tensors(risk)
    return (torch.sqrt(risk + k) + torch.sqrt(k)).square()


def optimal_lambda(risk: Real, kl: Real, n: Real, delta: Real) -> Tensor:
    """λ* = 2 / (√(R̂/κ + 1) + 1), where the λ-bound is least (Thiemann et al. 2017) and equals the quadratic one."""
    (risk,) = _tensors(risk)
    return 2 / (torch.sqrt(risk / kappa(kl, n, delta) + 1) + 1)


def lambda_bound(risk: Real, kl: Real, n: Real, delta: Real, lam: Real | None = None) -> Tensor:
    """R̂/(1 − λ/2) + 2κ/(λ(1 − λ/2)), for all λ in (0, 2) at once: Thiemann et al. (2017); λ* where none is given."""
    if lam is None:
        lam = optimal_lambda(risk, kl, n, delta)
    _check("lambda", lam, lambda x: 0 < x < 2, "between 0 and 2, both excluded")
    k = kappa(kl, n, delta)
    risk, lam = _tensors(risk, lam)
    return (risk + 2 * k / lam) / (1 - lam / 2)


def kl_bound(risk: Real, kl: Real, n: Real, delta: Real) -> Tensor:
    """kl⁻¹(R̂ | 2κ): Seeger (2002) with Maurer's constant; tightest, as classic and quadratic relax it."""
    return kl_inverse(risk, 2 * kappa(kl, n, delta))


def tandem_loss(m: Real, y: Real) -> Tensor:
    """E of (Q − y)(Q′ − y) for independent Q, Q′ ~ N(m, v): the squared error without its variance v."""
    m, y = _tensors(m, y)
    return (m - y).square()


# --- The binary kl and its upper inverse ------------------------------------------------------------------------------


def kl_inverse(q: Real, level: Real) -> Tensor:
    """The largest p with kl(q‖p) ≤ level, for q in [0, 1]; differentiable (Reeb et al. 2018, appendix)."""
    _check("the risk", q, lambda x: 0 <= x <= 1, "within [0, 1]")
    _check("the level", level, lambda x: x >= 0, "0 or greater")
    q, level = _tensors(q, level)
    inverse: Tensor = _KlInverse.apply(*torch.broadcast_tensors(q, level))  # type: ignore[no-untyped-call]
    return inverse


_TINY = 1e-300  # keeps 0/0 out of float64 and changes no value above it
_BISECTIONS = 60, 32  # a float64 has 53 bits, a float32 24, and the bracket may be a few too wide


def _binary_kl_over_gap(q: Tensor, gap: Tensor) -> Tensor:
    """kl(q‖q + gap), without the cancellation that q ln(q/p) suffers when p is close to q."""
    heads = q * torch.log1p(gap / q.clamp(min=_TINY))
    tails = (1 - q) * torch.log1p(-gap / (1 - q).clamp(min=_TINY))
    return -heads - tails


class _KlInverse(torch.autograd.Function):
    """Bisection for the gap p − q in float64; the gradient follows from kl(q‖p) = level, not from the bisection."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, level: Tensor) -> Tensor:
        dtype = torch.promote_types(q.dtype, level.dtype)
        q, level = q.double().clamp(0, 1), level.double().clamp(min=0)
        # The relaxations kl ≥ 2 gap² and kl ≥ gap²/2p bracket the gap closely, so even a tiny one keeps all its digits.
        pinsker = torch.sqrt(level / 2)
        refined = level + torch.sqrt(level * (level + 2 * q))
        low, high = torch.zeros_like(q), torch.minimum(1 - q, torch.minimum(pinsker, refined))
        for _ in range(_BISECTIONS[dtype != torch.float64]):
            middle = (low + high) / 2
            fits = _binary_kl_over_gap(q, middle) <= level
            low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
        ctx.save_for_backward(q, high)  # the upper end: a certificate may not fall short
        return (q + high).to(dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        q, gap = ctx.saved_tensors
        saturated = q + gap >= 1 - 1e-12  # a bound of 1 stays 1 under small changes
        # Infinite slopes at level = 0 and q = 0 are cut to large finite ones, which an optimiser survives.
        q, gap = q.clamp(min=1e-12), gap.clamp(min=1e-12)
        p = q + gap
        by_level = p * (1 - p) / gap
        by_q = by_level * (torch.log1p(gap / q) - torch.log1p(-gap / (1 - q)))
        return (
            slope * torch.where(saturated, 0.0, by_q).to(slope.dtype),
            slope * torch.where(saturated, 0.0, by_level).to(slope.dtype),
        )


# --- Plain numbers: checked, and made tensors -------------------------------------------------------------------------


def _tensors(*values: Real) -> list[Tensor]:
    """Numbers and counts in the dtype and device of the first floating tensor (float64 where there is none).

    new_full, unlike torch.tensor, copies nothing from the host: a CUDA graph can capture it.
    """
    floating = [x for x in values if isinstance(x, Tensor) and x.is_floating_point()]
    like = floating[0] if floating else torch.empty((), dtype=torch.float64)
    return [
        (x if x.is_floating_point() else x.to(like.dtype)) if isinstance(x, Tensor) else like.new_full((), x)
        for x in values
    ]


def _scaled(loss_range: Real, complexity: Tensor) -> Tensor:
    _check("loss_range", loss_range, _is_positive, "greater than 0")
    return loss_range * complexity


def _is_positive(x: float) -> bool:
    return 0 < x < math.inf


def _check(name: str, value: Real, holds: Callable[[float], bool], rule: str) -> None:
    if not isinstance(value, Tensor) and not holds(value):
        raise UserError(f"{name} is {value}: it must be {rule}.")


def _check_kl_and_n(kl: Real, n: Real, least_n: int = 1) -> None:
    _check("the KL divergence", kl, lambda x: x >= 0, "0 or greater")
    _check("N", n, lambda x: least_n <= x < math.inf, f"finite and at least {least_n}")


def check_delta(delta: Real) -> None:
    _check("delta", delta, lambda x: 0 < x < 1, "between 0 and 1, both excluded")


def _check_gamma(gamma: Real) -> None:
    _check("gamma", gamma, lambda x: 0 <= x < 1, "within [0, 1)")
