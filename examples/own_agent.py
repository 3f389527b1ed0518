"""Change one equation of SAC in a custom agent.

Its name is `module:Class`, here and on the command line:

    export PYTHONPATH=examples
    pac4sac check own_agent:MildSac
    pac4sac train cartpole-swingup --algo own_agent:MildSac --set beta=0,0.25,0.5

SAC's target is the minimum of its two critics, which is their mean minus half their distance.
MildSac replaces the half by a setting β: with β = 0.5 it is SAC, with β = 0 it uses the mean. By
default this takes seconds and learns nothing; `--real` trains for the task's budget.
"""

import argparse
from dataclasses import dataclass

from torch import Tensor

import pac4sac
from pac4sac.agents.api import NON_NEGATIVE, Draw, Hyper, Sac, SacConfig, State, per_run


@dataclass(frozen=True, kw_only=True)
class MildSacConfig(SacConfig):
    beta: float = per_run(
        0.25, NON_NEGATIVE, "β: share of the distance between the critics that is subtracted"
    )


class MildSac(Sac):
    title = "SAC with adjustable pessimism"
    Config = MildSacConfig

    def target_value(self, state: State, s2: Tensor, a2: Tensor, draw: Draw) -> Tensor:
        # [R, M, B]: runs, critics, batch
        q, _ = self.critic(self.params(state, "critic/target"), s2, a2)
        return self.mild(state, q)

    def mild(self, state: State, q: Tensor) -> Tensor:
        beta = Hyper(state).beta[:, None]  # [R, 1]: each run of the cohort has its own
        return q.mean(1) - beta * (q.amax(1) - q.amin(1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="experiments/own-agent", help="new folder for the results")
    parser.add_argument(
        "--real", action="store_true", help="train for the task's budget: hours on a CPU"
    )
    arguments = parser.parse_args()

    quick = {"width": 32, "depth": 2, "warmup": 900, "updates_per_step": 1}
    result = pac4sac.train(
        "cartpole-swingup",
        algo="own_agent:MildSac",
        seeds=range(3) if arguments.real else [0],
        settings={"beta": [0.0, 0.25, 0.5]} | ({} if arguments.real else quick),
        steps=None if arguments.real else 1000,
        evaluation_episodes=5 if arguments.real else 0,
        out=arguments.out,
    )
    for run in sorted(result.runs, key=lambda run: run.config["beta"]):
        print(f"{run.run}: β = {run.config['beta']}, mean return {run.returns.mean():.0f}")
