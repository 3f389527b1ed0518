"""Seconds from the command to the trained and evaluated agent: imports, compiling, training and
final evaluation, next to other libraries.

    python benchmarks/short_trainings.py --steps 5000,20000,100000 --rounds 3,2,1 --out short.json

All train SAC with the settings of Stable-Baselines3 (2 × 256 units, batch 256, no layer norm,
learned α), one update per step, and play ten evaluation episodes. Each training is a new process.
The libraries take turns; `make bench-setup` installs them, and without them their rows are left
out. They train one seed after another, so one of their seeds is timed, and all of our trainings are
compared with it. Nothing is compiled at the start of ours, as for a newcomer. At the fewest steps a
later start is timed too, with compiled programs. CPU seconds are those of all cores and threads,
and depend less than seconds on other programs of the machine. With --cores 1 they are nearly what
torch needs on an idle machine."""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from measuring import HERE, Report, Spread, numbers, parser, ratio

from pac4sac.base.cores import SHARE, cores
from pac4sac.runs.reading import read_runs
from pac4sac.training.backends import COMPILING_PAYS

TASK, EPISODES = "Pendulum-v1", 10
SETTINGS = {
    "width": 256,
    "depth": 2,
    "batch": 256,
    "norm": "false",
    "activation": "relu",
    "lr": 3e-4,
    "warmup": 100,
}
PEERS = {"Stable-Baselines3": "sb3", "SBX": "sbx"}
OURS, LATER = "pac4sac", "pac4sac, later start"


@dataclass(frozen=True)
class Timed:
    """What one training took, and what its agents reached."""

    seconds: float
    cpu_seconds: float  # of the process and of all that it started
    returns: list[float]  # mean return of the evaluation of each run
    version: str = ""


@dataclass(frozen=True)
class Training:
    """A training that every library is timed with."""

    steps: int
    seeds: int
    cores: int  # that torch may use; JAX uses all

    def seconds_of(
        self, command: Sequence[str | Path], output: Path, **variables: str
    ) -> tuple[float, float]:
        """Return the seconds and the CPU seconds of a command, with the processes it starts."""
        limits = {"OMP_NUM_THREADS": str(self.cores), SHARE: str(self.cores)}
        started = time.perf_counter()
        with output.open("w") as file:
            process = subprocess.Popen(
                command, env=os.environ | limits | variables, stdout=file, text=True
            )
            _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed.")
        return seconds, used.ru_utime + used.ru_stime

    def of_peer(self, folder: str) -> Timed:
        """Train with another library."""
        python = HERE.parent / ".bench" / folder / "bin" / "python"
        what = [TASK, self.steps, self.seeds, EPISODES]
        with tempfile.TemporaryDirectory() as made:
            output = Path(made) / "output"
            script = HERE / "short_contender.py"
            command: list[str | Path] = [python, script, folder, *map(str, what)]
            seconds = self.seconds_of(command, output)
            told = json.loads(output.read_text().splitlines()[-1])
        return Timed(*seconds, told["returns"], told["version"])

    def of_ours(self, compiled: Path | None) -> Timed:
        """Train with pac4sac.

        Args:
            compiled: Folder of compiled programs; None for a new and empty one.
        """
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made) / "experiment"
            command = [sys.executable, "-m", "pac4sac", "train", TASK, "--algo", "sac"]
            command += ["--steps", str(self.steps), "--seeds", f"0:{self.seeds}"]
            for name, value in SETTINGS.items():
                command += ["--set", f"{name}={value}"]
            command += ["--evaluation-episodes", str(EPISODES), "--device", "cpu"]
            seconds = self.seconds_of(
                [*command, "--out", str(folder)],
                Path(made) / "output",
                TORCHINDUCTOR_CACHE_DIR=str(compiled or Path(made) / "compiled"),
            )
            returns = [run.evaluations[-1]["mean"] for run in read_runs(folder)]
        return Timed(*seconds, returns)


def contenders(
    trainings: Sequence[Training], compiled: Path | None, report: Report
) -> dict[str, Callable[[], Timed]]:
    """Return what trains by its name, without the libraries that are not installed.

    Args:
        trainings: Trainings of the same length with several numbers of seeds, the smallest first.
        compiled: Folder of compiled programs for later starts; None to time first starts only.
        report: Gets a note on libraries that are missing.
    """
    found: dict[str, Callable[[], Timed]] = {}
    for name, folder in PEERS.items():
        if (HERE.parent / ".bench" / folder / "bin" / "python").exists():
            found[name] = functools.partial(replace(trainings[0], seeds=1).of_peer, folder)
        else:
            report.note(f"{name} is not installed here (make bench-setup); its row is left out.")
    for training in trainings:
        seeds = f", {training.seeds} seed(s)"
        found[OURS + seeds] = functools.partial(training.of_ours, None)
        if compiled is not None and training.steps * training.seeds >= COMPILING_PAYS:
            found[LATER + seeds] = functools.partial(training.of_ours, compiled)
    return found


def row_of(name: str, each: Sequence[Timed], baseline: Sequence[Timed] | None) -> dict[str, Any]:
    """Return the row of a library, with ratios to a baseline that took turns with it."""
    seconds, used = [one.seconds for one in each], [one.cpu_seconds for one in each]
    row: dict[str, Any] = {"library": f"{name} {each[0].version}".strip()}
    row |= {"seconds": Spread.of(seconds), "CPU seconds": Spread.of(used)}
    if baseline is not None:
        row["× SB3"] = ratio(seconds, [one.seconds for one in baseline])
        row["× SB3, CPU"] = ratio(used, [one.cpu_seconds for one in baseline])
    row["mean return"] = sum(sum(one.returns) / len(one.returns) for one in each) / len(each)
    return row


def compare(
    report: Report, trainings: Sequence[Training], rounds: int, compiled: Path | None
) -> None:
    """Time trainings of one length with all libraries, which take turns, and write a table."""
    found = contenders(trainings, compiled, report)
    for name, train in found.items():
        if name.startswith(LATER):
            train()  # fills the folder
    taken: dict[str, list[Timed]] = {name: [] for name in found}
    steps = trainings[0].steps
    for number in range(rounds):
        for name, train in found.items():
            taken[name].append(train())
            last = taken[name][-1]
            report.console.print(
                f"round {number + 1}, {steps:,} steps, {name}: "
                f"{last.seconds:.1f} s, {last.cpu_seconds:.1f} CPU s, returns {last.returns}",
                style="dim",
            )
    title = f"{TASK}, {steps:,} steps, {rounds} round(s); one seed if not stated"
    rows = [row_of(name, each, taken.get("Stable-Baselines3")) for name, each in taken.items()]
    report.table(f"{steps} steps", title, rows)


def main(arguments: list[str] | None = None) -> None:
    made = parser(__doc__)
    made.add_argument("--steps", type=numbers, default=[5000, 20_000, 100_000])
    made.add_argument("--seeds", type=numbers, default=[1, 5], help="of our trainings")
    made.add_argument("--rounds", type=numbers, default=[3, 2, 1], help="for each of --steps")
    made.add_argument("--cores", type=int, default=cores(), help="that torch may use; JAX uses all")
    options = made.parse_args(arguments)
    if options.quick:
        options.steps, options.seeds, options.rounds = [300], [1], [1]
    if len(options.rounds) != len(options.steps):
        raise SystemExit("--rounds needs a number for each of --steps, as in --rounds 3,2,1.")
    report = Report(options)
    with tempfile.TemporaryDirectory() as compiled:
        for steps, rounds in zip(options.steps, options.rounds, strict=True):
            trainings = [Training(steps, seeds, options.cores) for seeds in sorted(options.seeds)]
            is_shortest = steps == min(options.steps)
            compare(report, trainings, rounds, Path(compiled) if is_shortest else None)
    report.close()


if __name__ == "__main__":
    main()
