"""The section on calibration: how near a setting brings the baselines to the paper's numbers."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from pac4sac.base.files import natural
from pac4sac.base.text import assignments, file_name
from pac4sac.paper.groups import PaperContext
from pac4sac.paper.numbers import ALGORITHMS, TEXTS, paper_cell
from pac4sac.paper.rows import OURS, task_differences
from pac4sac.paper.table_sections import METRICS, OURS_ABOVE, cell_beside
from pac4sac.paper.verdicts import compare_cell
from pac4sac.report.comparison import runs_cell
from pac4sac.report.grouping import set_apart
from pac4sac.report.search import (
    NOTHING_COMPLETE,
    chosen_answer,
    chosen_blocks,
    chosen_by,
    studies_of_kind,
    study_heading,
)
from pac4sac.report.tables import Block, Cell, Column, Section, Table, command, data, words
from pac4sac.report.variants import Variant
from pac4sac.runs.collection import FoundStudy
from pac4sac.runs.statistics import Summary, summarise

KIND = "calibration"
BASELINES = ("ddpg", "sac")  # that choose a setting common to all algorithms
ROWS = {"oac-gauss": "oac", "oac-lab": "oac"}  # further readings of one row of the paper
OnTasks = Mapping[str, Sequence[Variant]]
Distance = tuple[float, int]  # |ln(ours / paper's)|, and the updates per step


def calibration_section(context: PaperContext) -> Section | None:
    blocks: list[Block] = []
    for study in studies_of_kind(context, KIND):
        on_tasks = chosen_by(context, study)
        if not on_tasks:
            continue
        comparable = _comparable(on_tasks)
        blocks += [study_heading(study), *nearest_over_tasks(comparable)]
        for title, members in on_tasks.items():
            if title not in comparable:
                blocks += chosen_blocks(study, {title: members})
                continue
            name, caption = file_name(f"{study.name}-{title}"), f"Calibration on {title}"
            blocks += [*_nearest(members), _calibration_table(name, caption, members)]
    return Section(KIND, KIND.capitalize(), [TEXTS[KIND], *blocks]) if blocks else None


def calibration_answer(context: PaperContext, study: FoundStudy) -> str:
    """Return the setting nearest to the paper's numbers, in a line."""
    on_tasks = chosen_by(context, study)
    comparable = _comparable(on_tasks)
    if not comparable:
        return chosen_answer(on_tasks)
    nearest = nearest_over_tasks(comparable, brief=True)
    if not nearest:
        for members in comparable.values():
            nearest += _nearest(members, brief=True)
    if not nearest:
        return NOTHING_COMPLETE
    return f"Nearest to the paper's regret: {', '.join(nearest)}."


def _comparable(on_tasks: OnTasks) -> dict[str, Sequence[Variant]]:
    """Return the tasks as the paper has them."""
    return {
        title: members
        for title, members in on_tasks.items()
        if not task_differences(members[0].task)
    }


def _calibration_table(name: str, caption: str, members: Sequence[Variant]) -> Table:
    def beside(metric: str, variant: Variant) -> Cell:
        theirs = _published(variant, metric)
        return cell_beside(
            variant,
            metric,
            theirs,
            compare_cell(variant, metric, theirs, ["preset", *variant.config]),
        )

    def own(metric: str, variant: Variant) -> Summary | None:
        values, _ = variant.shown(metric)
        return summarise(values) if values else None

    def of_paper(metric: str, variant: Variant) -> tuple[Any, ...]:
        theirs = _published(variant, metric)
        return theirs.mean if theirs else None, beside(metric, variant).verdict

    names = {
        variant: _name(variant.algo, settings) for variant, settings in _choices(members).items()
    }
    columns = [
        data("task", get="task.title"),
        words("Variant", names.__getitem__, "variant"),
        Column("Runs", runs_cell, "runs"),
    ]
    for metric, (title, _) in METRICS.items():
        columns.append(Column(title, partial(beside, metric)))
        columns.append(data(metric, f"{metric}_sd", get=partial(own, metric)))
        if metric == "regret":
            columns.append(data("regret_note", get=lambda v: v.shown("regret")[1]))
        columns.append(data(f"paper_{metric}", f"{metric}_verdict", get=partial(of_paper, metric)))
    columns += [
        Column("regret, × paper", regret_ratio, "regret_times_paper", digits=2),
        Column("solved", lambda v: Cell(v.solved_text, v.solved), "solved"),
        command("command", "command"),
    ]
    return Table(
        name,
        f"{caption}. {OURS_ABOVE} above the paper's",
        columns,
        sorted(members, key=lambda v: natural(names[v])),
    )


def _name(algo: str, settings: Mapping[str, Any]) -> str:
    return "-".join([algo, *assignments(settings)])


def _choices(members: Sequence[Variant]) -> dict[Variant, dict[str, Any]]:
    """The settings in which the variants of an algorithm differ."""
    configs = {
        variant: [other.config for other in members if other.algo == variant.algo]
        for variant in members
    }
    return {
        variant: dict(sorted(set_apart(variant.config, rivals).items()))
        for variant, rivals in configs.items()
    }


def _row(variant: Variant) -> str:
    """The row of the paper's Table 1 that it is to reach."""
    return ROWS.get(variant.algo, variant.algo)


def _is_baseline(variant: Variant) -> bool:
    return _row(variant) in ALGORITHMS and _row(variant) != OURS


def _published(variant: Variant, metric: str) -> Summary | None:
    return getattr(paper_cell(variant.task.name, _row(variant)), metric, None)


def regret_ratio(variant: Variant) -> float | None:
    theirs, own = _published(variant, "regret"), variant.summary("regret")
    return own.mean / theirs.mean if theirs and own else None


# --- which settings come nearest to the paper's regrets


def _nearest_first(logs: Mapping[str, Sequence[float]], notes: Mapping[str, str]) -> list[str]:
    """Return choices by the mean distance of their regrets from the paper's, whichever way; nothing
    if there is none to choose from."""
    ranked = sorted((math.exp(fmean(of_choice)), choice) for choice, of_choice in logs.items())
    named = [
        f"`{choice}` (a factor of {factor:.2f}{notes.get(choice, '')})" for factor, choice in ranked
    ]
    return named if len(named) > 1 else []


def _nearest(members: Sequence[Variant], brief: bool = False) -> list[str]:
    """Rank the settings that the baselines share, on one task; in brief, the nearest only."""
    title, choices = members[0].task.title, _choices(members)
    baselines = [variant for variant in members if _is_baseline(variant)]
    if waiting := ", ".join(f"`{_name(v.algo, choices[v])}`" for v in baselines if v.under_way):
        unfinished = f"On {title} the settings are not ranked: runs of {waiting} are unfinished."
        return [f"not ranked on {title}, where runs are unfinished" if brief else unfinished]
    ranked = _nearest_first(_shared_choices(baselines, choices), {})
    if brief or not ranked:
        return [f"{first} on {title}" for first in ranked[:1]]
    names = ", then ".join(ranked)
    return [f"On {title}, from the nearest to the paper's regret of DDPG and SAC: {names}."]


def _shared_choices(
    variants: Sequence[Variant], choices: Mapping[Variant, Mapping[str, Any]]
) -> dict[str, list[float]]:
    """Return the distances from the paper's regret, by settings that all baselines have."""
    logs: dict[str, list[float]] = defaultdict(list)
    for variant in variants:
        ratio = regret_ratio(variant)
        if variant.algo in BASELINES and choices[variant] and ratio:
            logs[", ".join(assignments(choices[variant]))].append(abs(math.log(ratio)))
    return {choice: each for choice, each in logs.items() if len(each) == len(BASELINES)}


def nearest_over_tasks(on_tasks: OnTasks, brief: bool = False) -> list[str]:
    """Rank the choices of each baseline over the tasks on which all its runs are complete; in
    brief, name the nearest only."""
    sentences = []
    for row, algorithm in ALGORITHMS.items():
        found = _distances(row, on_tasks)
        tasks = dict.fromkeys(title for by_task in found.values() for title in by_task)
        on_all = {choice: of for choice, of in found.items() if len(of) == len(tasks)}
        ranked = _ranked(on_all, brief)
        if ranked and brief:
            sentences.append(ranked[0])
        elif ranked:
            sentences.append(
                f"{algorithm} over {', '.join(tasks)}, with the updates per step that suit each "
                f"task best, from the nearest to the paper's regret: {', then '.join(ranked)}."
            )
    return sentences


def _ranked(found: Mapping[str, Mapping[str, Distance]], brief: bool) -> list[str]:
    """Rank the choices, with their updates per step on each task."""
    logs, notes = dict[str, list[float]](), dict[str, str]()
    for choice, by_task in found.items():
        logs[choice] = [log for log, _ in by_task.values()]
        notes[choice] = "" if brief else _updates(by_task.values())
    return _nearest_first(logs, notes)


def _updates(nearest: Iterable[Distance]) -> str:
    return ", with " + ", ".join(str(updates) for _, updates in nearest)


def _distances(row: str, on_tasks: OnTasks) -> dict[str, dict[str, Distance]]:
    """Return the least distance from the paper's regret and the updates per step that give it, by
    choice of the other settings and task."""
    found: dict[str, dict[str, Distance]] = defaultdict(dict)
    for title, members in on_tasks.items():
        choices = _choices(members)
        baselines = [v for v in members if _is_baseline(v) and _row(v) == row]
        ratios = {variant: regret_ratio(variant) or 0.0 for variant in baselines}
        if not all(ratios.values()):
            continue
        for variant, ratio in ratios.items():
            settings = {n: v for n, v in choices[variant].items() if n != "updates_per_step"}
            here = abs(math.log(ratio)), variant.config["updates_per_step"]
            by_task = found[_name(variant.algo, settings)]
            by_task[title] = min(by_task.get(title, here), here)
    return found
