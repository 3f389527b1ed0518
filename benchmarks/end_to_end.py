"""Run-steps per second of whole cohorts: where the time goes, what is idle, and how long Table 1
takes.

    python benchmarks/end_to_end.py --task half-cheetah --runs 20 --algo pac4sac --steps 3000
    python benchmarks/end_to_end.py --runs 80 --split 2     # halves take turns
    python benchmarks/end_to_end.py --cohorts 4 --runs 5    # the algorithms of Table 1 at once
    python benchmarks/end_to_end.py --table-1 --folder DIR  # the study itself, start to end

Each cohort trains in a process of its own, as in a study. All start together once the last has
compiled, and are measured over the same stretch of time, after the warm-up and with updates. Table
1 is trained as `study run` does it, compiling, checkpoints and final evaluations included, and held
against what its simulators alone would need."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from measuring import HERE, Report, parser
from probe import PARTS
from tasks import apart

from pac4sac.base.cores import SHARE, cores, share_out
from pac4sac.runs.seeds import parse_seeds
from pac4sac.studies.definition import load_study
from pac4sac.studies.local import shared_gpu
from pac4sac.studies.plan import PlannedCohort, plan
from pac4sac.studies.run import run_study
from pac4sac.studies.watcher import Watcher

MEANING = {
    "act": "act, with the transfer of the actions (on a GPU also the wait for the last update)",
    "send": "telling the simulators",
    "learn": "updates (on a GPU their launch)",
    "wait": "waiting for simulators (without workers: simulating)",
    "store": "storing transitions, with their transfer (on a GPU its launch)",
    "rest": "the loop, logs and display",
}
APART = 3.0  # seconds for which simulators that wait for nobody are counted
MARGIN = 50  # steps after the first update before anything is measured


class CohortProcess:
    def __init__(self, job: dict[str, Any], variables: dict[str, str]) -> None:
        self.job, self.reports = job, [{"step": 0}]
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, HERE / "probe.py", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
        )

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return dict(json.loads(line))
        raise SystemExit(
            f"The cohort of {self.job['algo']} on {self.job['task']} ended before it was measured."
        )

    def follow(self, step: int) -> dict[str, Any]:
        """The first report at or after a step."""
        while self.reports[-1]["step"] < step:
            self.reports.append(self.hear())
        return self.reports[-1]

    def follow_until(self, moment: float) -> dict[str, Any]:
        while self.reports[-1]["time"] < moment:
            self.reports.append(self.hear())
        return self.reports[-1]

    def checkpoint(self) -> float:
        """Seconds of the checkpoint that a cohort writes when it is asked to stop."""
        asked = time.monotonic()
        self.process.terminate()
        while "ended" not in (message := self.hear()):
            pass
        return float(message["ended"]) - asked

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(jobs: Sequence[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    """For each cohort its rate over a stretch of time in which all of them learn, the slowest for
    so many steps."""
    several_on_gpu = len(jobs) > 1 and jobs[0]["device"].startswith("cuda")
    # as in a study
    with tempfile.TemporaryDirectory() as folder, shared_gpu(several_on_gpu) as variables:
        variables |= {"OMP_NUM_THREADS": str(max(1, cores() // len(jobs)))}
        if len(jobs) > 1:
            variables |= {SHARE: str(share_out(1, len(jobs)))}  # they have as many runs each
        return measure_in(jobs, steps, folder, variables)


def measure_in(
    jobs: Sequence[dict[str, Any]], steps: int, folder: str, variables: dict[str, str]
) -> list[dict[str, Any]]:
    cohorts = [
        CohortProcess(job | {"out": f"{folder}/{number}"}, variables)
        for number, job in enumerate(jobs)
    ]
    try:
        for cohort in cohorts:
            cohort.hear()
        start_up = [time.monotonic() - cohort.started for cohort in cohorts]
        abouts = []
        for cohort in cohorts:
            cohort.say("measure")
            abouts.append(cohort.hear())
        for cohort in cohorts:
            cohort.say("go")
        warm = [
            cohort.follow(about["first_update"] + MARGIN)["time"]
            for cohort, about in zip(cohorts, abouts, strict=True)
        ]
        first = [cohort.follow_until(max(warm)) for cohort in cohorts]
        enough = [
            cohort.follow(report["step"] + steps)["time"]
            for cohort, report in zip(cohorts, first, strict=True)
        ]
        last = [cohort.follow_until(max(enough)) for cohort in cohorts]
        saving = [cohort.checkpoint() for cohort in cohorts]
    finally:
        for cohort in cohorts:
            cohort.kill()
    return [
        {
            **job,
            **about,
            **between(before, after),
            "start_up": start,
            "checkpoint": saved,
            "rows": after["step"],
        }
        for job, about, before, after, start, saved in zip(
            jobs, abouts, first, last, start_up, saving, strict=True
        )
    ]


def between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a lockstep step, whole and by part."""
    steps = after["step"] - before["step"]
    whole = (after["time"] - before["time"]) / steps
    each = {name: (after["spent"][name] - before["spent"][name]) / steps for name in after["spent"]}
    parts = {part: each[part] for part in PARTS}
    seconds = {"lockstep": whole, "parts": parts | {"rest": whole - sum(parts.values())}}
    return seconds | {"simulating": each["simulating"]}


# --- what is shown


def show(report: Report, title: str, measured: Sequence[dict[str, Any]]) -> None:
    rates, idle = [], []
    for cohort in measured:
        lockstep, runs = cohort["lockstep"], cohort["runs"]
        learner = sum(
            seconds * (cohort["updates_per_step"] if name == "update" else 1)
            for name, seconds in cohort["operations"].items()
        )
        rates.append(
            {
                "algorithm": cohort["algo"],
                "runs": runs,
                "run-steps/s": runs / lockstep,
                "ms per step": 1e3 * lockstep,
                **{part: f"{seconds / lockstep:.0%}" for part, seconds in cohort["parts"].items()},
            }
        )
        idle.append(
            {
                "algorithm": cohort["algo"],
                "learner alone ms": 1e3 * learner,
                "its device busy": learner / lockstep,
                "simulator alone µs": 1e6 * cohort["simulate"],
                "turns": cohort["turns"],
                "workers": cohort["workers"],
                "in training µs": 1e6 * cohort["simulating"] / runs,
                "cores busy simulating": cohort["simulating"] / lockstep,
                "start s": cohort["start_up"],
                "checkpoint s": cohort["checkpoint"],
            }
        )
    name = f"{measured[0]['task']}, {len(measured)} cohort(s)"
    report.table(name, f"{title}: where the time goes", rates)
    report.table(f"{name}, idle", f"{title}: what is idle, by what each part takes alone", idle)
    report.content["tables"][name]["measured"] = measured
    total = sum(row["run-steps/s"] for row in rates)
    busy, simulating = (
        sum(row[column] for row in idle) for column in ("its device busy", "cores busy simulating")
    )
    device = "GPU" if report.device.type == "cuda" else "learner"
    report.note(
        f"Together {total:,.0f} run-steps per second. The {device} has work {busy:.0%} of the "
        "time, "
        f"simulators fill {simulating:.1f} of {cores()} cores."
    )


class Progress(Watcher):
    """Writes down when each cohort began, ended, and how far it was at each moment."""

    def __init__(self, report: Report) -> None:
        self.report, self.began = report, time.monotonic()
        self.history: dict[str, list[tuple[float, int]]] = {}
        self.ends: dict[str, tuple[float, str]] = {}

    def progress(self, cohort: PlannedCohort, step: int, steps: int) -> None:
        self.history.setdefault(cohort.title, []).append((time.monotonic() - self.began, step))

    def ended(self, cohort: PlannedCohort, outcome: str, reason: str) -> None:
        self.ends[cohort.title] = (time.monotonic() - self.began, outcome)
        self.report.console.print(
            f"{self.ends[cohort.title][0]:6.0f} s  {cohort.title}: {outcome} {reason}"
        )


def table_1(
    report: Report, folder: Path, seeds: Sequence[int], minutes: float | None, how: dict[str, Any]
) -> None:
    """The study as it is, in a folder, and beside it what its simulators would need if they never
    waited."""
    study = replace(load_study("table-1"), seeds=tuple(seeds))
    rates = {task.name: apart(task, cores(), APART) for task in study.tasks}
    watcher = Progress(report)
    result = run_study(study, folder, watcher, max_minutes=minutes, **how)
    seconds = time.monotonic() - watcher.began
    rows: list[dict[str, Any]] = []
    for cohort in plan(study, folder, 10**15, on_gpu=report.device.type == "cuda"):
        history, runs = watcher.history.get(cohort.title, [(0.0, 0)]), len(cohort.runs)
        ended, outcome = watcher.ends.get(cohort.title, (seconds, "running"))
        rows.append(
            {
                "cohort": cohort.title,
                "runs": runs,
                "steps": history[-1][1],
                "of": cohort.steps,
                "simulators alone s": runs * history[-1][1] / rates[cohort.runs[0].task.name],
                "first step after s": history[0][0],
                "ended after s": ended,
                "outcome": outcome,
            }
        )
    report.table("table 1", f"All of Table 1, seeds {', '.join(map(str, seeds))}", rows)
    report.content["tables"]["table 1"] |= {
        "simulator steps/s": rates,
        "seconds": seconds,
        "complete": result.complete,
    }
    report.content["tables"]["table 1"]["history"] = {
        title: steps[:: max(1, len(steps) // 100)] for title, steps in watcher.history.items()
    }
    run_steps, floor = (
        sum(row["runs"] * row["steps"] for row in rows),
        sum(row["simulators alone s"] for row in rows),
    )
    report.note(
        f"{run_steps / 1e6:.1f} million run-steps in {seconds / 60:.1f} minutes, "
        f"{run_steps / seconds:,.0f} a second: "
        f"{seconds / floor:.2f} times the {floor / 60:.1f} minutes of {cores()} simulators "
        "with random actions that "
        "wait for nobody. "
        f"{'It is complete.' if result.complete else 'It was stopped before its end.'}"
    )


def main(arguments: list[str] | None = None) -> None:
    made = parser(__doc__)
    made.add_argument("--task", default="half-cheetah")
    made.add_argument("--algo", default="pac4sac")
    made.add_argument("--runs", type=int, help="in a cohort; 20, or with several cohorts 5")
    made.add_argument("--steps", type=int, default=3000, help="lockstep steps to measure")
    made.add_argument(
        "--cohorts", type=int, default=1, help="this many algorithms of Table 1 side by side"
    )
    made.add_argument(
        "--split", type=int, default=1, help="the runs in this many cohorts side by side"
    )
    made.add_argument(
        "--turns",
        type=int,
        help="a cohort in so many parts that take turns, instead of as training does",
    )
    made.add_argument("--table-1", action="store_true", help="the whole study")
    made.add_argument("--folder", type=Path, help="with --table-1, where it is trained")
    made.add_argument("--seeds", default="0:5", help="with --table-1")
    made.add_argument("--minutes", type=float, help="with --table-1, after which it is stopped")
    made.add_argument("--backend", default="auto")
    made.add_argument(
        "--workers", type=lambda text: text if text == "auto" else int(text), default="auto"
    )
    options = made.parse_args(arguments)
    if options.split > 1 and (options.table_1 or options.cohorts > 1):
        made.error("--split goes with neither --cohorts nor --table-1")
    if options.split < 1 or (options.runs or 20) % options.split:
        made.error(
            f"{options.runs or 20} runs cannot be split into {options.split} cohorts of the "
            "same size"
        )
    if options.quick:
        options.backend, options.steps = "eager", min(options.steps, 20)
    report = Report(options)
    study = load_study("table-1")
    algos = [variant.algo for variant in study.variants][-options.cohorts :]
    common = {"device": str(report.device), "backend": options.backend, "workers": options.workers}
    common |= {"turns": options.turns}
    common |= {
        "precision": options.precision,
        "quick": options.quick,
        "settings": {"warmup": 50} if options.quick else {},
    }

    def jobs(task: str, algos: Sequence[str], runs: int) -> list[dict[str, Any]]:
        return [
            common | {"task": task, "algo": algo, "runs": options.runs or runs} for algo in algos
        ]

    for part, meaning in MEANING.items():
        report.console.print(f"{part:6} {meaning}", style="dim")
    if options.table_1:
        how = {
            "device": str(report.device),
            "precision": options.precision,
            "backend": options.backend,
        }
        with tempfile.TemporaryDirectory() as folder:
            table_1(
                report,
                options.folder or Path(folder),
                parse_seeds(options.seeds),
                options.minutes,
                how,
            )
    elif options.cohorts > 1:
        measured = measure(jobs(options.task, algos, 5), options.steps)
        show(report, f"{options.task}, {options.cohorts} cohorts side by side", measured)
    else:
        parts, options.runs = options.split, (options.runs or 20) // options.split
        title = (
            options.task if parts == 1 else f"{options.task}, its runs split into {parts} cohorts"
        )
        show(
            report,
            title,
            measure(jobs(options.task, [options.algo] * parts, options.runs), options.steps),
        )
    report.close()


if __name__ == "__main__":
    main()
