"""The command line. torch and simulators are imported by the commands that need them, so that help comes at once."""

import os
import sys
import warnings
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import subcommand

from pac4sac.base.errors import UserError
from pac4sac.base.version import __version__
from pac4sac.cli.arguments import flags_of_file
from pac4sac.cli.certify import CertifyCommand
from pac4sac.cli.compare import CompareCommand
from pac4sac.cli.doctor import DoctorCommand
from pac4sac.cli.evaluate import EvaluateCommand
from pac4sac.cli.export import ExportCommand
from pac4sac.cli.list import ListCommand
from pac4sac.cli.report import ReportCommand
from pac4sac.cli.resume import ResumeCommand
from pac4sac.cli.shared import INTERRUPTED
from pac4sac.cli.study import StudyCommand
from pac4sac.cli.train import TrainCommand
from pac4sac.cli.watch import WatchCommand

DESCRIPTION = (
    "PAC-Bayesian Soft Actor-Critic and its rivals: train them, look at them, measure them. "
    "pac4sac --version shows the version."
)
Command = (
    Annotated[TrainCommand, subcommand("train")]
    | Annotated[ResumeCommand, subcommand("resume")]
    | Annotated[CompareCommand, subcommand("compare")]
    | Annotated[StudyCommand, subcommand("study")]
    | Annotated[ReportCommand, subcommand("report")]
    | Annotated[EvaluateCommand, subcommand("evaluate")]
    | Annotated[CertifyCommand, subcommand("certify")]
    | Annotated[WatchCommand, subcommand("watch")]
    | Annotated[ExportCommand, subcommand("export")]
    | Annotated[ListCommand, subcommand("list")]
    | Annotated[DoctorCommand, subcommand("doctor")]
)


def main(argv: list[str] | None = None) -> int:
    """Run a command and give its exit code: 0, 2 for a mistake of the user, 130 after Ctrl-C, 1 for other failures."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a curve of question marks rather than no curve, where ± is unknown
    if "" not in sys.path:
        sys.path.append("")  # environments and algorithms of the user's own, as with python -m
    try:
        command = parse(sys.argv[1:] if argv is None else argv)
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return command.run(Console())
    except UserError as error:
        print(f"pac4sac: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pac4sac: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit as asked:  # by the parser, which has said why
        return asked.code if isinstance(asked.code, int) else 2


def parse(argv: list[str]) -> Command:
    if argv == ["--version"]:
        print(f"pac4sac {__version__}")
        raise SystemExit(0)

    def parsed(arguments: list[str]) -> Command:
        return tyro.cli(Command, prog="pac4sac", description=DESCRIPTION, args=arguments)

    command = parsed(argv)
    if isinstance(command, TrainCommand) and command.config is not None:
        # What the file says comes first, and the last of equal flags counts.
        from_file = flags_of_file(command.config, TrainCommand, with_task=command.task is None)
        command = parsed(["train", *from_file, *argv[1:]])
    return command


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"pac4sac: warning: {message}", file=sys.stderr)
