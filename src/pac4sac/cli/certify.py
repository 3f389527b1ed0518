"""`pac4sac certify`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from tyro.conf import arg

from pac4sac.base.errors import UserError
from pac4sac.cli import arguments
from pac4sac.cli.arguments import optional
from pac4sac.cli.shared import say

if TYPE_CHECKING:
    from pac4sac.certificates.certificate import Certificate


@dataclass(frozen=True)
class Certify:
    """Certify a trained agent: measure its critic's errors and calibration, and compute bounds.

    Example: pac4sac certify experiments/cartpole-swingup-pac4sac
    """

    # Use the best run of this run, experiment or study folder, or a shipped agent.
    folder: arguments.Folder
    # Measure on N episodes and certify on N others; a quarter of each set uses shooting.
    episodes: arguments.Number = 64
    # Allow each bound to fail with this probability.
    delta: Annotated[float, arg(metavar="δ")] = 0.05
    seed: arguments.Number = 0  # Draw the episodes from this seed.
    # Assume these limits for the reward of a step, as in --reward-range=-1,1.
    reward_range: Annotated[str | None, optional("LOW,HIGH", "the task's")] = None
    # Assume these limits for the return of an episode, as in --return-range=-1000,1000.
    return_range: Annotated[str | None, optional("LOW,HIGH", "from the range of rewards")] = None
    # Write certificate.json and certificate.png into this folder.
    out: Annotated[
        Path | None,
        optional("DIR", "the folder of the run, or the working directory for a shipped agent"),
    ] = None
    # Also print every bound with its assumptions, calibration and returns.
    full: bool = False
    json: bool = False  # Print the certificate as JSON instead of a page.
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        reward_range = parse_range("--reward-range", self.reward_range)
        return_range = parse_range("--return-range", self.return_range)
        from pac4sac.certificates.certificate import certify
        from pac4sac.cli.certificate_page import show

        with console.status("reading the agent …") as status:
            certificate = certify(
                self.folder,
                episodes=self.episodes,
                delta=self.delta,
                seed=self.seed,
                reward_range=reward_range,
                return_range=return_range,
                progress=status.update,
            )
        written = self.write(certificate)
        if self.json:
            print(written[0].read_text(encoding="utf-8"))
            return 0
        show(certificate, console, full=self.full)
        for path in written:
            say(console, f"Written: {path}")
        if not self.full:
            say(
                console,
                "To see all bounds with their assumptions, and the calibration, add --full to "
                "the command.",
            )
        return 0

    def write(self, certificate: "Certificate") -> Sequence[Path]:
        """Write the certificate to --out or next to the agent, but never into the package."""
        from pac4sac.training.agent_file import SHIPPED

        home = certificate.agent_file.parent
        out = self.out or (Path() if home == SHIPPED else home)
        try:
            return certificate.write(out)
        except OSError as error:
            raise UserError(
                f"Writing to {out} failed ({error.strerror}); choose another folder with --out."
            ) from error


def parse_range(option: str, text: str | None) -> tuple[float, float] | None:
    """Return the two numbers of an option such as --reward-range=-1,1."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise UserError(f"{option} needs two numbers, as in {option}=-1,1, not {text!r}.") from None
    if not -math.inf < low < high < math.inf:
        raise UserError(
            f"{option} needs two finite numbers, with the lower one first, not {text!r}."
        )
    return low, high
