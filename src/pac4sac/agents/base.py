"""What all agents share: a cohort's state as one dictionary of tensors, the order of an update, the optimiser, target
networks, metrics, and the freezing of runs that diverge.

Everything here and in the agents is tensor code of fixed shapes on all runs at once: no branch on data, no
synchronisation with the device. State tensors are changed in place, so that one update can be compiled or captured.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from pac4sac.agents import replay
from pac4sac.agents.nets import Critic, Net, Params, Trunk
from pac4sac.agents.replay import Batch
from pac4sac.agents.settings import AgentConfig
from pac4sac.agents.state import Draw as Draw
from pac4sac.agents.state import Hyper as Hyper
from pac4sac.agents.state import Loss as Loss
from pac4sac.agents.state import State as State
from pac4sac.agents.state import Target as Target
from pac4sac.agents.state import count_up as count_up
from pac4sac.agents.tape import Stream
from pac4sac.base.errors import UserError

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam


class Agent(ABC):
    """An algorithm for a cohort. A subclass gives its networks and four functions: `bellman_target`, `critic_loss`,
    `actor_loss` and `behaviour`."""

    title: ClassVar[str]  # one line for `pac4sac list algos`
    revision: ClassVar[int] = 1  # raised when results of the algorithm change, so that no stored run is taken for new
    Config: ClassVar[type[AgentConfig]] = AgentConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {}}
    # Presets whose updates per step are so many times those of the task; the others name a number that holds for all.
    updates_of_task: ClassVar[Mapping[str, int]] = {"paper": 1}
    with_target: ClassVar[tuple[str, ...]] = ("critic",)  # networks that have a slow copy
    takes_minimum: ClassVar[bool] = True  # of several critics, or else they are one posterior
    # Networks, and slow copies such as "critic/target", that move in every so manyth update only: the name of the
    # per-run setting that tells in which.
    delayed: ClassVar[Mapping[str, str]] = {}
    critic: Critic

    def __init__(self, configs: Sequence[AgentConfig], ds: int, da: int) -> None:
        self.configs = tuple(configs)
        self.config = self.configs[0]  # for structural settings, which all runs share
        self.ds, self.da = ds, da
        self.resting: frozenset[str] = (
            frozenset()
        )  # what is delayed, in a copy for updates in which nothing of it moves
        self.nets = self.networks()
        common = [f"{net}_{quantity}" for net in self.nets for quantity in ("loss", "gradient_norm")]
        self.metric_names = (*common, *self.logged())

    # --- what an algorithm is made of

    @abstractmethod
    def networks(self) -> dict[str, Net]: ...

    @abstractmethod
    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Any:
        """A `Target`, or whatever else of the next state the critic's loss needs; taken without gradient."""

    def critic_loss(self, state: State, theta: Params, batch: Batch, target: Any, draw: Draw) -> Loss:
        """The squared Bellman error of every critic; algorithms with another objective replace it."""
        m, _ = self.critic(theta, batch.s, batch.a)  # [R, M, B]
        return (target.y[:, None] - m).square().mean(-1).sum(-1), {"q": m.mean((1, 2))}

    @abstractmethod
    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss: ...

    @abstractmethod
    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        """Actions [R, B, da] with which to gather data in states [R, B, ds]."""

    @abstractmethod
    def greedy(self, state: State, s: Tensor) -> Tensor:
        """The deterministic policy, for evaluation."""

    def sample_policy(self, state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """An action [R, B, da] of π itself, whose value the critic is to learn: no shooting, no exploration; and its
        log-density [R, B], which is 0 for a deterministic policy."""
        a = self.greedy(state, s)
        return a, torch.zeros_like(a[..., 0])

    def policy_streams(self, states: int) -> dict[str, Stream]:
        """Random numbers that `sample_policy` needs for a number of states per run."""
        return {}

    def alpha(self, state: State) -> Tensor:
        """Weight [R] of the entropy in the value that the critic is to learn."""
        return torch.zeros_like(Hyper(state).gamma)

    def logged(self) -> tuple[str, ...]:
        """Names of what the losses report."""
        return ("q",)

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        """Random numbers that `behaviour` needs for a number of states per run."""
        return {}

    def shots(self, evaluating: bool) -> tuple[int, ...]:
        """Per run, the candidates among which `behaviour` chooses an action."""
        return (1,) * self.runs

    def update_streams(self) -> dict[str, Stream]:
        return {}

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        return {}

    def end_of_episode(self, state: State, ended: Tensor) -> None:  # noqa: B027 (most agents need nothing here)
        """Called after the step in which episodes of the runs `ended` [R] ended."""

    # --- the plain critic: the minimum of its members

    def build_critic(self) -> Critic:
        return Critic(self.trunk(s=self.ds, a=self.da))

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        """What the actor maximises, [R, B]."""
        return self.critic(theta, s, a)[0].amin(1)

    def target_value(self, state: State, s2: Tensor, a2: Tensor, draw: Draw) -> Tensor:
        return self.critic(self.params(state, "critic/target"), s2, a2)[0].amin(1)

    def mean_and_variance(self, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the online critic claims, each [R, B]: the smallest of its members' means, with that member's variance
        where it has one."""
        m, v = self.critic(self.params(state, "critic"), s, a)
        least, member = m.min(1, keepdim=True)
        return least.squeeze(1), None if v is None else v.gather(1, member).squeeze(1)

    def drawn_value(self, state: State, s: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        """Q [R, B] of the online critic with one draw of its head's weights for all pairs, from noise [R, M, width];
        of a critic without a posterior what it claims."""
        if not self.critic.gaussian:
            return self.mean_and_variance(state, s, a)[0]
        return self.critic.sampled(self.params(state, "critic"), s, a, noise).amin(1)

    # --- shared machinery

    @property
    def runs(self) -> int:
        return len(self.configs)

    def numbers(self, name: str) -> list[float]:
        """A per-run setting of every run."""
        return [config.number(name) for config in self.configs]

    def trunk(self, **inputs: int) -> Trunk:
        c = self.config
        return Trunk(inputs, c.width, c.depth, c.norm, c.activation)

    def trained(self) -> tuple[str, ...]:
        """Names of the state tensors that Adam moves."""
        return tuple(self.nets)

    def act_streams(self) -> dict[str, Stream]:
        return {"warmup": Stream((self.da,), uniform=True)} | self.behaviour_streams(1)

    def learn_streams(self) -> dict[str, Stream]:
        return {"replay": Stream((self.config.batch,), uniform=True)} | self.update_streams()

    def initial_state(self, seeds: Sequence[int], device: torch.device) -> State:
        runs = self.runs
        state: State = {
            "step": torch.zeros((), dtype=torch.int64, device=device),  # environment steps taken
            "update": torch.zeros((), dtype=torch.int64, device=device),  # updates made, passes over resting runs too
            "alive": torch.ones(runs, dtype=torch.bool, device=device),
            "diverged_step": torch.full((runs,), -1, dtype=torch.int64, device=device),
            "diverged_net": torch.full((runs,), -1, dtype=torch.int64, device=device),
            "metrics": torch.zeros(len(self.metric_names), runs, device=device),  # sums since the last log line
            # Of what is delayed there are fewer; otherwise one count for all, as in checkpoints of all times.
            "metrics_count": torch.zeros((len(self.metric_names), runs) if self.delayed else runs, device=device),
        }
        for name in self.Config.per_run_names():
            state[f"hyper/{name}"] = torch.tensor(self.numbers(name), dtype=torch.float32, device=device)
        for name, net in self.nets.items():
            state[name] = net.initial(seeds, f"initial/{name}", device)
        state |= self.extra_state(seeds, device)
        for name in self.trained():
            state[f"{name}/first_moment"] = torch.zeros_like(state[name])
            state[f"{name}/second_moment"] = torch.zeros_like(state[name])
            state[f"{name}/count"] = torch.zeros(runs, device=device)
        for name in self.with_target:
            state[f"{name}/target"] = state[name].clone()
        return state

    def params(self, state: State, name: str) -> Params:
        """The weights of a network by layer; "critic/target" names the slow copy."""
        return self.nets[name.split("/")[0]].views(state[name])

    def act(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        """Actions [R, da] in states [R, ds]: uniform during a run's warm-up, then its behaviour."""
        warming = state["step"] < Hyper(state).warmup
        action = self.behaviour(state, s.unsqueeze(1), draw).squeeze(1)
        return torch.where(warming.unsqueeze(1), 2 * draw["warmup"] - 1, action)

    @property
    def updates_per_step(self) -> int:
        return max(config.updates_per_step for config in self.configs)

    def place_in_step(self, state: State) -> Tensor:
        """The number of the present update among those of its step."""
        return state["update"] % self.updates_per_step

    def learning_starts(self) -> list[int]:
        """Per run, the first step with an update: after the warm-up, and never before a whole batch was seen."""
        return [max(config.warmup, config.batch) for config in self.configs]

    def update(self, state: State, data: Tensor, draw: Draw) -> None:
        """One update of every active run from its replay ring [R, capacity, width]."""
        n = state["step"].clamp_max(data.shape[1])
        batch = replay.sample(data, draw["replay"], n, self.ds, self.da)
        active = state["alive"] & (state["step"] >= Hyper(state).warmup.clamp_min(self.config.batch))
        active = active & (self.place_in_step(state) < Hyper(state).updates_per_step)  # others of the cohort have more
        values = self.measured(self.learn(state, batch, draw, active))
        counted = active & state["alive"]
        if self.delayed:
            counted = counted & ~values.isnan()  # [metrics, R]
        state["metrics"] += torch.where(counted, values, 0.0)
        count_up(state["metrics_count"], counted)
        state["update"] += 1

    def measured(self, log: Mapping[str, Tensor]) -> Tensor:
        """What the losses report, [metrics, R]; NaN for what rests."""
        if not self.resting and (missing := [name for name in self.metric_names if name not in log]):
            raise UserError(
                f"No loss of {type(self).__name__} reports {', '.join(missing)}, which its logged() names: put it into "
                "the dictionary beside the loss, or take it out of logged()."
            )
        nothing = torch.full_like(next(iter(log.values())), math.nan)
        return torch.stack([log.get(name, nothing) for name in self.metric_names])

    def check_per_run(self, what: str, value: Tensor) -> None:
        if value.shape != (self.runs,):
            raise UserError(
                f"In {type(self).__name__}, {what} has the shape {list(value.shape)} and must have one number for each "
                f"run, [{self.runs}]: a mean over the batch is .mean(-1)."
            )

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            target = self.bellman_target(state, batch, draw)
        log = self.descend(state, "critic", lambda theta: self.critic_loss(state, theta, batch, target, draw), active)
        return log | self.descend(state, "actor", lambda pi: self.actor_loss(state, pi, batch, draw), active)

    # --- an update without what is delayed, and which runs move what is

    def without_delayed(self) -> Self:
        """The agent as it is in updates in which nothing of what is delayed moves, and nothing of it is computed."""
        short = copy.copy(self)
        short.resting = frozenset(self.delayed)
        return short

    @property
    def period(self) -> int:
        """After how many updates all that is delayed moves in one and the same again, in all runs."""
        return math.lcm(*(int(delay) for setting in self.delayed.values() for delay in self.numbers(setting)))

    def moves_delayed(self, step: int, place: int) -> bool:
        """Whether in this update of this step any run moves what is delayed; known without asking the device."""
        if not self.delayed:
            return True
        numbers = [step * config.updates_per_step + place for config in self.configs]  # of a run's own updates
        delays = [self.numbers(setting) for setting in set(self.delayed.values())]
        return any(n % delay == 0 for each in delays for n, delay in zip(numbers, each, strict=True))

    def due(self, state: State, part: str, active: Tensor) -> Tensor:
        """Of the active runs, [R], those that move a network or a slow copy in the present update."""
        if part not in self.delayed:
            return active
        delay: Tensor = getattr(Hyper(state), self.delayed[part]).long()
        number = state["step"] * Hyper(state).updates_per_step.long() + self.place_in_step(state)
        return active & (number % delay == 0)

    # --- steps of the networks and of their slow copies

    def descend(self, state: State, name: str, loss_of: Callable[[Params], Loss], active: Tensor) -> dict[str, Tensor]:
        """A step of one network down its loss, for each run its own, and then of its slow copy: at once, in the same
        pass over the weights, since nothing of this update reads it. What is to be logged; nothing where it rests."""
        log = {} if name in self.resting else self._step_down(state, name, loss_of, self.due(state, name, active))
        if name in self.with_target and f"{name}/target" not in self.resting:
            self.follow(state, name, self.due(state, f"{name}/target", active))
        return log

    def _step_down(
        self, state: State, name: str, loss_of: Callable[[Params], Loss], moving: Tensor
    ) -> dict[str, Tensor]:
        net = self.nets[name]
        leaves = {key: view.detach().requires_grad_() for key, view in net.views(state[name]).items()}
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
        return {k: torch.where(moving, v, math.nan) for k, v in log.items()} if name in self.delayed else log

    @torch.no_grad()
    def follow(self, state: State, name: str, moving: Tensor) -> None:
        """A step of a slow copy towards its network, target ← target + τ (network − target)."""
        tau = Hyper(state).tau * (moving & state["alive"])  # a run may have died in this very update
        state[f"{name}/target"].lerp_(state[name], tau.view(-1, 1, 1))

    def learning_rate(self, state: State, name: str) -> Tensor:
        """Of a network, or of log_alpha: that of the setting actor_lr, critic_lr, alpha_lr … where there is one and it
        is not 0, otherwise lr."""
        own = state.get(f"hyper/{name.removeprefix('log_')}_lr")
        return Hyper(state).lr if own is None else torch.where(own > 0, own, Hyper(state).lr)

    def adam(self, state: State, name: str, gradient: Tensor, loss: Tensor, active: Tensor) -> Tensor:
        """Adam with a learning rate and a step count per run. A run whose loss or gradient is not finite takes no step
        and is dead from then on; the others never notice. Returns the gradient's norm [R]."""
        norm = gradient.square().sum((1, 2)).sqrt()
        finite = norm.isfinite() & loss.isfinite()
        self.bury(state, name, active & ~finite)
        moving = active & state["alive"]
        gradient = torch.where(moving.view(-1, 1, 1), gradient, 0.0)
        count = count_up(state[f"{name}/count"], moving)
        moves, steps = moving.to(gradient.dtype), count.clamp_min(1)
        rate = self.learning_rate(state, name) * moves / (1 - BETA_1**steps)
        scale = (1 - BETA_2**steps).rsqrt()
        # Stacked, the numbers of a run are computed once; a compiler would put the powers into the loop over weights.
        of_run = torch.stack([(1 - BETA_1) * moves, (1 - BETA_2) * moves, -rate, scale]).view(4, -1, 1, 1)
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
