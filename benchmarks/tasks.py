"""Microseconds of one environment step, and of the simulator inside that very step.

python benchmarks/tasks.py [--steps 3000]
"""

import argparse
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from pac4sac.tasks import TASKS, Task, make_env
from pac4sac.tasks.simulator import pybullet


class Stopwatch:
    """Calls a function of one argument and adds up the time spent in it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.nanoseconds = 0

    def __call__(self, argument: Any) -> Any:
        start = perf_counter_ns()
        result = self.function(argument)
        self.nanoseconds += perf_counter_ns() - start
        return result


def measure(task: Task, steps: int) -> tuple[float, float]:
    """Uniform random actions; episodes as long as the task's, resets outside the clock."""
    env = make_env(task).unwrapped
    rng = np.random.default_rng(0)
    simulate = pybullet.stepSimulation
    step_watch, simulation_watch = Stopwatch(env.step), Stopwatch(simulate)
    pybullet.stepSimulation = simulation_watch
    try:
        for number in range(steps):
            if number % (task.horizon or steps) == 0:
                env.reset(seed=number)
            step_watch(rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32))
    finally:
        pybullet.stepSimulation = simulate
        env.close()
    return step_watch.nanoseconds / steps / 1e3, simulation_watch.nanoseconds / steps / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args().steps
    print(f"{'task':18}{'µs per step':>14}{'µs simulator':>14}{'ratio':>8}")
    for name, task in TASKS.items():
        step, simulation = measure(task, steps)
        print(f"{name:18}{step:14.1f}{simulation:14.1f}{step / simulation:8.2f}")


if __name__ == "__main__":
    main()
