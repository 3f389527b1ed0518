"""`pac4sac demo`: record a trained agent, train another one, and compare it with archived runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from pac4sac.cli import arguments
from pac4sac.cli.shared import say, writing

# This includes one minute of compilation. Even so, more steps fit than with the eager backend.
MINUTES, FULL_MINUTES = (3.0, 10.0)
# Extra time for a machine that finished only a few episodes.
FEW_EPISODES, MORE_MINUTES = (10, 1.0)
FEWER_UPDATES = {"updates_per_step": 2}
# One thread, because two threads wait for each other, which is ten times slower on busy cores.
OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "threads": 1,
    "stop_when_solved": True,
    "evaluation_episodes": 0,
}


@dataclass(frozen=True)
class Demo:
    """Record a video of a trained agent, train another one, and compare it with archived runs.

    It takes about four minutes and writes into a new folder in experiments/.
    """

    full: bool = False  # Train with the settings of the paper, for up to ten minutes.
    seed: arguments.Number = 0  # Train with this seed.
    # Train for M minutes at most.
    max_minutes: Annotated[float | None, arguments.optional("M", "3, or 10 with --full")] = None

    def run(self, console: Console) -> int:
        say(console, "1. A trained agent that ships with the package.")
        from pac4sac.base.stopping import StopRequest
        from pac4sac.cli.demo_outcome import SHOWN, record, show_outcome, show_shipped_agent
        from pac4sac.tasks import get_task, task_sizes
        from pac4sac.training.agent_file import SHIPPED
        from pac4sac.training.experiment import make_free_folder

        usual = FULL_MINUTES if self.full else MINUTES
        minutes = usual if self.max_minutes is None else self.max_minutes
        # Report an invalid number of minutes or a missing PyBullet before writing any file.
        StopRequest(minutes)
        task_sizes(get_task(SHOWN))
        folder = make_free_folder(Path("experiments"), "demo")
        with writing(folder):
            agent = SHIPPED / f"{SHOWN}.safetensors"
            show_shipped_agent(console, agent)
            record(console, agent, SHOWN, folder)
            self._train(console, folder / "training", minutes)
            show_outcome(console, folder)
        return 0

    def _train(self, console: Console, folder: Path, minutes: float) -> None:
        updates = "2 updates per step instead of 4, to save time"
        if self.full:
            updates = "4 updates per step"
        say(console, "\n2. An agent that learns from scratch to swing up and balance a pole.")
        say(
            console,
            f"   PAC4SAC trains on Cartpole Swingup with {updates}. It stops when it solves the "
            f"task, or after {minutes:g} minutes.",
        )
        say(console, "   Press Ctrl-C to stop training and show the figure.")
        try:
            self._train_or_resume(console, folder, minutes)
        except KeyboardInterrupt:  # the second Ctrl-C; logged episodes can still be shown
            say(console, "   Stopped.")

    def _train_or_resume(self, console: Console, folder: Path, minutes: float) -> None:
        """Train, and continue for a minute if too few episodes ended."""
        from pac4sac.base.stopping import TIME_IS_UP
        from pac4sac.cli.demo_outcome import TRAINED
        from pac4sac.cli.training_display import displayed
        from pac4sac.training.experiment import resume, train

        with displayed(console, minutes) as display:
            result = train(
                TRAINED,
                preset="reproduction",
                seeds=[self.seed],
                settings={} if self.full else FEWER_UPDATES,
                out=folder,
                max_minutes=minutes,
                callbacks=display,
                **OPTIONS,
            )
        if self.max_minutes is not None or result.reason is not TIME_IS_UP:
            return
        if len(result.runs[0].episodes) < FEW_EPISODES:
            with displayed(console, MORE_MINUTES) as display:
                resume(folder, max_minutes=MORE_MINUTES, callbacks=display)
