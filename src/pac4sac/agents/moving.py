"""How networks move: which of them, and which slow copies, in which update; Adam; the freezing of
runs that diverge."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor

from pac4sac.agents.nets import Net, Params
from pac4sac.agents.settings import AgentConfig
from pac4sac.agents.state import Hyper, Loss, State, count_up
from pac4sac.base.errors import UserError

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam


class MovingNetworks:
    """The networks of a cohort, of which each run takes its own steps."""

    with_target: ClassVar[tuple[str, ...]] = ("critic",)  # networks that have a slow copy
    # Networks, and slow copies such as "critic/target", that move in every so manyth update only:
    # the name of the per-run setting that tells in which.
    delayed: ClassVar[Mapping[str, str]] = {}
    # what is delayed, in a copy for updates in which nothing of it moves
    resting: frozenset[str] = frozenset()
    configs: Sequence[AgentConfig]
    nets: Mapping[str, Net]

    @property
    def runs(self) -> int:
        return len(self.configs)

    def numbers(self, name: str) -> list[float]:
        """A per-run setting of every run."""
        return [config.number(name) for config in self.configs]

    def trained(self) -> tuple[str, ...]:
        """Names of the state tensors that Adam moves."""
        return tuple(self.nets)

    @property
    def updates_per_step(self) -> int:
        return max(config.updates_per_step for config in self.configs)

    def place_in_step(self, state: State) -> Tensor:
        """The number of the present update among those of its step."""
        return state["update"] % self.updates_per_step

    # --- an update without what is delayed, and which runs move what is

    def without_delayed(self) -> Self:
        """The agent as it is in updates in which nothing of what is delayed moves, and nothing of
        it is computed."""
        short = copy.copy(self)
        short.resting = frozenset(self.delayed)
        return short

    @property
    def period(self) -> int:
        """After how many updates all that is delayed moves in one and the same again, in all
        runs."""
        return math.lcm(
            *(int(delay) for setting in self.delayed.values() for delay in self.numbers(setting))
        )

    def moves_delayed(self, step: int, place: int) -> bool:
        """Whether in this update of this step any run moves what is delayed; known without asking
        the device."""
        if not self.delayed:
            return True
        # of a run's own updates
        numbers = [step * config.updates_per_step + place for config in self.configs]
        delays = [self.numbers(setting) for setting in set(self.delayed.values())]
        return any(
            n % delay == 0 for each in delays for n, delay in zip(numbers, each, strict=True)
        )

    def due(self, state: State, part: str, active: Tensor) -> Tensor:
        """Of the active runs, [R], those that move a network or a slow copy in the present
        update."""
        if part not in self.delayed:
            return active
        # At least one: a compiler that rounds up the number of runs divides by the zeros behind
        # them.
        delay: Tensor = getattr(Hyper(state), self.delayed[part]).long().clamp_min(1)
        number = state["step"] * Hyper(state).updates_per_step.long() + self.place_in_step(state)
        return active & (number % delay == 0)

    def check_per_run(self, what: str, value: Tensor) -> None:
        if value.shape != (self.runs,):
            raise UserError(
                f"In {type(self).__name__}, {what} has the shape {list(value.shape)} and must "
                "have one number for each "
                f"run, [{self.runs}]: a mean over the batch is .mean(-1)."
            )

    # --- steps of the networks and of their slow copies

    def descend(
        self, state: State, name: str, loss_of: Callable[[Params], Loss], active: Tensor
    ) -> dict[str, Tensor]:
        """A step of one network down its loss, for each run its own, and then of its slow copy: at
        once, in the same pass over the weights, since nothing of this update reads it. What is to
        be logged; nothing where it rests."""
        log = (
            {}
            if name in self.resting
            else self._step_down(state, name, loss_of, self.due(state, name, active))
        )
        if name in self.with_target and f"{name}/target" not in self.resting:
            self.follow(state, name, self.due(state, f"{name}/target", active))
        return log

    def _step_down(
        self, state: State, name: str, loss_of: Callable[[Params], Loss], moving: Tensor
    ) -> dict[str, Tensor]:
        net = self.nets[name]
        leaves = {
            key: view.detach().requires_grad_() for key, view in net.views(state[name]).items()
        }
        loss, log = loss_of(leaves)
        for what, value in {
            f"the loss of the {name}": loss,
            **{f"what it logs as {k}": v for k, v in log.items()},
        }.items():
            self.check_per_run(what, value)
        gradient = torch.autograd.grad(loss.sum(), list(leaves.values()), materialize_grads=True)
        with torch.no_grad():
            norm = self.adam(state, name, net.flatten(gradient, state[name]), loss.detach(), moving)
        log = {f"{name}_loss": loss, f"{name}_gradient_norm": norm} | log
        log = {key: value.detach() for key, value in log.items()}
        return (
            {k: torch.where(moving, v, math.nan) for k, v in log.items()}
            if name in self.delayed
            else log
        )

    @torch.no_grad()
    def follow(self, state: State, name: str, moving: Tensor) -> None:
        """A step of a slow copy towards its network, target ← target + τ (network − target)."""
        # a run may have died in this very update
        tau = Hyper(state).tau * (moving & state["alive"])
        state[f"{name}/target"].lerp_(state[name], tau.view(-1, 1, 1))

    def learning_rate(self, state: State, name: str) -> Tensor:
        """Of a network, or of log_alpha: that of the setting actor_lr, critic_lr, alpha_lr … where
        there is one and it is not 0, otherwise lr."""
        own = state.get(f"hyper/{name.removeprefix('log_')}_lr")
        return Hyper(state).lr if own is None else torch.where(own > 0, own, Hyper(state).lr)

    def adam(
        self, state: State, name: str, gradient: Tensor, loss: Tensor, active: Tensor
    ) -> Tensor:
        """Adam with a learning rate and a step count per run. A run whose loss or gradient is not
        finite takes no step and is dead from then on; the others never notice. Returns the
        gradient's norm [R]."""
        norm = gradient.square().sum((1, 2)).sqrt()
        finite = norm.isfinite() & loss.isfinite()
        self.bury(state, name, active & ~finite)
        moving = active & state["alive"]
        gradient = torch.where(moving.view(-1, 1, 1), gradient, 0.0)
        count = count_up(state[f"{name}/count"], moving)
        moves, steps = moving.to(gradient.dtype), count.clamp_min(1)
        beta_1 = state.get("hyper/beta_1", BETA_1)
        rate = self.learning_rate(state, name) * moves / (1 - beta_1**steps)
        scale = (1 - BETA_2**steps).rsqrt()
        # Stacked, the numbers of a run are computed once; a compiler would put the powers into the
        # loop over weights.
        of_run = torch.stack([(1 - beta_1) * moves, (1 - BETA_2) * moves, -rate, scale]).view(
            4, -1, 1, 1
        )
        first = state[f"{name}/first_moment"].lerp_(gradient, of_run[0])
        second = state[f"{name}/second_moment"].lerp_(gradient.square(), of_run[1])
        state[name].addcdiv_(first * of_run[2], (second.sqrt() * of_run[3]).add_(EPSILON))
        return norm

    def bury(self, state: State, name: str, dead: Tensor) -> None:
        """Mark runs as diverged, with the step and the network at which it showed."""
        index = list(self.trained()).index(name)
        first_time = dead & state["alive"]
        state["diverged_step"].copy_(torch.where(first_time, state["step"], state["diverged_step"]))
        state["diverged_net"].copy_(torch.where(first_time, index, state["diverged_net"]))
        state["alive"].logical_and_(~dead)
