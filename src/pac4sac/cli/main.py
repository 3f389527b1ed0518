"""The command line. torch and simulators are imported by the commands that need them, so that help comes at once."""

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional, UseAppendAction, arg, subcommand

from pac4sac.base.errors import UserError
from pac4sac.base.version import __version__
from pac4sac.cli.agent_commands import INTERRUPTED, Evaluate, Export, Folder, Watch, writing
from pac4sac.cli.arguments import flags_of_file, parse_settings
from pac4sac.cli.certify import Certify
from pac4sac.cli.study_commands import Compare, Report, StudyCommand
from pac4sac.runs.seeds import parse_seeds

if TYPE_CHECKING:
    from rich.console import Console

    from pac4sac.training.callbacks import Callback
    from pac4sac.training.experiment import Result

DESCRIPTION = (
    "PAC-Bayesian Soft Actor-Critic and its rivals: train them, look at them, measure them. "
    "pac4sac --version tells the version."
)
PASSED_ON = (  # options of `train` that mean the same in Python
    *("algo", "preset", "steps", "max_minutes", "device", "backend", "precision", "workers", "threads"),
    *("stop_when_solved", "evaluate_every", "evaluation_episodes", "bias_every", "bias_episodes"),
    *("coverage_every", "checkpoint_every", "start_from"),
)
Auto = Literal["auto"]


@dataclass(frozen=True)
class Train:
    """Train an algorithm on a task, all seeds and settings in lockstep.

    Example: pac4sac train cartpole-swingup --seeds 0:5 --set xi=0,0.01,0.1
    """

    # A name from `pac4sac list tasks`, or any Gymnasium id with continuous actions.
    task: Annotated[
        Positional[str | None], arg(metavar="TASK", help_behavior_hint="(required here or in --config)")
    ] = None
    # A name from `pac4sac list algos`, or your own as module:Class.
    algo: str = "pac4sac"
    # 3, or 0:5 (without the 5), or 0,2,7.
    seeds: Annotated[str, arg(metavar="SEEDS")] = "0"
    # Environment steps of each run.
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: the task's own)")] = None
    # A set of settings from `pac4sac list presets`.
    preset: str = "paper"
    # Settings of the algorithm, see `pac4sac list settings`; several values, as in xi=0,0.01,0.1, are all tried.
    settings: Annotated[UseAppendAction[list[list[str]]], arg(name="set", metavar="NAME=VALUE")] = field(
        default_factory=list
    )
    # cpu, cuda, cuda:1, or auto.
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    # How to compute: as written, compiled, or as a CUDA graph.
    backend: Literal["auto", "eager", "compiled", "graph"] = "auto"
    # Of matrix products on a GPU.
    precision: Literal["float32", "tf32"] = "float32"
    # Processes for the simulators; 0 keeps them in this one.
    workers: Annotated[int | Auto, arg(metavar="N|auto")] = "auto"
    # Threads for the networks; auto tries several and takes the fastest.
    threads: Annotated[int | Auto, arg(metavar="N|auto")] = "auto"
    # Experiment folder to make; one that holds anything is refused.
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: a new one in experiments/)")] = None
    # Stop after so many minutes; `resume` goes on.
    max_minutes: Annotated[float | None, arg(metavar="M", help_behavior_hint="(optional)")] = None
    # End a run once it is solved: five episodes in a row above the task's limit.
    stop_when_solved: bool = False
    # Steps between evaluations, of which the best weights are kept; 0 evaluates at the end only.
    evaluate_every: Annotated[int, arg(metavar="N")] = 0
    # Episodes of an evaluation.
    evaluation_episodes: Annotated[int, arg(metavar="N")] = 5
    # Steps between measurements of how far the critic over- or underestimates; 0 makes none.
    bias_every: Annotated[int, arg(metavar="N")] = 0
    # Episodes of such a measurement.
    bias_episodes: Annotated[int, arg(metavar="N")] = 3
    # Steps between measurements of how widely the states of the replay buffer lie; 0 makes none.
    coverage_every: Annotated[int, arg(metavar="N")] = 0
    # Steps between checkpoints.
    checkpoint_every: Annotated[int, arg(metavar="N")] = 20_000
    # Start with the weights of a trained agent: a run folder or an agent.safetensors. Such runs are named after it.
    start_from: Annotated[str | None, arg(name="from", metavar="AGENT", help_behavior_hint="(optional)")] = None
    # TOML file with any of these options as keys and settings in a table [set]; flags override it.
    config: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(optional)")] = None
    # Write TensorBoard files too.
    tensorboard: bool = False

    def run(self, console: "Console") -> int:
        settings = parse_settings([text for group in self.settings for text in group])
        seeds = parse_seeds(self.seeds)
        if self.task is None:
            raise UserError("Which task? Name one, as in: pac4sac train cartpole-swingup. See pac4sac list tasks.")
        from pac4sac.tasks import get_task

        task = get_task(self.task)
        from pac4sac.training import experiment

        folder = self.out or experiment.free_folder(Path("experiments"), f"{task.name}-{self.algo}")
        options: dict[str, Any] = {name: getattr(self, name) for name in PASSED_ON}
        return _watched(
            console,
            folder,
            self.max_minutes,
            self.tensorboard,
            lambda callbacks: experiment.train(
                task, seeds=seeds, settings=settings, out=folder, callbacks=callbacks, **options
            ),
        )


@dataclass(frozen=True)
class Resume:
    """Go on with an experiment from its last checkpoint, exactly as if it had never stopped."""

    # Experiment folder, or one of its runs.
    folder: Folder
    # Extend the experiment to so many steps.
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint="(optional)")] = None
    # Stop after so many minutes.
    max_minutes: Annotated[float | None, arg(metavar="M", help_behavior_hint="(optional)")] = None
    # Write TensorBoard files too.
    tensorboard: bool = False

    def run(self, console: "Console") -> int:
        inside_a_run = self.folder.parent.name == "runs" and (self.folder / "run.json").is_file()
        folder = self.folder.parent.parent if inside_a_run else self.folder
        from pac4sac.training import experiment

        return _watched(
            console,
            folder,
            self.max_minutes,
            self.tensorboard,
            lambda callbacks: experiment.resume(
                folder, steps=self.steps, max_minutes=self.max_minutes, callbacks=callbacks
            ),
        )


@dataclass(frozen=True)
class List:
    """List what there is to choose from."""

    # What to list.
    what: Annotated[
        Positional[Literal["tasks", "algos", "presets", "settings", "studies"]],
        arg(metavar="tasks|algos|presets|settings|studies"),
    ]
    # Whose settings.
    algo: str = "pac4sac"

    def run(self, console: "Console") -> int:
        from pac4sac.cli.listing import TABLES

        console.print(TABLES[self.what](self.algo))
        return 0


@dataclass(frozen=True)
class Doctor:
    """Versions, device, cores, the speed of one step, and what could break reproducibility."""

    def run(self, console: "Console") -> int:
        from pac4sac.cli.doctor import doctor

        return doctor(console)


Command = (
    Annotated[Train, subcommand("train")]
    | Annotated[Resume, subcommand("resume")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[StudyCommand, subcommand("study")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Evaluate, subcommand("evaluate")]
    | Annotated[Certify, subcommand("certify")]
    | Annotated[Watch, subcommand("watch")]
    | Annotated[Export, subcommand("export")]
    | Annotated[List, subcommand("list")]
    | Annotated[Doctor, subcommand("doctor")]
)


def main(argv: list[str] | None = None) -> int:
    """Run a command and give its exit code: 0, 2 for a mistake of the user, 130 after Ctrl-C, 1 for other failures."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a curve of question marks rather than no curve, where ± is unknown
    if "" not in sys.path:
        sys.path.append("")  # environments and algorithms of the user's own, as with python -m
    try:
        command = parse(sys.argv[1:] if argv is None else argv)
        from rich.console import Console

        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return command.run(Console())
    except UserError as error:
        print(f"pac4sac: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pac4sac: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except SystemExit as asked:  # by the parser, which has said why
        return asked.code if isinstance(asked.code, int) else 2


def parse(argv: list[str]) -> Command:
    if argv == ["--version"]:
        print(f"pac4sac {__version__}")
        raise SystemExit(0)

    def parsed(arguments: list[str]) -> Command:
        return tyro.cli(Command, prog="pac4sac", description=DESCRIPTION, args=arguments)

    command = parsed(argv)
    if isinstance(command, Train) and command.config is not None:
        # What the file says comes first, and the last of equal flags counts.
        from_file = flags_of_file(command.config, Train, with_task=command.task is None)
        command = parsed(["train", *from_file, *argv[1:]])
    return command


def _watched(
    console: "Console",
    folder: Path,
    max_minutes: float | None,
    tensorboard: bool,
    go: "Callable[[list[Callback]], Result]",
) -> int:
    """Train with a display, then show what came of it."""
    if max_minutes is not None and max_minutes <= 0:
        raise UserError(f"--max-minutes must be above 0, not {max_minutes:g}.")
    from pac4sac.cli.training_display import make_display
    from pac4sac.cli.training_summary import all_broke_off, show_result

    display = make_display(console, max_minutes)
    callbacks: list[Callback] = [display]
    if tensorboard:
        from pac4sac.export.tensorboard import TensorBoard

        callbacks.append(TensorBoard())
    with writing(folder):
        with display:
            result = go(callbacks)
        show_result(result, console)
    if result.reason is not None and result.reason.by_signal:
        return INTERRUPTED
    return 1 if all_broke_off(result) else 0


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"pac4sac: warning: {message}", file=sys.stderr)
