"""`pac4sac export`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import arg

from pac4sac.cli import arguments
from pac4sac.cli.shared import say, writing


@dataclass(frozen=True)
class Export:
    """Write the deterministic policy of a trained agent as ONNX, and check that it acts like the
    agent."""

    # Run, experiment or study folder, whose best run is taken, or an agent that ships.
    folder: arguments.Folder
    onnx: Annotated[Path, arg(metavar="FILE")]  # ONNX file to write.
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        from pac4sac.export.onnx import export_onnx

        with writing(self.onnx):
            say(console, export_onnx(self.folder, self.onnx))
        return 0
