"""Sections that keep a report honest: what is missing or broken, how numbers are made, and where
they come from."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from pac4sac.base.text import assignments
from pac4sac.report.commands import DEFAULT_PRESET
from pac4sac.report.comparison import Context
from pac4sac.report.tables import TEXTS, Block, Cell, Section, Table, command, data, numbered, words
from pac4sac.report.variants import Variant
from pac4sac.runs.collection import Collection, MissingRun
from pac4sac.runs.reading import RunRecord, damage_text
from pac4sac.runs.seeds import seeds_text
from pac4sac.runs.statistics import RESAMPLES
from pac4sac.runs.status import BROKEN_OFF, CUT_SHORT

NOT_RECORDED = "not recorded"  # of runs of an older kind
HOW = ("device", "backend", "precision")


def facts(context: Context) -> list[tuple[str, str]]:
    """The numbers at the top of the page."""
    collection, tasks = context.collection, len(context.task_names)
    states = Counter(
        outcome.state for variant in context.all_variants for outcome in variant.outcomes
    )
    states["not started"] = len(collection.missing)
    expected = len(collection.runs) + len(collection.missing) + len(collection.unreadable)
    lacking = [(str(states[s]), s) for s in ("unfinished", *CUT_SHORT, "not started") if states[s]]
    complete = (f"{states['complete']} of {expected}", "runs complete")
    return [complete, *lacking, (str(tasks), "task" if tasks == 1 else "tasks")]


def runs_section(context: Context) -> Section:
    collection = context.collection
    blocks: list[Block] = []
    if broken := _broken_runs(context.all_variants):
        titles = ("Run", "Task", "Variant", "Seed", "Status", "Metrics", "Episodes", "Cause")
        columns = numbered(titles, ("Seed", "Episodes"))
        caption = "Diverged, failed and unfinished runs"
        blocks += [TEXTS["broken_runs"], Table("unfinished-runs", caption, columns, broken)]
    if collection.missing:
        blocks.append(_missing_table(collection))
    mismatches = [f"`{run.place}`" for run in collection.runs if _has_replay_mismatch(run.record)]
    notes = [TEXTS["replay_mismatch"].format(runs=", ".join(mismatches))] if mismatches else []
    if notes := [*notes, *collection.twice, *left_out(collection)]:
        blocks.append(notes)
    return Section("runs", "Missing and broken runs", blocks or [TEXTS["all_complete"]])


def _has_replay_mismatch(run: RunRecord) -> bool:
    return bool(run.about.get("replay_mismatch") or run.about.get("strayed"))  # older runs


def _broken_runs(variants: Iterable[Variant]) -> list[tuple[Any, ...]]:
    rows = []
    for variant in variants:
        for outcome in variant.outcomes:
            run = outcome.run.record
            if outcome.state == "complete" and run.status not in BROKEN_OFF:
                continue
            names = (outcome.run.place, variant.task.title, variant.label, run.seed, run.status)
            rows.append((*names, outcome.state, len(run.episodes), run.status_detail or ""))
    return rows


def _missing_table(collection: Collection) -> Table:
    """Return the missing runs of each variant, with the command that trains them."""
    alike: dict[tuple[Any, ...], list[MissingRun]] = defaultdict(list)
    for run in collection.missing:
        alike[run.task, run.label, run.studies, run.experiment].append(run)
    rows = []
    for (task, label, studies, _), runs in alike.items():
        seeds = Cell(seeds_text(run.seed for run in runs), runs[0].seed)
        resume = _resume_command(collection, runs[0], seeds.text)
        rows.append((task, label, seeds, len(runs), ", ".join(studies), resume))
    columns = numbered(("Task", "Variant", "Seeds", "Runs", "Studies"), ("Seeds", "Runs"))
    columns.append(command(itemgetter(5), title="Go on with"))
    return Table("missing-runs", "Expected runs that have not started", columns, rows)


def _resume_command(collection: Collection, run: MissingRun, seeds: str) -> str:
    definitions = {study.name: study.definition for study in collection.studies}
    for name in run.studies:
        if study := definitions[name]:
            return shlex.join(
                ["pac4sac", "study", "run", study, "--tasks", run.task, "--seeds", seeds]
            )
    return shlex.join(["pac4sac", "resume", run.experiment])


def left_out(collection: Collection) -> list[str]:
    """Sentences on what is damaged and therefore not in the report."""
    notes = [f"Not readable: {sentence}" for sentence in collection.unreadable]
    damaged = [
        f"`{run.place}`: {damage_text(run.record)}" for run in collection.runs if run.record.damage
    ]
    return notes + (
        [f"Damaged logs, of which the whole lines were read: {'; '.join(sorted(damaged))}."]
        if damaged
        else []
    )


# --- how numbers are made, and where they come from


def method_section(further: Sequence[str] = ()) -> Section:
    items = [text.format(resamples=RESAMPLES, tests=TEXTS["tests"]) for text in TEXTS["method"]]
    return Section("method", "How to read this", [[*items, *further, TEXTS["few_seeds"]]])


def provenance_section(context: Context) -> Section:
    collection, variants = context.collection, context.all_variants
    blocks: list[Block] = [f"Dates of training: {_date_range(collection.dates)}."]
    if collection.studies:
        blocks.append([f"Study `{s.name}` in `{s.place}`: {s.title}" for s in collection.studies])
    if rows := _versions_and_machines(collection):
        columns = numbered(("What", "Value", "Runs"), ("Runs",))
        blocks.append(Table("versions", "Versions and machines of the runs", columns, rows))
    if variants:
        blocks += [_computing_table(variants), _settings_table(variants)]
    return Section("provenance", "Provenance", blocks)


def _date_range(dates: Sequence[str]) -> str:
    if not dates:
        return "not recorded in these folders"
    return f"{dates[0]} to {dates[-1]}" if len(dates) > 1 else dates[0]


def _versions_and_machines(collection: Collection) -> list[tuple[str, str, int]]:
    versions, machines = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for run in collection.runs:
        versions.update((str(name), str(value)) for name, value in run.record.versions.items())
        if machine := run.record.machine:
            parts = [f"{name} {value}" for name, value in machine.items() if value is not None]
            machines["machine", ", ".join(parts)] += 1
    return [(*key, n) for counts in (versions, machines) for key, n in sorted(counts.items())]


def _computing_table(variants: Sequence[Variant]) -> Table:
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for variant, run in ((v, run) for v in variants for run in v.runs):
        counts[variant.task.title, *(run.computed.get(name, NOT_RECORDED) for name in HOW)][
            variant.label
        ] += 1

    columns = numbered(("Task", "Device", "Backend", "Precision", "Variants", "Runs"), ("Runs",))
    columns.append(data("task", *HOW, "variant", "runs", get=lambda part: part))
    rows = [(*key, Cell(", ".join(labels)), labels.total()) for key, labels in counts.items()]

    def by_variant(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return [(*row[:4], label, n) for label, n in counts[row[:4]].items()]

    return Table("computing", "How the runs were computed", columns, rows, by_variant)


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
        "Settings of every variant; the CSV has them in full",
        columns,
        variants,
        folded=True,
    )


def _given(variant: Variant) -> list[str]:
    """Return what was given beside the algorithm: its preset and settings."""
    preset = {} if variant.preset == DEFAULT_PRESET else {"preset": variant.preset}
    return assignments({**preset, **variant.given})


def mixtures(variants: Iterable[Variant]) -> list[str]:
    """Return a sentence for each task of which runs were computed in several ways: they may differ
    by that alone."""
    by_task: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for variant in variants:
        for run in variant.runs:
            computed, way = run.computed, NOT_RECORDED
            if computed:
                way = f"in {computed['precision']} on {computed['device']}"
            by_task[variant.task.title][way].append(f"`{variant.label}`")
    sentences = []
    for task, ways in by_task.items():
        *rare, usual = sorted(ways, key=lambda way: len(ways[way]))
        parts = "; ".join(f"{', '.join(dict.fromkeys(ways[way]))} {way}" for way in rare)
        if rare:
            sentences.append(
                f"On {task} runs were not all computed alike: {parts}; the others {usual}."
            )
    return sentences
