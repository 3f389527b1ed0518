"""Change one equation of SAC in a custom agent.

The name of the agent is `module:Class`, in Python and on the command line:

    export PYTHONPATH=examples
    pac4sac check own_agent:MildSac
    pac4sac train cartpole-swingup --algo own_agent:MildSac --set beta=0,0.25,0.5

The target of SAC is the minimum of its two critics: their mean minus half their distance. MildSac
replaces the factor ½ with a setting β. With β = 0.5 it is SAC; with β = 0 the target is the mean.
By default the script takes seconds and the agents do not learn; `--real` trains for the task's
budget.
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
        beta = Hyper(state).beta[:, None]  # [R, 1]: one value per run of the cohort
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
