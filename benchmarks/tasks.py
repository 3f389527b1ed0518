"""What a step of a task costs beyond the simulator inside it, and how the pool of simulators grows
with processes.

python benchmarks/tasks.py --out tasks.json
python benchmarks/tasks.py --task ant --runs 20 --workers 0,1,2,4,8
"""

import argparse
import contextlib
import functools
import multiprocessing
from collections.abc import Callable
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np
from measuring import Report, Spread, in_rounds, numbers, parser, ratio
from numpy.typing import NDArray

from pac4sac.tasks import TASKS, Task, get_task, make_env
from pac4sac.tasks.pool import EnvPool
from pac4sac.tasks.robots import pybullet


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


def microseconds(task: Task, steps: int) -> tuple[float, float]:
    """Of a step, and of the simulator inside the same steps. Uniform random actions; resets are
    outside the clock."""
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


def steps(report: Report, options: argparse.Namespace) -> None:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in TASKS}
    for _ in range(options.rounds):
        for name, task in TASKS.items():
            taken[name].append(microseconds(task, options.steps))
    rows = []
    for name, pairs in taken.items():
        step, simulation = zip(*pairs, strict=True)
        rows.append(
            {
                "task": name,
                "µs per step": Spread.of(step).median,
                "µs simulator": Spread.of(simulation).median,
                "ratio": ratio(step, simulation),
            }
        )
    report.table("steps", "env.step against the stepSimulation inside it", rows)


class Bare:
    """The environment itself, with a pool's calls."""

    def __init__(self, task: Task) -> None:
        self.env = make_env(task, unit_actions=True)
        self.runs, self.action_size = 1, int(np.prod(self.env.action_space.shape or ()))

    def reset(self) -> None:
        self.env.reset(seed=0)

    def send(self, actions: NDArray[np.float32]) -> None:
        self.action = actions[0]

    def receive(self) -> None:
        _, _, terminated, truncated, _ = self.env.step(self.action)
        if terminated or truncated:
            self.reset()


def apart(task: Task, processes: int, seconds: float) -> float:
    """Steps per second of simulators that wait for nobody, one in each process: what the machine
    can give."""
    context = multiprocessing.get_context("fork")
    start, rates = context.Barrier(processes), context.Queue()

    def simulate() -> None:
        bare, taken = Bare(task), 0
        bare.reset()
        start.wait()
        began = perf_counter()
        while (elapsed := perf_counter() - began) < seconds:
            lockstep_seconds(bare, 20)
            taken += 20
        rates.put(taken / elapsed)

    simulators = [context.Process(target=simulate, daemon=True) for _ in range(processes)]
    for simulator in simulators:
        simulator.start()
    # one that broke would never tell
    rate = float(sum(rates.get(timeout=60 + seconds) for _ in simulators))
    for simulator in simulators:
        simulator.join()
    return rate


def lockstep_seconds(pool: EnvPool | Bare, steps: int) -> float:
    actions = (
        np.random.default_rng(0)
        .uniform(-1, 1, (steps, pool.runs, pool.action_size))
        .astype(np.float32)
    )
    start = perf_counter()
    for action in actions:
        pool.send(action)
        pool.receive()
    return (perf_counter() - start) / steps


def pool(report: Report, options: argparse.Namespace) -> None:
    task, seeds = get_task(options.task), list(range(options.runs))
    with contextlib.ExitStack() as stack:
        pools: dict[str, EnvPool | Bare] = {"bare": Bare(task)}
        pools |= {
            str(workers): stack.enter_context(EnvPool(task, seeds, workers))
            for workers in options.workers
        }
        auto = stack.enter_context(EnvPool(task, seeds, "auto")).workers
        for contender in pools.values():
            contender.reset()
        contenders = {
            name: functools.partial(
                lockstep_seconds, contender, options.pool_steps * len(seeds) // contender.runs
            )
            for name, contender in pools.items()
        }
        taken = in_rounds(contenders, options.rounds)
    rows = []
    for workers in options.workers:
        seconds, fullest = taken[str(workers)], -(-options.runs // max(1, workers))
        rows.append(
            {
                "workers": workers,
                "µs per lockstep step": 1e6 * Spread.of(seconds).median,
                "steps/s": options.runs / Spread.of(seconds).median,
                "× one bare": ratio([options.runs * bare for bare in taken["bare"]], seconds),
                "µs beyond the fullest worker": 1e6
                * Spread.of(
                    [
                        took - fullest * bare
                        for took, bare in zip(seconds, taken["bare"], strict=True)
                    ]
                ).median,
                "steps/s, each process for itself": apart(task, max(1, workers), options.apart),
            }
        )
    title = (
        f"{options.runs} simulators of {task.name}; one bare takes "
        f"{1e6 * Spread.of(taken['bare']).median:.0f} µs"
    )
    report.table("pool", title, rows)
    report.note(f"auto chooses {auto} workers for {options.runs} runs here.")


def main(arguments: list[str] | None = None) -> None:
    made = parser(__doc__)
    made.add_argument("--task", default="half-cheetah", help="in the pool")
    made.add_argument("--runs", type=int, default=8, help="in the pool")
    made.add_argument("--workers", type=numbers, default=[0, 1, 2])
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--steps", type=int, default=1000, help="of each task in a round")
    made.add_argument(
        "--apart", type=float, default=2.0, help="seconds in which processes step for themselves"
    )
    made.add_argument(
        "--pool-steps", type=int, default=100, help="lockstep steps of a pool in a round"
    )
    options = made.parse_args(arguments)
    if options.quick:
        options.rounds, options.steps, options.pool_steps, options.apart = 1, 20, 5, 0.05
    report = Report(options)
    steps(report, options)
    pool(report, options)
    report.close()


if __name__ == "__main__":
    main()
