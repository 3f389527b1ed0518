"""`pac4sac resume`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from pac4sac.cli import arguments
from pac4sac.cli.train import show_end, shown


@dataclass(frozen=True)
class ResumeCommand:
    """Go on with an experiment from its last checkpoint, exactly as if it had never stopped."""

    # Experiment folder, or one of its run folders.
    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    # Extend the experiment to so many steps.
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint="(optional)")] = None
    # Stop after so many minutes.
    max_minutes: arguments.MaxMinutes = None
    tensorboard: arguments.TensorBoardToo = False

    def run(self, console: Console) -> int:
        inside_a_run = self.folder.parent.name == "runs" and (self.folder / "run.json").is_file()
        folder = self.folder.parent.parent if inside_a_run else self.folder
        from pac4sac.training.experiment import resume

        with shown(console, folder, self.max_minutes, self.tensorboard) as callbacks:
            result = resume(folder, steps=self.steps, max_minutes=self.max_minutes, callbacks=callbacks)
        return show_end(result, console)
