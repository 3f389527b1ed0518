"""`pac4sac certify`."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from pac4sac.base.errors import UserError
from pac4sac.cli import arguments
from pac4sac.cli.shared import say

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Certify:
    """Tell how far a trained critic and its policy can be trusted: measured errors, bounds, calibration.

    Example: pac4sac certify experiments/cartpole-swingup-pac4sac
    """

    # Run folder, or an experiment, of which the best run is taken.
    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    # Fresh episodes to measure, and as many again to certify; a fourth of it with shooting.
    episodes: Annotated[int, arg(metavar="N")] = 64
    # Each bound may be wrong with this probability.
    delta: Annotated[float, arg(metavar="δ")] = 0.05
    # Seed of the episodes.
    seed: Annotated[int, arg(metavar="N")] = 0
    # The least and the largest reward of a step, as in --reward-range=-1,1.
    reward_range: Annotated[str | None, arg(metavar="LOW,HIGH", help_behavior_hint="(default: the task's)")] = None
    # The least and the largest return of an episode, as in --return-range=-1000,1000.
    return_range: Annotated[
        str | None, arg(metavar="LOW,HIGH", help_behavior_hint="(default: from the rewards' range)")
    ] = None
    # Folder for certificate.json and certificate.png.
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: that of the run)")] = None
    # Print the certificate as JSON instead of a page.
    json: bool = False
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: "Console") -> int:
        asked: dict[str, Any] = {name: getattr(self, name) for name in ("episodes", "delta", "seed")}
        for name in ("reward_range", "return_range"):
            asked[name] = parse_range(f"--{name.replace('_', '-')}", getattr(self, name))
        from pac4sac.certificates.certificate import certify
        from pac4sac.cli.certificate_page import show

        with console.status("reading the agent …") as status:
            certificate = certify(self.folder, **asked, progress=status.update)
        out = self.out or certificate.agent_file.parent
        try:
            written = certificate.write(out)
        except OSError as error:
            raise UserError(f"Writing to {out} failed: {error.strerror}; choose another folder with --out.") from error
        if self.json:
            print(json.dumps(certificate.to_json(), indent=1, ensure_ascii=False))
            return 0
        show(certificate, console)
        for path in written:
            say(console, f"Written: {path}")
        return 0


def parse_range(option: str, text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"{option} needs two numbers, as in {option}=-1,1, not {text!r}.") from None
    if not low < high:
        raise UserError(f"{option} needs the lower number first, not {text!r}.")
    return low, high
