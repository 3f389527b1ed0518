"""Sections on our own runs: each task, all tasks together, and how much the limit for "solved"
matters; and those that keep a report honest: what is missing or broken, where the numbers come
from, how they are made."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from operator import itemgetter
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from pac4sac.base.text import assignments, file_name, setting_text
from pac4sac.report import figures, rankings
from pac4sac.report.answers import compare_on_task
from pac4sac.report.comparison import (
    Context,
    Family,
    comparison_table,
    ends_table,
    metric_cell,
    variant_cell,
)
from pac4sac.report.tables import (
    TEXTS,
    Block,
    Cell,
    Column,
    Picture,
    Section,
    Table,
    command,
    data,
    numbered,
    words,
)
from pac4sac.report.variants import METRICS, TaskView, Variant
from pac4sac.runs.collection import Collection
from pac4sac.runs.metrics import solved_at
from pac4sac.runs.reading import damage_text
from pac4sac.runs.seeds import seeds_text
from pac4sac.runs.statistics import RESAMPLES, interquartile_mean, probability_of_improvement
from pac4sac.runs.status import BROKEN_OFF, CUT_SHORT

# Limits as parts of the task's own, finest where runs end up: a step of a tenth would hide where an
# order turns round.
DRAWN = tuple(round(0.5 + 0.02 * k, 3) for k in range(20)) + tuple(
    round(0.9 + 0.005 * k, 3) for k in range(41)
)
TABLED = (0.5, 0.7, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0, 1.02, 1.04)
ENDS = ("end_return", "final_deterministic")  # what came of training, as the field tells it
NOT_RECORDED = "not recorded"  # of runs of an older kind
HOW = ("device", "backend", "precision")


def task_section(context: Context, title: str) -> Section:
    results, families = context.results(title), context.families[title]
    task, name, baseline = results[0].task, file_name(title), context.baselines[title]
    compared = compare_on_task(context, title)
    shows_solved = task.r_limit is not None and task.e_max
    curves = TEXTS["task"]["curves"] + (TEXTS["task"]["curves_solved"] if shows_solved else "")
    drawn = [(f"{title}: {family.title}. {curves}", family.members) for family in families]
    blocks: list[Block] = [
        _about(context, task, baseline),
        comparison_table(f"task-{name}", f"All variants on {title}", compared, task),
        *_ends(context, title, f"ends-{name}"),
        *mixtures(results),
        *figures.pictures(
            f"learning-{name}", drawn, figures.learning_figure, context.references.get(title)
        ),
        *_profiles(f"profile-{name}", families[0], baseline),
        _further_metrics(f"metrics-{name}", task, results),
    ]
    return Section(f"task-{name}", f"Task {title}", blocks)


def _ends(context: Context, title: str, name: str) -> list[Table]:
    """What came of training, where episodes end early, nothing counts as solved, or runs were
    evaluated on a schedule."""
    by_metric = {key: compare_on_task(context, title, METRICS[key]) for key in ENDS}
    if not any(row.values for row in by_metric[ENDS[0]]):
        return []
    return [ends_table(name, TEXTS["task"]["ends"].format(title=title), by_metric)]


def _about(context: Context, task: TaskView, baseline: Variant | None) -> str:
    texts, ranked_by = (
        TEXTS["task"],
        "no_limit" if task.r_limit is None else "episodes" if task.e_max else "steps",
    )
    about = str(texts[ranked_by].format(limit=setting_text(task.r_limit), e_max=task.e_max))
    if not baseline:
        return about
    families = context.families[task.title]
    sizes = {
        family.title: sum(variant is not baseline for variant in family.members)
        for family in families
    }
    named = ", ".join(f"{title} ({n})" for title, n in sizes.items() if n)
    by = texts["baseline"].format(
        label=baseline.label, metric=task.headline.title, tests=TEXTS["tests"]
    )
    return f"{about} {by} {texts['families' if len(sizes) > 1 else 'family'].format(named=named)}"


def _profiles(name: str, family: Family, baseline: Variant | None) -> list[Picture]:
    rivals = [
        variant for variant in family.members if variant is not baseline and variant.has_results
    ]
    if baseline is None or not rivals:
        return []
    caption = f"{baseline.task.title}: {family.title}. {TEXTS['profile']['caption']}"
    return figures.pictures(
        name, [(caption, rivals)], partial(rankings.task_profile, baseline), baseline
    )


def _further_metrics(name: str, task: TaskView, variants: Sequence[Variant]) -> Table:
    known = [m for m in METRICS.values() if any(variant.shown(m.key)[0] for variant in variants)]
    scales = {m.key: task.scale if "regret" in m.key else 1.0 for m in known}

    columns = [words("Variant", variant_cell)]
    columns += [
        Column(m.title, partial(metric_cell, metric=m.key, scale=scales[m.key])) for m in known
    ]
    columns.append(data("variant", "seed", "state", "solved", *scales, get=lambda numbers: numbers))
    unit = " (regrets in thousands)" if task.scale > 1 else ""
    caption = f"All metrics on {task.title}, mean ± sd{unit}; the CSV has every run"

    def runs(variant: Variant) -> list[tuple[Any, ...]]:
        return [
            (variant.label, o.run.record.seed, o.state, o.solved, *map(o.metrics.get, scales))
            for o in variant.outcomes
        ]

    return Table(name, caption, columns, variants, runs, folded=True)


# --- all tasks together


def across_tasks_section(context: Context, titles: Iterable[str]) -> Section | None:
    """Regret as a fraction of r_limit × E_max, so that tasks can be put together."""
    tasks = {title: context.results(title) for title in titles}
    # One that a single variant has been trained on compares nothing, and would leave out all
    # others.
    tasks = {
        title: members
        for title, members in tasks.items()
        if sum(map(bool, map(_normalised, members))) > 1
    }
    of_label: dict[str, list[Variant]] = defaultdict(list)
    for variant in (variant for members in tasks.values() for variant in members):
        of_label[variant.label].append(variant)
    scores = {label: list(map(_normalised, members)) for label, members in of_label.items()}
    strata = {
        label: of_tasks
        for label, of_tasks in scores.items()
        if len(of_tasks) == len(tasks) and all(of_tasks)
    }
    if len(tasks) < 2 or len(strata) < 2:
        return None
    named = [context.baselines[title] for title in tasks]
    baseline = next(
        (variant.label for variant in named if variant and variant.label in strata),
        next(iter(strata)),
    )
    iqm = {label: interquartile_mean(scores) for label, scores in strata.items()}
    better = {
        label: probability_of_improvement(scores, strata[baseline], lower_is_better=True)
        for label, scores in strata.items()
        if label != baseline
    }

    def runs_cell(label: str) -> Cell:
        runs, diverged = (
            sum(map(len, strata[label])),
            sum(variant.count("diverged") for variant in of_label[label]),
        )
        return Cell(str(runs), runs, note=f"{diverged} diverged left out" if diverged else "")

    columns = [
        words("Variant", str),
        Column("Runs", runs_cell),
        Column("IQM of normalised regret [95 %]", iqm.__getitem__, digits=3),
        Column(f"P(better than {baseline}) [95 %]", better.get, digits=2),
    ]
    ranked = dict(sorted(iqm.items(), key=lambda item: item[1].value))
    name, caption, unit = (
        "across-tasks",
        TEXTS["across_tasks"]["caption"],
        "regret / (r_limit × E_max)",
    )
    title = f"Interquartile means over {len(tasks)} tasks"
    first = {
        label: strata[label]
        for label in [baseline, *(label for label in ranked if label != baseline)][
            : figures.AT_ONCE
        ]
    }
    of_all = f"Performance profiles over {len(tasks)} tasks"
    profile = partial(rankings.profile_figure, of_all, first, context.looks, baseline, unit)
    blocks = [
        TEXTS["across_tasks"]["intro"].format(tasks=", ".join(tasks)),
        Table(name, caption, columns, list(strata)),
        *mixtures(
            variant for members in tasks.values() for variant in members if variant.label in strata
        ),
        Picture(
            "overview",
            TEXTS["across_tasks"]["overview"],
            partial(figures.overview_figure, _overview(context, tasks)),
        ),
        Picture(
            name,
            caption,
            partial(rankings.ranking_figure, title, ranked, context.looks, baseline, unit, 1.0),
        ),
        Picture(
            f"profile-{name}", TEXTS["profile"]["caption"], partial(profile, lower_is_better=True)
        ),
    ]
    return Section(name, "Across tasks", blocks)


def _overview(context: Context, tasks: Iterable[str]) -> dict[str, list[Variant]]:
    """Of each task the baseline and what is drawn beside every family; nothing where there is
    neither."""
    pairs = {title: (context.references.get(title), context.baselines[title]) for title in tasks}
    chosen = {title: list(dict.fromkeys(filter(None, pair))) for title, pair in pairs.items()}
    return {title: members for title, members in chosen.items() if members}


def _normalised(variant: Variant) -> list[float]:
    most = (variant.task.r_limit or 0) * (variant.task.e_max or 0)
    return [value / most for value in variant.values("regret")] if most > 0 else []


# --- the limit for "solved"


def threshold_section(context: Context, intro: str) -> Section | None:
    blocks: list[Block] = []
    for title, variants in context.variants.items():
        task, results = (
            variants[0].task,
            [variant for variant in context.results(title) if variant.runs],
        )
        at = (
            {variant.label: sweep(variant, TABLED) for variant in results}
            if task.r_limit and task.e_max
            else {}
        )
        if not any(values for limits in at.values() for values in limits.values()):
            continue
        name, caption = (
            f"threshold-{file_name(title)}",
            f"{title}: mean episodes until solved as the limit is moved",
        )
        swept = sorted(at[results[0].label])
        rows = [
            (label, *(fmean(by[limit]) if by[limit] else None for limit in swept))
            for label, by in at.items()
        ]
        limits = [f"{limit:g}" for limit in swept]
        first = context.families[title][0]  # the page has a slider for all others
        drawn = [(f"{caption}; dashed, the task's own. {first.title}", first.members)]
        blocks += figures.pictures(name, drawn, sweep_figure, context.references.get(title))
        blocks += [
            Table(name, caption, numbered(("Variant", *limits), limits), rows),
            *mixtures(results),
        ]
    about = f"{intro} {TEXTS['threshold']}".strip()
    return (
        Section("threshold", "How much the limit for “solved” matters", [about, *blocks])
        if blocks
        else None
    )


def sweep(variant: Variant, parts: Iterable[float]) -> dict[float, list[float]]:
    """Episodes until solved of each run, by limit; none where a run ended too early to tell, unless
    it diverged."""
    e_max, r_limit = variant.task.e_max or 0, variant.task.r_limit or 0.0
    by_limit: dict[float, list[float]] = {}
    for limit in (round(r_limit * part, 6) for part in parts):
        solved = [(run, solved_at(run.returns[:e_max], limit)) for run in variant.runs]
        ends = [
            (run, e_max if at is None and len(run.episodes) >= e_max else at) for run, at in solved
        ]
        is_unknown = any(at is None and run.status != "diverged" for run, at in ends)
        by_limit[limit] = [] if is_unknown else [float(at) for _, at in ends if at is not None]
    return by_limit


def sweep_figure(variants: Sequence[Variant]) -> Figure:
    figure, (panel,) = figures.new_figure(f"How the limit matters on {variants[0].task.title}", 1)
    for variant in variants:
        points = [
            (limit, fmean(episodes))
            for limit, episodes in sweep(variant, DRAWN).items()
            if episodes
        ]
        if points:
            style, label = figures.stroke(variant.look), figures.drawn(variant.look.name)
            panel.plot(*zip(*points, strict=True), **style, linewidth=1.4, label=label)
    panel.axvline(variants[0].task.r_limit, **figures.DASHED)
    figures.finish_panel(panel, "return that counts as solved", "episodes until solved, mean")
    panel.set_ylim(bottom=0)
    if panel.get_legend_handles_labels()[0]:
        figures.add_legend(figure, panel)
    return figure


# --- what is missing or broken


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
    collection, blocks = context.collection, list[Block]()
    broken, seeds_of = (
        list[tuple[Any, ...]](),
        defaultdict[tuple[str, str, tuple[str, ...], str], list[int]](list),
    )
    for variant in context.all_variants:
        for outcome, run in zip(variant.outcomes, variant.runs, strict=True):
            if outcome.state != "complete" or run.status in BROKEN_OFF:
                names = (
                    outcome.run.place,
                    variant.task.title,
                    variant.label,
                    run.seed,
                    run.status,
                    outcome.state,
                )
                broken.append((*names, len(run.episodes), run.status_detail or ""))
    if broken:
        titles = ("Run", "Task", "Variant", "Seed", "Status", "Metrics", "Episodes", "Cause")
        caption, columns = (
            "Diverged, failed and unfinished runs",
            numbered(titles, ("Seed", "Episodes")),
        )
        blocks += [TEXTS["broken_runs"], Table("unfinished-runs", caption, columns, broken)]
    for missing in collection.missing:
        seeds_of[missing.task, missing.label, missing.studies, missing.experiment].append(
            missing.seed
        )
    if seeds_of:
        rows, definitions = [], {study.name: study.definition for study in collection.studies}
        for (task, label, studies, experiment), seeds in seeds_of.items():
            text, called = (
                seeds_text(seeds),
                next((definitions[name] for name in studies if definitions[name]), ""),
            )
            study_run = ["study", "run", called, "--tasks", task, "--seeds", text]
            go_on = shlex.join(["pac4sac", *(study_run if called else ["resume", experiment])])
            rows.append((task, label, Cell(text, seeds[0]), len(seeds), ", ".join(studies), go_on))
        columns = numbered(("Task", "Variant", "Seeds", "Runs", "Studies"), ("Seeds", "Runs"))
        columns.append(command(itemgetter(5), title="Go on with"))
        blocks.append(Table("missing-runs", "Expected runs that have not started", columns, rows))
    strayed = [f"`{run.place}`" for run in collection.runs if run.record.about.get("strayed")]
    notes = [TEXTS["strayed"].format(runs=", ".join(strayed))] if strayed else []
    if notes := [*notes, *collection.twice, *left_out(collection)]:
        blocks.append(notes)
    return Section("runs", "Missing and broken runs", blocks or [TEXTS["all_complete"]])


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


# --- how numbers are made, and where they come from: on which device, by which backend, how
# precisely


def method_section(further: Sequence[str]) -> Section:
    items = [text.format(resamples=RESAMPLES, tests=TEXTS["tests"]) for text in TEXTS["method"]]
    return Section("method", "How to read this", [[*items, *further, TEXTS["few_seeds"]]])


def provenance_section(context: Context) -> Section:
    collection, variants, dates = context.collection, context.all_variants, context.collection.dates
    versions, machines = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for run in collection.runs:
        versions.update((str(name), str(version)) for name, version in run.record.versions.items())
        if machine := run.record.machine:
            parts = [f"{name} {value}" for name, value in machine.items() if value is not None]
            machines["machine", ", ".join(parts)] += 1
    when = (
        f"{dates[0]} to {dates[-1]}"
        if len(dates) > 1
        else dates[0]
        if dates
        else "not recorded in these folders"
    )
    blocks: list[Block] = [f"Dates of training: {when}."]
    if collection.studies:
        blocks.append([f"Study `{s.name}` in `{s.place}`: {s.title}" for s in collection.studies])
    if rows := [(*key, n) for counts in (versions, machines) for key, n in sorted(counts.items())]:
        columns = numbered(("What", "Value", "Runs"), ("Runs",))
        blocks.append(Table("versions", "Versions and machines of the runs", columns, rows))
    if variants:
        blocks += [_computing_table(variants), _settings_table(variants)]
    return Section("provenance", "Provenance", blocks)


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
        words(
            "Settings other than usual",
            lambda v: Cell(", ".join(assignments(v.departures)) or "none"),
        ),
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


def mixtures(variants: Iterable[Variant]) -> list[str]:
    """A sentence for each task of which runs were computed in several ways: they may differ by that
    alone."""
    by_task: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for variant, computed in ((v, run.computed) for v in variants for run in v.runs):
        way = f"in {computed['precision']} on {computed['device']}" if computed else NOT_RECORDED
        by_task[variant.task.title][way].append(f"`{variant.label}`")
    sentences = []
    for task, ways in by_task.items():
        *rare, usual = sorted(ways, key=lambda way: len(ways[way]))
        parts = "; ".join(f"{', '.join(dict.fromkeys(ways[way]))} {way}" for way in rare)
        sentences += (
            [f"On {task} runs were not all computed alike: {parts}; the others {usual}."]
            if rare
            else []
        )
    return sentences
