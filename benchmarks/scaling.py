"""What a lockstep step of PAC4SAC costs, in time and memory, as the cohort, the shots and the state
grow.

    python benchmarks/scaling.py --out scaling.json
    python benchmarks/scaling.py --sweeps shots,memory

Milliseconds are for all runs of the cohort together, act and update.
"""

import argparse
import functools
import gc
from typing import Any

import torch
from measuring import Report, Spread, Trial, in_rounds, names, parser, prepare, ratio

from pac4sac.tasks import get_task, task_sizes
from pac4sac.training.learner import Learner

HALF_CHEETAH = (17, 6)
RUNS: tuple[int, ...] = (1, 5, 20, 40, 80)
SHOTS: tuple[int, ...] = (1, 10, 100, 500, 1000)
STATES: tuple[int, ...] = (5, 17, 111, 376)  # of Cartpole, Half Cheetah, Ant and Humanoid


def sweep(
    report: Report, options: argparse.Namespace, what: str, cases: dict[int, dict[str, Any]]
) -> None:
    """Cases by the quantity that grows: runs, sizes and settings of each."""
    trials: dict[int, Trial] = {}
    for value, case in cases.items():
        report.console.print(f"preparing {what} = {value}", style="dim")
        trials[value] = Trial(
            *prepare("pac4sac", device=report.device, backend=options.backend, **case)
        )
    contenders = {
        f"{value} {operation}": functools.partial(
            trial.milliseconds, operation, options.repetitions
        )
        for value, trial in trials.items()
        for operation in ("act", "update")
    }
    taken = in_rounds(contenders, options.rounds)
    rows, first = [], min(cases)
    both = {
        value: [a + u for a, u in zip(taken[f"{value} act"], taken[f"{value} update"], strict=True)]
        for value in cases
    }
    for value, case in cases.items():
        row: dict[str, Any] = {what: value}
        if what != "runs":
            row["runs"] = case["runs"]
        row |= {
            "backend": trials[value].backend,
            "threads": trials[value].threads,
            "act ms": Spread.of(taken[f"{value} act"]).median,
            "update ms": Spread.of(taken[f"{value} update"]).median,
            "ms per step": Spread.of(both[value]),
            f"× {what} = {first}": ratio(both[value], both[first]),
            "per run": Spread.of(both[value]).median / case["runs"],
            "tensors GB": tensor_gigabytes(trials[value].learner),
        }
        rows.append(row)
    report.table(what, f"as the number of {what} grows", rows)


def tensor_gigabytes(learner: Learner) -> float:
    return sum(tensor.nbytes for tensor in learner.tensors.values()) / 1e9


def memory(report: Report, runs: int, backend: str) -> None:
    """Of cohorts of the tasks: what their tensors hold, and on a GPU what is really taken."""
    rows = []
    for name in ("half-cheetah", "humanoid"):
        sizes = task_sizes(get_task(name))
        row: dict[str, Any] = {"task": name, "runs": runs}
        if report.device.type == "cpu":
            learner, _ = prepare("pac4sac", runs, sizes, report.device, "eager")
            row["tensors GB"] = tensor_gigabytes(learner)
        else:
            before = fresh_memory()
            learner, _ = prepare("pac4sac", runs, sizes, report.device, backend)
            row["tensors GB"] = tensor_gigabytes(learner)
            row["peak GB of the start"] = (torch.cuda.max_memory_allocated() - before) / 1e9
            fresh_memory()
            for operation in learner.run.values():
                operation()
            row["peak GB of steps"] = (torch.cuda.max_memory_allocated() - before) / 1e9
            row["reserved GB"] = torch.cuda.memory_reserved() / 1e9
        rows.append(row)
        del learner
    report.table("memory", "memory of a cohort of PAC4SAC with its whole replay", rows)
    most = max(value for column, value in rows[-1].items() if "GB" in column)
    report.note(f"{runs} Humanoid runs, PAC4SAC: {most:.2f} GB at most")


def fresh_memory() -> int:
    """Forget earlier peaks; tells what is taken now."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def main(arguments: list[str] | None = None) -> None:
    made = parser(__doc__)
    made.add_argument("--sweeps", type=names, default=["runs", "shots", "states", "memory"])
    made.add_argument(
        "--runs", type=int, help="in the sweeps of shots and states; 20 on a GPU, 5 on a CPU"
    )
    made.add_argument("--backend", default="auto")
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--repetitions", type=int, default=10, help="of an operation in a round")
    options = made.parse_args(arguments)
    runs, shots, states = RUNS, SHOTS, STATES
    if options.quick:
        options.backend, options.rounds, options.repetitions = "eager", 2, 1
        runs, shots, states = RUNS[:2], SHOTS[:2], STATES[:2]
    report = Report(options)
    few = options.runs or (20 if report.device.type == "cuda" else 5)
    if "runs" in options.sweeps:
        sweep(report, options, "runs", {n: {"runs": n, "sizes": HALF_CHEETAH} for n in runs})
    if "shots" in options.sweeps:
        sweep(
            report,
            options,
            "shots",
            {n: {"runs": few, "sizes": HALF_CHEETAH, "shots": n} for n in shots},
        )
    if "states" in options.sweeps:
        sweep(
            report,
            options,
            "states",
            {n: {"runs": few, "sizes": (n, HALF_CHEETAH[1])} for n in states},
        )
    if "memory" in options.sweeps:
        memory(report, options.runs or 20, options.backend)
    report.close()


if __name__ == "__main__":
    main()
