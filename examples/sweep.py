"""Sweep a setting: all values and all seeds train in lockstep as one cohort.

    python examples/sweep.py

On a GPU, a cohort takes little longer than one run. On a CPU, a cohort saves little time. Values of
a per-run setting, such as ξ, share a cohort. Each value of another setting, such as width, needs a
separate cohort. By default the script takes seconds and the agents do not learn; `--real` uses the
paper's settings.
"""

import argparse

import numpy as np

import pac4sac

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="experiments/sweep", help="new folder for the results")
parser.add_argument(
    "--real", action="store_true", help="use the paper's settings and budget: hours on a CPU"
)
arguments = parser.parse_args()

quick = {"width": 32, "depth": 2, "shots": 8, "warmup": 900, "updates_per_step": 1}
result = pac4sac.train(
    "cartpole-swingup",
    seeds=range(5) if arguments.real else range(2),
    settings={"xi": [0.0, 0.01, 0.1]} | ({} if arguments.real else quick),
    steps=None if arguments.real else 1000,
    evaluation_episodes=5 if arguments.real else 0,
    out=arguments.out,
)

print(f"{len(result.runs)} runs in {len(list((result.folder / 'cohorts').iterdir()))} cohort")
for xi in (0.0, 0.01, 0.1):
    means = [run.returns.mean() for run in result.runs if run.config["xi"] == xi]
    print(
        f"ξ = {xi:<5} mean return {np.mean(means):6.0f} ± {np.std(means):.0f} over "
        f"{len(means)} seeds"
    )
