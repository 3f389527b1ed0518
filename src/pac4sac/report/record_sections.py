"""Sections that keep the report honest: what is missing or broken, where the numbers come from, how they are made."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pac4sac.base.text import setting_text
from pac4sac.paper import verdicts as comparison
from pac4sac.paper.families import families
from pac4sac.paper.numbers import SEEDS
from pac4sac.paper.paper_rows import PaperRows
from pac4sac.paper.table_sections import Compared
from pac4sac.report.computing import computing_table
from pac4sac.report.tables import Cell, Column, Listing, Section, Table
from pac4sac.report.variants import Group
from pac4sac.report.versus_baseline import TESTS, against, family_baseline, tally
from pac4sac.runs.collection import Collection
from pac4sac.runs.seeds import seeds_text
from pac4sac.runs.statistics import RESAMPLES

Groups = Mapping[str, Sequence[Group]]


def facts(collection: Collection, groups: Groups) -> list[tuple[str, str]]:
    """The numbers at the top of the page."""
    states = Counter(o.state for found in groups.values() for group in found for o in group.outcomes)
    expected = len(collection.runs) + len(collection.missing) + len(collection.unreadable)
    told = [(f"{states['complete']} of {expected}", "runs complete")]
    told += [(str(states[state]), state) for state in ("unfinished", "diverged", "failed") if states[state]]
    if collection.missing:
        told.append((str(len(collection.missing)), "not started"))
    return [*told, (str(len(groups)), "task" if len(groups) == 1 else "tasks")]


def summary_section(
    collection: Collection, groups: Groups, rows: PaperRows, tables: Mapping[str, Sequence[Compared]]
) -> Section:
    asked = {study.name: f"{study.title} — {study.question}" for study in collection.studies if study.question}
    items = list(asked.values())
    if collection.missing:
        lacking = Counter(study for run in collection.missing for study in run.studies or ("an experiment",))
        told = ", ".join(f"{study} lacks {n} {'run' if n == 1 else 'runs'}" for study, n in sorted(lacking.items()))
        shared = f" ({len(collection.missing)} in all)" if lacking.total() > len(collection.missing) else ""
        items.append(f"Not finished: {told}{shared}.")
    for name, compared in tables.items():
        counts = Counter(c.found.verdict for c in compared)
        told = ", ".join(f"{counts[v]} {v}" for v in comparison.VERDICTS if counts[v])
        items.append(f"{name.replace('-', ' ').capitalize()}, {len(compared)} cells: {told}.")
    for found in groups.values():
        results = [group for group in found if group.is_result]
        for family in families(results, rows, collection.studies):
            baseline = family_baseline(family, results, rows, collection.studies)
            rivals = [row for row in against(family.members, baseline) if not row.is_baseline]
            if baseline and rivals:
                told = f"{family.title} on {found[0].task.title}, by {found[0].task.headline.title}"
                size = f", with Holm's correction over these {len(rivals)}" if len(rivals) > 1 else ""
                items.append(f"{told} against `{baseline.label}` (p < 0.05{size}): {tally(rivals)}.")
    return Section("summary", "At a glance", [Listing(items)] if items else ["Nothing to compare yet."])


def runs_section(collection: Collection, groups: Groups) -> Section:
    blocks: list[Any] = []
    broken = [
        [
            Cell(o.run.place, o.run.place), Cell(group.task.title, group.task.title), Cell(group.label, group.label),
            Cell(str(o.run.record.seed), o.run.record.seed), Cell(o.run.record.status, o.run.record.status),
            Cell(o.state, o.state), Cell(str(len(o.run.record.episodes)), len(o.run.record.episodes)),
            Cell(o.run.record.status_detail or "", o.run.record.status_detail),
        ]
        for found in groups.values() for group in found for o in group.outcomes
        if o.state != "complete" or o.run.record.status in ("diverged", "failed")
    ]  # fmt: skip
    if broken:
        columns = [Column(t, numeric=False) for t in ("Run", "Task", "Variant")]
        columns += [Column("Seed"), Column("Status", numeric=False), Column("Metrics", numeric=False)]
        columns += [Column("Episodes"), Column("Cause", numeric=False)]
        blocks.append(
            "Only complete runs enter means: runs that were solved, or reached the end of their budget. While others "
            "of the same variant are under way there is no mean, since the first to be complete are those solved "
            "early: then the regret of all runs so far is shown, at the last episode that all have come to, and the "
            "verdict is “unfinished”. A diverged run counts as unsolved where solved runs are counted, and no cell "
            "with one is called reproduced or better."
        )
        blocks.append(Table("unfinished-runs", "Diverged, failed and unfinished runs", columns, broken))
    if collection.missing:
        alike: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
        for run in collection.missing:
            alike.setdefault((run.task, run.label, run.studies), []).append(run.seed)
        body = [
            [Cell(task, task), Cell(label, label), Cell(seeds_text(seeds), seeds[0]), Cell(str(len(seeds)), len(seeds)),
             Cell(", ".join(studies), ", ".join(studies)), Cell(_go_on(studies, task, seeds), code=True)]
            for (task, label, studies), seeds in alike.items()
        ]  # fmt: skip
        columns = [Column("Task", numeric=False), Column("Variant", numeric=False), Column("Seeds"), Column("Runs")]
        columns += [Column("Studies", numeric=False), Column("Go on with", numeric=False)]
        blocks.append(Table("missing-runs", "Expected runs that have not started", columns, body))
    if notes := [*collection.twice, *left_out(collection)]:
        blocks.append(Listing(notes))
    if not blocks:
        blocks.append("Every expected run is complete, none diverged or failed, and every line of their logs was read.")
    return Section("runs", "Missing and broken runs", blocks)


def left_out(collection: Collection) -> list[str]:
    """Sentences on what is damaged and therefore not in the report."""
    notes = [f"Not readable: {told}" for told in collection.unreadable]
    skipped = {run.place: run.record.skipped_lines for run in collection.runs if run.record.skipped_lines}
    if skipped:
        total, most = sum(skipped.values()), ", ".join(f"`{place}` ({n})" for place, n in sorted(skipped.items()))
        notes.append(f"Unreadable lines left out of logs: {total}, in {most}.")
    return notes


def _go_on(studies: Sequence[str], task: str, seeds: Iterable[int]) -> str:
    wanted = f"--tasks {task} --seeds {seeds_text(seeds)}"
    return f"pac4sac study run {studies[0]} {wanted}" if studies else "pac4sac resume"


def provenance_section(collection: Collection, groups: Groups) -> Section:
    columns = [Column("What", numeric=False), Column("Value", numeric=False), Column("Runs")]
    versions = _counted(run.record.versions for run in collection.runs)
    machines = Counter(_machine(run.record.machine) for run in collection.runs if run.record.machine)
    body = [[Cell(name, name), Cell(value, value), Cell(str(n), n)] for name, value, n in versions]
    body += [[Cell("machine", "machine"), Cell(m, m), Cell(str(n), n)] for m, n in sorted(machines.items())]
    dates = collection.dates
    when = f"{dates[0]} to {dates[-1]}" if len(dates) > 1 else dates[0] if dates else "not recorded in these folders"
    blocks: list[Any] = [f"Dates of training: {when}."]
    if collection.studies:
        blocks.append(Listing([f"Study `{s.name}` in `{s.place}`: {s.title}" for s in collection.studies]))
    if body:
        blocks.append(Table("versions", "Versions and machines of the runs", columns, body))
    if collection.runs:
        blocks.append(computing_table([group for found in groups.values() for group in found]))
    rows = [
        [Cell(group.task.title, group.task.title), Cell(group.label, group.label), Cell(group.algo, group.algo),
         Cell(seeds_text(run.seed for run in group.runs)), Cell(_settings(group)), Cell(group.command, code=True)]
        for found in groups.values() for group in found
    ]  # fmt: skip
    heads = ("Task", "Variant", "Algorithm", "Seeds", "Settings other than the paper preset's", "Repeat with")
    records = [
        {"task": group.task.title, "variant": group.label, "algo": group.algo, "preset": group.preset,
         "seeds": seeds_text(run.seed for run in group.runs), "config": json.dumps(group.config, sort_keys=True),
         "task_settings": json.dumps(group.task.settings, sort_keys=True), "command": group.command}
        for found in groups.values() for group in found
    ]  # fmt: skip
    if rows:
        caption = "Settings of every variant; the CSV has them in full"
        columns = [Column(head, numeric=False) for head in heads]
        blocks.append(Table("settings", caption, columns, rows, records, folded=True))
    return Section("provenance", "Provenance", blocks)


def _settings(group: Group) -> str:
    told = [f"{name}={setting_text(value)}" for name, value in group.departures.items()]
    return ", ".join(told) or "none"


def _counted(versions: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    counts = Counter((str(name), str(value)) for found in versions for name, value in found.items())
    return [(name, value, n) for (name, value), n in sorted(counts.items())]


def _machine(machine: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in machine.items() if value is not None)


def method_section() -> Section:
    items = [
        "Solved: the first of five consecutive training episodes with a return above r_limit. Episodes until solved "
        "are those before it, E_max if there is none. Cumulative regret is the sum of r_limit − return over them, each "
        "term clipped at 0.",
        "Mean ± sd: over seeds, with n − 1 in the standard deviation. IQM: mean of the middle half of the runs, with a "
        f"percentile-bootstrap 95 % interval ({RESAMPLES} resamples, seeds resampled within each task). Across tasks "
        "it is the mean of the tasks' own, so that a task with more seeds has no more weight.",
        "P(better): the probability that a run of this variant beats a run of the baseline, ties counted half.",
        f"Against the baseline, {TESTS}. Both p-values are corrected by Holm's method, each for the comparisons of its "
        "family, which is the table unless it names families; the claims are corrected for the comparisons of a claim.",
        "Unfinished: some runs have begun and not ended. A mean of the others would be one of the runs solved early.",
        f"Verdicts against the paper come from the 95 % Welch interval of ours − paper's, with the paper's sd and n = "
        f"{SEEDS}. Reproduced: it holds zero and is narrower than half the paper's value. Better or worse: it lies "
        "wholly below or above zero (less regret and fewer episodes are better). Otherwise inconclusive.",
        "Cells that the paper gives as E_max ± 0 mean that none of its runs was solved; there the numbers of solved "
        f"runs are compared: reproduced if none of ours is solved out of {SEEDS} or more, better if Fisher's exact "
        "test says so at 5 %, otherwise inconclusive.",
        "Not comparable: the runs differ from the paper's setting, as those of a study in miniature do.",
        "Five seeds are few: intervals are wide, and bootstrap intervals of five values are known to be too narrow. "
        "An interval such as [1.00, 1.00] says that all seeds agree, not that it is certain.",
    ]
    return Section("method", "How to read this", [Listing(items)])
