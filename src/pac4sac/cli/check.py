"""`pac4sac check`."""

from dataclasses import dataclass
from typing import Annotated

from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from tyro.conf import Positional, arg

from pac4sac.cli.shared import say


@dataclass(frozen=True)
class Check:
    """Check a custom algorithm on synthetic data: shapes, streams, gradients and determinism.

    The check takes a few seconds and trains nothing. The exit code is 1 if a check fails.
    """

    # Check this algorithm, given as module:Class; this runs the code of the module.
    algo: Annotated[Positional[str], arg(metavar="MODULE:CLASS")]

    def run(self, console: Console) -> int:
        from pac4sac.training.checks import examine

        failed = False
        for examination in examine(self.algo):
            say(console, f"{'FAIL' if examination.problem else 'ok':4}  {examination.what}")
            if examination.problem:
                console.print(Padding(Text(examination.problem), (0, 0, 0, 6)))
                failed = True
        if failed:
            say(console, f"{self.algo} cannot be trained yet; fix the problems above.")
            return 1
        say(console, f"{self.algo} can be trained.")
        return 0
