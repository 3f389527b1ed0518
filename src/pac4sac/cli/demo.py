"""`pac4sac demo`: a trained agent filmed, one trained while one watches, and what came of it beside
archived runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from pac4sac.cli import arguments
from pac4sac.cli.shared import say, writing

# the compiler's minute included, by which more is learned than by eager at once
MINUTES, FULL_MINUTES = (3.0, 10.0)
# a machine so slow that it has had but a few gets some more time
FEW_EPISODES, MORE_MINUTES = (10, 1.0)
FEWER_UPDATES = {"updates_per_step": 2}
# One thread: two wait for each other, and on cores that others keep busy that takes ten times as
# long.
OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "threads": 1,
    "stop_when_solved": True,
    "evaluation_episodes": 0,
}


@dataclass(frozen=True)
class Demo:
    """See PAC4SAC at work within four minutes: a trained agent on film, one that learns live, and
    archived runs beside.

    All that is written lies in a new folder in experiments/.
    """

    full: bool = False  # Train with the paper's settings, for up to ten minutes.
    seed: arguments.Number = 0  # Seed of the training.
    max_minutes: Annotated[
        float | None, arguments.optional("M", "3 of training, with --full 10")
    ] = None

    def run(self, console: Console) -> int:
        say(console, "1. A trained agent, which ships with the package.")
        from pac4sac.base.stopping import StopRequest
        from pac4sac.cli.demo_outcome import SHOWN, film, show_outcome
        from pac4sac.tasks import get_task, task_sizes
        from pac4sac.training.agent_file import SHIPPED, read_agent_file
        from pac4sac.training.experiment import make_free_folder

        usual = FULL_MINUTES if self.full else MINUTES
        minutes = usual if self.max_minutes is None else self.max_minutes
        # These say what is wrong before anything is done: with the minutes, or that there is no
        # PyBullet.
        StopRequest(minutes)
        task_sizes(get_task(SHOWN))
        folder = make_free_folder(Path("experiments"), "demo")
        with writing(folder):
            agent = SHIPPED / f"{SHOWN}.safetensors"
            about, _ = read_agent_file(agent)
            shown, limit = about["evaluation"], about["run"]["task"]["r_limit"]
            many = (
                f"over {shown['episodes']} episodes; above {limit:,.0f} the task counts as solved"
            )
            say(
                console,
                f"   PAC4SAC on Half Cheetah: a return of {shown['mean']:,.0f} on average "
                f"({many}).",
            )
            film(console, agent, SHOWN, folder)
            self._train(console, folder / "training", minutes)
            show_outcome(console, folder)
        return 0

    def _train(self, console: Console, folder: Path, minutes: float) -> None:
        from pac4sac.base.stopping import TIME_IS_UP
        from pac4sac.cli.demo_outcome import TRAINED
        from pac4sac.cli.training_display import displayed
        from pac4sac.training.experiment import resume, train

        updates = (
            "4 updates of its networks per step"
            if self.full
            else "2 updates per step instead of 4, to be quicker"
        )
        say(
            console,
            "\n2. An agent that learns, from nothing, to swing up a pole and to balance it.",
        )
        say(
            console,
            f"   PAC4SAC on Cartpole Swingup, {updates}; until solved, {minutes:g} minutes at "
            "most.",
        )
        say(console, "   Ctrl-C goes on to the picture.")
        how = OPTIONS | {"seeds": [self.seed], "settings": {} if self.full else FEWER_UPDATES}
        try:
            with displayed(console, minutes) as display:
                result = train(
                    TRAINED,
                    preset="reproduction",
                    out=folder,
                    max_minutes=minutes,
                    callbacks=display,
                    **how,
                )
            if (
                result.reason is TIME_IS_UP
                and self.max_minutes is None
                and len(result.runs[0].episodes) < FEW_EPISODES
            ):
                with displayed(console, MORE_MINUTES) as display:
                    resume(folder, max_minutes=MORE_MINUTES, callbacks=display)
        except KeyboardInterrupt:  # the second; what was logged can be shown all the same
            say(console, "   Stopped.")
