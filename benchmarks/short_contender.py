"""Train and evaluate SAC of another library, from the import to the mean return.

`python short_contender.py sb3|sbx TASK STEPS SEEDS EPISODES` prints a line of JSON at the end. It
imports nothing from here that the other libraries' environments lack."""

import json
import sys


def main(library: str, task: str, steps: int, seeds: int, episodes: int) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy

    if library == "sbx":
        from sbx import SAC, __version__
    else:
        from stable_baselines3 import SAC, __version__
    means = []
    for seed in range(seeds):
        model = SAC("MlpPolicy", task, seed=seed, learning_starts=100, device="cpu")
        model.learn(steps, log_interval=None)
        mean, _ = evaluate_policy(
            model, model.get_env(), n_eval_episodes=episodes, warn=False, deterministic=True
        )
        means.append(float(mean))
    print(json.dumps({"version": __version__, "returns": means}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
