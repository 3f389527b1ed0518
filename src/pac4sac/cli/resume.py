"""`pac4sac resume`."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from rich.console import Console

from pac4sac.cli import arguments


@dataclass(frozen=True)
class Resume:
    """Resume an experiment from its last checkpoint.

    On a CPU, the result is byte-identical to that of uninterrupted training.
    """

    folder: arguments.Folder  # Resume this experiment folder, or the experiment of this run folder.
    # Extend the experiment to N steps.
    steps: Annotated[arguments.NumberOrNone, arguments.optional("N")] = None
    max_minutes: arguments.MaxMinutes = None  # Stop after M minutes.
    track: arguments.Track = "none"
    callback: arguments.Callback = None
    # Continue runs that another version of the code trained, and record both versions.
    keep_stale: bool = False
    # Train a failed run again from its last checkpoint, up to N times in total.
    retries: arguments.Number = 3
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        inside_a_run = self.folder.parent.name == "runs" and (self.folder / "run.json").is_file()
        folder = self.folder.parent.parent if inside_a_run else self.folder
        from pac4sac.cli.training_summary import train_and_show
        from pac4sac.training.experiment import resume

        start = partial(
            resume,
            folder,
            steps=self.steps,
            max_minutes=self.max_minutes,
            keep_stale=self.keep_stale,
            retries=self.retries,
        )
        return train_and_show(
            start,
            console,
            out=folder,
            max_minutes=self.max_minutes,
            callbacks=arguments.callback_names(self.track, self.callback),
        )
