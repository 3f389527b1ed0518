"""Commands on trained agents: evaluate, watch, export."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from pac4sac.base.errors import UserError
from pac4sac.cli.study_display import say

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130  # what shells report of a program ended by Ctrl-C
Folder = Annotated[Positional[Path], arg(metavar="DIR")]


@dataclass(frozen=True)
class Evaluate:
    """Let the trained agents act in fresh episodes, the same for every run, and tell their returns."""

    # Experiment or run folder.
    folder: Folder
    # Episodes of each run and policy.
    episodes: Annotated[int, arg(metavar="N")] = 10
    # Of the episodes.
    seed: Annotated[int, arg(metavar="N")] = 0
    # The weights of the best scheduled evaluation instead of the last ones.
    best: bool = False

    def run(self, console: "Console") -> int:
        if self.episodes < 1 or self.seed < 0:
            raise UserError("--episodes must be at least 1 and --seed at least 0.")
        from pac4sac.runs.reading import find_runs

        run_folders = find_runs(self.folder)
        from pac4sac.cli.training_summary import show_evaluations
        from pac4sac.training.agent_file import load
        from pac4sac.training.evaluation import Episodes, evaluate, policies_of

        rows = []
        for folder in run_folders:
            path = folder / ("best.safetensors" if self.best else "agent.safetensors")
            if not path.is_file():
                hint = "train with --evaluate-every" if self.best else "train it up to its first checkpoint"
                raise UserError(f"{folder} holds no {path.name}; {hint}.")
            trained = load(path)
            played = Episodes(trained.agent, trained.state, trained.run.task, [self.seed], self.episodes, "command")
            for policy in policies_of(trained.agent):
                with console.status(f"{trained.run.id}: {self.episodes} episodes, {policy} policy …"):
                    returns = evaluate(played, policy)
                rows.append((trained.run.id, policy, returns[0].tolist()))
        show_evaluations(
            console, "Returns of one episode" if self.episodes == 1 else f"Returns of {self.episodes} episodes", rows
        )
        return 0


@dataclass(frozen=True)
class Watch:
    """Film one episode of a trained agent; no display is needed."""

    # Run folder, or an experiment, of which the best run is taken.
    folder: Folder
    # Where to write it: a .gif, or an .mp4 with the extra pac4sac[video].
    video: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: episode.gif in that folder)")] = (
        None
    )
    # Of the episode.
    seed: Annotated[int, arg(metavar="N")] = 0

    def run(self, console: "Console") -> int:
        if self.seed < 0:
            raise UserError(f"--seed must be at least 0, not {self.seed}.")
        from pac4sac.export.video import record_video

        out = self.video or (self.folder if self.folder.is_dir() else self.folder.parent) / "episode.gif"
        with writing(out), console.status("filming an episode …") as status:
            written = record_video(
                self.folder,
                out,
                seed=self.seed,
                progress=lambda n, of: status.update(f"filming: {n} of {of} pictures …"),
            )
        say(console, f"Video: {written}")
        return 0


@dataclass(frozen=True)
class Export:
    """Write the deterministic policy of a trained agent as ONNX, and check that it acts like the agent."""

    # Run folder, or an experiment, of which the best run is taken.
    folder: Folder
    # Where to write it.
    onnx: Annotated[Path, arg(metavar="FILE")]

    def run(self, console: "Console") -> int:
        from pac4sac.export.onnx import export_onnx

        with writing(self.onnx):
            say(console, export_onnx(self.folder, self.onnx))
        return 0


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """A full disk, a folder that may not be written and the like, told in a sentence."""
    try:
        yield
    except OSError as error:
        if error.strerror is None or isinstance(error, ConnectionError):  # not of files
            raise
        place = f"{target} ({error.filename})" if error.filename and error.filename != str(target) else target
        raise UserError(
            f"Writing {place} failed: {error.strerror}. What was written before stays readable; "
            "make room or choose a folder you may write, then resume or start again."
        ) from error
