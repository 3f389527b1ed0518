"""The section on calibration: the settings with which the baselines are closest to the paper's
numbers."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from pac4sac.base.files import natural
from pac4sac.base.text import assignments, file_name
from pac4sac.paper.groups import PaperContext
from pac4sac.paper.numbers import ALGORITHMS, TEXTS, paper_cell
from pac4sac.paper.rows import OURS, task_differences
from pac4sac.paper.table_sections import METRICS, UPPER, cell_with_published
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
from pac4sac.report.sentences import listed
from pac4sac.report.tables import Block, Cell, Column, Section, Table, command, data, words
from pac4sac.report.variants import Variant
from pac4sac.runs.collection import FoundStudy
from pac4sac.runs.statistics import Summary, summarise

KIND = "calibration"
BASELINES = ("ddpg", "sac")  # a setting common to all algorithms is chosen by these
ROWS = {"oac-gauss": "oac", "oac-lab": "oac"}  # other readings of a row of the paper
OnTasks = Mapping[str, Sequence[Variant]]


def calibration_section(context: PaperContext) -> Section | None:
    """Return the section on all studies that choose a setting by the paper's numbers."""
    blocks: list[Block] = []
    for study in studies_of_kind(context, KIND):
        if on_tasks := chosen_by(context, study):
            blocks += [study_heading(study), *nearest_over_tasks(_comparable(on_tasks))]
            for title, members in on_tasks.items():
                blocks += _blocks_on_task(study, title, members)
    return Section(KIND, KIND.capitalize(), [TEXTS[KIND], *blocks]) if blocks else None


def _blocks_on_task(study: FoundStudy, title: str, members: Sequence[Variant]) -> list[Block]:
    """Return the ranked settings and the table on a task; only the latter if the paper lacks the
    task."""
    if task_differences(members[0].task):
        return chosen_blocks(study, {title: members})
    name, caption = file_name(f"{study.name}-{title}"), f"Calibration on {title}"
    return [*_nearest_on_task(members), _calibration_table(name, caption, members)]


def calibration_answer(context: PaperContext, study: FoundStudy) -> str:
    """Return a sentence with the setting closest to the paper's numbers."""
    on_tasks = chosen_by(context, study)
    comparable = _comparable(on_tasks)
    if not comparable:
        return chosen_answer(on_tasks)
    nearest = _nearest_over_tasks_in_brief(comparable)
    if not nearest:
        on_each = [_nearest_in_brief(members) for members in comparable.values()]
        nearest = [brief for brief in on_each if brief]
    return (
        f"The settings closest to the paper's regret: {', '.join(nearest)}."
        if nearest
        else NOTHING_COMPLETE
    )


def _comparable(on_tasks: OnTasks) -> dict[str, Sequence[Variant]]:
    """Return the tasks that have the paper's settings."""
    return {
        title: members
        for title, members in on_tasks.items()
        if not task_differences(members[0].task)
    }


def _calibration_table(name: str, caption: str, members: Sequence[Variant]) -> Table:
    """Return a table of variants on a task next to the rows of the paper that they correspond
    to."""
    names = {variant: _name(variant.algo, own) for variant, own in _choices(members).items()}
    columns = [
        data("task", get="task.title"),
        words("Variant", names.__getitem__, "variant"),
        Column("Runs", runs_cell, "runs"),
        *_metric_columns("regret"),
        *_metric_columns("episodes"),
        Column("regret ÷ paper's", regret_ratio, "regret_times_paper", digits=2),
        Column("solved", lambda v: Cell(v.solved_text, v.solved), "solved"),
        command("command", "command"),
    ]
    rows = sorted(members, key=lambda variant: natural(names[variant]))
    return Table(name, f"{caption}. {UPPER}, and the lower value is the paper's", columns, rows)


def _metric_columns(metric: str) -> list[Column]:
    """Return the columns of a metric: one with ours above the paper's, separate ones in the CSV."""

    def comparison(variant: Variant) -> Cell:
        theirs, free = _published(variant, metric), ["preset", *variant.config]
        return cell_with_published(
            variant, metric, theirs, compare_cell(variant, metric, theirs, free)
        )

    def own(variant: Variant) -> Summary | None:
        values, _ = variant.shown(metric)
        return summarise(values) if values else None

    def of_paper(variant: Variant) -> tuple[Any, ...]:
        theirs = _published(variant, metric)
        return theirs.mean if theirs else None, comparison(variant).verdict

    title, _ = METRICS[metric]
    columns = [Column(title, comparison), data(metric, f"{metric}_sd", get=own)]
    if metric == "regret":
        columns.append(data("regret_note", get=lambda variant: variant.shown("regret")[1]))
    return [*columns, data(f"paper_{metric}", f"{metric}_verdict", get=of_paper)]


def _name(algo: str, settings: Mapping[str, Any]) -> str:
    return "-".join([algo, *assignments(settings)])


def _choices(members: Sequence[Variant]) -> dict[Variant, dict[str, Any]]:
    """Return the settings of each variant that differ between variants of its algorithm."""
    choices = {}
    for variant in members:
        same_algo = [other.config for other in members if other.algo == variant.algo]
        choices[variant] = dict(sorted(set_apart(variant.config, same_algo).items()))
    return choices


def _row(variant: Variant) -> str:
    """Return the row of the paper's Table 1 that a variant corresponds to."""
    return ROWS.get(variant.algo, variant.algo)


def _is_baseline(variant: Variant) -> bool:
    return _row(variant) in ALGORITHMS and _row(variant) != OURS


def _published(variant: Variant, metric: str) -> Summary | None:
    return getattr(paper_cell(variant.task.name, _row(variant)), metric, None)


def regret_ratio(variant: Variant) -> float | None:
    """Return the regret divided by the paper's; None if one of them is unknown."""
    theirs, own = _published(variant, "regret"), variant.summary("regret")
    return own.mean / theirs.mean if theirs and own else None


def _distance(ratio: float) -> float:
    """Return |ln ratio|, the distance of a ratio from 1; 2 and 0.5 have the same distance."""
    return abs(math.log(ratio))


def _rank(distances: Mapping[str, Sequence[float]]) -> list[tuple[str, float]]:
    """Return choices with their mean factor from the paper's regrets, closest first; empty if there
    is only one choice."""
    factors = {choice: math.exp(fmean(each)) for choice, each in distances.items()}
    ranked = sorted(factors.items(), key=lambda found: (found[1], found[0]))
    return ranked if len(ranked) > 1 else []


# --- the closest setting on one task


def _nearest_on_task(members: Sequence[Variant]) -> list[str]:
    """Rank the settings that the baselines share, on one task."""
    title, choices = members[0].task.title, _choices(members)
    if waiting := _unfinished_baselines(members):
        names = listed([f"`{_name(v.algo, choices[v])}`" for v in waiting])
        return [f"The settings on {title} are not ranked, because runs of {names} are unfinished."]
    ranked = _rank(_shared_choices(members))
    if not ranked:
        return []
    names = ", followed by ".join(f"`{choice}` (factor {factor:.2f})" for choice, factor in ranked)
    closest = "the setting that brings the regret of DDPG and SAC closest to the paper's is"
    return [f"On {title}, {closest} {names}."]


def _nearest_in_brief(members: Sequence[Variant]) -> str:
    """Return the closest setting on one task as a phrase; empty if there is only one."""
    title = members[0].task.title
    if _unfinished_baselines(members):
        return f"not ranked on {title} (unfinished runs)"
    ranked = _rank(_shared_choices(members))
    if not ranked:
        return ""
    choice, factor = ranked[0]
    return f"`{choice}` (factor {factor:.2f}) on {title}"


def _unfinished_baselines(members: Sequence[Variant]) -> list[Variant]:
    return [variant for variant in members if _is_baseline(variant) and variant.in_progress]


def _shared_choices(members: Sequence[Variant]) -> dict[str, list[float]]:
    """Return the distances from the paper's regret, by settings that all baselines share."""
    distances: dict[str, list[float]] = defaultdict(list)
    for variant, settings in _choices(members).items():
        ratio = regret_ratio(variant)
        if variant.algo in BASELINES and settings and ratio:
            distances[", ".join(assignments(settings))].append(_distance(ratio))
    return {choice: each for choice, each in distances.items() if len(each) == len(BASELINES)}


# --- the closest setting over tasks, with updates per step chosen for each task


@dataclass(frozen=True, order=True)
class Nearest:
    """Hold the smallest distance from the paper's regret on a task, with its updates per step."""

    distance: float
    updates_per_step: int


def nearest_over_tasks(on_tasks: OnTasks) -> list[str]:
    """Rank the choices of each baseline over the tasks on which all its runs are complete."""
    sentences = []
    for row, algorithm in ALGORITHMS.items():
        found = _found_on_all_tasks(row, on_tasks)
        names = []
        for choice, factor in _rank_over_tasks(found):
            counts = [str(n.updates_per_step) for n in found[choice].values()]
            updates = f"{listed(counts)} updates per step{', respectively' * (len(counts) > 1)}"
            names.append(f"`{choice}` (factor {factor:.2f}; {updates})")
        if names:
            tasks = listed(list(next(iter(found.values()))))
            sentences.append(
                f"On {tasks}, the regret of {algorithm} is closest to the paper's with "
                f"{', followed by '.join(names)}."
            )
    return sentences


def _nearest_over_tasks_in_brief(on_tasks: OnTasks) -> list[str]:
    """Return phrases with the closest choice of each baseline that has one."""
    ranked = [_rank_over_tasks(_found_on_all_tasks(row, on_tasks)) for row in ALGORITHMS]
    nearest = [choices[0] for choices in ranked if choices]
    return [f"`{choice}` (factor {factor:.2f})" for choice, factor in nearest]


def _rank_over_tasks(found: Mapping[str, Mapping[str, Nearest]]) -> list[tuple[str, float]]:
    """Rank choices by their mean distance over all tasks."""
    distances = {}
    for choice, by_task in found.items():
        distances[choice] = [nearest.distance for nearest in by_task.values()]
    return _rank(distances)


def _found_on_all_tasks(row: str, on_tasks: OnTasks) -> dict[str, dict[str, Nearest]]:
    """Return the closest results to a row of the paper by choice and task, for choices trained on
    all tasks."""
    found: dict[str, dict[str, Nearest]] = defaultdict(dict)
    for title, members in on_tasks.items():
        for choice, nearest in _nearest_by_choice(row, members).items():
            found[choice][title] = nearest
    tasks = set(chain.from_iterable(found.values()))
    return {choice: by_task for choice, by_task in found.items() if by_task.keys() == tasks}


def _nearest_by_choice(row: str, members: Sequence[Variant]) -> dict[str, Nearest]:
    """Return the closest result to a row of the paper on one task, by choice of settings; empty if
    any regret is unknown."""
    choices = _choices(members)
    ratios = {v: regret_ratio(v) for v in members if _is_baseline(v) and _row(v) == row}
    found: dict[str, Nearest] = {}
    for variant, ratio in ratios.items():
        if not ratio:
            return {}
        settings = choices[variant]
        settings.pop("updates_per_step", None)
        choice = _name(variant.algo, settings)
        here = Nearest(_distance(ratio), variant.config["updates_per_step"])
        found[choice] = min(found.get(choice, here), here)
    return found
