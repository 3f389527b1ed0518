"""Each bound against numbers worked by hand, its monotonicity, and its place among the others."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from pac4sac.agents import bounds
from pac4sac.base.errors import UserError

# With N = 100 and δ = 0.02: ln(2√N/δ) = ln(20/0.02) = ln 1000. This KL makes the numerator 8, so κ
# = 8/200 = 0.04.
N, DELTA = 100, 0.02
KL = 8 - math.log(1000)

risks = st.floats(0, 1)
kls = st.floats(0, 1000)
counts = st.integers(8, 10**6)
deltas = st.floats(1e-6, 0.99)


def as_float(x: Tensor) -> float:
    return x.item()


def f64(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def binary_kl_by_definition(q: float, p: float) -> float:
    heads = q * math.log(q / p) if q > 0 else 0.0
    tails = (1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else 0.0
    return heads + tails


def kl_inverse_by_brentq(q: float, level: float) -> float:
    return brentq(lambda p: binary_kl_by_definition(q, p) - level, q, 1 - 1e-15, xtol=1e-15)


class TestGaussianKl:
    def test_shifted_mean(self) -> None:
        # ½(1 + 1² − 1 − ln 1) = ½
        assert as_float(bounds.gaussian_kl(1.0, 1.0)) == pytest.approx(0.5)

    def test_wide_posterior(self) -> None:
        # ½(e + 0 − 1 − ln e) = (e − 2)/2
        assert as_float(bounds.gaussian_kl(0.0, math.e)) == pytest.approx((math.e - 2) / 2)

    def test_general_prior(self) -> None:
        # N(3, 1) against N(1, 4): ½(1/4 + 2²/4 − 1 − ln(1/4)) = ½(1/4 + ln 4)
        assert as_float(bounds.gaussian_kl(3.0, 1.0, 1.0, 4.0)) == pytest.approx(
            (0.25 + math.log(4)) / 2
        )

    def test_is_zero_at_the_prior(self) -> None:
        assert as_float(bounds.gaussian_kl(0.3, 0.7, 0.3, 0.7)) == pytest.approx(0, abs=1e-15)

    def test_agrees_with_torch_distributions_and_sums_the_last_axis(self) -> None:
        generator = torch.Generator().manual_seed(0)
        m, v = (
            torch.randn(3, 2, 7, generator=generator),
            torch.rand(3, 2, 7, generator=generator) + 0.1,
        )
        m0, v0 = torch.randn(7, generator=generator), torch.rand(7, generator=generator) + 0.1
        expected = kl_divergence(Normal(m, v.sqrt()), Normal(m0, v0.sqrt())).sum(-1)
        torch.testing.assert_close(bounds.gaussian_kl(m, v, m0, v0), expected)


class TestComplexity:
    def test_paper(self) -> None:
        assert as_float(bounds.complexity_paper(4.0, 100)) == pytest.approx(0.2)  # √(4/100)

    def test_mcallester_as_printed(self) -> None:
        # ln(1/e⁻²) = 2, so √((6 + 2)/200) = √0.04
        assert as_float(bounds.complexity_mcallester(6.0, 100, math.exp(-2))) == pytest.approx(0.2)

    def test_mcallester_as_proven(self) -> None:
        # ln(101/0.101) = ln 1000, so √((8 − ln 1000 + ln 1000)/(2·100)) = √0.04
        assert as_float(bounds.complexity_mcallester_2003(KL, 101, 0.101)) == pytest.approx(0.2)

    def test_maurer(self) -> None:
        assert as_float(bounds.complexity_maurer(KL, N, DELTA)) == pytest.approx(0.2)

    def test_bounds_add_it_to_the_risk_scaled_by_the_range_of_the_loss(self) -> None:
        assert as_float(bounds.mcallester(0.1, 6.0, 100, math.exp(-2))) == pytest.approx(0.3)
        assert as_float(bounds.mcallester_2003(0.1, KL, 101, 0.101)) == pytest.approx(0.3)
        assert as_float(bounds.maurer(0.1, KL, N, DELTA)) == pytest.approx(0.3)
        # 0.1 + 5·0.2
        assert as_float(bounds.maurer(0.1, KL, N, DELTA, loss_range=5.0)) == pytest.approx(1.1)

    @pytest.mark.parametrize("kl", [0.0, -1e-7])
    def test_the_papers_term_has_a_finite_gradient_at_zero_even_with_rounding_below(
        self, kl: float
    ) -> None:
        leaf = torch.tensor(kl, requires_grad=True)
        bounds.complexity_paper(leaf, 1000).backward()
        assert leaf.grad is not None
        assert leaf.grad.isfinite()

    def test_maurers_inequality_also_holds_below_n_8(self) -> None:
        for n in range(1, 200):
            terms = (math.comb(n, k) * (k / n) ** k * (1 - k / n) ** (n - k) for k in range(n + 1))
            assert sum(terms) <= 2 * math.sqrt(n) + 1e-12


# With R_max = ‖Γ‖ = 1, N = 10, δ = 0.05: N/2 = 5, ln(5/0.05) = ln 100. A KL of 9 − ln 100 makes the
# root √(9/4) = 1.5.
THEOREM_1 = {"gamma": 0.5, "next_value_variance": 0.25, "r_max": 1.0, "correlation": 1.0}


class TestValueError:
    def test_theorem_1(self) -> None:
        bound = bounds.theorem_1(0.75, 9 - math.log(100), 10, 0.05, **THEOREM_1)
        assert as_float(bound) == pytest.approx(8.0)  # (0.75 + 1.5 − 0.25) / (1 − 0.5)²

    def test_theorem_1_is_infinite_if_vacuous_and_other_entries_keep_their_gradient(self) -> None:
        kl = f64(9 - math.log(100), 9 - math.log(100), 1.0).requires_grad_()
        bound = bounds.theorem_1(0.75, kl, torch.tensor([10, 2, 1]), 0.05, **THEOREM_1)
        assert bound.tolist() == [pytest.approx(8.0), math.inf, math.inf]
        bound[0].backward()
        # d/dKL 4·√(x/4) at x = 9: 4 · 1/(2·2·3)
        assert kl.grad is not None
        assert kl.grad.tolist() == pytest.approx([1 / 3, 0, 0])

    def test_theorem_1_needs_n_above_2_r_squared_gamma_squared(self) -> None:
        # 2·3²·2² = 72
        known = THEOREM_1 | {"r_max": 3.0, "correlation": 2.0}
        bound = bounds.theorem_1(0.75, 1.0, torch.tensor([72, 73]), 0.05, **known)
        assert bound.isfinite().tolist() == [False, True]

    def test_its_validity_is_described_in_words(self) -> None:
        assert bounds.theorem_1_verdict(73, 3.0, 2.0).startswith("valid")
        verdict = bounds.theorem_1_verdict(50, 3.0, 2.0)
        assert verdict.startswith("vacuous")
        assert "72" in verdict
        assert "50" in verdict

    def test_final_bound(self) -> None:
        # (0.3 + 0.2 − 0.1) / (1 − 0.9)² = 0.4 · 100
        bound = bounds.final_bound(0.3, 6.0, 100, math.exp(-2), gamma=0.9, next_value_variance=0.1)
        assert as_float(bound) == pytest.approx(40.0)


class TestBoundedLoss:
    @pytest.mark.parametrize(
        ("m", "v", "y", "epsilon"),
        [(0.0, 1.0, 0.0, 1.0), (2.0, 0.3, -1.0, 2.5), (5.0, 1e-3, 5.2, 0.1), (1, 9, 0, 4)],
    )
    def test_is_the_expectation_over_the_posterior_of_the_critic(
        self, m: float, v: float, y: float, epsilon: float
    ) -> None:
        def integrand(q: float) -> float:
            density = math.exp(-((q - m) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v)
            return (1 - math.exp(-((q - y) ** 2) / epsilon**2)) * density

        reach = 12 * math.sqrt(v)
        expected, _ = quad(integrand, m - reach, m + reach, epsabs=1e-12, limit=200)
        assert as_float(bounds.bounded_loss(m, v, y, epsilon)) == pytest.approx(expected, rel=1e-8)

    def test_matches_a_value_computed_by_hand(self) -> None:
        # v = 3/2, ε = 1: (1 + 3)^(−½) = ½ and (m − y)² = 4 over 1 + 3 is 1: 1 − e⁻¹/2
        assert as_float(bounds.bounded_loss(2.0, 1.5, 0.0, 1.0)) == pytest.approx(
            1 - math.exp(-1) / 2
        )

    @given(st.floats(-1e3, 1e3), st.floats(0, 1e3), st.floats(1e-2, 1e3))
    def test_is_between_zero_and_one(self, m: float, v: float, epsilon: float) -> None:
        assert 0 <= as_float(bounds.bounded_loss(m, v, 0.0, epsilon)) <= 1


class TestBoundedLossFamily:
    def test_classic(self) -> None:
        assert as_float(bounds.maurer(0.21, KL, N, DELTA)) == pytest.approx(0.41)  # 0.21 + √0.04

    def test_quadratic(self) -> None:
        # (√0.25 + √0.04)²
        assert as_float(bounds.quadratic(0.21, KL, N, DELTA)) == pytest.approx(0.49)
        assert as_float(bounds.quadratic(0.0, KL, N, DELTA)) == pytest.approx(0.16)  # 4κ

    def test_lambda(self) -> None:
        # 0.05/(1 − ½) + 8/(100 · 1 · (1 − ½)) = 0.1 + 0.16
        assert as_float(bounds.lambda_bound(0.05, KL, N, DELTA, 1.0)) == pytest.approx(0.26)

    def test_optimal_lambda(self) -> None:
        # 2 / (√(0.05/0.04 + 1) + 1) = 2 / (1.5 + 1), and there 0.05/0.6 + 8/(100 · 0.8 · 0.6) =
        # 1/12 + 1/6
        assert as_float(bounds.optimal_lambda(0.05, KL, N, DELTA)) == pytest.approx(0.8)
        assert as_float(bounds.lambda_bound(0.05, KL, N, DELTA)) == pytest.approx(0.25)

    def test_kl_bound(self) -> None:
        # R̂ = 0: −ln(1 − p) = 2κ = 0.08
        assert as_float(bounds.kl_bound(0.0, KL, N, DELTA)) == pytest.approx(1 - math.exp(-0.08))

    @given(risks, kls, counts, deltas)
    def test_the_best_lambda_gives_the_quadratic_bound(
        self, risk: float, kl: float, n: int, delta: float
    ) -> None:
        best = as_float(bounds.lambda_bound(risk, kl, n, delta))
        assert best == pytest.approx(as_float(bounds.quadratic(risk, kl, n, delta)))

    @given(risks, kls, counts, deltas, st.floats(0.01, 1.99))
    def test_no_lambda_is_better_than_the_optimal_lambda(
        self, risk: float, kl: float, n: int, delta: float, lam: float
    ) -> None:
        best = as_float(bounds.lambda_bound(risk, kl, n, delta))
        assert as_float(bounds.lambda_bound(risk, kl, n, delta, lam)) >= best * (1 - 1e-9)

    @given(risks, kls, counts, deltas)
    def test_kl_inverse_is_the_tightest(self, risk: float, kl: float, n: int, delta: float) -> None:
        tightest = as_float(bounds.kl_bound(risk, kl, n, delta))
        assert tightest <= as_float(bounds.maurer(risk, kl, n, delta)) + 1e-12
        assert tightest <= as_float(bounds.quadratic(risk, kl, n, delta)) + 1e-12

    @given(risks, kls, counts, deltas)
    def test_quadratic_beats_classic_exactly_below_a_quarter(
        self, risk: float, kl: float, n: int, delta: float
    ) -> None:
        quadratic = as_float(bounds.quadratic(risk, kl, n, delta))
        classic = as_float(bounds.maurer(risk, kl, n, delta))
        if quadratic < 0.25 - 1e-9:
            assert quadratic < classic
        elif quadratic > 0.25 + 1e-9:
            assert quadratic > classic


FAMILY = [
    bounds.mcallester,
    bounds.mcallester_2003,
    bounds.maurer,
    bounds.quadratic,
    bounds.lambda_bound,
    bounds.kl_bound,
    lambda risk, kl, n, delta: bounds.final_bound(
        risk, kl, n, delta, gamma=0.9, next_value_variance=0.1
    ),
    lambda risk, kl, n, delta: bounds.theorem_1(risk, kl, n, delta, **THEOREM_1),
]


@pytest.mark.parametrize("bound", FAMILY)
class TestMonotonicity:
    @settings(max_examples=30)
    @given(risks, kls, counts, deltas, st.floats(1.001, 100))
    def test_more_data_gives_a_tighter_bound(
        self,
        bound: Callable[..., Tensor],
        risk: float,
        kl: float,
        n: int,
        delta: float,
        more: float,
    ) -> None:
        assert (
            as_float(bound(risk, kl, math.ceil(n * more), delta))
            <= as_float(bound(risk, kl, n, delta)) + 1e-12
        )

    @settings(max_examples=30)
    @given(risks, kls, counts, deltas, st.floats(1e-3, 100))
    def test_a_larger_kl_gives_a_looser_bound(
        self,
        bound: Callable[..., Tensor],
        risk: float,
        kl: float,
        n: int,
        delta: float,
        more: float,
    ) -> None:
        assert (
            as_float(bound(risk, kl + more, n, delta))
            >= as_float(bound(risk, kl, n, delta)) - 1e-12
        )

    @settings(max_examples=30)
    @given(risks, kls, counts, deltas, st.floats(0.01, 0.99))
    def test_more_confidence_gives_a_looser_bound(
        self,
        bound: Callable[..., Tensor],
        risk: float,
        kl: float,
        n: int,
        delta: float,
        share: float,
    ) -> None:
        assert (
            as_float(bound(risk, kl, n, delta * share))
            >= as_float(bound(risk, kl, n, delta)) - 1e-12
        )

    def test_a_batch_equals_its_scalars(self, bound: Callable[..., Tensor]) -> None:
        risk, kl, n = (
            f64(0.0, 0.3, 0.9)[:, None],
            f64(1.0, 50.0),
            torch.tensor([[[100]], [[10_000]]]),
        )
        batch = bound(risk, kl, n, 0.05)
        assert batch.shape == (2, 3, 2)
        one_by_one = [
            [[as_float(bound(r, k, c, 0.05)) for k in (1.0, 50.0)] for r in (0.0, 0.3, 0.9)]
            for c in (100, 10_000)
        ]
        torch.testing.assert_close(batch, torch.tensor(one_by_one, dtype=torch.float64))

    def test_its_gradient_in_risk_and_kl_matches_finite_differences(
        self, bound: Callable[..., Tensor]
    ) -> None:
        risk, kl = f64(0.05, 0.3, 0.8).requires_grad_(), f64(2.0, 20.0, 5.0).requires_grad_()
        assert torch.autograd.gradcheck(
            lambda r, k: bound(r, k, torch.tensor(500), 0.05), (risk, kl)
        )

    def test_float32_stays_float32(self, bound: Callable[..., Tensor]) -> None:
        assert (
            bound(torch.tensor([0.3]), torch.tensor([5.0]), torch.tensor([1000]), 0.05).dtype
            == torch.float32
        )


class TestKlInverse:
    @given(st.floats(1e-9, 1 - 1e-6), st.floats(1e-6, 8))
    def test_agrees_with_brentq(self, q: float, level: float) -> None:
        if binary_kl_by_definition(q, 1 - 1e-15) <= level:
            assert as_float(bounds.kl_inverse(q, level)) == pytest.approx(1, abs=1e-14)
        else:
            expected = kl_inverse_by_brentq(q, level)
            assert as_float(bounds.kl_inverse(q, level)) == pytest.approx(expected, rel=1e-9)

    @given(st.floats(0.01, 0.9), st.floats(1e-3, 2))
    def test_its_gradient_matches_finite_differences_of_brentq(
        self, q: float, level: float
    ) -> None:
        if kl_inverse_by_brentq(q, level) > 0.999:  # too flat for a finite difference to resolve
            return
        at = f64(q).requires_grad_(), f64(level).requires_grad_()
        bounds.kl_inverse(*at).backward()
        h = 1e-5
        by_q = (kl_inverse_by_brentq(q + h, level) - kl_inverse_by_brentq(q - h, level)) / (2 * h)
        by_level = (kl_inverse_by_brentq(q, level + h) - kl_inverse_by_brentq(q, level - h)) / (
            2 * h
        )
        assert at[0].grad is not None
        assert at[1].grad is not None
        assert as_float(at[0].grad) == pytest.approx(by_q, rel=1e-3, abs=1e-4)
        assert as_float(at[1].grad) == pytest.approx(by_level, rel=1e-3, abs=1e-4)

    def test_zero_risk_has_a_closed_form(self) -> None:
        level = f64(1e-15, 1e-3, 1.0, 30.0)
        torch.testing.assert_close(
            bounds.kl_inverse(0.0, level), -torch.expm1(-level), rtol=1e-12, atol=0.0
        )

    def test_at_level_zero_the_inverse_is_the_risk(self) -> None:
        q = f64(0.0, 1e-12, 0.3, 1.0)
        assert bounds.kl_inverse(q, 0.0).equal(q)

    def test_a_huge_level_gives_a_vacuous_bound(self) -> None:
        assert bounds.kl_inverse(f64(0.0, 0.3, 1.0), f64(1e6, math.inf, 1e300)).tolist() == [
            1,
            1,
            1,
        ]

    def test_a_risk_of_one_stays_one(self) -> None:
        assert bounds.kl_inverse(1.0, f64(0.0, 1e-9, 5.0)).tolist() == [1, 1, 1]

    def test_a_tiny_level_keeps_its_digits(self) -> None:
        # kl(q‖q + g) = g²/2q(1 − q) to first order: g = √(2 · ¼ · 1e-20) for q = ½
        q = torch.tensor(0.5, dtype=torch.float64)
        gap = as_float(bounds.kl_inverse(q, 1e-20) - q)
        assert gap == pytest.approx(math.sqrt(0.5e-20), rel=1e-5)

    def test_gradients_are_finite_at_every_edge(self) -> None:
        q = f64(0.0, 0.0, 0.3, 1.0, 1.0, 0.0, 0.3, 1 - 1e-13).requires_grad_()
        level = f64(0.0, 0.1, 0.0, 0.0, 0.1, 1e6, 36.0, 0.0).requires_grad_()
        bounds.kl_inverse(q, level).sum().backward()
        assert q.grad is not None
        assert level.grad is not None
        assert q.grad.isfinite().all()
        assert level.grad.isfinite().all()

    @given(st.floats(0, 0.999), st.floats(0, 0.99))
    def test_inverts_the_binary_kl(self, q: float, share: float) -> None:
        p = q + share * (1 - q)
        level = as_float(bounds._binary_kl_over_gap(f64(q), f64(p) - q))
        assert level == pytest.approx(binary_kl_by_definition(q, p), abs=1e-12)
        assert as_float(bounds.kl_inverse(q, level)) == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: bounds.complexity_mcallester(1.0, 100, 0.0), "delta"),
        (lambda: bounds.maurer(0.1, 1.0, 100, 1.0), "delta"),
        (lambda: bounds.kl_bound(0.1, 1.0, 100, math.nan), "delta"),
        (lambda: bounds.complexity_paper(1.0, 0), "N must be .*, not 0"),
        (lambda: bounds.mcallester_2003(0.1, 1.0, 1, 0.05), "at least 2"),
        (lambda: bounds.quadratic(0.1, 1.0, 7, 0.05), "at least 8"),
        (lambda: bounds.complexity_paper(-0.5, 100), "KL"),
        (lambda: bounds.lambda_bound(0.1, 1.0, 100, 0.05, 2.0), "lambda"),
        (lambda: bounds.kl_bound(1.5, 1.0, 100, 0.05), "risk"),
        (lambda: bounds.bounded_loss(0.0, 1.0, 0.0, 0.0), "epsilon"),
        (
            lambda: bounds.final_bound(0.1, 1.0, 100, 0.05, gamma=1.0, next_value_variance=0.0),
            "gamma",
        ),
        (lambda: bounds.gaussian_kl(0.0, 0.0), "v must be .*, not 0"),
    ],
)
def test_a_number_outside_its_range_is_named(call: object, named: str) -> None:
    with pytest.raises(UserError, match=named):
        call()  # type: ignore[operator]
