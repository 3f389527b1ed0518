"""Train with a lambda, a wrapper and an agent class that this script defines.

    python examples/bring_your_own.py

The script trains, resumes, evaluates with lower gravity, compares with SAC and writes a report. By
default it takes seconds and the agent does not learn; `--real` trains for minutes.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from torch import Tensor

import pac4sac
from pac4sac.agents.api import Draw, Sac, State


class ScaledReward(gymnasium.RewardWrapper[Any, Any]):
    """Multiply rewards by a factor."""

    def __init__(self, env: gymnasium.Env[Any, Any], factor: float) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return self.factor * float(reward)


class MeanSac(Sac):
    """SAC whose target is the mean of its critics instead of their minimum."""

    title = "SAC with the mean of its critics"

    def target_value(self, state: State, s2: Tensor, a2: Tensor, draw: Draw) -> Tensor:
        q, _ = self.critic(self.params(state, "critic/target"), s2, a2)  # [R, M, B]
        return q.mean(1)


parser = argparse.ArgumentParser()
parser.add_argument(
    "--out", default="experiments/bring-your-own", help="new folder for the results"
)
parser.add_argument("--real", action="store_true", help="train long enough to learn")
arguments = parser.parse_args()

out, steps = Path(arguments.out), 10_000 if arguments.real else 600
settings = {"learning_starts": 1000} if arguments.real else {"width": 32, "learning_starts": 400}
wrappers = [partial(ScaledReward, factor=0.1), gymnasium.wrappers.TimeAwareObservation]
heavy = pac4sac.Task("heavy", lambda: gymnasium.make("Pendulum-v1", g=12.0), wrappers=wrappers)
moon = pac4sac.Task("moon", lambda: gymnasium.make("Pendulum-v1", g=1.6), wrappers=wrappers)

# One warning: no other program can find the lambda, so only this one can resume.
result = pac4sac.train(
    heavy, algo=MeanSac, settings=settings, steps=steps, out=out / "trained", n_eval_episodes=1
)
result = pac4sac.resume(result.folder, steps=steps + 200)
print(result)

agent = pac4sac.load(result.folder)
print(pac4sac.evaluate(agent, episodes=3))
print(pac4sac.evaluate(agent, moon, episodes=3))

comparison = pac4sac.compare(
    heavy,
    algos=["sac", MeanSac],
    seeds=range(5 if arguments.real else 2),
    settings=settings,
    steps=steps,
    out=out / "compared",
    n_eval_episodes=1,
)
print(comparison)
print(f"Report: {comparison.page}")
