"""`pac4sac study run|plan|status|collect`."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from tyro.conf import OmitSubcommandPrefixes, Positional, arg, subcommand

from pac4sac.base.errors import UserError
from pac4sac.base.text import duration
from pac4sac.base.trust import trust_flags
from pac4sac.cli import arguments
from pac4sac.cli.arguments import optional
from pac4sac.cli.shared import say, writing
from pac4sac.cli.study_display import StudyDisplay, cohort_table, show_end
from pac4sac.runs.seeds import parse_seeds
from pac4sac.studies.live_page import LivePage
from pac4sac.studies.watcher import Watcher

if TYPE_CHECKING:
    from pac4sac.runs.archive import ArchiveChanges
    from pac4sac.studies.definition import Study
    from pac4sac.studies.plan import CohortPlace, PlannedCohort
    from pac4sac.studies.prediction import CohortPrediction, Predictions

AS_THE_STUDY_SAYS = "from the study"
UNLIMITED_MEMORY = 10**15


@dataclass(frozen=True)
class ChosenStudy:
    """Select a study by its name or its file."""

    # Use this study: a name from `pac4sac list studies`, or a TOML file.
    name: Annotated[Positional[str], arg(metavar="NAME|FILE.toml")]
    # Use this study folder.
    out: Annotated[Path | None, optional("DIR", "experiments/study-NAME")] = None
    trust: arguments.Trust = field(default_factory=list)

    def arguments(self) -> str:
        """Return the arguments that select the same study and folder."""
        out = f" --out {shlex.quote(str(self.out))}" if self.out else ""
        return f"{shlex.quote(self.name)}{out}{trust_flags()}"

    def study_and_folder(self) -> "tuple[Study, Path]":
        from pac4sac.studies.definition import load_study
        from pac4sac.studies.run import study_folder

        study = load_study(self.name)
        return study, study_folder(study, self.out)


@dataclass(frozen=True)
class PartOfStudy(ChosenStudy):
    """Select a study, or a part of its seeds, tasks and variants."""

    # Train with these seeds instead of those of the study.
    seeds: Annotated[str | None, optional("SEEDS")] = None
    tasks: Annotated[str | None, optional("A,B")] = None  # Use only these tasks of the study.
    # Use only these variants of the study.
    variants: Annotated[str | None, optional("A,B")] = None
    # Skip the runs of this archive (see study collect), and add new runs to it.
    into: Annotated[Path | None, optional("DIR")] = None
    # Limit the memory for the tensors of one cohort, in MB.
    memory: Annotated[arguments.NumberOrNone, optional("MB", "half of the free memory")] = None

    def study_and_folder(self) -> "tuple[Study, Path]":
        study, folder = super().study_and_folder()
        if self.seeds is not None:
            study = study.with_seeds(tuple(parse_seeds(self.seeds)))
        if self.tasks is not None:
            study = only(study, "tasks", self.tasks)
        if self.variants is not None:
            study = only(study, "variants", self.variants)
        return study, folder

    def memory_in_bytes(self) -> int | None:
        if self.memory is None:
            return None
        if self.memory < 1:
            raise UserError(f"--memory must be at least 1 MB, not {self.memory}.")
        return self.memory * 10**6


def only(study: "Study", kind: Literal["tasks", "variants"], names: str) -> "Study":
    """Return a study with only the tasks or variants in a list such as "A,B"."""
    parts, wanted = getattr(study, kind), names.split(",")
    known = list(dict.fromkeys(part.name for part in parts))
    if missing := sorted(set(wanted) - set(known)):
        asked, one = ", ".join(missing), kind.removesuffix("s")
        raise UserError(f"The study {study.name} has no {one} {asked}; it has {', '.join(known)}.")
    chosen: Any = {kind: tuple(part for part in parts if part.name in wanted)}
    return replace(study, **chosen)


@arguments.with_options(
    "device", "backend", "precision", "step_seconds", otherwise=AS_THE_STUDY_SAYS
)
@dataclass(frozen=True)
class StudyRunCommand(PartOfStudy):
    """Train the missing runs of a study; safe to interrupt and rerun.

    Example: pac4sac study run smoke
    """

    # Train on this machine (local) or on a Ray cluster, or submit Slurm jobs without waiting.
    engine: Literal["local", "ray", "slurm"] = "local"
    # Connect to an existing Ray cluster.
    address: Annotated[str | None, optional("HOST:PORT")] = None
    slurm: arguments.SlurmOptions = field(default_factory=list)
    parallel: arguments.Parallel = None
    max_minutes: arguments.MaxMinutes = None  # Stop after M minutes.
    keep_stale: arguments.KeepStale = False
    track: arguments.Track = "none"
    callback: arguments.Callback = None
    serve: bool = False  # Serve a live page of the study on this machine while it trains.
    # Serve the live page on this port.
    port: Annotated[arguments.NumberOrNone, optional("PORT", "any free port")] = None

    def run(self, console: Console) -> int:
        study, root = self.study_and_folder()
        from pac4sac.studies.run import train_and_report

        how: dict[str, Any] = {
            "engine": self.engine,
            "address": self.address,
            "parallel": self.parallel,
            "max_minutes": self.max_minutes,
            "keep_stale": self.keep_stale,
            "memory": self.memory_in_bytes(),
            "options": arguments.options_of(self),
            "into": self.into,
            "callbacks": arguments.callback_names(self.track, self.callback),
            "slurm": arguments.parse_slurm_options(self.slurm),
        }
        is_served = self.serve or self.port is not None
        if is_served and self.engine == "slurm":
            raise UserError(
                "--serve only shows cohorts that this command trains; for Slurm jobs, use "
                "pac4sac study status."
            )
        with writing(root), StudyDisplay(console) as display, ExitStack() as until_the_end:
            watcher: Watcher = display
            if is_served:
                watcher = until_the_end.enter_context(LivePage(display, self.port or 0))
                say(console, f"Live page: {watcher.address}")
            result, report = train_and_report(study, root, watcher, **how)
        code = show_end(console, result, report.page, report.main_tables)
        if self.engine == "slurm" and not result.complete:
            say(console, f"Show the jobs: pac4sac study status {self.arguments()}")
        if Path(self.name).suffix != ".toml":  # a shipped study
            folder = shlex.quote(str(self.into or root))
            say(console, f"Compare with the paper: pac4sac report {folder} --paper")
        return code


@arguments.with_options("device", otherwise=AS_THE_STUDY_SAYS)
@dataclass(frozen=True)
class StudyPlanCommand(PartOfStudy):
    """Show the cohorts of a study, and estimate their memory and time.

    With --memory, --device may be a GPU that this machine does not have.
    """

    trial: bool = True  # Estimate the time of each cohort from measurements of a few seconds.
    keep_stale: arguments.KeepStale = False

    def run(self, console: Console) -> int:
        study, root = self.study_and_folder()
        from pac4sac.runs.archive import archived
        from pac4sac.studies.plan import place_for_cohorts, plan

        if study.kind == "cost":
            say(console, about_cost(study, root))
            return 0
        chosen = arguments.options_of(self)
        device = {**study.options, **chosen}.get("device", "auto")
        place = place_for_cohorts(device, self.memory_in_bytes())
        known = archived(self.into) if self.into else ()
        cohorts = plan(
            study, root, place.memory, place.on_gpu, keep_stale=self.keep_stale, known=known
        )
        if not cohorts:
            say(console, f"{self.into} has all runs of {study.name}; nothing is left to train.")
            return 0
        columns = {"Memory": [f"{cohort.bytes / 1e6:.0f} MB" for cohort in cohorts]}
        to_train = [cohort for cohort in cohorts if not cohort.is_done()]
        predictions = None
        if self.trial and place.here and to_train:
            predictions = predicted(console, study, to_train, chosen)
            estimates = {c.folder: e for c, e in zip(to_train, predictions.cohorts, strict=True)}
            columns["Estimate"] = [estimate(estimates.get(cohort.folder)) for cohort in cohorts]
        console.print(cohort_table(study, cohorts, columns))
        say(console, total_memory(cohorts, place))
        if self.trial and to_train:
            for sentence in about_time(study, to_train, place, predictions):
                say(console, sentence)
        return 0


def about_cost(study: "Study", root: Path) -> str:
    """Describe the measurements of a cost study, and whether they exist."""
    from pac4sac.studies.cost import MEASURED_STEPS, timed_runs

    runs = timed_runs(study)
    names = ", ".join(dict.fromkeys(run.label for run in runs))
    state = "The results are" if (root / "cost.json").exists() else "It will write the results"
    return (
        f"{study.name} measures cost instead of training runs. It times {MEASURED_STEPS} steps "
        f"of {names}, {study.repetitions} times each. {state} in {root / 'cost.json'}."
    )


def predicted(
    console: Console, study: "Study", cohorts: "Sequence[PlannedCohort]", chosen: Mapping[str, Any]
) -> "Predictions":
    """Measure learners and simulators for some seconds, and predict the time of all cohorts."""
    from pac4sac.studies.prediction import predict
    from pac4sac.training.options import Options

    def options_of(cohort: "PlannedCohort") -> Options:
        given = {**study.options_for(cohort.runs[0].task), **chosen, "steps": cohort.steps}
        return Options(**given)

    with console.status("measuring simulators and learners …"):
        return predict(cohorts, options_of)


def estimate(prediction: "CohortPrediction | None") -> str:
    """Return the cell of a cohort's time; with ~ if its learner was not measured."""
    if prediction is None:
        return "done"
    return ("" if prediction.measured else "~ ") + duration(prediction.seconds)


def total_memory(cohorts: "Sequence[PlannedCohort]", place: "CohortPlace") -> str:
    """Describe the number of planned runs and the memory of a cohort in a sentence."""
    runs = sum(len(cohort.runs) for cohort in cohorts)
    return f"{runs} runs; at most {place.memory / 1e9:.1f} GB per cohort, on {place.device}."


def about_time(
    study: "Study",
    cohorts: "Sequence[PlannedCohort]",
    place: "CohortPlace",
    predictions: "Predictions | None",
) -> Iterator[str]:
    """Yield sentences on the time of all cohorts, and on how it was predicted.

    Args:
        study: The study.
        cohorts: Its cohorts that are not trained yet.
        place: Where they are to be trained.
        predictions: Their predictions; None if the device is not here.
    """
    from pac4sac.studies.local import side_by_side

    if predictions is None:
        yield (
            f"The device {place.device} is not available on this machine, so the time of the "
            "cohorts was not estimated."
        )
        return
    count = side_by_side(cohorts, place.device)
    manner = f"{count} at a time" if count > 1 else "one after another"
    ends_early = any(study.options_for(task).get("stop_when_solved") for task in study.tasks)
    total = f"{'at most' if ends_early else 'about'} {duration(predictions.total(count))}"
    if compiling := predictions.compiling(count):
        total += f", including {duration(compiling)} to compile programs"
    yield f"Trained {manner}, the cohorts take {total}."
    yield (
        "The time is calculated from measurements: a step of each simulator, and eager updates "
        f"of {predictions.measured} of {predictions.kinds} kinds of learners."
    )
    if predictions.measured < predictions.kinds:
        yield (
            "The time limit did not allow measurements of all learners. Estimates marked with ~ "
            "are based on the sizes of networks and batches."
        )


@dataclass(frozen=True)
class StudyStatusCommand(ChosenStudy):
    """Show which runs of a study are done, running, failed or waiting, and their Slurm jobs."""

    def run(self, console: Console) -> int:
        study, root = self.study_and_folder()
        from pac4sac.studies.plan import plan, read_study
        from pac4sac.studies.slurm.queue import job_states

        if read_study(root) is None:
            raise UserError(
                f"{root} has no study yet; start this study with: pac4sac study run "
                f"{self.arguments()}"
            )
        if study.kind == "cost":
            say(console, about_cost(study, root))
            return 0
        cohorts = plan(study, root, UNLIMITED_MEMORY)
        columns = {"Status": [counted_statuses(cohort) for cohort in cohorts]}
        if jobs := job_states(root):
            columns["Job"] = [
                "" if cohort.is_done() else str(jobs.get(cohort.folder.name, ""))
                for cohort in cohorts
            ]
        console.print(cohort_table(study, cohorts, columns))
        return 0


def counted_statuses(cohort: "PlannedCohort") -> str:
    """Return the number of runs by status, such as "2 finished, 1 waiting"."""
    counts = Counter(cohort.statuses())
    return ", ".join(f"{count} {status}" for status, count in counts.items())


@dataclass(frozen=True)
class StudyCollectCommand:
    """Add finished runs of studies or experiments to an archive.

    Example: pac4sac study collect piece-1 piece-2 --into results
    """

    folders: arguments.Folders  # Read these study folders, experiment folders or archives.
    # Add the runs to this archive; finished runs replace unfinished ones in it.
    into: Annotated[Path, arg(metavar="DIR")]
    unfinished: bool = False  # Add unfinished runs too.
    # If copies of a run have different returns, keep the copy in the archive, or else the copy in
    # the first folder.
    keep_first: bool = False

    def run(self, console: Console) -> int:
        from pac4sac.runs.archive import add_to_archive

        if not self.folders:
            raise UserError(
                "study collect needs at least one folder, as in: pac4sac study collect piece-1 "
                "--into results."
            )
        with writing(self.into):
            added = add_to_archive(
                self.folders, self.into, unfinished=self.unfinished, keep_first=self.keep_first
            )
        for sentence in collected(self.into, added):
            say(console, sentence)
        return 0


def collected(archive: Path, added: "ArchiveChanges") -> Iterator[str]:
    """Yield sentences on the changes of an archive."""
    yield (
        f"{added.new} new runs in {archive}; {added.replaced} runs were replaced, {added.known} "
        "were already present."
    )
    if added.differing:
        count = len(added.differing)
        yield f"{count} runs have copies with different returns; the first copy of each was kept."
    if added.unfinished:
        count = len(added.unfinished)
        yield f"{count} unfinished runs were left out; add --unfinished to include them."
    for name, (present, expected) in added.studies.items():
        if expected:
            missing = f"; {expected - present} missing" if present < expected else ""
            yield f"{name}: {present} of {expected} expected runs{missing}."


@dataclass(frozen=True)
class StudySubcommands:
    """Plan, run and monitor studies. A study is a set of runs that answer one question."""

    command: Annotated[
        Annotated[StudyRunCommand, subcommand("run")]
        | Annotated[StudyPlanCommand, subcommand("plan")]
        | Annotated[StudyStatusCommand, subcommand("status")]
        | Annotated[StudyCollectCommand, subcommand("collect")],
        arg(name=""),
    ]

    def run(self, console: Console) -> int:
        return self.command.run(console)


StudyCommand = Annotated[OmitSubcommandPrefixes[StudySubcommands], subcommand("study")]
