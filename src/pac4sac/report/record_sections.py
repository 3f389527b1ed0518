"""Sections that keep the report honest: what is missing or broken, where the numbers come from, how they are made."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from pac4sac.base.text import setting_text
from pac4sac.report.comparison import Context
from pac4sac.report.tables import TEXTS, Block, Cell, Section, Table, command, data, numbered, words
from pac4sac.report.variants import Variant
from pac4sac.runs.collection import Collection
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.seeds import seeds_text
from pac4sac.runs.statistics import RESAMPLES

NOT_RECORDED = "not recorded"  # of runs of an older kind
HOW = ("device", "backend", "precision")


def facts(context: Context) -> list[tuple[str, str]]:
    """The numbers at the top of the page."""
    collection, tasks = context.collection, len(context.variants)
    states = Counter(outcome.state for variant in context.all_variants for outcome in variant.outcomes)
    expected = len(collection.runs) + len(collection.missing) + len(collection.unreadable)
    numbers = [(f"{states['complete']} of {expected}", "runs complete")]
    numbers += [(str(states[state]), state) for state in ("unfinished", "diverged", "failed") if states[state]]
    numbers += [(str(len(collection.missing)), "not started")] if collection.missing else []
    return [*numbers, (str(tasks), "task" if tasks == 1 else "tasks")]


def runs_section(context: Context) -> Section:
    collection, blocks = context.collection, list[Block]()
    broken = []
    for variant in context.all_variants:
        for outcome, run in zip(variant.outcomes, variant.runs, strict=True):
            if outcome.state != "complete" or run.status in ("diverged", "failed"):
                names = (outcome.run.place, variant.task.title, variant.label, run.seed, run.status, outcome.state)
                broken.append((*names, len(run.episodes), run.status_detail or ""))
    if broken:
        titles = ("Run", "Task", "Variant", "Seed", "Status", "Metrics", "Episodes", "Cause")
        caption, columns = "Diverged, failed and unfinished runs", numbered(titles, ("Seed", "Episodes"))
        blocks += [TEXTS["broken_runs"], Table("unfinished-runs", caption, columns, broken)]
    if collection.missing:
        seeds_of: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
        for missing in collection.missing:
            seeds_of.setdefault((missing.task, missing.label, missing.studies), []).append(missing.seed)
        rows = []
        for (task, label, studies), seeds in seeds_of.items():
            text = seeds_text(seeds)
            go_on = f"pac4sac study run {studies[0]} --tasks {task} --seeds {text}" if studies else "pac4sac resume"
            rows.append((task, label, Cell(text, seeds[0]), len(seeds), ", ".join(studies), go_on))
        columns = numbered(("Task", "Variant", "Seeds", "Runs", "Studies"), ("Seeds", "Runs"))
        columns.append(command(itemgetter(5), title="Go on with"))
        blocks.append(Table("missing-runs", "Expected runs that have not started", columns, rows))
    if notes := [*collection.twice, *left_out(collection)]:
        blocks.append(notes)
    if not blocks:
        blocks.append("Every expected run is complete, none diverged or failed, and every line of their logs was read.")
    return Section("runs", "Missing and broken runs", blocks)


def left_out(collection: Collection) -> list[str]:
    """Sentences on what is damaged and therefore not in the report."""
    notes = [f"Not readable: {sentence}" for sentence in collection.unreadable]
    skipped = {run.place: run.record.skipped_lines for run in collection.runs if run.record.skipped_lines}
    if skipped:
        total, most = sum(skipped.values()), ", ".join(f"`{place}` ({n})" for place, n in sorted(skipped.items()))
        notes.append(f"Unreadable lines left out of logs: {total}, in {most}.")
    return notes


def provenance_section(context: Context) -> Section:
    collection, variants = context.collection, context.all_variants
    versions = Counter((str(k), str(v)) for run in collection.runs for k, v in run.record.versions.items())
    machines = Counter(("machine", _machine(run.record)) for run in collection.runs if run.record.machine)
    dates = collection.dates
    when = f"{dates[0]} to {dates[-1]}" if len(dates) > 1 else dates[0] if dates else "not recorded in these folders"
    blocks: list[Block] = [f"Dates of training: {when}."]
    if collection.studies:
        blocks.append([f"Study `{s.name}` in `{s.place}`: {s.title}" for s in collection.studies])
    if counted := [*sorted(versions.items()), *sorted(machines.items())]:
        rows, columns = [(*key, n) for key, n in counted], numbered(("What", "Value", "Runs"), ("Runs",))
        blocks.append(Table("versions", "Versions and machines of the runs", columns, rows))
    if variants:
        blocks += [_computing_table(variants), _settings_table(variants)]
    return Section("provenance", "Provenance", blocks)


def _machine(run: RunRecord) -> str:
    return ", ".join(f"{name} {value}" for name, value in run.machine.items() if value is not None)


def _settings_table(variants: Sequence[Variant]) -> Table:
    def departures(variant: Variant) -> Cell:
        return Cell(", ".join(f"{k}={setting_text(v)}" for k, v in variant.departures.items()) or "none")

    columns = [
        words("Task", "task.title", "task"),
        words("Variant", "label", "variant"),
        words("Algorithm", "algo", "algo"),
        words("Seeds", lambda v: Cell(seeds_text(run.seed for run in v.runs))),
        words("Settings other than the paper preset's", departures),
        data("preset", "seeds", get=lambda v: (v.preset, seeds_text(run.seed for run in v.runs))),
        data("config", get=lambda v: json.dumps(v.config, sort_keys=True)),
        data("task_settings", get=lambda v: json.dumps(v.task.settings, sort_keys=True)),
        command("command", "command"),
    ]
    return Table("settings", "Settings of every variant; the CSV has them in full", columns, variants, folded=True)


def method_section(further: Sequence[str]) -> Section:
    items = [text.format(resamples=RESAMPLES, tests=TEXTS["tests"]) for text in TEXTS["method"]]
    return Section("method", "How to read this", [[*items, *further, TEXTS["few_seeds"]]])


# --- how runs were computed: on which device, by which backend, how precisely


def mixtures(variants: Iterable[Variant]) -> list[str]:
    """A sentence for each task of which runs were computed in several ways: they may differ by that alone."""
    by_task: dict[str, dict[str, list[str]]] = {}
    for variant in variants:
        for run in variant.runs:
            c = run.computed
            way = f"in {c['precision']} on {c['device']}" if c else NOT_RECORDED
            by_task.setdefault(variant.task.title, {}).setdefault(way, []).append(f"`{variant.label}`")
    sentences = []
    for task, ways in by_task.items():
        *rare, usual = sorted(ways, key=lambda way: len(ways[way]))
        parts = "; ".join(f"{', '.join(dict.fromkeys(ways[way]))} {way}" for way in rare)
        sentences += [f"On {task} runs were not all computed alike: {parts}; the others {usual}."] if rare else []
    return sentences


def _computing_table(variants: Sequence[Variant]) -> Table:
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for variant in variants:
        for run in variant.runs:
            key = (variant.task.title, *(run.computed.get(name, NOT_RECORDED) for name in HOW))
            counts.setdefault(key, Counter())[variant.label] += 1
    columns = numbered(("Task", "Device", "Backend", "Precision", "Variants", "Runs"), ("Runs",))
    columns.append(data("task", *HOW, "variant", "runs", get=lambda part: part))
    rows = [(*key, Cell(", ".join(labels)), labels.total()) for key, labels in counts.items()]

    def by_variant(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return [(*row[:4], label, n) for label, n in counts[row[:4]].items()]

    return Table("computing", "How the runs were computed", columns, rows, by_variant)
