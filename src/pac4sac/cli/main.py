"""The command line. torch and simulators are imported by the commands that need them, so that help
comes at once."""

import contextlib
import io
import os
import sys
import warnings
from pathlib import Path
from typing import get_args

import tyro
from rich.console import Console

from pac4sac.base.errors import UserError
from pac4sac.base.text import did_you_mean
from pac4sac.base.trust import allow, allow_named, consent_of_one_command, trusted, trusted_module
from pac4sac.base.version import __version__
from pac4sac.cli import arguments
from pac4sac.cli.certify import Certify
from pac4sac.cli.check import Check
from pac4sac.cli.compare import Compare
from pac4sac.cli.config_file import flags_of_file
from pac4sac.cli.demo import Demo
from pac4sac.cli.doctor import Doctor
from pac4sac.cli.evaluate import Evaluate
from pac4sac.cli.export import ExportCommand, named_onnx
from pac4sac.cli.known_flags import with_our_flags
from pac4sac.cli.list import List
from pac4sac.cli.new import New
from pac4sac.cli.reference import Reference
from pac4sac.cli.report import Report
from pac4sac.cli.resume import Resume
from pac4sac.cli.shared import INTERRUPTED, WholeWords
from pac4sac.cli.study import StudyCommand
from pac4sac.cli.train import Train
from pac4sac.cli.watch import Watch

DESCRIPTION = """PAC-Bayesian Soft Actor-Critic and its rivals: train, watch and measure them.

Example: pac4sac train Pendulum-v1 --steps 5000

pac4sac --version prints the version."""
Command = (  # in the order of the help, each called like its class
    Demo
    | Train
    | Resume
    | Compare
    | StudyCommand
    | Report
    | Evaluate
    | Certify
    | Watch
    | ExportCommand
    | Reference
    | List
    | New
    | Check
    | Doctor
)
GROUPS = {StudyCommand: "study", ExportCommand: "export"}  # of commands
NAMES = {  # that may follow the name of the program, and that of a command
    (): [GROUPS.get(kind) or kind.__name__.lower() for kind in get_args(Command)],
    ("study",): ["run", "plan", "status", "collect"],
    ("export",): ["onnx", "csv"],
}


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 2 for a mistake of the user, 3 if some runs
    failed, 130 after Ctrl-C, 1 for other failures."""
    _print_on_every_terminal()
    try:
        return run_command(sys.argv[1:] if argv is None else argv)
    except UserError as error:
        return complain(str(error))
    except BrokenPipeError:  # the reader has closed our output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None or error.strerror is None:  # not about a file
            raise
        return complain(f"{error.filename} cannot be used: {error.strerror}.")
    except KeyboardInterrupt:
        return complain("interrupted.", INTERRUPTED)
    except SystemExit as asked:  # by the parser, which has printed the reason
        return asked.code if isinstance(asked.code, int) else 2


def _print_on_every_terminal() -> None:
    """Print ? instead of a character that the encoding of the terminal lacks, such as ±."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def run_command(argv: list[str]) -> int:
    """Parse the arguments and run the command that they name."""
    with consent_of_one_command(), warnings.catch_warnings():
        command = parse(argv)
        warnings.showwarning = lambda message, *_, **__: print(
            f"pac4sac: warning: {message}", file=sys.stderr
        )
        return command.run(Console(markup=False))


def complain(sentence: str, code: int = 2) -> int:
    """Print why a command failed, and return its exit code."""
    print(f"pac4sac: {sentence}", file=sys.stderr)
    return code


def parse(argv: list[str]) -> Command:
    """Return the command that arguments describe, and trust the modules that they name."""
    if argv == ["--version"]:
        print(f"pac4sac {__version__}")
        raise SystemExit(0)
    if tuple(argv) in NAMES:
        argv = [*argv, "--help"]
    argv = named_onnx(argv)
    check_names(argv)
    argv = with_our_flags(argv)
    command = _parse_with_tyro(argv)
    take_consent(command)
    if isinstance(command, Train) and command.config is not None:
        return _train_with_file(command, command.config, argv)
    return command


def _parse_with_tyro(argv: list[str]) -> Command:
    output = sys.stdout
    if "-h" in argv or "--help" in argv:
        output = WholeWords(sys.stdout)
    with contextlib.redirect_stdout(output):
        command: Command = tyro.cli(Command, prog="pac4sac", description=DESCRIPTION, args=argv)
    return command


def _train_with_file(command: Train, file: Path, argv: list[str]) -> Train:
    """Return the command with the options of a config file. Flags override the file."""
    from_file = flags_of_file(file, Train, with_task=command.task is None)
    # The last of equal flags counts.
    merged = _parse_with_tyro(["train", *from_file, *argv[1:]])
    assert isinstance(merged, Train)
    callbacks = arguments.callback_names("none", merged.callback)
    wrappers = [words[0] for words in merged.wrappers if words]
    for name in (merged.task or "", merged.algo, *callbacks, *wrappers):
        trusted_module(name)
    return merged


def check_names(argv: list[str]) -> None:
    """Refuse an unknown command, or an unknown part of a group, and suggest similar names."""
    for before, known in NAMES.items():
        if tuple(argv[: len(before)]) != before or len(argv) == len(before):
            continue
        name = argv[len(before)]
        if name not in known and not name.startswith("-"):
            command = " ".join([*before, name])
            raise UserError(f"There is no command {command!r}; {did_you_mean(name, known)}")


def take_consent(command: Command) -> None:
    """Trust the modules that a command names, also those in the working directory as python -m
    does."""
    given = vars(getattr(command, "command", command))  # `study` holds its own command
    allow(given.get("trust", ()))
    several = ",".join(given.get(name) or "" for name in ("algos", "callback"))
    allow_named(given.get("task"), given.get("algo"), *several.split(","))
    allow_named(*(words[0] for words in given.get("wrappers", ()) if words))
    if trusted() and "" not in sys.path:
        sys.path.append("")
