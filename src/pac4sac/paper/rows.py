"""Find the variants that are rows of the paper's tables or boxes of its figure.

Rows are found by the labels of the shipped studies. Small versions, as in the study `smoke`, are
found too and marked as not comparable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from pac4sac.base.text import assignments
from pac4sac.paper.numbers import ALGORITHMS, PAPER_TASKS, TABLE_1, TABLE_2, TERM_TITLES, PaperCell
from pac4sac.report.style import KNOWN
from pac4sac.report.variants import TaskView, Variant

PRESET = "reproduction"  # our reading of the paper's settings
OURS, FULL = "pac4sac", "bellman+conservative+exploration"  # labels of the same settings
# Other readings of a row of Table 1 that the paper leaves open: label, algorithm, preset.
# Both readings are compared with the paper's numbers.
READINGS = {"sac-calibrated": ("sac", "calibrated")}
# Algorithm and preset of each row, by label.
SETTINGS_OF_TABLE_1 = {algo: (algo, PRESET) for algo in ALGORITHMS} | READINGS
SHOOTING_TASK = "cartpole-swingup"
PAPER_SHOTS = 500
HORIZON = 1000  # episode length of the paper's tasks


@dataclass(frozen=True)
class PaperTable:
    """Hold a table of the paper, with our variants by task and row."""

    name: str  # also the name of its study
    title: str
    head: str  # of the rows
    titles: Mapping[str, str]  # row -> title
    printed: Mapping[str, Mapping[str, PaperCell]]  # task -> row -> cell
    variants: Mapping[tuple[str, str], Variant]  # (task, row) -> variant
    free: Sequence[str] = ()  # settings that the rows vary


@dataclass(frozen=True)
class PaperRows:
    """Hold the variants that are rows of the paper's tables or boxes of its figure."""

    table_1: Mapping[tuple[str, str], Variant]  # (task, algorithm) -> variant
    table_2: Mapping[tuple[str, str], Variant]  # (task, loss terms) -> variant
    shooting: Mapping[int, Variant]  # by S

    @property
    def all(self) -> list[Variant]:
        return [*self.table_1.values(), *self.table_2.values(), *self.shooting.values()]

    @property
    def tables(self) -> list[PaperTable]:
        title = "Table 2: the terms of the critic's loss"
        free = ("xi", "conservative")
        return [
            self._first_table(),
            PaperTable("table-2", title, "Loss terms", TERM_TITLES, TABLE_2, self.table_2, free),
        ]

    def _first_table(self) -> PaperTable:
        """Return Table 1, with an additional row for each trained alternative reading."""
        titles = dict(ALGORITHMS)
        printed = {task: dict(cells) for task, cells in TABLE_1.items()}
        trained = {row for _, row in self.table_1}
        for row, (algo, _) in READINGS.items():
            if row in trained:
                titles[row] = KNOWN[row].name
                for cells in printed.values():
                    cells[row] = cells[algo]
        title = "Table 1: the four algorithms"
        return PaperTable("table-1", title, "Algorithm", titles, printed, self.table_1)


def has_settings(variant: Variant, algo: str, preset: str, given: Mapping[str, Any]) -> bool:
    return (variant.algo, variant.preset, variant.given) == (algo, preset, given)


def find_settings(
    variants: Iterable[Variant], algo: str, preset: str, given: Mapping[str, Any]
) -> Variant | None:
    """Return the first variant with these settings."""
    found = (variant for variant in variants if has_settings(variant, algo, preset, given))
    return next(found, None)


def task_differences(task: TaskView) -> list[str]:
    """Return the differences between a task and the paper's, in words."""
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
    """Return the differences between a variant and the paper's setting, except free settings."""
    settings = dict(variant.given)
    if variant.preset != PRESET and (variant.algo, variant.preset) not in READINGS.values():
        settings["preset"] = variant.preset
    changed = {name: value for name, value in settings.items() if name not in free}
    return [*task_differences(variant.task), *assignments(changed)]


def at_paper_setting(variant: Variant | None, free: Sequence[str] = ()) -> Variant | None:
    """Return the variant if it has the paper's setting, except free settings, else None."""
    if variant is None or departures(variant, free):
        return None
    return variant


def labelled(variants: Sequence[Variant], label: str) -> Variant | None:
    """Return the variant with this label that is closest to the paper's setting."""
    named = [variant for variant in variants if label in variant.labels]
    return min(named, key=lambda variant: len(departures(variant)), default=None)


# --- finding the rows: of several variants for a row, the first is taken


def find_paper_rows(variants: Mapping[str, Sequence[Variant]]) -> PaperRows:
    """Return the rows among the results; tasks with the paper's settings precede changed ones."""
    everything = chain.from_iterable(variants.values())
    on_tasks = [v for v in everything if v.is_result and v.task.name in PAPER_TASKS]
    on_tasks.sort(key=lambda variant: len(departures(variant)))
    ours = [variant for variant in on_tasks if (variant.algo, variant.preset) == (OURS, PRESET)]
    return PaperRows(_find_table_1(on_tasks), _find_table_2(ours), _find_shooting(ours))


def _find_table_1(variants: Sequence[Variant]) -> dict[tuple[str, str], Variant]:
    """Return the variants with the label and the settings of a row, by task and row."""
    found: dict[tuple[str, str], Variant] = {}
    for variant, (row, settings) in product(variants, SETTINGS_OF_TABLE_1.items()):
        if row in variant.labels and settings == (variant.algo, variant.preset):
            found.setdefault((variant.task.name, row), variant)
    return found


def _find_table_2(ours: Sequence[Variant]) -> dict[tuple[str, str], Variant]:
    """Return the variants by task and loss terms; empty if all have the full loss."""
    found: dict[tuple[str, str], Variant] = {}
    for variant in ours:
        if variant.task.name in TABLE_2:
            for terms in _loss_terms(variant.labels):
                found.setdefault((variant.task.name, terms), variant)
    return {} if all(terms == FULL for _, terms in found) else found


def _loss_terms(labels: Sequence[str]) -> list[str]:
    return [FULL] if OURS in labels else [row for row in TERM_TITLES if row in labels]


def _find_shooting(ours: Sequence[Variant]) -> dict[int, Variant]:
    """Return the variants of the shooting study by S; empty if there is only one S."""
    found: dict[int, Variant] = {}
    for variant in ours:
        if variant.task.name == SHOOTING_TASK and _is_of_shooting(variant.labels):
            found.setdefault(variant.shots, variant)
    return found if len(found) > 1 else {}


def _is_of_shooting(labels: Sequence[str]) -> bool:
    return OURS in labels or any(label.startswith(f"{OURS}-shots=") for label in labels)
