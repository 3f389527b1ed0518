"""Compare two algorithms on a task: train the missing runs, then test against a baseline.

    python examples/compare_algorithms.py

If you interrupt the script or add seeds, run it again: it trains only the missing runs. By default
it takes seconds and the agents do not learn; `--real` uses the paper's settings.
"""

import argparse

import pac4sac

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="experiments/compared", help="study folder, new or existing")
parser.add_argument(
    "--real", action="store_true", help="use the paper's settings and budget: hours on a CPU"
)
arguments = parser.parse_args()

quick = {"width": 32, "depth": 2, "shots": 8, "warmup": 900, "updates_per_step": 1}
comparison = pac4sac.compare(
    "cartpole-swingup",
    algos=["pac4sac", "sac"],
    baseline="sac",
    seeds=range(5) if arguments.real else range(2),
    settings={} if arguments.real else quick,  # applied to algorithms that have them
    steps=None if arguments.real else 1000,
    evaluation_episodes=5 if arguments.real else 0,
    out=arguments.out,
)

print(comparison)
for row in comparison.rows:  # also a data frame: pandas.DataFrame(comparison.rows)
    difference = (
        "the baseline"
        if row["difference"] is None
        else f"{row['difference']:+.0f} against the baseline"
    )
    print(f"{row['algo']}: regret {row['mean']:.0f}, {difference}")
print(f"{comparison.page}\n{comparison.figures[0]}")
