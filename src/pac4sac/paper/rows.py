"""Find the variants that are rows of the paper's tables or boxes of its figure.

Rows are found by the labels of the shipped studies. Runs in miniature, as those of the study
smoke, fill the rows too, and are then marked as not comparable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pac4sac.base.text import assignments
from pac4sac.paper.numbers import ALGORITHMS, PAPER_TASKS, TABLE_1, TABLE_2, TERM_TITLES, PaperCell
from pac4sac.report.style import KNOWN
from pac4sac.report.variants import TaskView, Variant

PRESET = "reproduction"  # our reading of the paper's settings
OURS, FULL = "pac4sac", "bellman+conservative+exploration"  # labels of the same settings
# Second readings of what the paper leaves open about a row of Table 1: label, algorithm, preset.
# The paper's numbers are set beside both.
READINGS = {"sac-calibrated": ("sac", "calibrated")}
SHOOTING_TASK = "cartpole-swingup"
PAPER_SHOTS = 500
HORIZON = 1000  # of the paper's tasks


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, and our variants in their places in it."""

    name: str  # that of its study too
    title: str
    head: str  # of the rows
    titles: Mapping[str, str]  # of the rows, by their names
    printed: Mapping[str, Mapping[str, PaperCell]]  # by task, then row
    variants: Mapping[tuple[str, str], Variant]  # by task and row
    free: Sequence[str] = ()  # settings that make the rows, so no departures from the paper's


@dataclass
class PaperRows:
    table_1: dict[tuple[str, str], Variant] = field(default_factory=dict)  # by task and algorithm
    table_2: dict[tuple[str, str], Variant] = field(default_factory=dict)  # by task and loss terms
    shooting: dict[int, Variant] = field(default_factory=dict)  # by S

    @property
    def all(self) -> list[Variant]:
        return [*self.table_1.values(), *self.table_2.values(), *self.shooting.values()]

    @property
    def tables(self) -> list[PaperTable]:
        titles = dict(ALGORITHMS)
        printed = {task: dict(cells) for task, cells in TABLE_1.items()}
        for row, (algo, _) in READINGS.items():
            if any(found == row for _, found in self.table_1):
                titles[row] = KNOWN[row].name
                for cells in printed.values():
                    cells[row] = cells[algo]
        four = "Table 1: the four algorithms"
        terms, free = "Table 2: the terms of the critic's loss", ("xi", "conservative")
        return [
            PaperTable("table-1", four, "Algorithm", titles, printed, self.table_1),
            PaperTable("table-2", terms, "Loss terms", TERM_TITLES, TABLE_2, self.table_2, free),
        ]


def has_settings(variant: Variant, algo: str, preset: str, given: Mapping[str, Any]) -> bool:
    return (variant.algo, variant.preset, variant.given) == (algo, preset, given)


def task_differences(task: TaskView) -> list[str]:
    """Return in what a task differs from the paper's."""
    paper = PAPER_TASKS.get(task.name)
    if paper is None:
        return ["the paper has no such task"]
    wanted = {
        "horizon": HORIZON,
        "r_limit": paper.r_limit,
        "steps": paper.e_max * HORIZON,
        "env_kwargs": {},
    }
    return assignments(
        {key: task.settings[key] for key, value in wanted.items() if task.settings[key] != value}
    )


def departures(variant: Variant, free: Sequence[str] = ()) -> list[str]:
    """Return in what a variant differs from the paper's setting, except for free settings."""
    settings = dict(variant.given)
    if variant.preset != PRESET and (variant.algo, variant.preset) not in READINGS.values():
        settings["preset"] = variant.preset
    changed = {name: value for name, value in settings.items() if name not in free}
    return [*task_differences(variant.task), *assignments(changed)]


def labelled(variants: Sequence[Variant], label: str) -> Variant | None:
    """Return the variant of that label that is nearest to the paper's setting."""
    named = [variant for variant in variants if label in variant.labels]
    return min(named, key=lambda variant: len(departures(variant)), default=None)


def find_paper_rows(variants: Mapping[str, Sequence[Variant]]) -> PaperRows:
    """Return the rows among the results, with tasks as the paper has them before changed ones."""
    results = [v for members in variants.values() for v in members if v.is_result]
    on_tasks = [variant for variant in results if variant.task.name in PAPER_TASKS]
    on_tasks.sort(key=lambda variant: len(departures(variant)))
    rows = PaperRows()
    for variant in on_tasks:
        _place(variant, rows)
    if all(terms == FULL for _, terms in rows.table_2):
        rows.table_2.clear()
    if len(rows.shooting) < 2:
        rows.shooting.clear()
    return rows


def _place(variant: Variant, rows: PaperRows) -> None:
    """Put a variant where the paper has its like, unless another is there."""
    task, labels = variant.task.name, variant.labels
    settings = variant.algo, variant.preset
    for row, wanted in {**{algo: (algo, PRESET) for algo in ALGORITHMS}, **READINGS}.items():
        if row in labels and settings == wanted:
            rows.table_1.setdefault((task, row), variant)
    if settings != (OURS, PRESET):
        return
    if task in TABLE_2:
        for terms in _loss_terms(labels):
            rows.table_2.setdefault((task, terms), variant)
    if task == SHOOTING_TASK and _is_of_shooting(labels):
        rows.shooting.setdefault(variant.shots, variant)


def _loss_terms(labels: Sequence[str]) -> list[str]:
    return [FULL] if OURS in labels else [row for row in TERM_TITLES if row in labels]


def _is_of_shooting(labels: Sequence[str]) -> bool:
    return OURS in labels or any(label.startswith(f"{OURS}-shots=") for label in labels)
