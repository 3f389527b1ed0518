"""`pac4sac compare`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, UseAppendAction, arg

from pac4sac.base.errors import UserError
from pac4sac.cli import arguments
from pac4sac.cli.arguments import optional
from pac4sac.cli.shared import writing
from pac4sac.cli.study_display import StudyDisplay, show_end


@arguments.with_options(*(name for name in arguments.OPTIONS if name != "start_from"))
@dataclass(frozen=True)
class Compare:
    """Train several algorithms on a task, test them against a baseline, and write a report.

    Example: pac4sac compare Pendulum-v1 --algos pac4sac,sac,ddpg --seeds 0:5
    """

    task: Annotated[
        Positional[str | None],
        arg(
            metavar="TASK",
            help=arguments.TASK_HELP,
            help_behavior_hint="(required here or in --config)",
        ),
    ] = None
    # Train these algorithms: names from `pac4sac list algos`, or custom classes as module:Class.
    algos: Annotated[str, arg(metavar="A,B,C")] = "pac4sac,sac,ddpg"
    seeds: arguments.Seeds = "0:5"
    # Compare the other algorithms with this algorithm.
    baseline: Annotated[str | None, optional("A", "the first of --algos")] = None
    # Use this preset from `pac4sac list presets` for all algorithms, or a preset for each, as in
    # pac4sac:mujoco,sac:default.
    preset: Annotated[str, arg(metavar="NAME")] = "default"
    # Change these settings of all algorithms that have them, or of one algorithm, as in
    # sac:alpha=0.1.
    settings: arguments.SettingTexts = field(default_factory=list)
    set_task: arguments.TaskChanges = field(default_factory=list)
    wrappers: arguments.Wrappers = field(default_factory=list)
    # Write into this study folder.
    out: Annotated[Path | None, optional("DIR", "experiments/study-compare-TASK")] = None
    parallel: arguments.Parallel = None
    max_minutes: arguments.MaxMinutes = None  # Stop after M minutes; the same command continues.
    keep_stale: arguments.KeepStale = False
    # Also compare with learning curves of other projects in these CSV files.
    curves: Annotated[UseAppendAction[list[Path]], arg(metavar="FILE")] = field(
        default_factory=list
    )
    track: arguments.Track = "none"
    callback: arguments.Callback = None
    # Read these options from a TOML file, with settings in a table [set]; flags override the file.
    config: Annotated[Path | None, optional("FILE")] = None
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        # parameter names of the Python function
        given = {**vars(self), "settings": arguments.parse_settings(self.settings)}
        del given["config"]  # its options are already included
        given["wrappers"] = arguments.parse_wrappers(self.wrappers)
        if self.task is None:
            raise UserError(
                "compare needs a task, as in: pac4sac compare Pendulum-v1. List tasks: pac4sac "
                "list tasks."
            )
        changes = arguments.parse_task_changes(given.pop("set_task"))
        given["callbacks"] = arguments.callback_names(given.pop("track"), given.pop("callback"))
        from pac4sac.studies.compare import compare
        from pac4sac.tasks import get_task

        given["task"] = get_task(self.task).changed(changes)
        with writing(self.out or Path("experiments")), StudyDisplay(console) as display:
            comparison = compare(**given, watcher=display)
        sentences = comparison.answer, comparison.advice
        return show_end(console, comparison, comparison.page, comparison.tables, sentences)
