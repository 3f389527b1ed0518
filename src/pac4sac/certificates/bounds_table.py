"""Every bound on one critic, side by side: what it says, what it rests on, which of its assumptions fail, and whether
what was measured respects it.

Bounds on the replay are PAC-Bayes bounds, with the KL of the last layer's weights. Bounds on fresh episodes need no KL,
since nothing was fitted to those; their independent units are the episodes, not the steps.
"""

import math
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents import bounds
from pac4sac.certificates.evidence import Evidence
from pac4sac.certificates.measured import Claims, Measured, Scales, beyond
from pac4sac.certificates.policy import NEGLIGIBLE, betting_upper
from pac4sac.runs.statistics import Estimate

Floats = NDArray[np.float64]
Quantity = Literal[
    "squared Bellman error", "value error", "absolute value error", "bounded Bellman error", "bounded value error"
]

CAVEATS = {
    "independence": "the tuples of a replay are not independent: an episode's steps depend on each other, and actions "
    "on what was learned from earlier tuples",
    "trained": "features and targets were trained on these very tuples; the theorem lets only the last layer's weights "
    "depend on them",
    "policies": "the replay comes from all policies of the training and its random warm-up, not from π",
    "range": "the theorem needs a loss in [0, 1]; the squared loss is not, and its range does not scale the root",
    "unlimited": "the squared loss of a Gaussian Q has no largest value; the root is scaled by the largest that "
    "possible values could give",
    "constant": "ln(1/δ) stands where proofs have ln(2√N/δ): less than what is proven",
    "sign": "the variance is subtracted, where the inequality it comes from adds it, and it is that of the critic, "
    "where the dynamics' is meant",
    "correlation": "‖Γ‖ is unknown; 2 is the least it can be, if every step forgot all before it",
    "shift": "the theorem asks for rewards in [0, R_max]; R_max is taken as the width of their range",
    "steps": "the steps of an episode are counted as independent, which they are not",
    "prior": "the prior was moved during training, hence depends on the data",
    "minimum": "the least of several critics is not Gaussian; it is taken for the one with the least mean",
    "rewards": "rewards outside their assumed range were seen: values may lie, and err, beyond what it allows",
}
RESTING_ON_REWARDS = (
    "squared Bellman error",
    "value error",
    "absolute value error",
)  # of bounded ones ε is but a scale


@dataclass(frozen=True)
class Row:
    name: str
    quantity: Quantity
    data: Literal["replay", "fresh"]
    n: int
    kl: float | None  # None: the bound has none
    delta: float
    risk: float  # empirical, on that data
    value: float  # the bound
    trivial: float  # what needs no data: the largest possible value of the quantity
    measured: Estimate  # on fresh episodes that no bound has seen
    fails: tuple[str, ...] = ()  # assumptions, of CAVEATS
    remark: str = ""
    clipped: bool = False  # some fresh errors were beyond `trivial` and count as that

    @property
    def vacuous(self) -> bool:
        return not self.value < self.trivial * (1 - NEGLIGIBLE)

    @property
    def valid(self) -> bool:
        return not self.fails

    @property
    def respected(self) -> Literal["yes", "no", "undecided"]:
        low, high = self.measured.low, self.measured.high
        if high is not None and self.value >= high:
            return "yes"
        return "no" if low is not None and self.value < low else "undecided"

    @property
    def says(self) -> Literal["vacuous", "broken", "certificate", "holds here", "undecided"]:
        """The bound in a word. One whose assumptions fail proves nothing, even where it holds for what was measured."""
        if self.vacuous:
            return "vacuous"
        if self.respected == "no":
            return "broken"
        if self.valid:
            return "certificate"
        return "holds here" if self.respected == "yes" else "undecided"


def bounds_table(
    *,
    replay: Evidence | None,
    fresh: Evidence,
    claims: Claims,
    measured: Measured,
    kl: float | None,
    scales: Scales,
    delta: float,
    seed: int = 0,
    also_fails: tuple[str, ...] = (),
    rewards_outside: bool = False,
) -> list[Row]:
    """`fresh` and `claims` are of episodes other than those behind `measured`. Without a replay, or without a KL (a
    critic whose weights are plain), the rows that need one are left out. `also_fails` names what the posterior or the
    prior of this critic violates, for all rows with a KL; `rewards_outside`: rewards refute the range in `scales`."""
    clipped = {*measured.beyond, *beyond(fresh, claims, scales)}
    maker = _Maker(scales, delta, measured, clipped, RESTING_ON_REWARDS if rewards_outside else ())
    rows: list[Row] = []
    if kl is not None:
        if replay is not None:
            rows += maker.on_replay(replay, kl, also_fails)
        rows += maker.theorem_1(fresh, kl, also_fails)
    rows += maker.on_fresh(fresh, claims, kl, seed)
    order = get_args(Quantity)
    return sorted(rows, key=lambda row: order.index(row.quantity))


def chernoff(losses: Floats, delta: float) -> float:
    """kl⁻¹(R̂ | ln(1/δ)/n): the test-set bound for independent losses in [0, 1] of a critic that has not seen them."""
    return float(bounds.kl_inverse(float(losses.mean()), math.log(1 / delta) / len(losses)))


class _Maker:
    def __init__(
        self, scales: Scales, delta: float, measured: Measured, clipped: Container[str], without_limits: Container[str]
    ) -> None:
        self.scales, self.delta, self.clipped, self.without_limits = scales, delta, clipped, without_limits
        largest = scales.largest_square
        self.limits: dict[Quantity, tuple[float, Estimate]] = {
            "squared Bellman error": (largest, measured.bellman),
            "value error": (largest, measured.value),
            "absolute value error": (scales.value_width, measured.absolute),
            "bounded Bellman error": (1.0, measured.bounded_bellman),
            "bounded value error": (1.0, measured.bounded_value),
        }

    def row(
        self,
        name: str,
        quantity: Quantity,
        data: Literal["replay", "fresh"],
        n: int,
        kl: float | None,
        risk: float,
        value: float,
        *fails: str,
        remark: str = "",
    ) -> Row:
        trivial, measured = self.limits[quantity]
        if quantity in self.without_limits:
            fails = (*fails, "rewards")
        clipped = quantity in self.clipped
        return Row(name, quantity, data, n, kl, self.delta, risk, value, trivial, measured, fails, remark, clipped)

    def on_replay(self, replay: Evidence, kl: float, also_fails: tuple[str, ...]) -> Iterator[Row]:
        n, delta = len(replay.m), self.delta
        largest = self.scales.largest_square
        of_replay = ("independence", "trained", "policies", *also_fails)
        risk, variance = float(replay.squared.mean()), float(replay.next_variance.mean())

        def squared(name: str, value: Tensor, *fails: str) -> Row:
            return self.row(name, "squared Bellman error", "replay", n, kl, risk, float(value), *fails, *of_replay)

        yield squared("McAllester, as printed", bounds.mcallester(risk, kl, n, delta), "range", "constant")
        final = bounds.final_bound(risk, kl, n, delta, gamma=self.scales.gamma, next_value_variance=variance)
        yield self.row(
            "the paper's final bound", "value error", "replay", n, kl, risk, float(final),
            "range", "constant", "sign", *of_replay,
        )  # fmt: skip
        if n < 8:  # what follows asks for more
            return
        proven = bounds.mcallester_2003(risk, kl, n, delta, largest)
        yield squared("McAllester 2003 × range", proven, "unlimited")
        yield squared("Maurer 2004 × range", bounds.maurer(risk, kl, n, delta, largest), "unlimited")
        bounded = float(replay.bounded(self.scales.epsilon).mean())
        best = float(bounds.optimal_lambda(bounded, kl, n, delta))
        made_for_it: dict[str, Callable[..., Tensor]] = {
            "Maurer 2004": bounds.maurer,
            "quadratic": bounds.quadratic,
            f"λ-bound, λ = {best:.2g}": bounds.lambda_bound,
            "PAC-Bayes-kl": bounds.kl_bound,
        }
        for name, bound in made_for_it.items():
            value = float(bound(bounded, kl, n, delta))
            yield self.row(name, "bounded Bellman error", "replay", n, kl, bounded, value, *of_replay)

    def theorem_1(self, fresh: Evidence, kl: float, also_fails: tuple[str, ...]) -> Iterator[Row]:
        """On what it was made for: a single episode of a fixed policy."""
        one = fresh.episode == fresh.episode[0]
        n, r_max = int(one.sum()), self.scales.rewards.width
        risk, variance = float(fresh.squared[one].mean()), float(fresh.next_variance[one].mean())
        # If no step ever forgot its beginning, all entries of Γ on and above the diagonal would be 2; its norm then:
        never_forgets = 1 / math.sin(math.pi / (4 * n + 2))
        for norm, meaning, correlation in (
            ("2", "each step forgets all before it", 2.0),
            (f"{never_forgets:.0f}", "no step ever forgets its beginning", never_forgets),
        ):
            known = {"gamma": self.scales.gamma, "next_value_variance": variance}
            value = bounds.theorem_1(risk, kl, n, self.delta, r_max=r_max, correlation=correlation, **known)
            remark = f"if {meaning}: {bounds.theorem_1_verdict(n, r_max, correlation)}"
            if self.limits["value error"][0] <= value < math.inf:
                remark += ", but it allows more than any values could err"
            yield self.row(
                f"Theorem 1, ‖Γ‖ = {norm}", "value error", "fresh", n, kl, risk, float(value),
                "correlation", "shift", "sign", *also_fails,
                remark=remark,
            )  # fmt: skip

    def on_fresh(self, fresh: Evidence, claims: Claims, kl: float | None, seed: int) -> Iterator[Row]:
        """Test-set bounds: Chernoff's for one step per episode, betting on the means of episodes."""
        delta = self.delta

        def betting(name: str, quantity: Quantity, units: Floats, *fails: str) -> Row:
            top = self.limits[quantity][0]
            bound = top * betting_upper(np.minimum(units / top, 1.0), delta)
            return self.row(name, quantity, "fresh", len(units), None, float(units.mean()), bound, *fails)

        # What lies above the largest possible square counts as that: possible values could not err more.
        square = claims.limited(self.scales.largest_square).squared
        yield betting("test set, naive: steps", "value error", square[claims.judged], "steps")
        yield betting("test set, by episodes", "value error", claims.episode_means(square))
        absolute = np.minimum(claims.absolute, self.scales.value_width)
        yield betting("test set, by episodes", "absolute value error", claims.episode_means(absolute))

        loss = fresh.bounded(self.scales.epsilon)
        single = fresh.one_per_episode(loss, seed)

        def of_loss(name: str, samples: Floats, bound: float, kl: float | None = None, *fails: str) -> Row:
            risk = float(samples.mean())
            return self.row(name, "bounded Bellman error", "fresh", len(samples), kl, risk, bound, *fails)

        yield of_loss("test set, naive: steps", loss, chernoff(loss, delta), None, "steps")
        if kl is not None and len(single) >= 8:
            with_kl = bounds.kl_bound(float(single.mean()), kl, len(single), delta)
            yield of_loss("PAC-Bayes-kl, 1/episode", single, float(with_kl), kl)
        yield of_loss("test set, 1 per episode", single, chernoff(single, delta))
        yield betting("test set, by episodes", "bounded Bellman error", fresh.episode_means(loss))
        value_loss = claims.episode_means(claims.bounded(self.scales.epsilon_value))
        yield betting("test set, by episodes", "bounded value error", value_loss)
