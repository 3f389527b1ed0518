"""`pac4sac new`: a file for a custom agent, copied from a shipped algorithm."""

import importlib.util
import inspect
import io
import keyword
import shlex
import sys
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from tyro.conf import Positional, arg

from pac4sac.base.errors import UserError
from pac4sac.base.text import assignments, did_you_mean
from pac4sac.base.version import __version__
from pac4sac.cli.shared import say, writing

if TYPE_CHECKING:
    from pac4sac.agents import Agent

HEADER = """\
# Copied from {source} of pac4sac {version}. Change it, then try and train it:
#   pac4sac check {name}
#   pac4sac train Pendulum-v1 --algo {name}
"""


@dataclass(frozen=True)
class New:
    """Copy a shipped algorithm to a new file for a custom agent.

    Example: pac4sac new my_agent --from sac
    """

    # Write NAME.py, with the class Name, into the working directory.
    module: Annotated[Positional[str], arg(metavar="NAME")]
    # Copy this algorithm from `pac4sac list algos`.
    source: Annotated[str, arg(name="from", metavar="ALGO")] = "sac"

    def run(self, console: Console) -> int:
        path = Path(f"{self.module}.py")
        class_name = check_module_name(self.module, path)
        from pac4sac.agents import ALGORITHMS

        if self.source not in ALGORITHMS:
            known = did_you_mean(self.source, ALGORITHMS)
            raise UserError(f"Unknown algorithm {self.source!r}; {known}")
        algorithm = ALGORITHMS[self.source]
        name = f"{self.module}:{class_name}"
        header = HEADER.format(source=self.source, version=__version__, name=name)
        code = header + source_of(algorithm.agent, class_name)
        with writing(path), path.open("x", encoding="utf-8") as file:
            file.write(code)
        settings = shlex.join(assignments(algorithm.defaults))
        say(console, f"Written: {path}")
        say(console, f"Check:   pac4sac check {name}")
        flags = f" --set {settings}" if settings else ""
        say(console, f"Train:   pac4sac train Pendulum-v1 --algo {name}{flags}")
        return 0


def check_module_name(module: str, path: Path) -> str:
    """Return the class name for a module name, or refuse an invalid module name."""
    class_name = "".join(part.capitalize() for part in module.split("_"))
    is_name = module.isidentifier() and class_name.isidentifier()
    if not is_name or keyword.iskeyword(module):
        raise UserError(
            f"{module!r} is not a valid module name; use letters, digits and _, as in my_agent."
        )
    if path.exists() or path.is_symlink():
        raise UserError(f"{path} already exists; choose another name, or remove the file first.")
    if module in sys.modules or importlib.util.find_spec(module) is not None:
        raise UserError(f"A module {module!r} already exists; choose another name.")
    return class_name


def source_of(agent: "type[Agent]", class_name: str) -> str:
    """Return the source of a shipped agent, with its class and its settings renamed."""
    source = Path(inspect.getfile(agent)).read_text(encoding="utf-8")
    names = {agent.__name__: class_name}
    if agent.Config.__module__ == agent.__module__:
        names[agent.Config.__name__] = f"{class_name}Config"
    return rename(source, names)


def rename(source: str, names: Mapping[str, str]) -> str:
    """Rename identifiers, but not words in strings or comments."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    identifiers = [token for token in tokens if token.type == tokenize.NAME]
    used = {token.string for token in identifiers}
    for taken in used & (set(names.values()) - set(names)):
        raise UserError(f"The copied file already uses the name {taken}; choose another name.")
    lines = source.splitlines(keepends=True)
    for token in reversed(identifiers):  # from the end, so earlier positions stay valid
        if token.string in names:
            row, column = token.start
            line, end = lines[row - 1], column + len(token.string)
            lines[row - 1] = line[:column] + names[token.string] + line[end:]
    return "".join(lines)
