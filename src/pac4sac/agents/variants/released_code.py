"""PAC4SAC as in the code released by its authors. It differs from the paper in the networks, the
prior and the conservative term. Variances are effectively not trained, α is learned, and shooting
is used in evaluation only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from pac4sac.agents.base import Draw, Hyper, Loss, State, Target
from pac4sac.agents.bounds import complexity_maurer, gaussian_kl
from pac4sac.agents.nets import Params
from pac4sac.agents.pac4sac import Pac4Sac, Pac4SacConfig, PacBayesConfig
from pac4sac.agents.replay import Batch
from pac4sac.agents.sac import SacConfig
from pac4sac.agents.settings import ANY, OPEN_UNIT, AgentConfig, new_default, per_run


@dataclass(frozen=True, kw_only=True)
class ReleasedCodeConfig(Pac4SacConfig):
    prior_mean: float = per_run(1.0, ANY, "mean of the prior of each weight")
    delta: float = per_run(0.05, OPEN_UNIT, "δ of the conservative term")
    critics: int = new_default(PacBayesConfig, "critics", 2)
    log_variance: float = new_default(PacBayesConfig, "log_variance", -10.0)
    learn_alpha: bool = new_default(SacConfig, "learn_alpha", True)
    alpha_loss: str = new_default(SacConfig, "alpha_loss", "plain")
    lr: float = new_default(AgentConfig, "lr", 3e-4)
    warmup: int = new_default(AgentConfig, "warmup", 10_000)
    batch: int = new_default(AgentConfig, "batch", 256)
    capacity: int = new_default(AgentConfig, "capacity", 1_000_000)
    depth: int = new_default(AgentConfig, "depth", 2)
    norm: bool = new_default(AgentConfig, "norm", False)
    activation: str = new_default(AgentConfig, "activation", "relu")


class ReleasedCode(Pac4Sac):
    title = "PAC4SAC as in the authors' released code"
    Config = ReleasedCodeConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}
    updates_of_task: ClassVar[Mapping[str, int]] = {}
    config: ReleasedCodeConfig

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Target, draw: Draw
    ) -> Loss:
        # The released code clamps the variances where their gradient is 0.
        theta = {**theta, "head.log_variance": theta["head.log_variance"].detach()}
        return super().critic_loss(state, theta, batch, target, draw)

    def divergence(self, state: State, theta: Params) -> Tensor:
        m, log_v = self.critic.posterior(theta)
        return gaussian_kl(m, log_v.exp(), Hyper(state).prior_mean[:, None, None])

    def complexity(self, state: State, kl: Tensor, n: Tensor) -> Tensor:
        return complexity_maurer(kl, n, Hyper(state).delta[:, None])

    def shots(self, evaluating: bool) -> tuple[int, ...]:
        return super().shots(evaluating) if evaluating else (1,) * self.runs
