"""All bounds on one critic: value, data, failing assumptions, and comparison with the measured
error.

Bounds on the replay buffer are PAC-Bayes bounds, with the KL of the last layer's weights. Bounds on
fresh episodes need no KL, because the critic was not fitted to them; their independent samples are
the episodes, not the steps.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from torch import Tensor

from pac4sac.agents import bounds
from pac4sac.certificates.critic_errors import (
    QUANTITIES,
    BellmanErrors,
    CriticErrors,
    ErrorQuantity,
    Measured,
    Scales,
)
from pac4sac.certificates.returns import NEGLIGIBLE, betting_upper
from pac4sac.runs.statistics import Estimate
from pac4sac.training.value_error import Floats


@dataclass(frozen=True, kw_only=True)
class BoundRow:
    name: str
    quantity: ErrorQuantity
    data: Literal["replay", "fresh"] = "fresh"
    n: int
    kl: float | None = None  # None: the bound has no KL
    delta: float
    risk: float  # empirical, on that data
    value: float  # the bound
    trivial: float  # the largest possible value of the quantity
    measured: Estimate  # on fresh episodes that no bound uses
    fails: tuple[str, ...]  # failing assumptions, keys of CAVEATS
    remark: str = ""
    clipped: bool  # some fresh errors exceeded `trivial` and were clipped to it

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
        """Return the verdict on the bound. If an assumption fails, the bound proves nothing, even
        if it is above the measured error."""
        if self.vacuous:
            return "vacuous"
        if self.respected == "no":
            return "broken"
        if not self.fails:
            return "certificate"
        return "holds here" if self.respected == "yes" else "undecided"


@dataclass(frozen=True)
class BoundTable:
    """Compute all bounds on one critic.

    Rows that need a replay buffer or a KL are omitted if it is missing. A critic with plain weights
    has no KL.
    """

    replay: BellmanErrors | None
    fresh: CriticErrors  # in other episodes than those of `measured`
    measured: Measured
    kl: float | None
    posterior_fails: tuple[str, ...] = ()  # assumptions that its posterior or prior violates
    seed: int = 0
    rewards_outside: bool = False  # observed rewards refute the assumed range

    @property
    def scales(self) -> Scales:
        return self.fresh.scales

    def rows(self) -> list[BoundRow]:
        rows = [*self._on_fresh()]
        if self.kl is not None:
            on_replay = [] if self.replay is None else self._on_replay(self.replay, self.kl)
            rows = [*on_replay, *self._theorem_1(self.kl), *rows]
        return sorted(rows, key=lambda row: QUANTITIES.index(row.quantity))

    def _row(
        self,
        name: str,
        quantity: ErrorQuantity,
        losses: Floats,
        bound: Any,
        *fails: str,
        **more: Any,
    ) -> BoundRow:
        # Bounded quantities use the range only as a scale.
        if self.rewards_outside and not quantity.startswith("bounded"):
            fails = *fails, "rewards"
        return BoundRow(
            name=name,
            quantity=quantity,
            n=len(losses),
            delta=self.scales.delta,
            risk=float(losses.mean()),
            value=float(bound),
            trivial=self.scales.largest[quantity],
            measured=self.measured.by_quantity[quantity],
            fails=fails,
            clipped=quantity in self._clipped,
            **more,
        )

    @cached_property
    def _clipped(self) -> set[ErrorQuantity]:
        return {*self.measured.beyond, *self.fresh.beyond()}

    def _on_replay(self, replay: BellmanErrors, kl: float) -> Iterator[BoundRow]:
        """Yield the PAC-Bayes bounds on the replay buffer."""
        n, delta = len(replay.m), self.scales.delta
        largest = self.scales.largest["squared Bellman error"]
        bounded = replay.bounded(self.scales.epsilon)

        def row(
            name: str,
            quantity: ErrorQuantity,
            bound: Callable[..., Tensor],
            *fails: str,
            **known: float,
        ) -> BoundRow:
            losses = bounded if quantity == "bounded Bellman error" else replay.squared
            value = bound(float(losses.mean()), kl, n, delta, **known)
            fails = *fails, "independence", "trained", "policies", *self.posterior_fails
            return self._row(name, quantity, losses, value, *fails, data="replay", kl=kl)

        yield row(
            "McAllester, as printed",
            "squared Bellman error",
            bounds.mcallester,
            "range",
            "constant",
        )
        known = {
            "gamma": self.scales.gamma,
            "next_value_variance": float(replay.next_variance.mean()),
        }
        yield row(
            "the paper's final bound",
            "value error",
            bounds.final_bound,
            "range",
            "constant",
            "sign",
            **known,
        )
        if n < 8:  # the bounds below need at least 8 samples
            return
        scaled = {
            "McAllester 2003 × range": bounds.mcallester_2003,
            "Maurer 2004 × range": bounds.maurer,
        }
        for name, bound in scaled.items():
            yield row(name, "squared Bellman error", bound, "unlimited", loss_range=largest)
        yield row("Maurer 2004", "bounded Bellman error", bounds.maurer)
        yield row("quadratic", "bounded Bellman error", bounds.quadratic)
        best = float(bounds.optimal_lambda(float(bounded.mean()), kl, n, delta))
        yield row(f"λ-bound, λ = {best:.2g}", "bounded Bellman error", bounds.lambda_bound)
        yield row("PAC-Bayes-kl", "bounded Bellman error", bounds.kl_bound)

    def _theorem_1(self, kl: float) -> Iterator[BoundRow]:
        """Yield Theorem 1 in its intended setting: a single episode of a fixed policy."""
        bellman, r_max = self.fresh.bellman, self.scales.rewards.width
        one = bellman.episode == bellman.episode[0]
        losses, variance = bellman.squared[one], float(bellman.next_variance[one].mean())
        n, fails = len(losses), ("correlation", "shift", "sign", *self.posterior_fails)
        # If all steps depended on the first step, all entries of Γ on and above the diagonal would
        # be 2, with this norm:
        never_forgets = 1 / math.sin(math.pi / (4 * n + 2))
        meanings = (
            (2.0, "each step is independent of all earlier ones"),
            (never_forgets, "every step depends on the first one"),
        )
        for norm, meaning in meanings:
            known = {
                "gamma": self.scales.gamma,
                "next_value_variance": variance,
                "r_max": r_max,
                "correlation": norm,
            }
            value = float(bounds.theorem_1(float(losses.mean()), kl, n, self.scales.delta, **known))
            remark = f"if {meaning}: {bounds.theorem_1_verdict(n, r_max, norm)}"
            if self.scales.largest["value error"] <= value < math.inf:
                remark += ", but it exceeds the largest possible error"
            name = f"Theorem 1, ‖Γ‖ = {norm:.0f}"
            yield self._row(name, "value error", losses, value, *fails, kl=kl, remark=remark)

    def _on_fresh(self) -> Iterator[BoundRow]:
        """Yield the test-set bounds: Chernoff for one step per episode, betting for means of
        episodes."""
        delta, bellman, values = self.scales.delta, self.fresh.bellman, self.fresh.values

        def betting(name: str, quantity: ErrorQuantity, units: Floats, *fails: str) -> BoundRow:
            top = self.scales.largest[quantity]
            return self._row(
                name,
                quantity,
                units,
                top * betting_upper(np.minimum(units / top, 1.0), delta),
                *fails,
            )

        square = values.limited(self.scales.largest["value error"]).squared[values.judged]
        yield betting("test set, naive: steps", "value error", square, "steps")
        loss = bellman.bounded(self.scales.epsilon)
        yield self._row(
            "test set, naive: steps", "bounded Bellman error", loss, chernoff(loss, delta), "steps"
        )
        single = bellman.one_per_episode(loss, self.seed)
        if self.kl is not None and len(single) >= 8:
            with_kl = bounds.kl_bound(float(single.mean()), self.kl, len(single), delta)
            yield self._row(
                "PAC-Bayes-kl, 1/episode", "bounded Bellman error", single, with_kl, kl=self.kl
            )
        yield self._row(
            "test set, 1 per episode", "bounded Bellman error", single, chernoff(single, delta)
        )
        for quantity, means in self.fresh.episode_means().items():
            if quantity != "squared Bellman error":
                yield betting("test set, by episodes", quantity, means)


def chernoff(losses: Floats, delta: float) -> float:
    """Return the test-set bound kl⁻¹(R̂ | ln(1/δ)/n) for independent losses in [0, 1] that were not
    used in training."""
    return float(bounds.kl_inverse(float(losses.mean()), math.log(1 / delta) / len(losses)))
