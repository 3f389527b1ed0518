"""A linear-quadratic task, and agents with a linear-Gaussian policy whose critic knows the value in
closed form.

s′ = A s + B a + W ω, r = −(s² + P a²), a = K s + σ ε. Then V(s) = −X s² + c with X = (1 + P K²) + γ
X (A + B K)² and c = −P σ² + α H − γ X (B² σ² + W²) + γ c, H the entropy of the policy."""

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch

from pac4sac import Task
from pac4sac.agents.base import Agent, Hyper
from pac4sac.agents.settings import ANY, NON_NEGATIVE, POSITIVE, AgentConfig, per_run
from pac4sac.agents.tape import Stream

A, B, W, P = 0.9, 0.5, 0.3, 0.1


class LinearQuadratic(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    # in name: larger actions are taken as they are
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.state = self.np_random.normal()
        return np.array([self.state], np.float32), {}

    def step(self, action):
        s, a = self.state, float(action[0])
        self.state = A * s + B * a + W * self.np_random.normal()
        return np.array([self.state], np.float32), -(s**2 + P * a**2), False, False, {}


gymnasium.register("LinearQuadratic-v0", LinearQuadratic, max_episode_steps=100)
TASK = Task("linear-quadratic", "linear_quadratic:LinearQuadratic-v0", 100)


@dataclass(frozen=True, kw_only=True)
class LinearConfig(AgentConfig):
    gain: float = per_run(-0.4, ANY, "K")
    deviation: float = per_run(0.5, POSITIVE, "σ")
    alpha: float = per_run(0.2, NON_NEGATIVE, "α")
    mistake: float = per_run(0.0, ANY, "what the critic adds to the true value")


class LinearAgent(Agent):
    title = "A fixed policy with a critic that is right, or off by a constant"
    Config = LinearConfig
    with_target = ()

    def networks(self):
        return {}

    def alpha(self, state):
        return Hyper(state).alpha

    def policy_streams(self, states):
        return {"policy": Stream((states, 1))}

    def sample_policy(self, state, s, draw):
        h, noise = Hyper(state), draw["policy"]
        density = (
            -0.5 * noise.square() - h.deviation.log()[:, None, None] - 0.5 * math.log(2 * math.pi)
        )
        return h.gain[:, None, None] * s + h.deviation[:, None, None] * noise, density.squeeze(-1)

    def mean_and_variance(self, state, s, a):
        return soft_q(Hyper(state), s, a).squeeze(-1) + Hyper(state).mistake[:, None], None

    def deterministic_action(self, state, s):
        return Hyper(state).gain[:, None, None] * s

    behaviour = bellman_target = actor_loss = None


def soft_q(h: Any, s: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    gamma, k, sigma, alpha = (x[:, None, None] for x in (h.gamma, h.gain, h.deviation, h.alpha))
    entropy = 0.5 * (2 * math.pi * math.e * sigma**2).log()
    x = (1 + P * k**2) / (1 - gamma * (A + B * k) ** 2)
    c = (-P * sigma**2 + alpha * entropy - gamma * x * (B**2 * sigma**2 + W**2)) / (1 - gamma)
    return -(s**2 + P * a**2) + gamma * (c - x * ((A * s + B * a) ** 2 + W**2))


def make_linear_agent(*runs: dict[str, Any]) -> tuple[Agent, dict[str, torch.Tensor]]:
    agent = LinearAgent([LinearConfig(**{"gamma": 0.9, **run}) for run in runs], 1, 1)
    return agent, agent.initial_state(range(len(runs)), torch.device("cpu"))
