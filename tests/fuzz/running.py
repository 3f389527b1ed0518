"""A command in a process of its own, which is watched: what it said, how it ended, and what it
touched."""

# All that commands import is imported here, once, since each of them runs in a fork.
import contextlib
import faulthandler
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import histories
import mutations
import pandas  # noqa: F401
from material import COMMANDS, FILES
from matplotlib.backends import backend_agg, backend_pdf, backend_svg  # noqa: F401

import pac4sac.cli.certificate_page
import pac4sac.cli.training_summary
import pac4sac.export.onnx
import pac4sac.export.video
import pac4sac.studies.compare
from pac4sac.certificates import picture  # noqa: F401
from pac4sac.cli.main import main
from pac4sac.report import figures

PATIENCE = 30.0  # seconds; the slowest command takes three
GRACE = 20.0  # seconds in which a long training that is asked to stop does so
STOPPED = 130  # its exit code
MOST_MEMORY = 12 * 2**30  # of addresses, of which torch takes many
SLOW = ("certify", "watch", "export")  # which come more rarely
IN_PYTHON = ("results", "load", "call")
MISSING = "missing-runs.csv"  # table of runs that are expected and not there
BROKE = 99  # exit code of an exception that nobody caught


@dataclass(frozen=True)
class Outcome:
    case: str
    kind: str  # of the file, or "line"
    command: str
    trouble: str  # nothing where all is well
    said: str

    def __str__(self) -> str:
        return f"[{self.trouble}] {self.case}: pac4sac {self.command}\n{self.said[-1500:]}"


def call(arguments: list[str]) -> int:
    if arguments[:1] == ["history"]:
        return histories.run(int(arguments[1]))
    if arguments[:1] == ["call"]:
        return call_function(*arguments[1:])
    if arguments[:1] == ["results"] or arguments[:1] == ["load"]:
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}")
        try:
            print(getattr(pac4sac, arguments[0])(arguments[1]))
        except pac4sac.UserError as error:
            print(f"pac4sac: {error}")
            return 2
        return 0
    return main(arguments)


def call_function(name: str, text: str) -> int:
    """A function of the package with arguments as JSON; refusals name a parameter or say why."""
    function = pac4sac
    for part in name.split("."):
        function = getattr(function, part)
    try:
        given = json.loads(text)
        print(function(*given["args"], **given["kwargs"]))
    except pac4sac.UserError as error:
        print(f"pac4sac: {error}")
        return 2
    except (TypeError, ValueError) as error:
        print(f"pac4sac: {error}")
        own = "unexpected keyword" in str(error) or "required" in str(error)
        named = any(word in str(error) for word in given["kwargs"])
        return 2 if own or named else BROKE
    return 0


def _no_drawing(*_: object) -> Any:
    return b"" if len(_) == 1 else '<svg viewBox="0 0 1 1"></svg>'


def watched(
    arguments: list[str], sandbox: Path, quick: bool = True, full: bool = False
) -> tuple[int | None, str]:
    """Exit code, None where it hung, and all that was said.

    A training of many steps may take longer; unlike a command that hangs, it stops if asked to.

    Args:
        arguments: The command.
        sandbox: Folder of the case.
        quick: Whether to leave out the drawing of figures.
        full: Whether standard output is a device without space.
    """
    log = sandbox / "said"
    child = os.fork()
    if not child:
        code = BROKE
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with log.open("w") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            if full:
                os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
            sys.stdout, sys.stderr = (os.fdopen(os.dup(k), "w", buffering=1) for k in (1, 2))
            faulthandler.enable(sys.stderr)
            os.environ["PAC4SAC_FUZZ_OUTSIDE"] = str(sandbox / "outside")
            os.chdir(sandbox / "work")
            if quick:
                figures.to_svg, figures.to_pdf = _no_drawing, _no_drawing
            code = call(arguments)
        except BaseException:  # what a user would see as a traceback
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    code = _end_of(child, PATIENCE)
    if code is None:
        os.kill(child, signal.SIGTERM)
        code = _end_of(child, GRACE)
        if code is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        code = code if code in (0, STOPPED) else None
    return code, log.read_text(errors="replace")


def _end_of(child: int, seconds: float) -> int | None:
    """Exit code of a process, or minus the signal that ended it; None if it goes on."""
    deadline, pause = time.monotonic() + seconds, 0.002
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(0.05, 1.5 * pause)
    return None


def content(folder: Path) -> dict[str, str]:
    """Of all files, also of those that are new."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def tables(work: Path, command: str, said: str) -> dict[str, str]:
    """What a report, an archive or a frame says of the runs."""
    if command.startswith("results"):
        return {"frame": said}
    return {
        name: sum_
        for part in ("out/tables", "new/runs", "archive/runs")
        for name, sum_ in content(work / part).items()
    }


TOLD = ("warning:", "Not readable", "left out", "damaged", "cannot be", "unreadable", " missing.")


def problem_of_outcome(
    code: int | None, said: str, sandbox: Path, before: dict[str, str], differs: bool = False
) -> str:
    if code is None:
        return "hang"
    if code == BROKE or code < 0 or "Traceback (most recent call last)" in said:
        return "traceback"
    if code not in (0, 1, 2, 3, STOPPED):
        return f"exit code {code}"
    if content(sandbox / "outside") != before:
        return "import" if (sandbox / "outside" / "imported").exists() else "outside write"
    if code == 2 and not said.strip():
        return "no word"
    is_told = any(word in said for word in TOLD)
    return "silent difference" if code == 0 and differs and not is_told else ""


class Fuzzer:
    """Makes cases from a seed and runs them, each in a copy of the material."""

    def __init__(self, material: Path, scratch: Path) -> None:
        self.material, self.scratch = material, scratch
        self.usual: dict[str, dict[str, str]] = {}  # what commands write where nothing is damaged
        self.outside = content(material / "outside")

    def _fresh(self) -> Path:
        sandbox = self.scratch / "case"
        if sandbox.exists():
            shutil.rmtree(sandbox)
        mutations.copy_material(self.material, sandbox)
        return sandbox

    def _usual(self, command: str) -> dict[str, str]:
        if command not in self.usual:
            sandbox = self._fresh()
            code, said = watched(command.split(), sandbox)
            assert code in (0, 2), said
            self.usual[command] = tables(sandbox / "work", command, said)
        return self.usual[command]

    def file_case(self, seed: int) -> Outcome:
        """A file of some kind, damaged or malicious, and a command that reads it."""
        chance = random.Random(f"file {seed}")
        kind = list(FILES)[seed % len(FILES)]
        pattern, form = FILES[kind]
        commands = COMMANDS[kind]
        command = chance.choices(commands, [0.1 if c.startswith(SLOW) else 1 for c in commands])[0]
        as_usual = self._usual(command)
        sandbox = self._fresh()
        path = chance.choice(sorted((sandbox / "work").glob(pattern)))
        whole = path.read_bytes()
        how = mutations.mutate(path, form, chance, sandbox / "outside")
        is_damage = mutations.is_damage(whole, path, form, how)
        full = chance.random() < 0.05 and not command.startswith(IN_PYTHON)
        code, said = watched(command.split(), sandbox, chance.random() < 0.9, full)
        now = tables(sandbox / "work", command, said)
        is_missed = MISSING in now and now[MISSING] != as_usual.get(MISSING)  # as the page tells
        differs = is_damage and now != as_usual and not is_missed
        trouble = problem_of_outcome(code, said, sandbox, self.outside, differs)
        return Outcome(
            f"file case {seed}, {path.relative_to(sandbox / 'work')}, {how}",
            kind,
            command,
            trouble,
            said,
        )

    def line_case(self, seed: int) -> Outcome:
        """A malformed command line."""
        chance = random.Random(f"line {seed}")
        words = mutations.change_line(
            mutations.LINES[seed % len(mutations.LINES)].split(), chance, Path("../outside")
        )
        sandbox = self._fresh()
        code, said = watched(words, sandbox, full=chance.random() < 0.1)
        trouble = problem_of_outcome(
            code, said, sandbox, self.outside | self._meant(words, sandbox)
        )
        return Outcome(f"line case {seed}", "line", repr(words), trouble, said)

    def call_case(self, seed: int) -> Outcome:
        """A call of a function with an argument of another kind."""
        chance = random.Random(f"call {seed}")
        name, given = mutations.change_call(seed, chance)
        sandbox = self._fresh()
        words = ["call", name, json.dumps(given)]
        code, said = watched(words, sandbox)
        meant = self.outside | self._meant(words, sandbox)
        return Outcome(
            f"call case {seed}",
            "call",
            repr(words),
            problem_of_outcome(code, said, sandbox, meant),
            said,
        )

    def history_case(self, seed: int) -> Outcome:
        """An experiment that is stopped, extended, retried, edited and asked with other options."""
        sandbox = self._fresh()
        code, said = watched(["history", str(seed)], sandbox)
        trouble = problem_of_outcome(code, said, sandbox, self.outside)
        return Outcome(f"history case {seed}", "history", f"history {seed}", trouble, said)

    def _meant(self, words: list[str], sandbox: Path) -> dict[str, str]:
        """A folder outside that the command line itself names may be written, and a module that it
        names imported."""
        named = any("outside" in word for word in words)
        imported = any("payload:" in word for word in words)
        now = content(sandbox / "outside")
        return {
            name: sum_
            for name, sum_ in now.items()
            if (named and name.startswith("x")) or (imported and name == "imported")
        }
