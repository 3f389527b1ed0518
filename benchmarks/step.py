"""Milliseconds of a step: act and update of every agent against the arithmetic floor, and a whole
training step of SAC against other libraries.

    python benchmarks/step.py --agents all --runs 1,5,20 --out step.json

The floor is the time in which the products of the step could be done at the speed of a large matrix
product on the same threads. The other libraries train the same networks and batch (the paper's 3 ×
256 and 32, and 2 × 256 and 256, which most of their users have) with as many updates (one per step)
in the same environment, which costs next to nothing; `make bench-setup` installs them, and without
them their rows are left out."""

import argparse
import contextlib
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from floor import act_flops, matrix_flops, update_flops
from measuring import HERE, Report, Spread, Trial, in_rounds, names, numbers, parser, prepare, ratio

from pac4sac.agents import ALGORITHMS

NETWORKS = ((3, 32), (2, 256))  # layers and batch
PEERS = {"Stable-Baselines3": "sb3", "SBX": "sbx"}


def operations(report: Report, options: argparse.Namespace) -> None:
    sizes = (options.observations, options.actions)
    trials: dict[tuple[str, int], Trial] = {}
    for algo in options.agents:
        for runs in options.runs:
            report.console.print(f"preparing {algo} with {runs} run(s)", style="dim")
            trials[algo, runs] = Trial(*prepare(algo, runs, sizes, report.device, options.backend))
    contenders: dict[str, Callable[[], float]] = {}
    for (algo, runs), trial in trials.items():
        for operation in ("act", "update"):
            measure = functools.partial(trial.milliseconds, operation, options.repetitions)
            contenders[f"{algo} {runs} {operation}"] = measure
    for threads in {trial.threads for trial in trials.values()}:
        contenders[f"matrix {threads}"] = functools.partial(matrix_flops, threads, report.device)
    taken = in_rounds(contenders, options.rounds)

    per_run_step = {
        (algo, runs): [
            (act + update) / runs
            for act, update in zip(
                taken[f"{algo} {runs} act"], taken[f"{algo} {runs} update"], strict=True
            )
        ]
        for algo, runs in trials
    }
    rows = []
    for (algo, runs), trial in trials.items():
        each = per_run_step[algo, runs]
        work = act_flops(trial.learner.agent) + update_flops(trial.learner.agent)
        floor = [1e3 * work / speed for speed in taken[f"matrix {trial.threads}"]]
        rows.append(
            {
                "agent": algo,
                "runs": runs,
                "backend": trial.backend,
                "threads": trial.threads,
                "act ms": Spread.of(taken[f"{algo} {runs} act"]).median,
                "update ms": Spread.of(taken[f"{algo} {runs} update"]).median,
                "ms per run-step": Spread.of(each),
                f"× {options.runs[0]} run(s)": ratio(each, per_run_step[algo, options.runs[0]]),
                "floor ms": Spread.of(floor).median,
                "× floor": ratio(each, floor),
            }
        )
    for name, speeds in taken.items():
        if name.startswith("matrix"):
            speed = Spread.of(speeds).median / 1e9
            report.note(
                f"a product of 1024 × 1024 matrices on {name.split()[1]} thread(s): "
                f"{speed:,.0f} GFLOP/s"
            )
    title = (
        f"act and update, {sizes[0]} observations, {sizes[1]} actions; floor: the products of one "
        "run's step"
    )
    report.table("operations", title, rows)


class Contender:
    """Another process that trains when it is told to."""

    def __init__(self, python: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [python, HERE / "contender.py", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Contender":
        self.about: dict[str, Any] = self.hear()["ready"]
        return self

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate()
            raise RuntimeError(
                errors.strip().splitlines()[-1] if errors.strip() else "a contender ended"
            )
        return dict(json.loads(line))

    def milliseconds(self, steps: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return 1e3 * float(self.hear()["seconds"]) / steps

    def __exit__(self, *_: object) -> None:
        self.process.communicate()  # its orders end, and so does it


def libraries(report: Report, options: argparse.Namespace, depth: int, batch: int) -> None:
    device, runs_of, sizes = report.device.type, {}, {"depth": depth, "batch": batch}
    with contextlib.ExitStack() as stack:
        contenders: dict[str, Contender] = {}
        for runs in options.lockstep:
            arguments = json.dumps(
                sizes | {"runs": runs, "device": device, "backend": options.backend}
            )
            name = f"pac4sac, {runs} run(s)"
            contenders[name] = stack.enter_context(
                Contender(Path(sys.executable), "pac4sac", arguments)
            )
            runs_of[name] = runs
        for name, folder in PEERS.items():
            python = HERE.parent / ".bench" / folder / "bin" / "python"
            if python.exists():
                contenders[name] = stack.enter_context(Contender(python, folder, json.dumps(sizes)))
                runs_of[name] = 1
            else:
                report.note(
                    f"{name} is not installed here (make bench-setup), so its row is left out."
                )
        measures = {
            name: functools.partial(contender.milliseconds, options.steps)
            for name, contender in contenders.items()
        }
        taken = in_rounds(measures, options.rounds)
        abouts = {name: contender.about for name, contender in contenders.items()}
    each = {name: [value / runs_of[name] for value in values] for name, values in taken.items()}
    rows = []
    for name, values in each.items():
        about = abouts[name]
        row: dict[str, Any] = {
            "library": f"{name} {about['version']}".strip(),
            "threads": about["threads"] or "its own",
        }
        row["ms per environment step"] = Spread.of(values)
        row |= {f"× {peer}": ratio(values, each[peer]) for peer in PEERS if peer in each}
        row["differs in"] = about["differs"]
        rows.append(row)
    title = (
        f"SAC, {depth} × 256, batch {batch}: one environment step with one update, the trivial "
        "environment included"
    )
    report.table(f"libraries, {depth} × 256, batch {batch}", title, rows)


def main(arguments: list[str] | None = None) -> None:
    made = parser(__doc__)
    made.add_argument("--agents", default="pac4sac,sac,ddpg,oac", help="by name, or all")
    made.add_argument("--runs", type=numbers, default=[1, 5, 20], help="sizes of cohorts")
    made.add_argument(
        "--lockstep",
        type=numbers,
        default=[1, 5],
        help="sizes of cohorts beside the other libraries",
    )
    made.add_argument("--backend", default="auto")
    made.add_argument("--observations", type=int, default=5)
    made.add_argument("--actions", type=int, default=1)
    made.add_argument("--rounds", type=int, default=9)
    made.add_argument("--repetitions", type=int, default=20, help="of an operation in a round")
    made.add_argument(
        "--steps",
        type=int,
        default=200,
        help="environment steps in a round, beside other libraries",
    )
    made.add_argument(
        "--operations", action=argparse.BooleanOptionalAction, default=True, help="the first table"
    )
    made.add_argument(
        "--libraries", action=argparse.BooleanOptionalAction, default=True, help="the second table"
    )
    options = made.parse_args(arguments)
    options.agents = list(ALGORITHMS) if options.agents == "all" else names(options.agents)
    if options.quick:
        options.backend, options.rounds, options.repetitions, options.steps = "eager", 2, 2, 20
        options.lockstep = [1]
    report = Report(options)
    if options.operations:
        operations(report, options)
    for depth, batch in NETWORKS if options.libraries else []:
        libraries(report, options, depth, batch)
    report.close()


if __name__ == "__main__":
    main()
