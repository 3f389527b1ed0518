"""The command line. torch and simulators are imported by the commands that need them, so that help
comes at once."""

import contextlib
import os
import sys
import warnings
from functools import partial
from typing import get_args

import tyro
from rich.console import Console

from pac4sac.base.errors import UserError
from pac4sac.base.text import did_you_mean
from pac4sac.base.trust import allow, allow_named, consent_of_one_command, trusted, trusted_module
from pac4sac.base.version import __version__
from pac4sac.cli.arguments import flags_of_file
from pac4sac.cli.certify import Certify
from pac4sac.cli.check import Check
from pac4sac.cli.compare import Compare
from pac4sac.cli.demo import Demo
from pac4sac.cli.doctor import Doctor
from pac4sac.cli.evaluate import Evaluate
from pac4sac.cli.export import Export
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
    | Export
    | Reference
    | List
    | New
    | Check
    | Doctor
)
NAMES = {  # that may follow the name of the program, and that of a command
    (): ["study" if kind == StudyCommand else kind.__name__.lower() for kind in get_args(Command)],
    ("study",): ["run", "plan", "status", "collect"],
}


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 2 for a mistake of the user, 130 after Ctrl-C, 1
    for other failures."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a curve of question marks rather than no curve, where ± is unknown
            stream.reconfigure(errors="replace")
    try:
        return run_command(sys.argv[1:] if argv is None else argv)
    except UserError as error:
        return complain(str(error))
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None or error.strerror is None:  # not of files
            raise
        return complain(f"{error.filename} cannot be used: {error.strerror}.")
    except KeyboardInterrupt:
        return complain("interrupted.", INTERRUPTED)
    except SystemExit as asked:  # by the parser, which has said why
        return asked.code if isinstance(asked.code, int) else 2


def run_command(argv: list[str]) -> int:
    with consent_of_one_command(), warnings.catch_warnings():
        command = parse(argv)
        warnings.showwarning = lambda message, *_, **__: print(
            f"pac4sac: warning: {message}", file=sys.stderr
        )
        return command.run(Console(markup=False))


def complain(sentence: str, code: int = 2) -> int:
    print(f"pac4sac: {sentence}", file=sys.stderr)
    return code


def parse(argv: list[str]) -> Command:
    if argv == ["--version"]:
        print(f"pac4sac {__version__}")
        raise SystemExit(0)
    if tuple(argv) in NAMES:
        argv = [*argv, "--help"]
    check_names(argv)
    parsed = partial(tyro.cli, Command, prog="pac4sac", description=DESCRIPTION)
    with contextlib.redirect_stdout(
        WholeWords(sys.stdout) if {"-h", "--help"} & {*argv} else sys.stdout
    ):
        command: Command = parsed(args=argv)
    take_consent(command)
    if isinstance(command, Train) and command.config is not None:
        # What the file says comes first, and the last of equal flags counts.
        from_file = flags_of_file(command.config, Train, with_task=command.task is None)
        merged: Train = parsed(args=["train", *from_file, *argv[1:]])
        for name in (merged.task or "", merged.algo, *(merged.callback or "").split(",")):
            trusted_module(name)
        return merged
    return command


def check_names(argv: list[str]) -> None:
    """Refuse an unknown command, or part of `study`, with the names that were probably meant."""
    for before, known in NAMES.items():
        given, name = tuple(argv[: len(before)]), next(iter(argv[len(before) :]), "-")
        if given == before and name not in known and not name.startswith("-"):
            command = " ".join([*before, name])
            raise UserError(f"There is no command {command!r}; {did_you_mean(name, known)}")


def take_consent(command: Command) -> None:
    """What is named on the command line may be imported, from the working directory too, as with
    python -m."""
    given = vars(getattr(command, "command", command))  # that of `study`
    allow(given.get("trust", ()))
    several = ",".join(given.get(name) or "" for name in ("algos", "callback"))
    allow_named(given.get("task"), given.get("algo"), *several.split(","))
    if trusted() and "" not in sys.path:
        sys.path.append("")
