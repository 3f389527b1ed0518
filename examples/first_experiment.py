"""Train two seeds, read the results, load an agent and play an episode with it.

    python examples/first_experiment.py

By default the script takes seconds and the agents do not learn; `--real` uses the paper's settings.
"""

import argparse

import pac4sac

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="experiments/first", help="new folder for the results")
parser.add_argument(
    "--real", action="store_true", help="use the paper's settings and budget: hours on a CPU"
)
arguments = parser.parse_args()

quick = {"width": 32, "depth": 2, "shots": 8, "warmup": 900, "updates_per_step": 1}
result = pac4sac.train(
    "cartpole-swingup",
    algo="pac4sac",
    seeds=[0, 1],  # trained together, in lockstep
    settings={} if arguments.real else quick,
    steps=None if arguments.real else 1100,
    evaluation_episodes=5 if arguments.real else 1,
    out=arguments.out,
)

# A pandas DataFrame, or a dict of arrays if pandas is not installed.
episodes = pac4sac.results(result.folder)
print("returns of all training episodes:", [round(float(r)) for r in episodes["return"]])
for run, score in result.scores().items():
    print(f"{run}: {'solved' if score.solved else 'not solved'}, regret {score.regret:.0f}")

agent = pac4sac.load(result.folder / "runs" / "pac4sac-seed0")
env = pac4sac.make_env(agent.run.task)
observation, _ = env.reset(seed=7)
total, ended = 0.0, False
while not ended:
    # The agent acts by shooting; shooting=False selects the deterministic policy.
    action = agent.act(observation)
    observation, reward, terminated, truncated, _ = env.step(action)
    total += float(reward)
    ended = terminated or truncated
print(f"one episode of the trained agent: {total:.0f}")
