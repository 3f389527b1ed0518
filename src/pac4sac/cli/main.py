"""The command line. Only commands that need torch or simulators import them, so help is fast."""

import atexit
import contextlib
import gc
import importlib
import io
import itertools
import os
import sys
import warnings
from pathlib import Path
from typing import get_args

import tyro

from pac4sac.base.errors import UserError
from pac4sac.base.text import did_you_mean
from pac4sac.base.trust import allow, allow_named, consent_of_one_command, trusted_module
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
from pac4sac.cli.parse_errors import in_sentences
from pac4sac.cli.reference import Reference
from pac4sac.cli.report import Report
from pac4sac.cli.resume import Resume
from pac4sac.cli.shared import INTERRUPTED, CheckedOutput, OutputFull, Terminal, WholeWords
from pac4sac.cli.study import StudyCommand
from pac4sac.cli.train import Train
from pac4sac.cli.tune import Tune
from pac4sac.cli.watch import Watch

DESCRIPTION = """Train, compare and measure PAC-Bayesian soft actor-critic and its baselines.

Example: pac4sac train Pendulum-v1 --steps 5000

pac4sac --version prints the version."""
Command = (  # in the order of the help; names follow the classes
    Demo
    | Train
    | Resume
    | Compare
    | StudyCommand
    | Tune
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
COMPLETION = ("--tyro-print-completion", "--tyro-write-completion")  # flags of the parser
SHELLS = ("bash", "zsh", "tcsh", "fish")
NAMES = {  # words allowed after the program, and after a command
    (): [GROUPS.get(kind) or kind.__name__.lower() for kind in get_args(Command)],
    ("study",): ["run", "plan", "status", "collect"],
    ("export",): ["onnx", "csv", "hub", "minari"],
}


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code.

    The codes are 0 for success, 2 for a mistake of the user, 3 if some runs failed, 130 after
    Ctrl-C, and 1 for other failures.
    """
    if argv is None:  # not called by another program
        _collect_garbage_rarely()
    _print_on_every_terminal()
    _ignore_local_matplotlibrc()
    try:
        with contextlib.redirect_stdout(CheckedOutput(sys.stdout)):
            try:
                return run_command(sys.argv[1:] if argv is None else argv)
            finally:
                sys.stdout.flush()
    except (UserError, OSError, KeyboardInterrupt) as error:
        return _code_after(error)
    except SystemExit as asked:  # raised by the parser, which has printed the reason
        return asked.code if isinstance(asked.code, int) else 2


def _code_after(error: UserError | OSError | KeyboardInterrupt) -> int:
    """Print the reason for a failure, and return the exit code. Errors of the program itself are
    raised again."""
    if isinstance(error, OutputFull | BrokenPipeError):
        _discard_output()
    if isinstance(error, UserError):
        return complain(str(error))
    if isinstance(error, KeyboardInterrupt):
        return complain("interrupted.", INTERRUPTED)
    if isinstance(error, BrokenPipeError):  # the reader closed the pipe
        return 1
    if error.filename is None or error.strerror is None:  # not an error of a file
        raise error
    return complain(f"{error.filename} cannot be used ({error.strerror}); choose another path.")


def _collect_garbage_rarely() -> None:
    """Spend less time on garbage collection.

    With Python's default thresholds, garbage collection takes a third of the time to import torch
    and to exit.
    """
    gc.set_threshold(100_000, 50, 50)
    atexit.register(gc.freeze)  # garbage collection at exit then skips all objects


def _ignore_local_matplotlibrc() -> None:
    """Import Matplotlib from another directory if the working directory has a matplotlibrc.

    A matplotlibrc in a shared folder could run LaTeX.
    """
    if os.path.lexists("matplotlibrc"):
        with contextlib.chdir(Path(__file__).parent):
            importlib.import_module("matplotlib")


def _discard_output() -> None:
    """Discard all further output, including what Python prints at exit."""
    with contextlib.suppress(OSError, ValueError):  # tests replace the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_on_every_terminal() -> None:
    """Print ? instead of characters, such as ±, that the terminal's encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def run_command(argv: list[str]) -> int:
    """Parse the arguments and run their command."""
    terminal = Terminal(markup=False)
    can_ask = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    with consent_of_one_command(terminal.ask if can_ask else None), warnings.catch_warnings():
        command = parse(argv)
        warnings.showwarning = lambda message, *_, **__: report(f"warning: {message}")
        return command.run(terminal)


def report(sentence: str) -> None:
    """Print a sentence to standard error, unless it is full or closed."""
    with contextlib.suppress(OSError):
        print(f"pac4sac: {sentence}", file=sys.stderr, flush=True)


def complain(sentence: str, code: int = 2) -> int:
    """Print the reason for a failure, and return the exit code."""
    report(sentence)
    return code


def parse(argv: list[str]) -> Command:
    """Parse a command, and trust the modules that its arguments name."""
    if argv == ["--version"]:
        print(f"pac4sac {__version__}")
        raise SystemExit(0)
    if tuple(argv) in NAMES:
        argv = [*argv, "--help"]
    argv = named_onnx(argv)
    check_names(argv)
    argv = with_our_flags(argv)
    _check_completion(argv)
    command = _parse_with_tyro(argv)
    take_consent(command)
    if isinstance(command, Train | Compare) and command.config is not None:
        return _with_file(command, command.config, argv)
    return command


def _parse_with_tyro(argv: list[str]) -> Command:
    output = sys.stdout
    if "-h" in argv or "--help" in argv:
        output = WholeWords(sys.stdout)
    program = program_of(argv)
    sentences = in_sentences(program, lambda: help_of(program))
    with contextlib.redirect_stdout(output), sentences:
        command: Command = tyro.cli(Command, prog="pac4sac", description=DESCRIPTION, args=argv)
    return command


def _check_completion(argv: list[str]) -> None:
    """Refuse completion for a shell that the parser does not know."""
    for flag, shell in itertools.pairwise([*argv, ""]):
        if flag.replace("_", "-") in COMPLETION and shell not in SHELLS:
            raise UserError(f"{flag} must be one of {', '.join(SHELLS)}, not {shell!r}.")


def program_of(argv: list[str]) -> str:
    """Return the name of the command in arguments, such as "pac4sac study run"."""
    words: tuple[str, ...] = ()
    for word in argv:
        if word not in NAMES.get(words, ()):
            break
        words += (word,)
    return " ".join(["pac4sac", *words])


def help_of(program: str) -> str:
    """Return the help of a command, such as "pac4sac train"."""
    _, *words = program.split()
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        tyro.cli(Command, prog="pac4sac", args=[*words, "--help"])
    return text.getvalue()


def _with_file(command: Train | Compare, file: Path, argv: list[str]) -> Train | Compare:
    """Return the command with the options of a config file. Flags override the file."""
    from_file = flags_of_file(file, type(command), with_task=command.task is None)
    # If a flag is repeated, its last value counts.
    merged = _parse_with_tyro([argv[0], *from_file, *argv[1:]])
    assert isinstance(merged, Train | Compare)
    callbacks = arguments.callback_names("none", merged.callback)
    wrappers = [words[0] for words in merged.wrappers if words]
    algos = merged.algo if isinstance(merged, Train) else merged.algos
    for name in (merged.task or "", *algos.split(","), *callbacks, *wrappers):
        trusted_module(name)
    return merged


def check_names(argv: list[str]) -> None:
    """Refuse an unknown command or subcommand, and suggest similar names."""
    for before, known in NAMES.items():
        if tuple(argv[: len(before)]) != before or len(argv) == len(before):
            continue
        name = argv[len(before)]
        if name not in known and not name.startswith("-"):
            command = " ".join([*before, name])
            raise UserError(f"Unknown command {command!r}; {did_you_mean(name, known)}")


def take_consent(command: Command) -> None:
    """Trust the modules that a command names."""
    given = vars(getattr(command, "command", command))  # `study` wraps its subcommand
    allow(given.get("trust", ()))
    several = ",".join(given.get(name) or "" for name in ("task", "algos", "callback"))
    allow_named(given.get("algo"), *several.split(","))
    allow_named(*(words[0] for words in given.get("wrappers", ()) if words))
