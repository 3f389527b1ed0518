"""What all agents share: what an algorithm is made of, a cohort's state as one dictionary of
tensors, the order of an update, metrics. How networks move is in `moving.py`.

Everything here and in the agents is tensor code of fixed shapes on all runs at once: no branch on
data, no synchronisation with the device. State tensors are changed in place, so that one update can
be compiled or captured."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from pac4sac.agents import replay
from pac4sac.agents.moving import MovingNetworks
from pac4sac.agents.nets import OBSERVED, Critic, Net, Params, Trunk
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

REWARDS = ("return", "count", "mean", "variance")  # what is kept of rewards where they are scaled
LEAST_VARIANCE = 1e-8  # of discounted returns that vary


class Agent(MovingNetworks, ABC):
    """An algorithm for a cohort. A subclass gives its networks and the functions of its paper:
    `bellman_target`, `actor_loss`, `behaviour`, `deterministic_action` and, where it is not the
    squared Bellman error, `critic_loss`."""

    title: ClassVar[str]  # one line for `pac4sac list algos`
    revision: ClassVar[int] = (
        1  # raised when results of the algorithm change, so that no stored run is taken for new
    )
    Config: ClassVar[type[AgentConfig]] = AgentConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {}}
    # Presets whose updates per step are so many times those of the task; the others name a number
    # that holds for all.
    updates_of_task: ClassVar[Mapping[str, int]] = {"paper": 1}
    takes_minimum: ClassVar[bool] = True  # of several critics, or else they are one posterior
    critic: Critic

    def __init__(self, configs: Sequence[AgentConfig], ds: int, da: int) -> None:
        self.configs = tuple(configs)
        self.config = self.configs[0]  # for structural settings, which all runs share
        self.ds, self.da = ds, da
        self.nets = self.networks()
        common = [
            f"{net}_{quantity}" for net in self.nets for quantity in ("loss", "gradient_norm")
        ]
        scale = ["reward_scale"] if self.config.normalise_rewards else []
        self.metric_names = (*common, *self.logged(), *scale)

    # --- what an algorithm is made of

    @abstractmethod
    def networks(self) -> dict[str, Net]:
        """Build the networks, by the names under which the state keeps their weights: "critic",
        "actor" and so on."""

    @abstractmethod
    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Any:
        """A `Target`, or whatever else of the next state the critic's loss needs; taken without
        gradient."""

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Any, draw: Draw
    ) -> Loss:
        """The squared Bellman error of every critic; algorithms with another objective replace
        it."""
        m, _ = self.critic(theta, batch.s, batch.a)  # [R, M, B]
        return (target.y[:, None] - m).square().mean(-1).sum(-1), {"q": m.mean((1, 2))}

    @abstractmethod
    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        """What the actor with the weights `pi` descends, [R], and what to log of it."""

    @abstractmethod
    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        """Actions [R, B, da] with which to gather data in states [R, B, ds]."""

    @abstractmethod
    def deterministic_action(self, state: State, s: Tensor) -> Tensor:
        """The deterministic policy, for evaluation."""

    def sample_policy(self, state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """An action [R, B, da] of π itself, whose value the critic is to learn: no shooting, no
        exploration; and its log-density [R, B], which is 0 for a deterministic policy."""
        a = self.deterministic_action(state, s)
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
        """Random numbers that the losses need in one update."""
        return {}

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        """Tensors beside the networks, runs first; an agent file keeps those whose names begin with
        "posterior/"."""
        return {}

    def end_of_episode(self, state: State, ended: Tensor) -> None:
        """Called after the step in which episodes of the runs `ended` [R] ended."""
        if self.config.normalise_rewards:
            state["rewards/return"].masked_fill_(ended, 0.0)

    # --- the plain critic: the minimum of its members

    def build_critic(self) -> Critic:
        """The network whose value the actor follows; `PacBayesCritic` makes it a randomised one."""
        return Critic(self.trunk(s=self.ds, a=self.da))

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        """What the actor maximises, [R, B]."""
        return self.critic(theta, s, a)[0].amin(1)

    def target_value(self, state: State, s2: Tensor, a2: Tensor, draw: Draw) -> Tensor:
        """The value of the next state in a target, [R, B]: the smallest of the slow critics."""
        return self.critic(self.params(state, "critic/target"), s2, a2)[0].amin(1)

    def mean_and_variance(self, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the online critic claims, each [R, B]: the smallest of its members' means, with that
        member's variance where it has one."""
        m, v = self.critic(self.params(state, "critic"), s, a)
        least, member = m.min(1, keepdim=True)
        return least.squeeze(1), None if v is None else v.gather(1, member).squeeze(1)

    def drawn_values(self, state: State, s: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        """Q [R, B, S] of the online critic with S draws of its head's weights, each for all pairs,
        from noise [R, S, M, width]; of a critic without a posterior what it claims."""
        if not self.critic.gaussian:
            return (
                self.mean_and_variance(state, s, a)[0].unsqueeze(-1).expand(-1, -1, noise.shape[1])
            )
        return self.critic.sampled(self.params(state, "critic"), s, a, noise).amin(1)

    # --- shared machinery

    def trunk(self, kind: type[Trunk] = Trunk, /, **inputs: int) -> Trunk:
        """The layers below a head, as the settings want them, for inputs of these sizes."""
        c = self.config
        own = (c.critic_width, c.critic_depth) if "a" in inputs else (0, 0)
        trunk = kind(inputs, own[0] or c.width, own[1] or c.depth, c.norm, c.activation)
        if c.normalise_observations:
            trunk.watch()
        return trunk

    def act_streams(self) -> dict[str, Stream]:
        return {"warmup": Stream((self.da,), uniform=True)} | self.behaviour_streams(1)

    def learn_streams(self) -> dict[str, Stream]:
        return {"replay": Stream((self.config.batch,), uniform=True)} | self.update_streams()

    def initial_state(self, seeds: Sequence[int], device: torch.device) -> State:
        runs = self.runs
        state: State = {
            "step": torch.zeros((), dtype=torch.int64, device=device),  # environment steps taken
            # updates made, passes over resting runs too
            "update": torch.zeros((), dtype=torch.int64, device=device),
            "alive": torch.ones(runs, dtype=torch.bool, device=device),
            "diverged_step": torch.full((runs,), -1, dtype=torch.int64, device=device),
            "diverged_net": torch.full((runs,), -1, dtype=torch.int64, device=device),
            # sums since the last log line
            "metrics": torch.zeros(len(self.metric_names), runs, device=device),
            # Of what is delayed there are fewer; otherwise one count for all, as in checkpoints of
            # all times.
            "metrics_count": torch.zeros(
                (len(self.metric_names), runs) if self.delayed else runs, device=device
            ),
        }
        for name in self.Config.per_run_names():
            state[f"hyper/{name}"] = torch.tensor(
                self.numbers(name), dtype=torch.float32, device=device
            )
        for name, net in self.nets.items():
            state[name] = net.initial(seeds, f"initial/{name}", device)
        if self.config.normalise_rewards:
            state |= {f"rewards/{part}": torch.zeros(runs, device=device) for part in REWARDS}
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
        if self.config.normalise_observations:
            self.watch(state, s)
        warming = state["step"] < Hyper(state).warmup
        action = self.behaviour(state, s.unsqueeze(1), draw).squeeze(1)
        return torch.where(warming.unsqueeze(1), 2 * draw["warmup"] - 1, action)

    def watch(self, state: State, s: Tensor) -> None:
        """Take observations [R, ds] into the running mean and variance that every network and slow
        copy has."""
        for name in (*self.nets, *(f"{name}/target" for name in self.with_target)):
            members = self.nets[name.split("/")[0]].members
            x, alive = (
                t.repeat_interleave(members, 0)
                for t in (s.unsqueeze(1), state["alive"].view(-1, 1, 1))
            )
            seen = {
                part: view
                for part, view in self.params(state, name).items()
                if part.startswith(OBSERVED)
            }
            count, mean, variance = seen.values()  # [G, 1, ·]
            n = count + 1
            following = mean + (x - mean) / n
            spread = variance + ((x - mean) * (x - following) - variance) / n
            for old, new in zip((count, mean, variance), (n, following, spread), strict=True):
                old.copy_(torch.where(alive, new, old))

    # --- rewards on a scale of their own, where a critic that learns them is to meet values of
    # order one

    def watch_rewards(self, state: State, r: Tensor) -> None:
        """Take rewards [R] into the running mean and variance of the discounted return, G ← γ G +
        r, which begins anew with every episode."""
        g, count, mean, variance = (state[f"rewards/{part}"] for part in REWARDS)
        following = Hyper(state).gamma * g + r
        n = count + 1
        centre = mean + (following - mean) / n
        spread = variance + ((following - mean) * (following - centre) - variance) / n
        for old, new in zip(
            (g, count, mean, variance), (following, n, centre, spread), strict=True
        ):
            old.copy_(torch.where(state["alive"], new, old))

    def reward_scale(self, state: State) -> Tensor:
        """By which rewards are divided before a critic learns them, [R]: the deviation of the
        discounted return, or 1 as long as nothing has varied."""
        if not self.config.normalise_rewards:
            return torch.ones_like(Hyper(state).gamma)
        variance = state["rewards/variance"]
        return torch.where(
            variance > LEAST_VARIANCE, variance.clamp_min(LEAST_VARIANCE).sqrt(), 1.0
        )

    def claims(self, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """As `mean_and_variance`, in units of the environment's rewards."""
        scale = self.reward_scale(state)[:, None]
        m, v = self.mean_and_variance(state, s, a)
        return m * scale, None if v is None else v * scale.square()

    def members_deviation(self, state: State, s: Tensor, a: Tensor) -> Tensor:
        """How far several plain critics lie apart, [R, B], in the same units; NaN for a single one,
        or a critic of another kind, which says nothing of how far it errs."""
        if getattr(self, "critic", None) is None or self.critic.members < 2:
            return s.new_full(s.shape[:2], math.nan)
        q, _ = self.critic(self.params(state, "critic"), s, a)
        return q.std(1, correction=0) * self.reward_scale(state)[:, None]

    def entropy_weight(self, state: State) -> Tensor:
        """As `alpha`, in the same units."""
        return self.alpha(state) * self.reward_scale(state)

    def learning_starts(self) -> list[int]:
        """Per run, the first step with an update: after the warm-up, and never before a whole batch
        was seen."""
        return [max(config.warmup, config.batch) for config in self.configs]

    def update(self, state: State, data: Tensor, draw: Draw) -> None:
        """One update of every active run from its replay ring [R, capacity, width]."""
        batch = self.drawn_batch(state, data, draw["replay"])
        active = state["alive"] & (
            state["step"] >= Hyper(state).warmup.clamp_min(self.config.batch)
        )
        # others of the cohort have more
        active = active & (self.place_in_step(state) < Hyper(state).updates_per_step)
        scale = {"reward_scale": self.reward_scale(state)} if self.config.normalise_rewards else {}
        values = self.measured(self.learn(state, batch, draw, active) | scale)
        counted = active & state["alive"]
        if self.delayed:
            counted = counted & ~values.isnan()  # [metrics, R]
        state["metrics"] += torch.where(counted, values, 0.0)
        count_up(state["metrics_count"], counted)
        state["update"] += 1

    def drawn_batch(self, state: State, data: Tensor, uniforms: Tensor) -> Batch:
        """Of what a run has seen, n steps of it for each row where it learns from so many; rewards
        by their scale of today, also those of long ago."""
        n, longest = state["step"].clamp_max(data.shape[1]), int(max(self.numbers("n_step")))
        batch, h = replay.sample(data, uniforms, n, self.ds, self.da), Hyper(state)
        if longest > 1:
            batch = replay.join(
                data, replay.places(uniforms, n), n, batch, h.n_step, longest, h.gamma
            )
        if self.config.normalise_rewards:
            batch = batch._replace(r=batch.r / self.reward_scale(state)[:, None])
        return batch

    def measured(self, log: Mapping[str, Tensor]) -> Tensor:
        """What the losses report, [metrics, R]; NaN for what rests."""
        who, missing = type(self).__name__, [name for name in self.metric_names if name not in log]
        if missing and not self.resting:
            names = ", ".join(missing)
            raise UserError(
                f"No loss of {who} reports {names}, which its logged() names: report it, or "
                "take it out there."
            )
        if unnamed := ", ".join(name for name in log if name not in self.metric_names):
            raise UserError(
                f"A loss of {who} reports {unnamed}, which its logged() does not name: name "
                "it there too."
            )
        nothing = torch.full_like(next(iter(log.values())), math.nan)
        return torch.stack([log.get(name, nothing) for name in self.metric_names])

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        """One update of the active runs [R]: the critic, then the actor. What they report, to be
        logged."""
        with torch.no_grad():
            target = self.bellman_target(state, batch, draw)
        log = self.descend(
            state,
            "critic",
            lambda theta: self.critic_loss(state, theta, batch, target, draw),
            active,
        )
        return log | self.descend(
            state, "actor", lambda pi: self.actor_loss(state, pi, batch, draw), active
        )
