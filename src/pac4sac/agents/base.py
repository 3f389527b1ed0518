"""Base class of all agents. It defines the functions of an algorithm, the state of a cohort as one
dictionary of tensors, the order of an update, and the metrics. The steps of Adam and of target
networks are in `optim.py`.

The code here and in the agents works on tensors of fixed shapes, for all runs at once. It does not
branch on data and does not synchronise with the device. State tensors are changed in place, so an
update can be compiled or captured.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from pac4sac.agents import coloured_noise, replay
from pac4sac.agents.nets import OBSERVED, Critic, Net, Params, Trunk
from pac4sac.agents.optim import adam_step, freeze_diverged, learning_rate, polyak_step
from pac4sac.agents.replay import Batch
from pac4sac.agents.schedule import scheduled
from pac4sac.agents.settings import REPRODUCTION, AgentConfig
from pac4sac.agents.state import Draw as Draw
from pac4sac.agents.state import Hyper as Hyper
from pac4sac.agents.state import Loss as Loss
from pac4sac.agents.state import State as State
from pac4sac.agents.state import Target as Target
from pac4sac.agents.state import count_up as count_up
from pac4sac.agents.tape import Stream
from pac4sac.base.errors import UserError

REWARDS = ("return", "count", "mean", "variance")  # running statistics of scaled rewards
LEAST_VARIANCE = 1e-8  # smallest variance of discounted returns that counts as not constant


class Agent(ABC):
    """Define an algorithm for all runs of a cohort.

    A subclass defines `networks` and the functions of its publication: `bellman_target`,
    `actor_loss`, `behaviour`, `deterministic_action` and, if it is not the squared Bellman error,
    `critic_loss`.

    Args:
        configs: Settings of each run.
        ds: Size of an observation.
        da: Number of action dimensions.

    Raises:
        UserError: If a setting does not fit the agent.

    Example:
        >>> from pac4sac.agents.api import Sac, SacConfig
        >>> agent = Sac([SacConfig(), SacConfig(alpha=0.1)], ds=3, da=1)
        >>> agent.runs
        2
    """

    title: ClassVar[str]  # one line for `pac4sac list algos`
    revision: ClassVar[int] = 1  # raised when results of the algorithm change
    Config: ClassVar[type[AgentConfig]] = AgentConfig
    # Named sets of settings. "default" has the settings of the algorithm's publication.
    # "reproduction" has the settings that all algorithms share in the studies of the PAC4SAC paper.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "reproduction": REPRODUCTION,
    }
    # Presets whose updates per step are a multiple of the task's; other presets have a fixed
    # number.
    updates_of_task: ClassVar[Mapping[str, int]] = {"reproduction": 1}
    # Whether the value of several critics is their minimum; otherwise they form one posterior.
    takes_minimum: ClassVar[bool] = True
    with_target: ClassVar[tuple[str, ...]] = ("critic",)  # networks that have a target network
    # Networks and target networks (such as "critic/target") that are updated only in every d-th
    # update, each with the name of the per-run setting that holds d.
    delayed: ClassVar[Mapping[str, str]] = {}
    delayed_last: ClassVar[bool] = False  # update in the last of d updates instead of the first
    # stream of normal numbers of the exploration in `behaviour`; "" if it has none
    exploration_stream: ClassVar[str] = ""
    # delayed parts, in a copy for updates without them
    resting: frozenset[str] = frozenset()
    critic: Critic

    def __init__(self, configs: Sequence[AgentConfig], ds: int, da: int) -> None:
        self.configs = tuple(configs)
        self.config = self.configs[0]  # for structural settings, which are the same for all runs
        self.ds, self.da = ds, da
        if self.config.noise_colour != "white" and not self.exploration_stream:
            raise UserError(
                f"{type(self).__name__} has no exploration_stream, which noise_colour needs; set "
                "noise_colour to white."
            )
        self.nets = self.networks()
        common = [
            f"{net}_{quantity}" for net in self.nets for quantity in ("loss", "gradient_norm")
        ]
        scale = ["reward_scale"] if self.config.normalise_rewards else []
        self.metric_names = (*common, *self.logged(), *scale)

    @property
    def runs(self) -> int:
        return len(self.configs)

    def numbers(self, name: str) -> list[float]:
        """Return a per-run setting of every run."""
        return [config.number(name) for config in self.configs]

    # --- parts of an algorithm

    @abstractmethod
    def networks(self) -> dict[str, Net]:
        """Build the networks.

        Returns:
            The networks by the names of their weights in the state: "critic", "actor" and so on.
        """

    @abstractmethod
    def bellman_target(self, state: State, batch: Batch, draw: Draw) -> Any:
        """Compute the target of the critic, without gradient.

        Args:
            state: State of the cohort.
            batch: Transitions of all runs.
            draw: Random numbers of `update_streams`.

        Returns:
            A `Target`, or any other input of `critic_loss`.
        """

    def critic_loss(
        self, state: State, theta: Params, batch: Batch, target: Any, draw: Draw
    ) -> Loss:
        """Compute the loss of the critic. The default is the squared Bellman error of every member.

        Args:
            state: State of the cohort.
            theta: Weights of the critic, with gradient.
            batch: Transitions of all runs.
            target: Result of `bellman_target`.
            draw: Random numbers of `update_streams`.

        Returns:
            The loss [R], and metrics to log, each [R].
        """
        m, _ = self.critic(theta, batch.s, batch.a)  # [R, M, B]
        return (target.y[:, None] - m).square().mean(-1).sum(-1), {"q": m.mean((1, 2))}

    @abstractmethod
    def actor_loss(self, state: State, pi: Params, batch: Batch, draw: Draw) -> Loss:
        """Compute the loss of the actor.

        Args:
            state: State of the cohort.
            pi: Weights of the actor, with gradient.
            batch: Transitions of all runs.
            draw: Random numbers of `update_streams`.

        Returns:
            The loss [R], and metrics to log, each [R].
        """

    @abstractmethod
    def behaviour(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        """Return actions for training, with exploration.

        Args:
            state: State of the cohort.
            s: States [R, B, ds].
            draw: Random numbers of `behaviour_streams`.

        Returns:
            Actions in [−1, 1], [R, B, da].
        """

    @abstractmethod
    def deterministic_action(self, state: State, s: Tensor) -> Tensor:
        """Return actions of the deterministic policy, for evaluation.

        Args:
            state: State of the cohort.
            s: States [R, B, ds].

        Returns:
            Actions in [−1, 1], [R, B, da].
        """

    def sample_policy(self, state: State, s: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Sample actions of the policy π that the critic evaluates, without shooting or
        exploration.

        Args:
            state: State of the cohort.
            s: States [R, B, ds].
            draw: Random numbers of `policy_streams`.

        Returns:
            Actions [R, B, da] and their log-densities [R, B], 0 for a deterministic policy.
        """
        a = self.deterministic_action(state, s)
        return a, torch.zeros_like(a[..., 0])

    def policy_streams(self, states: int) -> dict[str, Stream]:
        """Return the random numbers that `sample_policy` needs for some number of states per
        run."""
        return {}

    def alpha(self, state: State) -> Tensor:
        """Return the entropy weight [R] in the value that the critic learns."""
        return torch.zeros_like(Hyper(state).gamma)

    def logged(self) -> tuple[str, ...]:
        """Return the names of the metrics that the losses return."""
        return ("q",)

    def behaviour_streams(self, states: int, evaluating: bool = False) -> dict[str, Stream]:
        """Return the random numbers that `behaviour` needs for some number of states per run."""
        return {}

    def shots(self, evaluating: bool) -> tuple[int, ...]:
        """Return the number of candidates among which `behaviour` chooses, for each run."""
        return (1,) * self.runs

    def update_streams(self) -> dict[str, Stream]:
        """Return the streams of random numbers that the losses need in one update."""
        return {}

    def extra_state(self, seeds: Sequence[int], device: torch.device) -> State:
        """Return further tensors of the state; their first axis is the runs.

        An agent file includes the tensors whose names begin with "posterior/".
        """
        return {}

    def end_of_episode(self, state: State, ended: Tensor) -> None:
        """Update the state after a step that ended the episodes of the runs `ended` [R]."""
        if self.config.normalise_rewards:
            state["rewards/return"].masked_fill_(ended, 0.0)

    # --- the value of several critics is their minimum

    def build_critic(self) -> Critic:
        """Return the critic that the actor follows; `PacBayesCritic` overrides this with a
        randomised critic."""
        return Critic(self.trunk(s=self.ds, a=self.da))

    def value(self, theta: Params, s: Tensor, a: Tensor, noise: Tensor | None) -> Tensor:
        """Return the value that the actor maximises, [R, B]."""
        return self.critic(theta, s, a)[0].amin(1)

    def target_value(self, state: State, s2: Tensor, a2: Tensor, draw: Draw) -> Tensor:
        """Return the value of the next state in a target: the minimum of the target critics, [R,
        B]."""
        return self.critic(self.params(state, "critic/target"), s2, a2)[0].amin(1)

    def mean_and_variance(self, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return mean and variance of the online critic's prediction, each [R, B]. They are those
        of the member with the smallest mean; the variance is None if members have none."""
        m, v = self.critic(self.params(state, "critic"), s, a)
        least, member = m.min(1, keepdim=True)
        return least.squeeze(1), None if v is None else v.gather(1, member).squeeze(1)

    def drawn_values(self, state: State, s: Tensor, a: Tensor, noise: Tensor) -> Tensor:
        """Return Q [R, B, S] of the online critic for S samples of the weights of its head. The
        samples are computed from noise [R, S, M, width], and each sample is used for all pairs.
        Without a posterior, the S values are equal."""
        if not self.critic.gaussian:
            return (
                self.mean_and_variance(state, s, a)[0].unsqueeze(-1).expand(-1, -1, noise.shape[1])
            )
        return self.critic.sampled(self.params(state, "critic"), s, a, noise).amin(1)

    # --- shared machinery

    def trunk(self, kind: type[Trunk] = Trunk, /, **inputs: int) -> Trunk:
        """Return the layers below a head, built from the settings, for inputs of these sizes."""
        c = self.config
        own = (c.critic_width, c.critic_depth) if "a" in inputs else (0, 0)
        trunk = kind(inputs, own[0] or c.width, own[1] or c.depth, c.norm, c.activation)
        if c.normalise_observations:
            trunk.normalise_observations()
        return trunk

    def act_streams(self) -> dict[str, Stream]:
        streams = {"warmup": Stream((self.da,), uniform=True)} | self.behaviour_streams(1)
        return streams | ({"innovations": self.innovations} if self.innovations else {})

    def learn_streams(self) -> dict[str, Stream]:
        return {"replay": Stream((self.config.batch,), uniform=True)} | self.update_streams()

    def initial_state(self, seeds: Sequence[int], device: torch.device) -> State:
        runs = self.runs
        state: State = {
            "step": torch.zeros((), dtype=torch.int64, device=device),  # environment steps so far
            # updates so far, including passes over resting runs
            "update": torch.zeros((), dtype=torch.int64, device=device),
            "alive": torch.ones(runs, dtype=torch.bool, device=device),
            "diverged_step": torch.full((runs,), -1, dtype=torch.int64, device=device),
            "diverged_net": torch.full((runs,), -1, dtype=torch.int64, device=device),
            # sums since the last log line
            "metrics": torch.zeros(len(self.metric_names), runs, device=device),
            # one count per metric if parts are delayed, otherwise one count
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
        state |= self.noise_state(device) | self.extra_state(seeds, device)
        for name in self.trained():
            state[f"{name}/first_moment"] = torch.zeros_like(state[name])
            state[f"{name}/second_moment"] = torch.zeros_like(state[name])
            state[f"{name}/count"] = torch.zeros(runs, device=device)
        for name in self.with_target:
            state[f"{name}/target"] = state[name].clone()
        return state

    def params(self, state: State, name: str) -> Params:
        """Return the weights of a network by layer; "critic/target" is the target network."""
        return self.nets[name.split("/")[0]].views(state[name])

    def act(self, state: State, s: Tensor, draw: Draw) -> Tensor:
        """Return actions [R, da] in states [R, ds]: uniformly random during the warm-up of a run,
        and from `behaviour` afterwards."""
        if self.config.normalise_observations:
            self.update_observation_statistics(state, s)
        if self.innovations is not None:
            draw = self.coloured(state, draw)
        warming = state["step"] < Hyper(state).warmup
        action = self.behaviour(state, s.unsqueeze(1), draw).squeeze(1)
        return torch.where(warming.unsqueeze(1), 2 * draw["warmup"] - 1, action)

    def update_observation_statistics(self, state: State, s: Tensor) -> None:
        """Add observations [R, ds] to the running mean and variance of every network and target
        network."""
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

    # --- coloured noise, which replaces the independent draws of `exploration_stream`

    @property
    def innovations(self) -> Stream | None:
        """Return the stream of the innovations of the noise processes, [N, K, ...]; None for white
        noise."""
        count = len(coloured_noise.TIME_CONSTANTS[self.config.noise_colour])
        if not count:
            return None
        replaced = self.behaviour_streams(1)[self.exploration_stream]
        first, *rest = replaced.shape
        return Stream((first, count, *rest), rows=replaced.rows)

    def coloured(self, state: State, draw: Draw) -> Draw:
        """Return the random numbers with coloured noise in the exploration stream."""
        # In the first step, a process equals its innovation, so its variance is 1 in all steps.
        phi = torch.where(state["step"] > 0, state["noise_correlations"], 0.0)
        noise = coloured_noise.advance(state["noise_processes"], draw["innovations"], phi)
        return {**draw, self.exploration_stream: noise}

    def noise_state(self, device: torch.device) -> State:
        if self.innovations is None:
            return {}
        phi = torch.tensor(coloured_noise.correlations(self.config.noise_colour), device=device)
        return {
            "noise_processes": torch.zeros(self.runs, *self.innovations.shape, device=device),
            "noise_correlations": phi.repeat(self.runs, 1),
        }

    # --- rewards are divided by a running scale, so critics learn values of order one

    def update_reward_statistics(self, state: State, r: Tensor) -> None:
        """Update the running mean and variance of the discounted return G ← γ G + r with rewards
        [R]. G starts at 0 in every episode."""
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
        """Return the number by which rewards are divided in learning, [R]: the standard deviation
        of the discounted return, or 1 while the return is constant."""
        if not self.config.normalise_rewards:
            return torch.ones_like(Hyper(state).gamma)
        variance = state["rewards/variance"]
        return torch.where(
            variance > LEAST_VARIANCE, variance.clamp_min(LEAST_VARIANCE).sqrt(), 1.0
        )

    def value_estimate(self, state: State, s: Tensor, a: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return `mean_and_variance` in units of the environment's rewards."""
        scale = self.reward_scale(state)[:, None]
        m, v = self.mean_and_variance(state, s, a)
        return m * scale, None if v is None else v * scale.square()

    def members_std(self, state: State, s: Tensor, a: Tensor) -> Tensor:
        """Return the standard deviation over several plain critics, [R, B], in units of the
        environment's rewards; NaN for a single critic or for other kinds of critics."""
        if getattr(self, "critic", None) is None or self.critic.members < 2:
            return s.new_full(s.shape[:2], math.nan)
        q, _ = self.critic(self.params(state, "critic"), s, a)
        return q.std(1, correction=0) * self.reward_scale(state)[:, None]

    def entropy_weight(self, state: State) -> Tensor:
        """Return `alpha` in units of the environment's rewards."""
        return self.alpha(state) * self.reward_scale(state)

    def learning_starts(self) -> list[int]:
        """Return, for each run, the first step with an update: after the warm-up, and when a whole
        batch is stored."""
        return [max(config.warmup, config.batch) for config in self.configs]

    def update(self, state: State, data: Tensor, draw: Draw) -> None:
        """Update every active run once, from its replay ring [R, capacity, width]."""
        batch = self.sample_batch(state, data, draw["replay"])
        active = state["alive"] & (
            state["step"] >= Hyper(state).warmup.clamp_min(self.config.batch)
        )
        # other runs of the cohort have more
        active = active & (self.update_in_step(state) < Hyper(state).updates_per_step)
        scale = {"reward_scale": self.reward_scale(state)} if self.config.normalise_rewards else {}
        values = self.measured(self.learn(state, batch, draw, active) | scale)
        counted = active & state["alive"]
        if self.delayed:
            counted = counted & ~values.isnan()  # [metrics, R]
        state["metrics"] += torch.where(counted, values, 0.0)
        count_up(state["metrics_count"], counted)
        state["update"] += 1

    def sample_batch(self, state: State, data: Tensor, uniforms: Tensor) -> Batch:
        """Sample a batch (n-step if set), with rewards divided by the current scale."""
        n, longest = state["step"].clamp_max(data.shape[1]), int(max(self.numbers("n_step")))
        batch, h = replay.sample(data, uniforms, n, self.ds, self.da), Hyper(state)
        if longest > 1:
            batch = replay.join(
                data, replay.indices(uniforms, n), n, batch, h.n_step, longest, h.gamma
            )
        if self.config.normalise_rewards:
            batch = batch._replace(r=batch.r / self.reward_scale(state)[:, None])
        return batch

    def measured(self, log: Mapping[str, Tensor]) -> Tensor:
        """Return the metrics of the losses, [metrics, R], with NaN for the parts that this update
        omits."""
        who, missing = type(self).__name__, [name for name in self.metric_names if name not in log]
        if missing and not self.resting:
            names = ", ".join(missing)
            raise UserError(
                f"logged() of {who} includes {names}, but no loss reports it. Report it in a loss, "
                "or remove it from logged()."
            )
        if unnamed := ", ".join(name for name in log if name not in self.metric_names):
            raise UserError(
                f"A loss of {who} reports {unnamed}, but logged() does not include it. Add it to "
                "logged()."
            )
        nothing = torch.full_like(next(iter(log.values())), math.nan)
        return torch.stack([log.get(name, nothing) for name in self.metric_names])

    def learn(self, state: State, batch: Batch, draw: Draw, active: Tensor) -> dict[str, Tensor]:
        """Update the critic and then the actor of the active runs [R], and return the metrics."""
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

    # --- steps of the networks

    def trained(self) -> tuple[str, ...]:
        """Return the names of the state tensors that Adam updates."""
        return tuple(self.nets)

    def descend(
        self, state: State, name: str, loss_of: Callable[[Params], Loss], active: Tensor
    ) -> dict[str, Tensor]:
        """Take a gradient step of a network on its loss, then a step of its target network. The
        target network is not read again in this update. Return the metrics, which are empty if the
        network is not updated."""
        log: dict[str, Tensor] = {}
        if name not in self.resting:
            log = self._gradient_step(state, name, loss_of, self.due(state, name, active))
        if name in self.with_target and f"{name}/target" not in self.resting:
            polyak_step(state, name, self.due(state, f"{name}/target", active))
        return log

    def _gradient_step(
        self, state: State, name: str, loss_of: Callable[[Params], Loss], moving: Tensor
    ) -> dict[str, Tensor]:
        net = self.nets[name]
        weights = net.views(state[name]).items()
        leaves = {key: view.detach().requires_grad_() for key, view in weights}
        loss, log = loss_of(leaves)
        self._check_per_run(f"the loss of the {name}", loss)
        for key, value in log.items():
            self._check_per_run(f"what it logs as {key}", value)
        gradient = torch.autograd.grad(loss.sum(), list(leaves.values()), materialize_grads=True)
        with torch.no_grad():
            norm = self.adam(state, name, net.flatten(gradient, state[name]), loss.detach(), moving)
        log = {f"{name}_loss": loss, f"{name}_gradient_norm": norm} | log
        log = {key: value.detach() for key, value in log.items()}
        if name not in self.delayed:
            return log
        return {key: torch.where(moving, value, math.nan) for key, value in log.items()}

    def adam(
        self, state: State, name: str, gradient: Tensor, loss: Tensor, active: Tensor
    ) -> Tensor:
        """Take a step of Adam for the active runs, and return the norm [R] of the gradient. A run
        with a non-finite loss or gradient is frozen; other runs are not affected."""
        norm = gradient.square().sum((1, 2)).sqrt()
        finite = norm.isfinite() & loss.isfinite()
        freeze_diverged(state, list(self.trained()).index(name), active & ~finite)
        rate = self.learning_rate(state, name)
        adam_step(state, name, gradient, active & state["alive"], rate)
        return norm

    def learning_rate(self, state: State, name: str) -> Tensor:
        """Return the current learning rate [R] of a network, or of log_alpha. A schedule follows
        the steps of the network. It ends at 0, or at the fraction `lr_end` of the initial rate if
        the agent has that setting."""
        rate = learning_rate(state, name)
        if self.config.lr_schedule == "constant":
            return rate
        h = Hyper(state)
        progress = state[f"{name}/count"] / (h.lr_steps * h.updates_per_step)
        end = state.get("hyper/lr_end", torch.zeros_like(rate))
        return scheduled(self.config.lr_schedule, rate, end, progress)

    def _check_per_run(self, what: str, value: Tensor) -> None:
        if value.shape != (self.runs,):
            raise UserError(
                f"In {type(self).__name__}, {what} has the shape {list(value.shape)}, but it must "
                f"have the shape [{self.runs}], with one number per run. Average over the batch "
                "with .mean(-1)."
            )

    # --- delayed updates: two programs, with and without the delayed parts

    @property
    def updates_per_step(self) -> int:
        return max(config.updates_per_step for config in self.configs)

    def update_in_step(self, state: State) -> Tensor:
        """Return the index of the current update within its step."""
        return state["update"] % self.updates_per_step

    def without_delayed(self) -> Self:
        """Return the agent for updates without the delayed parts."""
        short = copy.copy(self)
        short.resting = frozenset(self.delayed)
        return short

    @property
    def period(self) -> int:
        """Return the number of updates after which the delayed parts of all runs are due together
        again."""
        return math.lcm(
            *(int(delay) for setting in self.delayed.values() for delay in self.numbers(setting))
        )

    def full_update(self, start: int) -> tuple[int, int]:
        """Return a step at or after `start` in which the delayed parts of all runs are updated, and
        the index of that update within the step."""
        late = int(self.delayed_last)
        return start + -(start + late) % self.period, late * (self.updates_per_step - 1)

    def moves_delayed(self, step: int, update: int) -> bool:
        """Return whether a delayed part of any run is due in this update of this step, without
        reading from the device."""
        if not self.delayed:
            return True
        # counts the updates of each run
        first = update + int(self.delayed_last)
        numbers = [step * config.updates_per_step + first for config in self.configs]
        delays = [self.numbers(setting) for setting in set(self.delayed.values())]
        return any(
            n % delay == 0 for each in delays for n, delay in zip(numbers, each, strict=True)
        )

    def due(self, state: State, part: str, active: Tensor) -> Tensor:
        """Return the active runs [R] that update a network, or a target network, in the current
        update."""
        if part not in self.delayed:
            return active
        # At least 1, because a compiler that pads the number of runs would divide by the zeros in
        # the padding.
        delay: Tensor = getattr(Hyper(state), self.delayed[part]).long().clamp_min(1)
        number = state["step"] * Hyper(state).updates_per_step.long() + self.update_in_step(state)
        return active & ((number + int(self.delayed_last)) % delay == 0)
