"""Milliseconds of act and update for a cohort, eager and on the fastest backend of this machine, for all algorithms.

python benchmarks/learner.py [--runs 20] [--algos pac4sac,sac] [--observations 17] [--actions 6]
"""

import argparse
import warnings

from pac4sac.agents import ALGORITHMS, get_algorithm, make_config
from pac4sac.training import backends
from pac4sac.training.learner import Learner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--algos", default=",".join(ALGORITHMS))
    parser.add_argument("--observations", type=int, default=17)
    parser.add_argument("--actions", type=int, default=6)
    parser.add_argument("--repetitions", type=int, default=100)
    options = parser.parse_args()
    device = backends.pick_device("auto")
    wanted = backends.choose_backend("auto", device, backends.COMPILING_PAYS)
    print(f"{options.runs} runs on {device}; milliseconds for all of them together")
    print(f"{'algorithm':12} {'backend':9} {'act':>8} {'update':>8}   {'eager act':>10} {'eager update':>13}")
    for algo in options.algos.split(","):
        configs = [make_config(algo)] * options.runs
        agent = get_algorithm(algo).agent(configs, options.observations, options.actions)
        learner = Learner(agent, range(options.runs), agent.config.capacity, device)
        plain = milliseconds(learner, 20)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            backend = backends.prepare(learner, wanted)
        fast = milliseconds(learner, options.repetitions)
        print(f"{algo:12} {backend:9} {fast[0]:8.3f} {fast[1]:8.3f}   {plain[0]:10.2f} {plain[1]:13.2f}", flush=True)


def milliseconds(learner: Learner, repetitions: int) -> tuple[float, float]:
    with backends.Rehearsal(learner) as rehearsal:
        rehearsal.seconds(3)
        act, update = (rehearsal.seconds_of(name, repetitions) for name in ("act", "update"))
    return 1e3 * act, 1e3 * update


if __name__ == "__main__":
    main()
