"""`pac4sac watch`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rich.console import Console

from pac4sac.base.errors import UserError
from pac4sac.cli import arguments
from pac4sac.cli.shared import say, writing


@dataclass(frozen=True)
class Watch:
    """Record a video of one episode of a trained agent; no display is needed."""

    # Use the best run of this run, experiment or study folder, or a shipped agent.
    folder: arguments.Folder
    # Write this .gif file, or this .mp4 file (needs the extra video).
    video: Annotated[Path | None, arguments.optional("FILE", "episode.gif in that folder")] = None
    seed: arguments.Number = 0  # Draw the episode from this seed.
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        if self.seed < 0:
            raise UserError(f"--seed must be at least 0, not {self.seed}.")
        from pac4sac.export.video import record_video

        out = (
            self.video
            or (self.folder if self.folder.is_dir() else self.folder.parent) / "episode.gif"
        )
        with writing(out), console.status("recording an episode …") as status:

            def progress(done: int, of: int) -> None:
                status.update(f"recording: {done} of {of} frames …")

            written = record_video(self.folder, out, seed=self.seed, progress=progress)
        say(console, f"Video: {written}")
        return 0
