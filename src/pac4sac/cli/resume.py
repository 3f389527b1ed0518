"""`pac4sac resume`."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from rich.console import Console

from pac4sac.cli import arguments


@dataclass(frozen=True)
class Resume:
    """Go on with an experiment from its last checkpoint, exactly as if it had never stopped."""

    folder: arguments.Folder  # Experiment folder, or one of its run folders.
    steps: Annotated[arguments.NumberOrNone, arguments.optional("N")] = (
        None  # Extend the experiment to so many steps.
    )
    max_minutes: arguments.MaxMinutes = None  # Stop after so many minutes.
    track: arguments.Track = "none"
    callback: arguments.Callback = None
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        inside_a_run = self.folder.parent.name == "runs" and (self.folder / "run.json").is_file()
        folder = self.folder.parent.parent if inside_a_run else self.folder
        from pac4sac.cli.training_summary import train_and_show
        from pac4sac.training.experiment import resume

        training = partial(resume, folder, steps=self.steps, max_minutes=self.max_minutes)
        callbacks = arguments.callback_names(self.track, self.callback)
        return train_and_show(training, console, folder, self.max_minutes, callbacks)
