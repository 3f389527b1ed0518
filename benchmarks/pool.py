"""Environment steps per second of the pool, for several numbers of workers, against one bare environment in a loop.

    python benchmarks/pool.py --task half-cheetah --runs 8

All rows come from one run of this program in alternating rounds, and the best round counts, because what else a machine
does only ever slows a round down.
"""

import argparse
import contextlib
import time

import numpy as np
from numpy.typing import NDArray

from pac4sac.tasks import Task, get_task, make_env
from pac4sac.tasks.pool import EnvPool

ROUNDS = 20


class Bare:
    """The environment itself, with a pool's calls."""

    def __init__(self, task: Task) -> None:
        self.env = make_env(task)
        self.runs, self.action_size = 1, int(np.prod(self.env.action_space.shape or ()))

    def reset(self) -> None:
        self.env.reset(seed=0)

    def send(self, actions: NDArray[np.float32]) -> None:
        self.action = actions[0]

    def receive(self) -> None:
        _, _, terminated, truncated, _ = self.env.step(self.action)
        if terminated or truncated:
            self.reset()


def lockstep_seconds(pool: EnvPool | Bare, steps: int) -> float:
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, pool.runs, pool.action_size)).astype(np.float32)
    start = time.perf_counter()
    for action in actions:
        pool.send(action)
        pool.receive()
    return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="half-cheetah")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=100, help="lockstep steps per round")
    arguments = parser.parse_args()

    task, seeds = get_task(arguments.task), list(range(arguments.runs))
    with contextlib.ExitStack() as stack:
        bare = Bare(task)
        pools = [stack.enter_context(EnvPool(task, seeds, workers)) for workers in arguments.workers]
        auto = stack.enter_context(EnvPool(task, seeds, "auto"))
        contenders: list[EnvPool | Bare] = [bare, *pools]
        taken: dict[EnvPool | Bare, list[float]] = {contender: [] for contender in contenders}
        for pool in taken:
            pool.reset()
        for _ in range(ROUNDS):
            for pool, seconds in taken.items():
                seconds.append(lockstep_seconds(pool, arguments.steps * len(seeds) // pool.runs))
        best = {pool: min(seconds) for pool, seconds in taken.items()}

        single = best[bare]
        print(f"{task.name}: one bare environment takes {single * 1e6:.0f} us per step, {1 / single:,.0f} steps/s")
        print(f"{'workers':>8} {'us/lockstep':>12} {'steps/s':>10} {'ratio':>6} {'us beyond the fullest worker':>29}")
        for pool in pools:
            seconds_each, fullest = best[pool], -(-pool.runs // max(1, pool.workers)) * single
            rate = pool.runs / seconds_each
            print(
                f"{pool.workers:>8} {seconds_each * 1e6:>12.0f} {rate:>10,.0f} {rate * single:>6.2f} "
                f"{(seconds_each - fullest) * 1e6:>29.0f}"
            )
        print(f"auto chooses {auto.workers} for {auto.runs} runs here")


if __name__ == "__main__":
    main()
