"""The section on exploration: the agents that solve tasks with a sparse reward, and the parts of
the exploring agent that this requires."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pac4sac.base.text import file_name, p_value
from pac4sac.paper.groups import PaperContext
from pac4sac.paper.numbers import TEXTS
from pac4sac.report.comparison import Compared, compare_headline, metric_cell, variant_cell
from pac4sac.report.figures import (
    FAINT,
    INK,
    SINGLE,
    SMALL,
    Floats,
    drawn,
    finish_panel,
    new_figure,
    stroke,
)
from pac4sac.report.provenance import mixtures
from pac4sac.report.tables import (
    Block,
    Cell,
    Column,
    Picture,
    Section,
    Table,
    command,
    data,
    with_ends,
    words,
)
from pac4sac.report.variants import Variant
from pac4sac.runs.metrics import STREAK, solved_at
from pac4sac.runs.reading import RunRecord
from pac4sac.runs.statistics import fisher, holm

STUDY, AGENT = "exploration", "pac4sac-explore"
SIGNIFICANT = 0.05
ROW, NAME = 0.19, 32  # inches per bar, characters per line of its name


@dataclass(frozen=True)
class Explored:
    """Hold a variant compared with the exploring agent: solved seeds, regret, two corrected
    tests."""

    compared: Compared
    p_solved: float | None

    @property
    def variant(self) -> Variant:
        return self.compared.variant

    @property
    def differs(self) -> bool:
        """Return whether it differs significantly from the agent, in solved seeds or regret."""
        known = [p for p in (self.p_solved, self.compared.p) if p is not None]
        return any(p < SIGNIFICANT for p in known)


def exploration_section(context: PaperContext) -> Section | None:
    """Return the section on the exploration study; None without runs of it."""
    blocks: list[Block] = []
    for title in context.variants:
        blocks += _on_task(title, explored_on(context, title))
    if not blocks:
        return None
    return Section(STUDY, "Exploration", [TEXTS["exploration"]["intro"], *blocks])


def explored_on(context: PaperContext, title: str) -> list[Explored]:
    """Return all variants of the study on a task, best first; empty unless agent and others
    exist."""
    members = [v for v in context.results(title) if STUDY in v.studies and v.has_results]
    agent = next((v for v in members if v.label == AGENT), None)
    if agent is None or len(members) < 2:
        return []
    compared = compare_headline(members, agent, "Exploration")
    p_solved = holm([_p_solved(row.variant, agent) for row in compared])
    rows = [Explored(row, p) for row, p in zip(compared, p_solved, strict=True)]
    return sorted(rows, key=lambda row: float(np.mean(row.compared.values)))


def _p_solved(variant: Variant, agent: Variant) -> float | None:
    """Return Fisher's p-value for solved seeds of a variant against the agent."""
    if variant is agent:
        return None
    ours, theirs = ((v.solved, len(v.judged)) for v in (variant, agent))
    return fisher(ours, theirs)


def _on_task(title: str, rows: Sequence[Explored]) -> list[Block]:
    """Return the blocks on one task: the answer, the figure and the table."""
    if not rows:
        return []
    name = f"{STUDY}-{file_name(title)}"
    caption = TEXTS["exploration"]["caption"].format(task=title)
    return [
        in_short(title, rows),
        Picture(name, caption, partial(exploration_figure, [row.variant for row in rows])),
        _table(name, title, rows),
        *mixtures([row.variant for row in rows]),
    ]


def in_short(title: str, rows: Sequence[Explored]) -> str:
    """Return sentences on the seeds that the agent solves and the variants it differs from."""
    agent = next(row.variant for row in rows if row.compared.is_baseline)
    others = [row for row in rows if not row.compared.is_baseline]
    undecided = [row.variant.style.name for row in others if not row.differs]
    most = max(others, key=lambda row: row.variant.solved).variant
    text: str = TEXTS["exploration"]["short"].format(
        agent=agent.style.name,
        task=title,
        solved=agent.solved_text,
        other=most.style.name,
        other_solved=most.solved_text,
        differing=len(others) - len(undecided),
        others=len(others),
    )
    if not undecided:
        return text
    return f"{text} {TEXTS['exploration']['not_shown'].format(names=', '.join(undecided))}"


def _table(name: str, title: str, rows: Sequence[Explored]) -> Table:
    task = rows[0].variant.task
    columns = [
        words("Variant", lambda row: variant_cell(row.variant)),
        Column(
            "seeds solved", lambda row: Cell(row.variant.solved_text, row.variant.solved), "solved"
        ),
        Column("p (Holm): seeds solved (Fisher)", "p_solved", "p_solved", show=p_value),
        Column(task.unit, lambda row: metric_cell(row.variant, task.headline.key, task.scale)),
        Column("difference [95%]", "compared.difference", scale=task.scale),
        Column("p (Holm): means (Welch)", "compared.p", "p", show=p_value),
        Column("episodes until solved", lambda row: metric_cell(row.variant, "episodes")),
        command("variant.command"),
        data("variant", get="variant.label"),
        data("seeds", get=lambda row: len(row.variant.judged)),
        data("regret", "regret_sd", get=lambda row: row.variant.summary(task.headline.key)),
        data(*with_ends("difference"), get="compared.difference"),
    ]
    return Table(name, f"Exploration on {title}", columns, rows)


# --- the figure, as narrow as a column of a paper so that it fits a phone


def exploration_figure(variants: Sequence[Variant]) -> Figure:
    """Draw the solved seeds of each variant, and learning curves of variants that solved at least
    one."""
    task, bars = variants[0].task, ROW * len(variants)
    figure, (solved, curves) = new_figure(
        f"Exploration on {task.title}", 2, SINGLE, 2.3 + bars, columns=1
    )
    solved.get_gridspec().set_height_ratios([bars, 1.4])
    _draw_solved(solved, variants)
    shown = [variant for variant in variants if variant.solved]
    for variant in shown:
        look = {**stroke(variant.style), "linewidth": 1.3}
        curves.plot(*_mean_curve(variant), **look)
    finish_panel(curves, "training episodes", "return", "Mean over seeds")
    curves.axhline(task.r_limit, color=FAINT, linewidth=0.8, linestyle=(0, (5, 3)))
    return figure


def _draw_solved(panel: Any, variants: Sequence[Variant]) -> None:
    """Draw a bar with the number of solved seeds for each variant, best at the top."""
    places = range(len(variants), 0, -1)
    most = max(len(variant.judged) for variant in variants)
    for place, variant in zip(places, variants, strict=True):
        panel.barh(place, variant.solved, 0.7, color=variant.style.colour)
        panel.text(
            variant.solved + 0.02 * most,
            place,
            f"{variant.solved}",
            va="center",
            fontsize=SMALL,
            color=INK,
        )
    finish_panel(panel, f"seeds solved, of {most}", "")
    panel.set_yticks(list(places), [drawn(v.style.name, NAME) for v in variants])
    panel.tick_params(axis="y", length=0)
    panel.set_xlim(0, 1.08 * most)
    panel.set_ylim(0.4, len(variants) + 0.6)
    panel.grid(axis="y", visible=False)


def _mean_curve(variant: Variant) -> tuple[Floats, Floats]:
    """Return episodes and the mean return over seeds."""
    e_max = variant.task.e_max or max(len(run.returns) for run in variant.runs)
    curves = [carried_returns(run, variant.task.r_limit, e_max) for run in variant.runs]
    return np.arange(1, e_max + 1, dtype=np.float64), np.mean(curves, axis=0)


def carried_returns(run: RunRecord, r_limit: float | None, e_max: int) -> Floats:
    """Return the running mean of five returns up to E_max.

    A run that stopped when it was solved keeps the mean of its five solving episodes.
    """
    returns = np.asarray(run.returns, dtype=np.float64)
    first = None if r_limit is None else solved_at(returns, r_limit)
    end = len(returns) if first is None else first + STREAK
    kept = returns[:end]
    sums = np.cumsum(np.concatenate([np.zeros(STREAK), kept]))
    counts = np.minimum(np.arange(1, len(kept) + 1), STREAK)
    means = (sums[STREAK:] - sums[:-STREAK]) / counts
    return np.concatenate([means, np.full(max(0, e_max - end), means[-1])])[:e_max]
