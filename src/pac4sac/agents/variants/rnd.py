"""SAC with the exploration bonus of random network distillation (Burda et al. 2018).

A predictor f learns the outputs of a fixed random network g. Its error is large for rare states.
Critics learn from the reward r + β ‖f(s′) − g(s′)‖² / σ, where σ is the running mean of the error.
Stored, logged and evaluated rewards do not include the bonus.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State
from pac4sac.agents.nets import Net, Params, linear_head, linear_parameters
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import Sac, SacConfig
from pac4sac.agents.settings import NON_NEGATIVE, Interval, per_run, structural

SLOWEST = 1e-3  # smallest weight of a new error in the running mean σ


@dataclass(frozen=True, kw_only=True)
class RndConfig(SacConfig):
    bonus: float = per_run(0.1, NON_NEGATIVE, "β: weight of the exploration bonus")
    features: int = structural(64, Interval(1), "number of outputs of the random network")


class Rnd(Sac):
    title = "SAC with random network distillation as an exploration bonus"
    Config = RndConfig
    config: RndConfig

    def networks(self) -> dict[str, Net]:
        self.predictor, self.random = self.features_of_states(), self.features_of_states()
        return super().networks() | {"predictor": self.predictor}

    def features_of_states(self) -> Net:
        trunk = self.trunk(s=self.ds)
        return Net(trunk, linear_parameters(trunk.width, self.config.features))

    def novelty(self, state: State, predictor: Params, s: Tensor) -> Tensor:
        """Return ‖f(s) − g(s)‖² as a mean over features, [R, B]."""
        random = self.random.views(state["random"])
        expected = linear_head(random, self.random.features(random, s)).detach()
        error = linear_head(predictor, self.predictor.features(predictor, s)) - expected
        return error.square().mean(-1)

    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Any:
        novelty = self.novelty(state, self.params(state, "predictor"), batch.s2)
        bonus = Hyper(state).bonus[:, None] * novelty / self.scale(state, novelty)[:, None]
        return super().bellman_target(state, batch._replace(r=batch.r + bonus), draw)

    def scale(self, state: State, novelty: Tensor) -> Tensor:
        """Return σ [R]. In the first update, it is the mean error of the batch."""
        mean = torch.where(state["predictor/count"] > 0, state["novelty"], novelty.mean(-1))
        return mean.clamp_min(1e-8)

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        log = super().learn(state, batch, draw, active)
        log |= self.descend(
            state, "predictor", lambda f: self.predictor_loss(state, f, batch), active
        )
        weight = state["predictor/count"].clamp_min(1).reciprocal().clamp_min(SLOWEST)
        mean = state["novelty"].lerp(log["novelty"], weight)
        state["novelty"].copy_(torch.where(active & state["alive"], mean, state["novelty"]))
        return log

    def predictor_loss(self, state: State, predictor: Params, batch: Batch) -> Loss:
        novelty = self.novelty(state, predictor, batch.s2).mean(-1)
        return novelty, {"novelty": novelty}

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        return super().extra_state(seeds, device) | {
            "random": self.random.initial(seeds, "initial/random", device),
            "novelty": torch.zeros(self.runs, device=device),
        }

    def logged(self) -> tuple[str, ...]:
        return (*super().logged(), "novelty")
