"""`pac4sac certify`."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from tyro.conf import arg

from pac4sac.base.errors import UserError
from pac4sac.cli import arguments
from pac4sac.cli.arguments import optional
from pac4sac.cli.shared import say


@dataclass(frozen=True)
class Certify:
    """Tell how far a trained critic and its policy can be trusted: measured errors, bounds,
    calibration.

    Example: pac4sac certify experiments/cartpole-swingup-pac4sac
    """

    # Run, experiment or study folder, whose best run is taken, or an agent that ships.
    folder: arguments.Folder
    # Fresh episodes to measure, and as many again to certify; a fourth of it with shooting.
    episodes: arguments.Number = 64
    delta: Annotated[float, arg(metavar="δ")] = (
        0.05  # Each bound may be wrong with this probability.
    )
    seed: arguments.Number = 0  # Seed of the episodes.
    # The least and the largest reward of a step, as in --reward-range=-1,1.
    reward_range: Annotated[str | None, optional("LOW,HIGH", "the task's")] = None
    # The least and the largest return of an episode, as in --return-range=-1000,1000.
    return_range: Annotated[str | None, optional("LOW,HIGH", "from the rewards' range")] = None
    # Folder for certificate.json and certificate.png.
    out: Annotated[
        Path | None,
        optional("DIR", "that of the run, or the working directory for a shipped agent"),
    ] = None
    full: bool = (
        False  # Show every bound with its assumptions, calibration and the policy's returns too.
    )
    json: bool = False  # Print the certificate as JSON instead of a page.
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        asked: dict[str, Any] = {"episodes": self.episodes, "delta": self.delta, "seed": self.seed}
        asked |= {
            name: parse_range(name, getattr(self, name))
            for name in ("reward_range", "return_range")
        }
        from pac4sac.certificates.certificate import certify
        from pac4sac.cli.certificate_page import show
        from pac4sac.training.agent_file import SHIPPED

        with console.status("reading the agent …") as status:
            certificate = certify(self.folder, **asked, progress=status.update)
        home = certificate.agent_file.parent
        # nothing is written into the package
        out = self.out or (Path() if home == SHIPPED else home)
        try:
            written = certificate.write(out)
        except OSError as error:
            raise UserError(
                f"Writing to {out} failed: {error.strerror}; choose another folder with --out."
            ) from error
        if self.json:
            print(written[0].read_text(encoding="utf-8"))
            return 0
        show(certificate, console, full=self.full)
        for path in written:
            say(console, f"Written: {path}")
        if not self.full:
            say(
                console,
                "All bounds with their assumptions, and calibration: the same command with --full.",
            )
        return 0


def parse_range(name: str, text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    option = f"--{name.replace('_', '-')}"
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise UserError(f"{option} needs two numbers, as in {option}=-1,1, not {text!r}.") from None
    if not -math.inf < low < high < math.inf:
        raise UserError(f"{option} needs two finite numbers, the lower first, not {text!r}.")
    return low, high
