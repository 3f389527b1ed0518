"""`pac4sac export onnx|csv`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import OmitSubcommandPrefixes, arg, subcommand

from pac4sac.base.errors import UserError
from pac4sac.cli import arguments
from pac4sac.cli.shared import say, writing


@dataclass(frozen=True)
class ExportOnnx:
    """Write the deterministic policy of a trained agent as ONNX, and check that it acts like the
    agent.

    Example: pac4sac export onnx half-cheetah --out policy.onnx
    """

    # Run, experiment or study folder, whose best run is taken, or an agent that ships.
    folder: arguments.Folder
    out: Annotated[Path, arg(metavar="FILE")]  # ONNX file to write.
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        from pac4sac.export.onnx import export_onnx

        with writing(self.out):
            say(console, export_onnx(self.folder, self.out))
        return 0


@dataclass(frozen=True)
class ExportCsv:
    """Write learning curves as a CSV file in the schema that SimbaV2, XQC and FlashSAC share.

    Example: pac4sac export csv experiments/study-smoke --out curves.csv
    """

    folders: arguments.Folders  # Experiment, study or run folders, or archives.
    out: Annotated[Path, arg(metavar="FILE")]  # CSV file to write.

    def run(self, console: Console) -> int:
        from pac4sac.export.curves import export_curves

        if not self.folders:
            raise UserError("Which folders? Name at least one, as in: pac4sac export csv DIR.")
        with writing(self.out):
            say(console, export_curves(self.folders, self.out))
        return 0


@dataclass(frozen=True)
class ExportSubcommands:
    """Write trained agents and learning curves for other programs."""

    command: Annotated[ExportOnnx, subcommand("onnx")] | Annotated[ExportCsv, subcommand("csv")]

    def run(self, console: Console) -> int:
        return self.command.run(console)


ExportCommand = Annotated[OmitSubcommandPrefixes[ExportSubcommands], subcommand("export")]


def named_onnx(argv: list[str]) -> list[str]:
    """Return the arguments of `export DIR --onnx FILE`, the older form, as `export onnx` takes
    them."""
    if argv[:1] != ["export"] or not any(word.startswith("--onnx") for word in argv):
        return argv
    given = [word.replace("--onnx", "--out", 1) for word in argv[1:]]
    return ["export", "onnx", *given]
