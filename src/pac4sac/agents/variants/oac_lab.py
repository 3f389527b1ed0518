"""OAC as in a later program of the authors' group, with a smoothed target actor and without
entropy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, State
from pac4sac.agents.oac import Oac, OacConfig
from pac4sac.agents.sac import SacConfig
from pac4sac.agents.settings import NON_NEGATIVE, REPRODUCTION, new_default, per_run


@dataclass(frozen=True, kw_only=True)
class OacLabConfig(OacConfig):
    alpha: float = new_default(SacConfig, "alpha", 0.0)
    learn_alpha: bool = new_default(SacConfig, "learn_alpha", False)
    shift: float = new_default(OacConfig, "shift", 0.1)
    smoothing: float = per_run(0.447, NON_NEGATIVE, "std of the noise on the action in the target")
    smoothing_limit: float = per_run(
        0.5, NON_NEGATIVE, "limit of the noise on the action in the target"
    )


class OacLab(Oac):
    """Run OAC as in a later program of the authors' group: with a smoothed target actor and no
    entropy."""

    title = "Optimistic actor-critic as in a later program of the authors' group"
    Config = OacLabConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "reproduction": {**REPRODUCTION, "log_std_max": 1.0},
    }
    updates_of_task: ClassVar[Mapping[str, int]] = {"reproduction": 1}
    with_target: ClassVar[tuple[str, ...]] = ("critic", "actor")

    def next_action(self, state: State, s2: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        return self.smoothed(state, "actor/target", s2, draw["target"])

    def sample_policy(self, state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        a, log_pi = self.smoothed(state, "actor", s, draw["policy"])
        return a.clamp(-1, 1), log_pi  # the range of the environment

    def smoothed(self, state: State, actor: str, s: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        h = Hyper(state)
        mean, _ = self.actor(self.params(state, actor), s)
        limit = h.smoothing_limit[:, None, None]
        noise = (h.smoothing[:, None, None] * noise).clamp(-limit, limit)
        return torch.tanh(mean) + noise, torch.zeros_like(mean[..., 0])
