"""Sections on runs that chose a setting: by calibration, how near it brings the baselines to the paper's numbers, or by
search, what has the least regret."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pac4sac.base.text import file_name, setting_text
from pac4sac.paper import numbers as paper
from pac4sac.paper.table_sections import METRICS, compare_cell
from pac4sac.report.tables import Cell, Column, Section, Table, mean_sd
from pac4sac.report.variants import Group
from pac4sac.report.versus_baseline import against, comparison_table, runs_cell
from pac4sac.runs.statistics import Summary, summarise

BASELINES = ("ddpg", "sac")
SEARCH_INTRO = (
    "Trained on seeds of their own to find settings worth using; never counted as results. The best of many lies too "
    "low by chance: what it is worth is for other seeds to say."
)
INTRO = (
    "Trained on seeds of their own to choose a setting that the paper leaves open; never counted as results. What "
    "counts for the choice are the baselines' rows, so that PAC4SAC is not tuned to its own."
)


def calibration_section(groups: Mapping[str, Sequence[Group]]) -> Section | None:
    blocks: list[Any] = []
    for found in groups.values():
        members = [group for group in found if group.chose == "calibration"]
        if not members:
            continue
        task = found[0].task
        name, caption = f"calibration-{file_name(task.title)}", f"Calibration on {task.title}"
        if task.differences:  # the paper has nothing to compare with
            blocks.append(comparison_table(name, caption, against(members, None), task))
        else:
            blocks += [*_nearest(members), _beside_the_paper(name, caption, members)]
    return Section("calibration", "Calibration", [INTRO, *blocks]) if blocks else None


def search_section(groups: Mapping[str, Sequence[Group]]) -> Section | None:
    blocks: list[Any] = []
    for found in groups.values():
        members = [group for group in found if group.chose == "search"]
        if members:
            task = found[0].task
            name, caption = f"search-{file_name(task.title)}", f"Search on {task.title}"
            blocks.append(comparison_table(name, caption, against(members, None), task))
    return Section("search", "Search", [SEARCH_INTRO, *blocks]) if blocks else None


def _beside_the_paper(name: str, caption: str, members: Sequence[Group]) -> Table:
    columns = [Column("Variant", numeric=False), Column("Runs"), *(Column(title) for title, _ in METRICS.values()),
               Column("regret, × paper"), Column("solved"), Column("Repeat with", numeric=False)]  # fmt: skip
    body, records = [], []
    for group in members:
        printed = paper.paper_cell(group.task.name, group.algo)
        label = group.label.removesuffix(" (calibration)")
        cells = [Cell(label, label), runs_cell(group)]
        record: dict[str, Any] = {"task": group.task.title, "variant": label, "runs": len(group.complete)}
        for metric, (_, scale) in METRICS.items():
            values, note = group.shown(metric)
            own = summarise(values) if values else None
            theirs: paper.Cell | None = getattr(printed, metric) if printed else None
            shown = mean_sd(Summary(paper.SEEDS, theirs.mean, theirs.sd), scale) if theirs else ""
            found = compare_cell(group, metric, theirs, list(group.config)) if theirs else None
            verdict, reason = (found.verdict, found.reason) if found else ("", "")
            place = own.mean if own and not note else None
            cells.append(Cell(mean_sd(own, scale), place, shown, verdict, reason, note))
            record |= {metric: own.mean if own else None, f"{metric}_sd": own.sd if own else None}
            record |= {f"{metric}_note": note} if metric == "regret" else {}
            record |= {f"paper_{metric}": theirs.mean if theirs else None, f"{metric}_verdict": verdict}
        ratio = regret_ratio(group)
        cells.append(Cell(f"{ratio:.2f}", ratio) if ratio else Cell())
        cells += [Cell(group.solved_text, group.solved), Cell(group.command, code=True)]
        body.append(cells)
        records.append(record | {"regret_times_paper": ratio, "solved": group.solved, "command": group.command})
    caption += ". Regret in thousands and episodes until solved, mean ± sd, ours above the paper's"
    return Table(name, caption, columns, body, records)


def regret_ratio(group: Group) -> float | None:
    printed, values = paper.paper_cell(group.task.name, group.algo), group.values("regret")
    return summarise(values).mean / printed.regret.mean if printed and values else None


def _nearest(members: Sequence[Group]) -> list[str]:
    """The settings by how far the baselines' regrets are from the paper's, as a factor, whichever way."""
    title = members[0].task.title
    if waiting := [group.label for group in members if group.algo in BASELINES and group.under_way]:
        names = ", ".join(f"`{label.removesuffix(' (calibration)')}`" for label in waiting)
        return [f"On {title} the settings are not ranked: runs of {names} are unfinished."]
    varied = [name for name in members[0].config if _varies(name, members)]
    ratios: dict[str, list[float]] = {}
    for group in members:
        ratio = regret_ratio(group) if group.algo in BASELINES else None
        if ratio:
            setting = ", ".join(f"{name}={setting_text(group.config.get(name))}" for name in varied)
            ratios.setdefault(setting, []).append(abs(math.log(ratio)))
    complete = {setting: found for setting, found in ratios.items() if len(found) == len(BASELINES)}
    if len(complete) < 2:
        return []
    factors = {setting: math.exp(sum(found) / len(found)) for setting, found in complete.items()}
    told = [f"`{setting}` (a factor of {factors[setting]:.2f})" for setting in sorted(factors, key=factors.__getitem__)]
    return [f"On {title}, from the nearest to the paper's regret of DDPG and SAC: {', then '.join(told)}."]


def _varies(name: str, members: Sequence[Group]) -> bool:
    values: dict[str, Any] = {}
    return any(values.setdefault(g.algo, g.config.get(name)) != g.config.get(name) for g in members)
