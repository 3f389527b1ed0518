"""`pac4sac resume`."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from rich.console import Console

from pac4sac.cli import arguments


@dataclass(frozen=True)
class Resume:
    """Resume an experiment from its last checkpoint, exactly as if it had never stopped."""

    folder: arguments.Folder  # Experiment folder, or one of its run folders.
    # Extend the experiment to this number of steps.
    steps: Annotated[arguments.NumberOrNone, arguments.optional("N")] = None
    max_minutes: arguments.MaxMinutes = None  # Stop after this many minutes.
    track: arguments.Track = "none"
    callback: arguments.Callback = None
    # Continue runs that other code has trained so far, and record both versions.
    keep_stale: bool = False
    # Train a failed run again, alone and from its last checkpoint, up to N times in all.
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
