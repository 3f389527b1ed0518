"""PAC-Bayes bounds in the notation of the paper: m and v are the mean and the variance of the
posterior, kl is D_KL(μ‖μ₀), and n is the number N of tuples.

The functions are pure, differentiable and batched. An argument is a tensor of any shape (shapes
broadcast) or a plain number. Numbers are checked; tensors are not, for speed. The bounds assume
i.i.d. tuples, which a replay buffer only approximates. They also assume losses in [0, 1], unless
`loss_range` is given.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pac4sac.base.errors import UserError

Real = Tensor | float


def gaussian_kl(m: Real, v: Real, m0: Real = 0.0, v0: Real = 1.0) -> Tensor:
    """Return D_KL(N(m, v) ‖ N(m₀, v₀)), summed over the last axis.

    Args:
        m: Means of the weights [..., K].
        v: Variances [..., K].
        m0: Means of the prior.
        v0: Variances of the prior.

    Returns:
        The divergence [...].

    Raises:
        UserError: If a variance is not positive.

    Example:
        >>> import torch
        >>> from pac4sac.agents.api import gaussian_kl
        >>> gaussian_kl(torch.tensor([1.0, 1.0]), torch.ones(2))
        tensor(1.)
    """
    m, m0, v, v0 = _checked(m, m0, v=v, v0=v0)
    return (0.5 * (v / v0 + (m - m0).square() / v0 - 1 - torch.log(v / v0))).sum(-1)


# --- Complexity terms: a bound of this family is risk + complexity
# ----------------------------------------------------


def complexity_paper(kl: Real, n: Real, floor: float = 1e-12) -> Tensor:
    """Return √(KL/N), the conservative term of the paper's Section 3.1. A floor keeps the gradient
    finite at KL = 0."""
    kl, n = _checked(kl=kl, n=n)
    return torch.sqrt(torch.clamp(kl / n, min=floor))


def complexity_mcallester(kl: Real, n: Real, delta: Real) -> Tensor:
    """Return √((KL + ln(1/δ)) / 2N), McAllester's term as printed in the paper's Section 3.1; it is
    smaller than the proven one."""
    kl, n, delta = _checked(kl=kl, n=n, delta=delta)
    return torch.sqrt((kl - torch.log(delta)) / (2 * n))


def complexity_mcallester_2003(kl: Real, n: Real, delta: Real) -> Tensor:
    """Return √((KL + ln(N/δ)) / 2(N − 1)), as proven by McAllester (2003), PAC-Bayesian Stochastic
    Model Selection; N ≥ 2."""
    kl, n, delta = _checked(kl=kl, n=n, delta=delta, least_n=2)
    return torch.sqrt((kl + torch.log(n / delta)) / (2 * (n - 1)))


def complexity_maurer(kl: Real, n: Real, delta: Real) -> Tensor:
    """Return √κ = √((KL + ln(2√N/δ)) / 2N) of Maurer (2004), A Note on the PAC Bayesian Theorem,
    for losses in [0, 1]."""
    return torch.sqrt(kappa(kl, n, delta))


def _bound_by(complexity: Callable[[Real, Real, Real], Tensor]) -> Callable[..., Tensor]:
    """Return the bound R̂ + complexity, scaled by the range of the loss."""

    def bound(risk: Real, kl: Real, n: Real, delta: Real, loss_range: Real = 1.0) -> Tensor:
        _checked(loss_range=loss_range)
        return risk + loss_range * complexity(kl, n, delta)

    return bound


# bound of the paper's Section 3.1; not valid for a certificate
mcallester = _bound_by(complexity_mcallester)
mcallester_2003 = _bound_by(complexity_mcallester_2003)
# R̂ + √κ, the classic bound: the simplest bound that is valid for a certificate
maurer = _bound_by(complexity_maurer)


# --- Bounds on the error of the value function
# ------------------------------------------------------------------------


def theorem_1_verdict(n: float, r_max: float, correlation: float) -> str:
    """Return the condition under which Theorem 1 is not vacuous, in words; `correlation` is ‖Γ‖."""
    least = 2 * r_max**2 * correlation**2
    if n > least:
        return f"valid: N = {n:g} exceeds 2 R_max² ‖Γ‖² = {least:g}"
    return f"vacuous: Theorem 1 needs N > 2 R_max² ‖Γ‖² = {least:g}, and N is {n:g}"


def theorem_1(
    risk: Real,
    kl: Real,
    n: Real,
    delta: Real,
    gamma: Real,
    next_value_variance: Real,
    r_max: Real,
    correlation: Real,
) -> Tensor:
    """Return the bound of the paper's Theorem 1 (Fard et al. 2012) on E‖Q_π − Q‖²; infinite if it
    is vacuous."""
    numbers = _checked(risk, r_max, correlation, kl=kl, n=n, delta=delta, gamma=gamma)
    risk, r_max, correlation, kl, n, delta, gamma = numbers
    effective_n = n / (2 * r_max.square() * correlation.square())
    valid = effective_n > 1
    # Vacuous values are replaced with 2 inside the root, because the gradient of a NaN would pass
    # through torch.where.
    effective_n = torch.where(valid, effective_n, 2.0)
    root = torch.sqrt((torch.log(effective_n / delta) + kl) / (effective_n - 1))
    return torch.where(valid, (risk + root - next_value_variance) / (1 - gamma).square(), math.inf)


def final_bound(
    risk: Real, kl: Real, n: Real, delta: Real, *, gamma: Real, next_value_variance: Real
) -> Tensor:
    """Return the final bound of the paper's Section 3.1; its left side, printed as E R(μ), is E‖Q_π
    − Q‖².

    It is computed as printed: the variance is subtracted and γ² is missing, although the
        value-error inequality adds it.
    """
    risk, gamma = _checked(risk, gamma=gamma)
    return (risk + complexity_mcallester(kl, n, delta) - next_value_variance) / (1 - gamma).square()


# --- Losses in [0, 1], and bounds for them
# --------------------------------------------------------------------


def bounded_loss(m: Real, v: Real, y: Real, epsilon: Real) -> Tensor:
    """Return E_{Q~N(m, v)} of 1 − exp(−(Q − y)²/ε²), a bounded replacement of the squared error
    (Gaussian integral)."""
    m, v, y, epsilon = _checked(m, v, y, epsilon=epsilon)
    width = epsilon.square()
    return -torch.expm1(-(m - y).square() / (width + 2 * v) - 0.5 * torch.log1p(2 * v / width))


def kappa(kl: Real, n: Real, delta: Real) -> Tensor:
    """Return κ = (KL + ln(2√N/δ)) / 2N, which the bounds below use (Maurer 2004).

    Maurer requires N ≥ 8, so smaller plain numbers are refused. The inequality behind ln(2√N) also
    holds for N = 1…7, so a tensor N from a nearly empty replay buffer is valid.
    """
    kl, n, delta = _checked(kl=kl, n=n, delta=delta, least_n=8)
    return (kl + torch.log(2 * torch.sqrt(n) / delta)) / (2 * n)


def quadratic(risk: Real, kl: Real, n: Real, delta: Real) -> Tensor:
    """Return (√(R̂ + κ) + √κ)² of Rivasplata et al. (2019), PAC-Bayes with Backprop; below ¼ it is
    tighter than the classic bound."""
    k = kappa(kl, n, delta)
    return (torch.sqrt(risk + k) + torch.sqrt(k)).square()


def optimal_lambda(risk: Real, kl: Real, n: Real, delta: Real) -> Tensor:
    """Return λ* = 2 / (√(R̂/κ + 1) + 1), which minimises the λ-bound (Thiemann et al. 2017); the
    minimum equals the quadratic bound."""
    return 2 / (torch.sqrt(risk / kappa(kl, n, delta) + 1) + 1)


def lambda_bound(risk: Real, kl: Real, n: Real, delta: Real, lam: Real | None = None) -> Tensor:
    """Return R̂/(1 − λ/2) + 2κ/(λ(1 − λ/2)) of Thiemann et al. (2017), valid for all λ in (0, 2)
    simultaneously; λ defaults to λ*."""
    risk, lam = _checked(risk, lam=optimal_lambda(risk, kl, n, delta) if lam is None else lam)
    return (risk + 2 * kappa(kl, n, delta) / lam) / (1 - lam / 2)


def kl_bound(risk: Real, kl: Real, n: Real, delta: Real) -> Tensor:
    """Return kl⁻¹(R̂ | 2κ) of Seeger (2002) with Maurer's constant; the classic and quadratic
    bounds are relaxations of it."""
    return kl_inverse(risk, 2 * kappa(kl, n, delta))


# --- The binary kl and its upper inverse
# ------------------------------------------------------------------------------


def kl_inverse(q: Real, level: Real) -> Tensor:
    """Return the largest p with kl(q‖p) ≤ level, for q in [0, 1]. It is differentiable (Reeb et al.
    2018, appendix)."""
    q, level = _checked(q=q, level=level)
    inverse: Tensor = _KlInverse.apply(*torch.broadcast_tensors(q, level))  # type: ignore[no-untyped-call]
    return inverse


_TINY = 1e-300  # prevents 0/0 in float64, and changes no larger value
# float64 has 53 bits and float32 has 24; the bracket may be a few bits too wide
_BISECTIONS = 60, 32


def _binary_kl_over_gap(q: Tensor, gap: Tensor) -> Tensor:
    """Return kl(q‖q + gap) without the cancellation of q ln(q/p) for p close to q."""
    heads = q * torch.log1p(gap / q.clamp(min=_TINY))
    tails = (1 - q) * torch.log1p(-gap / (1 - q).clamp(min=_TINY))
    return -heads - tails


class _KlInverse(torch.autograd.Function):
    """Compute the gap p − q with bisection in float64. Its gradient follows from kl(q‖p) =
    level."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, level: Tensor) -> Tensor:
        dtype = torch.promote_types(q.dtype, level.dtype)
        q, level = q.double().clamp(0, 1), level.double().clamp(min=0)
        # The relaxations kl ≥ 2 gap² and kl ≥ gap²/2p bracket the gap closely, so even tiny gaps
        # keep all digits.
        pinsker = torch.sqrt(level / 2)
        refined = level + torch.sqrt(level * (level + 2 * q))
        low, high = torch.zeros_like(q), torch.minimum(1 - q, torch.minimum(pinsker, refined))
        for _ in range(_BISECTIONS[dtype != torch.float64]):
            middle = (low + high) / 2
            fits = _binary_kl_over_gap(q, middle) <= level
            low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
        # the upper end of the bracket, because a certificate must not be too small
        ctx.save_for_backward(q, high)
        return (q + high).to(dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        q, gap = ctx.saved_tensors
        saturated = q + gap >= 1 - 1e-12  # a bound of 1 has gradient 0
        # Infinite gradients at level = 0 and q = 0 are clipped to large finite values, which do not
        # break an optimiser.
        q, gap = q.clamp(min=1e-12), gap.clamp(min=1e-12)
        p = q + gap
        by_level = p * (1 - p) / gap
        by_q = by_level * (torch.log1p(gap / q) - torch.log1p(-gap / (1 - q)))
        return (
            slope * torch.where(saturated, 0.0, by_q).to(slope.dtype),
            slope * torch.where(saturated, 0.0, by_level).to(slope.dtype),
        )


# --- Plain numbers are checked and converted to tensors
# -------------------------------------------------------------------------

_RULES: dict[str, tuple[str, Callable[[float], bool], str]] = {
    "kl": ("the KL divergence", lambda x: x >= 0, "0 or greater"),
    "delta": ("delta", lambda x: 0 < x < 1, "between 0 and 1, both excluded"),
    "gamma": ("gamma", lambda x: 0 <= x < 1, "within [0, 1)"),
    "lam": ("lambda", lambda x: 0 < x < 2, "between 0 and 2, both excluded"),
    "q": ("the risk", lambda x: 0 <= x <= 1, "within [0, 1]"),
    "level": ("the level", lambda x: x >= 0, "0 or greater"),
} | {
    name: (name, lambda x: 0 < x < math.inf, "greater than 0")
    for name in ("v", "v0", "epsilon", "loss_range")
}


def _checked(*free: Real, least_n: int = 1, **ruled: Real) -> list[Tensor]:
    """Return numbers and counts in the dtype and on the device of the first floating tensor.

    Without such a tensor, the dtype is float64. Plain numbers must satisfy the rule for their name.
        new_full is used instead of torch.tensor: it copies nothing from the host, so a CUDA graph
            can capture it.
    """
    rules = _RULES | {
        "n": ("N", lambda x: least_n <= x < math.inf, f"finite and at least {least_n}")
    }
    for name, value in ruled.items():
        title, holds, rule = rules[name]
        if not isinstance(value, Tensor) and not holds(value):
            raise UserError(f"{title} must be {rule}, not {value}.")
    values = [*free, *ruled.values()]
    floating = [x for x in values if isinstance(x, Tensor) and x.is_floating_point()]
    like = floating[0] if floating else torch.empty((), dtype=torch.float64)
    return [
        (x if x.is_floating_point() else x.to(like.dtype))
        if isinstance(x, Tensor)
        else like.new_full((), x)
        for x in values
    ]


def check_delta(delta: Real) -> None:
    _checked(delta=delta)
