"""`pac4sac train`."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from pac4sac.base.errors import UserError
from pac4sac.cli import arguments
from pac4sac.runs.seeds import parse_seeds


@arguments.with_options(*arguments.OPTIONS)
@dataclass(frozen=True)
class Train:
    """Train an algorithm on a task, with all seeds and settings in lockstep.

    Example: pac4sac train cartpole-swingup --seeds 0:5 --set xi=0,0.01,0.1
    """

    task: Annotated[
        Positional[str | None],
        arg(
            metavar="TASK",
            help=arguments.TASK_HELP,
            help_behavior_hint="(required here or in --config)",
        ),
    ] = None
    # Train this algorithm: a name from `pac4sac list algos`, or a custom class as module:Class.
    algo: str = "pac4sac"
    seeds: arguments.Seeds = "0"
    preset: str = "default"  # Use this preset from `pac4sac list presets`.
    # Change settings of the algorithm (see `pac4sac list settings`). Several values, as in
    # xi=0,0.01,0.1, train a run for each value.
    settings: arguments.SettingTexts = field(default_factory=list)
    set_task: arguments.TaskChanges = field(default_factory=list)
    wrappers: arguments.Wrappers = field(default_factory=list)
    # Write into this folder, which must be new or empty.
    out: Annotated[Path | None, arguments.optional("DIR", "a new one in experiments/")] = None
    max_minutes: arguments.MaxMinutes = None  # Stop after M minutes; `pac4sac resume` continues.
    track: arguments.Track = "none"
    callback: arguments.Callback = None
    # Read these options from a TOML file, with settings in a table [set]; flags override the file.
    config: Annotated[Path | None, arguments.optional("FILE")] = None
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        settings, seeds = arguments.parse_settings(self.settings), parse_seeds(self.seeds)
        # these options may have consumed the task as their value
        wrappers = arguments.parse_wrappers(self.wrappers)
        if self.task is None:
            raise UserError(
                "train needs a task, as in: pac4sac train cartpole-swingup. List tasks: pac4sac "
                "list tasks."
            )
        from pac4sac.tasks import get_task

        task = get_task(self.task).changed(arguments.parse_task_changes(self.set_task))
        from pac4sac.cli.training_summary import train_and_show
        from pac4sac.training.experiment import train

        left_out = ("track", "callback", "config", "set_task", "trust")
        given = {name: value for name, value in vars(self).items() if name not in left_out}
        given |= {"task": task, "seeds": seeds, "settings": settings, "wrappers": wrappers}
        return train_and_show(
            partial(train, **given),
            console,
            out=self.out or Path("experiments"),
            max_minutes=self.max_minutes,
            callbacks=arguments.callback_names(self.track, self.callback),
        )
