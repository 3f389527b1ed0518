"""`pac4sac export onnx|csv|hub|minari`."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import OmitSubcommandPrefixes, arg, subcommand

from pac4sac.base.errors import UserError
from pac4sac.cli import arguments
from pac4sac.cli.shared import say, writing


@dataclass(frozen=True)
class ExportOnnx:
    """Export the deterministic policy of a trained agent to ONNX, and check its actions.

    Example: pac4sac export onnx half-cheetah --out policy.onnx
    """

    # Use the best run of this run, experiment or study folder, or a shipped agent.
    folder: arguments.Folder
    out: Annotated[Path, arg(metavar="FILE")]  # Write this ONNX file.
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        from pac4sac.export.onnx import export_onnx

        with writing(self.out):
            say(console, export_onnx(self.folder, self.out))
        return 0


@dataclass(frozen=True)
class ExportCsv:
    """Write learning curves to a CSV file in the schema that SimbaV2, XQC and FlashSAC share.

    Example: pac4sac export csv experiments/study-smoke --out curves.csv
    """

    folders: arguments.Folders  # Read these experiment, study or run folders, or archives.
    out: Annotated[Path, arg(metavar="FILE")]  # Write this CSV file.

    def run(self, console: Console) -> int:
        from pac4sac.export.curves import export_curves

        if not self.folders:
            raise UserError(
                "export csv needs at least one folder, as in: pac4sac export csv experiments/NAME."
            )
        with writing(self.out):
            say(console, export_curves(self.folders, self.out))
        return 0


@dataclass(frozen=True)
class ExportHub:
    """Write a trained agent with a model card for the Hugging Face Hub, and optionally upload it.

    Example: pac4sac export hub experiments/sac --out sac-pendulum --push me/sac-pendulum
    """

    # Use the best run of this run, experiment or study folder.
    folder: arguments.Folder
    out: Annotated[Path, arg(metavar="DIR")]  # Write into this folder, which must be new or empty.
    # Show what would be uploaded to this repository of the Hub; with --yes, upload it.
    push: Annotated[str | None, arguments.optional("USER/NAME")] = None
    yes: bool = False  # Upload instead of only showing what would be uploaded.
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        from pac4sac.export import hub

        if self.push is not None:
            check_repository(self.push)
            if self.yes:
                hub.client()  # reports a missing package before writing any file
        with writing(self.out):
            files = hub.export_hub(self.folder, self.out)
        say(console, f"Written: {', '.join(str(file) for file in files)}")
        names = {file.name for file in files}
        if hub.CERTIFICATE not in names:
            say(
                console,
                f"The folder has no certificate; add one with: pac4sac certify {self.folder}",
            )
        if not names.intersection(hub.VIDEOS):
            say(console, f"The folder has no video; add one with: pac4sac watch {self.folder}")
        if self.push is not None:
            say(console, hub.about_upload(files, self.push))
            if self.yes:
                say(console, f"Uploaded: {hub.push(self.out, self.push)}")
            else:
                say(
                    console,
                    "Nothing was uploaded. Run the command again with another --out and "
                    "--yes to upload.",
                )
        return 0


def check_repository(name: str) -> None:
    """Refuse a name that is not USER/NAME."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(f"--push must be USER/NAME, not {name!r}.")


@dataclass(frozen=True)
class ExportMinari:
    """Write fresh episodes or the replay buffer of a trained agent as a Minari data set.

    Example: pac4sac export minari half-cheetah --name half-cheetah/pac4sac-v0 --episodes 10
    """

    # Use the best run of this run, experiment or study folder, or a shipped agent.
    folder: arguments.Folder
    name: Annotated[str, arg(metavar="NAME-v0")]  # Give the data set this Minari id.
    # Write into this folder of data sets.
    out: Annotated[Path | None, arguments.optional("DIR", "Minari's default folder")] = None
    episodes: arguments.Number = 100  # Play this many fresh episodes.
    seed: arguments.Number = 0  # Draw the fresh episodes from this seed.
    replay: bool = False  # Write the replay buffer from training instead of fresh episodes.
    trust: arguments.Trust = field(default_factory=list)

    def run(self, console: Console) -> int:
        from pac4sac.export.minari import export_minari

        with writing(self.out or Path("Minari's folder")):
            sentence = export_minari(
                self.folder,
                self.name,
                out=self.out,
                episodes=self.episodes,
                seed=self.seed,
                from_replay=self.replay,
            )
        say(console, sentence)
        return 0


@dataclass(frozen=True)
class ExportSubcommands:
    """Export trained agents and learning curves for other programs."""

    command: Annotated[
        Annotated[ExportOnnx, subcommand("onnx")]
        | Annotated[ExportCsv, subcommand("csv")]
        | Annotated[ExportHub, subcommand("hub")]
        | Annotated[ExportMinari, subcommand("minari")],
        arg(name=""),
    ]

    def run(self, console: Console) -> int:
        return self.command.run(console)


ExportCommand = Annotated[OmitSubcommandPrefixes[ExportSubcommands], subcommand("export")]


def named_onnx(argv: list[str]) -> list[str]:
    """Convert arguments of the older form `export DIR --onnx FILE` to those of `export onnx`."""
    if argv[:1] != ["export"] or not any(word.startswith("--onnx") for word in argv):
        return argv
    given = [word.replace("--onnx", "--out", 1) for word in argv[1:]]
    return ["export", "onnx", *given]
