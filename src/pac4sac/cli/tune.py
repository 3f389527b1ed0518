"""`pac4sac tune`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, UseAppendAction, arg

from pac4sac.base.errors import UserError
from pac4sac.cli import arguments
from pac4sac.cli.arguments import optional
from pac4sac.cli.shared import code_of_stop, say, writing
from pac4sac.cli.study_display import StudyDisplay


@arguments.with_options(*(name for name in arguments.OPTIONS if name != "start_from"))
@dataclass(frozen=True)
class Tune:
    """Search for settings with Optuna and several seeds per trial; then train the best ones again.

    Example: pac4sac tune Pendulum-v1 --algo sac --space lr=1e-4:1e-2:log tau=0.001:0.05
    """

    # Train on this task, or on several tasks separated by commas: names from `pac4sac list tasks`
    # or Gymnasium ids.
    task: Annotated[Positional[str], arg(metavar="TASK[,TASK]")]
    # Search these settings: NAME=LOW:HIGH, LOW:HIGH:log, LOW:HIGH:STEP or A,B,C, or a TOML file
    # with a table [space].
    space: Annotated[
        UseAppendAction[list[list[str]]],
        arg(metavar="NAME=VALUES|FILE.toml", help_behavior_hint="(required)"),
    ] = field(default_factory=list)
    # Search settings of this algorithm: a name from `pac4sac list algos`, or module:Class.
    algo: str = "pac4sac"
    trials: arguments.Number = 50  # Train this many trials in total.
    # Train each trial with these seeds.
    seeds: Annotated[str, arg(metavar="SEEDS")] = "1000:1005"
    # At the end, train the best settings and the defaults with these seeds.
    fresh_seeds: Annotated[str, arg(metavar="SEEDS")] = "3000:3010"
    # Compare trials by the last evaluation, the mean return of all training episodes, or regret.
    objective: Literal["final", "area", "regret"] = "final"
    preset: str = "default"  # Start from this preset from `pac4sac list presets`.
    # Give all trials these settings.
    settings: arguments.SettingTexts = field(default_factory=list)
    set_task: arguments.TaskChanges = field(default_factory=list)
    # Use this sampler of Optuna, such as TPE, Random or TPE:n_startup_trials=5.
    sampler: str = "TPE"
    # End poor trials early with this pruner: `seeds` (ends trials that are significantly worse than
    # the best one), none, or a pruner of Optuna.
    pruner: str = "seeds"
    # Compare trials for pruning at these fractions of the steps.
    rungs: Annotated[str, arg(metavar="A,B")] = "0.25,0.5"
    sampler_seed: arguments.Number = 0  # Start the sampler from this seed.
    at_once: arguments.Number = 8  # Choose and train this many trials at the same time.
    # Store trials in this database or journal file, which several workers may share.
    storage: Annotated[str | None, optional("URL|FILE", "a journal file in --out")] = None
    # Write into this folder.
    out: Annotated[Path | None, optional("DIR", "experiments/tune-TASK-ALGO")] = None
    engine: Literal["local", "ray"] = "local"  # Train on this machine, or on a Ray cluster.
    # Connect to an existing Ray cluster.
    address: Annotated[str | None, optional("HOST:PORT")] = None
    parallel: arguments.Parallel = None
    max_minutes: arguments.MaxMinutes = None  # Stop after M minutes; the same command continues.
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        given = dict(vars(self))
        given["settings"] = arguments.parse_settings(given.pop("settings"))
        changes = arguments.parse_task_changes(given.pop("set_task"))
        given["rungs"] = parse_fractions(self.rungs)
        from pac4sac.studies.tuning.space import read_space
        from pac4sac.studies.tuning.tune import tune
        from pac4sac.tasks import get_task

        names = [name.strip() for name in given.pop("task").split(",")]
        given["space"] = read_space(word for words in self.space for word in words)
        tasks = [get_task(name).changed(changes) for name in names]
        with writing(self.out or Path("experiments")), StudyDisplay(console) as display:
            found = tune(tasks, **given, watcher=display)
        say(console, str(found))
        say(console, f"Report: {found.page}")
        return code_of_stop(found.reason)


def parse_fractions(text: str) -> list[float]:
    """Parse fractions such as "0.25,0.5"; "none" gives an empty list."""
    if text == "none":
        return []
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--rungs must be fractions such as 0.25,0.5, not {text!r}.") from None
