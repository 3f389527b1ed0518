"""Sections on missing and broken runs, definitions of the numbers, and the origin of the runs."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from pac4sac.base.grouping import group_by
from pac4sac.base.text import assignments
from pac4sac.report.commands import DEFAULT_PRESET
from pac4sac.report.comparison import Context
from pac4sac.report.sentences import verdict_sentences
from pac4sac.report.tables import TEXTS, Block, Cell, Section, Table, command, data, numbered, words
from pac4sac.report.variants import Outcome, Variant
from pac4sac.runs import critic_range
from pac4sac.runs.collection import Collection, MissingRun
from pac4sac.runs.reading import RunRecord, damage_text
from pac4sac.runs.seeds import seeds_text
from pac4sac.runs.statistics import RESAMPLES
from pac4sac.runs.status import BROKEN_OFF, CUT_SHORT

NOT_RECORDED = "not recorded"  # in runs of older versions
HOW = ("device", "backend", "precision")


def facts(context: Context) -> list[tuple[str, str]]:
    """Return the (title, value) pairs at the top of the page: complete runs, tasks and so on."""
    runs, tasks = _states(context)["complete"], len(context.task_names)
    return [
        (f"{runs:,}", "complete run" if runs == 1 else "complete runs"),
        (str(tasks), "task" if tasks == 1 else "tasks"),
    ]


def _states(context: Context) -> Counter[str]:
    """Return the number of runs by their state."""
    return Counter(
        outcome.state for variant in context.all_variants for outcome in variant.outcomes
    )


def incomplete_runs(context: Context) -> dict[str, int]:
    """Return the number of started runs without a result, by their state."""
    states = _states(context)
    found = {state: states[state] for state in ("unfinished", *CUT_SHORT)}
    found["unreadable"] = len(context.collection.unreadable)
    return {state: n for state, n in found.items() if n}


def runs_section(context: Context) -> Section:
    """Return the section on missing, incomplete and damaged runs."""
    collection = context.collection
    blocks: list[Block] = []
    if broken := _broken_runs(context.all_variants):
        blocks += [TEXTS["broken_runs"], _broken_table(broken)]
    if collection.missing:
        blocks.append(_missing_table(collection))
    if notes := _notes(collection):
        blocks.append(notes)
    return Section("runs", "Missing and broken runs", blocks or [TEXTS["all_complete"]])


def _notes(collection: Collection) -> list[str]:
    """Return sentences on runs with a replay mismatch, duplicates and damaged logs."""
    notes = [*collection.twice, *left_out(collection)]
    mismatches = [f"`{run.place}`" for run in collection.runs if _has_replay_mismatch(run.record)]
    if mismatches:
        notes.insert(0, TEXTS["replay_mismatch"].format(runs=", ".join(mismatches)))
    texts = [critic_range.warning_of(run.record.about) for run in collection.runs]
    return [*notes, *filter(None, texts)]


def _has_replay_mismatch(run: RunRecord) -> bool:
    return bool(run.about.get("replay_mismatch") or run.about.get("strayed"))  # older runs


def _broken_runs(variants: Iterable[Variant]) -> list[tuple[Variant, Outcome]]:
    """Return the runs that are incomplete or ended early."""
    outcomes = [(variant, outcome) for variant in variants for outcome in variant.outcomes]
    return [
        (variant, outcome)
        for variant, outcome in outcomes
        if outcome.state != "complete" or outcome.run.record.status in BROKEN_OFF
    ]


def _broken_table(broken: Iterable[tuple[Variant, Outcome]]) -> Table:
    titles = ("Run", "Task", "Variant", "Seed", "Status", "Metrics", "Episodes", "Cause")
    rows = []
    for variant, outcome in broken:
        run = outcome.run.record
        names = (outcome.run.place, variant.task.title, variant.label, run.seed, run.status)
        rows.append((*names, outcome.state, len(run.episodes), run.status_detail or ""))
    columns = numbered(titles, ("Seed", "Episodes"))
    return Table("unfinished-runs", "Runs that diverged, failed or are unfinished", columns, rows)


def _missing_table(collection: Collection) -> Table:
    """Return the table of missing runs by variant, with the commands that train them."""
    missing = group_by(collection.missing, attrgetter("task", "label", "studies", "experiment"))
    rows = []
    for (task, label, studies, _), runs in missing.items():
        seeds = Cell(seeds_text(run.seed for run in runs), runs[0].seed)
        resume = _resume_command(collection, runs[0], seeds.text)
        rows.append((task, label, seeds, len(runs), ", ".join(studies), resume))
    columns = numbered(("Task", "Variant", "Seeds", "Runs", "Studies"), ("Seeds", "Runs"))
    columns.append(command(itemgetter(5), title="Train with"))
    return Table("missing-runs", "Planned runs that have not started", columns, rows)


def _resume_command(collection: Collection, run: MissingRun, seeds: str) -> str:
    definitions = {study.name: study.definition for study in collection.studies}
    known = [definitions[name] for name in run.studies if definitions[name]]
    if not known:
        return shlex.join(["pac4sac", "resume", run.experiment])
    words = ["pac4sac", "study", "run", known[0], "--tasks", run.task, "--seeds", seeds]
    return shlex.join(words)


def left_out(collection: Collection) -> list[str]:
    """Return sentences on damaged files that the report leaves out."""
    notes = [f"Not readable: {sentence}" for sentence in collection.unreadable]
    damaged = [
        f"`{run.place}`: {damage_text(run.record)}" for run in collection.runs if run.record.damage
    ]
    if damaged:
        shown = "; ".join(sorted(damaged))
        notes.append(f"From these damaged logs, only complete lines were read: {shown}.")
    return notes


# --- definitions and origin of the numbers


def method_section(further: Sequence[str] = ()) -> Section:
    """Return the section on definitions and statistics."""
    items = [text.format(resamples=RESAMPLES, tests=TEXTS["tests"]) for text in TEXTS["method"]]
    return Section("method", "Definitions and statistics", [[*items, *further, TEXTS["few_seeds"]]])


def provenance_section(context: Context) -> Section:
    """Return the section on dates, studies, versions, machines and settings."""
    collection, variants = context.collection, context.all_variants
    blocks: list[Block] = [_dates_in_words(collection.dates)]
    if collection.studies:
        blocks.append([f"Study `{s.name}` (`{s.place}`). {s.title}" for s in collection.studies])
    if rows := _versions_and_machines(collection):
        columns = numbered(("What", "Value", "Runs"), ("Runs",))
        blocks.append(
            Table("versions", "Software versions and machines of the runs", columns, rows)
        )
    if variants:
        blocks += [_computing_table(variants), _settings_table(variants)]
    return Section("provenance", "Provenance", blocks)


def _dates_in_words(dates: Sequence[str]) -> str:
    if not dates:
        return "The folders do not record when the runs were trained."
    when = f"between {dates[0]} and {dates[-1]}" if len(dates) > 1 else f"on {dates[0]}"
    return f"The runs were trained {when}."


def _versions_and_machines(collection: Collection) -> list[tuple[str, str, int]]:
    """Return each pair of version and machine with its number of runs."""
    records = [run.record for run in collection.runs]
    versions = Counter((name, str(v)) for record in records for name, v in record.versions.items())
    machines = Counter(("machine", _machine(record)) for record in records if record.machine)
    counted = [*sorted(versions.items()), *sorted(machines.items())]
    return [(name, value, n) for (name, value), n in counted]


def _machine(run: RunRecord) -> str:
    known = [f"{name} {value}" for name, value in run.machine.items() if value is not None]
    return ", ".join(known)


def _computing_table(variants: Sequence[Variant]) -> Table:
    """Return the table of devices, backends and precisions; the CSV has a line per variant."""
    ways = group_by(_runs(variants), key=_task_and_computing)
    counts = {way: Counter(variant.label for variant, _ in runs) for way, runs in ways.items()}
    rows = [(*way, Cell(", ".join(labels)), labels.total()) for way, labels in counts.items()]

    def by_variant(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        *way, _, _ = row
        return [(*way, label, n) for label, n in counts[tuple(way)].items()]

    columns = numbered(("Task", "Device", "Backend", "Precision", "Variants", "Runs"), ("Runs",))
    columns.append(data("task", *HOW, "variant", "runs", get=lambda part: part))
    return Table(
        "computing", "Devices, backends and precisions of the runs", columns, rows, by_variant
    )


def _runs(variants: Iterable[Variant]) -> list[tuple[Variant, RunRecord]]:
    return [(variant, run) for variant in variants for run in variant.runs]


def _task_and_computing(of_variant: tuple[Variant, RunRecord]) -> tuple[str, ...]:
    """Return the task of a run, its device, backend and precision."""
    variant, run = of_variant
    return variant.task.title, *(run.computed.get(name, NOT_RECORDED) for name in HOW)


def _settings_table(variants: Sequence[Variant]) -> Table:
    columns = [
        words("Task", "task.title", "task"),
        words("Variant", "label", "variant"),
        words("Algorithm", "algo", "algo"),
        words("Seeds", lambda v: Cell(v.seeds)),
        words("Settings given", lambda v: Cell(", ".join(_given(v)) or "none")),
        data("preset", "seeds", get=lambda v: (v.preset, v.seeds)),
        data("config", get=lambda v: json.dumps(v.config, sort_keys=True)),
        data("task_settings", get=lambda v: json.dumps(v.task.settings, sort_keys=True)),
        command("command", "command"),
    ]
    return Table(
        "settings",
        "Settings that differ from the defaults, by variant (the CSV has all settings)",
        columns,
        variants,
        folded=True,
    )


def _given(variant: Variant) -> list[str]:
    """Return the preset, if it is not the default, and the settings that differ from it."""
    preset = {} if variant.preset == DEFAULT_PRESET else {"preset": variant.preset}
    return assignments({**preset, **variant.given})


def mixtures(variants: Iterable[Variant]) -> list[str]:
    """Return a sentence for each task whose runs used several devices or precisions.

    Results may differ for that reason alone.
    """
    by_task = group_by(variants, key=lambda variant: variant.task.title)
    sentences = [_mixture(task, on_task) for task, on_task in by_task.items()]
    return [sentence for sentence in sentences if sentence]


def _mixture(task: str, variants: Iterable[Variant]) -> str:
    """Describe the devices and precisions of runs on a task; empty if all are the same."""
    ways = group_by(_runs(variants), key=_precision_and_device)
    if len(ways) < 2:
        return ""
    *rare, usual = sorted(ways, key=lambda way: len(ways[way]))
    labels = [
        (way, label)
        for way in rare
        for label in dict.fromkeys(f"`{variant.label}`" for variant, _ in ways[way])
    ]
    exceptions = verdict_sentences(labels, {way: _used("the runs of {names}", way) for way in rare})
    return (
        f"The runs on {task} differ in their recorded precision or device. {exceptions} "
        f"{_used('All other runs', usual)}."
    )


def _used(runs: str, way: str) -> str:
    return f"{runs} have no such record" if way == NOT_RECORDED else f"{runs} used {way}"


def _precision_and_device(of_variant: tuple[Variant, RunRecord]) -> str:
    computed = of_variant[1].computed
    if not computed:
        return NOT_RECORDED
    return f"{computed['precision']} on {computed['device']}"
