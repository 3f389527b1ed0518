"""Train several studies together on a machine that is lent for minutes, and pack what they made.

    python tools/campaign.py run FILE --seconds 540 --out $OUT     # on that machine
    python tools/campaign.py unpack PART... --into results         # at home

FILE lists commands `pac4sac study run …`, one per line, the most important first. Their cohorts
train as those of one study: they share the GPU and the cores, and the next one starts when another
has ended. Training stops with checkpoints in time for packing. The same command continues from the
folders that are still there, and trains no run that an archive (--known) holds."""

import argparse
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

STARTED = time.monotonic()  # before the slow imports

from campaign_progress import CampaignWatcher, row, table  # noqa: E402
from parts import PART, pack, unpack  # noqa: E402
from rich.console import Console  # noqa: E402

from pac4sac.base.errors import UserError  # noqa: E402
from pac4sac.base.stopping import GRACE, StopRequest  # noqa: E402
from pac4sac.cli.arguments import options_of  # noqa: E402
from pac4sac.cli.main import parse  # noqa: E402
from pac4sac.cli.study import StudyRunCommand, StudySubcommands, collected  # noqa: E402
from pac4sac.runs.archive import add_to_archive, archived  # noqa: E402
from pac4sac.runs.reading import RunRecord  # noqa: E402
from pac4sac.studies.definition import Study  # noqa: E402
from pac4sac.studies.local import run_local, side_by_side  # noqa: E402
from pac4sac.studies.plan import PlannedCohort, begin, place_for_cohorts, plan  # noqa: E402
from pac4sac.studies.run import name_the_same, place_of  # noqa: E402

COMPLETE, FAILED, MISTAKE, STOPPED = 0, 1, 2, 3
COMMAND = ["pac4sac", "study", "run"]
OF_THE_CAMPAIGN = ("out", "into", "parallel", "max_minutes", "serve", "port", "callback")
PER_RANK = 1e9  # seconds; longer than any cohort
LARGEST_PART = 15.0  # MiB


# --- what is to be trained


@dataclass(frozen=True)
class RankedCohort(PlannedCohort):
    """A cohort that starts before those of later commands, and has priority on the cores."""

    ahead: int = 0  # number of commands that follow

    @property
    def duration(self) -> float:
        return super().duration + PER_RANK * self.ahead


@dataclass(frozen=True)
class PlannedStudy:
    """One command of a campaign: a study, its folder and its cohorts."""

    study: Study
    root: Path
    cohorts: list[PlannedCohort]
    options: dict[str, Any]


def commands(file: Path) -> list[StudyRunCommand]:
    """Return the commands in a file.

    Raises:
        UserError: A line is something else, or has an option that belongs to the campaign.
    """
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        words = shlex.split(line, comments=True)
        if words:
            found.append(_command(words, f"{file}:{number}"))
    if not found:
        raise UserError(f"{file} has no command; write one per line: {' '.join(COMMAND)} STUDY.")
    return found


def _command(words: Sequence[str], place: str) -> StudyRunCommand:
    if list(words[:3]) != COMMAND:
        raise UserError(f"{place} is not a command {' '.join(COMMAND)} …: {shlex.join(words)}.")
    parsed = parse(list(words[1:]))
    assert isinstance(parsed, StudySubcommands)
    assert isinstance(parsed.command, StudyRunCommand)
    defaults = {each.name: each.default for each in fields(StudyRunCommand)}
    for name in OF_THE_CAMPAIGN:
        if getattr(parsed.command, name) != defaults[name]:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{place} has {flag}, which the campaign decides; leave it out.")
    return parsed.command


def planned(
    command: StudyRunCommand, root: Path, known: Sequence[RunRecord], ahead: int
) -> PlannedStudy:
    """Plan one command in the folder `root`.

    Args:
        command: The command.
        root: Its study folder.
        known: Runs of archives, which are not trained again.
        ahead: Number of commands that follow.
    """
    study, _ = command.study_and_folder()
    options = options_of(command)
    place = place_of(study, "local", command.memory_in_bytes(), options)
    found = plan(
        study, root, place.memory, place.on_gpu, keep_stale=command.keep_stale, known=known
    )
    cohorts = [RankedCohort(each.folder, each.runs, each.bytes, ahead) for each in found]
    begin(study, root, cohorts, options, known)
    return PlannedStudy(study, root, [*cohorts], options)


def planned_studies(
    asked: Sequence[StudyRunCommand], folder: Path, known: Sequence[RunRecord]
) -> list[PlannedStudy]:
    """Plan all commands. Those of the same study share its folder."""
    made: list[PlannedStudy] = []
    taken: set[Path] = set()  # cohorts of earlier commands
    for number, command in enumerate(asked):
        root = folder / "studies" / command.study_and_folder()[0].name
        each = planned(command, root, known, len(asked) - number)
        cohorts = [cohort for cohort in each.cohorts if cohort.folder not in taken]
        taken |= {cohort.folder for cohort in cohorts}
        made.append(PlannedStudy(each.study, root, cohorts, each.options))
    return made


# --- training


def train(
    studies: Sequence[PlannedStudy],
    watcher: CampaignWatcher,
    parallel: int | None,
    stop_after: float,
    patience: float,
) -> list[str]:
    """Train all cohorts that have not ended, and stop them in time.

    Args:
        studies: What to train.
        watcher: Is informed of the progress.
        parallel: Cohorts at a time; None to choose.
        stop_after: Seconds after the start of this call at which cohorts are asked to stop.
        patience: Seconds for their checkpoints. Cohorts that take longer are ended: those that
            still compile, for instance. Their last checkpoint counts.

    Returns:
        A sentence for every cohort that failed.
    """
    cohorts = [each for study in studies for each in study.cohorts if not each.is_done()]
    if not cohorts:
        return []
    used = {**studies[0].study.options, **studies[0].options}
    device = place_for_cohorts(used.get("device", "auto"), None).device
    at_a_time = parallel or side_by_side(cohorts, device)
    left = max(1.0, stop_after - watcher.elapsed())
    watcher.console.print(
        f"{len(cohorts)} cohorts, {at_a_time} at a time on {device}, for {left:.0f} s"
    )
    stop = StopRequest(left / 60)
    by_force = threading.Timer(left + patience, os.kill, (os.getpid(), signal.SIGINT))
    by_force.daemon = True
    by_force.start()
    try:
        with stop:
            return run_local(cohorts, at_a_time, stop, watcher, device.type == "cuda")
    except KeyboardInterrupt:  # the second request to stop, of this timer or of the user
        watcher.console.print("Some cohorts did not stop in time; their last checkpoints count.")
        return []
    finally:
        by_force.cancel()


# --- what comes back


def collect(studies: Sequence[PlannedStudy], archive: Path, unfinished: bool) -> list[str]:
    """Write the archive of the campaign; return sentences about it.

    A cohort that has not ended is left out, also its runs that have. On another machine it starts
    again, and if only the runs that were not solved were trained again, they would have a second
    chance.
    """
    for each in studies:
        name_the_same(each.study.runs(), [cohort for cohort in each.cohorts if cohort.is_done()])
    if archive.exists():
        shutil.rmtree(archive)
    folders = list(dict.fromkeys(each.root for each in studies))
    ended: dict[bool, set[str]] = {True: set(), False: set()}
    for cohort in (cohort for each in studies for cohort in each.cohorts):
        ended[cohort.is_done()] |= {run.identity for run in cohort.runs}
    added = add_to_archive(
        folders,
        archive,
        unfinished=unfinished,
        keep_first=True,
        leave_out=() if unfinished else ended[False] - ended[True],
    )
    return [*collected(archive, added)]


def known_runs(places: Sequence[Path]) -> list[RunRecord]:
    """Return the finished runs of archives, and of folders with parts that were carried back."""
    found: list[RunRecord] = []
    for place in places:
        parts = sorted(place.glob(f"*.{PART}*"))
        if not parts:
            found += archived(place)
            continue
        with tempfile.TemporaryDirectory() as folder:
            unpack(parts, Path(folder))
            found += archived(Path(folder, "archive"))
    return found


# --- commands


def run(options: argparse.Namespace) -> int:
    """Train, stop in time, print the table and pack."""
    if not 0 < options.reserve < options.seconds:
        raise UserError("--reserve must be above 0 and below --seconds.")
    console = Console(highlight=False, width=120)
    asked = commands(options.file)
    studies = planned_studies(asked, options.folder, known_runs(options.known))
    watcher = CampaignWatcher(console, options.began)
    patience = max(1.0, options.reserve / 2 - GRACE / 2)
    stop_after = options.seconds - options.reserve
    failures = train(studies, watcher, options.parallel, stop_after, patience)
    content = [
        row(each.study.name, cohort, watcher.courses.get(cohort.folder))
        for each in studies
        for cohort in each.cohorts
    ]
    seconds = watcher.elapsed()
    console.print(table(content))
    done, all_runs = (sum(each[name] for each in content) for name in ("finished", "runs"))
    console.print(
        f"{done} of {all_runs} runs have ended. {watcher.run_steps():,} run-steps in "
        f"{seconds:.0f} s: {watcher.run_steps() / seconds:,.0f} per second with start and stop."
    )
    options.out.mkdir(parents=True, exist_ok=True)
    summary = {"seconds": seconds, "run_steps": watcher.run_steps(), "cohorts": content}
    (options.out / "campaign.json").write_text(json.dumps(summary, indent=1) + "\n")
    _pack_all(studies, options, console)
    if failures:
        return FAILED
    return COMPLETE if done == all_runs else STOPPED


def _pack_all(
    studies: Sequence[PlannedStudy], options: argparse.Namespace, console: Console
) -> None:
    """Pack the archive and the other files that are wanted.

    If logs are damaged, there is no archive; then pack the logs themselves.
    """
    archive, base = options.folder / "archive", options.folder
    try:
        for sentence in collect(studies, archive, options.unfinished):
            console.print(sentence)
        paths = [archive]
    except UserError as error:
        console.print(f"The runs were not collected, so their folders are packed: {error}")
        paths = list(base.glob("studies/*/experiments/*/runs/*/*.json*"))
    extra = [path for pattern in options.also for path in sorted(base.glob(pattern))]
    parts = pack([*paths, *extra], base, options.out, options.part)
    size = sum(part.stat().st_size for part in parts) / 2**20
    console.print(
        f"Packed {size:.1f} MiB in {len(parts)} parts: {', '.join(p.name for p in parts)}"
    )


def take_home(options: argparse.Namespace) -> int:
    """Unpack parts, and add their runs to an archive."""
    console = Console(highlight=False, width=120)
    with tempfile.TemporaryDirectory() as folder:
        unpack(options.parts, Path(folder))
        if options.files is not None:
            shutil.copytree(folder, options.files, dirs_exist_ok=True)
        if options.into is not None:
            added = add_to_archive([Path(folder, "archive")], options.into)
            for sentence in collected(options.into, added):
                console.print(sentence)
    return COMPLETE


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = made.add_subparsers(required=True)
    each = kinds.add_parser("run", help="train, stop in time and pack")
    each.add_argument("file", type=Path, help="commands, one per line")
    each.add_argument("--seconds", type=float, required=True, help="time of the whole call")
    each.add_argument("--reserve", type=float, default=40.0, help="of it for the end (default: 40)")
    each.add_argument("--folder", type=Path, default=Path("experiments/campaign"))
    each.add_argument("--known", type=Path, action="append", default=[], help="archive or parts")
    each.add_argument("--parallel", type=int, help="cohorts at a time")
    each.add_argument("--unfinished", action="store_true", help="collect unfinished runs too")
    each.add_argument("--also", action="append", default=[], help="pack these files of --folder")
    each.add_argument("--part", type=float, default=LARGEST_PART, help="MiB (default: 15)")
    each.add_argument("--out", type=Path, required=True, help="folder of the packed runs")
    each.set_defaults(action=run)
    each = kinds.add_parser("unpack", help="add the packed runs to an archive")
    each.add_argument("parts", type=Path, nargs="+")
    each.add_argument("--into", type=Path, help="archive")
    each.add_argument("--files", type=Path, help="folder for everything that was packed")
    each.set_defaults(action=take_home)
    return made


def main(arguments: Sequence[str] | None = None, began: float | None = None) -> int:
    options = parser().parse_args(arguments)
    options.began = time.monotonic() if began is None else began
    try:
        return int(options.action(options))
    except (UserError, OSError) as error:
        print(error, file=sys.stderr)
        return MISTAKE


if __name__ == "__main__":
    sys.exit(main(began=STARTED))
