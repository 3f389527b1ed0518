"""The commands about studies: `study run|plan|status|collect`, `compare` and `report`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import OmitSubcommandPrefixes, Positional, UseAppendAction, arg, subcommand

from pac4sac.base.errors import UserError
from pac4sac.base.text import duration
from pac4sac.cli.agent_commands import INTERRUPTED, writing
from pac4sac.cli.arguments import parse_settings
from pac4sac.cli.study_display import StudyDisplay, cohort_table, memory_of, say, show_tables, status_of
from pac4sac.runs.seeds import parse_seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from pac4sac.report.tables import Table
    from pac4sac.studies.definition import Study as StudyDefinition
    from pac4sac.training.experiment import Result

StudyName = Annotated[Positional[str], arg(metavar="NAME|FILE.toml")]
SomeFolders = Annotated[Positional[list[Path]], arg(metavar="DIR...", help_behavior_hint="(required)")]
OptionalFolder = Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: experiments/study-NAME)")]
Megabytes = Annotated[int | None, arg(metavar="MB", help_behavior_hint="(default: half of what is free)")]
Device = Annotated[str | None, arg(metavar="DEVICE", help_behavior_hint="(default: as the study says, else auto)")]


@dataclass(frozen=True)
class StudyRun:
    """Train what a study asks for and is not trained yet. Interrupt it and call it again: it goes on.

    Example: pac4sac study run smoke
    """

    # A name from `pac4sac list studies`, or a study of your own.
    name: StudyName
    # Study folder.
    out: OptionalFolder = None
    # Where to train: on this machine, or as tasks of a Ray cluster.
    engine: Literal["local", "ray"] = "local"
    # Address of an existing Ray cluster.
    address: Annotated[str | None, arg(metavar="HOST:PORT", help_behavior_hint="(optional)")] = None
    # Cohorts trained side by side.
    parallel: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: as the cores allow)")] = None
    # Memory that the tensors of one cohort may take.
    memory: Megabytes = None
    # Seeds instead of the study's own.
    seeds: Annotated[str | None, arg(metavar="SEEDS", help_behavior_hint="(optional)")] = None
    # Only these tasks of the study.
    tasks: Annotated[str | None, arg(metavar="A,B", help_behavior_hint="(optional)")] = None
    # Stop after so many minutes.
    max_minutes: Annotated[float | None, arg(metavar="M", help_behavior_hint="(optional)")] = None
    # cpu, cuda, or auto.
    device: Device = None
    # How to compute.
    backend: Annotated[
        Literal["auto", "eager", "compiled", "graph"] | None,
        arg(metavar="auto|eager|compiled|graph", help_behavior_hint="(default: as the study says, else auto)"),
    ] = None
    # Of matrix products on a GPU.
    precision: Annotated[
        Literal["float32", "tf32"] | None,
        arg(metavar="float32|tf32", help_behavior_hint="(default: as the study says, else float32)"),
    ] = None

    def run(self, console: "Console") -> int:
        study = chosen_study(self.name, self.seeds, self.tasks)
        flags = {"device": self.device, "backend": self.backend, "precision": self.precision}
        from pac4sac.paper.report import main_tables
        from pac4sac.runs.collection import collect
        from pac4sac.studies.run import study_folder, train_and_report

        root = study_folder(study, self.out)
        with writing(root), StudyDisplay(console) as display:
            result, page = train_and_report(
                study,
                root,
                display,
                engine=self.engine,
                address=self.address,
                parallel=self.parallel,
                memory=megabytes(self.memory),
                max_minutes=self.max_minutes,
                options={name: value for name, value in flags.items() if value is not None},
            )
        return tell_end(console, result, page, main_tables(collect([root])) if result.complete else [])


@dataclass(frozen=True)
class StudyPlan:
    """Show the cohorts of a study, their memory, and their time estimated from a short measured trial."""

    # A name from `pac4sac list studies`, or a study of your own.
    name: StudyName
    # Study folder.
    out: OptionalFolder = None
    # Memory that the tensors of one cohort may take.
    memory: Megabytes = None
    # Seeds instead of the study's own.
    seeds: Annotated[str | None, arg(metavar="SEEDS", help_behavior_hint="(optional)")] = None
    # Only these tasks of the study.
    tasks: Annotated[str | None, arg(metavar="A,B", help_behavior_hint="(optional)")] = None
    # cpu, cuda, or auto; with --memory also a GPU that this machine lacks.
    device: Device = None
    # Measure the time of each cohort in a trial.
    trial: bool = True

    def run(self, console: "Console") -> int:
        study = chosen_study(self.name, self.seeds, self.tasks)
        from pac4sac.studies.plan import measured_seconds, place_for_cohorts, plan
        from pac4sac.studies.run import study_folder

        place = place_for_cohorts(self.device or study.options.get("device", "auto"), megabytes(self.memory))
        cohorts = plan(study, study_folder(study, self.out), place.memory, place.on_gpu)
        seconds = []
        for cohort in cohorts if self.trial and place.here else []:
            with console.status(f"trying {cohort.title} …"):
                seconds.append(measured_seconds(cohort, place.device))
        columns = {"Memory": [memory_of(cohort) for cohort in cohorts]}
        if seconds:
            columns["Estimate"] = [duration(s) for s in seconds]
        console.print(cohort_table(study, cohorts, columns))
        runs, most = sum(len(cohort.runs) for cohort in cohorts), place.memory / 1e9
        say(console, f"{runs} runs; at most {most:.1f} GB a cohort, on {place.device}.")
        if self.trial and not place.here:
            say(console, f"This machine has no {place.device}, so how long they take was not measured.")
        if seconds:
            say(console, f"One after another about {duration(sum(seconds))}.")
        return 0


@dataclass(frozen=True)
class StudyStatus:
    """Show what of a study is done, running, failed or waiting."""

    # A name from `pac4sac list studies`, or a study of your own.
    name: StudyName
    # Study folder.
    out: OptionalFolder = None

    def run(self, console: "Console") -> int:
        study = chosen_study(self.name, None, None)
        from pac4sac.studies.plan import plan, read_study
        from pac4sac.studies.run import study_folder

        root = study_folder(study, self.out)
        if read_study(root) is None:
            raise UserError(f"{root} holds no study yet; start it with: pac4sac study run {self.name}.")
        cohorts = plan(study, root, 10**15)
        console.print(cohort_table(study, cohorts, {"Status": [status_of(cohort) for cohort in cohorts]}))
        return 0


@dataclass(frozen=True)
class StudyCollect:
    """Put finished runs, of one study in several pieces or of many, into an archive that reports are made from.

    Example: pac4sac study collect piece-1 piece-2 --into results
    """

    # Study or experiment folders, or archives.
    folders: SomeFolders
    # The archive; what it holds already stays, and unfinished runs in it give way to finished ones.
    into: Annotated[Path, arg(metavar="DIR")]
    # Take unfinished runs too.
    unfinished: bool = False
    # Of a run trained twice with different returns keep the one found first: in the archive, then as folders are named.
    keep_first: bool = False

    def run(self, console: "Console") -> int:
        from pac4sac.runs.archive import add_to_archive

        if not self.folders:
            raise UserError("Which folders? Name at least one, as in: pac4sac study collect piece-1 --into results.")
        with writing(self.into):
            added = add_to_archive(self.folders, self.into, unfinished=self.unfinished, keep_first=self.keep_first)
        told = f"{added.new} new runs in {self.into}, {added.replaced} replaced, {added.known} there already."
        say(console, told)
        if added.differing:
            say(console, f"{len(added.differing)} were trained twice with different returns; the first was kept.")
        if added.unfinished:
            say(console, f"{len(added.unfinished)} unfinished runs were left out; --unfinished takes them too.")
        for name, (present, expected) in added.studies.items():
            if expected:
                say(console, f"{name}: {present} of {expected} expected runs.")
        return 0


@dataclass(frozen=True)
class Study:
    """Studies: sets of runs that answer one question."""

    command: (
        Annotated[StudyRun, subcommand("run")]
        | Annotated[StudyPlan, subcommand("plan")]
        | Annotated[StudyStatus, subcommand("status")]
        | Annotated[StudyCollect, subcommand("collect")]
    )

    def run(self, console: "Console") -> int:
        return self.command.run(console)


@dataclass(frozen=True)
class Compare:
    """Train several algorithms on a task and compare them, with intervals.

    Example: pac4sac compare Pendulum-v1 --algos pac4sac,sac,ddpg --seeds 0:5
    """

    # A name from `pac4sac list tasks`, or any Gymnasium id with continuous actions.
    task: Annotated[Positional[str], arg(metavar="TASK")]
    # Names from `pac4sac list algos`, or your own as module:Class.
    algos: Annotated[str, arg(metavar="A,B,C")] = "pac4sac,sac,ddpg"
    # 3, or 0:5 (without the 5), or 0,2,7.
    seeds: Annotated[str, arg(metavar="SEEDS")] = "0:5"
    # Environment steps of each run.
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: the task's own)")] = None
    # The one that the others are tested against.
    baseline: Annotated[str | None, arg(metavar="A", help_behavior_hint="(default: the first of --algos)")] = None
    # A set of settings from `pac4sac list presets`, given to those algorithms that have it.
    preset: str = "paper"
    # Settings, given to those algorithms that have them.
    settings: Annotated[UseAppendAction[list[list[str]]], arg(name="set", metavar="NAME=VALUE")] = field(
        default_factory=list
    )
    # Study folder.
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: experiments/study-compare-TASK)")] = (
        None
    )
    # Cohorts trained side by side.
    parallel: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: as the cores allow)")] = None
    # Stop after so many minutes; call it again to go on.
    max_minutes: Annotated[float | None, arg(metavar="M", help_behavior_hint="(optional)")] = None
    # cpu, cuda, or auto.
    device: str = "auto"
    # How to compute.
    backend: Literal["auto", "eager", "compiled", "graph"] = "auto"
    # Of matrix products on a GPU.
    precision: Literal["float32", "tf32"] = "float32"

    def run(self, console: "Console") -> int:
        settings = parse_settings([text for group in self.settings for text in group])
        seeds = parse_seeds(self.seeds)
        from pac4sac.studies.compare import compare

        with writing(self.out or Path("experiments")), StudyDisplay(console) as display:
            found = compare(
                self.task,
                self.algos,
                seeds=seeds,
                preset=self.preset,
                settings=settings,
                steps=self.steps,
                baseline=self.baseline,
                out=self.out,
                parallel=self.parallel,
                max_minutes=self.max_minutes,
                watcher=display,
                device=self.device,
                backend=self.backend,
                precision=self.precision,
            )
        return tell_end(console, found, found.page, found.tables)


@dataclass(frozen=True)
class Report:
    """Write tables, figures and a page from the runs in some folders: HTML, Markdown, LaTeX, CSV, SVG and PDF."""

    # Experiment, study or run folders.
    folders: SomeFolders
    # Folder of the report.
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: report/ in the first folder)")] = None
    # For a repository: Markdown as a README with a page for each section, and neither LaTeX nor PDF.
    pages: bool = False

    def run(self, console: "Console") -> int:
        if not self.folders:
            raise UserError("Which folders? Name at least one, as in: pac4sac report experiments/study-smoke.")
        from pac4sac.paper.report import write_report

        out = self.out or self.folders[0] / "report"
        with writing(out):
            page = write_report(self.folders, out, in_pages=self.pages)
        say(console, f"Report: {page}")
        return 0


# --- what they share


def chosen_study(name: str, seeds: str | None, tasks: str | None) -> "StudyDefinition":
    from dataclasses import replace

    from pac4sac.studies.definition import load_study

    study = load_study(name)
    if seeds is not None:
        study = replace(study, seeds=tuple(parse_seeds(seeds)))
    if tasks is not None:
        wanted = tasks.split(",")
        missing = set(wanted) - {task.name for task in study.tasks}
        if missing:
            known = ", ".join(task.name for task in study.tasks)
            raise UserError(f"The study {study.name} has no task {', '.join(sorted(missing))}; it has {known}.")
        study = replace(study, tasks=tuple(task for task in study.tasks if task.name in wanted))
    return study


def megabytes(memory: int | None) -> int | None:
    if memory is not None and memory < 1:
        raise UserError(f"--memory must be at least 1 MB, not {memory}.")
    return None if memory is None else memory * 10**6


def tell_end(console: "Console", result: "Result", page: Path, tables: "Sequence[Table]") -> int:
    if not result.complete:
        say(console, f"Stopped before the end; go on by the same command. So far: {page}")
        return INTERRUPTED if result.reason is not None and result.reason.by_signal else 0
    show_tables(console, tables)
    say(console, f"Report: {page}")
    return 0


StudyCommand = OmitSubcommandPrefixes[Study]
