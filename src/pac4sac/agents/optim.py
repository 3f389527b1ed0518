"""Optimiser steps of a whole cohort: Adam with a learning rate per run, Polyak averaging of target
networks, and freezing of diverged runs."""

import torch
from torch import Tensor

from pac4sac.agents.state import Hyper, State, count_up

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def learning_rate(state: State, name: str) -> Tensor:
    """Return the learning rate [R] of a network, or of log_alpha. This is the setting actor_lr,
    critic_lr or alpha_lr if the agent has it and it is not 0, and lr otherwise."""
    own = state.get(f"hyper/{name.removeprefix('log_')}_lr")
    return Hyper(state).lr if own is None else torch.where(own > 0, own, Hyper(state).lr)


def first_decay(state: State, name: str) -> Tensor | float:
    """Return Adam's β₁ of a network, or of log_alpha: the setting alpha_beta_1 or beta_1, if it
    exists."""
    own = state.get(f"hyper/{name.removeprefix('log_')}_beta_1")
    return state.get("hyper/beta_1", BETA_1) if own is None else own


def adam_step(state: State, name: str, gradient: Tensor, moving: Tensor, rate: Tensor) -> None:
    """Take one step of Adam on the weights `name` [R, M, P] of the runs `moving` [R]. Each run has
    its own learning rate [R] and step count."""
    gradient = torch.where(moving.view(-1, 1, 1), gradient, 0.0)
    count = count_up(state[f"{name}/count"], moving)
    moves, steps = moving.to(gradient.dtype), count.clamp_min(1)
    beta_1 = first_decay(state, name)
    rate = rate * moves / (1 - beta_1**steps)
    scale = (1 - BETA_2**steps).rsqrt()
    # Stacked, so that the factors of a run are computed once. Otherwise, a compiler would move the
    # powers into the loop over weights.
    of_run = torch.stack([(1 - beta_1) * moves, (1 - BETA_2) * moves, -rate, scale])
    of_run = of_run.view(4, -1, 1, 1)
    first = state[f"{name}/first_moment"].lerp_(gradient, of_run[0])
    second = state[f"{name}/second_moment"].lerp_(gradient.square(), of_run[1])
    state[name].addcdiv_(first * of_run[2], (second.sqrt() * of_run[3]).add_(EPSILON))


@torch.no_grad()
def polyak_step(state: State, name: str, moving: Tensor) -> None:
    """Move the target network of the runs `moving` [R]: target ← target + τ (network − target)."""
    # excludes runs that diverged in this update
    tau = Hyper(state).tau * (moving & state["alive"])
    state[f"{name}/target"].lerp_(state[name], tau.view(-1, 1, 1))


def freeze_diverged(state: State, index: int, diverged: Tensor) -> None:
    """Mark runs [R] as diverged, and store the step and the index of the diverged network. Diverged
    runs are frozen: they are not updated again."""
    first_time = diverged & state["alive"]
    state["diverged_step"].copy_(torch.where(first_time, state["step"], state["diverged_step"]))
    state["diverged_net"].copy_(torch.where(first_time, index, state["diverged_net"]))
    state["alive"].logical_and_(~diverged)
