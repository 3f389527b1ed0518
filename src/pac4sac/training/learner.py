"""The learner of a cohort: agent, replay buffer, tapes, and buffers for exchange with the
simulators.

All tensors are in one dictionary on one device. The three operations of a step (act, update, store)
change these tensors in place and have no other arguments. A backend can therefore compile them or
capture them as a CUDA graph, and the dictionary is the checkpoint.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pac4sac.agents import replay
from pac4sac.agents.base import Agent
from pac4sac.agents.tape import BLOCK, Tape, read
from pac4sac.agents.tape import size as tape_size
from pac4sac.tasks import task_sizes
from pac4sac.training.run import Run, make_agent

Tensors = dict[str, Tensor]
Operation = Callable[[Tensors], None]
Prepare = Callable[[Operation, Tensors], Callable[[], None]]  # prepares an operation for execution
LEARN_BLOCK = 4 * BLOCK  # an update reads fewer random numbers than a step with shooting


def eager(operation: Operation, tensors: Tensors) -> Callable[[], None]:
    """Prepare an operation for direct execution."""
    return lambda: operation(tensors)


class Learner:
    """Act, learn and store transitions for all runs of a cohort at once."""

    def __init__(
        self, agent: Agent, seeds: Sequence[int], steps: int, device: torch.device
    ) -> None:
        self.agent, self.device = agent, device
        runs, ds, da = agent.runs, agent.ds, agent.da
        self.state = agent.initial_state(seeds, device)
        self.act_tape = Tape(seeds, agent.act_streams(), device)
        self.learn_tape = Tape(
            seeds, agent.learn_streams(), device, LEARN_BLOCK, agent.updates_per_step
        )
        capacity = min(agent.config.capacity, steps)  # a longer ring would never fill
        self.buffers: Tensors = {
            "replay": torch.zeros(runs, capacity, replay.row_width(ds, da), device=device),
            "observation": torch.zeros(runs, ds, device=device),
            "action": torch.zeros(runs, da, device=device),
            # s′, next observation for acting, r, terminated
            "incoming": torch.zeros(runs, 2 * ds + 2, device=device),
        }
        self.step = 0  # copy of the device's counter, read without synchronisation
        self.first_update = min(agent.learning_starts())
        pinned = device.type == "cuda"
        self._incoming = torch.zeros(runs, 2 * ds + 2, pin_memory=pinned)
        self._actions = torch.zeros(runs, da, pin_memory=pinned)
        self.use(eager)

    @property
    def tensors(self) -> Tensors:
        """Return all tensors that the operations read and write."""
        tapes = {f"act:{name}": block for name, block in self.act_tape.blocks.items()}
        tapes |= {f"learn:{name}": block for name, block in self.learn_tape.blocks.items()}
        return self.state | self.buffers | tapes

    # --- operations, as functions of the tensors only

    def act_operation(self, t: Tensors) -> None:
        """Compute the next actions."""
        t["action"].copy_(self.agent.act(t, t["observation"], read(_under("act:", t), t["step"])))

    def update_operation(self, t: Tensors) -> None:
        """Perform one update of all parts."""
        self._update(self.agent, t)

    def short_update_operation(self, t: Tensors) -> None:
        """Perform one update without the delayed parts."""
        self._update(self.agent.without_delayed(), t)

    def _update(self, agent: Agent, t: Tensors) -> None:
        row = agent.update_in_step(t) * LEARN_BLOCK + t["step"] % LEARN_BLOCK
        agent.update(t, t["replay"], read(_under("learn:", t), row))

    def store_operation(self, t: Tensors) -> None:
        """Store the transition in the replay buffer, and count the step."""
        s2, following, r, terminated = torch.split(
            t["incoming"], [self.agent.ds, self.agent.ds, 1, 1], -1
        )
        row = replay.pack(t["observation"], t["action"], r, s2, terminated)
        replay.store(t["replay"], row, t["step"])
        if self.agent.config.normalise_rewards:
            self.agent.update_reward_statistics(t, r.squeeze(-1))
        t["observation"].copy_(following)
        t["step"] += 1

    def use(self, prepare: Prepare) -> None:
        """Prepare the operations with a backend, and use them afterwards."""
        tensors = self.tensors
        operations = {"act": self.act_operation, "update": self.update_operation}
        if self.agent.delayed:
            operations["short_update"] = self.short_update_operation
        operations["store"] = self.store_operation
        self.run = {name: prepare(operation, tensors) for name, operation in operations.items()}

    # --- interface of the loop

    def begin(self, observations: NDArray[np.float32]) -> None:
        """Set the observations [R, ds] for the next actions."""
        self.buffers["observation"].copy_(torch.from_numpy(observations))

    def act(self) -> NDArray[np.float32]:
        """Return the next actions [R, da]; the next call overwrites them."""
        self.act_tape.seek(self.step)
        self.run["act"]()
        self._actions.copy_(self.buffers["action"], non_blocking=True)
        if self.device.type == "cuda":
            stream = torch.cuda.current_stream()
            while not stream.query():  # CUDA's own wait would block the core, which simulators need
                os.sched_yield()
        return self._actions.numpy()

    def learn(self) -> None:
        """Perform the updates of a step."""
        if self.step < self.first_update:  # no run learns yet
            self.state["update"] += self.agent.updates_per_step
            return
        for place in range(self.agent.updates_per_step):
            self.update(place)

    def update(self, place: int = 0) -> None:
        """Perform one update.

        Args:
            place: Index of the update within the step.
        """
        self.learn_tape.seek(self.step)
        self.run["update" if self.agent.moves_delayed(self.step, place) else "short_update"]()

    def store(
        self, s2: NDArray[Any], following: NDArray[Any], r: NDArray[Any], terminated: NDArray[Any]
    ) -> None:
        """Store the transition of a step.

        Args:
            s2: Observations [R, ds] after the step.
            following: Observations [R, ds] for the next actions, after a reset if an episode ended.
            r: Rewards [R].
            terminated: Whether an episode terminated [R].
        """
        host, ds = self._incoming.numpy(), self.agent.ds
        host[:, :ds], host[:, ds : 2 * ds], host[:, -2], host[:, -1] = s2, following, r, terminated
        self.buffers["incoming"].copy_(self._incoming, non_blocking=True)
        self.run["store"]()
        self.step += 1

    def freeze(self, run: int) -> None:
        """Stop learning for one run, without affecting other runs."""
        self.state["alive"][run] = False
        self.buffers["observation"][run] = 0  # as the pool returns for a parked run

    def read_metrics(self) -> NDArray[np.float64]:
        """Return means since the last call [metrics, R]; NaN for runs without an update."""
        sums, counts = self.state["metrics"], self.state["metrics_count"]
        means = sums.double().cpu() / counts.double().cpu()
        sums.zero_()
        counts.zero_()
        return np.asarray(means)

    # --- for checkpoints

    def export(self) -> Tensors:
        """Return the tensors for a checkpoint, without the empty part of the replay buffer.

        They are views, valid until the next step. Tapes are not stored, because seeds and counters
        determine them.
        """
        filled = min(self.step, self.buffers["replay"].shape[1])
        own = self.buffers | {"replay": self.buffers["replay"][:, :filled]}
        return self.state | own

    def restore(self, tensors: Tensors) -> None:
        """Copy the tensors of a checkpoint, which may lack newer per-run settings."""
        for name, tensor in (self.state | self.buffers).items():
            source = tensors.get(name, tensor) if name.startswith("hyper/") else tensors[name]
            (tensor[:, : source.shape[1]] if name == "replay" else tensor).copy_(source)
        self.step = int(tensors["step"])


def tensors_of_run(tensors: Tensors, run: int, updates_per_step: int) -> Tensors:
    """Return the tensors of a checkpoint for a cohort of only one of its runs.

    Args:
        tensors: Tensors from `export`.
        run: Index of the run.
        updates_per_step: Value of the run, from which its update counter follows.
    """
    last_axis, counters = ("metrics", "metrics_count"), ("step", "update")
    own = {
        name: tensor[..., run : run + 1] if name in last_axis else tensor[run : run + 1]
        for name, tensor in tensors.items()
        if name not in counters
    }
    step = tensors["step"]
    return {name: tensor.contiguous() for name, tensor in own.items()} | {
        "step": step,
        "update": step * updates_per_step,
    }


def _under(prefix: str, tensors: Tensors) -> Tensors:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def cohort_bytes(runs: Sequence[Run]) -> int:
    """Return the bytes that the learner of a cohort needs.

    This includes the replay buffer, weights with targets, moments and gradients, tapes, and the
    activations of shooting.
    """
    sizes = task_sizes(runs[0].task)
    agent = make_agent(runs, *sizes)
    config = agent.config
    experience = min(config.capacity, runs[0].task.steps) * replay.row_width(*sizes)
    weights = sum(net.members * sum(net.sizes) for net in agent.nets.values()) * 6
    tapes = tape_size(agent.act_streams()) + tape_size(
        agent.learn_streams(), agent.updates_per_step * LEARN_BLOCK
    )
    shots = max(getattr(run.config, "shots", 1) for run in runs)
    activations = (4 * shots + 16 * config.batch) * config.width * config.depth
    return 4 * len(runs) * (experience + weights + tapes + activations)
