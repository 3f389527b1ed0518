"""Every bound on one critic, side by side: what it says, what it rests on, which of its assumptions fail, and whether
what was measured respects it.

Bounds on the replay are PAC-Bayes bounds, with the KL of the last layer's weights. Bounds on fresh episodes need no KL,
since nothing was fitted to those; their independent units are the episodes, not the steps.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from torch import Tensor

from pac4sac.agents import bounds
from pac4sac.certificates.critic_errors import (
    QUANTITIES,
    BellmanErrors,
    Measured,
    Quantity,
    Scales,
    beyond,
    episode_errors,
)
from pac4sac.certificates.returns import NEGLIGIBLE, betting_upper
from pac4sac.runs.statistics import Estimate
from pac4sac.training.value_error import Floats, ValueErrors

UNKNOWN = Estimate(math.nan)
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


@dataclass(frozen=True)
class BoundRow:
    name: str
    quantity: Quantity
    data: Literal["replay", "fresh"]
    n: int
    kl: float | None  # None: the bound has none
    delta: float
    risk: float  # empirical, on that data
    value: float  # the bound
    # `trivial`, `measured` and `clipped` follow from the quantity: `bound_rows` fills them in.
    trivial: float = math.inf  # what needs no data: the largest possible value of the quantity
    measured: Estimate = UNKNOWN  # on fresh episodes that no bound has seen
    fails: tuple[str, ...] = ()  # assumptions, of CAVEATS
    remark: str = ""
    clipped: bool = False  # some fresh errors were beyond `trivial` and count as that

    @property
    def vacuous(self) -> bool:
        return not self.value < self.trivial * (1 - NEGLIGIBLE)

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
        if not self.fails:
            return "certificate"
        return "holds here" if self.respected == "yes" else "undecided"


def bound_rows(
    replay: BellmanErrors | None,
    bellman: BellmanErrors,
    values: ValueErrors,
    measured: Measured,
    scales: Scales,
    kl: float | None,
    also_fails: tuple[str, ...] = (),
    seed: int = 0,
    *,
    rewards_outside: bool = False,
) -> list[BoundRow]:
    """`bellman` and `values` are errors in episodes other than those behind `measured`. Without a replay, or without a
    KL (a critic whose weights are plain), the rows that need one are left out. `also_fails` names what the posterior or
    the prior of this critic violates, for all rows with a KL; `rewards_outside`: rewards refute the range in `scales`.
    """
    rows: list[BoundRow] = []
    if kl is not None:
        if replay is not None:
            rows += on_replay(replay, scales, kl, also_fails)
        rows += theorem_1(bellman, scales, kl, also_fails)
    rows += on_fresh(bellman, values, scales, kl, seed)
    clipped = {*measured.beyond, *beyond(bellman, values, scales)}
    estimates = dict(zip(QUANTITIES, vars(measured).values(), strict=False))

    def complete(row: BoundRow) -> BoundRow:
        quantity = row.quantity
        outside = rewards_outside and not quantity.startswith("bounded")  # of bounded ones ε is but a scale
        fails = (*row.fails, "rewards") if outside else row.fails
        trivial, estimate = scales.largest[quantity], estimates[quantity]
        return replace(row, trivial=trivial, measured=estimate, fails=fails, clipped=quantity in clipped)

    return [complete(row) for row in sorted(rows, key=lambda row: QUANTITIES.index(row.quantity))]


def on_replay(replay: BellmanErrors, scales: Scales, kl: float, also_fails: tuple[str, ...]) -> Iterator[BoundRow]:
    n, delta = len(replay.m), scales.delta
    squared, variance = float(replay.squared.mean()), float(replay.next_variance.mean())

    def row(name: str, quantity: Quantity, risk: float, value: Tensor, *fails: str) -> BoundRow:
        fails = (*fails, "independence", "trained", "policies", *also_fails)
        return BoundRow(name, quantity, "replay", n, kl, delta, risk, float(value), fails=fails)

    printed = bounds.mcallester(squared, kl, n, delta)
    yield row("McAllester, as printed", "squared Bellman error", squared, printed, "range", "constant")
    final = bounds.final_bound(squared, kl, n, delta, gamma=scales.gamma, next_value_variance=variance)
    yield row("the paper's final bound", "value error", squared, final, "range", "constant", "sign")
    if n < 8:  # what follows asks for more
        return
    scaled = {"McAllester 2003 × range": bounds.mcallester_2003, "Maurer 2004 × range": bounds.maurer}
    for name, bound in scaled.items():
        value = bound(squared, kl, n, delta, scales.largest["squared Bellman error"])
        yield row(name, "squared Bellman error", squared, value, "unlimited")
    bounded = float(replay.bounded(scales.epsilon).mean())
    best = float(bounds.optimal_lambda(bounded, kl, n, delta))
    made_for_it: dict[str, Callable[..., Tensor]] = {
        "Maurer 2004": bounds.maurer,
        "quadratic": bounds.quadratic,
        f"λ-bound, λ = {best:.2g}": bounds.lambda_bound,
        "PAC-Bayes-kl": bounds.kl_bound,
    }
    for name, bound in made_for_it.items():
        yield row(name, "bounded Bellman error", bounded, bound(bounded, kl, n, delta))


def theorem_1(bellman: BellmanErrors, scales: Scales, kl: float, also_fails: tuple[str, ...]) -> Iterator[BoundRow]:
    """On what it was made for: a single episode of a fixed policy."""
    one = bellman.episode == bellman.episode[0]
    n, r_max = int(one.sum()), scales.rewards.width
    risk, variance = float(bellman.squared[one].mean()), float(bellman.next_variance[one].mean())
    fails = ("correlation", "shift", "sign", *also_fails)
    # If no step ever forgot its beginning, all entries of Γ on and above the diagonal would be 2; its norm then:
    never_forgets = 1 / math.sin(math.pi / (4 * n + 2))
    meanings = (2.0, "each step forgets all before it"), (never_forgets, "no step ever forgets its beginning")
    for norm, meaning in meanings:
        known = {"gamma": scales.gamma, "next_value_variance": variance, "r_max": r_max, "correlation": norm}
        value = float(bounds.theorem_1(risk, kl, n, scales.delta, **known))
        remark = f"if {meaning}: {bounds.theorem_1_verdict(n, r_max, norm)}"
        if scales.largest["value error"] <= value < math.inf:
            remark += ", but it allows more than any values could err"
        name = f"Theorem 1, ‖Γ‖ = {norm:.0f}"
        yield BoundRow(name, "value error", "fresh", n, kl, scales.delta, risk, value, fails=fails, remark=remark)


def on_fresh(
    bellman: BellmanErrors, values: ValueErrors, scales: Scales, kl: float | None, seed: int
) -> Iterator[BoundRow]:
    """Test-set bounds: Chernoff's for one step per episode, betting on the means of episodes."""
    delta = scales.delta

    def row(name: str, quantity: Quantity, samples: Floats, bound: float, *fails: str) -> BoundRow:
        return BoundRow(name, quantity, "fresh", len(samples), None, delta, float(samples.mean()), bound, fails=fails)

    def betting(name: str, quantity: Quantity, units: Floats, *fails: str) -> BoundRow:
        top = scales.largest[quantity]
        return row(name, quantity, units, top * betting_upper(np.minimum(units / top, 1.0), delta), *fails)

    square = values.limited(scales.largest["value error"]).squared[values.judged]
    yield betting("test set, naive: steps", "value error", square, "steps")
    loss = bellman.bounded(scales.epsilon)
    yield row("test set, naive: steps", "bounded Bellman error", loss, chernoff(loss, delta), "steps")
    single = bellman.one_per_episode(loss, seed)
    if kl is not None and len(single) >= 8:
        with_kl = float(bounds.kl_bound(float(single.mean()), kl, len(single), delta))
        yield replace(row("PAC-Bayes-kl, 1/episode", "bounded Bellman error", single, with_kl), kl=kl)
    yield row("test set, 1 per episode", "bounded Bellman error", single, chernoff(single, delta))
    for quantity, means in episode_errors(bellman, values, scales).items():
        if quantity != "squared Bellman error":
            yield betting("test set, by episodes", quantity, means)


def chernoff(losses: Floats, delta: float) -> float:
    """kl⁻¹(R̂ | ln(1/δ)/n): the test-set bound for independent losses in [0, 1] of a critic that has not seen them."""
    return float(bounds.kl_inverse(float(losses.mean()), math.log(1 / delta) / len(losses)))
